# SPDX-License-Identifier: GPL-2.0
#
# The files that `make install` installs and `make uninstall` removes: one list
# for both, MODE:SOURCE:DESTINATION below $(PREFIX).

SBINDIR    ?= sbin
LIBDIR     ?= lib
INCLUDEDIR ?= include
MANDIR     ?= share/man
DOCDIR     ?= share/doc/thc
SPECDIR    ?= share/thc/netlink
# Where Debian's python3 finds modules that are not from packages.
PYTHONDIR  ?= $(shell $(PYTHON) -c 'import sys; print("lib/python%d.%d/dist-packages" % sys.version_info[:2])')

INSTALL_DIRS = $(DOCDIR) $(SPECDIR) $(dir $(SPECDIR)) $(PYTHONDIR)/thc_ddp
INSTALL_LIST = \
	755:$(BUILD)/thcd:$(SBINDIR)/thcd \
	755:$(BUILD)/thcctl:$(SBINDIR)/thcctl \
	644:$(BUILD)/libthc.so:$(LIBDIR)/libthc.so.$(VERSION) \
	644:$(BUILD)/libthc.a:$(LIBDIR)/libthc.a \
	644:$(BUILD)/libthc.pc:$(LIBDIR)/pkgconfig/libthc.pc \
	644:userspace/libthc/libthc.h:$(INCLUDEDIR)/libthc.h \
	644:userspace/libthc/libthc_rows.h:$(INCLUDEDIR)/libthc_rows.h \
	644:include/uapi/linux/thc.h:$(INCLUDEDIR)/linux/thc.h \
	644:include/uapi/linux/thc_netlink.h:$(INCLUDEDIR)/linux/thc_netlink.h \
	644:include/uapi/linux/thc_wire.h:$(INCLUDEDIR)/linux/thc_wire.h \
	644:Documentation/netlink/specs/thc.yaml:$(SPECDIR)/thc.yaml \
	644:$(BUILD)/thcd.service:$(LIBDIR)/systemd/system/thcd.service \
	644:Documentation/thc.sysusers:$(LIBDIR)/sysusers.d/thc.conf \
	644:Documentation/thcd.conf:$(DOCDIR)/thcd.conf \
	$(foreach m,$(wildcard Documentation/man/*.3),644:$(m):$(MANDIR)/man3/$(notdir $(m))) \
	$(foreach m,$(wildcard Documentation/man/*.7),644:$(m):$(MANDIR)/man7/$(notdir $(m))) \
	$(foreach m,$(wildcard Documentation/man/*.8),644:$(m):$(MANDIR)/man8/$(notdir $(m))) \
	$(foreach p,$(wildcard userspace/python/thc_ddp/*.py),644:$(p):$(PYTHONDIR)/thc_ddp/$(notdir $(p)))
INSTALL_LINKS = $(LIBDIR)/libthc.so.$(SOMAJOR) $(LIBDIR)/libthc.so

to := $(DESTDIR)$(PREFIX)

# Places may differ from one install to the next.
.PHONY: $(BUILD)/libthc.pc $(BUILD)/thcd.service
$(BUILD)/thcd.service: Documentation/thcd.service
	@sed 's|@SBINDIR@|$(PREFIX)/$(SBINDIR)|' $< > $@

$(BUILD)/libthc.pc:
	@printf '%s\n' 'prefix=$(PREFIX)' 'Name: libthc' \
		'Description: all-reduce of compressed gradients through a THC aggregator' \
		'Version: $(VERSION)' 'Libs: -L$${prefix}/$(LIBDIR) -lthc' 'Libs.private: -lm -pthread' \
		'Cflags: -I$${prefix}/$(INCLUDEDIR)' > $@

install: all $(BUILD)/libthc.pc $(BUILD)/thcd.service
	@set -e; for entry in $(INSTALL_LIST); do \
		mode=$${entry%%:*}; rest=$${entry#*:}; \
		install -D -m $$mode "$${rest%%:*}" "$(to)/$${rest#*:}"; \
	done
	@for link in $(INSTALL_LINKS); do ln -sf libthc.so.$(VERSION) "$(to)/$$link"; done
	@$(if $(DESTDIR),:,ldconfig 2>/dev/null || :)
	@echo 'installed into $(to)'

uninstall:
	@for entry in $(INSTALL_LIST); do rest=$${entry#*:}; rm -f "$(to)/$${rest#*:}"; done
	@for link in $(INSTALL_LINKS); do rm -f "$(to)/$$link"; done
	@rm -rf "$(to)/$(PYTHONDIR)/thc_ddp/__pycache__"
	@for dir in $(INSTALL_DIRS); do rmdir "$(to)/$$dir" 2>/dev/null || :; done
	@$(if $(DESTDIR),:,ldconfig 2>/dev/null || :)
	@echo 'removed from $(to)'
