#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# Installs into an empty folder, builds and runs a program against what is
# there and nothing else, imports the Python package from there, builds the
# sources that are installed for DKMS as DKMS would, installs the module, and
# checks that `make uninstall` and its like leave no file and none of the
# project's folders.
#
# shellcheck disable=SC2317 # functions are called through try
set -u

cd "$(dirname "$0")/.." || exit 1
BUILD=${BUILD:-build}
CC=${CC:-gcc}
PYTHON=${PYTHON:-/usr/bin/python3}
unset MAKEFLAGS MFLAGS MAKELEVEL MAKEOVERRIDES
root=$(mktemp -d) || exit 1
trap 'rm -rf "$root"' EXIT
trap 'exit 130' INT TERM
dest=$root/dest
prefix=$dest/usr
number=0
failed=0
PATH=$PATH:/usr/sbin:/sbin

# result NAME STATUS: one TAP line
result()
{
	number=$((number + 1))
	if [ "$2" -eq 0 ]; then
		echo "ok $number - $1"
	else
		echo "not ok $number - $1"
		failed=1
		sed 's/^/# /' "$root/log"
	fi
}

# try NAME COMMAND...
try()
{
	name=$1
	shift
	"$@" >"$root/log" 2>&1 </dev/null
	result "$name" $?
}

library()
{
	find "$prefix" -name "$1" | head -1
}

# Some are exported, and all by names of ours.
symbols()
{
	nm -D --defined-only "$(library libthc.so.1)" >"$root/symbols" && [ -s "$root/symbols" ] &&
		! awk '{ print $3 }' "$root/symbols" | grep -v '^thc_'
}

program()
{
	cat >"$root/hello.c" <<-'SOURCE'
	#include <stdio.h>
	#include <string.h>
	#include <linux/thc.h>
	#include <linux/thc_netlink.h>
	#include <libthc.h>

	int main(void)
	{
		struct thc_client_options opt = THC_CLIENT_OPTIONS_INIT;
		struct thc_client *c = NULL;
		struct thc_table t;

		if (thc_table_solve(4, 30, 1.0 / 32, &t) || t.value[15] != 30)
			return 1;
		/* no aggregator given: refused, with a sentence */
		if (thc_client_open(&opt, &c) >= 0 || c || !*thc_last_error())
			return 2;
		if (strcmp(THC_GENL_NAME, "thc"))
			return 4;
		puts(thc_version());
		return sizeof(struct thc_hdr) == 48 ? 0 : 3;
	}
	SOURCE
	flags=$(PKG_CONFIG_PATH=$(dirname "$(library libthc.pc)") \
		PKG_CONFIG_SYSROOT_DIR=$dest pkg-config --cflags --libs ${1:+"$1"} libthc) || return 1
	# shellcheck disable=SC2086 # a list of words
	"$CC" -Wall -Wextra -Werror -I"$prefix/include" -o "$root/hello" "$root/hello.c" \
		${1:+-static} $flags || return 1
	LD_LIBRARY_PATH=$(dirname "$(library 'libthc.so.1')") "$root/hello"
}

python_package()
{
	folder=$(dirname "$(library thc_ddp)")
	(cd / && LIBTHC=$(library 'libthc.so.1') PYTHONPATH=$folder PYTHONDONTWRITEBYTECODE=1 \
		"$PYTHON" -c 'import thc_ddp, thc_ddp.abi; print(thc_ddp.__file__)') |
		grep -F "$folder/thc_ddp/"
}

# One for the library, one for sockets, one for netlink, one for the wire; no name that others may want.
headers()
{
	(cd "$prefix/include" && find . -type f | sort) | tee "$root/headers"
	printf '%s\n' ./libthc.h ./libthc_rows.h ./linux/thc.h ./linux/thc_netlink.h ./linux/thc_wire.h | cmp - "$root/headers"
}

programs()
{
	"$prefix/sbin/thcd" --version && "$prefix/sbin/thcctl" --version
}

# The specification that ynl reads, and the header that it names.
netlink_spec()
{
	spec=$prefix/share/thc/netlink/thc.yaml
	cmp Documentation/netlink/specs/thc.yaml "$spec" &&
		[ -e "$prefix/include/$(sed -n 's/^uapi-header: *//p' "$spec")" ]
}

# dkms_conf NAME [KERNEL]: a setting of the installed dkms.conf, as DKMS reads it
dkms_conf()
{
	dkms_tree=$tree kernel_source_dir=$headers kernelver=${2:-$release} \
		bash -c '. "$1" && eval "echo \"\${$2}\""' - "$sources/dkms.conf" "$1"
}

# dkms_takes KERNEL [CONFIG]: would DKMS build for it, now and when it is installed?
dkms_takes()
{
	# shellcheck disable=SC2016 # for bash, whose match is that of DKMS
	bash -c '[[ "$1" =~ $2 ]]' - "$1" "$(dkms_conf BUILD_EXCLUSIVE_KERNEL "$1")"
	takes=$?
	[ "$(dkms_conf AUTOINSTALL "$1")" = yes ]
	[ $? -eq "$takes" ] || {
		echo "$1: AUTOINSTALL says otherwise"
		return 2
	}
	[ "$takes" -eq 0 ] || return 1
	for option in $(dkms_conf BUILD_EXCLUSIVE_CONFIG "$1"); do
		[ -z "${2:-}" ] || grep -q "^$option=[ym]" "$2" || return 1
	done
}

# Each side of each bound, and names as distributions give them.
dkms_skips()
{
	for kernel in 6.1.0-56-cloud-amd64 6.1 6.2.9 6.9.12-200.fc40.x86_64 6.10.0 \
			6.12.117+deb12-amd64 6.12-rc3 6.19.14 7.0.0-14-generic 7.1 7.1.5-1-default; do
		dkms_takes "$kernel" || {
			echo "$kernel is skipped"
			return 1
		}
	done
	for kernel in 2.6.32 4.19.0-27-amd64 5.10.0-35-amd64 6.0.0-6-amd64 6.0 16.1.0 6.20.1 6.100.2 \
			7.2.0-rc1 7.2.9 7.10.3 7.11 8.0.0 17.1.0 71.2; do
		dkms_takes "$kernel"
		[ $? -eq 1 ] || {
			echo "$kernel is not skipped"
			return 1
		}
	done
	printf 'CONFIG_64BIT=y\nCONFIG_INET=y\nCONFIG_NET_UDP_TUNNEL=m\n' >"$root/config"
	dkms_takes 6.12.0 "$root/config" || return 1
	for option in CONFIG_64BIT CONFIG_INET CONFIG_NET_UDP_TUNNEL; do
		grep -v "^$option=" "$root/config" >"$root/config.without"
		! dkms_takes 6.12.0 "$root/config.without" || return 1
	done
}

# A kernel whose headers are here is none that DKMS skips.
dkms_takes_this()
{
	dkms_takes "$release" "$headers/.config"
}

# DKMS copies the sources to a folder of its own and runs the commands of dkms.conf. Nobody debugs
# what comes of it. Here with all warnings, of which no one is let pass.
dkms_builds()
{
	echo "thc $(dkms_conf PACKAGE_VERSION) for $release"
	[ "$(dkms_conf PACKAGE_VERSION)" = "$version" ] || return 1
	mkdir -p "$at" && cp -r "$sources/." "$at" || return 1
	MAKEFLAGS="-j$(nproc) W=1" sh -c "$(dkms_conf 'MAKE[0]')" >"$root/dkms.log" 2>&1
	status=$?
	cat "$root/dkms.log"
	[ "$status" -eq 0 ] && ! grep -q 'warning:' "$root/dkms.log" || return 1
	module "$at/$(dkms_conf 'BUILT_MODULE_NAME[0]').ko" "$version"
}

# module FILE VERSION: loaded for the family, and of that version and kernel
module()
{
	modinfo "$1" || return 1
	modinfo -F alias "$1" | grep -qx net-pf-18 && [ "$(modinfo -F version "$1")" = "$2" ] &&
		modinfo -F vermagic "$1" | grep -q "^$release "
}

dkms_cleans()
{
	sh -c "$(dkms_conf CLEAN)" && ! find "$tree" -name '*.ko' -o -name '*.o' | grep .
}

# What DKMS has built is not built once more. The same version as the library's.
module_installs()
{
	make -s KMOD_AT="$at" DESTDIR="$dest" KERNEL="$release" modules_install || return 1
	module "$dest/lib/modules/$release/updates/thc.ko" \
		"$(sed -n 's/^Version: //p' "$(library libthc.pc)")"
}

# resolves ALIAS FOLDER: what modprobe would load for it, with the configuration in that folder
resolves()
{
	modprobe -d "$root/tree" -S "$release" -C "$2" --resolve-alias "$1"
}

# By name only, and whoever asks for any of its aliases gets nothing; without the file, the module.
autoload_is_off()
{
	modules=$root/tree/lib/modules
	mkdir -p "$root/none" "$modules"
	cp -r "$dest/lib/modules/$release" "$modules"
	touch "$modules/$release/modules.order" "$modules/$release/modules.builtin"
	depmod -b "$root/tree" "$release" || return 1
	modprobe -d "$root/tree" -S "$release" -C "$dest/lib/modprobe.d" -D thc | grep /thc.ko ||
		return 1
	count=0
	for alias in $(modinfo -F alias "$modules/$release/updates/thc.ko"); do
		count=$((count + 1))
		echo "$alias"
		[ "$(resolves "$alias" "$dest/lib/modprobe.d")" = off ] &&
			[ "$(resolves "$alias" "$root/none")" = thc ] || return 1
	done
	[ "$count" -eq 2 ]
}

# What keeps the module from loading by itself goes with the last module.
module_goes()
{
	make -s DESTDIR="$dest" KERNEL="${release:-none}" modules_uninstall &&
		cmp kmod/modprobe.conf "$dest/lib/modprobe.d/thc.conf" &&
		make -s DESTDIR="$dest" dkms_remove && [ ! -e "$dest/lib/modprobe.d/thc.conf" ]
}

# try_module NAME COMMAND: a test case that needs a kernel's headers
try_module()
{
	if [ -n "$release" ]; then
		try "$1" "$2"
		return
	fi
	number=$((number + 1))
	if [ "${THC_MUST_RUN:-}" = 1 ]; then
		echo "not ok $number - $1: THC_MUST_RUN, but there are no kernel headers"
		failed=1
	else
		echo "ok $number - $1 # SKIP no kernel headers: apt-get install linux-headers-cloud-amd64"
	fi
}

# Only folders that other packages share may remain.
nothing_left()
{
	find "$dest" ! -type d >"$root/left"
	find "$dest" -type d -name '*thc*' >>"$root/left"
	cat "$root/left"
	[ ! -s "$root/left" ]
}

release=
for headers in /lib/modules/*/build; do
	[ -e "$headers/Makefile" ] || continue
	release=${headers#/lib/modules/}
	release=${release%/build}
	break
done
tree=$root/dkms
version=$(sed -n 's/^thc-version := //p' Kbuild)
sources=$dest/usr/src/thc-$version
at=$tree/thc/$version/build
export KCFLAGS=-g0

echo "1..19"
try "install" make -s BUILD="$BUILD" DESTDIR="$dest" PREFIX=/usr install
try "the library says its soname" sh -c "readelf -d '$(library libthc.so.1)' |
	grep -q 'SONAME.*libthc.so.1'"
try "three headers and no more" headers
try "only thc_ symbols are exported" symbols
try "a program with the shared library" program
try "a program with the static library" program --static
try "the Python package" python_package
try "thcd and thcctl run" programs
try "the netlink specification" netlink_spec
try "make dkms" make -s DESTDIR="$dest" dkms
try "DKMS skips what it cannot do" dkms_skips
try_module "DKMS does not skip the kernel of these headers" dkms_takes_this
try_module "thc.ko by the commands of dkms.conf" dkms_builds
try_module "make modules_install" module_installs
try_module "the administrator loads it, by name" autoload_is_off
try_module "what cleans for DKMS" dkms_cleans
try "modules_uninstall, dkms_remove" module_goes
try "uninstall" make -s BUILD="$BUILD" DESTDIR="$dest" PREFIX=/usr uninstall
try "nothing is left" nothing_left
exit $failed
