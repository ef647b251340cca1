#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# Means over AF_THC: rank counts, lengths, types, error feedback, overlap.

# shellcheck source=/dev/null
. "$(dirname "$0")/libthc.sh"
if [ "${THC_VM_KERNEL:-}" = debug ]; then
	# they would take minutes, for what test_libthc_transport does there
	echo "# debug kernel: without cases of many ranks"
	export THC_TEST_SKIP='mean__*_ranks'
fi
over_af_thc test_client
