// SPDX-License-Identifier: GPL-2.0
/*
 * One interface's XDP hook. thcd takes the hook only if it is free, or if the program that this
 * instance pinned before it died holds it.
 */
#include <errno.h>
#include <linux/if_link.h>
#include <net/if.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "attach.h"

static bool loud;
static char kernel_said[THCD_REASON_MAX];

/* libbpf hands the kernel's extended error only to its log. */
static int on_print(enum libbpf_print_level level, const char *format, va_list ap)
{
	static const char marker[] = "Kernel error message: ";
	char line[512], *at;

	vsnprintf(line, sizeof(line), format, ap);
	at = strstr(line, marker);
	if (at) {
		snprintf(kernel_said, sizeof(kernel_said), "%s", at + strlen(marker));
		kernel_said[strcspn(kernel_said, "\n")] = '\0';
	}
	if (loud && level != LIBBPF_DEBUG)
		fputs(line, stderr);
	return 0;
}

void thcd_libbpf_quiet(bool verbose)
{
	loud = verbose;
	libbpf_set_print(on_print);
}

u32 thcd_prog_id(int fd)
{
	struct bpf_prog_info info = { 0 };
	u32 len = sizeof(info);

	return fd >= 0 && !bpf_obj_get_info_by_fd(fd, &info, &len) ? info.id : 0;
}

int thcd_hook_query(unsigned int ifindex, const char *interface, struct thc_hook *out,
		    struct thcd_error *e)
{
	int err = thc_device_hook(ifindex, out);

	return err ? thcd_fail(e, "cannot ask %s for its XDP program: %s", interface,
			       strerror(-err)) :
		     0;
}

int thcd_hook_foreign(const char *interface, const struct thc_hook *hook, struct thcd_error *e)
{
	/* the kernel may hide the name of another thcd's program */
	bool maybe_thcd = !*hook->name || !strcmp(hook->name, "thc_xdp");

	return thcd_fail(e,
			 "interface %s already has an XDP program, id %u%s%s%s (%s), and thcd does "
			 "not take it away%s; if nobody needs it: ip link set dev %s %s off",
			 interface, hook->id, *hook->name ? ", name \"" : "", hook->name,
			 *hook->name ? "\"" : "", hook->generic ? "generic" : "native",
			 maybe_thcd ? " (another thcd's? then give its --instance name)" : "",
			 interface, hook->generic ? "xdpgeneric" : "xdp");
}

int thcd_hook_attach(unsigned int ifindex, int prog_fd, int old_fd, bool generic, char *reason)
{
	LIBBPF_OPTS(bpf_xdp_attach_opts, opts, .old_prog_fd = old_fd);
	u32 flags = generic ? XDP_FLAGS_SKB_MODE : XDP_FLAGS_DRV_MODE;
	int err;

	/* libbpf adds XDP_FLAGS_REPLACE when told the old program */
	if (old_fd < 0)
		flags |= XDP_FLAGS_UPDATE_IF_NOEXIST;
	*kernel_said = '\0';
	err = bpf_xdp_attach(ifindex, prog_fd, flags, old_fd < 0 ? NULL : &opts);
	snprintf(reason, THCD_REASON_MAX, "%s", *kernel_said ? kernel_said : strerror(-err));
	return err;
}

int thcd_hook_detach(unsigned int ifindex, int prog_fd, bool generic)
{
	LIBBPF_OPTS(bpf_xdp_attach_opts, opts, .old_prog_fd = prog_fd);

	return bpf_xdp_detach(ifindex, generic ? XDP_FLAGS_SKB_MODE : XDP_FLAGS_DRV_MODE, &opts);
}
