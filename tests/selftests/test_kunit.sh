#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# The results of thc.ko's KUnit suites, which ran when it was loaded.
results=/sys/kernel/debug/kunit/thc/results

if [ ! -r "$results" ]; then
	echo "TAP version 13"
	echo "1..0 # SKIP this kernel has no KUnit: the debug kernel has"
	exit 4
fi
sed -n 's/^    \(KTAP\|1\.\.\|ok\|not ok\|#\)/\1/p' "$results"
! grep -q '^ *not ok' "$results" && grep -q '^ok' "$results"
