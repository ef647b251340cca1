// SPDX-License-Identifier: GPL-2.0
/*
 * `thcctl check`: can this host aggregate in XDP on an interface, and what to
 * do if not. Nothing is attached or changed; a small program is loaded and
 * dropped to see whether BPF is allowed at all.
 */
#include <errno.h>
#include <ifaddrs.h>
#include <linux/bpf.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "../common/paths.h"
#include "../common/simd.h"
#include "thcctl.h"

/* 1024 B of payload, THC, UDP and IPv6 headers. */
#define MTU_LEAST	(1024 + 48 + 8 + 40)
/* Above it drivers want multi-buffer programs. */
#define MTU_MOST	3000

enum verdict { GOOD, NOTE, BAD };

struct findings {
	cJSON		*list;
	enum verdict	worst;
};

static void found(struct findings *f, enum verdict v, const char *subject, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

static void found(struct findings *f, enum verdict v, const char *subject, const char *format, ...)
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
		found(f, GOOD, "BPF", "an XDP program can be loaded");
		close(fd);
	} else if (fd == -EPERM || fd == -EACCES) {
		found(f, BAD, "BPF",
		      "not allowed to load programs: run as root, or give CAP_BPF, "
		      "CAP_NET_ADMIN and CAP_PERFMON");
	} else {
		found(f, BAD, "BPF",
		      "the kernel loads no XDP program (%s): thcd --software does "
		      "without",
		      strerror(-fd));
	}
	if (jit == 0)
		found(f, NOTE, "JIT",
		      "off, programs are interpreted, many times slower: sysctl "
		      "net.core.bpf_jit_enable=1");
	else
		found(f, GOOD, "JIT", jit < 0 ? "always on, or not readable" : "on");
	if (thc_bpffs_mounted())
		found(f, GOOD, "bpffs", "mounted on %s", THC_BPFFS);
	else
		found(f, NOTE, "bpffs", "not mounted on %s: thcd does it, or mount -t bpf bpf %s",
		      THC_BPFFS, THC_BPFFS);
}

static void check_simd(struct findings *f)
{
	char name[16];

	switch (thc_simd_offered(name, sizeof(name))) {
	case THC_SIMD_OFFERED:
		found(f, GOOD, "lanes", "thc.ko sums them (%s)", name);
		break;
	case THC_SIMD_NO_FUNCTIONS:
		found(f, NOTE, "lanes",
		      "summed by BPF: thc.ko is loaded, but without BTF that has its functions; "
		      "build it where the kernel's headers have vmlinux and pahole is installed");
		break;
	default:
		found(f, GOOD, "lanes", "summed by BPF; with thc.ko loaded it is done faster");
	}
}

/* An ioctl on @interface in this network namespace: sysfs may show another. */
static int ask_device(const char *interface, unsigned long request, struct ifreq *ifr)
{
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), err;

	snprintf(ifr->ifr_name, sizeof(ifr->ifr_name), "%s", interface);
	err = fd < 0 ? -1 : ioctl(fd, request, ifr);
	if (fd >= 0)
		close(fd);
	return err;
}

static int ethtool(const char *interface, void *data)
{
	struct ifreq ifr = { .ifr_data = data };

	return ask_device(interface, SIOCETHTOOL, &ifr);
}

/* Index of a veth's other end, in its own namespace; 0: not a veth. It is the
 * first of the driver's statistics.
 */
static unsigned int veth_peer(const char *interface)
{
	struct ethtool_drvinfo driver = { .cmd = ETHTOOL_GDRVINFO };
	struct ethtool_stats *stats;
	unsigned int peer = 0;

	if (ethtool(interface, &driver) || strcmp(driver.driver, "veth") || !driver.n_stats)
		return 0;
	stats = calloc(1, sizeof(*stats) + driver.n_stats * sizeof(stats->data[0]));
	if (!stats)
		return 0;
	stats->cmd = ETHTOOL_GSTATS;
	stats->n_stats = driver.n_stats;
	if (!ethtool(interface, stats))
		peer = stats->data[0];
	free(stats);
	return peer;
}

static void check_hook(struct findings *f, const char *interface, unsigned int ifindex)
{
	LIBBPF_OPTS(bpf_xdp_query_opts, q);
	struct bpf_prog_info info = { 0 };
	u_int32_t len = sizeof(info), id;
	int fd;

	if (bpf_xdp_query(ifindex, 0, &q)) {
		found(f, NOTE, "hook", "the kernel does not say which program %s has", interface);
		return;
	}
	id = q.drv_prog_id ? q.drv_prog_id : q.skb_prog_id ? q.skb_prog_id : q.hw_prog_id;
	if (!id) {
		found(f, GOOD, "hook", "free: no XDP program on %s", interface);
		return;
	}
	fd = bpf_prog_get_fd_by_id(id);
	if (fd >= 0) {
		bpf_obj_get_info_by_fd(fd, &info, &len);
		close(fd);
	}
	if (!strcmp(info.name, "thc_xdp"))
		found(f, GOOD, "hook", "a thcd's program, id %u (%s)", id,
		      q.drv_prog_id ? "native" : "generic");
	else
		found(f, BAD, "hook",
		      "taken by program id %u, name \"%s\" (%s); thcd does not take it "
		      "away; if nobody needs it: ip link set dev %s %s off",
		      id, info.name, q.drv_prog_id ? "native" : "generic", interface,
		      q.drv_prog_id ? "xdp" : "xdpgeneric");
}

static void check_veth(struct findings *f, const char *interface, unsigned int ifindex)
{
	struct ethtool_value gro = { .cmd = ETHTOOL_GGRO };
	unsigned int peer = veth_peer(interface);
	char name[IF_NAMESIZE];

	found(f, NOTE, "tailroom",
	      "veth frames have none from kernel 6.12 on: answers are sent as copies "
	      "of the frame, the original is lost; nothing to do");
	/* the same index may be somebody else here, and the peer elsewhere */
	if (!peer || !if_indextoname(peer, name) || veth_peer(name) != ifindex)
		found(f, NOTE, "peer",
		      "in another namespace: redirected frames are silently lost unless "
		      "GRO is on at it (interface %u there): ethtool -K PEER gro on",
		      peer);
	else if (!ethtool(name, &gro) && gro.data)
		found(f, GOOD, "peer", "GRO is on at %s: redirected frames arrive", name);
	else
		found(f, BAD, "peer",
		      "GRO is off at %s, so redirected frames are silently lost: "
		      "ethtool -K %s gro on",
		      name, name);
}

static void check_driver(struct findings *f, const char *interface, unsigned int ifindex)
{
	struct ethtool_drvinfo driver = { .cmd = ETHTOOL_GDRVINFO };
	struct thcctl_netdev xdp;

	if (ethtool(interface, &driver) || !*driver.driver)
		strcpy(driver.driver, "unknown");
	thcctl_netdev(ifindex, &xdp);
	if (!xdp.known)
		found(f, NOTE, "driver",
		      "%s: this kernel does not tell whether it has native XDP (6.3 "
		      "and later do); thcd --mode native says",
		      driver.driver);
	else if (xdp.basic && xdp.redirect && xdp.target)
		found(f, GOOD, "driver", "%s has native XDP and sends redirected frames",
		      driver.driver);
	else if (xdp.basic && xdp.redirect)
		found(f, NOTE, "driver",
		      "%s has native XDP, but does not say that it sends redirected "
		      "frames: some drivers do once a program is attached",
		      driver.driver);
	else
		found(f, NOTE, "driver",
		      "%s has no native XDP: thcd falls back to generic XDP, where it "
		      "sends the answers itself, which is slower",
		      driver.driver);
	if (!strcmp(driver.driver, "veth"))
		check_veth(f, interface, ifindex);
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
		found(f, GOOD, "address", "%s has one that workers can send to", interface);
	else
		found(f, BAD, "address",
		      "%s has no IP address workers could send to: ip address add "
		      "ADDR/LEN dev %s",
		      interface, interface);
}

static void check_link(struct findings *f, const char *interface)
{
	struct ifreq ifr;

	memset(&ifr, 0, sizeof(ifr));
	if (!ask_device(interface, SIOCGIFFLAGS, &ifr) && ifr.ifr_flags & IFF_UP &&
	    ifr.ifr_flags & IFF_RUNNING)
		found(f, GOOD, "link", "up");
	else
		found(f, BAD, "link", "down: ip link set dev %s up, and check the cable",
		      interface);
	if (ask_device(interface, SIOCGIFMTU, &ifr))
		return;
	if (ifr.ifr_mtu < MTU_LEAST)
		found(f, BAD, "MTU", "%d; THC packets need %d: ip link set dev %s mtu 1500",
		      ifr.ifr_mtu, MTU_LEAST, interface);
	else if (ifr.ifr_mtu > MTU_MOST)
		found(f, NOTE, "MTU",
		      "%d; drivers refuse native XDP with large frames, THC needs 1500 "
		      "at most",
		      ifr.ifr_mtu);
	else
		found(f, GOOD, "MTU", "%d", ifr.ifr_mtu);
}

static int check_one(struct thcctl *t, const char *interface, cJSON *to)
{
	struct findings f = { .list = cJSON_CreateArray() };
	unsigned int ifindex = interface ? if_nametoindex(interface) : 0;
	const cJSON *o;

	check_bpf(&f);
	check_simd(&f);
	if (interface && !ifindex) {
		found(&f, BAD, "interface", "there is no %s here; ip link shows them", interface);
	} else if (interface) {
		check_link(&f, interface);
		check_address(&f, interface);
		check_driver(&f, interface, ifindex);
		check_hook(&f, interface, ifindex);
	}
	if (!t->json)
		cJSON_ArrayForEach(o, f.list)
			printf("%-5s %-10s %s\n", thcctl_text(o, "verdict"),
			       thcctl_text(o, "subject"), thcctl_text(o, "text"));
	cJSON_AddItemToObject(to, "findings", f.list);
	cJSON_AddBoolToObject(to, "usable", f.worst != BAD);
	return f.worst == BAD ? EXIT_FAILURE : EXIT_SUCCESS;
}

int thcctl_check(struct thcctl *t, const char *interface)
{
	cJSON *o = cJSON_CreateObject();
	int status = check_one(t, interface, o);
	char *text;

	if (t->json) {
		if (interface)
			cJSON_AddStringToObject(o, "interface", interface);
		text = cJSON_Print(o);
		if (text)
			puts(text);
		free(text);
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
