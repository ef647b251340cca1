#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# Digests of rounds over AF_THC equal those of protocol.md's decoder; errors name deceived ranks.

# shellcheck source=/dev/null
. "$(dirname "$0")/libthc.sh"
over_af_thc test_digests.py digests__of_sealed_jobs__software altered__without_a_seal
