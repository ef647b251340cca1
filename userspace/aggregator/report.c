// SPDX-License-Identifier: GPL-2.0
/*
 * Counters and jobs as JSON, for thcd and thcctl alike.
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include <thc/aggregator/maps.h>
#include <thc/names.h>
#include <thc/wire/spec.h>

#include "report.h"

u64 thc_report_slot_bytes(u64 slots)
{
	return slots * (sizeof(struct thc_slot) + sizeof(struct thc_lanes));
}

void thc_report_stats(cJSON *to, const struct thc_stats *s)
{
	cJSON *events, *drops;
	u64 fates, dropped;
	int i, ok;

	ok = thc_stats_add_up(s, &fates, &dropped);
	cJSON_AddNumberToObject(to, "received", s->received);
	cJSON_AddNumberToObject(to, "fates", fates);
	cJSON_AddNumberToObject(to, "dropped", dropped);
	cJSON_AddBoolToObject(to, "adds_up", ok);
	events = cJSON_AddObjectToObject(to, "events");
	for (i = 0; i < THC_EVENTS; i++)
		cJSON_AddNumberToObject(events, thc_event_name[i].name, s->event[i]);
	drops = cJSON_AddObjectToObject(to, "drops");
	for (i = 0; i < THC_DROP_REASONS; i++)
		if (thc_drop_is_reason(i))
			cJSON_AddNumberToObject(drops, thc_drop_name[i].name, s->drop[i]);
}

bool thc_report_read_stats(int map, struct thc_stats *out)
{
	int cpus = libbpf_num_possible_cpus(), cpu;
	struct thc_stats *each = cpus > 0 ? calloc(cpus, sizeof(*each)) : NULL;
	u32 key = 0, i;
	bool ok;

	memset(out, 0, sizeof(*out));
	ok = each && !bpf_map_lookup_elem(map, &key, each);
	for (cpu = 0; ok && cpu < cpus; cpu++) {
		out->received += each[cpu].received;
		for (i = 0; i < THC_EVENTS; i++)
			out->event[i] += each[cpu].event[i];
		for (i = 0; i < THC_DROP_REASONS; i++)
			out->drop[i] += each[cpu].drop[i];
	}
	free(each);
	return ok;
}

const char *thc_addr_text(const struct thc_addr *addr, char *text)
{
	if (thc_addr_is_v4(addr))
		inet_ntop(AF_INET, &addr->word[3], text, INET6_ADDRSTRLEN);
	else
		inet_ntop(AF_INET6, addr, text, INET6_ADDRSTRLEN);
	return text;
}

const char *thc_prefix_text(const struct thcd_prefix *p, char *text)
{
	u32 len = thc_addr_is_v4(&p->addr) ? p->len - 96 : p->len;

	thc_addr_text(&p->addr, text);
	sprintf(text + strlen(text), "/%u", len);
	return text;
}

const char *thc_prefixes_text(const struct thcd_prefixes *p, char *text)
{
	char *at = text;
	u32 i;

	strcpy(text, "nowhere");
	for (i = 0; i < p->count; i++) {
		if (i)
			at = stpcpy(at, ", ");
		thc_prefix_text(&p->at[i], at);
		at += strlen(at);
	}
	return text;
}

static cJSON *ranks_of(u64 bitmap)
{
	cJSON *list = cJSON_CreateArray();
	int i;

	for (i = 0; i < THC_RANKS_MAX; i++)
		if (bitmap >> i & 1)
			cJSON_AddItemToArray(list, cJSON_CreateNumber(i));
	return list;
}

static cJSON *members(const struct thc_job *job)
{
	cJSON *list = cJSON_CreateArray();
	char text[INET6_ADDRSTRLEN];
	int i;

	for (i = 0; i < job->ranks; i++) {
		const struct thc_member *m = &job->member[i];
		cJSON *o;

		if (!m->port)
			continue;
		o = cJSON_CreateObject();
		cJSON_AddNumberToObject(o, "rank", i);
		cJSON_AddStringToObject(o, "address", thc_addr_text(&m->addr, text));
		cJSON_AddNumberToObject(o, "port", thc_be16(m->port));
		cJSON_AddStringToObject(o, "state",
					m->left	  ? "left" :
					m->joined ? "joined" :
						    "of an old session");
		cJSON_AddItemToArray(list, o);
	}
	return list;
}

/* The generations that wait for ranks, and the ranks missing in any generation. */
static void open_generations(cJSON *o, const struct thc_job *job, const struct thc_slot *slot)
{
	u64 missing = 0;
	u32 i, open = 0;

	for (i = 0; i < job->slots; i++) {
		const struct thc_slot *s = &slot[job->slot_base + i];
		const struct thc_generation *g = &s->generation[s->top & 1];

		if (s->epoch != job->epoch || g->state != THC_OPEN)
			continue;
		open++;
		missing |= job->all & ~g->bitmap;
	}
	cJSON_AddNumberToObject(o, "open_generations", open);
	cJSON_AddItemToObject(o, "waiting_for", ranks_of(missing));
}

static const char *sketch_name(u8 sketch)
{
	if (!(sketch & THC_SCHEME_F_SKETCH))
		return "off";
	return sketch & THC_SCHEME_F_COUPLED ? "coupled" : "three";
}

static void add_scheme(cJSON *o, const struct thcd_plan *plan)
{
	char precision[16] = "exact";

	cJSON_AddStringToObject(o, "scheme", thc_scheme_name[plan->scheme % THC_SCHEMES_COUNT]);
	if (plan->value_bits)
		snprintf(precision, sizeof(precision), "fixed%u", plan->value_bits);
	if (thc_scheme_is_precise(plan->scheme))
		cJSON_AddStringToObject(o, "precision", precision);
	if (plan->scheme == THC_SCHEME_LHC) {
		cJSON_AddNumberToObject(o, "grain", 1U << (plan->grain_log2 & 15));
		cJSON_AddStringToObject(o, "sketch", sketch_name(plan->sketch));
	}
	cJSON_AddBoolToObject(o, "rotate", plan->rotate);
	cJSON_AddBoolToObject(o, "correlated", plan->correlated);
	cJSON_AddStringToObject(o, "seal", thc_seal_name[plan->seal]);
}

static void add_table(cJSON *o, const struct thcd_plan *plan)
{
	const struct thc_table_row row = thcd_plan_row(plan);
	int i, n = 2 << thc_row_at(row.bits), levels[THC_LEVELS_MAX];
	double p, t;

	memcpy(&p, &plan->p[thc_row_at(row.bits)], sizeof(p));
	memcpy(&t, &row.clamp, sizeof(t));
	for (i = 0; i < n; i++)
		levels[i] = row.level[i];
	cJSON_AddItemToObject(o, "table", cJSON_CreateIntArray(levels, n));
	cJSON_AddNumberToObject(o, "table_hash", plan->table_hash);
	cJSON_AddNumberToObject(o, "granularity", row.granularity);
	cJSON_AddNumberToObject(o, "bits", plan->bits);
	cJSON_AddNumberToObject(o, "clamp", p);
	cJSON_AddNumberToObject(o, "clamp_deviations", t);
	cJSON_AddNumberToObject(o, "block", 1 << plan->block_log2);
}

static cJSON *describe_row(const struct thcd_plan *plan, u32 bits)
{
	const struct thc_table_row row = thc_tables_row(&plan->tables, bits);
	cJSON *o = cJSON_CreateObject();
	double p, t;

	memcpy(&p, &plan->p[thc_row_at(bits)], sizeof(p));
	memcpy(&t, &row.clamp, sizeof(t));
	cJSON_AddNumberToObject(o, "bits", bits);
	cJSON_AddNumberToObject(o, "sum_width", row.sum_width);
	cJSON_AddNumberToObject(o, "granularity", row.granularity);
	cJSON_AddNumberToObject(o, "clamp", p);
	cJSON_AddNumberToObject(o, "clamp_deviations", t);
	return o;
}

static void add_rows(cJSON *o, const struct thcd_plan *plan)
{
	cJSON *list = cJSON_AddArrayToObject(o, "rows");
	u32 bits;

	if (plan->rate)
		cJSON_AddNumberToObject(o, "rate", plan->rate / 1e3);
	if (plan->rate_tried)
		cJSON_AddBoolToObject(o, "rate_tried", true);
	if (plan->error)
		cJSON_AddNumberToObject(o, "error", plan->error / 1e6);
	for (bits = 1; bits <= THC_BITS_MAX; bits++)
		if (thc_widths_sum(&plan->tables.widths, bits))
			cJSON_AddItemToArray(list, describe_row(plan, bits));
}

static cJSON *prefixes_of(const struct thcd_prefixes *p)
{
	cJSON *list = cJSON_CreateArray();
	char text[THC_PREFIX_TEXT];
	u32 i;

	for (i = 0; i < p->count; i++)
		cJSON_AddItemToArray(list, cJSON_CreateString(thc_prefix_text(&p->at[i], text)));
	return list;
}

static cJSON *describe(u32 id, const struct thc_job *job, const struct thcd_record *r,
		       const struct thc_slot *slot)
{
	cJSON *o = cJSON_CreateObject();
	char text[INET6_ADDRSTRLEN];

	cJSON_AddNumberToObject(o, "job", id);
	cJSON_AddNumberToObject(o, "ranks", job->ranks);
	cJSON_AddNumberToObject(o, "shard", r->plan.shards.own);
	cJSON_AddNumberToObject(o, "shards", r->plan.shards.count ? r->plan.shards.count : 1);
	cJSON_AddNumberToObject(o, "epoch", job->epoch);
	cJSON_AddBoolToObject(o, "ready", r->ready);
	cJSON_AddItemToObject(o, "joined", ranks_of(job->joined));
	cJSON_AddItemToObject(o, "left", ranks_of(job->left));
	cJSON_AddStringToObject(o, "reply",
				job->reply == THC_REPLY_MULTICAST ? "multicast" : "fanout");
	cJSON_AddBoolToObject(o, "multicast_given_up", r->fallback);
	if (job->reply == THC_REPLY_MULTICAST) {
		cJSON_AddStringToObject(o, "group", thc_addr_text(&job->group, text));
		cJSON_AddNumberToObject(o, "group_port", thc_be16(job->group_port));
	}
	cJSON_AddItemToObject(o, "prefix", prefixes_of(&r->plan.admits));
	if (job->ttl_min)
		cJSON_AddNumberToObject(o, "hops", THC_TTL - job->ttl_min);
	add_scheme(o, &r->plan);
	cJSON_AddNumberToObject(o, "sum_width", thcd_plan_row(&r->plan).sum_width);
	cJSON_AddNumberToObject(o, "data_slots", r->plan.data_slots);
	cJSON_AddNumberToObject(o, "norm_slots", r->plan.control_slots);
	cJSON_AddNumberToObject(o, "slot_bytes", (double)thc_report_slot_bytes(job->slots));
	cJSON_AddNumberToObject(o, "deadline_ms", job->deadline_ms);
	cJSON_AddNumberToObject(o, "quorum", job->quorum);
	add_table(o, &r->plan);
	add_rows(o, &r->plan);
	open_generations(o, job, slot);
	cJSON_AddItemToObject(o, "members", members(job));
	return o;
}

/* Are the numbers that serve as indices, lengths and shifts within bounds? */
static bool is_possible(const struct thc_job *job, const struct thcd_plan *plan, u32 slots)
{
	u32 i;

	if (job->ranks > THC_RANKS_MAX || job->slots > slots ||
	    job->slot_base > slots - job->slots || plan->block_log2 > THC_BLOCK_LOG2_MAX ||
	    plan->bits > THC_BITS_MAX || plan->seal > THC_SEAL_NH ||
	    plan->admits.count > THCD_PREFIXES_MAX)
		return false;
	for (i = 0; i < plan->admits.count; i++)
		if (plan->admits.at[i].len > 128)
			return false;
	return true;
}

void thc_report_jobs(cJSON *to, const struct thc_job *job, const struct thcd_record *record,
		     const struct thc_slot *slot, u32 slots)
{
	cJSON *list = cJSON_AddArrayToObject(to, "jobs");
	int i;

	for (i = 0; job && record && slot && i < THC_JOBS_MAX; i++)
		if (job[i].active && is_possible(&job[i], &record[i].plan, slots))
			cJSON_AddItemToArray(list, describe(i, &job[i], &record[i], slot));
}
