// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include "net.h"

struct net net;

void run(int host, const char *format, ...)
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

struct thc_addr address(int host)
{
	struct thc_addr a = thc_addr_v4(htonl(0x0a630001 + (host == AGG ? 0 : 10 + host)));

	if (net.v6) {
		a.word[0] = htonl(0xfd000099);
		a.word[1] = a.word[2] = 0;
		a.word[3] = htonl(1 + (host == AGG ? 0 : 10 + host));
	}
	return a;
}

struct thc_addr group_address(void)
{
	struct thc_addr a = thc_addr_v4(htonl(0xefc80102)); /* 239.200.1.2 */

	if (net.v6) {
		a.word[0] = htonl(0xff150000);
		a.word[1] = a.word[2] = 0;
		a.word[3] = htonl(0x01020304);
	}
	return a;
}

socklen_t sockaddr_of(struct sockaddr_storage *ss, struct thc_addr a, u16 port)
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

void net_up_queues(bool v6, bool relay, int queues)
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

void net_down(void)
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

struct thc_end end_of(int rank)
{
	return (struct thc_end){ .addr = address(rank), .port = htons(WORKER_PORT + rank) };
}

void send_request(int rank, struct rig_request r, const u8 *payload, size_t len)
{
	struct sockaddr_storage to;
	socklen_t size = sockaddr_of(&to, address(AGG), RIG_PORT + r.slot / 64);
	struct thc_hdr h;
	u8 packet[1200];

	r.rank = rank;
	r.job = 2;
	rig_header(&h, &r);
	if (thc_op_is_membership(r.op)) {
		struct thc_end end = end_of(rank);

		len = rig_membership(packet, &h, &end, payload, len);
	} else {
		len = rig_packet(packet, &h, payload, len);
	}
	net.tag[rank] = h.tag;
	assert_int_equal(sendto(net.one[rank], packet, len, 0, (void *)&to, size), len);
}

ssize_t receive(int fd, u8 *packet, size_t size)
{
	struct sockaddr_storage from;
	socklen_t from_len = sizeof(from);
	struct thc_hdr *h = (void *)packet;
	ssize_t len;

	if (!readable(fd, ANSWER_MS))
		fail_msg("no answer within %d ms", ANSWER_MS);
	len = recvfrom(fd, packet, size, 0, (void *)&from, &from_len);
	assert_true(len >= (ssize_t)sizeof(*h));
	assert_int_equal(h->version, THC_VERSION);
	assert_int_equal(h->job, thc_be16(2));
	/* it comes from the address and port it was asked at */
	if (net.v6)
		assert_int_equal(((struct sockaddr_in6 *)&from)->sin6_port,
				 htons(RIG_PORT + thc_be16(h->slot) / 64));
	else
		assert_int_equal(((struct sockaddr_in *)&from)->sin_port,
				 htons(RIG_PORT + thc_be16(h->slot) / 64));
	return len;
}

void nothing_else(void)
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

u8 payload[RANKS][1024];
void expect_result(const u8 *packet, ssize_t len, const struct shape *s,
		   const struct rig_request *r, u8 flags, u16 rank)
{
	const struct thc_hdr *h = (const void *)packet;
	u8 expected[1024];

	rig_reference(expected, s->op, s->width, s->answer_width, rig_table, payloads, RANKS);
	assert_int_equal(len, sizeof(*h) + 1024);
	assert_int_equal(h->op, s->op);
	assert_int_equal(h->width, s->answer_width);
	assert_int_equal(h->flags, flags);
	assert_int_equal(thc_be16(h->rank), rank);
	assert_int_equal(thc_be16(h->slot), r->slot);
	assert_int_equal(thc_be32(h->generation), r->generation);
	assert_int_equal(thc_be32(h->chunk), r->chunk);
	assert_int_equal(thc_be32(h->round), r->round);
	assert_int_equal(thc_be32(h->epoch), r->epoch);
	assert_int_equal(thc_be16(h->count), RANKS);
	assert_int_equal(thc_be64(h->bitmap), 7);
	assert_memory_equal(packet + sizeof(*h), expected, sizeof(expected));
	assert_true(rig_sealed(h, expected, sizeof(expected)));
}
