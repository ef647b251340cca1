#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# One fuzzer from a fixed seed, as one TAP test: the same inputs on every machine,
# however fast it is.
#	run.sh PROGRAM INPUTS
# A crashing input is left in build/check and named.
set -u

program=$1
inputs=${2:-24000}
name=$(basename "$program")
artifacts=${BUILD:-build}/check

echo "1..1"
if [ ! -x "$program" ]; then
	echo "not ok 1 - $name: not built"
	exit 1
fi
mkdir -p "$artifacts"
"$program" -seed=1 -runs="$inputs" -max_len=2048 -len_control=0 -timeout=10 \
	-print_final_stats=1 -artifact_prefix="$artifacts/$name-" 2>&1
status=$?
if [ $status -ne 0 ]; then
	echo "not ok 1 - $name: exit status $status, input in $artifacts/$name-*"
	exit 1
fi
echo "ok 1 - $name"
