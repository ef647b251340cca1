#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# Means over AF_THC: rank counts, lengths, types, error feedback, overlap.

# shellcheck source=/dev/null
. "$(dirname "$0")/libthc.sh"
over_af_thc test_client
