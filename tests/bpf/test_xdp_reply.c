// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Answers over real sockets: BPF_PROG_TEST_RUN neither clones frames nor runs
 * the egress program, and its frames have the tailroom that those of a veth
 * lack. So this is the test of bpf/reply.bpf.h.
 *
 *	 worker 0        worker 1        worker 2        aggregator
 *	   eth0            eth0            eth0       eth0, native XDP
 *	    |               |               |               |
 *	 sw0 ----------- sw1 ----------- sw2 ------------ sw3   GRO on: else veth
 *	                       br0, in a switch                 does not take
 *	                                                        redirected frames
 *
 * Each box is a network namespace that only this process holds open, so
 * nothing remains, however the test ends.
 *
 * A VLAN tag is seen by XDP only inside the frame. veth would carry it beside
 * the frame, so sw3 must be told not to (txvlan off); workers send and see
 * tagged frames through packet sockets, since VLAN devices may be missing.
 */
#include "rig.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_ether.h>
#include <linux/if_link.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#define RANKS 3
#define AGG RANKS /* hosts: workers, aggregator, switch */
#define SWITCH (RANKS + 1)
#define HOSTS (RANKS + 2)
#define WORKER_PORT 40000
#define QUIET_MS 60 /* how long nothing must come */
#define ANSWER_MS 2000

#ifndef UDP_NO_CHECK6_RX
#define UDP_NO_CHECK6_RX 102
#endif

struct net {
	int ns[HOSTS];
	int home;
	bool v6;
	int queues; /* of each link */
	int one[RANKS]; /* each worker's own socket */
	int group[RANKS]; /* and the one on the group's address */
	int control; /* the daemon's */
	struct rig rig;
	struct thc_job *job;
};

static struct net net;

static void enter(int host)
{
	assert_int_equal(setns(host < 0 ? net.home : net.ns[host], CLONE_NEWNET), 0);
}

/* Runs a command of iproute2 or ethtool; in @host's namespace. */
static void run(int host, const char *format, ...)
{
	char command[512];
	va_list args;

	va_start(args, format);
	vsnprintf(command, sizeof(command), format, args);
	va_end(args);
	enter(host);
	if (system(command))
		fail_msg("failed: %s", command);
	enter(-1);
}

static struct thc_addr address(int host)
{
	struct thc_addr a = thc_addr_v4(htonl(0x0a630001 + (host == AGG ? 0 : 10 + host)));

	if (net.v6) {
		a.word[0] = htonl(0xfd000099);
		a.word[1] = a.word[2] = 0;
		a.word[3] = htonl(1 + (host == AGG ? 0 : 10 + host));
	}
	return a;
}

static struct thc_addr group_address(void)
{
	struct thc_addr a = thc_addr_v4(htonl(0xefc80102)); /* 239.200.1.2 */

	if (net.v6) {
		a.word[0] = htonl(0xff150000);
		a.word[1] = a.word[2] = 0;
		a.word[3] = htonl(0x01020304);
	}
	return a;
}

static socklen_t sockaddr_of(struct sockaddr_storage *ss, struct thc_addr a, u16 port)
{
	struct sockaddr_in6 *s6 = (void *)ss;
	struct sockaddr_in *s4 = (void *)ss;

	memset(ss, 0, sizeof(*ss));
	if (net.v6) {
		s6->sin6_family = AF_INET6;
		s6->sin6_port = htons(port);
		memcpy(&s6->sin6_addr, &a, sizeof(a));
		return sizeof(*s6);
	}
	s4->sin_family = AF_INET;
	s4->sin_port = htons(port);
	s4->sin_addr.s_addr = a.word[3];
	return sizeof(*s4);
}

static void add_host(int host)
{
	int pid = getpid();

	run(SWITCH,
	    "ip link add sw%d numtxqueues %d numrxqueues %d type veth "
	    "peer name eth0 numtxqueues %d numrxqueues %d netns /proc/%d/fd/%d",
	    host, net.queues, net.queues, net.queues, net.queues, pid, net.ns[host]);
	run(SWITCH, "ip link set sw%d master br0 up", host);
	run(SWITCH, "ethtool -K sw%d gro on", host);
	run(host, "ip link set lo up; ip link set eth0 up");
	if (net.v6)
		run(host, "ip addr add fd00:99::%x/64 dev eth0 nodad",
		    1 + (host == AGG ? 0 : 10 + host));
	else
		run(host, "ip addr add 10.99.0.%d/24 dev eth0", 1 + (host == AGG ? 0 : 10 + host));
}

static int new_socket(int host, struct thc_addr a, u16 port)
{
	struct sockaddr_storage ss;
	socklen_t len = sockaddr_of(&ss, a, port);
	int fd, on = 1;

	enter(host);
	fd = socket(net.v6 ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	assert_true(fd >= 0);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (net.v6)
		assert_int_equal(setsockopt(fd, IPPROTO_UDP, UDP_NO_CHECK6_RX, &on, sizeof(on)), 0);
	if (bind(fd, (void *)&ss, len))
		fail_msg("bind in host %d: %s", host, strerror(errno));
	enter(-1);
	return fd;
}

static void join_group(int host, int fd)
{
	struct thc_addr g = group_address();

	enter(host);
	if (net.v6) {
		struct ipv6_mreq m = { .ipv6mr_interface = if_nametoindex("eth0") };

		memcpy(&m.ipv6mr_multiaddr, &g, sizeof(g));
		assert_int_equal(setsockopt(fd, IPPROTO_IPV6, IPV6_JOIN_GROUP, &m, sizeof(m)), 0);
	} else {
		struct ip_mreqn m = { .imr_multiaddr.s_addr = g.word[3],
				      .imr_ifindex = if_nametoindex("eth0") };

		assert_int_equal(setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &m, sizeof(m)), 0);
	}
	enter(-1);
}

static void attach(bool relay)
{
	struct thc_config config = { .port_base = RIG_PORT, .relay = relay };
	int ifindex;

	if (net.v6)
		config.addr6 = address(AGG);
	else
		config.addr4 = address(AGG);
	rig_open(&net.rig, &config);
	enter(AGG);
	ifindex = if_nametoindex("eth0");
	assert_true(ifindex > 0);
	if (!relay) {
		rig_fan(&net.rig, 0, ifindex);
		rig_fan(&net.rig, 1, ifindex);
		rig_fan(&net.rig, RANKS, ifindex);
	}
	assert_int_equal(bpf_xdp_attach(ifindex, bpf_program__fd(net.rig.skel->progs.thc_xdp),
					relay ? XDP_FLAGS_SKB_MODE : XDP_FLAGS_DRV_MODE, NULL),
			 0);
	enter(-1);
}

static void net_up_queues(bool v6, bool relay, int queues)
{
	int host, r;

	rig_need_root();
	memset(&net, 0, sizeof(net));
	net.v6 = v6;
	net.queues = queues;
	net.home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	assert_true(net.home >= 0);
	for (host = 0; host < HOSTS; host++) {
		assert_int_equal(unshare(CLONE_NEWNET), 0);
		net.ns[host] = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
		assert_true(net.ns[host] >= 0);
	}
	run(SWITCH, "ip link add br0 type bridge mcast_snooping 0 stp_state 0 forward_delay 0 && "
		    "ip link set br0 up");
	for (host = 0; host <= AGG; host++)
		add_host(host);
	attach(relay);
	net.job = rig_job(&net.rig, 2, RANKS, 64, 128);
	net.job->group = group_address();
	for (r = 0; r < RANKS; r++) {
		rig_member(net.job, r, address(r), WORKER_PORT + r);
		net.one[r] = new_socket(r, address(r), WORKER_PORT + r);
		net.group[r] = new_socket(r, group_address(), RIG_GROUP_PORT);
		join_group(r, net.group[r]);
	}
	net.control = new_socket(AGG, address(AGG), RIG_PORT);
}

static void net_up(bool v6, bool relay)
{
	net_up_queues(v6, relay, 1);
}

static void net_down(void)
{
	int host, r;

	for (r = 0; r < RANKS; r++) {
		close(net.one[r]);
		close(net.group[r]);
	}
	close(net.control);
	enter(AGG);
	bpf_xdp_detach(if_nametoindex("eth0"), 0, NULL);
	enter(-1);
	rig_close(&net.rig);
	for (host = 0; host < HOSTS; host++)
		close(net.ns[host]);
	close(net.home);
}

/* @rank sends request @r with @payload to the port its slot is reached on. */
static void send_request(int rank, struct rig_request r, const u8 *payload, size_t len)
{
	struct sockaddr_storage to;
	socklen_t size = sockaddr_of(&to, address(AGG), RIG_PORT + r.slot / 64);
	struct thc_hdr h;
	u8 packet[1200];

	r.rank = rank;
	r.job = 2;
	rig_header(&h, &r);
	len = rig_packet(packet, &h, payload, len);
	assert_int_equal(sendto(net.one[rank], packet, len, 0, (void *)&to, size), len);
}

static bool readable(int fd, int ms)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, ms) == 1;
}

/* The next packet at @fd, whose sum must hold; returns its length. */
static ssize_t receive(int fd, u8 *packet, size_t size)
{
	struct sockaddr_storage from;
	socklen_t from_len = sizeof(from);
	struct thc_hdr *h = (void *)packet;
	ssize_t len;

	if (!readable(fd, ANSWER_MS))
		fail_msg("no answer within %d ms", ANSWER_MS);
	len = recvfrom(fd, packet, size, 0, (void *)&from, &from_len);
	assert_true(len >= (ssize_t)sizeof(*h));
	assert_int_equal(thc_be32(h->sum), thc_sum_packet(h, h + 1, (len - sizeof(*h)) / 8));
	assert_int_equal(h->version, THC_VERSION);
	assert_int_equal(h->cookie, thc_be64(RIG_COOKIE));
	assert_int_equal(h->job, thc_be16(2));
	assert_int_equal(h->reserved, 0);
	/* it comes from the address and port it was asked at */
	if (net.v6)
		assert_int_equal(((struct sockaddr_in6 *)&from)->sin6_port,
				 htons(RIG_PORT + thc_be16(h->slot) / 64));
	else
		assert_int_equal(((struct sockaddr_in *)&from)->sin_port,
				 htons(RIG_PORT + thc_be16(h->slot) / 64));
	return len;
}

/* Nothing more has come, to anybody. */
static void nothing_else(void)
{
	struct pollfd p[2 * RANKS];
	int r, n;

	for (r = 0; r < RANKS; r++) {
		p[r] = (struct pollfd){ .fd = net.one[r], .events = POLLIN };
		p[RANKS + r] = (struct pollfd){ .fd = net.group[r], .events = POLLIN };
	}
	n = poll(p, 2 * RANKS, QUIET_MS);
	for (r = 0; n > 0 && r < 2 * RANKS; r++)
		if (p[r].revents)
			fail_msg("an unexpected packet at worker %d's %s socket", r % RANKS,
				 r < RANKS ? "own" : "group");
	assert_int_equal(n, 0);
}

/* The kinds of payload: shorter than an answer, and as long. */
struct shape {
	const char *name;
	u8 op, width, sum_width, answer_width;
	u16 len;
};

static const struct shape shapes[] = {
	{ "LUT8", THC_OP_LUT_ADD, 4, 8, 8, 512 },
	{ "LUT16", THC_OP_LUT_ADD, 4, 16, 16, 256 },
	{ "ADD32", THC_OP_ADD, 32, 8, 32, 1024 },
	{ "MAX", THC_OP_MAX, 32, 8, 32, 1024 },
};

static u8 payload[RANKS][1024];
static const u8 *const payloads[RANKS] = { payload[0], payload[1], payload[2] };

static void expect_result(const u8 *packet, ssize_t len, const struct shape *s,
			  const struct rig_request *r, u8 flags, u8 rank)
{
	const struct thc_hdr *h = (const void *)packet;
	u8 expected[1024];

	rig_reference(expected, s->op, s->answer_width, rig_table, payloads, RANKS);
	assert_int_equal(len, sizeof(*h) + 1024);
	assert_int_equal(h->op, s->op);
	assert_int_equal(h->width, s->answer_width);
	assert_int_equal(h->flags, flags);
	assert_int_equal(h->rank, rank);
	assert_int_equal(thc_be16(h->slot), r->slot);
	assert_int_equal(thc_be32(h->generation), r->generation);
	assert_int_equal(thc_be32(h->chunk), r->chunk);
	assert_int_equal(thc_be32(h->round), r->round);
	assert_int_equal(thc_be32(h->epoch), r->epoch);
	assert_int_equal(thc_be16(h->count), RANKS);
	assert_int_equal(thc_be64(h->bitmap), 7);
	assert_memory_equal(packet + sizeof(*h), expected, sizeof(expected));
}

static void expect_header(const u8 *packet, ssize_t len, u8 op, u8 flags, u8 rank, u64 bitmap)
{
	const struct thc_hdr *h = (const void *)packet;

	assert_int_equal(len, sizeof(*h));
	assert_int_equal(h->op, op);
	assert_int_equal(h->width, 0);
	assert_int_equal(h->flags, flags);
	assert_int_equal(h->rank, rank);
	assert_int_equal(thc_be64(h->bitmap), bitmap);
}

/* A round of contributions to one slot, all ranks in a row. */
static void contribute(const struct shape *s, struct rig_request r)
{
	int rank;

	r.op = s->op;
	r.width = s->width;
	for (rank = 0; rank < RANKS; rank++)
		send_request(rank, r, payload[rank], s->len);
}

static void expect_all(const struct shape *s, const struct rig_request *r)
{
	bool fanout = net.job->reply == THC_REPLY_FANOUT;
	u8 packet[2048];
	int rank;

	for (rank = 0; rank < RANKS; rank++) {
		ssize_t len =
			receive(fanout ? net.one[rank] : net.group[rank], packet, sizeof(packet));

		expect_result(packet, len, s, r, THC_F_ANSWER, fanout ? rank : 0);
	}
}

static void expect_one(const struct shape *s, const struct rig_request *r, int rank)
{
	u8 packet[2048];
	ssize_t len = receive(net.one[rank], packet, sizeof(packet));

	expect_result(packet, len, s, r, THC_F_ANSWER | THC_F_REPEAT, rank);
}

/* The life of a slot: waiting, result, repeat, stale, another epoch. */
static void slot_life(const struct shape *s, u32 slot)
{
	struct rig_request r = { .op = s->op, .width = s->width, .epoch = 1, .slot = slot };
	u8 packet[2048];
	ssize_t len;

	net.job->sum_width = s->sum_width;
	for (r.generation = 0; r.generation < 3; r.generation++) {
		r.chunk = slot + 128 * r.generation;
		r.round = r.generation;

		/* a duplicate while the others are missing */
		send_request(1, r, payload[1], s->len);
		send_request(1, r, payload[1], s->len);
		len = receive(net.one[1], packet, sizeof(packet));
		expect_header(packet, len, THC_OP_WAIT, 0, 1, 2);
		nothing_else();

		/* now everybody, worker 1 once more */
		send_request(0, r, payload[0], s->len);
		send_request(2, r, payload[2], s->len);
		expect_all(s, &r);
		nothing_else();

		/* an answer lost on the way is asked for again */
		send_request(2, r, payload[2], s->len);
		expect_one(s, &r, 2);
		send_request(0, r, payload[0], s->len);
		expect_one(s, &r, 0);
		nothing_else();
	}
	r.generation = 0;
	r.chunk = slot;
	r.round = 0;
	send_request(1, r, payload[1], s->len);
	len = receive(net.one[1], packet, sizeof(packet));
	expect_header(packet, len, THC_OP_STALE, THC_F_KNOWN, 1, 7);

	r.epoch = 9;
	net.job->culprit = 2;
	send_request(0, r, payload[0], s->len);
	len = receive(net.one[0], packet, sizeof(packet));
	expect_header(packet, len, THC_OP_STALE, THC_F_EPOCH, 2, 7);
	assert_int_equal(thc_be32(((struct thc_hdr *)packet)->epoch), 1);
	nothing_else();
}

/* Answers in quick succession: the numbering of clones must not slip. */
static void burst(const struct shape *s, u32 first, int slots)
{
	bool fanout = net.job->reply == THC_REPLY_FANOUT, seen[RANKS][128] = { 0 };
	struct rig_request r = { .epoch = 1 };
	u8 packet[2048];
	int i, rank;

	net.job->sum_width = s->sum_width;
	for (i = 0; i < slots; i++) {
		r.slot = r.chunk = first + i;
		contribute(s, r);
	}
	for (rank = 0; rank < RANKS; rank++) {
		for (i = 0; i < slots; i++) {
			ssize_t len = receive(fanout ? net.one[rank] : net.group[rank], packet,
					      sizeof(packet));
			u32 slot = thc_be16(((struct thc_hdr *)packet)->slot);

			assert_true(slot < 128 && !seen[rank][slot]);
			seen[rank][slot] = true;
			r.slot = r.chunk = slot;
			expect_result(packet, len, s, &r, THC_F_ANSWER, fanout ? rank : 0);
		}
	}
	nothing_else();
}

static void everything(bool v6)
{
	struct thc_stats st;
	u64 state = 77;
	size_t i;
	int r;

	net_up(v6, false);
	for (r = 0; r < RANKS; r++)
		rig_fill(&state, payload[r], sizeof(payload[r]));

	for (i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
		net.job->reply = THC_REPLY_MULTICAST;
		slot_life(&shapes[i], 2 * i);
		net.job->reply = THC_REPLY_FANOUT;
		slot_life(&shapes[i], 2 * i + 1);
	}
	net.job->reply = THC_REPLY_MULTICAST;
	burst(&shapes[0], 16, 40);
	net.job->reply = THC_REPLY_FANOUT;
	burst(&shapes[0], 64, 40);

	st = rig_stats(&net.rig);
	rig_check_balance(&st);
	for (i = 0; i < THC_DROP_REASONS; i++)
		assert_int_equal(st.drop[i], 0);
	/* 8 lives: a result, a WAIT and two repeats for each of 3 generations,
	 * one STALE, one of another epoch; results by multicast are one frame
	 */
	assert_int_equal(st.event[THC_EVENT_FINISHED], 8 * 3 + 80);
	assert_int_equal(st.event[THC_EVENT_SENT], 4 * 3 * (1 + 3) + 40 * (1 + 3) + 8 * (9 + 2));
	for (r = 0; r < RANKS; r++)
		assert_int_equal(net.job->member[r].tagged, 0);
	net_down();
}

static void reply__ipv4(void **state)
{
	(void)state;
	everything(false);
}

static void reply__ipv6(void **state)
{
	(void)state;
	everything(true);
}

static int packet_socket(int host, u8 *mac)
{
	struct sockaddr_ll ll = { .sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL) };
	struct ifreq ifr = { .ifr_name = "eth0" };
	int fd, on = 1;

	enter(host);
	fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, htons(ETH_P_ALL));
	assert_true(fd >= 0);
	ll.sll_ifindex = if_nametoindex("eth0");
	assert_int_equal(bind(fd, (void *)&ll, sizeof(ll)), 0);
	/* the kernel takes a received tag out of the frame and reports it here */
	assert_int_equal(setsockopt(fd, SOL_PACKET, PACKET_AUXDATA, &on, sizeof(on)), 0);
	assert_int_equal(setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof(on)), 0);
	assert_int_equal(ioctl(fd, SIOCGIFHWADDR, &ifr), 0);
	memcpy(mac, ifr.ifr_hwaddr.sa_data, 6);
	enter(-1);
	return fd;
}

/* Of a frame whose tag the kernel has taken out. */
static size_t ip_bytes(void)
{
	return net.v6 ? 40 : 20;
}

static bool is_answer(const u8 *frame, ssize_t len)
{
	const u8 *ip = frame + 14, *udp = ip + ip_bytes();

	return len >= udp + 8 - frame && frame[12] == (net.v6 ? 0x86 : 0x08) &&
	       frame[13] == (net.v6 ? 0xdd : 0x00) && ip[net.v6 ? 6 : 9] == 17 &&
	       (udp[0] << 8 | udp[1]) == RIG_PORT;
}

#define UNTAGGED (-1)

/* The next frame with a THC answer at a packet socket; returns its length.
 * @tci: tag control, or UNTAGGED.
 */
static ssize_t receive_tagged(int fd, u8 *frame, size_t size, int *tci)
{
	union {
		struct cmsghdr align;
		u8 space[256];
	} control;
	struct iovec iov = { frame, size };
	struct cmsghdr *c;
	ssize_t len;

	for (;;) {
		struct msghdr m = { .msg_iov = &iov,
				    .msg_iovlen = 1,
				    .msg_control = &control,
				    .msg_controllen = sizeof(control) };

		if (!readable(fd, ANSWER_MS))
			fail_msg("no tagged answer within %d ms", ANSWER_MS);
		len = recvmsg(fd, &m, 0);
		*tci = UNTAGGED;
		for (c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) {
			const struct tpacket_auxdata *aux = (void *)CMSG_DATA(c);

			if (c->cmsg_type == PACKET_AUXDATA && aux->tp_status & TP_STATUS_VLAN_VALID)
				*tci = aux->tp_vlan_tci;
		}
		if (is_answer(frame, len))
			return len;
	}
}

static u32 checksum16(const u8 *p, size_t len)
{
	u32 sum = 0;
	size_t i;

	for (i = 0; i < len; i += 2)
		sum += p[i] << 8 | p[i + 1];
	sum = (sum & 0xffff) + (sum >> 16);
	return (sum + (sum >> 16)) & 0xffff;
}

/* RFC 768 and 8200, over the pseudo header as well: is it there, and right? */
static bool udp_checksum_right(const u8 *frame, size_t len)
{
	size_t addresses = net.v6 ? 32 : 8, udp = 14 + ip_bytes();
	u32 sum = checksum16(frame + udp, len - udp) +
		  checksum16(frame + udp - addresses, addresses) + 17 + len - udp;

	sum = (sum & 0xffff) + (sum >> 16);
	return (frame[udp + 6] | frame[udp + 7]) && (sum & 0xffff) + (sum >> 16) == 0xffff;
}

/* Workers that send and see frames, tags and all. */
struct taps {
	int fd[RANKS];
	u8 mac[HOSTS][6];
};

static struct taps taps_open(void)
{
	struct taps t;
	int rank;

	run(SWITCH, "ethtool -K sw%d txvlan off", AGG);
	close(packet_socket(AGG, t.mac[AGG]));
	for (rank = 0; rank < RANKS; rank++)
		t.fd[rank] = packet_socket(rank, t.mac[rank]);
	return t;
}

static void taps_close(const struct taps *t)
{
	int rank;

	for (rank = 0; rank < RANKS; rank++)
		close(t->fd[rank]);
}

/* @r->rank sends its payload; @f says what is special about the frame. */
static void send_tagged(const struct taps *t, const struct rig_request *r, struct rig_frame f)
{
	u8 frame[2048], packet[1200];
	struct thc_hdr h;
	size_t len;

	memcpy(f.src_mac, t->mac[r->rank], 6);
	memcpy(f.dst_mac, t->mac[AGG], 6);
	f.v6 = net.v6;
	f.src = address(r->rank);
	f.dst = address(AGG);
	f.sport = WORKER_PORT + r->rank;
	f.dport = RIG_PORT;
	rig_header(&h, r);
	len = rig_packet(packet, &h, payload[r->rank], 512);
	len = rig_frame(frame, &f, packet, len);
	assert_int_equal(send(t->fd[r->rank], frame, len, 0), len);
}

static void expect_ip4(const u8 *ip, size_t len, struct thc_addr to)
{
	struct thc_addr from = address(AGG);

	assert_int_equal(ip[0], 0x45);
	/* DSCP as asked, ECN without CE */
	assert_int_equal(ip[1], 0xb8 | 2);
	assert_int_equal(ip[2] << 8 | ip[3], len);
	assert_int_equal(ip[6], 0x40); /* DF */
	assert_int_equal(ip[8], 64);
	assert_int_equal(checksum16(ip, 20), 0xffff);
	assert_memory_equal(ip + 12, &from.word[3], 4);
	assert_memory_equal(ip + 16, &to.word[3], 4);
}

static void expect_ip6(const u8 *ip, size_t len, struct thc_addr to)
{
	struct thc_addr from = address(AGG);

	/* version and traffic class as above, no flow label */
	assert_int_equal(ip[0] << 8 | ip[1], 0x6000 | (0xb8 | 2) << 4);
	assert_int_equal(ip[2] << 8 | ip[3], 0);
	assert_int_equal(ip[4] << 8 | ip[5], len - 40);
	assert_int_equal(ip[7], 64);
	assert_memory_equal(ip + 8, &from, 16);
	assert_memory_equal(ip + 24, &to, 16);
}

/* A tag stays on the answers, in every mode; here every header byte counts. */
static void check_vlan(bool v6)
{
	/* ECN of the contributions and of the repeated one: not ECT, CE, ECT(0), CE */
	static const u8 ecn[RANKS + 1] = { 0, 3, 2, 3 };
	static const u8 group_mac[2][6] = { { 0x01, 0x00, 0x5e, 0x48, 0x01, 0x02 },
					    { 0x33, 0x33, 0x01, 0x02, 0x03, 0x04 } };
	struct rig_request r = { .op = THC_OP_LUT_ADD, .width = 4, .job = 2, .epoch = 1 };
	u8 frame[2048], packet[1200];
	struct rig_frame f = { .vlan = 7 };
	struct thc_stats st;
	struct taps taps;
	int rank, mode, k, tci;

	net_up(v6, false);
	taps = taps_open();
	for (mode = THC_REPLY_MULTICAST; mode <= THC_REPLY_FANOUT; mode++) {
		net.job->reply = mode;
		r.slot = r.chunk = mode;
		for (k = 0; k <= RANKS; k++) { /* the last one asks for a repeat */
			r.rank = k % RANKS;
			f.tos = 0xb8 | ecn[k];
			send_tagged(&taps, &r, f);
		}
		for (k = 0; k <= RANKS; k++) {
			bool repeat = k == RANKS, one = repeat || mode == THC_REPLY_FANOUT;
			const u8 *udp = frame + 14 + ip_bytes();
			struct thc_addr to;
			size_t len;

			rank = k % RANKS;
			to = one ? address(rank) : group_address();
			len = receive_tagged(taps.fd[rank], frame, sizeof(frame), &tci);
			assert_int_equal(tci, 7);
			assert_int_equal(len, 14 + ip_bytes() + 8 + 48 + 1024);
			assert_memory_equal(frame, one ? taps.mac[rank] : group_mac[v6], 6);
			assert_memory_equal(frame + 6, taps.mac[AGG], 6);
			(v6 ? expect_ip6 : expect_ip4)(frame + 14, len - 14, to);
			assert_int_equal(udp[0] << 8 | udp[1], RIG_PORT);
			assert_int_equal(udp[2] << 8 | udp[3],
					 one ? WORKER_PORT + rank : RIG_GROUP_PORT);
			assert_int_equal(udp[4] << 8 | udp[5], frame + len - udp);
			assert_true(udp_checksum_right(frame, len));
			memcpy(packet, udp + 8, sizeof(struct thc_hdr) + 1024);
			expect_result(packet, sizeof(struct thc_hdr) + 1024, &shapes[0], &r,
				      THC_F_ANSWER | THC_F_CE | (repeat ? THC_F_REPEAT : 0),
				      one ? rank : 0);
		}
	}
	st = rig_stats(&net.rig);
	rig_check_balance(&st);
	assert_int_equal(st.event[THC_EVENT_SENT], 1 + 1 + RANKS + 1);
	for (rank = 0; rank < RANKS; rank++) {
		assert_int_equal(net.job->member[rank].tagged, 1);
		assert_int_equal(net.job->member[rank].vlan, htons(7));
		assert_memory_equal(net.job->member[rank].mac, taps.mac[rank], 6);
	}
	taps_close(&taps);
	net_down();
}

static void reply__vlan_ipv4(void **state)
{
	(void)state;
	check_vlan(false);
}

static void reply__vlan_ipv6(void **state)
{
	(void)state;
	check_vlan(true);
}

/* Nothing has come to a tap for a while but what the stack sends by itself. */
static bool tap_quiet(int fd)
{
	u8 frame[2048];

	while (readable(fd, QUIET_MS))
		if (is_answer(frame, recv(fd, frame, sizeof(frame), 0)))
			return false;
	return true;
}

/* Ranks with different tags, one of which has only a priority. The answer to
 * all has the form of the last contribution: it goes to whom it fits, each
 * with its own tag; the others ask for theirs.
 */
static void reply__tags_differ(void **state)
{
	static const int tag[RANKS] = { 7, UNTAGGED, 0 };
	struct rig_request r = { .op = THC_OP_LUT_ADD, .width = 4, .job = 2, .epoch = 1 };
	u64 lost = 0, sent = 0;
	struct rig_frame f[RANKS];
	struct thc_stats st;
	struct taps taps;
	u8 frame[2048];
	int rank, last, k, tci;

	(void)state;
	net_up(false, false);
	taps = taps_open();
	for (rank = 0; rank < RANKS; rank++)
		f[rank] = (struct rig_frame){ .vlan = tag[rank] < 0 ? 0 : tag[rank],
					      .vlan_proto = tag[rank] < 0 ? 0 : 0x8100 };
	net.job->reply = THC_REPLY_FANOUT;
	for (last = 0; last < RANKS; last++) {
		r.slot = r.chunk = last;
		for (k = 1; k <= RANKS; k++) {
			r.rank = (last + k) % RANKS;
			send_tagged(&taps, &r, f[r.rank]);
		}
		for (rank = 0; rank < RANKS; rank++) {
			bool fits = (tag[rank] == UNTAGGED) == (tag[last] == UNTAGGED);

			if (!fits) {
				assert_true(tap_quiet(taps.fd[rank]));
				r.rank = rank;
				send_tagged(&taps, &r, f[rank]);
			}
			receive_tagged(taps.fd[rank], frame, sizeof(frame), &tci);
			assert_int_equal(tci, tag[rank]);
			assert_memory_equal(frame, taps.mac[rank], 6);
			lost += !fits;
			sent++;
		}
	}
	st = rig_stats(&net.rig);
	rig_check_balance(&st);
	assert_int_equal(st.event[THC_EVENT_SENT], sent);
	assert_int_equal(st.drop[THC_DROP_TAILROOM], lost);
	for (rank = 0; rank < RANKS; rank++) {
		assert_int_equal(net.job->member[rank].tagged, tag[rank] != UNTAGGED);
		assert_int_equal(net.job->member[rank].vlan, tag[rank] > 0 ? htons(7) : 0);
	}
	taps_close(&taps);
	net_down();
}

/* JOIN reaches the daemon's socket through the stack, data does not. */
static void reply__join_reaches_the_stack(void **state)
{
	struct rig_request r = { .op = THC_OP_JOIN };
	struct thc_join join = { .nonce = thc_be64(5) };
	u8 packet[2048];

	(void)state;
	net_up(false, false);
	send_request(1, r, (void *)&join, sizeof(join));
	assert_true(readable(net.control, ANSWER_MS));
	assert_int_equal(recv(net.control, packet, sizeof(packet), 0),
			 sizeof(struct thc_hdr) + sizeof(join));
	assert_memory_equal(packet + sizeof(struct thc_hdr), &join, sizeof(join));
	r = (struct rig_request){ .op = THC_OP_LUT_ADD, .width = 4, .epoch = 1 };
	send_request(1, r, payload[1], 512);
	assert_false(readable(net.control, QUIET_MS));
	assert_int_equal(rig_stats(&net.rig).event[THC_EVENT_CONTROL], 1);
	assert_int_equal(rig_stats(&net.rig).event[THC_EVENT_ADDED], 1);
	net_down();
}

struct relayed {
	struct thc_relay r[16];
	int n;
};

static int take_relay(void *ctx, void *data, size_t size)
{
	struct relayed *all = ctx;

	assert_int_equal(size, sizeof(struct thc_relay));
	assert_true(all->n < 16);
	memcpy(&all->r[all->n++], data, size);
	return 0;
}

/* Generic XDP: answers are handed to the daemon, in order, and not sent. */
static void reply__relay(void **state)
{
	struct rig_request r = {
		.op = THC_OP_LUT_ADD, .width = 4, .epoch = 1, .slot = 3, .chunk = 3
	};
	struct relayed got = { .n = 0 };
	struct ring_buffer *ring;
	struct thc_stats st;

	(void)state;
	net_up(false, true);
	send_request(0, r, payload[0], 512);
	send_request(0, r, payload[0], 512); /* WAIT */
	send_request(1, r, payload[1], 512);
	send_request(2, r, payload[2], 512); /* result */
	send_request(1, r, payload[1], 512); /* repeat */
	nothing_else();

	ring = ring_buffer__new(bpf_map__fd(net.rig.skel->maps.relay), take_relay, &got, NULL);
	assert_non_null(ring);
	ring_buffer__consume(ring);
	ring_buffer__free(ring);
	assert_int_equal(got.n, 3);
	assert_int_equal(got.r[0].kind, THC_RELAY_HEADER);
	assert_int_equal(got.r[0].rank, 0);
	expect_header((u8 *)&got.r[0].hdr, sizeof(struct thc_hdr), THC_OP_WAIT, 0, 0, 1);
	assert_int_equal(thc_be32(got.r[0].hdr.sum), thc_sum_packet(&got.r[0].hdr, NULL, 0));
	assert_int_equal(got.r[1].kind, THC_RELAY_ALL);
	assert_int_equal(got.r[2].kind, THC_RELAY_ONE);
	assert_int_equal(got.r[2].rank, 1);
	assert_int_equal(got.r[2].slot, 3);
	assert_int_equal(got.r[2].job, 2);
	assert_int_equal(got.r[2].generation, 0);

	st = rig_stats(&net.rig);
	rig_check_balance(&st);
	assert_int_equal(st.event[THC_EVENT_RELAYED], 3);
	assert_int_equal(st.event[THC_EVENT_SENT], 0);
	net_down();
}

#define CPUS_SLOTS 8
#define CPUS_GENERATIONS 500

/* Times 20 ms without an answer, on a loaded machine. */
#define LAP_PATIENCE 500

/* A slot's result of this generation. */
#define LAP_DONE 1 /* is there, one way or the other */
#define LAP_HEARD 2 /* came in the answer to all */

/* A thread of reply__two_cpus: some ranks, on one CPU, through real rounds. */
struct lap {
	int cpu, first, ranks;
	struct lap *other;
	u32 begun; /* generations */
	const char *volatile wrong; /* what went wrong, if anything did */
};

/* Both threads begin each generation in the same instant: then packets for the
 * same slot arrive on both CPUs together, and locks are put to the test.
 */
static void lap_meet(struct lap *lap)
{
	u32 mine = ++lap->begun;

	__atomic_store_n(&lap->begun, mine, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(&lap->other->begun, __ATOMIC_SEQ_CST) < mine && !lap->other->wrong)
		sched_yield();
}

static void lap_send(int rank, u32 generation, const u8 *got)
{
	struct rig_request r = {
		.op = THC_OP_LUT_ADD, .width = 4, .epoch = 1, .generation = generation
	};
	struct sockaddr_storage to;
	socklen_t size;
	struct thc_hdr h;
	u8 packet[1200];
	size_t len;

	r.rank = rank;
	r.job = 2;
	for (r.slot = 0; r.slot < CPUS_SLOTS; r.slot++) {
		if (got[r.slot])
			continue;
		r.chunk = r.slot + 128 * generation;
		rig_header(&h, &r);
		len = rig_packet(packet, &h, payload[rank], 512);
		size = sockaddr_of(&to, address(AGG), RIG_PORT);
		/* what is not sent is what is lost: it is sent again */
		sendto(net.one[rank], packet, len, 0, (void *)&to, size);
	}
}

/* One datagram; marks the result it carries. Returns what is wrong with it. */
static const char *lap_take(int fd, u32 generation, const u8 *expected, u8 *got, int *missing)
{
	u8 packet[2048];
	struct thc_hdr *h = (void *)packet;
	ssize_t len = recv(fd, packet, sizeof(packet), MSG_DONTWAIT);
	u32 slot;

	if (len < (ssize_t)sizeof(*h))
		return "a short packet";
	if (thc_be32(h->sum) != thc_sum_packet(h, h + 1, (len - sizeof(*h)) / 8))
		return "a packet whose sum is wrong";
	if (!(h->flags & THC_F_ANSWER) || thc_be32(h->generation) != generation)
		return NULL; /* WAIT, or a repeat that was slow */
	slot = thc_be16(h->slot);
	if (slot >= CPUS_SLOTS || len != sizeof(*h) + 1024 || thc_be64(h->bitmap) != 7 ||
	    thc_be16(h->count) != RANKS || memcmp(h + 1, expected, 1024))
		return "a result that is wrong";
	/* the answer to all comes once; one that was asked for may overtake it */
	if (!(h->flags & THC_F_REPEAT)) {
		if (got[slot] & LAP_HEARD)
			return "a result that came twice";
		got[slot] |= LAP_HEARD;
	}
	if (!(got[slot] & LAP_DONE))
		(*missing)--;
	got[slot] |= LAP_DONE;
	return NULL;
}

static void *lap_run(void *arg)
{
	struct lap *lap = arg;
	u8 expected[1024];
	u32 generation;
	cpu_set_t set;
	int r, again, quiet;

	CPU_ZERO(&set);
	CPU_SET(lap->cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		lap->wrong = "no such CPU";
	rig_reference(expected, THC_OP_LUT_ADD, 8, rig_table, payloads, RANKS);
	for (generation = 0; generation < CPUS_GENERATIONS && !lap->wrong && !lap->other->wrong;
	     generation++) {
		u8 got[RANKS][CPUS_SLOTS] = { 0 };

		lap_meet(lap);
		for (r = lap->first; r < lap->first + lap->ranks; r++)
			lap_send(r, generation, got[r]);
		for (r = lap->first; r < lap->first + lap->ranks; r++) {
			int missing = CPUS_SLOTS;

			/* the other's failure is the one to report */
			for (quiet = 0; missing && !lap->wrong && !lap->other->wrong;) {
				struct pollfd p[2] = { { .fd = net.one[r], .events = POLLIN },
						       { .fd = net.group[r], .events = POLLIN } };
				int i;

				if (poll(p, 2, 20) <= 0) {
					if (++quiet > LAP_PATIENCE)
						lap->wrong = "no result";
					/* also of ranks whose turn comes after: this one may
					 * wait for what was lost of theirs
					 */
					for (again = r; again < lap->first + lap->ranks; again++)
						lap_send(again, generation, got[again]);
					continue;
				}
				for (i = 0; i < 2 && !lap->wrong; i++)
					if (p[i].revents)
						lap->wrong = lap_take(p[i].fd, generation, expected,
								      got[r], &missing);
			}
		}
	}
	return NULL;
}

/* How many CPUs ran thc_xdp. */
static int cpus_used(void)
{
	int cpus = libbpf_num_possible_cpus(), used = 0, c;
	struct thc_stats *each = calloc(cpus, sizeof(*each));
	u32 key = 0;

	assert_int_equal(bpf_map_lookup_elem(bpf_map__fd(net.rig.skel->maps.stats), &key, each), 0);
	for (c = 0; c < cpus; c++)
		used += each[c].received > 0;
	free(each);
	return used;
}

/* What went wrong, and where the packets went that it was about. */
static void lap_failed(int thread, const struct lap *lap, const struct thc_stats *st)
{
	int i;

	for (i = 0; i < THC_EVENTS; i++)
		if (st->event[i])
			print_error("event %d: %llu\n", i, (unsigned long long)st->event[i]);
	for (i = 0; i < THC_DROP_REASONS; i++)
		if (st->drop[i])
			print_error("drop %d: %llu\n", i, (unsigned long long)st->drop[i]);
	fail_msg("thread %d, generation %u: %s", thread, lap->begun - 1, lap->wrong);
}

/* Two queues, each served by its own CPU, meet in the same slots. */
static void reply__two_cpus(void **state)
{
	struct lap lap[2] = { { .cpu = 0, .first = 0, .ranks = 1 },
			      { .cpu = 1, .first = 1, .ranks = 2 } };
	pthread_t thread[2];
	struct thc_stats st;
	u64 seed = 99;
	int i, mode;

	(void)state;
	rig_need_root();
	if (sysconf(_SC_NPROCESSORS_ONLN) < 2) {
		print_message("# SKIP two CPUs are needed to race\n");
		skip();
	}
	for (mode = THC_REPLY_MULTICAST; mode <= THC_REPLY_FANOUT; mode++) {
		net_up_queues(false, false, 2);
		/* the queue follows the sender's CPU, and its NAPI runs there */
		run(SWITCH,
		    "unshare -m sh -c 'mount -t sysfs none /sys && cd /sys/class/net/sw%d/queues && "
		    "echo 1 > tx-0/xps_cpus && echo 2 > tx-1/xps_cpus'",
		    AGG);
		net.job->reply = mode;
		for (i = 0; i < RANKS; i++)
			rig_fill(&seed, payload[i], sizeof(payload[i]));
		for (i = 0; i < 2; i++) {
			lap[i].wrong = NULL;
			lap[i].begun = 0;
			lap[i].other = &lap[!i];
		}
		for (i = 0; i < 2; i++) {
			assert_int_equal(pthread_create(&thread[i], NULL, lap_run, &lap[i]), 0);
		}
		for (i = 0; i < 2; i++)
			pthread_join(thread[i], NULL);
		st = rig_stats(&net.rig);
		for (i = 0; i < 2; i++)
			if (lap[i].wrong)
				lap_failed(i, &lap[i], &st);
		rig_check_balance(&st);
		assert_int_equal(st.event[THC_EVENT_ADDED], RANKS * CPUS_SLOTS * CPUS_GENERATIONS);
		assert_int_equal(st.event[THC_EVENT_FINISHED], CPUS_SLOTS * CPUS_GENERATIONS);
		assert_int_equal(cpus_used(), 2);
		net_down();
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reply__ipv4),
		cmocka_unit_test(reply__ipv6),
		cmocka_unit_test(reply__vlan_ipv4),
		cmocka_unit_test(reply__vlan_ipv6),
		cmocka_unit_test(reply__tags_differ),
		cmocka_unit_test(reply__join_reaches_the_stack),
		cmocka_unit_test(reply__relay),
		cmocka_unit_test(reply__two_cpus),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
