// SPDX-License-Identifier: GPL-2.0
/*
 * Fuzzes what an operator writes: a configuration file, or --job. An input is such a
 * text, or a list of keys and values that are made into one. What is refused has a
 * sentence. What is accepted is a job that workers can join:
 *	- libthc takes the WELCOME that thcd would send to any of its ranks, finds the
 *	  table's hash right and sets up its codec; no sum overflows its lane;
 *	- no port of the group is one of the aggregator's;
 *	- the job, written down as keys or as JSON, gives the job again when it is read.
 * The solver of tables takes up to a second for one table: where it does, evenly spread
 * levels stand for it (unit/test_table is about the solver).
 */
#include <arpa/inet.h>
#include <stdarg.h>

#include <thc/names.h>
#include <thc/wire/announce.h>
#include <thc/wire/shards.h>
#include <thc/worker/parts.h>

#include "client.h"
#include "scheme_thc.h"
#include "fuzz.h"
#include "table.h"

static int quick_choice(const struct thc_table_wish *w, struct thc_table *out);

#define thc_table_choose quick_choice
#include "../../userspace/thcd/plan_table.c"
#undef thc_table_choose

#include "jobs.h"
#include "net.h"
#include "../../userspace/aggregator/report.h"
#include "join.h"
#include "keys.h"

/* Granularities that are solved, and rank counts that a table is chosen for. */
#define SOLVED_MAX	24
#define CHOSEN_MAX	2

/* A clamp fraction for tables that are not chosen. */
#define CLAMP		0.03

enum {
	REFUSED_JSON,
	REFUSED_KEYS,
	REFUSED_PLAN,
	SETTINGS,
	JOINABLE,
	MULTICAST,
	FANOUT,
	WIDE_SUMS,
	OWN_LEVELS,
	LINEAR,
	FEW_BITS,
	MANY_BITS,
	NARROW_SUMS,
	SCHEME_NONE,
	SCHEME_UTHC,
	SCHEME_LHC,
	WITH_GRAIN,
	WITH_SKETCH,
	UNROTATED,
	WITH_PREFIX,
	WITH_SHARDS,
	WITH_DEADLINE,
	WITH_RATE,
	WITHOUT_KEY,
	SEVERAL_JOBS,
	OUTCOMES
};

static struct outcome reached[OUTCOMES] = {
	[REFUSED_JSON] = { "refused JSON", 0 },
	[REFUSED_KEYS] = { "refused keys", 0 },
	[REFUSED_PLAN] = { "refused plans", 0 },
	[SETTINGS] = { "settings", 0 },
	[JOINABLE] = { "joinable jobs", 0 },
	[MULTICAST] = { "multicast", 0 },
	[FANOUT] = { "fanout", 0 },
	[WIDE_SUMS] = { "16-bit and 32-bit sums", 0 },
	[NARROW_SUMS] = { "4-bit sums", 0 },
	[FEW_BITS] = { "1 to 3 bits", 0 },
	[MANY_BITS] = { "5 to 8 bits", 0 },
	[SCHEME_NONE] = { "scheme none", 0 },
	[SCHEME_UTHC] = { "scheme uthc", 0 },
	[SCHEME_LHC] = { "scheme lhc", 0 },
	[WITH_GRAIN] = { "a grain", 0 },
	[WITH_SKETCH] = { "sketches", 0 },
	[UNROTATED] = { "not rotated", 0 },
	[OWN_LEVELS] = { "levels given", 0 },
	[LINEAR] = { "linear tables", 0 },
	[WITH_PREFIX] = { "prefixes", 0 },
	[WITH_SHARDS] = { "several aggregators", 0 },
	[WITH_DEADLINE] = { "deadlines", 0 },
	[WITH_RATE] = { "rates and errors", 0 },
	[WITHOUT_KEY] = { "without a key", 0 },
	[SEVERAL_JOBS] = { "several jobs", 0 },
};

/* --- tables ------------------------------------------------------------------- */

static int quick_table(unsigned int bits, unsigned int granularity, double p, struct thc_table *out)
{
	unsigned int z, levels = bits <= THC_TABLE_BITS_MAX ? 1U << bits : 0;
	uint16_t value[THC_TABLE_LEVELS_MAX];

	if (granularity <= SOLVED_MAX || levels < 2 || granularity > THC_TABLE_GRANULARITY_MAX)
		return thc_table_solve(bits, granularity, p, out);
	for (z = 0; z < levels; z++)
		value[z] = (uint16_t)(z * granularity / (levels - 1));
	return thc_table_from_values(bits, granularity, p, value, out);
}

/* Keeps thc_table_choose()'s promises, except for the least error. */
static int quick_choice(const struct thc_table_wish *w, struct thc_table *out)
{
	static struct {
		bool made;
		int status;
		struct thc_table table;
	} known[CHOSEN_MAX + 1];
	uint64_t most = ((UINT64_C(1) << w->width) - 1) / w->ranks;
	unsigned int n = w->ranks, least = (1U << w->bits) - 1;
	double p = w->p > 0 ? w->p : CLAMP;

	require(w->bits && w->bits <= THC_TABLE_BITS_MAX && n && w->p >= 0 && w->p < 1);
	require(w->granularity <= most && least <= most);
	if (w->granularity)
		return quick_table(w->bits, w->granularity, p, out);
	if (n > CHOSEN_MAX || w->width != 8 || w->bits != 4 || w->p > 0)
		return quick_table(w->bits, most < 300 ? (unsigned int)most : 300, p, out);
	if (!known[n].made) {
		known[n].status = thc_table_choose(w, &known[n].table);
		known[n].made = true;
	}
	*out = known[n].table;
	return known[n].status;
}

/* --- what only a daemon that runs has ---------------------------------------------- */

void thcd_out_put(struct thcd *d, const struct thc_addr *addr, u16 port, const struct thc_hdr *h,
		  const u64 *words, const void *bytes, u32 length)
{
	(void)d, (void)addr, (void)port, (void)h, (void)words, (void)bytes, (void)length;
	abort();
}

int thcd_net_subnets(const struct thcd *d, struct thcd_prefixes *out, struct thcd_error *e)
{
	(void)d, (void)out, (void)e;
	abort();
}

/* --- what a worker makes of it -------------------------------------------------- */

static struct thc_job world_jobs[THC_JOBS_MAX];
static struct thcd_record world_records[THC_JOBS_MAX];
static struct thc_seals world_seals[THC_JOBS_MAX];

/* With a rate a job also has rows of 1 to 6 bits, each with the narrowest sums. */
static void check_rows(const struct thcd_plan *plan, const struct thc_spec *s)
{
	unsigned int bits, n = s->ranks;

	require(s->rate == plan->rate && s->error == plan->error && !(s->rate && s->error));
	require(s->rate_flags == (plan->rate_tried ? THC_RATE_F_TRY : 0));
	bits = plan->bits + thc_widths_sum(&plan->tables.widths, plan->bits);
	require(!plan->rate_tried || plan->rate == 1000 * bits / 3);
	for (bits = 1; bits <= 8; bits++) {
		struct thc_table_row row = thc_spec_row(s, bits);
		unsigned int sum = ((1U << bits) - 1) * n;

		if (bits == s->bits)
			continue;
		require(row.sum_width == (bits > 6 || !(s->rate || s->error) ? 0 :
					  sum < 16			     ? 4 :
					  sum < 256			     ? 8 :
									       16));
		require(!row.sum_width || (uint64_t)row.granularity * n < 1ULL << row.sum_width);
	}
}

static void check_params(const struct thcd_plan *plan, const struct thc_spec *s, u32 rank)
{
	const struct thc_client_options o = {
		.rank = (u16)rank, .key = plan->seal == THC_SEAL_NH ? plan->key : NULL,
	};
	struct thc_codec codec;
	struct thc_table table;

	require(thc_spec_is_sound(s, rank, !!o.key) && !thc_spec_is_sound(s, rank, !o.key));
	require(!thc_job_check(s, &o) && !thc_table_read(s, &table));
	require(thc_table_hash(&table) == plan->table_hash);
	require(!thc_codec_init(&codec, &table, s->block_log2, s->seed, THC_SIMD_SCALAR));
	require(!thc_codec_set_correlated(&codec, s->ranks));
	thc_codec_exit(&codec);
	require(s->seed == plan->seed && s->ranks == plan->ranks && s->reply == plan->reply);
	require((uint64_t)table.granularity * s->ranks < UINT64_C(1) << thc_spec_sum_width(s));
	require(s->bits == plan->bits && s->scheme == plan->scheme);
	check_rows(plan, s);
	require(s->value_bits == plan->value_bits);
	require((s->grain ? s->grain : 1) == 1U << plan->grain_log2);
	require((s->scheme_features & ~THC_SCHEME_F_UNROTATED) == plan->sketch);
	require(1U << s->block_log2 >= THC_COORDINATES(thc_spec_sum_width(s)));
	require(s->deadline_ms == plan->deadline_ms);
	require(s->quorum >= 1 && s->quorum <= s->ranks);
}

/* A worker reads @a, part by part. */
static void read_back(struct thc_announcement *a, struct thc_spec *spec, struct thc_shards *shards)
{
	static struct thc_parts p;
	_Alignas(8) u8 part[THC_WELCOME_BYTES];
	u32 at = 0, bytes;
	int whole;

	thc_parts_begin(&p);
	do {
		require(!thc_parts_whole(&p));
		bytes = thc_announce_part(a, part, &at);
		require(!thc_parts_form((void *)part, bytes));
		whole = thc_parts_add(&p, 1, (void *)part, bytes);
	} while (at < a->bytes);
	require(whole);
	require(thc_spec_read(spec, &p.info.welcome, p.record, p.info.bytes));
	thc_shards_read(shards, spec, p.record, p.info.bytes);
}

/* Number 0 of several aggregators lists all; the others name their number. */
static void check_shards(const struct thcd_plan *plan, const struct thc_spec *s,
			 const struct thc_shards *told)
{
	const struct thc_shards *all = &plan->shards;
	u32 i;

	require(s->shards == (all->count ? all->count : 1) && s->shard == all->own);
	require(told->count == (all->count > 1 && !all->own ? all->count : 0));
	for (i = 0; i < told->count; i++)
		require(thc_addr_equal(&told->at[i].addr, &all->at[i].addr) &&
			told->at[i].port == all->at[i].port);
}

static void check_joinable(const struct thcd_plan *plan, u16 port)
{
	struct thcd d = {
		.job = world_jobs, .record = world_records, .seals = world_seals, .port = port,
	};
	static const u8 nonce[THC_NONCE_BYTES] = { 1 };
	static struct thc_announcement a;
	struct thc_job *job = &world_jobs[plan->job];
	char text[THCD_TEXT_MAX];
	struct thc_shards told;
	struct thc_spec spec;

	thcd_job_create(&d, plan);
	require(job->active && job->epoch && !job->joined);
	require(thc_seals_up(&world_seals[plan->job], job->epoch)->id);
	world_records[plan->job].ready = 1;
	thcd_spec_fill(&spec, job, &world_records[plan->job], 0);
	thc_announce(&a, &spec, &plan->shards, nonce);
	read_back(&a, &spec, &told);
	check_shards(plan, &spec, &told);
	check_params(plan, &spec, 0);
	check_params(plan, &spec, plan->ranks - 1U);
	require(plan->group_port < port || plan->group_port >= port + THC_PORT_SPAN);
	thcd_job_describe(plan, text, sizeof(text));
	require(*text);
}

/* --- once more, from what was understood ---------------------------------------- */

/* A plan as keys. */
struct text {
	bool	json;
	bool	begun;	/* a key has been written */
	size_t	used;
	char	at[8192];
};

__attribute__((format(printf, 3, 4))) static void put(struct text *t, const char *key,
						      const char *format, ...)
{
	char value[THC_TABLE_LEVELS_MAX * 6];
	va_list ap;
	int n;

	va_start(ap, format);
	vsnprintf(value, sizeof(value), format, ap);
	va_end(ap);
	n = snprintf(t->at + t->used, sizeof(t->at) - t->used,
		     t->json ? "%s\"%s\": \"%s\"" : "%s%s=%s", t->begun ? "," : "", key, value);
	require(n > 0 && (size_t)n + 4 < sizeof(t->at) - t->used);
	t->used += (size_t)n;
	t->begun = true;
}

static void put_table(struct text *t, const struct thcd_plan *plan)
{
	char levels[THC_TABLE_LEVELS_MAX * 6];
	int i, n = 0;

	for (i = 0; i < 1 << plan->bits; i++)
		n += snprintf(levels + n, sizeof(levels) - (size_t)n, "%s%u", i ? ":" : "",
			      thcd_plan_row(plan).level[i]);
	put(t, "bits", "%u", plan->bits);
	if (plan->scheme == THC_SCHEME_UTHC)
		put(t, "table", "uniform");
	else
		put(t, "table", "%s", levels);
}

/* Item @i of a list in JSON; as a key it is repeated. */
static void put_item(struct text *t, const char *key, u32 i, const char *item)
{
	if (!t->json)
		put(t, key, "%s", item);
	else if (i)
		t->used += (size_t)sprintf(t->at + t->used, ", \"%s\"", item);
	else
		t->used += (size_t)sprintf(t->at + t->used, "%s\"%s\": [\"%s\"",
					   t->begun ? ", " : "", key, item);
}

static void end_items(struct text *t, u32 count)
{
	if (!t->json || !count)
		return;
	t->used += (size_t)sprintf(t->at + t->used, "]");
	t->begun = true;
}

/* Without prefixes the aggregator's subnets count. */
static void put_prefixes(struct text *t, const struct thcd_prefixes *p)
{
	char name[THC_PREFIX_TEXT];
	u32 i;

	for (i = 0; i < p->count; i++) {
		thc_prefix_text(&p->at[i], name);
		put_item(t, "prefix", i, name);
	}
	end_items(t, p->count);
}

static void put_shards(struct text *t, const struct thc_shards *s)
{
	char address[INET6_ADDRSTRLEN], name[INET6_ADDRSTRLEN + 8];
	u32 i;

	for (i = 0; i < s->count; i++) {
		bool is_ip4 = thc_addr_is_v4(&s->at[i].addr);

		inet_ntop(is_ip4 ? AF_INET : AF_INET6,
			  is_ip4 ? &s->at[i].addr.word[3] : s->at[i].addr.word, address,
			  sizeof(address));
		snprintf(name, sizeof(name), is_ip4 ? "%s:%u" : "[%s]:%u", address,
			 thc_be16(s->at[i].port));
		put_item(t, "shards", i, name);
	}
	end_items(t, s->count);
	if (s->count)
		put(t, "shard", "%u", s->own);
}

static void put_addresses(struct text *t, const struct thcd_plan *plan)
{
	char name[INET6_ADDRSTRLEN];

	put_prefixes(t, &plan->admits);
	put_shards(t, &plan->shards);
	if (plan->ttl_min)
		put(t, "hops", "%u", THC_TTL - plan->ttl_min);
	put(t, "reply", "%s", plan->reply == THC_REPLY_MULTICAST ? "multicast" : "fanout");
	if (plan->reply != THC_REPLY_MULTICAST)
		return;
	inet_ntop(plan->family == 4 ? AF_INET : AF_INET6,
		  plan->family == 4 ? &plan->group.word[3] : plan->group.word, name, sizeof(name));
	put(t, "group", "%s", name);
	put(t, "group_port", "%u", plan->group_port);
}

static void put_plan(struct text *t, const struct thcd_plan *plan)
{
	char digits[THC_KEY_DIGITS + 1];
	double p;

	memcpy(&p, &plan->p[plan->bits - 1], sizeof(p));
	t->used = (size_t)sprintf(t->at, "%s", t->json ? "{\"jobs\": [{" : "");
	put(t, "job", "%u", plan->job);
	put(t, "ranks", "%u", plan->ranks);
	thc_key_print(digits, plan->key);
	if (plan->seal == THC_SEAL_NH)
		put(t, "key", "@%s", digits);
	put(t, "seed", "0x%llx", (unsigned long long)plan->seed);
	put(t, "scheme", "%s", thc_scheme_name[plan->scheme]);
	if (plan->scheme != THC_SCHEME_UTHC)
		put(t, "clamp", "%.17g", p);
	if (plan->value_bits)
		put(t, "precision", "fixed%u", plan->value_bits);
	if (plan->scheme == THC_SCHEME_LHC)
		put(t, "grain", "%u", 1U << plan->grain_log2);
	if (plan->sketch)
		put(t, "sketch", "%s", plan->sketch & THC_SCHEME_F_COUPLED ? "coupled" : "three");
	put(t, "rotate", "%s", plan->rotate ? "on" : "off");
	put_table(t, plan);
	put_addresses(t, plan);
	put(t, "sum_width", "%u", thcd_plan_row(plan).sum_width);
	put(t, "block", "%u", 1U << plan->block_log2);
	put(t, "slots", "%u", plan->data_slots);
	put(t, "norm_slots", "%u", plan->control_slots);
	if (plan->deadline_ms) {
		put(t, "deadline_ms", "%u", plan->deadline_ms);
		put(t, "quorum", "%u", plan->quorum);
	}
	put(t, "seal", "%s",
	    plan->seal == THC_SEAL_NH  ? "nh" :
	    plan->seal == THC_SEAL_SUM ? "sum" :
					 "none");
	put(t, "correlated", "%s", plan->correlated ? "on" : "off");
	if (plan->rate_tried)
		put(t, "rate", "auto");
	else if (plan->rate)
		put(t, "rate", "%u.%03u", plan->rate / 1000, plan->rate % 1000);
	if (plan->error)
		put(t, "error", "0.%06u", plan->error);
	if (t->json)
		strcat(t->at, "}]}");
}

static void check_reread(const struct thcd_plan *plan, const struct thc_addr *address, u16 port,
			 bool json)
{
	static struct thcd_config c;
	struct text t = { .json = json };
	struct thcd_error note, e = { "" };
	struct thcd_plan again;
	int error;

	put_plan(&t, plan);
	thcd_config_init(&c);
	error = json ? thcd_config_text(&c, "again", t.at, &e) : thcd_config_job(&c, t.at, &e);
	if (!error)
		error = thcd_plan_make(&again, &c.job[0], address, port, &note, &e);
	if (error)
		fprintf(stderr, "%s\n%s\n", t.at, e.text);
	require(!error && c.jobs == 1);
	require(!memcmp(&again, plan, sizeof(again)));
}

/* --- jobs of an input ------------------------------------------------------------- */

static void count(const struct thcd_plan *plan, const struct thcd_job_wish *w)
{
	reached[JOINABLE].times++;
	reached[plan->reply == THC_REPLY_MULTICAST ? MULTICAST : FANOUT].times++;
	reached[WIDE_SUMS].times += thcd_plan_row(plan).sum_width >= 16;
	reached[NARROW_SUMS].times += thcd_plan_row(plan).sum_width == 4;
	reached[FEW_BITS].times += plan->bits < 4;
	reached[MANY_BITS].times += plan->bits > 4;
	reached[SCHEME_NONE].times += plan->scheme == THC_SCHEME_NONE;
	reached[SCHEME_UTHC].times += plan->scheme == THC_SCHEME_UTHC;
	reached[SCHEME_LHC].times += plan->scheme == THC_SCHEME_LHC;
	reached[WITH_GRAIN].times += plan->grain_log2 > 0;
	reached[WITH_SKETCH].times += !!plan->sketch;
	reached[UNROTATED].times += !plan->rotate;
	reached[OWN_LEVELS].times += w->table == THCD_TABLE_LIST;
	reached[LINEAR].times += thc_tables_linear(&plan->tables);
	reached[WITH_PREFIX].times += !!plan->admits.count;
	reached[WITH_SHARDS].times += plan->shards.count > 1;
	reached[WITH_DEADLINE].times += !!plan->deadline_ms;
	reached[WITH_RATE].times += plan->rate || plan->error;
	reached[WITHOUT_KEY].times += plan->seal != THC_SEAL_NH;
}

static void check_job(const struct thcd_job_wish *w, const struct thc_addr *address, u16 port,
		      bool json)
{
	struct thcd_error note, e = { "" };
	struct thcd_plan plan;

	if (thcd_plan_make(&plan, w, address, port, &note, &e)) {
		require(*e.text);
		reached[REFUSED_PLAN].times++;
		return;
	}
	check_joinable(&plan, port);
	check_reread(&plan, address, port, json);
	count(&plan, w);
}

static void check_settings(const struct thcd_config *c)
{
	require(c->port >= 1 && c->port + THC_PORT_SPAN <= 65535);
	require(c->listens <= THCD_LISTEN_MAX && c->jobs <= THC_JOBS_MAX);
	require(!strchr(c->instance, '/'));
	reached[SETTINGS].times += *c->interface || *c->instance || *c->control || c->listens;
	reached[SEVERAL_JOBS].times += c->jobs > 1;
}

/* --- texts out of bytes ------------------------------------------------------------ */

static const char *const values[] = {
	"1", "2", "3", "4", "8", "15", "16", "17", "64", "65", "0", "255", "256", "1023", "1024",
	"1025", "4096", "1048576", "2097152", "18500", "18563", "18564", "65535", "65536", "0x1f",
	"0xffffffffffffffff", "18446744073709551616", "on", "off", "auto", "uniform", "multicast",
	"fanout", "1/32", "1/3", "0.5", "1e-12", "1e-13", "1e-14", "1e-15", "1e-300", "0.99",
	"0.999999", "1", "1e-320/1e-3", "10.0.0.0/24", "10.0.0.1", "0.0.0.0/0", "::/0",
	"fd77::/64", "::ffff:10.0.0.0/100", "::ffff:10.0.0.0/64", "10.0.0.0/33", "10.0.0.0/",
	"239.1.2.3", "224.0.0.1", "223.255.255.255", "240.0.0.1", "ff15::7468:1:2", "ff02::1",
	"0:1:2:3:4:5:6:7:8:9:10:11:12:13:14:15", "0:1", "0:3", "0:1:2:4", "0:2:1:4", "1:2",
	"0:1:2:3:4:5:6:4096", "0:1:2:3:4:5:6:7:8:9:10:11:12:13:14:4095", "", "-1", "+1", " 1",
};

#define VALUES (sizeof(values) / sizeof(values[0]))

static unsigned int keys(void)
{
	unsigned int n = 0;

	while (thcd_job_key(n, NULL))
		n++;
	return n;
}

/* Fitting values of a key; other keys get a value of the list above. */
static const struct {
	const char *key;
	const char *value[6];
} fitting[] = {
	{ "table",
	  { "auto", "uniform", "0:1:2:3:4:5:6:7:8:9:10:11:12:13:14:15", "0:1", "0:1:2:4",
	    "0:1:2:3:4:5:6:7:8:9:10:11:12:13:14:60" } },
	{ "bits", { "1", "2", "3", "5", "6", "8" } },
	{ "scheme", { "thc", "none", "uthc", "lhc", "lhc", "dhc" } },
	{ "precision", { "exact", "fixed8", "fixed16", "fixed32" } },
	{ "grain", { "1", "3", "64", "256", "257" } },
	{ "sketch", { "off", "three", "coupled", "four" } },
	{ "rotate", { "on", "off" } },
	{ "feedback", { "on", "off" } },
	{ "granularity", { "15", "16", "20", "30", "60", "255" } },
	{ "clamp", { "1/32", "0.01", "1e-9", "0.5", "1e-13", "0.9999" } },
	{ "sum_width", { "auto", "4", "8", "16", "32" } },
	{ "block", { "1024", "2048", "4096", "8192", "65536", "1048576" } },
	{ "slots", { "1", "64", "512", "4032", "4095" } },
	{ "norm_slots", { "1", "64", "512", "4095" } },
	{ "reply", { "multicast", "fanout" } },
	{ "group", { "239.1.2.3", "ff15::7468:1:2", "224.0.0.1", "ff02::1" } },
	{ "group_port", { "1023", "1024", "7000", "18563", "18564", "65535" } },
	{ "prefix", { "10.0.0.0/24", "10.0.0.1", "0.0.0.0/0", "::/0", "fd77::/64", "::1" } },
	{ "shards",
	  { "10.77.0.1", "10.77.0.1,10.77.0.2:7000", "10.77.0.1,10.77.0.2,10.77.0.3", "fd77::1",
	    "[fd77::1]:7000,fd77::2", "10.77.0.1,fd77::1" } },
	{ "shard", { "0", "1", "2" } },
	{ "quorum", { "1", "2", "3" } },
	{ "deadline_ms", { "1", "100", "3600000" } },
	{ "key", { "@1", "@2", "@fedcba9876543210", "@", "@none", "1" } },
	{ "seed", { "0", "1", "18446744073709551615" } },
	{ "seal", { "nh", "sum", "none" } },
	{ "correlated", { "on", "off" } },
	{ "rate", { "4", "0.25", "24", "auto", "fixed", "nan" } },
	{ "error", { "0.001", "1e-6", "0.5", "0.4999999", "1e-7", "1" } },
};

static const char *fitting_value(const char *key, uint8_t which)
{
	size_t i;

	for (i = 0; i < sizeof(fitting) / sizeof(fitting[0]); i++)
		if (!strcmp(fitting[i].key, key))
			return fitting[i].value[which % 6];
	return NULL;
}

/* A value: a fitting one, one of the list, a number, or bytes of the input. */
static const char *some_value(struct input *in, const char *key, char *room, size_t size)
{
	uint8_t what = next(in);
	const char *fits = fitting_value(key, what);
	size_t i, n;

	if (what & 0x80 && fits)
		return fits;
	what = next(in);
	if (what < VALUES)
		return values[what];
	if (what < 180) {
		snprintf(room, size, "%llu", (unsigned long long)next_bytes(in, 1 + what % 4));
		return room;
	}
	n = what % 24;
	for (i = 0; i < n; i++)
		room[i] = (char)next(in);
	room[n] = '\0';
	return room;
}

/* Keys with values, mostly fitting; required keys are mostly there. */
static void make_job(struct input *in, char *out, size_t size)
{
	uint8_t first = next(in), ranks = next(in);
	unsigned int n = first % 8, known = keys();
	char room[32];
	int used;

	used = snprintf(out, size, "%u", first >> 4);
	if (ranks != 255)
		used += snprintf(out + used, size - (size_t)used, ",ranks=%u", ranks % 70);
	if (first % 16 == 15)
		used += snprintf(out + used, size - (size_t)used, ",seal=sum");
	else if (first != 254)
		used += snprintf(out + used, size - (size_t)used, ",key=@%x", ranks + 1U);
	while (n-- && in->left) {
		const char *key = thcd_job_key(next(in) % known, NULL);

		used += snprintf(out + used, size - (size_t)used, ",%s=%s", key,
				 some_value(in, key, room, sizeof(room)));
	}
}

static struct thc_addr some_address(struct input *in)
{
	struct thc_addr a = { { thc_be32(0xfd770000), 0, 0, thc_be32(next(in)) } };

	return next(in) & 1 ? a : thc_addr_v4(thc_be32(0x0a4d0000 | next(in)));
}

/* The rest of the input, as text. */
static char *rest_of(struct input *in)
{
	char *text = malloc(in->left + 1);

	require(text);
	memcpy(text, in->at, in->left);
	text[in->left] = '\0';
	in->left = 0;
	return text;
}

static int read_job(struct thcd_config *c, struct input *in, bool raw, struct thcd_error *e)
{
	char made[1024], *text = raw ? rest_of(in) : NULL;
	int error;

	if (!raw)
		make_job(in, made, sizeof(made));
	error = thcd_config_job(c, raw ? text : made, e);
	free(text);
	if (error)
		reached[REFUSED_KEYS].times++;
	return error;
}

static int read_file(struct thcd_config *c, struct input *in, struct thcd_error *e)
{
	char *text = rest_of(in);
	int error = thcd_config_text(c, "fuzz", text, e);

	free(text);
	if (error)
		reached[REFUSED_JSON].times++;
	return error;
}

static void report(void)
{
	report_outcomes(reached, OUTCOMES, "jobs joinable", reached[JOINABLE].times);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	atexit(report);
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct thcd_config c;
	struct input in = { data, size };
	uint8_t how = next(&in);
	struct thcd_error e = { "" };
	struct thc_addr address;
	int error;
	u32 i;

	begin_input();
	thcd_config_init(&c);
	address = some_address(&in);
	if (how % 4 == 0)
		error = read_file(&c, &in, &e);
	else
		error = read_job(&c, &in, how % 4 == 1, &e);
	/* the base port of a file, or of --port */
	if (!error && how & 8)
		c.port = 1 + (u32)next_bytes(&in, 2) % (65535 - THC_PORT_SPAN);
	require(!error == !*e.text);
	if (!error) {
		check_settings(&c);
		for (i = 0; i < c.jobs; i++)
			check_job(&c.job[i], &address, (u16)c.port, how & 16);
	}
	return 0;
}
