#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# All-reduces over AF_THC: every scheme and width, several aggregators, losses.

# shellcheck source=/dev/null
. "$(dirname "$0")/libthc.sh"
over_af_thc test_cover.py
