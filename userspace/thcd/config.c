// SPDX-License-Identifier: GPL-2.0
/*
 * The keys of a job and of the daemon: their names, what they mean and which
 * values they take. JSON is json.c's, what follows from the values plan.c's.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <thc/names.h>
#include <thc/wire/spec.h>

#include "config.h"
#include "secret.h"

enum kind {
	NUMBER,
	NUMBER64,
	COOKIE,
	FRACTION,
	TABLE,
	WIDTH,
	SCHEME,
	REPLY,
	SWITCH_OFF,
	SWITCH_ON,
	TEXT,
	PREFIX,
};

struct key {
	const char	*name;
	enum kind	kind;
	size_t		offset;
	u64		min;
	u64		max;
	const char	*meaning;
};

#define AT(field) offsetof(struct thcd_job_wish, field)
#define WORD(id, name) " " #name

static const struct key job_keys[] = {
	{ "job", NUMBER, AT(job), 0, THC_JOBS_MAX - 1, "number of the job, 0 to 15; required" },
	{ "ranks", NUMBER, AT(ranks), 1, THC_RANKS_MAX, "workers, 1 to 64; required" },
	{ "cookie", COOKIE, AT(cookie), 1, UINT64_MAX,
	  "the job's secret, 64 bits, not 0, or @FILE that holds it; required" },
	{ "scheme", SCHEME, AT(scheme), 0, 0,
	  "how gradients become sums:" THC_SCHEMES(WORD) "; default thc" },
	{ "table", TABLE, AT(table), 0, 0,
	  "auto, uniform, or the levels T[0]:T[1]:...; default auto" },
	{ "bits", NUMBER, AT(bits), 1, THC_TABLE_BITS_MAX, "bits of an index, 1 to 4; default 4" },
	{ "granularity", NUMBER, AT(granularity), 1, THC_TABLE_GRANULARITY_MAX,
	  "steps of the table's grid, max(T); default: the best that fits" },
	{ "clamp", FRACTION, AT(clamp), 0, 0,
	  "fraction of coordinates that are clamped, as 1/32 or 0.03125" },
	{ "sum_width", WIDTH, AT(sum_width), 0, 0, "bits of a sum: auto, 8 or 16; default auto" },
	{ "block", NUMBER, AT(block), 1 << 10, 1 << 20,
	  "coordinates rotated together, a power of two, 1024 to 1048576; default 1024" },
	{ "slots", NUMBER, AT(slots), 1, THC_SLOTS_MAX - 1,
	  "chunks of data in flight; default 512" },
	{ "norm_slots", NUMBER, AT(norm_slots), 1, THC_SLOTS_MAX - 1,
	  "chunks of block scales in flight; default 64" },
	{ "reply", REPLY, AT(reply), 0, 0, "multicast or fanout; default multicast" },
	{ "group", TEXT, AT(group), 0, 0,
	  "multicast address of answers; default in 239.84.0.0/16 or ff15::7468:0:0/96, from "
	  "the aggregator's address and the job's number" },
	{ "group_port", NUMBER, AT(group_port), THC_PORT_UNPRIVILEGED, 65535,
	  "UDP port of the group, 1024 or more; default: base port + 64" },
	{ "prefix", PREFIX, AT(prefix), 0, 0,
	  "addresses that may join, as 10.0.0.0/24, or any; may be repeated; default: the "
	  "subnets of the interface" },
	{ "hops", NUMBER, AT(hops), 0, THC_TTL - 1,
	  "routers between a worker and the aggregator, at most; default: any number" },
	{ "quorum", NUMBER, AT(quorum), 1, THC_RANKS_MAX,
	  "least contributors of a chunk that a deadline closes" },
	{ "deadline_ms", NUMBER, AT(deadline_ms), 1, 3600 * 1000,
	  "age in ms at which a chunk that has its quorum is closed; default: never" },
	{ "seed", NUMBER64, AT(seed), 0, UINT64_MAX,
	  "seed of rotations and rounding; default: derived from job and cookie" },
	{ "sum", SWITCH_OFF, AT(nosum), 0, 0, "packet sums, on or off; default on" },
	{ "correlated", SWITCH_ON, AT(correlated), 0, 0,
	  "correlated stochastic rounding, on or off; default on" },
};

#define JOB_KEYS (sizeof(job_keys) / sizeof(job_keys[0]))
_Static_assert(JOB_KEYS <= 64, "thcd_job_wish.given has a bit per key");

const char *thcd_job_key(unsigned int i, const char **meaning)
{
	if (i >= JOB_KEYS)
		return NULL;
	if (meaning)
		*meaning = job_keys[i].meaning;
	return job_keys[i].name;
}

static const struct key *find_key(const char *name)
{
	unsigned int i;

	for (i = 0; i < JOB_KEYS; i++)
		if (!strcmp(job_keys[i].name, name))
			return &job_keys[i];
	return NULL;
}

bool thcd_job_wish_given(const struct thcd_job_wish *w, const char *name)
{
	const struct key *k = find_key(name);

	return k && w->given & 1ULL << (k - job_keys);
}

void thcd_job_wish_init(struct thcd_job_wish *w)
{
	memset(w, 0, sizeof(*w));
	w->bits = THC_TABLE_BITS_MAX;
	w->block = 1024;
	w->slots = 512;
	w->norm_slots = 64;
	w->clamp = 1.0 / 32;
	w->reply = THC_REPLY_MULTICAST;
	w->correlated = true;
}

/* Decimal or 0x; no sign, no blanks, nothing behind it. */
static int parse_number(const char *text, u64 *out)
{
	char *end;

	if (text[0] < '0' || text[0] > '9')
		return -1;
	errno = 0;
	*out = strtoull(text, &end, text[1] == 'x' || text[1] == 'X' ? 16 : 10);
	return errno || *end ? -1 : 0;
}

static int parse_fraction(const char *text, double *out)
{
	char *end;
	double p = strtod(text, &end);

	if (end == text)
		return -1;
	if (*end == '/') {
		const char *below = end + 1;
		double d = strtod(below, &end);

		if (end == below || !(d > 0))
			return -1;
		p /= d;
	}
	*out = p;
	return *end || !(p > 0 && p < 1) ? -1 : 0;
}

static int parse_table(struct thcd_job_wish *w, const char *value, struct thcd_error *e)
{
	const char *at = value;

	if (!strcmp(value, "auto")) {
		w->table = THCD_TABLE_AUTO;
		return 0;
	}
	if (!strcmp(value, "uniform")) {
		w->table = THCD_TABLE_UNIFORM;
		return 0;
	}
	w->table = THCD_TABLE_LIST;
	for (w->values = 0; w->values < THC_TABLE_LEVELS_MAX; at++) {
		char *end;
		unsigned long v = strtoul(at, &end, 10);

		if (*at < '0' || *at > '9' || v > THC_TABLE_GRANULARITY_MAX)
			return thcd_fail(
				e,
				"table: \"%s\" is not a level; give auto, uniform or levels "
				"from 0 to %d as 0:3:5:...",
				at, THC_TABLE_GRANULARITY_MAX);
		w->value[w->values++] = v;
		at = end;
		if (!*at)
			return 0;
		if (*at != ':')
			return thcd_fail(e, "table: levels are separated by ':', found \"%s\"", at);
	}
	return thcd_fail(e, "table: more than %d levels", THC_TABLE_LEVELS_MAX);
}

static int parse_choice(const char *key, const char *value, const char *a, const char *b,
			bool *is_b, struct thcd_error *e)
{
	if (strcmp(value, a) && strcmp(value, b))
		return thcd_fail(e, "%s: \"%s\" is neither %s nor %s", key, value, a, b);
	*is_b = !strcmp(value, b);
	return 0;
}

static int set_number(struct thcd_job_wish *w, const struct key *k, const char *value,
		      struct thcd_error *e)
{
	void *field = (char *)w + k->offset;
	u64 n;

	if (parse_number(value, &n))
		return thcd_fail(e, "%s: \"%s\" is not a number (%s)", k->name, value, k->meaning);
	if (n < k->min || n > k->max)
		return thcd_fail(e, "%s: %s is out of range, %llu to %llu (%s)", k->name, value,
				 (unsigned long long)k->min, (unsigned long long)k->max,
				 k->meaning);
	if (k->kind == NUMBER)
		*(u32 *)field = n;
	else
		*(u64 *)field = n;
	return 0;
}

static int set_width(struct thcd_job_wish *w, const char *value, struct thcd_error *e)
{
	if (!strcmp(value, "auto"))
		w->sum_width = 0;
	else if (!strcmp(value, "8"))
		w->sum_width = 8;
	else if (!strcmp(value, "16"))
		w->sum_width = 16;
	else
		return thcd_fail(e, "sum_width: \"%s\" is neither auto nor 8 nor 16", value);
	return 0;
}

static int set_scheme(struct thcd_job_wish *w, const struct key *k, const char *value,
		      struct thcd_error *e)
{
	for (w->scheme = 0; w->scheme < THC_SCHEMES_COUNT; w->scheme++)
		if (!strcmp(value, thc_scheme_name[w->scheme]))
			return 0;
	return thcd_fail(e, "scheme: there is no \"%s\" (%s)", value, k->meaning);
}

static int set_word(char word[THCD_WORD_MAX], const struct key *k, const char *value,
		    struct thcd_error *e)
{
	if (!*value || strlen(value) >= THCD_WORD_MAX)
		return thcd_fail(e, "%s: \"%s\" is not an address (%s)", k->name, value,
				 k->meaning);
	strcpy(word, value);
	return 0;
}

static int add_prefix(struct thcd_job_wish *w, const struct key *k, const char *value,
		      struct thcd_error *e)
{
	if (w->prefixes == THCD_PREFIXES_MAX)
		return thcd_fail(e, "%s: more than %d: give shorter ones that have several in them",
				 k->name, THCD_PREFIXES_MAX);
	if (set_word(w->prefix[w->prefixes], k, value, e))
		return -1;
	w->prefixes++;
	return 0;
}

int thcd_job_wish_set(struct thcd_job_wish *w, const char *key, const char *value,
		      struct thcd_error *e)
{
	const struct key *k = find_key(key);
	bool second = false;
	void *field;
	int err = 0;

	if (!k)
		return thcd_fail(e, "unknown key \"%s\" of a job; thcd --help lists them", key);
	if (k->kind != PREFIX && thcd_job_wish_given(w, key))
		return thcd_fail(e, "%s is given twice", key);
	field = (char *)w + k->offset;
	switch (k->kind) {
	case NUMBER:
	case NUMBER64:
		err = set_number(w, k, value, e);
		break;
	case COOKIE:
		err = *value == '@' ? thcd_secret_read(value + 1, field, e) :
				      set_number(w, k, value, e);
		break;
	case FRACTION:
		if (parse_fraction(value, field))
			err = thcd_fail(e, "%s: \"%s\" is not a fraction between 0 and 1, as 1/32",
					key, value);
		break;
	case TABLE:
		err = parse_table(w, value, e);
		break;
	case WIDTH:
		err = set_width(w, value, e);
		break;
	case SCHEME:
		err = set_scheme(w, k, value, e);
		break;
	case REPLY:
		err = parse_choice(key, value, "multicast", "fanout", &second, e);
		w->reply = second ? THC_REPLY_FANOUT : THC_REPLY_MULTICAST;
		break;
	case SWITCH_OFF:
		err = parse_choice(key, value, "on", "off", field, e);
		break;
	case SWITCH_ON:
		err = parse_choice(key, value, "off", "on", field, e);
		break;
	case TEXT:
		err = set_word(field, k, value, e);
		break;
	case PREFIX:
		err = add_prefix(w, k, value, e);
		break;
	}
	if (!err)
		w->given |= 1ULL << (k - job_keys);
	return err;
}

int thcd_config_job(struct thcd_config *c, const char *text, struct thcd_error *e)
{
	struct thcd_job_wish *w;
	char *copy, *rest, *part;
	int err = 0;

	if (c->jobs == THC_JOBS_MAX)
		return thcd_fail(e, "more than %d jobs", THC_JOBS_MAX);
	w = &c->job[c->jobs];
	thcd_job_wish_init(w);
	copy = strdup(text);
	if (!copy)
		return thcd_fail(e, "out of memory");
	rest = copy;
	/* "1,ranks=2" is short for "job=1,ranks=2" */
	for (part = strsep(&rest, ","); part && !err; part = strsep(&rest, ",")) {
		char *value = strchr(part, '=');

		if (!value && part == copy) {
			err = thcd_job_wish_set(w, "job", part, e);
			continue;
		}
		if (!value) {
			err = thcd_fail(e, "--job: \"%s\" is not key=value", part);
			continue;
		}
		*value++ = '\0';
		err = thcd_job_wish_set(w, part, value, e);
	}
	free(copy);
	if (!err)
		c->jobs++;
	return err;
}

void thcd_config_init(struct thcd_config *c)
{
	memset(c, 0, sizeof(*c));
	c->ready_fd = -1;
	c->port = THC_PORT_DEFAULT;
}

void thcd_config_exit(struct thcd_config *c)
{
	u32 i;

	free(c->file);
	free(c->interface);
	free(c->instance);
	free(c->control);
	free(c->control_group);
	free(c->pidfile);
	for (i = 0; i < c->listens; i++)
		free(c->listen[i]);
	memset(c, 0, sizeof(*c));
}

static int set_text(char **field, const char *value, struct thcd_error *e)
{
	char *copy = strdup(value);

	if (!copy)
		return thcd_fail(e, "out of memory");
	free(*field);
	*field = copy;
	return 0;
}

static int set_mode(struct thcd_config *c, const char *value, struct thcd_error *e)
{
	if (!strcmp(value, "auto"))
		c->mode = THCD_MODE_AUTO;
	else if (!strcmp(value, "native"))
		c->mode = THCD_MODE_NATIVE;
	else if (!strcmp(value, "generic"))
		c->mode = THCD_MODE_GENERIC;
	else
		return thcd_fail(e, "mode: \"%s\" is neither auto nor native nor generic", value);
	return 0;
}

/* An instance becomes a directory of bpffs and a file name of /run/thc. */
static int set_instance(struct thcd_config *c, const char *value, struct thcd_error *e)
{
	if (!*value || strlen(value) > 63 || value[0] == '.' || strchr(value, '/'))
		return thcd_fail(e,
				 "instance: \"%s\" is not a name of 1 to 63 characters without "
				 "'/' that does not begin with '.'",
				 value);
	return set_text(&c->instance, value, e);
}

int thcd_config_set(struct thcd_config *c, const char *key, const char *value, struct thcd_error *e)
{
	u64 n;

	if (!strcmp(key, "interface"))
		return set_text(&c->interface, value, e);
	if (!strcmp(key, "instance"))
		return set_instance(c, value, e);
	if (!strcmp(key, "control"))
		return set_text(&c->control, value, e);
	if (!strcmp(key, "control_group"))
		return set_text(&c->control_group, value, e);
	if (!strcmp(key, "pidfile"))
		return set_text(&c->pidfile, value, e);
	if (!strcmp(key, "mode"))
		return set_mode(c, value, e);
	if (!strcmp(key, "software"))
		return parse_choice(key, value, "off", "on", &c->software, e);
	if (!strcmp(key, "force"))
		return parse_choice(key, value, "off", "on", &c->force, e);
	if (!strcmp(key, "simd"))
		return parse_choice(key, value, "on", "off", &c->no_simd, e);
	if (!strcmp(key, "listen")) {
		if (c->listens == THCD_LISTEN_MAX)
			return thcd_fail(e, "listen: more than %d addresses", THCD_LISTEN_MAX);
		return set_text(&c->listen[c->listens++], value, e);
	}
	if (!strcmp(key, "port")) {
		if (parse_number(value, &n) || n < 1 || n > 65535 - THC_PORT_SPAN)
			return thcd_fail(e,
					 "port: \"%s\" is not a number from 1 to %d: an aggregator "
					 "owns %d ports from it on",
					 value, 65535 - THC_PORT_SPAN, THC_PORT_SPAN);
		c->port = n;
		return 0;
	}
	if (!strcmp(key, "spare_slots")) {
		if (parse_number(value, &n) || n > THCD_SPARE_SLOTS_MAX)
			return thcd_fail(e, "spare_slots: \"%s\" is not a number from 0 to %d",
					 value, THCD_SPARE_SLOTS_MAX);
		c->spare_slots = n;
		return 0;
	}
	return thcd_fail(e, "unknown key \"%s\"; thcd(8) lists them, under FILES", key);
}
