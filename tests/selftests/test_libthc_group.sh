#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# Groups of jobs over AF_THC: thc.ko accepts only the aggregator's packets to the group.

# shellcheck source=/dev/null
. "$(dirname "$0")/libthc.sh"
over_af_thc test_group.py group__others_are_not_heard__ipv4 group__others_are_not_heard__ipv6
