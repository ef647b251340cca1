// SPDX-License-Identifier: GPL-2.0
/*
 * Job records as the data path sees them.
 *
 * In XDP mode they lie in a mmapped map that other CPUs read at any time
 * without a lock. What keeps them from acting on half a record:
 *
 *   member   port is the member's valid mark: it is cleared, the address is
 *            written, the port is set again. A packet that comes in between
 *            is dropped and sent again by its worker.
 *   keys     the last bit of an epoch's number selects its keys, so those of the next
 *            epoch lie beside the current ones. They are written before the number.
 *   epoch    written last: a CPU that reads the new number sees all that belongs
 *            to it. The member that restarts an epoch is entered before, which
 *            can only refuse packets of its dead incarnation; packets of other
 *            members still count in the old epoch. No rank sends data of the new
 *            epoch until all ranks have joined it.
 *   active   written last when a job is created.
 *
 * Only the daemon writes these fields. XDP writes a member's mac, vlan, tagged,
 * told_at, joins and leaves, and nothing else.
 */
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include <thc/key.h>
#include <thc/names.h>
#include <thc/wire/ranks.h>

#include "jobs.h"

#define publish(field, value) __atomic_store_n(&(field), (value), __ATOMIC_RELEASE)

/* The first epoch is the clock's time, so that packets of a dead aggregator's epochs do not count
 * in ours: in 1/16 s, since a service manager may restart thcd within a second; never 0, which an
 * unused slot holds. If the clock was set back, the first rank that rejoins shows it:
 * thcd_job_is_behind().
 */
static u32 first_epoch(void)
{
	struct timespec t;
	u32 now;

	clock_gettime(CLOCK_REALTIME, &t);
	now = (u32)((u64)t.tv_sec * 16 + (u64)t.tv_nsec * 16 / 1000000000);
	return now ? now : 1;
}

/* Salts derive from a number drawn once, so that no session waits for random numbers. */
static struct {
	u8	from[THC_KEY_BYTES];
	u64	drawn;
} salts;

int thcd_salts_begin(void)
{
	return getrandom(salts.from, sizeof(salts.from), 0) == sizeof(salts.from) ? 0 : -errno;
}

int thcd_secret_draw(struct thcd_secret *secret)
{
	ssize_t got = getrandom(secret->bytes, sizeof(secret->bytes), 0);

	return got == sizeof(secret->bytes) ? 0 : -errno;
}

static void draw_salt(u8 salt[THC_SALT_BYTES])
{
	salts.drawn++;
	thc_blake2s(salt, THC_SALT_BYTES, salts.from, sizeof(salts.from), &salts.drawn,
		    sizeof(salts.drawn));
}

const u8 *thcd_plan_key(const struct thcd_plan *plan)
{
	return plan->seal == THC_SEAL_NH ? plan->key : NULL;
}

bool thcd_key_id_is_new(__be32 id, const struct thc_seals *s, u32 epoch)
{
	return id && id != s->join.id && id != thc_seals_up(s, epoch + 1)->id;
}

static void make_epoch_keys(struct thc_seals *s, struct thcd_record *r, u32 epoch)
{
	const u8 *key = thcd_plan_key(&r->plan);
	struct thc_seal_key *up = &s->up[epoch & 1];
	u16 job = (u16)r->plan.job;

	do {
		draw_salt(r->salt);
		thc_seal_key_set(up, key, THC_KEY_UP, job, r->salt);
	} while (!thcd_key_id_is_new(up->id, s, epoch));
	thc_seal_key_set(&s->down[epoch & 1], key, THC_KEY_DOWN, job, r->salt);
}

static void make_keys(struct thc_seals *s, struct thcd_record *r, u32 epoch)
{
	const u8 *key = thcd_plan_key(&r->plan);

	memset(s, 0, sizeof(*s));
	s->seal = r->plan.seal;
	s->aggregator = thc_be16((u16)r->plan.shards.own);
	if (key) {
		thc_member_key_derive(&s->join, key, THC_KEY_JOIN, (u16)r->plan.job);
		thc_member_key_derive(&s->lost, key, THC_KEY_LOST, (u16)r->plan.job);
	}
	make_epoch_keys(s, r, epoch);
}

void thcd_job_create(struct thcd *d, const struct thcd_plan *plan)
{
	struct thcd_record *r = &d->record[plan->job];
	struct thc_job *job = &d->job[plan->job];
	u32 bits;

	memset(r, 0, sizeof(*r));
	r->plan = *plan;
	r->used = 1;
	memset(job, 0, sizeof(*job));
	job->all = thc_ranks_mask(plan->ranks);
	job->epoch = first_epoch();
	job->restarter = THC_WORKER_NONE;
	make_keys(&d->seals[plan->job], r, job->epoch);
	job->slot_base = plan->slot_base;
	job->slots = plan->data_slots + plan->control_slots;
	job->data_slots = plan->data_slots;
	job->ranks = plan->ranks;
	job->quorum = plan->quorum;
	job->ttl_min = plan->ttl_min;
	job->widths = plan->tables.widths;
	job->reply = plan->reply;
	job->flags = thc_tables_linear(&plan->tables) ? THC_JOB_F_LINEAR : 0;
	job->group_port = thc_be16(plan->group_port);
	job->port_base = d->port;
	job->deadline_ms = plan->deadline_ms;
	job->group = plan->group;
	for (bits = 1; d->pairs && bits <= THC_BITS_MAX; bits++)
		thc_pairs_init(&d->pairs[thc_row_of_all(plan->job, bits)],
			       thc_tables_row(&plan->tables, bits).level, bits);
	publish(job->active, 1);
}

void thcd_job_show(struct thcd *d, u32 id, bool shown)
{
	publish(d->job[id].active, shown);
}

void thcd_job_forget(struct thcd *d, u32 id)
{
	struct thc_job *job = &d->job[id];

	memset(&d->slot[job->slot_base], 0, job->slots * sizeof(*d->slot));
	memset(&d->record[id], 0, sizeof(d->record[id]));
	memset(job, 0, sizeof(*job));
	explicit_bzero(&d->seals[id], sizeof(d->seals[id]));
}

static void enter(struct thc_member *m, const struct thc_path *path)
{
	u16 port = thc_be16(path->src_port);

	if (m->port != port || !thc_addr_equal(&m->addr, &path->src)) {
		publish(m->port, 0);
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
		m->addr = path->src;
		memset(m->mac, 0, sizeof(m->mac));
		m->vlan = 0;
		m->tagged = 0;
	}
	m->left = 0;
	m->joined = 1;
	publish(m->port, port);
}

void thcd_job_enter(struct thc_job *job, u8 rank, const struct thc_path *path)
{
	enter(&job->member[rank], path);
	publish(job->joined, job->joined | 1ULL << rank);
}

/* The next epoch after @epoch that is not 0, and whose keys do not replace those of the job. */
static u32 epoch_after(const struct thc_job *job, u32 epoch)
{
	do {
		epoch++;
	} while (!epoch || !((epoch ^ job->epoch) & 1));
	return epoch;
}

bool thcd_job_is_behind(const struct thc_job *job, u32 last)
{
	return last && last - job->epoch < THCD_AHEAD_MAX;
}

bool thcd_job_is_mixed(const struct thc_job *job)
{
	u64 v4 = 0;
	int i;

	for (i = 0; i < job->ranks; i++)
		v4 |= (u64)thc_addr_is_v4(&job->member[i].addr) << i;
	v4 &= job->joined;
	return v4 && v4 != job->joined;
}

void thcd_job_restart(struct thc_job *job, struct thc_seals *seals, struct thcd_record *r, u8 rank,
		      u32 last, const struct thc_path *path)
{
	u32 next = epoch_after(job, thcd_job_is_behind(job, last) ? last : job->epoch);
	bool inside = job->joined & 1ULL << rank;
	int i;

	enter(&job->member[rank], path);
	for (i = 0; i < job->ranks; i++) {
		job->member[i].left = 0;
		job->member[i].joined = i == rank;
	}
	job->left = 0;
	job->joined = 1ULL << rank;
	job->restarter = inside ? rank : THC_WORKER_NONE;
	make_epoch_keys(seals, r, next);
	publish(job->epoch, next);
}

void thcd_job_describe(const struct thcd_plan *plan, char *text, size_t size)
{
	bool multicast = plan->reply == THC_REPLY_MULTICAST;
	u32 slots = plan->data_slots + plan->control_slots;
	char group[INET6_ADDRSTRLEN], shard[32] = "", scheme[32] = "", rate[48] = "";
	const struct thc_table_row row = thcd_plan_row(plan);
	double p;

	memcpy(&p, &plan->p[thc_row_at(plan->bits)], sizeof(p));
	if (plan->shards.count > 1)
		snprintf(shard, sizeof(shard), " shard %u of %u;", plan->shards.own,
			 plan->shards.count);
	if (plan->scheme != THC_SCHEME_THC)
		snprintf(scheme, sizeof(scheme), " scheme %s;", thc_scheme_name[plan->scheme]);
	if (plan->rate)
		snprintf(rate, sizeof(rate), " rate %.6g%s;", plan->rate / 1e3,
			 plan->rate_tried ? " where it is faster" : "");
	if (plan->error)
		snprintf(rate, sizeof(rate), " error %.6g;", plan->error / 1e6);
	snprintf(
		text, size,
		"job %u:%s %u ranks;%s%s table of %u bits, granularity %u, clamps 1 in %.4g; "
		"%u-bit sums, seal %s, answers by %s%s; %u slots for data + %u for block scales, slots use %llu bytes",
		plan->job, shard, plan->ranks, scheme, rate, row.bits, row.granularity, 1 / p,
		row.sum_width, thc_seal_name[plan->seal], multicast ? "multicast to " : "fanout",
		multicast ? thc_addr_text(&plan->group, group) : "", plan->data_slots,
		plan->control_slots, (unsigned long long)thc_report_slot_bytes(slots));
}
