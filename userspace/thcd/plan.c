// SPDX-License-Identifier: GPL-2.0
/*
 * Derives the constants of a job from what the operator asks for: scheme, group, prefixes.
 * plan_table.c chooses the table.
 */
#include <string.h>
#include <sys/socket.h>

#include <thc/key.h>
#include <thc/mix.h>
#include <thc/names.h>
#include <thc/wire/spec.h>

#include "fixed.h"
#include "net.h"
#include "plan.h"

/* Default of norm_slots with scheme=lhc. */
#define LHC_CONTROL_SLOTS	256

/* A job with a rate has rows for indices of 1 to this many bits. */
#define RATE_BITS_MAX		6

_Static_assert(sizeof(struct thcd_plan) == 1608 + sizeof(struct thc_shards),
	       "struct thcd_plan has padding");

bool thcd_plan_admits(const struct thcd_plan *plan, const struct thc_addr *addr)
{
	u32 i;

	for (i = 0; i < plan->admits.count; i++)
		if (thcd_prefix_has(&plan->admits.at[i], addr))
			return true;
	return false;
}

static int parse_prefix(struct thcd_prefix *p, const char *word, struct thcd_error *e)
{
	char text[THCD_WORD_MAX], *length = text;
	struct thc_addr addr;
	u64 len, full;
	int family;

	strcpy(text, word);
	family = thcd_addr_parse(strsep(&length, "/"), &addr);
	if (family < 0)
		return thcd_fail(e, "prefix: \"%s\" is not an address, as 10.0.0.0/24, nor any",
				 word);
	full = family == AF_INET ? 32 : 128;
	len = full;
	if (length && (thcd_number_parse(length, &len) || len > full))
		return thcd_fail(e, "prefix: the length behind '/' is from 0 to %d", (int)full);
	*p = thcd_prefix_of(&addr, family == AF_INET ? 96 + len : len);
	return 0;
}

static int choose_prefixes(struct thcd_prefixes *p, const struct thcd_job_wish *w,
			   struct thcd_error *e)
{
	static const struct thc_addr any6;
	struct thc_addr any4 = thc_addr_v4(0);
	u32 i;

	if (w->prefixes == 1 && !strcmp(w->prefix[0], "any")) {
		p->at[p->count++] = thcd_prefix_of(&any4, 96);
		p->at[p->count++] = thcd_prefix_of(&any6, 0);
		return 0;
	}
	for (i = 0; i < w->prefixes; i++) {
		if (!strcmp(w->prefix[i], "any"))
			return thcd_fail(e,
					 "prefix: any is everybody: give it alone, or the others "
					 "without it");
		if (parse_prefix(&p->at[p->count++], w->prefix[i], e))
			return -1;
	}
	return 0;
}

/* A group for @job of the aggregator at @address: 239.84.0.0/16 or
 * ff15::7468:0:0/96. Two aggregators of one network whose jobs have equal
 * numbers must not share a group, so the low bits of the address are in it, 12
 * (IPv4) or 28 (IPv6) of them, above the job's number. The other bits are
 * hashed onto these: addresses that differ only in the low bits never meet.
 */
static struct thc_addr default_group(const struct thc_addr *address, u32 job)
{
	u32 low = thc_be32(address->word[3]);
	struct thc_addr group;
	u64 high;

	if (thc_addr_is_v4(address)) {
		low = (low ^ thc_mix64(low >> 12) >> 52) & 0xfff;
		return thc_addr_v4(thc_be32(0xef540000 | low << 4 | job));
	}
	high = (u64)thc_be32(address->word[0]) << 32 | thc_be32(address->word[1]);
	high = thc_mix64(high) + ((u64)thc_be32(address->word[2]) << 4 | low >> 28);
	low = (low ^ thc_mix64(high) >> 36) & 0xfffffff;
	group.word[0] = thc_be32(0xff150000);
	group.word[1] = 0;
	group.word[2] = thc_be32(0x7468);
	group.word[3] = thc_be32(low << 4 | job);
	return group;
}

static int choose_group(struct thcd_plan *plan, const struct thcd_job_wish *w,
			const struct thc_addr *address, struct thcd_error *e)
{
	int family = thc_addr_is_v4(address) ? AF_INET : AF_INET6;

	plan->family = family == AF_INET ? 4 : 6;
	if (w->reply != THC_REPLY_MULTICAST)
		return *w->group || w->group_port ?
			       thcd_fail(e, "a group has no meaning with reply=fanout: give one "
					    "of them") :
			       0;
	plan->group = default_group(address, w->job);
	if (*w->group)
		family = thcd_addr_parse(w->group, &plan->group);
	if (family < 0 || !thc_addr_is_group(&plan->group))
		return thcd_fail(
			e, "group: \"%s\" is not a multicast address, as 239.1.2.3 or ff15::1:2",
			w->group);
	plan->family = family == AF_INET ? 4 : 6;
	return 0;
}

static int choose_group_port(struct thcd_plan *plan, const struct thcd_job_wish *w, u16 port,
			     struct thcd_error *e)
{
	if (w->reply != THC_REPLY_MULTICAST)
		return 0;
	plan->group_port = w->group_port ? w->group_port : port + (u32)THC_PORT_SPAN;
	if (plan->group_port < THC_PORT_UNPRIVILEGED)
		return thcd_fail(
			e,
			"group_port, %u by default, is below %d, where no worker receives: give another",
			plan->group_port, THC_PORT_UNPRIVILEGED);
	if (plan->group_port >= port && plan->group_port < port + THC_PORT_SPAN)
		return thcd_fail(e,
				 "group_port=%u is one of the aggregator's own ports, %u to %u: "
				 "give another",
				 plan->group_port, port, port + THC_PORT_SPAN - 1);
	return 0;
}

/* A rank's values use the bits of a lane that the sum of all ranks leaves: enough must remain. */
static int check_precision(const struct thcd_job_wish *w, struct thcd_error *e)
{
	if (!w->precision || thc_fixed_bits(w->precision, w->ranks) >= THC_FIXED_BITS_MIN)
		return 0;
	return thcd_fail(e,
			 "precision=fixed%u leaves %u ranks less than %d bits: give a wider one, "
			 "or exact",
			 w->precision, w->ranks, THC_FIXED_BITS_MIN);
}

/* Bits follow norms by default, unless the job's keys do not suit that, or ask for a table. */
static u32 default_rate(const struct thcd_job_wish *w)
{
	bool fixed = w->error || w->table != THCD_TABLE_AUTO || w->granularity || w->sum_width ||
		     thcd_job_wish_given(w, "bits") || thcd_job_wish_given(w, "clamp");
	bool fits = w->scheme == THC_SCHEME_THC && w->feedback && w->rotate &&
		    w->block == 1 << THC_RATE_BLOCK_LOG2;

	return fits && !fixed ? THCD_RATE_AUTO : 0;
}

static u32 rate_of(const struct thcd_job_wish *w)
{
	return thcd_job_wish_given(w, "rate") ? w->rate : default_rate(w);
}

/* Bits follow norms only in small, rotated blocks, whose coordinates are normally distributed: of
 * these the error that a number of bits gives is known.
 */
static int check_rate(const struct thcd_job_wish *w, struct thcd_error *e)
{
	const char *key = w->rate ? "rate" : "error";

	if (!w->rate && !w->error)
		return 0;
	if (thcd_job_wish_given(w, "rate") && w->error)
		return thcd_fail(e, "rate and error: a job aims at one of them: leave one out");
	if (w->scheme != THC_SCHEME_THC)
		return thcd_fail(e, "%s: only scheme=thc has one: leave it out", key);
	if (!w->rotate)
		return thcd_fail(e,
				 "%s: which error bits give is known of rotated coordinates alone: "
				 "leave rotate=off or %s out",
				 key, key);
	if (w->block != 1 << THC_RATE_BLOCK_LOG2)
		return thcd_fail(e, "%s needs blocks of %d coordinates: leave block out", key,
				 1 << THC_RATE_BLOCK_LOG2);
	if (w->sum_width == 4)
		return thcd_fail(e,
				 "%s needs blocks of %d coordinates, and chunks of 4-bit sums have "
				 "%d: leave sum_width out",
				 key, 1 << THC_RATE_BLOCK_LOG2, THC_COORDINATES(4));
	return 0;
}

/* Checks that the keys of a job suit its scheme. */
static int check_scheme(const struct thcd_job_wish *w, struct thcd_error *e)
{
	const char *name = thc_scheme_name[w->scheme];

	if (!thc_scheme_is_precise(w->scheme) && thcd_job_wish_given(w, "precision"))
		return thcd_fail(e, "precision: only scheme=none and scheme=lhc have one");
	if (w->scheme != THC_SCHEME_LHC && thcd_job_wish_given(w, "grain"))
		return thcd_fail(e, "grain: only scheme=lhc has one");
	if (w->scheme != THC_SCHEME_LHC && thcd_job_wish_given(w, "sketch"))
		return thcd_fail(e, "sketch: only scheme=lhc has one");
	if (!thc_scheme_is_precise(w->scheme))
		return 0;
	if (w->deadline_ms)
		return thcd_fail(e, "scheme=%s sums what all ranks have: leave deadline_ms out",
				 name);
	if (w->grain & (w->grain - 1))
		return thcd_fail(e, "grain=%u: give a power of two", w->grain);
	if (!w->rotate)
		return thcd_fail(e, "scheme=%s rotates nothing: leave rotate out", name);
	return check_precision(w, e);
}

/* A chunk lies in one block. */
static int choose_block(u8 *block_log2, const struct thcd_job_wish *w, u32 width,
			struct thcd_error *e)
{
	u32 chunk = THC_COORDINATES(width), block = w->block;

	if (block < chunk && thcd_job_wish_given(w, "block"))
		return thcd_fail(e,
				 "block=%u: sums of %u bits have chunks of %u coordinates: give "
				 "block=%u or more",
				 block, width, chunk, chunk);
	*block_log2 = (u8)__builtin_ctz(block < chunk ? chunk : block);
	return 0;
}

static int check_quorum(const struct thcd_job_wish *w, struct thcd_error *e)
{
	if (w->deadline_ms && !w->quorum)
		return thcd_fail(e, "deadline_ms needs quorum, from 1 to %u", w->ranks);
	if (w->quorum && !w->deadline_ms)
		return thcd_fail(e, "quorum has no effect without deadline_ms: give both");
	if (w->quorum > w->ranks)
		return thcd_fail(e, "quorum=%u of %u ranks is never reached: give 1 to %u",
				 w->quorum, w->ranks, w->ranks);
	return 0;
}

/* An index has far more packets than scales have. */
static u32 control_slots(const struct thcd_job_wish *w)
{
	return w->scheme == THC_SCHEME_LHC && !thcd_job_wish_given(w, "norm_slots") ?
		       LHC_CONTROL_SLOTS :
		       w->control_slots;
}

static int check_wish(const struct thcd_job_wish *w, struct thcd_error *e)
{
	static const char *const required[] = { "job", "ranks" };
	bool has_key = thcd_job_wish_given(w, "key");
	unsigned int i;

	for (i = 0; i < 2; i++)
		if (!thcd_job_wish_given(w, required[i]))
			return thcd_fail(e, "%s is missing: give %s=NUMBER", required[i],
					 required[i]);
	if (!has_key && w->seal == THC_SEAL_NH)
		return thcd_fail(
			e, "key is missing: give key=@FILE, which thcctl genkey FILE makes, or "
			   "seal=sum in a network without strangers");
	if (has_key && w->seal != THC_SEAL_NH)
		return thcd_fail(e, "key: only seal=nh has one");
	if (w->block & (w->block - 1))
		return thcd_fail(e, "block=%u is not a power of two", w->block);
	if (w->slots + control_slots(w) > THC_SLOTS_MAX)
		return thcd_fail(e, "slots + norm_slots is %u: give at most %d together",
				 w->slots + control_slots(w), THC_SLOTS_MAX);
	return check_scheme(w, e) || check_rate(w, e) ? -1 : check_quorum(w, e);
}

/* @width: bits of a sum */
static void add_row(struct thcd_plan *plan, const struct thc_table *t, u32 width)
{
	u32 row = thc_row_at(t->bits), i;

	memcpy(&plan->tables.clamp[row], &t->t, sizeof(t->t));
	memcpy(&plan->p[row], &t->p, sizeof(t->p));
	plan->tables.granularity[row] = (u16)t->granularity;
	plan->tables.widths.sum[row] = (u8)width;
	for (i = 0; i < t->levels; i++)
		plan->tables.level[t->levels + i] = t->value[i];
}

/* Adds the rows among which ranks choose by the norms of blocks. */
static int add_rate_rows(struct thcd_plan *plan, const struct thcd_job_wish *w,
			 struct thcd_error *e)
{
	u32 bits, width;

	for (bits = 1; (rate_of(w) || w->error) && bits <= RATE_BITS_MAX; bits++) {
		struct thc_table t;

		if (bits == w->bits)
			continue;
		if (thcd_table_of(&t, &width, w, bits, e))
			return -1;
		add_row(plan, &t, width);
	}
	return 0;
}

int thcd_plan_make(struct thcd_plan *plan, const struct thcd_job_wish *w,
		   const struct thc_addr *address, u16 port, struct thcd_error *note,
		   struct thcd_error *e)
{
	struct thc_table t;
	u32 width, rate = rate_of(w);

	memset(plan, 0, sizeof(*plan));
	note->text[0] = '\0';
	if (check_wish(w, e) || thcd_table_choose(&t, &width, w, note, e) ||
	    add_rate_rows(plan, w, e) || choose_block(&plan->block_log2, w, width, e) ||
	    choose_prefixes(&plan->admits, w, e) || thcd_shards_choose(&plan->shards, w, port, e) ||
	    choose_group(plan, w, address, e) || choose_group_port(plan, w, port, e)) {
		struct thcd_error why = *e;

		return thcd_fail(e, "job %u: %.400s", w->job, why.text);
	}
	plan->job = w->job;
	plan->ranks = w->ranks;
	memcpy(plan->key, w->key, sizeof(plan->key));
	plan->seed = thcd_job_wish_given(w, "seed") ? w->seed : thc_key_seed(w->key, w->job);
	add_row(plan, &t, width);
	plan->table_hash = thc_table_hash(&t);
	plan->ttl_min = thcd_job_wish_given(w, "hops") ? THC_TTL - w->hops : 0;
	plan->deadline_ms = w->deadline_ms;
	plan->rate_tried = rate == THCD_RATE_AUTO;
	plan->rate = plan->rate_tried ? (t.bits + width) * 1000 / 3 : rate;
	plan->error = w->error;
	plan->quorum = w->quorum ? w->quorum : w->ranks;
	plan->data_slots = w->slots;
	plan->control_slots = (u16)control_slots(w);
	plan->chunk = THC_COORDINATES(width);
	plan->reply = w->reply;
	plan->bits = t.bits;
	plan->scheme = (u8)w->scheme;
	plan->value_bits = (u8)w->precision;
	plan->grain_log2 = w->grain ? (u8)__builtin_ctz(w->grain) : 0;
	plan->sketch = (u8)w->sketch;
	plan->rotate = w->rotate;
	plan->seal = w->seal;
	plan->correlated = w->correlated;
	return 0;
}

int thcd_plan_jobs(const struct thcd *d, const struct thcd_config *c, struct thcd_plan *plans,
		   u32 *slots, struct thcd_error *e)
{
	struct thcd_error note;
	u32 i;

	*slots = 0;
	for (i = 0; i < c->jobs; i++) {
		struct thcd_plan *plan = &plans[c->job[i].job];

		if (thcd_plan_make(plan, &c->job[i], &d->socket[0].addr, d->port, &note, e))
			return -1;
		if (*note.text)
			thcd_say("job %u: %s", c->job[i].job, note.text);
		if (!plan->admits.count && thcd_net_subnets(d, &plan->admits, e))
			return -1;
		plan->slot_base = *slots;
		*slots += plan->data_slots + plan->control_slots;
	}
	return 0;
}
