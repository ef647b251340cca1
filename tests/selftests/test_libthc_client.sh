#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# What is promised of libthc's client, over AF_THC.
BUILD=${BUILD:-build}
if ! modprobe thc 2>/dev/null; then
	echo "1..0 # SKIP no thc.ko for this kernel"
	exit 4
fi
export CMOCKA_MESSAGE_OUTPUT=TAP THC_TRANSPORT=af_thc THCD="$BUILD/thcd"
exec "$BUILD/tests/netns/test_client"
