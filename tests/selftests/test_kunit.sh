#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# The results of thc.ko's KUnit suites, which ran when it was loaded, as one.
suites=/sys/kernel/debug/kunit
results=$suites/thc/results

if [ ! -r "$results" ]; then
	if [ "${THC_VM_KERNEL:-}" = debug ]; then
		printf '1..1\nnot ok 1 - thc.ko has run its KUnit suites\n'
		exit 1
	fi
	echo "TAP version 13"
	echo "1..0 # SKIP this kernel has no KUnit: the debug kernel has"
	exit 4
fi
all=$(cat "$results" "$suites/thc_simd/results") || exit 1
echo "KTAP version 1"
echo "1..$(echo "$all" | grep -c '^    \(not \)\?ok')"
echo "$all" | awk '
/^    (not )?ok/ { sub(/ok [0-9]+/, "ok " ++n) }
/^    (ok|not ok|#)/ { print substr($0, 5) }'
! echo "$all" | grep -q '^ *not ok' && [ "$(echo "$all" | grep -c '^ok')" = 2 ]
