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

void rig_add_row(struct rig *rig, u32 id, const u16 *table, u8 bits, u8 sum_width)
{
	u32 row = thc_row_of_all(id, bits);
	struct thc_pairs pairs;

	thc_pairs_init(&pairs, table, bits);
	assert_int_equal(bpf_map_update_elem(bpf_map__fd(rig->skel->maps.pairs), &row, &pairs, 0),
			 0);
	rig->jobs[id].widths.sum[bits - 1] = sum_width;
}

void rig_row(struct rig *rig, u32 id, const u16 *table, u8 bits, u8 sum_width)
{
	memset(&rig->jobs[id].widths, 0, sizeof(rig->jobs[id].widths));
	rig_add_row(rig, id, table, bits, sum_width);
}

struct thc_job *rig_job(struct rig *rig, u32 id, int n, u32 base, u32 slots)
{
	struct thc_job *job = &rig->jobs[id];

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
	rig_row(rig, id, rig_table, 4, 8);
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
	if (thc_op_is_membership(r->op)) {
		struct thc_end end = rig_end(&f);

		len = rig_membership(packet, &h, &end, payload, len);
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
