# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=sh disable=SC2086
#
# The Debian packages this project is built and tested with, and their
# installation. Sourced by tools/check and tools/demo; quiet when nothing is
# missing, otherwise it says what it installs and lets apt-get show how far it
# is. Unquoted variables are lists of packages (SC2086).

thc_packages()
{
	# build
	echo gcc libc6-dev make dpkg-dev clang llvm pkg-config linux-libc-dev
	echo libbpf-dev libelf-dev zlib1g-dev bpftool libcjson-dev libmnl-dev libcap-dev
	# run: namespaces, training on real data
	echo iproute2 ethtool procps kmod python3 python3-torch python3-sklearn wordnet-base
	# check
	echo libcmocka-dev libclang-rt-14-dev
	echo sparse shellcheck clang-format pyflakes3 groff-base python3-yaml systemd
	# test machines: tests/vm fetches their kernels itself, installing none
	case $(dpkg --print-architecture) in
	amd64) echo qemu-system-x86 busybox-static dwarves zstd flex bison bc libssl-dev xz-utils ;;
	esac
	# the kernel's compiler flags and headers, for kmod/
	case $(dpkg --print-architecture) in
	amd64 | arm64)
		echo "linux-headers-cloud-$(dpkg --print-architecture)"
		;;
	esac
}

thc_missing()
{
	for thc_package in $(thc_packages); do
		case $(dpkg-query -W -f='${db:Status-Abbrev}' "$thc_package" 2>/dev/null) in
		ii*) ;;
		*) echo "$thc_package" ;;
		esac
	done
}

# Installs what is missing. Returns non-zero if something still is.
thc_install()
{
	if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
		echo "No apt-get here: going on with what is installed. This project is developed on" \
			"Debian 12; its packages are listed in tools/deps.sh." >&2
		return 0
	fi
	thc_list=$(thc_missing)
	[ -n "$thc_list" ] || return 0

	thc_sudo=
	if [ "$(id -u)" -ne 0 ]; then
		if ! command -v sudo >/dev/null; then
			echo "Packages are missing and only root may install them. As root, run:" >&2
			echo "  apt-get install --no-install-recommends" $thc_list >&2
			return 1
		fi
		thc_sudo="sudo"
	fi
	echo "Installing by apt-get:" $thc_list
	case $thc_list in
	*python3-torch*) echo "(python3-torch is large: this takes a few minutes)" ;;
	esac
	# old lists may suffice
	$thc_sudo env DEBIAN_FRONTEND=noninteractive apt-get update -q </dev/null || :
	$thc_sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -q \
		--no-install-recommends $thc_list </dev/null || :
	thc_list=$(thc_missing)
	[ -n "$thc_list" ] || return 0
	echo "Still missing:" $thc_list >&2
	echo "See apt-get's messages above; once they are installed, run this again." >&2
	return 1
}
