// SPDX-License-Identifier: GPL-2.0
/*
 * UDP sockets on the aggregator's base port: opening them and sending from
 * them, one sendmmsg() per socket for all answers of one poll round. Packets
 * are received in receive.c.
 */
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <linux/sockios.h>

#include "net.h"

/* Datagrams per sendmmsg(). */
#define OUT_BATCH	64
/* Socket buffers: a full window of several ranks fits. */
#define BUFFER_BYTES	(16 << 20)
/* A send that blocks so long is given up; the worker asks again. */
#define SEND_TIMEOUT_MS	100
/* How long bind() is tried on a tentative IPv6 address, and how often. */
#define TENTATIVE_MS	5000
#define BIND_AGAIN_US	50000

/* Packets that wait to be sent, by socket. */
static struct queue {
	int			count;
	struct mmsghdr		msg[OUT_BATCH];
	struct iovec		iov[OUT_BATCH];
	struct sockaddr_storage	to[OUT_BATCH];
	u8			frame[OUT_BATCH][sizeof(struct thc_hdr) + THC_LANE_BYTES];
} queues[THCD_LISTEN_MAX];

socklen_t thcd_sockaddr(struct sockaddr_storage *out, const struct thc_addr *addr, u16 port,
			int family, unsigned int ifindex)
{
	memset(out, 0, sizeof(*out));
	if (family == AF_INET) {
		struct sockaddr_in *in = (struct sockaddr_in *)out;

		in->sin_family = AF_INET;
		in->sin_port = htons(port);
		in->sin_addr.s_addr = addr->word[3];
		return sizeof(*in);
	} else {
		struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)out;

		in6->sin6_family = AF_INET6;
		in6->sin6_port = htons(port);
		memcpy(&in6->sin6_addr, addr, sizeof(*addr));
		if (IN6_IS_ADDR_LINKLOCAL(&in6->sin6_addr) ||
		    IN6_IS_ADDR_MULTICAST(&in6->sin6_addr))
			in6->sin6_scope_id = ifindex;
		return sizeof(*in6);
	}
}

int thcd_sockaddr_parse(const struct sockaddr *in, struct thc_addr *addr, u16 *port)
{
	if (in->sa_family == AF_INET) {
		const struct sockaddr_in *v4 = (const struct sockaddr_in *)in;

		*addr = thc_addr_v4(v4->sin_addr.s_addr);
		*port = ntohs(v4->sin_port);
	} else {
		const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)in;

		memcpy(addr, &v6->sin6_addr, sizeof(*addr));
		*port = ntohs(v6->sin6_port);
	}
	return in->sa_family;
}

/* Reads an address or netmask of getifaddrs(); returns its family, 0: neither IPv4 nor IPv6. */
static int of_interface(const struct sockaddr *sa, struct thc_addr *addr)
{
	u16 port;

	if (!sa || (sa->sa_family != AF_INET && sa->sa_family != AF_INET6))
		return 0;
	return thcd_sockaddr_parse(sa, addr, &port);
}

static bool same_address(const struct ifaddrs *i, const struct thc_addr *addr)
{
	struct thc_addr have;

	return of_interface(i->ifa_addr, &have) && thc_addr_equal(&have, addr);
}

/* Index of the interface that carries @addr, which multicast uses, too. */
static unsigned int interface_of(const struct thc_addr *addr)
{
	struct ifaddrs *list, *i;
	unsigned int index = 0;

	if (getifaddrs(&list))
		return 0;
	for (i = list; i && !index; i = i->ifa_next)
		if (same_address(i, addr))
			index = if_nametoindex(i->ifa_name);
	freeifaddrs(list);
	return index;
}

/* First address of @interface of that family: 1; 0: it has none; or a negative errno. */
static int first_address(const char *interface, int family, struct thc_addr *addr)
{
	struct ifaddrs *list, *i;
	int found = 0;

	if (getifaddrs(&list))
		return -errno;
	for (i = list; i && !found; i = i->ifa_next) {
		struct thc_addr have;

		if (strcmp(i->ifa_name, interface) || of_interface(i->ifa_addr, &have) != family)
			continue;
		/* a link-local address cannot be named without its interface */
		if (family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL((struct in6_addr *)&have))
			continue;
		*addr = have;
		found = 1;
	}
	freeifaddrs(list);
	return found;
}

static bool is_loopback(const struct thc_addr *a)
{
	return thc_addr_is_v4(a) ? *(const u8 *)&a->word[3] == 127 :
				   IN6_IS_ADDR_LOOPBACK((const struct in6_addr *)a);
}

bool thcd_is_own(const struct thcd *d, const struct thc_addr *addr)
{
	int i;

	for (i = 0; i < d->sockets; i++)
		if (thc_addr_equal(&d->socket[i].addr, addr))
			return true;
	return false;
}

/* RFC 1122, section 3.2.1.3; RFC 4291, section 2.5 */
bool thcd_is_hosts(const struct thcd *d, const struct thc_addr *addr)
{
	u8 first = *(const u8 *)&addr->word[3];

	if (thc_addr_is_v4(addr) && (!first || first >= 240))
		return false;
	return !is_loopback(addr) && !thc_addr_is_group(addr) && !thcd_is_own(d, addr) &&
	       !IN6_IS_ADDR_UNSPECIFIED((const struct in6_addr *)addr);
}

/* Do packets for @s come through interfaces that we cannot name? */
static bool is_everywhere(const struct thcd_socket *s)
{
	return !s->ifindex || (s->ifindex == if_nametoindex("lo") && !is_loopback(&s->addr));
}

static bool reaches(const struct ifaddrs *i, const struct thcd_socket *s)
{
	return is_everywhere(s) || if_nametoindex(i->ifa_name) == s->ifindex ||
	       same_address(i, &s->addr);
}

static u32 length_of(const struct thc_addr *mask, int family)
{
	u32 i, bits = family == AF_INET ? 96 : 0;

	for (i = family == AF_INET ? 3 : 0; i < 4; i++)
		bits += __builtin_popcount(mask->word[i]);
	return bits;
}

static int add_subnet(struct thcd_prefixes *out, const struct ifaddrs *i, struct thcd_error *e)
{
	struct thc_addr addr, mask;
	int family = of_interface(i->ifa_addr, &addr);
	u32 k, len;

	if (!family || of_interface(i->ifa_netmask, &mask) != family)
		return 0;
	len = length_of(&mask, family);
	for (k = 0; k < out->count; k++)
		if (out->at[k].len <= len && thcd_prefix_has(&out->at[k], &addr))
			return 0;
	if (out->count == THCD_PREFIXES_MAX)
		return thcd_fail(e,
				 "this host has more than %d subnets: say which workers may come "
				 "from, prefix=10.0.0.0/24 or prefix=any in each job",
				 THCD_PREFIXES_MAX);
	out->at[out->count++] = thcd_prefix_of(&addr, len);
	return 0;
}

int thcd_net_subnets(const struct thcd *d, struct thcd_prefixes *out, struct thcd_error *e)
{
	static struct thcd_prefixes found;
	struct ifaddrs *list, *i;
	int k, err = 0;

	*out = found;
	if (found.count)
		return 0;
	if (getifaddrs(&list))
		return thcd_fail(e, "cannot list the addresses of this host: %s", strerror(errno));
	for (k = 0; k < d->sockets; k++)
		for (i = list; i && !err; i = i->ifa_next)
			if (i->ifa_addr && i->ifa_addr->sa_family == d->socket[k].family &&
			    reaches(i, &d->socket[k]))
				err = add_subnet(out, i, e);
	freeifaddrs(list);
	if (!err)
		found = *out;
	return err;
}

static void enlarge(int fd)
{
	int bytes = BUFFER_BYTES;

	/* without CAP_NET_ADMIN net.core.[rw]mem_max is the bound */
	if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof(bytes)))
		setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
	if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof(bytes)))
		setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
}

static int set_options(const struct thcd *d, struct thcd_socket *s)
{
	struct timeval patience = { .tv_usec = SEND_TIMEOUT_MS * 1000 };
	struct ip_mreqn out4 = { .imr_address.s_addr = s->addr.word[3], .imr_ifindex = s->ifindex };
	/* software mode alone serves this host; with XDP foreign.c would hear looped answers */
	int one = 1, loop = d->software, ttl = THC_TTL, ttl_group = THC_TTL_GROUP;
	const struct {
		int name[2];	/* of IPv4 and IPv6 */
		const int *value;
	} option[] = {
		{ { IP_RECVTOS, IPV6_RECVTCLASS }, &one },
		{ { IP_RECVTTL, IPV6_RECVHOPLIMIT }, &one },
		{ { IP_TTL, IPV6_UNICAST_HOPS }, &ttl },
		{ { IP_MULTICAST_TTL, IPV6_MULTICAST_HOPS }, &ttl_group },
		{ { IP_MULTICAST_LOOP, IPV6_MULTICAST_LOOP }, &loop },
	};
	socklen_t len = sizeof(s->room);
	bool v6 = s->family == AF_INET6;
	unsigned int i;

	enlarge(s->fd);
	if (getsockopt(s->fd, SOL_SOCKET, SO_SNDBUF, &s->room, &len))
		return -1;
	setsockopt(s->fd, SOL_SOCKET, SO_RXQ_OVFL, &one, sizeof(one));
	setsockopt(s->fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
	for (i = 0; i < sizeof(option) / sizeof(option[0]); i++)
		if (setsockopt(s->fd, v6 ? IPPROTO_IPV6 : IPPROTO_IP, option[i].name[v6],
			       option[i].value, sizeof(int)))
			return -1;
	return v6 ? setsockopt(s->fd, IPPROTO_IPV6, IPV6_MULTICAST_IF, &s->ifindex,
			       sizeof(s->ifindex)) :
		    setsockopt(s->fd, IPPROTO_IP, IP_MULTICAST_IF, &out4, sizeof(out4));
}

static int bind_failed(const char *address, u16 port, struct thcd_error *e)
{
	switch (errno) {
	case EADDRINUSE:
		return thcd_fail(e,
				 "UDP port %u of %s is taken: stop the program that uses it "
				 "(ss -nulp shows it), most likely another thcd, or give --port",
				 port, address);
	case EADDRNOTAVAIL:
		return thcd_fail(e,
				 "%s is not an address of this host, or another host has it, too "
				 "(dadfailed); ip address shows those",
				 address);
	default:
		return thcd_fail(e, "cannot use UDP port %u of %s: %s", port, address,
				 strerror(errno));
	}
}

/* Finds the address that @text, a number or a name, stands for, and the interface if it has one. */
static int find_address(struct thcd_socket *s, const char *text, struct thcd_error *e)
{
	const struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_DGRAM };
	struct addrinfo *found;
	int error = getaddrinfo(text, NULL, &hints, &found);
	u16 port;

	if (error)
		return thcd_fail(
			e,
			"listen: \"%s\" has no address: %s; give an address, as 10.0.0.100 or "
			"fe80::1%%eth0, or a name that `getent ahosts` finds",
			text, gai_strerror(error));
	s->family = thcd_sockaddr_parse(found->ai_addr, &s->addr, &port);
	if (s->family == AF_INET6)
		s->ifindex = ((struct sockaddr_in6 *)found->ai_addr)->sin6_scope_id;
	freeaddrinfo(found);
	if (!s->ifindex)
		s->ifindex = interface_of(&s->addr);
	return 0;
}

static int one_of_each(struct thcd_error *e)
{
	return thcd_fail(e, "listen: one IPv4 and one IPv6 address at most: workers take answers "
			    "from the address that they send to alone");
}

/* The kernel refuses a new IPv6 address until it knows that no other host has it (duplicate address
 * detection; RFC 4862, section 5.4).
 */
static int bind_in_time(const struct thcd_socket *s, const struct sockaddr *at, socklen_t len)
{
	const u64 until = thcd_now_ms() + TENTATIVE_MS;

	while (bind(s->fd, at, len)) {
		if (errno != EADDRNOTAVAIL || s->family == AF_INET || !interface_of(&s->addr) ||
		    thcd_now_ms() >= until)
			return -1;
		usleep(BIND_AGAIN_US);
	}
	return 0;
}

int thcd_net_open(struct thcd *d, const char *address, struct thcd_error *e)
{
	struct thcd_socket *s = &d->socket[d->sockets];
	struct sockaddr_storage ss;
	socklen_t len;
	int one = 1;

	if (d->sockets == THCD_LISTEN_MAX)
		return one_of_each(e);
	if (find_address(s, address, e))
		return -1;
	if (d->sockets && d->socket[0].family == s->family)
		return one_of_each(e);
	/* workers reach an address of lo, and groups, through the interface */
	if (d->interface && s->ifindex == if_nametoindex("lo"))
		s->ifindex = if_nametoindex(d->interface);
	s->fd = socket(s->family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (s->fd < 0)
		return thcd_fail(e, "no socket: %s", strerror(errno));
	len = thcd_sockaddr(&ss, &s->addr, d->port, s->family, s->ifindex);
	/* each family has its socket: ::1 and 127.0.0.1 may both be listened on */
	if (s->family == AF_INET6)
		setsockopt(s->fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof(one));
	if (bind_in_time(s, (struct sockaddr *)&ss, len)) {
		bind_failed(address, d->port, e);
	} else if (set_options(d, s)) {
		thcd_fail(e, "cannot set up a socket on %s: %s", address, strerror(errno));
	} else {
		d->sockets++;
		return 0;
	}
	close(s->fd);
	return -1;
}

int thcd_net_open_interface(struct thcd *d, const char *interface, struct thcd_error *e)
{
	static const int families[] = { AF_INET, AF_INET6 };
	struct thc_addr addr;
	int i, found;
	char text[INET6_ADDRSTRLEN];

	for (i = 0; i < 2; i++) {
		found = first_address(interface, families[i], &addr);
		if (found < 0)
			return thcd_fail(e, "cannot list the addresses of %s: %s", interface,
					 strerror(-found));
		if (found && thcd_net_open(d, thc_addr_text(&addr, text), e))
			return -1;
	}
	if (!d->sockets)
		return thcd_fail(
			e,
			"interface %s has no IP address that workers could send to; add one: "
			"ip address add ADDR/LEN dev %s",
			interface, interface);
	return 0;
}

void thcd_net_close(struct thcd *d)
{
	while (d->sockets)
		close(d->socket[--d->sockets].fd);
}

static void flush_socket(struct thcd *d, int i)
{
	struct queue *q = &queues[i];
	int done = 0;

	while (done < q->count) {
		int n = sendmmsg(d->socket[i].fd, q->msg + done, q->count - done, 0);

		if (n > 0) {
			d->stats.event[THC_EVENT_SENT] += n;
			done += n;
			continue;
		}
		if (errno == EINTR)
			continue;
		/* the first datagram cannot be sent; its worker will ask again */
		d->counters.unsent++;
		thcd_say_limited("an answer was not sent: %s", strerror(errno));
		done++;
	}
	q->count = 0;
}

void thcd_out_flush(struct thcd *d)
{
	int i;

	for (i = 0; i < d->sockets; i++)
		flush_socket(d, i);
}

/* A forged source makes thcd answer a host that does not exist; such answers wait in the send
 * buffer for its MAC address. Half of the buffer is reserved for sums.
 */
static bool is_crowded(const struct thcd_socket *s)
{
	int waiting;

	return !ioctl(s->fd, SIOCOUTQ, &waiting) && waiting > s->room / 2;
}

int thcd_socket_for(const struct thcd *d, const struct thc_addr *addr)
{
	int i, family = thc_addr_is_v4(addr) ? AF_INET : AF_INET6;

	for (i = 0; i < d->sockets; i++)
		if (d->socket[i].family == family)
			return i;
	return -1;
}

void thcd_out_put(struct thcd *d, const struct thc_addr *addr, u16 port, const struct thc_hdr *h,
		  const u64 *words, const void *bytes, u32 length)
{
	int i = thcd_socket_for(d, addr), at;
	struct queue *q;
	u8 *frame;
	u32 k;

	if (i < 0 || (!words && is_crowded(&d->socket[i]))) {
		d->counters.unsent++;
		return;
	}
	q = &queues[i];
	if (q->count == OUT_BATCH)
		flush_socket(d, i);
	at = q->count++;
	frame = q->frame[at];
	memcpy(frame, h, sizeof(*h));
	if (bytes)
		memcpy(frame + sizeof(*h), bytes, length);
	else if (words)
		for (k = 0; k < length / 8; k++)
			((thc_word *)(frame + sizeof(*h)))[k] = thc_le64(words[k]);
	q->iov[at] = (struct iovec){ .iov_base = frame, .iov_len = sizeof(*h) + length };
	q->msg[at].msg_hdr = (struct msghdr){
		.msg_iov = &q->iov[at],
		.msg_iovlen = 1,
		.msg_name = &q->to[at],
		.msg_namelen = thcd_sockaddr(&q->to[at], addr, port, d->socket[i].family,
					     d->socket[i].ifindex),
	};
}
