# SPDX-License-Identifier: GPL-2.0
#
# thc.ko for a kernel of this host: built in a copy of the sources, since the
# kernel's build system writes beside them; or handed to DKMS as sources.

KERNEL     ?= $(shell uname -r)
KDIR       ?= /lib/modules/$(KERNEL)/build
KMOD_AT    := $(BUILD)/modules/$(KERNEL)
KMOD_PARTS := Kbuild kmod include
DKMS_AT     = $(DESTDIR)/usr/src/thc-$(VERSION)
# Says that the administrator loads the module. Uninstalling the last module removes it.
MODPROBE_AT = $(DESTDIR)/lib/modprobe.d/thc.conf
modprobe-installs = @install -D -m 644 kmod/modprobe.conf "$(MODPROBE_AT)"
modprobe-goes = @ls $(DESTDIR)/lib/modules/*/updates/thc.ko* \
	$(DESTDIR)/lib/modules/*/updates/dkms/thc.ko* $(DESTDIR)/usr/src/thc-*/dkms.conf 2>/dev/null | \
	grep -q . || rm -f "$(MODPROBE_AT)"

.PHONY: modules modules_install modules_uninstall dkms dkms_remove
modules:
	@test -e "$(KDIR)/Makefile" || { \
		echo 'There are no headers of kernel $(KERNEL) here: apt-get install linux-headers-$(KERNEL),' \
			'or give another one: make $@ KERNEL=release' >&2; exit 1; }
	@mkdir -p $(KMOD_AT) && cp -r --preserve=timestamps $(KMOD_PARTS) $(KMOD_AT)
	+$(MAKE) --no-print-directory -C $(KDIR) M=$(abspath $(KMOD_AT)) modules
	@echo 'built $(KMOD_AT)/thc.ko'

# Below updates/, which modprobe prefers; depmod makes the family known.
modules_install: modules
	$(modprobe-installs)
	install -D -m 644 $(KMOD_AT)/thc.ko $(DESTDIR)/lib/modules/$(KERNEL)/updates/thc.ko
	$(if $(DESTDIR),,depmod $(KERNEL))

modules_uninstall:
	rm -f $(DESTDIR)/lib/modules/$(KERNEL)/updates/thc.ko
	$(modprobe-goes)
	$(if $(DESTDIR),,depmod $(KERNEL))

# DKMS builds it for each kernel that is installed, now and later.
dkms:
	@rm -rf "$(DKMS_AT)" && install -d "$(DKMS_AT)"
	@cp -r $(KMOD_PARTS) "$(DKMS_AT)"
	$(modprobe-installs)
	@sed 's/@VERSION@/$(VERSION)/' kmod/dkms.conf >"$(DKMS_AT)/dkms.conf"
	@echo 'sources are in $(DKMS_AT); now: dkms install thc/$(VERSION)'

dkms_remove:
	rm -rf "$(DKMS_AT)"
	$(modprobe-goes)
