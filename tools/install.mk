# SPDX-License-Identifier: GPL-2.0
#
# What `make install` puts where, and `make uninstall` takes away again.
