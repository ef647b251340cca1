#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# The memory of a client over AF_THC, beside its buckets. Left out are the blocks of
# 2^20 coordinates and the 288 random buckets, which take an emulated machine six
# minutes: they vary rotation and packing, which do not depend on the socket.

# shellcheck source=/dev/null
. "$(dirname "$0")/libthc.sh"
export THC_TEST_FILTER=memory__of_buckets_that_differ
over_af_thc test_client_memory
