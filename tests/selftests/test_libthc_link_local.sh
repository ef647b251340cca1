#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# A job over AF_THC whose addresses are link-local: the interface reaches thc.ko.

# shellcheck source=/dev/null
. "$(dirname "$0")/libthc.sh"
over_af_thc test_link_local.py
