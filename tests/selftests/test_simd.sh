#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# thc.ko and BPF sum and seal lanes for XDP with equal bits; the module's parameters kfunc_calls
# and kfunc_seals show that the module did it. thcd chooses module or BPF and says so, and rmmod
# is refused while thcd uses the module. On kernels whose modules have no BTF (6.1) XDP works
# without the module.
#
#	rank 0 ---+
#	          +--- veth --- thcd, XDP with functions of thc.ko
#	rank 1 ---+
# shellcheck disable=SC2317 # functions are called by try
set -u

cd "$(dirname "$0")/../.." || exit 1
BUILD=${BUILD:-build}
PYTHON=${PYTHON:-/usr/bin/python3}
PARAMETERS=/sys/module/thc/parameters
# The least number of sums of test_xdp_ops in the six kinds and eleven rows of the module: five for
# each of 8 ranks. Jobs of all sizes are tested on the host, since lanes do not depend on the size.
ADDED=680
export THC_TEST_RANKS=8
LANES="ops__every_op_every_order ops__every_row_every_order"
CASES=18
if [ "${THC_VM_KERNEL:-}" = debug ]; then
	echo "# this is the debug kernel, which takes five seconds and more for a start of thcd:"
	echo "# without what thcd and BPF do alone; and lanes are KUnit's and test_af_thc_loss's"
	CASES=9
fi
work=$(mktemp -d) || exit 1
# shellcheck source=tests/selftests/cases.sh
. tests/selftests/cases.sh
daemon=

cleanup()
{
	[ -z "$daemon" ] || kill "$daemon" 2>/dev/null
	ip link delete thc-simd 2>/dev/null
	rm -r "$work"
	# load the module for the next test, as it was before
	rmmod thc 2>/dev/null
	modprobe thc
}

calls()
{
	cat "$PARAMETERS/kfunc_calls"
}

# again [OPTION]: load the module once more, with counters at zero
again()
{
	rmmod thc && modprobe thc "$@"
}

# summed MODE LEAST MOST COMMAND...: the command passes, and the module has made LEAST to MOST sums,
# and sealed at least a third of these or none: test_xdp_ops takes the three seals in turn
summed()
{
	export THC_SIMD="$1"
	least=$2
	most=$3
	shift 3
	before=$(calls)
	sealed=$(cat "$PARAMETERS/kfunc_seals")
	"$@" || return 1
	count=$(($(calls) - before))
	sealed=$(($(cat "$PARAMETERS/kfunc_seals") - sealed))
	echo "the module summed $count payloads, not $least to $most, and sealed $sealed"
	[ "$count" -ge "$least" ] && [ "$count" -le "$most" ] || return 1
	[ "$sealed" -ge $((count / 3)) ] && { [ "$count" -gt 0 ] || [ "$sealed" -eq 0 ]; }
}

# some_ops PATTERN CASE...: run the cases of test_xdp_ops whose names match PATTERN. Each CASE must
# have run, since cmocka accepts a pattern that matches no case
some_ops()
{
	THC_TEST_FILTER=$1 "$ops" >"$work/lanes" 2>&1
	status=$?
	cat "$work/lanes"
	[ "$status" -eq 0 ] || return 1
	shift
	for case; do
		grep -q "OK.*$case\|^ok.*$case" "$work/lanes" || return 1
	done
}

# the cases about lanes
lanes()
{
	# shellcheck disable=SC2086 # words
	some_ops 'ops__every_*_every_order' $LANES
}

# Each case loads the programs, which takes an emulated machine seconds. Left out are the cases of
# epochs, claims and a full ring, which do not call the module: 6.1 runs them.
sums_and_seals()
{
	# shellcheck disable=SC2086 # words
	some_ops 'ops__*' $LANES ops__indices_and_sums_meet ops__rows_of_one_job &&
		some_ops 'close__*with*' close__finishes_with_the_quorum close__without_a_key &&
		some_ops 'load__*' load__verifier_has_room
}

# start_thcd WORDS [OPTION]...: thcd starts, and its start line has these words
start_thcd()
{
	words=$1
	shift
	# shellcheck disable=SC2086 # words
	${as:-} "$BUILD/thcd" -i thc-simd --job "1,ranks=2,rate=fixed,key=@$work/key" "$@" \
		>"$work/ready" 2>"$work/said" &
	daemon=$!
	# the debug kernel takes five seconds to load the programs on an idle machine
	for _ in $(seq 1200); do
		grep -q ready "$work/ready" && break
		kill -0 "$daemon" 2>/dev/null || break
		sleep 0.1
	done
	cat "$work/said"
	grep -q ready "$work/ready" && grep -q "lanes summed by $words\$" "$work/said"
}

# stop_thcd [SIGNAL]
stop_thcd()
{
	kill "-${1:-TERM}" "$daemon"
	wait "$daemon"
	daemon=
}

says()
{
	"$BUILD/thcctl" check >"$work/check"
	cat "$work/check"
	grep -q "^$1 .*$2" "$work/check"
}

# The memory of a BPF program is freed a moment after its last use.
removed()
{
	for _ in 1 2 3 4 5; do
		rmmod thc && return 0
		sleep 1
	done
	return 1
}

refused()
{
	! rmmod thc 2>"$work/rmmod" && cat "$work/rmmod" && grep -q "in use" "$work/rmmod"
}

# The module takes the best of the CPU's instruction sets.
chosen()
{
	best=scalar
	! grep -qw avx2 /proc/cpuinfo || best=avx2
	! grep -w avx512bw /proc/cpuinfo | grep -w avx512vl | grep -qw avx512vbmi || best=avx512
	echo "$best? $(cat "$PARAMETERS/simd")"
	[ "$best" = "$(cat "$PARAMETERS/simd")" ]
}

wrong_parameter()
{
	rmmod thc || return 1
	! modprobe thc simd=abacus && modprobe thc simd=auto
}

# Modules for kernels whose headers have vmlinux have BTF, unless there is no pahole.
without_pahole()
{
	! command -v pahole
}

if [ ! -d /sys/module/thc ]; then
	if [ -n "${THC_VM_MODULE:-}" ]; then
		printf '1..1\nnot ok 1 - thc.ko is loaded\n'
		exit 1
	fi
	echo "1..0 # SKIP thc.ko is not loaded"
	exit 4
fi
trap cleanup EXIT
"$BUILD/thcctl" genkey "$work/key" >"$work/output" || exit 1
ip link add thc-simd type veth peer name thc-simd-peer &&
	ip address add 10.83.73.1/24 dev thc-simd &&
	ip link set thc-simd up && ip link set thc-simd-peer up &&
	ethtool -K thc-simd-peer gro on || exit 1	# or thcd would not start
ops=$BUILD/tests/bpf/test_xdp_ops

if [ ! -e /sys/kernel/btf/thc ]; then
	case ${THC_VM_KERNEL:-} in
	6.12 | debug)
		echo "1..6"
		try "thc.ko has BTF, or there is no pahole" without_pahole
		;;
	*)
		echo "1..5"
		;;
	esac
	try "without BTF the kernel says nothing about kfuncs" sh -c '! dmesg | grep -i "btf.*kfunc"'
	try "thcctl check says why BPF sums" says note "without BTF"
	try "every op and row in BPF" summed 0 0 0 "$ops"
	try "thcd takes BPF" start_thcd BPF
	try "rmmod beside thcd" rmmod thc
	stop_thcd
	exit $failed
fi

echo "1..$CASES"
try "the best instruction set is chosen" chosen
try "an unknown one is refused" wrong_parameter
vector=$(cat "$PARAMETERS/simd")
if [ $CASES -eq 18 ]; then
	try "every op and row in BPF" summed 0 0 0 lanes
	try "every op and row by $vector, the same bits" summed 1 $ADDED 1000000 sums_and_seals
fi
try "thcctl check says what sums" says ok "thc.ko sums them ($vector)"
if [ $CASES -eq 18 ]; then
	as="setpriv --bounding-set -sys_admin --inh-caps -sys_admin"
	try "thcd that may not look for functions takes BPF" start_thcd BPF
	try "and says so" grep -q "refused the XDP program that calls thc.ko" "$work/said"
	as=
	stop_thcd
fi
try "thcd takes the module" start_thcd "thc.ko ($vector)"
try "rmmod is refused then" refused
stop_thcd KILL
try "rmmod is refused while its program lives on" refused
try "thcd --no-simd takes over with BPF" start_thcd BPF --no-simd
try "and goes on with the job" grep -q continued "$work/said"
try "rmmod beside it" removed
stop_thcd
if [ $CASES -eq 18 ]; then
	try "thcd without the module takes BPF" start_thcd BPF
	stop_thcd
	try "thcctl check says what would help" \
		says ok "thc.ko would sum them faster: modprobe thc"
	modprobe thc
	try "all-reduce in namespaces, through thcd" \
		summed "" 100 10000000 "$PYTHON" tests/netns/test_packets.py \
		packets__1_rank_fp16_native
	try "the scalar loops" again simd=scalar
	try "every op and row by them, the same bits" \
		summed 1 $ADDED 1000000 lanes
else
	modprobe thc
fi
exit $failed
