#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# One fuzzer from a fixed seed and its corpus, as one TAP test: the same inputs on every
# machine, however fast it is.
#	run.sh PROGRAM [INPUTS]		default: what takes about 10 s
# A crashing input is left in build/check and named.
set -u

program=$1
name=$(basename "$program")
artifacts=${BUILD:-build}/check
corpus=tests/fuzz/corpus/$name

# the longer an input, the more packets are in it
length=256
case $name in
fuzz_packet) inputs=25000 length=2048 ;;
fuzz_client) inputs=10000 ;;
fuzz_config) inputs=300000 length=600 ;;
*) inputs=10000 ;;
esac
inputs=${2:-$inputs}

echo "1..1"
if [ ! -x "$program" ]; then
	echo "not ok 1 - $name: not built"
	exit 1
fi
mkdir -p "$artifacts"
# a list, since the order of a folder's files is the file system's
seeds=$artifacts/$name.seeds
find "$corpus" -type f 2>/dev/null | LC_ALL=C sort | tr '\n' ',' | sed 's/,$//' >"$seeds"
if [ ! -s "$seeds" ]; then
	echo "not ok 1 - $name: there is no corpus in $corpus"
	exit 1
fi
"$program" -seed=1 -runs="$inputs" -max_len=$length -len_control=0 -timeout=10 \
	-seed_inputs="@$seeds" -print_final_stats=1 -artifact_prefix="$artifacts/$name-" 2>&1
status=$?
if [ $status -ne 0 ]; then
	echo "not ok 1 - $name: exit status $status; again: $program $artifacts/$name-*"
	exit 1
fi
echo "ok 1 - $name"
