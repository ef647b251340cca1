#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# A training program recovers from the failures of practice, over AF_THC.

# shellcheck source=/dev/null
. "$(dirname "$0")/libthc.sh"
over_af_thc test_recovery.py
