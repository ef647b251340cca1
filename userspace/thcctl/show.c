// SPDX-License-Identifier: GPL-2.0
/*
 * Prints counters and jobs as tables or as JSON.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <thc/names.h>

#include "../aggregator/report.h"
#include "thcctl.h"

#define TEXTS		8
#define TEXT_BYTES	48

static char *next_text(void)
{
	static char texts[TEXTS][TEXT_BYTES];
	static unsigned int next;

	return texts[next++ % TEXTS];
}

const char *thcctl_grouped(double n)
{
	char digits[32], *out = next_text();
	int length = snprintf(digits, sizeof(digits), "%.0f", n), i, k = 0;

	for (i = 0; i < length; i++) {
		if (i && (length - i) % 3 == 0 && digits[i - 1] != '-')
			out[k++] = ',';
		out[k++] = digits[i];
	}
	out[k] = '\0';
	return out;
}

const char *thcctl_bytes(double n)
{
	static const char *const unit[] = { "B", "KiB", "MiB", "GiB", "TiB" };
	char *out = next_text();
	int i = 0;

	for (; n >= 1024 && i < 4; i++)
		n /= 1024;
	snprintf(out, TEXT_BYTES, i ? "%.1f %s" : "%.0f %s", n, unit[i]);
	return out;
}

/* A list as "0 2 5", numbers or texts; it lives until the next call. */
static const char *list_text(const cJSON *o, const char *name)
{
	static char out[2048];
	const int size = sizeof(out);
	const cJSON *v;
	int n = 0;

	strcpy(out, "none");
	cJSON_ArrayForEach(v, cJSON_GetObjectItemCaseSensitive(o, name)) if (n < size)
		n += cJSON_IsString(v) ?
			     snprintf(out + n, size - n, "%s%s", n ? " " : "", v->valuestring) :
			     snprintf(out + n, size - n, "%s%.0f", n ? " " : "", v->valuedouble);
	return out;
}

int thcctl_print_json(const cJSON *o)
{
	char *text = cJSON_Print(o);

	if (text)
		puts(text);
	free(text);
	return text ? EXIT_SUCCESS : EXIT_FAILURE;
}

static void print_head(const cJSON *o)
{
	const char *mode = thcctl_text(o, "mode");

	printf("%s: ", thcctl_text(o, "instance"));
	if (!strcmp(mode, "pinned"))
		printf("no thcd; its XDP program and maps live on");
	else
		printf("thcd %.0f, %s%s%s%s", thcctl_number(o, "pid"), mode,
		       strcmp(mode, "software") ? " XDP" : " aggregator",
		       *thcctl_text(o, "interface") ? " on " : "", thcctl_text(o, "interface"));
	printf(", UDP port %.0f, %s slots, %s", thcctl_number(o, "port"),
	       thcctl_grouped(thcctl_number(o, "slots")),
	       thcctl_bytes(thcctl_number(o, "slot_bytes")));
	if (*thcctl_text(o, "capabilities"))
		printf(", capabilities: %s", thcctl_text(o, "capabilities"));
	printf("\n\n");
}

static void print_row(const cJSON *o, const struct thc_name *row)
{
	printf("  %-12s %16s  %s\n", row->name, thcctl_grouped(thcctl_number(o, row->name)),
	       row->meaning);
}

static void print_daemon(const cJSON *own)
{
	static const struct thc_name rows[] = {
		{ "sent", "frames sent by thcd: WELCOME, and answers XDP leaves to it" },
#define ROW(name, meaning) { #name, meaning },
		THCD_COUNTERS(ROW)
#undef ROW
	};
	bool any = false;
	unsigned int i;

	for (i = 0; own && i < sizeof(rows) / sizeof(rows[0]); i++) {
		if (!thcctl_number(own, rows[i].name))
			continue;
		if (!any)
			printf("thcd\n");
		any = true;
		print_row(own, &rows[i]);
	}
}

static void print_stats(const cJSON *o)
{
	const cJSON *events = cJSON_GetObjectItemCaseSensitive(o, "events");
	const cJSON *drops = cJSON_GetObjectItemCaseSensitive(o, "drops");
	int i;

	print_head(o);
	printf("%-14s %16s  packets on a THC port\n", "received",
	       thcctl_grouped(thcctl_number(o, "received")));
	for (i = 0; i < THC_EVENT_FATES; i++)
		print_row(events, &thc_event_name[i]);
	printf("%-14s %16s\n", "dropped", thcctl_grouped(thcctl_number(o, "dropped")));
	for (i = THC_DROP_NONE + 1; i < THC_DROP_REASONS; i++)
		if (thcctl_number(drops, thc_drop_name[i].name))
			print_row(drops, &thc_drop_name[i]);
	printf("answers\n");
	for (i = THC_EVENT_FATES; i < THC_EVENTS; i++)
		print_row(events, &thc_event_name[i]);
	print_daemon(cJSON_GetObjectItemCaseSensitive(o, "daemon"));
}

/* Counters are read while packets arrive, and may not add up in between: that is an error only if
 * three reads in a row do not add up.
 */
static cJSON *settled_stats(struct thcctl *t)
{
	cJSON *o = NULL;
	int i;

	for (i = 0; i < 3; i++) {
		cJSON_Delete(o);
		o = thcctl_ask(t, "stats");
		if (!o || thcctl_is(o, "adds_up"))
			break;
	}
	return o;
}

int thcctl_stats(struct thcctl *t)
{
	cJSON *o = settled_stats(t);
	bool ok;

	if (!o)
		return EXIT_FAILURE;
	ok = thcctl_is(o, "adds_up");
	if (t->json) {
		thcctl_print_json(o);
	} else {
		print_stats(o);
		printf("\nreceived %s %s %s fates + %s drops: %s\n",
		       thcctl_grouped(thcctl_number(o, "received")), ok ? "=" : "!=",
		       thcctl_grouped(thcctl_number(o, "fates")),
		       thcctl_grouped(thcctl_number(o, "dropped")),
		       ok ? "adds up" : "DOES NOT ADD UP (unless packets arrive right now)");
	}
	cJSON_Delete(o);
	return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}

static void print_members(const cJSON *job)
{
	bool any = false;
	const cJSON *m;

	cJSON_ArrayForEach(m, cJSON_GetObjectItemCaseSensitive(job, "members"))
	{
		if (!any)
			printf("  %-6s %-40s %-6s %s\n", "rank", "address", "port", "state");
		any = true;
		printf("  %-6.0f %-40s %-6.0f %s\n", thcctl_number(m, "rank"),
		       thcctl_text(m, "address"), thcctl_number(m, "port"),
		       thcctl_text(m, "state"));
	}
}

/* Prints the rate or error that a job aims at, and the tables to choose from. */
static void print_rate(const cJSON *job)
{
	const cJSON *row;

	if (cJSON_HasObjectItem(job, "rate"))
		printf("  %-12s %.6g bits a coordinate, up and down together%s\n", "rate",
		       thcctl_number(job, "rate"),
		       cJSON_HasObjectItem(job, "rate_tried") ? ", where it is faster" : "");
	else if (cJSON_HasObjectItem(job, "error"))
		printf("  %-12s %.6g of the gradient's square\n", "error",
		       thcctl_number(job, "error"));
	else
		return;
	printf("  %-12s %4s %4s %11s  %s\n", "rows", "bits", "sums", "granularity", "clamps");
	cJSON_ArrayForEach(row, cJSON_GetObjectItemCaseSensitive(job, "rows"))
		printf("  %-12s %4.0f %4.0f %11.0f  1 in %.4g\n", "", thcctl_number(row, "bits"),
		       thcctl_number(row, "sum_width"), thcctl_number(row, "granularity"),
		       1 / thcctl_number(row, "clamp"));
}

static const char *state_of(const cJSON *job)
{
	const cJSON *left = cJSON_GetObjectItemCaseSensitive(job, "left");

	if (!thcctl_is(job, "ready"))
		return "waits for ranks to join";
	if (!cJSON_GetArraySize(left))
		return "all ranks are in";
	return cJSON_GetArraySize(left) < thcctl_number(job, "ranks") ? "ranks have left" :
									"all ranks have left";
}

static void print_job(const cJSON *j)
{
	printf("job %.0f: session %.0f, %s\n", thcctl_number(j, "job"), thcctl_number(j, "epoch"),
	       state_of(j));
	printf("  %-12s %.0f; joined: %s\n", "ranks", thcctl_number(j, "ranks"),
	       list_text(j, "joined"));
	printf("  %-12s %s\n", "left", list_text(j, "left"));
	if (thcctl_number(j, "shards") > 1)
		printf("  %-12s %.0f of %.0f\n", "shard", thcctl_number(j, "shard"),
		       thcctl_number(j, "shards"));
	printf("  %-12s %s\n", "prefix", list_text(j, "prefix"));
	if (cJSON_HasObjectItem(j, "hops"))
		printf("  %-12s at most %.0f routers on the way from a worker\n", "hops",
		       thcctl_number(j, "hops"));
	printf("  %-12s %s%s%s\n", "answers", thcctl_text(j, "reply"),
	       *thcctl_text(j, "group") ? " to " : "", thcctl_text(j, "group"));
	if (thcctl_is(j, "multicast_given_up"))
		printf("  %-12s multicast does not reach every rank\n", "");
	/* an older thcd does not tell it */
	if (*thcctl_text(j, "seal"))
		printf("  %-12s %s\n", "seal", thcctl_text(j, "seal"));
	printf("  %-12s %s%s%s", "scheme", thcctl_text(j, "scheme"),
	       cJSON_HasObjectItem(j, "precision") ? ", floats " : "", thcctl_text(j, "precision"));
	if (thcctl_number(j, "grain") > 1)
		printf(", grain %.0f", thcctl_number(j, "grain"));
	if (cJSON_HasObjectItem(j, "sketch") && strcmp(thcctl_text(j, "sketch"), "off") != 0)
		printf(", sketches of %s hashes",
		       strcmp(thcctl_text(j, "sketch"), "three") != 0 ? "four coupled" : "three");
	printf("\n");
	printf("  %-12s %s\n", "table", list_text(j, "table"));
	printf("  %-12s %.0f bits, clamps 1 in %.4g, %.0f-bit sums, blocks of %.0f%s\n", "",
	       thcctl_number(j, "bits"), 1 / thcctl_number(j, "clamp"),
	       thcctl_number(j, "sum_width"), thcctl_number(j, "block"),
	       thcctl_is(j, "rotate") ? "" : ", not rotated");
	print_rate(j);
	printf("  %-12s %.0f for data, %.0f for block scales, %s\n", "slots",
	       thcctl_number(j, "data_slots"), thcctl_number(j, "norm_slots"),
	       thcctl_bytes(thcctl_number(j, "slot_bytes")));
	if (thcctl_number(j, "deadline_ms"))
		printf("  %-12s %.0f ms, quorum %.0f\n", "deadline",
		       thcctl_number(j, "deadline_ms"), thcctl_number(j, "quorum"));
	printf("  %-12s %.0f chunks; some wait for ranks: %s\n", "open",
	       thcctl_number(j, "open_generations"), list_text(j, "waiting_for"));
	print_members(j);
}

int thcctl_job(struct thcctl *t, const char *number)
{
	cJSON *o = thcctl_ask(t, "jobs"), *j;
	int status = EXIT_FAILURE;

	if (!o)
		return EXIT_FAILURE;
	if (!number && t->json) {
		status = thcctl_print_json(o);
		cJSON_Delete(o);
		return status;
	}
	if (!number)
		print_head(o);
	cJSON_ArrayForEach(j, cJSON_GetObjectItemCaseSensitive(o, "jobs"))
	{
		char id[16];

		snprintf(id, sizeof(id), "%.0f", thcctl_number(j, "job"));
		if (number && strcmp(id, number))
			continue;
		status = EXIT_SUCCESS;
		if (t->json)
			thcctl_print_json(j);
		else
			print_job(j);
	}
	if (status && number)
		thcctl_say("there is no job %s; thcctl job, without a number, shows all", number);
	else if (status)
		thcctl_say("this thcd has no job");
	cJSON_Delete(o);
	return status;
}

int thcctl_reload(struct thcctl *t)
{
	cJSON *o = thcctl_ask(t, "reload"), *line;
	bool ok;

	if (!o)
		return EXIT_FAILURE;
	ok = thcctl_is(o, "ok");
	if (t->json)
		thcctl_print_json(o);
	else
		cJSON_ArrayForEach(line, cJSON_GetObjectItemCaseSensitive(o, "said"))
			puts(cJSON_IsString(line) ? line->valuestring : "");
	cJSON_Delete(o);
	return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}
