#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# thc.ko puts the same packets on the wire as libthc over UDP does, byte for byte.

# shellcheck source=/dev/null
. "$(dirname "$0")/libthc.sh"
over_af_thc test_packets.py packets__1_rank_fp32_software \
	packets__8_ranks_fp16_software_with_losses
