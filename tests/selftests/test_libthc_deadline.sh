#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# Jobs that go on without late ranks, over AF_THC.

# shellcheck source=/dev/null
. "$(dirname "$0")/libthc.sh"
if [ "${THC_VM_KERNEL:-}" = debug ]; then
	# all ranks would miss the jobs' deadline of 50 ms
	export THC_TEST_SLOW=10
fi
over_af_thc test_client_deadline
