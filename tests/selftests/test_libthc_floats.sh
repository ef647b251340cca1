#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# Floats by the scheme none, over AF_THC.

# shellcheck source=/dev/null
. "$(dirname "$0")/libthc.sh"
over_af_thc test_client_floats
