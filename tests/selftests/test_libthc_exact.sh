#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# Exact means by lhc over AF_THC, at 20 % loss, with duplicated and reordered packets. A machine is
# slow, so there are few values. Three aggregators, which take minutes there, run only if THC_EXACT
# gives the number of values.

# shellcheck source=/dev/null
. "$(dirname "$0")/libthc.sh"
if [ -n "${THC_EXACT:-}" ]; then
	over_af_thc test_exact.py
else
	export THC_EXACT=20000
	over_af_thc test_exact.py exact__generic_1
fi
