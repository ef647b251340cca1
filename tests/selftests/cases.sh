# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=sh disable=SC2034,SC2154 # variables are shared with the script
#
# For scripts whose cases are commands: try() runs a command and reports it by TAP. The
# script makes the folder $work, and ends with `exit $failed`.
number=0
failed=0

# try NAME COMMAND...: one test case; shows the output of a command that fails
try()
{
	number=$((number + 1))
	name=$1
	shift
	if "$@" >"$work/output" 2>&1; then
		echo "ok $number - $name"
	else
		echo "not ok $number - $name"
		sed 's/^/# /' "$work/output"
		failed=1
	fi
}
