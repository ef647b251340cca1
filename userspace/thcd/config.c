// SPDX-License-Identifier: GPL-2.0
/*
 * The keys of a job and of the daemon: their names, meaning and values. json.c reads JSON, plan.c
 * derives a job's constants from the values.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <thc/names.h>
#include <thc/wire/spec.h>

#include "config.h"

enum syntax {
	NUMBER,
	SECRET,
	FRACTION,
	RATE,
	MILLIONTHS,
	TABLE,
	WIDTH,
	PRECISION,
	SKETCH,
	SCHEME,
	REPLY,
	SEAL,
	SWITCH_OFF,
	SWITCH_ON,
	TEXT,
	PREFIX,
	SHARDS,
	STRING,
	INSTANCE,
	LISTEN,
	MODE,
	RANGE,
};

/* The words of a choice, and the value that each stands for. */
#define WORDS_MAX	5
static const struct choice {
	const char	*word;
	u32		value;
} choices[][WORDS_MAX] = {
	[WIDTH] = { { "auto", 0 }, { "4", 4 }, { "8", 8 }, { "16", 16 }, { "32", 32 } },
	[PRECISION] = { { "exact", THC_EXACT },
			{ "fixed8", THC_FIXED_8 },
			{ "fixed16", THC_FIXED_16 },
			{ "fixed32", THC_FIXED_32 } },
	[SKETCH] = { { "off", 0 },
		     { "three", THC_SCHEME_F_SKETCH },
		     { "coupled", THC_SCHEME_F_SKETCH | THC_SCHEME_F_COUPLED } },
	[REPLY] = { { "multicast", THC_REPLY_MULTICAST }, { "fanout", THC_REPLY_FANOUT } },
#define SEAL_WORD(id, name) { #name, THC_SEAL_##id },
	[SEAL] = { THC_SEALS(SEAL_WORD) },
#undef SEAL_WORD
	[SWITCH_OFF] = { { "on", false }, { "off", true } },
	[SWITCH_ON] = { { "off", false }, { "on", true } },
	[MODE] = { { "auto", THCD_MODE_AUTO },
		   { "native", THCD_MODE_NATIVE },
		   { "generic", THCD_MODE_GENERIC } },
};

struct key {
	const char	*name;
	enum syntax	syntax;
	size_t		offset;
	size_t		size;
	u64		min;
	u64		max;
	const char	*meaning;
};

#define AT(field) offsetof(struct thcd_job_wish, field), sizeof(((struct thcd_job_wish *)0)->field)
#define WORD(id, name) " " #name

static const struct key job_keys[] = {
	{ "job", NUMBER, AT(job), 0, THC_JOBS_MAX - 1, "number of the job, 0 to 15; required" },
	{ "ranks", NUMBER, AT(ranks), 1, THC_RANKS_MAX, "workers, 1 to 64; required" },
	{ "key", SECRET, AT(key), 0, 0,
	  "@FILE that holds the job's secret key, as thcctl genkey makes it; required with seal=nh" },
	{ "scheme", SCHEME, AT(scheme), 0, 0,
	  "how gradients become sums:" THC_SCHEMES(WORD) "; default thc" },
	{ "precision", PRECISION, AT(precision), 0, 0,
	  "of floats with scheme=none or lhc: exact, fixed8, fixed16 or fixed32; default exact" },
	{ "grain", NUMBER, AT(grain), 1, THC_GRAIN_MAX,
	  "with scheme=lhc: values in a row that are sent if any of them is not zero, a power of "
	  "two, 1 to 256; default 1" },
	{ "sketch", SKETCH, AT(sketch), 0, 0,
	  "with scheme=lhc: values of sparse buckets as a count sketch beside their index, which "
	  "takes one round trip: of three hashes, or four that are coupled: off, three or coupled; "
	  "default off" },
	{ "rotate", SWITCH_ON, AT(rotate), 0, 0,
	  "rotation of blocks before they are compressed, on or off; default on" },
	{ "table", TABLE, AT(table), 0, 0,
	  "auto, uniform, the levels T[0]:T[1]:..., or @FILE that holds them; default auto" },
	{ "bits", NUMBER, AT(bits), 1, THC_BITS_MAX, "bits of an index, 1 to 8; default 4" },
	{ "granularity", NUMBER, AT(granularity), 1, THC_TABLE_GRANULARITY_MAX,
	  "steps of the table's grid, max(T); default: the best that fits" },
	{ "clamp", FRACTION, AT(clamp), 0, 0,
	  "fraction of coordinates that are clamped, as 1/32 or 0.03125; default: the best, or "
	  "1/32 for levels" },
	{ "feedback", SWITCH_ON, AT(feedback), 0, 0,
	  "choose a table for gradients with error feedback, on or off; default on" },
	{ "sum_width", WIDTH, AT(sum_width), 0, 0,
	  "bits of a sum: auto, 4, 8, 16 or 32; default auto: 8, or more if they do not fit" },
	{ "block", NUMBER, AT(block), 1 << THC_BLOCK_LOG2_MIN, 1 << THC_BLOCK_LOG2_MAX,
	  "coordinates rotated together, a power of two, 1024 to 1048576; default 1024" },
	{ "slots", NUMBER, AT(slots), 1, THC_SLOTS_MAX - 1,
	  "chunks of data in flight; default 512" },
	{ "norm_slots", NUMBER, AT(control_slots), 1, THC_SLOTS_MAX - 1,
	  "chunks of block scales, and of an index, in flight; default 64, with scheme=lhc 256" },
	{ "reply", REPLY, AT(reply), 0, 0, "multicast or fanout; default multicast" },
	{ "group", TEXT, AT(group), 0, 0,
	  "multicast address of answers; default in 239.84.0.0/16 or ff15::7468:0:0/96, from "
	  "the aggregator's address and the job's number" },
	{ "group_port", NUMBER, AT(group_port), THC_PORT_UNPRIVILEGED, 65535,
	  "UDP port of the group, 1024 or more; default: base port + 64" },
	{ "prefix", PREFIX, AT(prefix), 0, 0,
	  "addresses that may join, as 10.0.0.0/24, or any; may be repeated; default: the "
	  "subnets of the interface" },
	{ "shards", SHARDS, AT(aggregator), 0, 0,
	  "the job's aggregators in the order of their numbers, as 10.0.0.1, 10.0.0.2:9100 or "
	  "[fd00::3]:9100, up to 64: they share its chunks, and each is told the same; default: "
	  "this one alone" },
	{ "shard", NUMBER, AT(shard), 0, THC_SHARDS_MAX - 1,
	  "number of this aggregator among shards, from 0; required with shards" },
	{ "hops", NUMBER, AT(hops), 0, THC_TTL - 1,
	  "routers between a worker and the aggregator, at most; default: any number" },
	{ "quorum", NUMBER, AT(quorum), 1, THC_RANKS_MAX,
	  "least contributors of a chunk that a deadline closes" },
	{ "deadline_ms", NUMBER, AT(deadline_ms), 1, 3600 * 1000,
	  "age in ms at which a chunk that has its quorum is closed; default: never" },
	{ "seed", NUMBER, AT(seed), 0, UINT64_MAX,
	  "seed of rotations and rounding; default: derived from job and key" },
	{ "seal", SEAL, AT(seal), 0, 0,
	  "what packets are sealed by: nh needs a key, sum guards against corruption alone, none; "
	  "default nh" },
	{ "correlated", SWITCH_ON, AT(correlated), 0, 0,
	  "correlated stochastic rounding, on or off; default on" },
	{ "rate", RATE, AT(rate), 250, 24000,
	  "bits of an index follow the norms of blocks: bits a coordinate, up and down together, "
	  "that all-reduces aim at, 0.25 to 24; or auto: a third of those of the table, where "
	  "clients with error feedback find that it takes less time; or fixed: all blocks have "
	  "the bits of the table; default auto, or fixed where a table is asked for" },
	{ "error", MILLIONTHS, AT(error), 1, 500000,
	  "as rate, but the error that all-reduces aim at, 1e-6 to 0.5 of the gradient's square" },
};

#undef AT
#define AT(field) offsetof(struct thcd_config, field), sizeof(((struct thcd_config *)0)->field)
#define TEXT_OF(number) #number
#define PORTS(number) ": an aggregator owns " TEXT_OF(number) " ports from it on"

static const struct key settings[] = {
	{ "interface", STRING, AT(interface), 0, 0, "" },
	{ "mode", MODE, AT(mode), 0, 0, "" },
	{ "software", SWITCH_ON, AT(software), 0, 0, "" },
	{ "simd", SWITCH_OFF, AT(no_simd), 0, 0, "" },
	{ "force", SWITCH_ON, AT(force), 0, 0, "" },
	{ "listen", LISTEN, AT(listen), 0, 0, "" },
	{ "port", RANGE, AT(port), 1, 65535 - THC_PORT_SPAN, PORTS(THC_PORT_SPAN) },
	{ "instance", INSTANCE, AT(instance), 0, 0, "" },
	{ "control", STRING, AT(control), 0, 0, "" },
	{ "control_group", STRING, AT(control_group), 0, 0, "" },
	{ "pidfile", STRING, AT(pidfile), 0, 0, "" },
	{ "spare_slots", RANGE, AT(spare_slots), 0, THCD_SPARE_SLOTS_MAX, "" },
};

#define JOB_KEYS (sizeof(job_keys) / sizeof(job_keys[0]))
#define SETTINGS (sizeof(settings) / sizeof(settings[0]))
_Static_assert(JOB_KEYS <= 64, "thcd_job_wish.given has a bit per key");

const char *thcd_job_key(unsigned int i, const char **meaning)
{
	if (i >= JOB_KEYS)
		return NULL;
	if (meaning)
		*meaning = job_keys[i].meaning;
	return job_keys[i].name;
}

static const struct key *find_key(const struct key *keys, size_t count, const char *name)
{
	for (; count; keys++, count--)
		if (!strcmp(keys->name, name))
			return keys;
	return NULL;
}

bool thcd_job_wish_given(const struct thcd_job_wish *w, const char *name)
{
	const struct key *k = find_key(job_keys, JOB_KEYS, name);

	return k && w->given & 1ULL << (k - job_keys);
}

void thcd_job_wish_init(struct thcd_job_wish *w)
{
	memset(w, 0, sizeof(*w));
	w->bits = 4;
	w->block = 1024;
	w->slots = 512;
	w->control_slots = 64;
	w->clamp = 1.0 / 32;
	w->reply = THC_REPLY_MULTICAST;
	w->seal = THC_SEAL_NH;
	w->correlated = true;
	w->feedback = true;
	w->rotate = true;
}

/* 1/32 or 0.03125 */
static int set_fraction(double *field, const struct key *k, const char *value, struct thcd_error *e)
{
	const char *part = value;
	double over, below = 1;
	char *end;

	over = strtod(part, &end);
	if (end != part && *end == '/') {
		part = end + 1;
		below = strtod(part, &end);
	}
	*field = over / below;
	if (end == part || *end || !(below > 0 && *field > 0 && *field < 1))
		return thcd_fail(e, "%s: \"%s\" is not a fraction between 0 and 1, as 1/32",
				 k->name, value);
	return 0;
}

/* Stores a decimal number in units of 1/@parts. */
static int set_parts(u32 *field, const struct key *k, const char *value, u32 parts,
		     struct thcd_error *e)
{
	char *end;
	double n = rint(strtod(value, &end) * parts);

	if (end == value || *end || !(n >= (double)k->min && n <= (double)k->max))
		return thcd_fail(e, "%s: \"%s\" is not a number from %g to %g (%s)", k->name, value,
				 (double)k->min / parts, (double)k->max / parts, k->meaning);
	*field = (u32)n;
	return 0;
}

static int set_rate(u32 *field, const struct key *k, const char *value, struct thcd_error *e)
{
	if (!strcmp(value, "auto") || !strcmp(value, "fixed")) {
		*field = *value == 'a' ? THCD_RATE_AUTO : 0;
		return 0;
	}
	return set_parts(field, k, value, 1000, e);
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
	if (*value == '@')
		return thcd_table_read(w, value + 1, e);
	w->table = THCD_TABLE_LIST;
	for (w->values = 0; w->values < THC_TABLE_LEVELS_MAX; at++) {
		char *end;
		unsigned long v = strtoul(at, &end, 10);

		if (*at < '0' || *at > '9' || v > THC_TABLE_GRANULARITY_MAX)
			return thcd_fail(e,
					 "table: \"%s\" is not a level; give auto, uniform, levels "
					 "from 0 to %d as 0:3:5:..., or @FILE",
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

static void store(void *field, const struct key *k, u64 value)
{
	if (k->size == sizeof(bool))
		*(bool *)field = value;
	else if (k->size == sizeof(u32))
		*(u32 *)field = value;
	else
		*(u64 *)field = value;
}

static int set_choice(void *field, const struct key *k, const char *value, struct thcd_error *e)
{
	const struct choice *c = choices[k->syntax];
	char others[64] = "";
	int i;

	for (i = 0; i < WORDS_MAX && c[i].word; i++) {
		if (!strcmp(value, c[i].word)) {
			store(field, k, c[i].value);
			return 0;
		}
		if (i)
			sprintf(others + strlen(others), " nor %s", c[i].word);
	}
	return thcd_fail(e, "%s: \"%s\" is neither %s%s", k->name, value, c[0].word, others);
}

static int set_number(void *field, const struct key *k, const char *value, struct thcd_error *e)
{
	u64 n;

	if (thcd_number_parse(value, &n))
		return thcd_fail(e, "%s: \"%s\" is not a number (%s)", k->name, value, k->meaning);
	if (n < k->min || n > k->max)
		return thcd_fail(e, "%s: %s is out of range, %llu to %llu (%s)", k->name, value,
				 (unsigned long long)k->min, (unsigned long long)k->max,
				 k->meaning);
	store(field, k, n);
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

/* Every user could read a key on the command line, and a configuration is often shared. */
static int set_secret(u8 key[THC_KEY_BYTES], const char *value, struct thcd_error *e)
{
	if (*value != '@')
		return thcd_fail(e, "key: only a file can hold it: make one with thcctl genkey "
				    "FILE, and give key=@FILE");
	return thcd_secret_read(value + 1, key, e);
}

static int no_such_key(const char *key, struct thcd_error *e)
{
	if (!strcmp(key, "cookie"))
		return thcd_fail(e, "cookie: cookies are gone: make a key with thcctl genkey FILE, "
				    "and give key=@FILE");
	if (!strcmp(key, "sum"))
		return thcd_fail(e, "sum: give seal=none for what was sum=off");
	return thcd_fail(e, "unknown key \"%s\" of a job; thcd --help lists them", key);
}

static int add_shard(struct thcd_job_wish *w, const struct key *k, const char *value,
		     struct thcd_error *e)
{
	if (w->aggregators == THC_SHARDS_MAX)
		return thcd_fail(e, "%s: a job has at most %d aggregators", k->name,
				 THC_SHARDS_MAX);
	if (set_word(w->aggregator[w->aggregators], k, value, e))
		return -1;
	w->aggregators++;
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

bool thcd_job_key_is_list(const char *key)
{
	const struct key *k = find_key(job_keys, JOB_KEYS, key);

	return k && (k->syntax == PREFIX || k->syntax == SHARDS);
}

int thcd_job_wish_set(struct thcd_job_wish *w, const char *key, const char *value,
		      struct thcd_error *e)
{
	const struct key *k = find_key(job_keys, JOB_KEYS, key);
	void *field;
	int err;

	if (!k)
		return no_such_key(key, e);
	if (!thcd_job_key_is_list(key) && thcd_job_wish_given(w, key))
		return thcd_fail(e, "%s is given twice", key);
	field = (char *)w + k->offset;
	switch (k->syntax) {
	case NUMBER:
		err = set_number(field, k, value, e);
		break;
	case SECRET:
		err = set_secret(field, value, e);
		break;
	case FRACTION:
		err = set_fraction(field, k, value, e);
		break;
	case RATE:
		err = set_rate(field, k, value, e);
		break;
	case MILLIONTHS:
		err = set_parts(field, k, value, 1000000, e);
		break;
	case TABLE:
		err = parse_table(w, value, e);
		break;
	case SCHEME:
		err = set_scheme(w, k, value, e);
		break;
	case TEXT:
		err = set_word(field, k, value, e);
		break;
	case PREFIX:
		err = add_prefix(w, k, value, e);
		break;
	case SHARDS:
		err = add_shard(w, k, value, e);
		break;
	default:
		err = set_choice(field, k, value, e);
	}
	if (!err)
		w->given |= 1ULL << (k - job_keys);
	return err;
}

int thcd_config_job(struct thcd_config *c, const char *text, struct thcd_error *e)
{
	struct thcd_job_wish *w;
	const char *last = NULL;
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
		const char *key = part == copy			  ? "job" :
				  last && !strcmp(last, "shards") ? last :
								    NULL;

		if (value) {
			*value++ = '\0';
			key = last = part;
		}
		err = key ? thcd_job_wish_set(w, key, value ? value : part, e) :
			    thcd_fail(e, "--job: \"%s\" is not key=value", part);
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

const char *thcd_config_difference(const struct thcd_config *a, const struct thcd_config *b,
				   unsigned int *at)
{
	while (*at < SETTINGS) {
		const struct key *k = &settings[(*at)++];

		if (memcmp((const char *)a + k->offset, (const char *)b + k->offset, k->size))
			return k->name;
	}
	return NULL;
}

/* Bytes behind the text become zero, so that thcd_config_difference() finds no difference there. */
static int set_string(char *field, size_t size, const struct key *k, const char *value,
		      struct thcd_error *e)
{
	if (!*value || strlen(value) >= size)
		return thcd_fail(e, "%s: \"%s\" is not a text of 1 to %zu characters", k->name,
				 value, size - 1);
	strncpy(field, value, size);
	return 0;
}

/* An instance becomes a directory of bpffs and a file name of /run/thc. */
static int set_instance(char *field, const struct key *k, const char *value, struct thcd_error *e)
{
	if (strlen(value) > 63 || value[0] == '.' || strchr(value, '/'))
		return thcd_fail(e,
				 "instance: \"%s\" is not a name of 1 to 63 characters without "
				 "'/' that does not begin with '.'",
				 value);
	return set_string(field, k->size, k, value, e);
}

static int set_range(u32 *field, const struct key *k, const char *value, struct thcd_error *e)
{
	u64 n;

	if (thcd_number_parse(value, &n) || n < k->min || n > k->max)
		return thcd_fail(e, "%s: \"%s\" is not a number from %llu to %llu%s", k->name,
				 value, (unsigned long long)k->min, (unsigned long long)k->max,
				 k->meaning);
	*field = n;
	return 0;
}

int thcd_config_set(struct thcd_config *c, const char *key, const char *value, struct thcd_error *e)
{
	const struct key *k = find_key(settings, SETTINGS, key);
	void *field;

	if (!k)
		return thcd_fail(e, "unknown key \"%s\"; thcd(8) lists them, under FILES", key);
	field = (char *)c + k->offset;
	switch (k->syntax) {
	case STRING:
		return set_string(field, k->size, k, value, e);
	case INSTANCE:
		return set_instance(field, k, value, e);
	case LISTEN:
		if (c->listens == THCD_LISTEN_MAX)
			return thcd_fail(e, "listen: more than %d addresses", THCD_LISTEN_MAX);
		return set_string(c->listen[c->listens++], THCD_NAME_MAX, k, value, e);
	case RANGE:
		return set_range(field, k, value, e);
	default:
		return set_choice(field, k, value, e);
	}
}
