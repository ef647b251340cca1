#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# `thcctl check` and thcd report VLAN tags that native XDP would not see, on real VLAN devices:
# above a veth whose peer passes tags beside the frames (txvlan), and above a bond, which strips
# tags (rxvlan). thcd starts once the setting has been changed as the messages say, in generic
# mode, with --force, and if its address is not on the VLAN device.
#
#	peer --- veth vn0, vn0.5 = 10.77.5.1
#	bond bn0, bn0.5 = 10.77.6.1
# shellcheck disable=SC2317 # functions are called by try
set -u

cd "$(dirname "$0")/../.." || exit 1
BUILD=${BUILD:-build}
work=$(mktemp -d) || exit 1
# shellcheck source=tests/selftests/cases.sh
. tests/selftests/cases.sh

cleanup()
{
	ip link delete vn0 2>/dev/null
	ip link delete bn0 2>/dev/null
	rm -r "$work"
}

# checked INTERFACE VERDICT WORDS: thcctl's line about VLAN
checked()
{
	"$BUILD/thcctl" check "$1" >"$work/check"
	cat "$work/check"
	grep "VLAN" "$work/check" | grep -w -e "$2" | grep -q -e "$3"
}

# Values of $by: functions that execute a command.
as_it_is()
{
	exec "$@"
}

# The command sees only processes in /proc, as in thcd.service (ProcSubset=pid).
without_proc()
{
	exec unshare --mount sh -c 'mount -t proc -o subset=pid proc /proc && exec "$@"' sh "$@"
}

# starts INTERFACE ADDRESS [OPTION]...: thcd gets ready, and ends
starts()
{
	interface=$1
	address=$2
	shift 2
	mkfifo "$work/ready" || return 1
	$by "$BUILD/thcd" -i "$interface" --listen "$address" --job "1,ranks=2,rate=fixed,key=@$work/key" "$@" \
		>"$work/ready" 2>"$work/said" &
	daemon=$!
	read -r ready <"$work/ready"
	kill "$daemon" 2>/dev/null
	wait "$daemon"
	rm "$work/ready"
	cat "$work/said"
	[ "$ready" = ready ]
}

# refused INTERFACE ADDRESS WORDS: thcd does not start, and its error says what to do
refused()
{
	! starts "$1" "$2" && grep -q -e "$3" "$work/said" && grep -q -e "--force" "$work/said"
}

# done_so COMMAND...: run the command that the last error proposed
done_so()
{
	grep -q -e "$*" "$work/said" && "$@"
}

# thcctl check loads no module.
rmmod 8021q 2>/dev/null
"$BUILD/thcctl" check lo >/dev/null
grep "^8021q " /proc/modules
loaded=$?
modprobe 8021q 2>/dev/null
modprobe bonding max_bonds=0 2>/dev/null
if ! ip link add vn0 type veth peer name vn1 || ! ip link add bn0 type bond ||
	! ip link add link vn0 name vn0.5 type vlan id 5 ||
	! ip link add link bn0 name bn0.5 type vlan id 5; then
	cleanup
	if [ -n "${THC_VM_KERNEL:-}" ]; then
		printf '1..1\nnot ok 1 - devices\n'
		exit 1
	fi
	echo "1..0 # SKIP this kernel has no VLAN devices: run it by tests/vm/check"
	exit 4
fi
trap cleanup EXIT
"$BUILD/thcctl" genkey "$work/key" >"$work/output" || exit 1
ip address add 10.77.4.1/24 dev vn0
ip address add 10.77.5.1/24 dev vn0.5
ip address add 10.77.6.1/24 dev bn0.5
for device in vn0 vn1 bn0 vn0.5 bn0.5; do
	ip link set dev "$device" up
done
ethtool -K vn1 gro on

by=as_it_is
echo "1..15"
try "check__loads_no_module" [ $loaded = 1 ]
try "veth__check_notes_tags_beside_frames" \
	checked vn0 note "vn1 passes VLAN tags beside frames"
try "veth__is_refused" refused vn0 10.77.5.1 "VLAN: vn1 passes VLAN tags beside frames"
by=without_proc
try "veth__is_refused_in_the_units_sandbox" \
	refused vn0 10.77.5.1 "VLAN: vn1 passes VLAN tags beside frames"
by=as_it_is
try "veth__but_not_without_the_vlan" starts vn0 10.77.4.1
try "veth__but_not_for_a_vlan_of_another" starts vn0 10.77.6.1
try "veth__starts_in_generic_mode" starts vn0 10.77.5.1 --mode generic
try "veth__starts_by_force" starts vn0 10.77.5.1 --force
try "veth__warns_then" grep -q "warning: VLAN: vn1 passes" "$work/said"
try "veth__what_was_proposed" done_so ethtool -K vn1 txvlan off
try "veth__starts_then" starts vn0 10.77.5.1
try "veth__check_agrees" checked vn0 ok "vn1 leaves tags in frames"
try "nic__check_notes_that_it_strips" checked bn0 note "bn0 strips VLAN tags"
try "nic__is_refused" refused bn0 10.77.6.1 "VLAN: bn0 strips VLAN tags"
try "nic__what_was_proposed" done_so ethtool -K bn0 rxvlan off
exit $failed
