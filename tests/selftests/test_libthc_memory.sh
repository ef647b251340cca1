#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# What a client holds over AF_THC, beside its buckets. Left out are the blocks of
# 2^20 coordinates and the 288 random buckets, which an emulated machine takes six
# minutes for: what they vary is rotated and packed before any socket sees it.

# shellcheck source=/dev/null
. "$(dirname "$0")/libthc.sh"
export THC_TEST_FILTER=memory__of_buckets_that_differ
over_af_thc test_client_memory
