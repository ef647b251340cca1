// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Answers over real sockets (bpf/reply.bpf.h): to a group, to each rank, repeated; and packets
 * that go to the daemon.
 */
#include "net.h"

static void expect_header(const u8 *packet, ssize_t len, u8 op, u8 flags, u8 rank, u64 bitmap)
{
	const struct thc_hdr *h = (const void *)packet;

	assert_int_equal(len, sizeof(*h));
	assert_int_equal(h->op, op);
	assert_int_equal(h->width, 0);
	assert_int_equal(h->flags, flags);
	assert_int_equal(thc_be16(h->rank), rank);
	assert_int_equal(thc_be64(h->bitmap), bitmap);
	if (!(flags & THC_F_EPOCH))
		assert_true(rig_sealed(h, NULL, 0));
}

/* Sends the contributions of all ranks to one slot. */
static void contribute(const struct shape *s, struct rig_request r)
{
	int rank;

	r.op = s->op;
	r.width = s->width;
	for (rank = 0; rank < RANKS; rank++)
		send_request(rank, r, payload[rank], s->len);
}

/* All get the same packet under one seal, by multicast and by fanout. */
static void expect_all(const struct shape *s, const struct rig_request *r)
{
	bool fanout = net.job->reply == THC_REPLY_FANOUT;
	u8 packet[RANKS][2048];
	int rank;

	for (rank = 0; rank < RANKS; rank++) {
		ssize_t len = receive(fanout ? net.one[rank] : net.group[rank], packet[rank],
				      sizeof(packet[rank]));

		expect_result(packet[rank], len, s, r, THC_F_ANSWER, 0);
		assert_memory_equal(packet[rank], packet[0], len);
	}
}

static void expect_one(const struct shape *s, const struct rig_request *r, int rank)
{
	u8 packet[2048];
	ssize_t len = receive(net.one[rank], packet, sizeof(packet));

	expect_result(packet, len, s, r, THC_F_ANSWER | THC_F_REPEAT, rank);
}

/* The job's row is that of the shape. */
static void shape_of_job(const struct shape *s)
{
	rig_row(&net.rig, 2, rig_table, s->op == THC_OP_LUT_ADD ? s->width : 4, s->sum_width);
}

/* The life of a slot: waiting, result, repeat, stale, another epoch. */
static void slot_life(const struct shape *s, u32 slot)
{
	struct rig_request r = { .op = s->op, .width = s->width, .epoch = 1, .slot = slot };
	struct thc_end end = end_of(0);
	u8 packet[2048];
	ssize_t len;

	shape_of_job(s);
	for (r.generation = 0; r.generation < 3; r.generation++) {
		r.chunk = slot + 128 * r.generation;
		r.round = r.generation;

		/* a duplicate while the others are missing */
		send_request(1, r, payload[1], s->len);
		send_request(1, r, payload[1], s->len);
		len = receive(net.one[1], packet, sizeof(packet));
		expect_header(packet, len, THC_OP_WAIT, 0, 1, 2);
		nothing_else();

		/* now the other ranks contribute, too */
		send_request(0, r, payload[0], s->len);
		send_request(2, r, payload[2], s->len);
		expect_all(s, &r);
		nothing_else();

		/* a rank that missed the answer sends its request again */
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
	net.job->restarter = 2;
	net.job->member[0].told_at = 0;
	send_request(0, r, payload[0], s->len);
	len = receive(net.one[0], packet, sizeof(packet));
	expect_header(packet, len, THC_OP_STALE, THC_F_EPOCH, 2, 7);
	assert_int_equal(thc_be32(((struct thc_hdr *)packet)->epoch), 1);
	assert_true(rig_ends((void *)packet, &end, net.tag[0]));
	nothing_else();
}

/* Answers in quick succession: the numbering of clones must not slip. */
static void burst(const struct shape *s, u32 first, int slots)
{
	bool fanout = net.job->reply == THC_REPLY_FANOUT, seen[RANKS][128] = { 0 };
	struct rig_request r = { .epoch = 1 };
	u8 packet[2048];
	int i, rank;

	shape_of_job(s);
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
			expect_result(packet, len, s, &r, THC_F_ANSWER, 0);
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
	i = sizeof(shapes) / sizeof(shapes[0]);
	/* two lives a shape, each with 3 generations (a result, a WAIT and two repeats), one
	 * STALE, and one for another epoch; a result by multicast is one frame
	 */
	assert_int_equal(st.event[THC_EVENT_FINISHED], 2 * i * 3 + 80);
	assert_int_equal(st.event[THC_EVENT_SENT],
			 i * 3 * (1 + 3) + 40 * (1 + 3) + 2 * i * (9 + 2));
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

/* The remaining hops of the next packet. */
static int hops_of(int fd)
{
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(sizeof(int))];
	} control;
	u8 packet[2048];
	struct iovec iov = { packet, sizeof(packet) };
	struct msghdr m = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control,
		.msg_controllen = sizeof(control),
	};
	struct cmsghdr *c;
	int hops;

	assert_true(readable(fd, ANSWER_MS));
	assert_true(recvmsg(fd, &m, 0) > 0);
	c = CMSG_FIRSTHDR(&m);
	assert_non_null(c);
	memcpy(&hops, CMSG_DATA(c), sizeof(hops));
	return hops;
}

static void ask_for_hops(int fd)
{
	int one = 1;

	if (net.v6)
		assert_int_equal(setsockopt(fd, IPPROTO_IPV6, IPV6_RECVHOPLIMIT, &one, sizeof(one)),
				 0);
	else
		assert_int_equal(setsockopt(fd, IPPROTO_IP, IP_RECVTTL, &one, sizeof(one)), 0);
}

/* Answers to the group do not pass a router; answers to one rank pass any number. */
static void reach(bool v6)
{
	struct rig_request r = { .epoch = 1, .slot = 3, .chunk = 3 };

	net_up(v6, false);
	ask_for_hops(net.group[0]);
	ask_for_hops(net.one[0]);
	shape_of_job(&shapes[0]);
	net.job->reply = THC_REPLY_MULTICAST;
	contribute(&shapes[0], r);
	assert_int_equal(hops_of(net.group[0]), 1);
	net.job->reply = THC_REPLY_FANOUT;
	r.slot = r.chunk = 4;
	contribute(&shapes[0], r);
	assert_int_equal(hops_of(net.one[0]), 255);
	/* a duplicate of an open chunk: WAIT, which has no lanes */
	r.slot = r.chunk = 5;
	r.op = shapes[0].op;
	r.width = shapes[0].width;
	send_request(0, r, payload[0], shapes[0].len);
	send_request(0, r, payload[0], shapes[0].len);
	assert_int_equal(hops_of(net.one[0]), 255);
	net_down();
}

static void reply__group_stays_in_the_subnet(void **state)
{
	(void)state;
	reach(false);
	reach(true);
}

/* JOIN reaches the daemon's socket through the stack, data does not. */
static void reply__join_reaches_the_stack(void **state)
{
	struct rig_request r = { .op = THC_OP_JOIN };
	struct thc_join join = { .nonce = { 5 } };
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
	assert_int_equal(rig_stats(&net.rig).event[THC_EVENT_MEMBERSHIP], 1);
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
	struct thc_addr from;
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
	assert_int_equal(got.r[0].type, THC_RELAY_HEADER);
	assert_int_equal(got.r[0].rank, 0);
	from = address(0);
	assert_true(thc_addr_equal(&got.r[0].path.src, &from));
	assert_int_equal(got.r[0].path.src_port, WORKER_PORT);
	expect_header((u8 *)&got.r[0].hdr, sizeof(struct thc_hdr), THC_OP_WAIT, 0, 0, 1);
	assert_int_equal(got.r[1].type, THC_RELAY_ALL);
	assert_int_equal(got.r[2].type, THC_RELAY_ONE);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reply__ipv4),
		cmocka_unit_test(reply__ipv6),
		cmocka_unit_test(reply__group_stays_in_the_subnet),
		cmocka_unit_test(reply__join_reaches_the_stack),
		cmocka_unit_test(reply__relay),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
