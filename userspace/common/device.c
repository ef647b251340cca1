// SPDX-License-Identifier: GPL-2.0
/*
 * Asks the kernel about an interface: by ioctl in this network namespace, since
 * sysfs may show another one.
 */
#include <ifaddrs.h>
#include <linux/ethtool.h>
#include <linux/if_vlan.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "device.h"
#include "link.h"

/* 1024 B of payload, THC, UDP and IPv4 headers. An interface whose MTU is below
 * IPv6's least, 1280, has no IPv6 address.
 */
#define MTU_LEAST	(1024 + 48 + 8 + 20)
/* Above it drivers want multi-buffer programs. */
#define MTU_MOST	3000

void thc_find(struct thc_finding *f, enum thc_fit fit, const char *format, ...)
{
	va_list ap;

	f->fit = fit;
	va_start(ap, format);
	vsnprintf(f->text, sizeof(f->text), format, ap);
	va_end(ap);
}

static int ask(const char *interface, unsigned long request, struct ifreq *ifr)
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

	return ask(interface, SIOCETHTOOL, &ifr);
}

const char *thc_device_driver(const char *interface, char *out, size_t size)
{
	struct ethtool_drvinfo driver = { .cmd = ETHTOOL_GDRVINFO };
	bool known = !ethtool(interface, &driver) && *driver.driver;

	if (known)
		snprintf(out, size, "%s", driver.driver);
	else
		snprintf(out, size, "the driver of %s", interface);
	return out;
}

static bool has_driver(const char *interface, const char *name)
{
	char driver[32];

	thc_device_driver(interface, driver, sizeof(driver));
	return !strcmp(driver, name);
}

static bool is_veth(const char *interface)
{
	return has_driver(interface, "veth");
}

/* Index of a veth's other end, in its own namespace; 0: cannot be told. It is
 * the first of the driver's statistics.
 */
static unsigned int peer_index(const char *interface)
{
	struct ethtool_drvinfo driver = { .cmd = ETHTOOL_GDRVINFO };
	struct ethtool_stats *stats;
	unsigned int peer = 0;

	if (!is_veth(interface) || ethtool(interface, &driver) || !driver.n_stats)
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

/* Name of a veth's other end. False: it is in another namespace, whose indices say nothing here. */
static bool peer_name(const char *interface, char *name)
{
	unsigned int peer = peer_index(interface);

	return peer && !thc_link_is_elsewhere(interface) && if_indextoname(peer, name);
}

static bool has_flag(const char *interface, unsigned int command, unsigned int flag)
{
	struct ethtool_value value = { .cmd = command };

	return !ethtool(interface, &value) && value.data & flag;
}

int thc_device_hook(unsigned int ifindex, struct thc_hook *out)
{
	LIBBPF_OPTS(bpf_xdp_query_opts, q);
	int fd, err = bpf_xdp_query(ifindex, 0, &q);
	struct bpf_prog_info info = { .name = "" };
	__u32 len = sizeof(info);

	memset(out, 0, sizeof(*out));
	out->id = q.drv_prog_id ? q.drv_prog_id : q.hw_prog_id ? q.hw_prog_id : q.skb_prog_id;
	out->generic = out->id && out->id == q.skb_prog_id;
	fd = out->id ? bpf_prog_get_fd_by_id(out->id) : -1;
	if (fd >= 0) {
		bpf_obj_get_info_by_fd(fd, &info, &len);
		close(fd);
	}
	snprintf(out->name, sizeof(out->name), "%s", info.name);
	return err;
}

static bool has_native_program(const char *interface)
{
	struct thc_hook hook;

	return !thc_device_hook(if_nametoindex(interface), &hook) && hook.id && !hook.generic;
}

void thc_device_link(const char *interface, struct thc_finding *f)
{
	struct ifreq ifr = { 0 };

	if (!ask(interface, SIOCGIFFLAGS, &ifr) && ifr.ifr_flags & IFF_UP &&
	    ifr.ifr_flags & IFF_RUNNING)
		thc_find(f, THC_FIT_OK, "up");
	else
		thc_find(f, THC_FIT_BAD, "down: ip link set dev %s up, and check the cable",
			 interface);
}

void thc_device_mtu(const char *interface, struct thc_finding *f)
{
	struct ifreq ifr = { 0 };

	if (ask(interface, SIOCGIFMTU, &ifr))
		thc_find(f, THC_FIT_NOTE, "the kernel does not tell");
	else if (ifr.ifr_mtu < MTU_LEAST)
		thc_find(f, THC_FIT_BAD, "%d; THC packets need %d: ip link set dev %s mtu 1500",
			 ifr.ifr_mtu, MTU_LEAST, interface);
	else if (ifr.ifr_mtu > MTU_MOST)
		thc_find(f, THC_FIT_NOTE,
			 "%d; drivers refuse native XDP with large frames, THC needs 1500 at most",
			 ifr.ifr_mtu);
	else
		thc_find(f, THC_FIT_OK, "%d", ifr.ifr_mtu);
}

bool thc_device_peer(const char *interface, struct thc_finding *f)
{
	char name[IF_NAMESIZE];

	if (!is_veth(interface))
		return false;
	/* a veth takes redirected frames only if NAPI is on: by GRO, or by an XDP program */
	if (!peer_name(interface, name))
		thc_find(f, THC_FIT_NOTE,
			 "the peer is in another namespace: redirected frames are silently lost "
			 "unless GRO is on at the peer (interface %u there): "
			 "ethtool -K PEER gro on",
			 peer_index(interface));
	else if (has_flag(name, ETHTOOL_GGRO, ~0U))
		thc_find(f, THC_FIT_OK, "GRO is on at %s: redirected frames arrive", name);
	else if (has_native_program(name))
		thc_find(f, THC_FIT_OK, "%s has an XDP program: redirected frames arrive", name);
	else
		thc_find(f, THC_FIT_BAD,
			 "GRO is off at %s, so redirected frames are silently lost: "
			 "ethtool -K %s gro on",
			 name, name);
	return true;
}

/* Is @name a VLAN device above @interface? The driver is compared first, since SIOCGIFVLAN on
 * another device makes the kernel load its VLAN module.
 */
static bool is_vlan_above(int fd, const char *name, const char *interface)
{
	struct vlan_ioctl_args vlan = { .cmd = GET_VLAN_REALDEV_NAME_CMD };

	snprintf(vlan.device1, sizeof(vlan.device1), "%s", name);
	return has_driver(name, "802.1Q VLAN Support") && !ioctl(fd, SIOCGIFVLAN, &vlan) &&
	       !strcmp(vlan.u.device2, interface);
}

bool thc_device_vlan_above(const char *interface, char *name, size_t size)
{
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct ifaddrs *list = NULL, *i;
	bool found;

	found = *name && is_vlan_above(fd, name, interface);
	if (!*name && !getifaddrs(&list)) {
		for (i = list; i && !found; i = i->ifa_next) {
			found = is_vlan_above(fd, i->ifa_name, interface);
			if (found)
				snprintf(name, size, "%s", i->ifa_name);
		}
		freeifaddrs(list);
	}
	if (fd >= 0)
		close(fd);
	return found;
}

/* Native XDP does not see VLAN tags beside the frame; a peer with txvlan sends them so. */
static void vlan_of_veth(const char *interface, const char *vlan, struct thc_finding *f)
{
	char name[IF_NAMESIZE];

	if (!peer_name(interface, name))
		thc_find(f, THC_FIT_NOTE,
			 "native XDP sees the tags of %s only if the veth's peer, which is in "
			 "another namespace, puts them into frames; else jobs join and get no "
			 "answers: ethtool -K PEER txvlan off",
			 vlan);
	else if (has_flag(name, ETHTOOL_GFLAGS, ETH_FLAG_TXVLAN))
		thc_find(f, THC_FIT_BAD,
			 "%s passes VLAN tags beside frames (txvlan), so jobs whose workers are in "
			 "the VLAN of %s join and get no answers from native XDP: "
			 "ethtool -K %s txvlan off",
			 name, vlan, name);
	else
		thc_find(f, THC_FIT_OK, "%s leaves tags in frames", name);
}

void thc_device_vlan(const char *interface, const char *vlan, struct thc_finding *f)
{
	char any[IF_NAMESIZE] = "";
	bool strips = has_flag(interface, ETHTOOL_GFLAGS, ETH_FLAG_RXVLAN);

	if (!vlan && thc_device_vlan_above(interface, any, sizeof(any)))
		vlan = any;
	if (vlan && is_veth(interface))
		vlan_of_veth(interface, vlan, f);
	else if (vlan && strips)
		thc_find(f, THC_FIT_BAD,
			 "%s strips VLAN tags (rxvlan), so jobs whose workers are in the VLAN of "
			 "%s join and get no answers from native XDP: ethtool -K %s rxvlan off",
			 interface, vlan, interface);
	else if (strips && !is_veth(interface))
		thc_find(f, THC_FIT_OK,
			 "no VLAN device is above %s; a job whose frames are tagged needs "
			 "ethtool -K %s rxvlan off",
			 interface, interface);
	else
		thc_find(f, THC_FIT_OK,
			 vlan ? "%s leaves tags in frames" : "no VLAN device is above %s",
			 interface);
	/* without @vlan it is not known whether jobs use that VLAN device */
	if (vlan == any && f->fit == THC_FIT_BAD)
		f->fit = THC_FIT_NOTE;
}
