#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# Builds programs of the tests, and with them thcd, thcctl and the library, with sanitizers into
# $BUILD/asan or $BUILD/tsan, and runs them:
#	sanitized.sh asan|tsan GROUP/TEST...	as in: asan netns/test_client netns/test_faults.py
# A program fails if it does, or if any process that it started reported anything: reports go to
# files, since a test may not show what its daemons say. A Python process that loads the library
# (tools/netns.py, environment()) gets the sanitizer's own library first.
set -u

cd "$(dirname "$0")/.." || exit 1
BUILD=${BUILD:-build}
MAKE=${MAKE:-make}
PYTHON=${PYTHON:-/usr/bin/python3}
unset MAKEFLAGS MFLAGS MAKELEVEL MAKEOVERRIDES

kind=${1:-}
shift
case $kind in
asan)
	san="-fsanitize=address,undefined -fno-sanitize-recover=all"
	warn=
	;;
tsan)
	san=-fsanitize=thread
	# the library has no fences, and thcd, which has, no threads
	warn=-Wno-tsan
	;;
*)
	echo "sanitized.sh: asan or tsan, not '$kind'" >&2
	exit 2
	;;
esac
at=$(realpath -m "$BUILD")/$kind

targets=
for test; do
	case $test in
	*.py) targets="$targets all $at/tests/netns/impair" ;;
	netns/*) targets="$targets all $at/tests/$test" ;;
	*) targets="$targets $at/tests/$test" ;;
	esac
done
mkdir -p "$at" && gcc -fPIC -Wall -Wextra -Werror -c -o "$at/sanitized.o" tests/sanitized.c || exit 1
# shellcheck disable=SC2086 # a list of words
"$MAKE" -s -j"$(nproc)" BUILD="$at" CFLAGS="-O1 -g1 -fno-omit-frame-pointer $warn" SAN="$san" \
	LDFLAGS="$at/sanitized.o" \
	WERROR=-Werror $targets </dev/null || exit 1

# What the tests start as another user reports, too.
reports=$(mktemp -d) && chmod 1777 "$reports" || exit 1
trap 'rm -rf "$reports"' EXIT
trap 'exit 130' INT TERM

# Where addresses are too random, the sanitizers of older compilers find no room.
still=
setarch -R true 2>/dev/null && still="setarch -R"
export BUILD="$at"
# times out later: see tests/netns/test_client_deadline.c
export THC_TEST_SLOW=5
# what differs in the aggregator alone, once: see tests/lib/tap.py
export THC_SANITIZED="$kind"
common="log_path=$reports/report:log_exe_name=1:exitcode=66"
export ASAN_OPTIONS="$common:detect_leaks=1:detect_stack_use_after_return=1"
export UBSAN_OPTIONS=print_stacktrace=1 UBSAN_REPORT="$reports/report"
export TSAN_OPTIONS="$common:second_deadlock_stack=1"
RANK_PRELOAD=$(gcc -print-file-name="lib$kind.so")
export RANK_PRELOAD

failed=0
for test; do
	rm -f "$reports"/*
	case $test in
	*.py) set -- "$PYTHON" "tests/$test" ;;
	*) set -- "$at/tests/$test" ;;
	esac
	$still timeout -k 10 900 "$@"
	status=$?
	[ $status -eq 0 ] || [ $status -eq 4 ] || echo "# $test: exit status $status"
	[ $status -eq 0 ] || failed=$status
	for report in "$reports"/*; do
		[ -e "$report" ] || continue
		echo "# ---- $test: ${report##*/}"
		sed 's/^/# /' "$report"
		failed=1
	done
done
exit $failed
