// SPDX-License-Identifier: GPL-2.0
/*
 * `thcctl check`: can this host aggregate in XDP on an interface, and what to
 * do if not. Nothing is attached or changed; a small program is loaded and
 * dropped to see whether BPF is allowed at all.
 */
#include <errno.h>
#include <ifaddrs.h>
#include <linux/bpf.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "../aggregator/paths.h"
#include "../common/device.h"
#include "thcctl.h"

struct findings {
	cJSON		*list;
	enum thc_fit	worst;
};

static void found(struct findings *f, enum thc_fit v, const char *subject, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

static void found(struct findings *f, enum thc_fit v, const char *subject, const char *format, ...)
{
	static const char *const name[] = { "ok", "note", "bad" };
	cJSON *o = cJSON_CreateObject();
	char text[512];
	va_list ap;

	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	cJSON_AddStringToObject(o, "subject", subject);
	cJSON_AddStringToObject(o, "verdict", name[v]);
	cJSON_AddStringToObject(o, "text", text);
	cJSON_AddItemToArray(f->list, o);
	if (v > f->worst)
		f->worst = v;
}

static long read_number(const char *path)
{
	FILE *file = fopen(path, "re");
	long n = -1;

	if (file && fscanf(file, "%ld", &n) != 1)
		n = -1;
	if (file)
		fclose(file);
	return n;
}

static int quiet(enum libbpf_print_level level, const char *format, va_list ap)
{
	(void)level, (void)format, (void)ap;
	return 0;
}

static void check_bpf(struct findings *f)
{
	/* r0 = XDP_PASS; exit */
	static const struct bpf_insn pass[] = {
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0, .imm = XDP_PASS },
		{ .code = BPF_JMP | BPF_EXIT },
	};
	long jit = read_number("/proc/sys/net/core/bpf_jit_enable");
	int fd;

	libbpf_set_print(quiet);
	fd = bpf_prog_load(BPF_PROG_TYPE_XDP, "thc_probe", "GPL", pass, 2, NULL);
	if (fd >= 0) {
		found(f, THC_FIT_OK, "BPF", "an XDP program can be loaded");
		close(fd);
	} else if (fd == -EPERM || fd == -EACCES) {
		found(f, THC_FIT_BAD, "BPF",
		      "not allowed to load programs: run as root, or give CAP_BPF, "
		      "CAP_NET_ADMIN and CAP_PERFMON");
	} else {
		found(f, THC_FIT_BAD, "BPF",
		      "the kernel loads no XDP program (%s): thcd --software does "
		      "without",
		      strerror(-fd));
	}
	if (jit == 0)
		found(f, THC_FIT_NOTE, "JIT",
		      "off, programs are interpreted, many times slower: sysctl "
		      "net.core.bpf_jit_enable=1");
	else
		found(f, THC_FIT_OK, "JIT", jit < 0 ? "always on, or not readable" : "on");
	if (thc_bpffs_mounted() > 0)
		found(f, THC_FIT_OK, "bpffs", "mounted on %s", THC_BPFFS);
	else
		found(f, THC_FIT_NOTE, "bpffs",
		      "not mounted on %s: thcd mounts it at its start, or mount -t bpf -o "
		      "mode=0700 bpf %s",
		      THC_BPFFS, THC_BPFFS);
}

static void check_simd(struct findings *f)
{
	char name[16];

	switch (thc_simd_offered(name, sizeof(name))) {
	case THC_SIMD_OFFERED:
		found(f, THC_FIT_OK, "lanes", "thc.ko sums them (%s)", name);
		break;
	case THC_SIMD_NO_FUNCTIONS:
		found(f, THC_FIT_NOTE, "lanes",
		      "summed by BPF: thc.ko is loaded, but without BTF that has its functions; "
		      "build it where the kernel's headers have vmlinux and pahole is installed");
		break;
	default:
		found(f, THC_FIT_OK, "lanes",
		      "summed by BPF; thc.ko would sum them faster: modprobe thc");
	}
}

static void check_hook(struct findings *f, const char *interface, unsigned int ifindex)
{
	struct thc_hook hook;

	if (thc_device_hook(ifindex, &hook))
		found(f, THC_FIT_NOTE, "hook", "the kernel does not say which program %s has",
		      interface);
	else if (!hook.id)
		found(f, THC_FIT_OK, "hook", "free: no XDP program on %s", interface);
	else if (!*hook.name)
		found(f, THC_FIT_NOTE, "hook",
		      "program id %u (%s), whose name the kernel tells root alone", hook.id,
		      hook.generic ? "generic" : "native");
	else if (!strcmp(hook.name, "thc_xdp"))
		found(f, THC_FIT_OK, "hook", "a thcd's program, id %u (%s)", hook.id,
		      hook.generic ? "generic" : "native");
	else
		found(f, THC_FIT_BAD, "hook",
		      "taken by program id %u, name \"%s\" (%s); thcd does not take it "
		      "away; if nobody needs it: ip link set dev %s %s off",
		      hook.id, hook.name, hook.generic ? "generic" : "native", interface,
		      hook.generic ? "xdpgeneric" : "xdp");
}

static void show(struct findings *f, const char *subject, const struct thc_finding *one)
{
	found(f, one->fit, subject, "%s", one->text);
}

static void check_veth(struct findings *f, const char *interface)
{
	struct thc_finding peer;

	if (!thc_device_peer(interface, &peer))
		return;
	found(f, THC_FIT_NOTE, "tailroom",
	      "veth frames have none from kernel 6.12 on: answers are sent as copies "
	      "of the frame, the original is lost; nothing to do");
	show(f, "peer", &peer);
}

static void check_driver(struct findings *f, const char *interface, unsigned int ifindex)
{
	struct thcctl_netdev xdp;
	char text[32];
	const char *driver = thc_device_driver(interface, text, sizeof(text));

	thcctl_netdev(ifindex, &xdp);
	if (!xdp.known)
		found(f, THC_FIT_NOTE, "driver",
		      "%s: this kernel does not tell whether it has native XDP (kernels from "
		      "6.3 on do); thcd --mode native finds out",
		      driver);
	else if (xdp.basic && xdp.redirect && xdp.target)
		found(f, THC_FIT_OK, "driver", "%s has native XDP and sends redirected frames",
		      driver);
	else if (xdp.basic && xdp.redirect)
		found(f, THC_FIT_NOTE, "driver",
		      "%s has native XDP, but does not say that it sends redirected "
		      "frames: some drivers say so once a program is attached",
		      driver);
	else
		found(f, THC_FIT_NOTE, "driver",
		      "%s has no native XDP: thcd falls back to generic XDP, where it "
		      "sends the answers itself, which is slower",
		      driver);
}

static void check_address(struct findings *f, const char *interface)
{
	struct ifaddrs *list, *i;
	bool any = false;

	if (getifaddrs(&list))
		return;
	for (i = list; i; i = i->ifa_next) {
		struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)i->ifa_addr;

		if (strcmp(i->ifa_name, interface) || !i->ifa_addr)
			continue;
		any |= i->ifa_addr->sa_family == AF_INET ||
		       (i->ifa_addr->sa_family == AF_INET6 &&
			!IN6_IS_ADDR_LINKLOCAL(&in6->sin6_addr));
	}
	freeifaddrs(list);
	if (any)
		found(f, THC_FIT_OK, "address", "%s has one that workers can send to", interface);
	else
		found(f, THC_FIT_BAD, "address",
		      "%s has no IP address workers could send to: ip address add "
		      "ADDR/LEN dev %s",
		      interface, interface);
}

static void check_device(struct findings *f, const char *interface)
{
	struct thc_finding one;

	thc_device_link(interface, &one);
	show(f, "link", &one);
	thc_device_mtu(interface, &one);
	show(f, "MTU", &one);
}

static int check_one(struct thcctl *t, const char *interface, cJSON *to)
{
	struct findings f = { .list = cJSON_CreateArray() };
	struct thc_finding vlan;
	unsigned int ifindex = interface ? if_nametoindex(interface) : 0;
	const cJSON *o;

	check_bpf(&f);
	check_simd(&f);
	if (interface && !ifindex) {
		found(&f, THC_FIT_BAD, "interface", "there is no %s here; ip link shows them",
		      interface);
	} else if (interface) {
		check_device(&f, interface);
		check_address(&f, interface);
		check_driver(&f, interface, ifindex);
		check_veth(&f, interface);
		thc_device_vlan(interface, NULL, &vlan);
		show(&f, "VLAN", &vlan);
		check_hook(&f, interface, ifindex);
	}
	if (!t->json)
		cJSON_ArrayForEach(o, f.list)
			printf("%-5s %-10s %s\n", thcctl_text(o, "verdict"),
			       thcctl_text(o, "subject"), thcctl_text(o, "text"));
	cJSON_AddItemToObject(to, "findings", f.list);
	cJSON_AddBoolToObject(to, "usable", f.worst != THC_FIT_BAD);
	return f.worst == THC_FIT_BAD ? EXIT_FAILURE : EXIT_SUCCESS;
}

int thcctl_check(struct thcctl *t, const char *interface)
{
	cJSON *o = cJSON_CreateObject();
	int status = check_one(t, interface, o);

	if (t->json) {
		if (interface)
			cJSON_AddStringToObject(o, "interface", interface);
		thcctl_print_json(o);
	} else if (interface) {
		printf("\n%s\n",
		       status ? "thcd cannot aggregate in XDP here; what is marked bad has to "
				"change, or use --software" :
				"thcd can run here");
	} else {
		printf("\ngive an interface for more: thcctl check eth0\n");
	}
	cJSON_Delete(o);
	return status;
}
