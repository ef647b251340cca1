#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# Buckets with a rate over AF_THC.

# shellcheck source=/dev/null
. "$(dirname "$0")/libthc.sh"
over_af_thc test_rate.py
