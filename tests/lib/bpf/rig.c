// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include "rig.h"

void rig_need_root(void)
{
	if (geteuid() == 0)
		return;
	print_message("# SKIP loading XDP programs needs root\n");
	skip();
}

static void *rig_map(struct bpf_map *map, size_t size)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, bpf_map__fd(map), 0);

	assert_ptr_not_equal(p, MAP_FAILED);
	return p;
}

/* THC_SIMD=1 in the environment: with lanes summed by thc.ko, which must be there. */
static bool rig_simd(void)
{
	const char *simd = getenv("THC_SIMD");

	return simd && !strcmp(simd, "1");
}

void rig_open(struct rig *rig, const struct thc_config *config)
{
	rig->skel = thc_bpf_open(rig_simd());
	assert_non_null(rig->skel);
	*(struct thc_config *)&rig->skel->rodata->thc_config = *config;
	bpf_map__set_max_entries(rig->skel->maps.slots, RIG_SLOTS);
	bpf_map__set_max_entries(rig->skel->maps.lanes, RIG_SLOTS);
	assert_int_equal(thc_bpf__load(rig->skel), 0);
	rig->jobs = rig_map(rig->skel->maps.jobs, THC_JOBS_MAX * sizeof(*rig->jobs));
	rig->seals = rig_map(rig->skel->maps.seals_of, THC_JOBS_MAX * sizeof(*rig->seals));
	rig->slots = rig_map(rig->skel->maps.slots, RIG_SLOTS * sizeof(*rig->slots));
	rig->lanes = rig_map(rig->skel->maps.lanes, RIG_SLOTS * sizeof(*rig->lanes));
}

void rig_close(struct rig *rig)
{
	munmap(rig->jobs, THC_JOBS_MAX * sizeof(*rig->jobs));
	munmap(rig->seals, THC_JOBS_MAX * sizeof(*rig->seals));
	munmap(rig->slots, RIG_SLOTS * sizeof(*rig->slots));
	munmap(rig->lanes, RIG_SLOTS * sizeof(*rig->lanes));
	thc_bpf__destroy(rig->skel);
}

u8 rig_seal = THC_SEAL_NH;

const struct thc_seals *rig_seals(u16 job, u32 epoch)
{
	static _Thread_local struct thc_seals seals;
	static _Thread_local u32 of_epoch;
	static _Thread_local u16 of_job;

	if (seals.seal != rig_seal || of_job != job || of_epoch != epoch || !of_epoch) {
		job_seals(&seals, rig_seal, job, epoch);
		of_epoch = epoch;
		of_job = job;
	}
	return &seals;
}

void rig_epoch(struct rig *rig, u32 id, u32 epoch)
{
	struct thc_seals *s = &rig->seals[id];
	const struct thc_seals *new = rig_seals((u16)id, epoch);

	s->seal = new->seal;
	s->join = new->join;
	s->lost = new->lost;
	s->up[epoch & 1] = *thc_seals_up(new, epoch);
	s->down[epoch & 1] = *thc_seals_down(new, epoch);
	rig->jobs[id].epoch = epoch;
}

struct thc_job *rig_job(struct rig *rig, u32 id, int n, u32 base, u32 slots)
{
	struct thc_job *job = &rig->jobs[id];
	struct thc_pairs pairs;

	thc_pairs_init(&pairs, rig_table);
	assert_int_equal(bpf_map_update_elem(bpf_map__fd(rig->skel->maps.pairs), &id, &pairs, 0),
			 0);
	memset(job, 0, sizeof(*job));
	job->all = n == 64 ? ~0ULL : (1ULL << n) - 1;
	job->joined = job->all;
	memset(&rig->seals[id], 0, sizeof(rig->seals[id]));
	rig_epoch(rig, id, 1);
	job->restarter = THC_WORKER_NONE;
	job->slot_base = base;
	job->slots = slots;
	job->data_slots = slots;
	job->ranks = n;
	job->quorum = n;
	job->sum_width = 8;
	job->reply = THC_REPLY_MULTICAST;
	job->port_base = RIG_PORT;
	job->group_port = thc_be16(RIG_GROUP_PORT);
	job->active = 1;
	memset(&rig->slots[base], 0, slots * sizeof(*rig->slots));
	return job;
}

void rig_member(struct thc_job *job, int rank, struct thc_addr addr, u16 port)
{
	struct thc_member *m = &job->member[rank];

	memset(m, 0, sizeof(*m));
	m->addr = addr;
	m->port = thc_be16(port);
	m->joined = 1;
}

struct thc_stats rig_stats(struct rig *rig)
{
	int cpus = libbpf_num_possible_cpus(), c;
	struct thc_stats *each = calloc(cpus, sizeof(*each)), sum = { 0 };
	u32 key = 0;
	size_t i;

	assert_int_equal(bpf_map_lookup_elem(bpf_map__fd(rig->skel->maps.stats), &key, each), 0);
	for (c = 0; c < cpus; c++)
		for (i = 0; i < sizeof(sum) / sizeof(u64); i++)
			((u64 *)&sum)[i] += ((u64 *)&each[c])[i];
	free(each);
	return sum;
}

void rig_stats_clear(struct rig *rig)
{
	int cpus = libbpf_num_possible_cpus();
	struct thc_stats *each = calloc(cpus, sizeof(*each));
	u32 key = 0;

	assert_int_equal(bpf_map_update_elem(bpf_map__fd(rig->skel->maps.stats), &key, each, 0), 0);
	free(each);
}

void rig_check_balance(const struct thc_stats *st)
{
	u64 fates = 0;
	int i;

	for (i = 0; i < THC_EVENT_FATES; i++)
		fates += st->event[i];
	for (i = 0; i < THC_DROP_REASONS; i++)
		fates += st->drop[i];
	assert_int_equal(st->received, fates);
	assert_int_equal(st->drop[THC_DROP_NONE], 0);
}

void rig_fan(struct rig *rig, u32 k, u32 ifindex)
{
	struct bpf_devmap_val val = {
		.ifindex = ifindex,
		.bpf_prog.fd = bpf_program__fd(rig->skel->progs.thc_egress),
	};
	int fd = bpf_map_create(BPF_MAP_TYPE_DEVMAP, NULL, sizeof(u32), sizeof(val), k + 1, NULL);
	u32 i;

	assert_true(fd >= 0);
	for (i = 0; i <= k; i++)
		assert_int_equal(bpf_map_update_elem(fd, &i, &val, 0), 0);
	assert_int_equal(bpf_map_update_elem(bpf_map__fd(rig->skel->maps.fan), &k, &fd, 0), 0);
	close(fd);
}

void rig_header(struct thc_hdr *h, const struct rig_request *r)
{
	memset(h, 0, sizeof(*h));
	h->version = THC_VERSION;
	h->op = r->op;
	h->width = r->width;
	h->job = thc_be16(r->job);
	h->rank = thc_be16(r->rank);
	h->epoch = thc_be32(r->epoch);
	h->round = thc_be32(r->round);
	h->chunk = thc_be32(r->chunk);
	h->slot = thc_be16(r->slot);
	h->generation = thc_be32(r->generation);
}

size_t rig_packet(u8 *out, struct thc_hdr *h, const void *payload, size_t len)
{
	const struct thc_seals *s = rig_seals(thc_be16(h->job), thc_be32(h->epoch));

	if (len)
		memcpy(out + sizeof(*h), payload, len);
	thc_seal(h, rig_seal, thc_seals_up(s, thc_be32(h->epoch)), out + sizeof(*h), len / 8);
	memcpy(out, h, sizeof(*h));
	return sizeof(*h) + len;
}

size_t rig_control(u8 *out, struct thc_hdr *h, const struct thc_end *end, const void *payload,
		   size_t len)
{
	const struct thc_seals *s = rig_seals(thc_be16(h->job), 1);

	if (len)
		memcpy(out + sizeof(*h), payload, len);
	thc_control_seal(h, thc_seal_of_control(rig_seal), &s->join, end, out + sizeof(*h),
			 len / 8);
	memcpy(out, h, sizeof(*h));
	return sizeof(*h) + len;
}

bool rig_sealed(const struct thc_hdr *h, const void *payload, size_t len)
{
	const struct thc_seals *s = rig_seals(thc_be16(h->job), thc_be32(h->epoch));
	const struct thc_seal_key *down = thc_seals_down(s, thc_be32(h->epoch));
	struct thc_hdr copy;

	/* in memory of any alignment */
	memcpy(&copy, h, sizeof(copy));
	return copy.key_id == down->id && thc_seal_ok(&copy, rig_seal, down, payload, len / 8);
}

bool rig_ends(const struct thc_hdr *h, const struct thc_end *end, __be64 tag)
{
	const struct thc_seals *s = rig_seals(thc_be16(h->job), 1);

	return h->op == THC_OP_STALE && h->flags == THC_F_EPOCH && h->key_id == s->lost.id &&
	       h->tag == thc_control_tag(thc_seal_of_control(rig_seal), &s->lost, h, end, &tag, 1);
}

struct thc_end rig_end(const struct rig_frame *f)
{
	return (struct thc_end){ .addr = f->src, .port = thc_be16(f->sport) };
}

static u8 *rig_put16(u8 *p, u16 v)
{
	*p++ = v >> 8;
	*p++ = v;
	return p;
}

size_t rig_frame(u8 *out, const struct rig_frame *f, const void *data, size_t len)
{
	size_t udp = 8 + len, head = 20 + f->options;
	u8 *p = out, *ip;
	u32 sum = 0;
	size_t i;

	memcpy(p, f->dst_mac, 6);
	memcpy(p + 6, f->src_mac, 6);
	p += 12;
	if (f->vlan || f->vlan_proto) {
		p = rig_put16(p, f->vlan_proto ? f->vlan_proto : 0x8100);
		p = rig_put16(p, f->vlan);
	}
	p = rig_put16(p, f->v6 ? 0x86dd : 0x0800);
	ip = p;
	if (f->v6) {
		p = rig_put16(p, 0x6000 | f->tos << 4);
		p = rig_put16(p, 0x1234); /* flow label */
		p = rig_put16(p, f->ip_len ? f->ip_len : udp);
		*p++ = f->next ? f->next : 17;
		*p++ = f->ttl ? f->ttl : 3;
		memcpy(p, &f->src, 16);
		memcpy(p + 16, &f->dst, 16);
		p += 32;
	} else {
		*p++ = 0x40 | head / 4;
		*p++ = f->tos;
		p = rig_put16(p, f->ip_len ? f->ip_len : head + udp);
		p = rig_put16(p, 0x4321);
		p = rig_put16(p, f->frag);
		*p++ = f->ttl ? f->ttl : 3;
		*p++ = f->next ? f->next : 17;
		p = rig_put16(p, 0);
		memcpy(p, &f->src.word[3], 4);
		memcpy(p + 4, &f->dst.word[3], 4);
		p += 8;
		memset(p, 1, f->options); /* no operation */
		p += f->options;
		for (i = 0; i < head; i += 2)
			sum += ip[i] << 8 | ip[i + 1];
		sum = (sum & 0xffff) + (sum >> 16);
		rig_put16(ip + 10, ~(sum + (sum >> 16)));
	}
	p = rig_put16(p, f->sport);
	p = rig_put16(p, f->dport);
	p = rig_put16(p, f->udp_len ? f->udp_len : udp);
	p = rig_put16(p, 0);
	if (len)
		memcpy(p, data, len);
	return p + len - out;
}

/*
 * The reference: lane @i of one contribution as a plain integer, and how two
 * of them combine, coordinate by coordinate, straight from the uapi header's
 * words. Shares nothing with include/thc/aggregator/lane.h. Claims of ranks below 32.
 */
static u32 rig_lane(u8 op, u8 answer_width, const u16 *table, const u8 *payload, int rank, int i)
{
	u32 v = 0;
	int k;

	if ((op == THC_OP_CLAIM && i / 8 != rank) || op == THC_OP_CLAIM_HIGH)
		return 0;

	if (op == THC_OP_LUT_ADD)
		return table[i % 2 ? payload[i / 2] % 16 : payload[i / 2] / 16];
	for (k = answer_width / 8 - 1; k >= 0; k--)
		v = v * 256 + payload[i * (answer_width / 8) + k];
	return v;
}

static u32 rig_combine(u8 op, u8 answer_width, u32 a, u32 b)
{
	switch (op) {
	case THC_OP_OR:
		return a | b;
	case THC_OP_MAX:
	case THC_OP_CLAIM:
	case THC_OP_CLAIM_HIGH:
		return a > b ? a : b;
	default:
		return (u64)((u64)a + b) % (1ULL << answer_width);
	}
}

void rig_reference(u8 *out, u8 op, u8 answer_width, const u16 *table, const u8 *const payload[],
		   int n)
{
	int lanes = 8192 / answer_width, i, r, k;

	for (i = 0; i < lanes; i++) {
		u32 v = rig_lane(op, answer_width, table, payload[0], 0, i);

		for (r = 1; r < n; r++)
			v = rig_combine(op, answer_width, v,
					rig_lane(op, answer_width, table, payload[r], r, i));
		for (k = 0; k < answer_width / 8; k++)
			out[i * (answer_width / 8) + k] = v >> (8 * k);
	}
}

u64 rig_draw(u64 *state)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return *state * 0x2545f4914f6cdd1dULL;
}

void rig_fill(u64 *state, u8 *p, size_t len)
{
	size_t i;

	for (i = 0; i < len; i++)
		p[i] = rig_draw(state) >> 40;
}

struct thc_addr rig_addr(bool v6, int host)
{
	struct thc_addr a = thc_addr_v4(thc_be32(0x0a630001 + host));

	if (v6) {
		a.word[0] = thc_be32(0xfd000099);
		a.word[1] = a.word[2] = 0;
		a.word[3] = thc_be32(1 + host);
	}
	return a;
}

struct thc_job *rig_test(struct rig *rig, int n)
{
	struct thc_config config = { .addr4 = rig_addr(false, 0),
				     .addr6 = rig_addr(true, 0),
				     .port_base = RIG_PORT };
	struct thc_job *job;
	int r;

	rig_open(rig, &config);
	rig_fan(rig, 0, 1);
	rig_fan(rig, 1, 1);
	if (n > 1)
		rig_fan(rig, n, 1);
	job = rig_job(rig, 2, n, 64, 128);
	job->group = thc_addr_v4(thc_be32(0xefc80102));
	for (r = 0; r < n; r++)
		rig_member(job, r, rig_addr(false, 10 + r), RIG_CLIENT_PORT + r);
	return job;
}

struct rig_frame rig_way(const struct rig_request *r, bool v6)
{
	struct rig_frame f = {
		.v6 = v6,
		.src_mac = { 2, 0, 0, 0, 1, (u8)r->rank },
		.dst_mac = { 2, 0, 0, 0, 0, 1 },
		.src = rig_addr(v6, 10 + r->rank),
		.dst = rig_addr(v6, 0),
		.sport = RIG_CLIENT_PORT + r->rank,
		.dport = RIG_PORT + r->slot / 64,
	};

	return f;
}

size_t rig_build(u8 *frame, const struct rig_request *r, const void *payload, size_t len)
{
	struct rig_frame f = rig_way(r, false);
	u8 packet[sizeof(struct thc_hdr) + 1024];
	struct thc_hdr h;

	rig_header(&h, r);
	if (thc_op_is_control(r->op)) {
		struct thc_end end = rig_end(&f);

		len = rig_control(packet, &h, &end, payload, len);
	} else {
		len = rig_packet(packet, &h, payload, len);
	}
	return rig_frame(frame, &f, packet, len);
}

u32 rig_run(struct bpf_program *prog, const u8 *frame, size_t len, u8 *out, size_t *out_len)
{
	u8 scratch[RIG_FRAME_MAX];
	LIBBPF_OPTS(bpf_test_run_opts, opts, .data_in = frame, .data_size_in = len,
		    .data_out = out ? out : scratch, .data_size_out = RIG_FRAME_MAX);
	int err = bpf_prog_test_run_opts(bpf_program__fd(prog), &opts);

	if (err)
		fail_msg("BPF_PROG_TEST_RUN of %zu bytes: %s", len, strerror(errno));
	if (out_len)
		*out_len = opts.data_size_out;
	return opts.retval;
}

u32 rig_send(struct rig *rig, const struct rig_request *r, const void *payload, size_t bytes,
	     u8 *out, size_t *out_len)
{
	u8 frame[RIG_FRAME_MAX];
	size_t len = rig_build(frame, r, payload, bytes);

	return rig_run(rig->skel->progs.thc_xdp, frame, len, out, out_len);
}
