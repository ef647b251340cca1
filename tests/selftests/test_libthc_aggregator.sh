#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# An aggregator that dies, restarts without state or sends wrong packets, over AF_THC.

# shellcheck source=/dev/null
. "$(dirname "$0")/libthc.sh"
over_af_thc test_client_aggregator
