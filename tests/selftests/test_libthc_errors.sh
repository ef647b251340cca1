#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# Errors name the rank or aggregator at fault, over AF_THC.

# shellcheck source=/dev/null
. "$(dirname "$0")/libthc.sh"
over_af_thc test_client_errors
