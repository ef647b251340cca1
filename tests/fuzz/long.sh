#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# `make fuzz`: fuzzers one after another, each with its corpus and a seed of its own.
#	long.sh [NAME...]	default: all, those in a test machine included
#	FUZZ_MINUTES=10		for each
#	FUZZ_INPUTS=10000000	for each, instead
#	FUZZ_SEED=7		default: the time
# What is new stays in $BUILD/fuzz/corpus/NAME, where the next run goes on; what each has
# said is in $BUILD/fuzz/NAME.log, and an input that fails beside it. The exit status is
# that of make: not 0 if anything was found.
set -u

cd "$(dirname "$0")/../.." || exit 1
BUILD=${BUILD:-build}
minutes=${FUZZ_MINUTES:-10}
seed=${FUZZ_SEED:-$(date +%s)}
out=$BUILD/fuzz
found=
child=
trap '[ -z "$child" ] || kill "$child"; exit 130' INT TERM

# How many inputs a log tells of, and files there are in a folder.
inputs_of()
{
	awk '/^# [0-9]+ inputs/ { n = $2 } /^#[0-9]+\t/ { m = substr($1, 2) }
		END { print (n + 0 > m + 0 ? n + 0 : m + 0) }' "$1"
}

files_in()
{
	find "$1" -type f | wc -l
}

# On a terminal each second, else each minute: how far it is.
follow()
{
	begin=$(date +%s)
	before=$(files_in "$3")
	while kill -0 "$child" 2>/dev/null; do
		sleep 1
		seconds=$(($(date +%s) - begin))
		if [ -t 1 ]; then
			printf '\r%-13s %5d s %12d inputs, %d kept' "$1" $seconds \
				"$(inputs_of "$2")" $(($(files_in "$3") - before))
		elif [ $((seconds % 60)) -eq 0 ]; then
			printf '%-13s %5d s %12d inputs, %d kept\n' "$1" $seconds \
				"$(inputs_of "$2")" $(($(files_in "$3") - before))
		fi
	done
	wait "$child"
	status=$?
	child=
	seconds=$(($(date +%s) - begin))
	[ ! -t 1 ] || printf '\r'
	printf '%-13s %5d s %12d inputs, %d kept in %s\n' "$1" $seconds "$(inputs_of "$2")" \
		$(($(files_in "$3") - before)) "$3"
}

# tell NAME LOG AGAIN: what a fuzzer that failed has said, and how to see it again
tell()
{
	found="$found $1"
	grep -E '^violated:|^==[0-9]+==ERROR|runtime error:|^SUMMARY|outcomes never|^not ok' "$2" |
		head -n 5
	echo "$1 failed with exit status $status: $2; again: $3"
}

# A program of libFuzzer's.
user_space()
{
	name=$1
	new=$out/corpus/$name
	log=$out/$name.log
	case $name in
	fuzz_packet) length=2048 ;;
	fuzz_config) length=600 ;;
	*) length=256 ;;
	esac
	limit="-max_total_time=$((minutes * 60))"
	[ -z "${FUZZ_INPUTS:-}" ] || limit="-runs=$FUZZ_INPUTS"
	mkdir -p "$new"
	THC_FUZZ_TELL=1 "$BUILD/tests/fuzz/$name" -seed="$seed" "$limit" -max_len="$length" \
		-timeout=10 -print_final_stats=1 -artifact_prefix="$out/$name-" \
		"$new" "tests/fuzz/corpus/$name" >"$log" 2>&1 &
	child=$!
	follow "$name" "$log" "$new"
	[ $status -eq 0 ] || tell "$name" "$log" "$BUILD/tests/fuzz/$name $out/$name-*"
}

# A program of tests/selftests, on User-mode Linux: ten times as fast as a machine that is
# emulated, where `make check` runs them.
machine()
{
	name=$1
	new=$out/corpus/$name
	log=$out/$name.log
	mkdir -p "$new"
	limit="THC_FUZZ_SECONDS=$((minutes * 60))"
	[ -z "${FUZZ_INPUTS:-}" ] || limit="THC_FUZZ_INPUTS=$FUZZ_INPUTS"
	tests/vm/uml --timeout $((minutes * 120 + ${FUZZ_INPUTS:-0} / 10 + 600)) --share "$PWD/$new" \
		-- sh -c "env $limit THC_FUZZ_SEED=$seed THC_FUZZ_TELL=1 THC_FUZZ_KEEP=$PWD/$new \
		$BUILD/tests/selftests/test_$name && rmmod thc" >"$log" 2>&1 &
	child=$!
	follow "$name" "$log" "$new"
	[ $status -eq 0 ] || tell "$name" "$log" "tests/vm/uml -- env \
THC_FUZZ_FILE=$new/failed $BUILD/tests/selftests/test_$name"
}

mkdir -p "$out"
if [ $# -eq 0 ]; then
	for source in tests/fuzz/fuzz_*.c tests/selftests/test_fuzz_*.c; do
		name=$(basename "$source" .c)
		set -- "$@" "${name#test_}"
	done
fi
built=
for name; do
	if [ -e "tests/fuzz/$name.c" ]; then
		user_space "$name"
	elif [ -e "tests/selftests/test_$name.c" ]; then
		if [ -z "$built" ]; then
			"${MAKE:-make}" -s BUILD="$BUILD" selftests || exit 1
			built=1
		fi
		machine "$name"
	else
		echo "there is no fuzzer $name: tests/fuzz and tests/selftests/test_fuzz_* have them" >&2
		exit 1
	fi
done
[ -z "$found" ] || { echo "failed:$found"; exit 1; }
