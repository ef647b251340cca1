#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# Every allocation and system call of libthc over AF_THC fails once. The calls of thcd fail on the
# host only: thcd does not know by which sockets its ranks send.

# shellcheck source=/dev/null
. "$(dirname "$0")/libthc.sh"
over_af_thc test_failures.py case__libthc
