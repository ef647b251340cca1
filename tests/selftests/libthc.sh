# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=sh
#
# For test_libthc_*.sh: libthc's own tests, over AF_THC. THC_TRANSPORT=af_thc
# never falls back to UDP.

# over_af_thc NAME [CASE...]: execute tests/netns/NAME, a program, or a script with cases
over_af_thc()
{
	BUILD=${BUILD:-build}
	if ! modprobe thc 2>/dev/null; then
		if [ -n "${THC_VM_MODULE:-}" ]; then
			printf '1..1\nnot ok 1 - modprobe thc\n'
			exit 1
		fi
		echo "1..0 # SKIP no thc.ko for this kernel"
		exit 4
	fi
	export CMOCKA_MESSAGE_OUTPUT=TAP THC_TRANSPORT=af_thc THCD="$BUILD/thcd"
	name=$1
	shift
	case $name in
	*.py) exec "${PYTHON:-/usr/bin/python3}" "$(dirname "$0")/../netns/$name" "$@" ;;
	*) exec "$BUILD/tests/netns/$name" ;;
	esac
}
