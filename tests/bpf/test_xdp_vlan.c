// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Answers to tagged requests, byte by byte. Workers send and see frames through
 * packet sockets, since VLAN devices may be missing.
 */
#include "net.h"

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

/* Bytes of an IP header; the kernel has taken the VLAN tag out of the frame. */
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

/* Receives the next frame with a THC answer; returns its length. @tci: tag control, or UNTAGGED. */
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

/* RFC 768 and 8200: is a checksum there, and right, pseudo header included? */
static bool udp_checksum_right(const u8 *frame, size_t len)
{
	size_t addresses = net.v6 ? 32 : 8, udp = 14 + ip_bytes();
	u32 sum = checksum16(frame + udp, len - udp) +
		  checksum16(frame + udp - addresses, addresses) + 17 + len - udp;

	sum = (sum & 0xffff) + (sum >> 16);
	return (frame[udp + 6] | frame[udp + 7]) && (sum & 0xffff) + (sum >> 16) == 0xffff;
}

/* Packet sockets of the workers, for whole frames with tags. */
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

/* @r->rank sends its payload in a frame with the fields of @f. */
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

/* A group's answers stay in the subnet, others have passed no router yet. */
static int ttl_of(bool group)
{
	return group ? 1 : 255;
}

static void expect_ip4(const u8 *ip, size_t len, struct thc_addr to, bool group)
{
	struct thc_addr from = address(AGG);

	assert_int_equal(ip[0], 0x45);
	/* DSCP as asked, ECN without CE */
	assert_int_equal(ip[1], 0xb8 | 2);
	assert_int_equal(ip[2] << 8 | ip[3], len);
	assert_int_equal(ip[6], 0x40); /* DF */
	assert_int_equal(ip[8], ttl_of(group));
	assert_int_equal(checksum16(ip, 20), 0xffff);
	assert_memory_equal(ip + 12, &from.word[3], 4);
	assert_memory_equal(ip + 16, &to.word[3], 4);
}

static void expect_ip6(const u8 *ip, size_t len, struct thc_addr to, bool group)
{
	struct thc_addr from = address(AGG);

	/* version and traffic class as above, no flow label */
	assert_int_equal(ip[0] << 8 | ip[1], 0x6000 | (0xb8 | 2) << 4);
	assert_int_equal(ip[2] << 8 | ip[3], 0);
	assert_int_equal(ip[4] << 8 | ip[5], len - 40);
	assert_int_equal(ip[7], ttl_of(group));
	assert_memory_equal(ip + 8, &from, 16);
	assert_memory_equal(ip + 24, &to, 16);
}

/* Answers keep the requests' tag in every mode; this test checks every header byte. */
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
			(v6 ? expect_ip6 : expect_ip4)(frame + 14, len - 14, to, !one);
			assert_int_equal(udp[0] << 8 | udp[1], RIG_PORT);
			assert_int_equal(udp[2] << 8 | udp[3],
					 one ? WORKER_PORT + rank : RIG_GROUP_PORT);
			assert_int_equal(udp[4] << 8 | udp[5], frame + len - udp);
			assert_true(udp_checksum_right(frame, len));
			memcpy(packet, udp + 8, sizeof(struct thc_hdr) + 1024);
			expect_result(packet, sizeof(struct thc_hdr) + 1024, &shapes[0], &r,
				      THC_F_ANSWER | THC_F_CE | (repeat ? THC_F_REPEAT : 0),
				      repeat ? rank : 0);
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

static void vlan__ipv4(void **state)
{
	(void)state;
	check_vlan(false);
}

static void vlan__ipv6(void **state)
{
	(void)state;
	check_vlan(true);
}

/* No answer comes to the tap for a while; frames of the stack do not count. */
static bool tap_quiet(int fd)
{
	u8 frame[2048];

	while (readable(fd, QUIET_MS))
		if (is_answer(frame, recv(fd, frame, sizeof(frame), 0)))
			return false;
	return true;
}

/* Ranks with different tags, one of which has only a priority. The answer to all has the form of
 * the last contribution and goes to ranks of that form, each with its own tag; the other ranks
 * send their requests again.
 */
static void vlan__tags_differ(void **state)
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
	assert_int_equal(st.event[THC_EVENT_LOST], lost);
	for (rank = 0; rank < RANKS; rank++) {
		assert_int_equal(net.job->member[rank].tagged, tag[rank] != UNTAGGED);
		assert_int_equal(net.job->member[rank].vlan, tag[rank] > 0 ? htons(7) : 0);
	}
	taps_close(&taps);
	net_down();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(vlan__ipv4),
		cmocka_unit_test(vlan__ipv6),
		cmocka_unit_test(vlan__tags_differ),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
