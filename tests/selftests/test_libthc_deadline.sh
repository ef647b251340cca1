#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# Jobs that go on without who is late, over AF_THC.

# shellcheck source=/dev/null
. "$(dirname "$0")/libthc.sh"
not_on_debug "on the debug kernel everybody is later than the jobs' deadline of 50 ms"
over_af_thc test_client_deadline
