#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# A job over AF_THC whose addresses are link-local: thc.ko gets the interface. thcd's
# own use of such addresses is tested on the host, which is faster.

# shellcheck source=/dev/null
. "$(dirname "$0")/libthc.sh"
over_af_thc test_link_local.py link_local__software link_local__multicast \
	link_local__without_its_interface
