#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# Builds thc.ko for every kernel whose headers are installed, with all warnings
# (W=1), in a copy: the kernel's build system writes beside the source. Any warning is
# a failure. For the first kernel tests/install.sh builds thc.ko so, as DKMS does: here
# only the other files are compiled. (tests/vm/build-module runs sparse.) One TAP
# test per kernel, one per kernel and newer release whose interfaces tests/kernel/newer.py
# puts into that kernel's headers, and one for a kernel of 32 bits, which is refused; exit
# 4 if there is no kernel, 1 if THC_MUST_RUN is 1 (.ci/run).
set -u

cd "$(dirname "$0")/.." || exit 1
BUILD=${BUILD:-build}
PYTHON=${PYTHON:-/usr/bin/python3}
unset MAKEFLAGS MFLAGS MAKELEVEL MAKEOVERRIDES
number=0
failed=0

# copy_to NAME: a fresh copy of the sources, its path in $copy
copy_to()
{
	copy=$(mkdir -p "$BUILD/kmod/$1" && cd "$BUILD/kmod/$1" && pwd) || exit 1
	rm -rf "${copy:?}"/*
	mkdir "$copy/tests"
	cp -r Kbuild kmod include "$copy"
	cp -r tests/kernel "$copy/tests"
}

# result NAME STATUS: one TAP line, and after a failure the log in $copy
result()
{
	number=$((number + 1))
	if [ "$2" -eq 0 ]; then
		echo "ok $number - $1"
	else
		echo "not ok $number - $1"
		sed 's/^/# /' "$copy/log"
		failed=1
	fi
}

# build ARGUMENT...: make in $copy, W=1, without debug information; a warning is a failure
build()
{
	make -j"$(nproc)" -C "$kernel" M="$copy" W=1 KCFLAGS=-g0 "$@" >"$copy/log" 2>&1 </dev/null &&
		! grep -q 'warning:' "$copy/log"
}

# build a source that includes all headers that newer.py changes
builds_headers()
{
	build CONFIG_THC_HEADERS=y tests/kernel/headers.o kmod/peer.o &&
		[ -s "$copy/tests/kernel/headers.o" ]
}

builds_all()
{
	build CONFIG_THC_HEADERS=y modules &&
		[ -s "$copy/thc.ko" ] && [ -s "$copy/tests/kernel/headers.o" ]
}

# compiles_for RELEASE TARGET...: compile with headers without the interfaces that RELEASE replaced.
# Nothing is linked: this kernel lacks the new interfaces.
compiles_for()
{
	built=$BUILD/kmod/$version
	release=$1
	shift
	mkdir "$copy/newer"
	"$PYTHON" tests/kernel/newer.py "$release" "$built" "$copy/newer" >"$copy/log" 2>&1 &&
		build "NOSTDINC_FLAGS=-nostdinc -I$copy/newer" "$@" || return 1
	for target; do
		[ -s "$copy/$target" ] || return 1
	done
}

for kernel in /lib/modules/*/build; do
	[ -e "$kernel/Makefile" ] || continue
	version=${kernel#/lib/modules/}
	version=${version%/build}
	copy_to "$version"
	if [ $number -eq 0 ]; then
		builds_headers
		result "the shared headers compile without warnings for $version" $?
	else
		builds_all
		result "thc.ko builds without warnings for $version" $?
	fi
	copy_to "$version-7.1"
	compiles_for 7.1 thc.o
	result "thc.ko compiles for $version with the interfaces of 7.1" $?
	copy_to "$version-next"
	compiles_for next kmod/socket.o kmod/options.o
	result "thc.ko compiles for $version with the getsockopt() that is announced" $?
done
if [ $number -gt 0 ]; then
	! make -C "$kernel" M="$copy" CONFIG_64BIT= modules >"$copy/log" 2>&1 </dev/null &&
		grep -q 'needs a 64-bit kernel' "$copy/log"
	result "a 32-bit kernel is refused with a sentence" $?
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
