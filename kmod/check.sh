#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# Builds thc.ko for every kernel whose headers are installed, with all warnings
# (W=1) and sparse (C=2), in a copy: the kernel's build system writes beside the
# source. No warning is let pass. One TAP test per kernel, and one for a kernel of
# 32 bits, which is refused; exit 4 when there is none, 1 if
# THC_MUST_RUN is 1 (.ci/run).
set -u

cd "$(dirname "$0")/.." || exit 1
BUILD=${BUILD:-build}
unset MAKEFLAGS MFLAGS MAKELEVEL MAKEOVERRIDES
number=0
failed=0

for kernel in /lib/modules/*/build; do
	[ -e "$kernel/Makefile" ] || continue
	version=${kernel#/lib/modules/}
	version=${version%/build}
	copy=$(mkdir -p "$BUILD/kmod/$version" && cd "$BUILD/kmod/$version" && pwd) || exit 1
	rm -rf "${copy:?}"/*
	mkdir "$copy/tests"
	cp -r Kbuild kmod include "$copy"
	cp -r tests/kernel "$copy/tests"
	number=$((number + 1))
	if make -j"$(nproc)" -C "$kernel" M="$copy" W=1 C=2 CONFIG_THC_HEADERS=y modules \
			>"$copy/log" 2>&1 </dev/null &&
		[ -s "$copy/thc.ko" ] && [ -s "$copy/tests/kernel/headers.o" ] &&
		! grep -q 'warning:' "$copy/log"; then
		echo "ok $number - thc.ko builds without warnings for $version"
	else
		echo "not ok $number - thc.ko builds without warnings for $version"
		sed 's/^/# /' "$copy/log"
		failed=1
	fi
done
if [ $number -gt 0 ]; then
	number=$((number + 1))
	if make -C "$kernel" M="$copy" CONFIG_64BIT= modules >"$copy/log" 2>&1 </dev/null ||
		! grep -q 'needs a 64-bit kernel' "$copy/log"; then
		echo "not ok $number - a 32-bit kernel is refused with a sentence"
		sed 's/^/# /' "$copy/log"
		failed=1
	else
		echo "ok $number - a 32-bit kernel is refused with a sentence"
	fi
fi
if [ $number -eq 0 ]; then
	reason="no kernel headers: apt-get install linux-headers-cloud-amd64"
	if [ "${THC_MUST_RUN:-0}" = 1 ]; then
		echo "1..1"
		echo "not ok 1 - THC_MUST_RUN, but there are $reason"
		exit 1
	fi
	echo "1..0 # SKIP $reason"
	exit 4
fi
echo "1..$number"
exit $failed
