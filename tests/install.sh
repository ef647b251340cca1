#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# Installs into an empty folder, builds and runs a program against what is
# there and nothing else, imports the Python package from there, and checks
# that `make uninstall` leaves no file and none of the project's folders.
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

program()
{
	cat >"$root/hello.c" <<-'SOURCE'
	#include <stdio.h>
	#include <string.h>
	#include <linux/thc.h>
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
		puts(thc_version());
		return sizeof(struct thc_hdr) == 48 ? 0 : 3;
	}
	SOURCE
	flags=$(PKG_CONFIG_PATH=$(dirname "$(library libthc.pc)") \
		PKG_CONFIG_SYSROOT_DIR=$dest pkg-config --cflags --libs ${1:+"$1"} libthc) || return 1
	# shellcheck disable=SC2086 # a list of words
	"$CC" -Wall -Wextra -Werror -I"$prefix/include" -o "$root/hello" "$root/hello.c" \
		${1:+-static} $flags || return 1
	LD_LIBRARY_PATH=$(dirname "$(library 'libthc.so.0')") "$root/hello"
}

python_package()
{
	folder=$(dirname "$(library thc_ddp)")
	(cd / && LIBTHC=$(library 'libthc.so.0') PYTHONPATH=$folder PYTHONDONTWRITEBYTECODE=1 \
		"$PYTHON" -c 'import thc_ddp, thc_ddp.abi; print(thc_ddp.__file__)') |
		grep -F "$folder/thc_ddp/"
}

# One for the library, one for the wire; no name that others may want.
headers()
{
	(cd "$prefix/include" && find . -type f | sort) | tee "$root/headers"
	printf '%s\n' ./libthc.h ./linux/thc.h | cmp - "$root/headers"
}

programs()
{
	"$prefix/sbin/thcd" --version && "$prefix/sbin/thcctl" --version
}

# Only folders that other packages share may remain.
nothing_left()
{
	find "$dest" ! -type d >"$root/left"
	find "$dest" -type d -name '*thc*' >>"$root/left"
	cat "$root/left"
	[ ! -s "$root/left" ]
}

echo "1..10"
try "install" make -s BUILD="$BUILD" DESTDIR="$dest" PREFIX=/usr install
try "the library says its soname" sh -c "readelf -d '$(library libthc.so.0)' |
	grep -q 'SONAME.*libthc.so.0'"
try "two headers and no more" headers
try "only thc_ symbols are exported" sh -c "! nm -D --defined-only '$(library libthc.so.0)' |
	awk '{ print \$3 }' | grep -v '^thc_'"
try "a program with the shared library" program
try "a program with the static library" program --static
try "the Python package" python_package
try "thcd and thcctl run" programs
try "uninstall" make -s BUILD="$BUILD" DESTDIR="$dest" PREFIX=/usr uninstall
try "nothing is left" nothing_left
exit $failed
