// SPDX-License-Identifier: GPL-2.0
/*
 * From what the operator asked for to the constants of a job: which table,
 * whether its sums fit their lanes, which group, which prefix.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include <thc/key.h>
#include <thc/mix.h>
#include <thc/wire/spec.h>

#include "net.h"
#include "plan.h"

/* Largest granularity chosen for the operator: beyond it the quantisation
 * error hardly falls, and solving grows with its square.
 */
#define GRANULARITY_CHOSEN_MAX	255

_Static_assert(sizeof(struct thcd_plan) == 952 + sizeof(struct thc_shards),
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

static u32 width_max(u32 width)
{
	return (1u << width) - 1;
}

static int no_threshold(const struct thcd_job_wish *w, struct thcd_error *e)
{
	return thcd_fail(e, "clamp=%g gives no table: give a fraction from 1e-12 to 0.99",
			 w->clamp);
}

static int solve(struct thc_table *t, const struct thcd_job_wish *w, u32 width,
		 struct thcd_error *e)
{
	u32 levels = 1u << w->bits, least = levels - 1;
	u32 g = w->granularity;
	int err;

	/* with nothing asked for, the best table for n and the width */
	if (w->table == THCD_TABLE_AUTO && w->bits == 4 && !g && !thcd_job_wish_given(w, "clamp")) {
		const struct thc_table_wish wish = {
			.size = sizeof(wish), .bits = 4, .ranks = w->ranks, .width = width,
		};

		err = thc_table_choose(&wish, t);
		if (!err)
			return 0;
		return thcd_fail(e, "no 4-bit table has sums of %u ranks below %u", w->ranks,
				 width_max(width) + 1);
	}
	if (w->table == THCD_TABLE_LIST) {
		if (w->values != levels)
			return thcd_fail(e, "table: %u level%s given, bits=%u needs %u", w->values,
					 w->values == 1 ? "" : "s", w->bits, levels);
		if (g && g != w->value[levels - 1])
			return thcd_fail(e, "granularity=%u, but the table ends with %u", g,
					 w->value[levels - 1]);
		g = w->value[levels - 1];
		err = thc_table_from_values(w->bits, g, w->clamp, w->value, t);
		if (err == -ERANGE)
			return no_threshold(w, e);
		if (err)
			return thcd_fail(e, "table: levels must begin with 0 and rise strictly");
		return 0;
	}
	if (w->table == THCD_TABLE_UNIFORM) {
		if (g && g != least)
			return thcd_fail(e, "a uniform table of %u bits has granularity %u, not %u",
					 w->bits, least, g);
		g = least;
	}
	if (!g) {
		g = width_max(width) / w->ranks;
		g = g > GRANULARITY_CHOSEN_MAX ? GRANULARITY_CHOSEN_MAX : g < least ? least : g;
	}
	if (g < least)
		return thcd_fail(
			e, "granularity=%u is too small for the %u levels of bits=%u: at least %u",
			g, levels, w->bits, least);
	err = thc_table_solve(w->bits, g, w->clamp, t);
	if (err == -ERANGE)
		return no_threshold(w, e);
	return err ? thcd_fail(e, "no table for bits=%u granularity=%u clamp=%g: %s", w->bits, g,
			       w->clamp, strerror(-err)) :
		     0;
}

/* The sentence that says what would fit. */
static int too_wide(const struct thc_table *t, const struct thcd_job_wish *w, u32 width,
		    struct thcd_error *e)
{
	u32 g = width_max(width) / w->ranks, least = (1u << w->bits) - 1;
	char fits[96];

	if (g >= least)
		snprintf(fits, sizeof(fits), "granularity up to %u fits %u ranks, ", g, w->ranks);
	else
		snprintf(fits, sizeof(fits), "no table of %u bits fits %u ranks, ", w->bits,
			 w->ranks);
	return thcd_fail(
		e,
		"the table reaches %u, and %u ranks make %u, more than the %u of %u-bit sums: %sup to %u ranks fit this table%s",
		t->granularity, w->ranks, t->granularity * w->ranks, width_max(width), width, fits,
		width_max(width) / t->granularity, width == 8 ? "; or set sum_width=16" : "");
}

static int choose_table(struct thc_table *t, u32 *width, const struct thcd_job_wish *w,
			struct thcd_error *note, struct thcd_error *e)
{
	u32 least = (1u << w->bits) - 1;

	*width = w->sum_width ? w->sum_width : 8;
	/* auto: 16 bits if nothing the operator asked for fits 8 */
	if (!w->sum_width) {
		u32 reach = w->table == THCD_TABLE_LIST ? w->value[w->values - 1] :
			    w->granularity		? w->granularity :
							  least;

		if (reach * w->ranks > width_max(8)) {
			*width = 16;
			thcd_fail(note,
				  "sums of %u ranks need 16 bits (%u x %u > 255): chunks "
				  "of %d coordinates",
				  w->ranks, w->ranks, reach, THC_CHUNK_16);
		}
	}
	if (solve(t, w, *width, e))
		return -1;
	return thc_table_check(t, w->ranks, *width) ? too_wide(t, w, *width, e) : 0;
}

/* What thc_allreduce() means in the job, and that is for floats. */
static int check_scheme(const struct thcd_job_wish *w, struct thcd_error *e)
{
	if (w->scheme != THC_SCHEME_NONE)
		return 0;
	return thcd_fail(e,
			 "scheme=none is for integers, which calls ask for by themselves: give a "
			 "job the scheme of its floats, thc");
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
	if (w->slots + w->control_slots > THC_SLOTS_MAX)
		return thcd_fail(e, "slots + norm_slots is %u: give at most %d together",
				 w->slots + w->control_slots, THC_SLOTS_MAX);
	return check_scheme(w, e) ? -1 : check_quorum(w, e);
}

int thcd_plan_make(struct thcd_plan *plan, const struct thcd_job_wish *w,
		   const struct thc_addr *address, u16 port, struct thcd_error *note,
		   struct thcd_error *e)
{
	struct thc_table t;
	u32 width, i;

	memset(plan, 0, sizeof(*plan));
	note->text[0] = '\0';
	if (check_wish(w, e) || choose_table(&t, &width, w, note, e) ||
	    choose_prefixes(&plan->admits, w, e) || thcd_shards_choose(&plan->shards, w, port, e) ||
	    choose_group(plan, w, address, e) || choose_group_port(plan, w, port, e)) {
		struct thcd_error why = *e;

		return thcd_fail(e, "job %u: %.400s", w->job, why.text);
	}
	plan->job = w->job;
	plan->ranks = w->ranks;
	memcpy(plan->key, w->key, sizeof(plan->key));
	plan->seed = thcd_job_wish_given(w, "seed") ? w->seed : thc_key_seed(w->key, w->job);
	memcpy(&plan->clamp, &t.t, sizeof(plan->clamp));
	memcpy(&plan->p, &t.p, sizeof(plan->p));
	plan->table_hash = thc_table_hash(&t);
	plan->ttl_min = thcd_job_wish_given(w, "hops") ? THC_TTL - w->hops : 0;
	plan->deadline_ms = w->deadline_ms;
	plan->quorum = w->quorum ? w->quorum : w->ranks;
	plan->data_slots = w->slots;
	plan->control_slots = w->control_slots;
	plan->chunk = width == 8 ? THC_CHUNK_8 : THC_CHUNK_16;
	plan->granularity = t.granularity;
	plan->reply = w->reply;
	plan->bits = t.bits;
	plan->scheme = (u8)w->scheme;
	plan->sum_width = width;
	plan->block_log2 = __builtin_ctz(w->block);
	plan->seal = w->seal;
	plan->correlated = w->correlated;
	plan->linear = t.levels == 16;
	for (i = 0; i < t.levels; i++) {
		plan->table[i] = t.value[i];
		if (t.value[i] != i)
			plan->linear = 0;
	}
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
