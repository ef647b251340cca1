#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# Jobs of several aggregators over AF_THC: sums have the bits of a single aggregator's sums.

# shellcheck source=/dev/null
. "$(dirname "$0")/libthc.sh"
over_af_thc test_shards.py bits__software_8
