#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# Jobs of several aggregators over AF_THC: thc.ko finds them, and sums have the bits of one.

# shellcheck source=/dev/null
. "$(dirname "$0")/libthc.sh"
over_af_thc test_shards.py bits__software_8
