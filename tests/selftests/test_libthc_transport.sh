#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# UDP and AF_THC give the same bits.

# shellcheck source=/dev/null
. "$(dirname "$0")/libthc.sh"
over_af_thc test_transport
