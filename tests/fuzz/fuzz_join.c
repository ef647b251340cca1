// SPDX-License-Identifier: GPL-2.0
/*
 * Fuzzes thcd's control plane with packets and requests: JOIN and LEAVE, data beside
 * them, bytes without a meaning, and lines on the control socket. The daemon's state is
 * plain memory, its socket, clock and XDP program are this file's. A model of who is in
 * which job, written from the protocol's description, follows each packet:
 *	- what is not well-formed, or not entitled, changes nothing in any job, and a JOIN
 *	  that would change something does so with a challenge only that was made for this
 *	  very change;
 *	- epoch, members, their addresses and what settles a job are as the model says;
 *	  an epoch that changes is newer by serial arithmetic;
 *	- a refusal says why, goes to where the JOIN came from and tells nothing else;
 *	- every WELCOME is one that libthc takes, and a reading of its own, with the rank's own
 *	  nonce, and the rows and the rate that the job was described with;
 *	- answers of the control socket are JSON and agree with the model.
 */
#include <netinet/in.h>
#include <stdarg.h>
#include <sys/socket.h>

#include <cjson/cJSON.h>
#include <thc/worker/join.h>

#include "client.h"
#include "scheme_thc.h"
#include "control.h"
#include "fuzz.h"
#include "jobs.h"
#include "join.h"
#include "keys.h"
#include "net.h"
#include "plan.h"
#include "served.h"
#include "xdp.h"

#define JOBS		3
#define RANKS		3	/* the largest number */
#define SLOTS		(JOBS * 6)
#define PORT		18500
#define SENT_MAX	16
#define PACKET_MAX	1200
#define FLOOD		210

enum {
	JOINED,
	JOINED_AGAIN,
	ANSWERED,
	CHALLENGED,
	REPLAYED,
	RESTARTED,
	BEHIND,
	READY,
	RATED,
	TRIED,
	GAVE_UP_GROUP,
	GROUP_AGAIN,
	LEFT_EARLY,
	LEFT,
	NO_JOB,
	NO_RANK,
	NO_PREFIX,
	TAKEN,
	NO_XDP,
	NO_SEAL,
	OLD,
	MUTED,
	FLOODED,
	MALFORMED,
	DATA,
	ASKED,
	OUTCOMES
};

static struct outcome reached[OUTCOMES] = {
	[JOINED] = { "joined", 0 },
	[JOINED_AGAIN] = { "joined again", 0 },
	[ANSWERED] = { "answered a moment ago", 0 },
	[CHALLENGED] = { "challenged", 0 },
	[REPLAYED] = { "recorded", 0 },
	[RESTARTED] = { "restarted", 0 },
	[BEHIND] = { "behind", 0 },
	[READY] = { "ready", 0 },
	[RATED] = { "told of a rate", 0 },
	[TRIED] = { "of one on trial", 0 },
	[GAVE_UP_GROUP] = { "group given up", 0 },
	[GROUP_AGAIN] = { "group tried again", 0 },
	[LEFT_EARLY] = { "left before", 0 },
	[LEFT] = { "left", 0 },
	[NO_JOB] = { "no job", 0 },
	[NO_RANK] = { "no rank", 0 },
	[NO_PREFIX] = { "outside the prefix", 0 },
	[TAKEN] = { "taken", 0 },
	[NO_XDP] = { "no XDP", 0 },
	[NO_SEAL] = { "cannot do the seal", 0 },
	[OLD] = { "version 1", 0 },
	[MUTED] = { "muted", 0 },
	[FLOODED] = { "flooded", 0 },
	[MALFORMED] = { "malformed", 0 },
	[DATA] = { "data", 0 },
	[ASKED] = { "questions", 0 },
};
static uint64_t packets;

/* --- the world ---------------------------------------------------------------- */

static const struct {
	u16 id;
	const char *text;
	bool six;
	u32 rate;	/* thousandths of a bit */
	u32 error;	/* millionths */
	bool tried;
} described[JOBS] = {
	{ 0, "0,ranks=3,key=@11,prefix=10.77.0.0/24,error=0.03", false, 0, 30000, false },
	{ 1, "1,ranks=2,prefix=fd77::/64,reply=fanout,seal=none,rate=auto", true, 4000, 0, true },
	{ 5, "5,ranks=1,key=@33,prefix=10.77.0.0/16", false, 0, 0, false },
};

static struct thcd_plan plans[JOBS];
static struct thc_job world_jobs[THC_JOBS_MAX], before_jobs[THC_JOBS_MAX];
static struct thcd_record world_records[THC_JOBS_MAX], before_records[THC_JOBS_MAX];
static struct thc_slot world_slots[SLOTS];
static struct thc_lanes world_lanes[SLOTS];
static struct thc_pairs world_pairs[THC_ROWS_MAX];
static struct thc_seals world_seals[THC_JOBS_MAX];
static struct thc_member_key welcome_key[JOBS];	/* zero without a secret key */
static struct thcd d;
static uint64_t now_ms = 1000;
static bool flooded;
static u64 heard_until;	/* ns: until then strangers are owed silence, see is_flood() */
static u64 rank_until[JOBS][RANKS], leave_until[JOBS][RANKS];	/* the same for each rank */

/* Packets sent since the last check. */
static struct sent {
	struct thc_addr to;
	u16 port;
	struct thc_hdr h;
	u32 length;
	_Alignas(8) u8 payload[THC_LANE_BYTES];
} sent[SENT_MAX];
static unsigned int sents;

void thcd_out_put(struct thcd *daemon, const struct thc_addr *addr, u16 port,
		  const struct thc_hdr *h, const u64 *words, const void *bytes, u32 length)
{
	struct sent *s = &sent[sents++];

	(void)daemon;
	require(sents <= SENT_MAX && length <= sizeof(s->payload));
	s->to = *addr;
	s->port = port;
	s->h = *h;
	s->length = length;
	if (length)
		memcpy(s->payload, bytes ? bytes : (const void *)words, length);
}

void thcd_out_flush(struct thcd *daemon)
{
	(void)daemon;
}

int thcd_sockaddr_parse(const struct sockaddr *in, struct thc_addr *addr, u16 *port)
{
	(void)in, (void)addr, (void)port;
	abort();
}

int thcd_net_subnets(const struct thcd *daemon, struct thcd_prefixes *out, struct thcd_error *e)
{
	(void)daemon, (void)out, (void)e;
	abort();
}

void thcd_xdp_stats(const struct thcd *daemon, struct thc_stats *stats)
{
	(void)daemon;
	memset(stats, 0, sizeof(*stats));
}

uint64_t thcd_now_ms(void)
{
	return now_ms;
}

static void write_down(const char *format, va_list ap)
{
	char line[THCD_TEXT_MAX];

	require(vsnprintf(line, sizeof(line), format, ap) > 0);
}

#define WRITE_DOWN(format)				\
	do {						\
		va_list ap;				\
		va_start(ap, format);			\
		write_down(format, ap);			\
		va_end(ap);				\
	} while (0)

void thcd_say(const char *format, ...)
{
	WRITE_DOWN(format);
}

bool thcd_say_within(struct thcd_limit *l, const char *format, ...)
{
	(void)l;
	WRITE_DOWN(format);
	return true;
}

int thcd_fail(struct thcd_error *e, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	vsnprintf(e->text, sizeof(e->text), format, ap);
	va_end(ap);
	return -1;
}

/* --- the model ------------------------------------------------------------------ */

struct rank_model {
	bool in;	/* has joined this epoch */
	bool left;
	bool heard;
	struct thc_addr addr;
	u16 port;	/* 0: never joined */
	u64 nonce;
	u64 previous;
	bool entered;	/* has joined this epoch, if only for a while */
	u64 answered;	/* ms: time of the last WELCOME */
};

static struct job_model {
	u32 epoch;
	u32 ranks;
	bool ready;
	bool fallback;
	bool multicast;
	u64 full_since;
	struct rank_model rank[RANKS];
} model[JOBS];

/* The worker's end, which the seals of membership packets cover. */
static struct thc_end end_of(const struct thc_addr *addr, u16 port)
{
	return (struct thc_end){ .addr = *addr, .port = thc_be16(port) };
}

static u8 member_seal_of(int job)
{
	return plans[job].seal == THC_SEAL_NH ? THC_SEAL_NH : THC_SEAL_SUM;
}

static __be64 member_tag(int job, const struct thc_hdr *h, const struct thc_path *path,
			 const void *payload, size_t bytes)
{
	struct thc_end end = end_of(&path->src, path->src_port);

	return thc_member_tag(member_seal_of(job), &world_seals[described[job].id].join, h, &end,
			      payload, (int)(bytes / 8));
}

/* The change that a challenge stands for. */
struct change {
	int job;
	u32 epoch;
	u64 joined;	/* 0: not in this epoch */
	u8 nonce[THC_NONCE_BYTES];
	struct thc_addr addr;
	u16 rank;
	u16 port;
	bool left;
};

/* Challenges of this input; a right challenge is one of them. */
#define ASKED_MAX	512
static struct {
	u8 challenge[THC_CHALLENGE_BYTES];
	struct change change;
	u64 minute;
} asked[ASKED_MAX];
static unsigned int asks;

/* The expected result of a packet. */
struct expected {
	bool admitted;
	bool challenged;
	bool answered;	/* a moment ago: there is no answer */
	struct change change;
	bool refused;
	bool old;	/* in words of version 1 */
	enum thc_refusal why;
	bool newly_ready;
	int job;	/* index of the model, or -1 */
	u16 rank;
	u64 nonce;
	u8 nonce_bytes[THC_NONCE_BYTES];
};

static bool all_in(const struct job_model *m)
{
	u32 r;

	for (r = 0; r < m->ranks; r++)
		if (!m->rank[r].in)
			return false;
	return true;
}

static bool all_heard(const struct job_model *m)
{
	u32 r;

	for (r = 0; r < m->ranks; r++)
		if (!m->rank[r].heard)
			return false;
	return true;
}

/* Have all ranks that joined left a job that had begun? */
static bool run_is_over(const struct job_model *m)
{
	u32 r;

	for (r = 0; r < m->ranks; r++)
		if (m->rank[r].in && !m->rank[r].left)
			return false;
	return m->ready;
}

/* The next epoch has another last bit and is not 0, the epoch of an unused slot. */
static u32 epoch_after(const struct job_model *m, u32 epoch)
{
	for (epoch++; !epoch || epoch % 2 == m->epoch % 2; epoch++)
		;
	return epoch;
}

static bool is_behind(const struct job_model *m, u32 last)
{
	return last && last - m->epoch < 65536;
}

static void model_restart(struct job_model *m, u32 last, int job)
{
	u32 r;

	if (m->fallback && run_is_over(m)) {
		m->fallback = false;
		m->multicast = plans[job].reply == THC_REPLY_MULTICAST;
		reached[GROUP_AGAIN].times++;
	}
	m->epoch = epoch_after(m, is_behind(m, last) ? last : m->epoch);
	for (r = 0; r < m->ranks; r++) {
		m->rank[r].in = m->rank[r].left = m->rank[r].heard = false;
		m->rank[r].entered = false;
	}
	m->ready = false;
	m->full_since = 0;
}

static void model_settle(struct job_model *m, struct expected *x)
{
	if (m->ready || !all_in(m))
		return;
	if (!m->full_since)
		m->full_since = now_ms;
	if (m->multicast && !all_heard(m)) {
		if (now_ms - m->full_since < THCD_HEARD_MS)
			return;
		m->multicast = false;
		m->fallback = true;
		reached[GAVE_UP_GROUP].times++;
	}
	m->ready = true;
	x->newly_ready = true;
	reached[READY].times++;
}

static bool in_prefix(int job, const struct thc_addr *a)
{
	u32 host = thc_be32(a->word[3]);

	if (job == 1)
		return a->word[0] == thc_be32(0xfd770000) && !a->word[1];
	return thc_addr_is_v4(a) && (job == 0 ? host >> 8 == 0x0a4d00 : host >> 16 == 0x0a4d);
}

static void refuse(struct expected *x, enum thc_refusal why, int outcome)
{
	x->refused = true;
	x->why = why;
	reached[outcome].times++;
}

/* Was the challenge of @j made for @c, in this minute or the one before? */
static bool is_right(const struct thc_join *j, const struct change *c)
{
	unsigned int i;

	for (i = 0; i < asks; i++)
		if (now_ms / 60000 - asked[i].minute < 2 &&
		    !memcmp(asked[i].challenge, j->challenge, sizeof(j->challenge)) &&
		    !memcmp(&asked[i].change, c, sizeof(*c)))
			return true;
	return false;
}

/* The change that the JOIN asks for. */
static struct change change_of(const struct expected *x, const struct thc_path *path)
{
	const struct rank_model *r = &model[x->job].rank[x->rank];
	struct change c;

	memset(&c, 0, sizeof(c));
	c.job = x->job;
	c.epoch = model[x->job].epoch;
	c.joined = r->entered ? r->nonce : 0;
	memcpy(c.nonce, x->nonce_bytes, sizeof(c.nonce));
	c.addr = path->src;
	c.rank = x->rank;
	c.port = path->src_port;
	c.left = r->entered && (!r->in || r->left);
	return c;
}

static void model_enter(struct expected *x, u32 last)
{
	struct job_model *m = &model[x->job];
	struct rank_model *r = &m->rank[x->rank];

	if (r->in) {
		if (r->left)
			r->nonce = 0;
		model_restart(m, last, x->job);
		reached[RESTARTED].times++;
	} else if (is_behind(m, last)) {
		model_restart(m, last, x->job);
		reached[BEHIND].times++;
	} else {
		reached[JOINED].times++;
	}
	if (x->nonce != r->nonce) {
		r->previous = r->nonce;
		r->nonce = x->nonce;
	}
	r->in = r->entered = true;
	r->addr = x->change.addr;
	r->port = x->change.port;
}

/* Of a rank that is in already. */
static void model_again(struct expected *x, const struct thc_join *j)
{
	struct rank_model *r = &model[x->job].rank[x->rank];

	if (j->flags && !memcmp(j->challenge, world_records[described[x->job].id].salt, 16))
		r->heard = true;
	x->answered = now_ms - r->answered < 10;
	reached[JOINED_AGAIN].times++;
}

static void model_join(struct expected *x, const struct thc_hdr *h, const struct thc_join *j,
		       const struct thc_path *path)
{
	struct job_model *m = &model[x->job];
	struct rank_model *r;
	bool in;

	if (d.detached)
		return refuse(x, THC_REFUSED_NO_XDP, NO_XDP);
	if (x->rank >= m->ranks)
		return refuse(x, THC_REFUSED_RANK, NO_RANK);
	if (!in_prefix(x->job, &path->src))
		return refuse(x, THC_REFUSED_PREFIX, NO_PREFIX);
	if (!(thc_be32(j->offers) >> plans[x->job].seal & 1))
		return refuse(x, THC_REFUSED_SEAL, NO_SEAL);
	r = &m->rank[x->rank];
	in = r->in && !r->left && x->nonce == r->nonce;
	if ((x->nonce == r->previous && x->nonce != r->nonce) ||
	    (in && (path->src_port != r->port || !thc_addr_equal(&path->src, &r->addr))))
		return refuse(x, THC_REFUSED_TAKEN, TAKEN);
	if (in) {
		model_again(x, j);
	} else {
		x->change = change_of(x, path);
		if (j->flags || !is_right(j, &x->change)) {
			x->challenged = true;
			reached[CHALLENGED].times++;
			return;
		}
		model_enter(x, thc_be32(h->epoch));
	}
	x->admitted = true;
	model_settle(m, x);
	if (x->newly_ready)
		x->answered = false;
	if (!x->answered)
		r->answered = now_ms;
	reached[ANSWERED].times += x->answered;
}

/* The first eight bytes of a nonce, whose others are zero here unless it was changed. */
static u64 number_of(const u8 nonce[THC_NONCE_BYTES])
{
	static const u8 rest[THC_NONCE_BYTES - 8];
	u64 number;

	memcpy(&number, nonce, sizeof(number));
	/* a changed nonce must equal no other one */
	return memcmp(nonce + 8, rest, sizeof(rest)) ? number ^ 0xdddddddddddddddd : number;
}

#define JOIN_NS		5000000
#define LEAVE_NS	2500000

/* JOINs that no job admits, and JOINs of one rank, pass at first 64 times and then once in 5 ms.
 * LEAVEs of one rank pass twice as often.
 */
static bool is_flood(u64 *until, u64 each)
{
	u64 now = now_ms * 1000000, owed = *until > now ? *until - now : 0;

	if (owed > 64 * JOIN_NS - each) {
		reached[FLOODED].times++;
		return true;
	}
	*until = now + owed + each;
	return false;
}

static void model_leave(int job, const struct thc_hdr *h, const struct thc_path *path,
			const u8 *nonce)
{
	struct job_model *m = &model[job];
	u16 rank = thc_be16(h->rank);
	struct rank_model *r = rank < m->ranks ? &m->rank[rank] : NULL;

	if (!r || !r->port || r->port != path->src_port || !thc_addr_equal(&r->addr, &path->src))
		return;
	if (h->tag != member_tag(job, h, path, nonce, THC_NONCE_BYTES) ||
	    is_flood(&leave_until[job][rank], LEAVE_NS))
		return;
	if (!r->in || r->left || number_of(nonce) != r->nonce)
		return;
	if (m->ready) {
		r->left = true;
		reached[LEFT].times++;
		return;
	}
	r->in = r->heard = false;
	m->full_since = 0;
	reached[LEFT_EARLY].times++;
}

/* Is it a whole, well-formed JOIN or LEAVE, whatever its seal? */
static bool is_membership(const u8 *packet, size_t length)
{
	struct thc_hdr h;
	size_t payload = length - sizeof(h);

	if (length < sizeof(h))
		return false;
	memcpy(&h, packet, sizeof(h));
	if (h.version != THC_VERSION || (h.op != THC_OP_JOIN && h.op != THC_OP_LEAVE))
		return false;
	return payload == (h.op == THC_OP_JOIN ? 64 : 16) && !h.width && !h.flags && !h.count &&
	       !h.bitmap;
}

/* The job that the packet names, and whose key it has. */
static int job_of(const struct thc_hdr *h)
{
	int i;

	for (i = 0; i < JOBS; i++)
		if (thc_be16(h->job) == described[i].id)
			return h->key_id == world_seals[described[i].id].join.id ? i : -1;
	return -1;
}

/* Is the JOIN's payload a worker's, by the protocol? */
static bool is_a_workers(const struct thc_join *j)
{
	static const u8 zero[sizeof(j->reserved2)];
	static const u8 none[THC_NONCE_BYTES];

	return !(j->flags & ~thc_be32(1)) && !j->workers && !j->reserved &&
	       j->restarted == 0xffff && !memcmp(j->reserved2, zero, sizeof(zero)) &&
	       memcmp(j->nonce, none, sizeof(none));
}

static struct expected expect_join(struct expected x, const u8 *packet, const struct thc_path *path)
{
	struct thc_join j;
	struct thc_hdr h;

	memcpy(&h, packet, sizeof(h));
	memcpy(&j, packet + sizeof(h), sizeof(j));
	if (x.job < 0 || x.rank >= model[x.job].ranks) {
		if (is_flood(&heard_until, JOIN_NS))
			return x;
	} else if (h.tag != member_tag(x.job, &h, path, &j, sizeof(j))) {
		reached[MALFORMED].times++;
		return x;
	} else if (is_flood(&rank_until[x.job][x.rank], JOIN_NS)) {
		return x;
	}
	x.nonce = number_of(j.nonce);
	memcpy(x.nonce_bytes, j.nonce, sizeof(x.nonce_bytes));
	if (!is_a_workers(&j) || !path->src_port) {
		reached[MALFORMED].times++;
		return x;
	}
	if (x.job < 0)
		refuse(&x, THC_REFUSED_JOB, NO_JOB);
	else
		model_join(&x, &h, &j, path);
	return x;
}

/* A JOIN of version 1 has nonces of eight bytes. */
static struct expected expect_old(const u8 *packet, const struct thc_path *path)
{
	struct expected x = { .job = -1, .old = true };

	if (is_flood(&heard_until, JOIN_NS))
		return x;
	if (!path->src_port) {
		reached[MALFORMED].times++;
		return x;
	}
	memcpy(x.nonce_bytes, packet + sizeof(struct thc_hdr), 8);
	refuse(&x, THC_REFUSED_VERSION, OLD);
	return x;
}

/* Updates the model; returns the expected result. */
static struct expected expect(const u8 *packet, size_t length, const struct thc_path *path)
{
	struct expected x = { .job = -1 };
	struct thc_hdr h;

	if (length == sizeof(h) + 16 && packet[0] == 1 && packet[1] == THC_OP_JOIN)
		return expect_old(packet, path);
	if (!is_membership(packet, length)) {
		reached[MALFORMED].times++;
		return x;
	}
	memcpy(&h, packet, sizeof(h));
	x.job = job_of(&h);
	x.rank = thc_be16(h.rank);
	if (h.op == THC_OP_JOIN)
		return expect_join(x, packet, path);
	if (x.job >= 0)
		model_leave(x.job, &h, path, packet + sizeof(h));
	return x;
}

/* --- what is compared ------------------------------------------------------------- */

/* The epoch's keys are derived from its salt, which differs from epoch to epoch. */
static void check_keys(int i, bool is_new)
{
	const struct thcd_record *r = &world_records[described[i].id];
	const struct thc_seals *s = &world_seals[described[i].id];
	static __be32 id[JOBS];	/* kept, since derivation takes time */

	if (is_new && plans[i].seal == THC_SEAL_NH)
		id[i] = thc_key_id(plans[i].key, described[i].id, r->salt);
	else if (is_new)
		memcpy(&id[i], r->salt, sizeof(id[i]));
	require(!is_new || (s->seal == plans[i].seal && id[i] != s->join.id));
	require(!is_new || thc_seals_up(s, model[i].epoch)->id == id[i]);
	require(thc_seals_down(s, model[i].epoch)->id == thc_seals_up(s, model[i].epoch)->id);
	require(!memcmp(r->salt, before_records[described[i].id].salt, sizeof(r->salt)) == !is_new);
}

static void check_job(int i)
{
	const struct thc_job *job = &world_jobs[described[i].id],
			     *old = &before_jobs[described[i].id];
	const struct thcd_record *record = &world_records[described[i].id];
	const struct job_model *m = &model[i];
	u64 joined = 0, left = 0;
	u32 r;

	require(job->active && job->epoch == m->epoch && job->ranks == m->ranks);
	require(job->epoch == old->epoch || (s32)(job->epoch - old->epoch) > 0);
	require(job->all == thc_ranks_mask(m->ranks));
	check_keys(i, old->epoch != job->epoch);
	require(!memcmp(&record->plan, &plans[i], sizeof(plans[i])));
	require((job->reply == THC_REPLY_MULTICAST) == m->multicast);
	require(!record->ready == !m->ready && !record->fallback == !m->fallback);
	for (r = 0; r < m->ranks; r++) {
		const struct thc_member *member = &job->member[r];

		joined |= (u64)m->rank[r].in << r;
		left |= (u64)m->rank[r].left << r;
		require(!member->joined == !m->rank[r].in && !member->left == !m->rank[r].left);
		require(thc_be16(member->port) == m->rank[r].port);
		require(!m->rank[r].in || member->port);
		require(!member->port || thc_addr_equal(&member->addr, &m->rank[r].addr));
		require(!member->port || in_prefix(i, &member->addr));
	}
	require(job->joined == joined && job->left == left);
}

/* The WELCOME @s is sealed by the key of job @job; -1: without a key. */
static void check_sealed(const struct sent *s, int job)
{
	const struct thc_member_key none = { .id = 0 }, *key = job < 0 ? &none : &welcome_key[job];
	struct thc_end end = end_of(&s->to, s->port);

	require(s->h.key_id == key->id);
	require(s->h.tag == thc_member_tag(job < 0 ? THC_SEAL_SUM : member_seal_of(job), key, &s->h,
					   &end, s->payload, (int)(s->length / 8)));
}

/* The WELCOME at @s, of job @job. */
static const struct thc_welcome *check_fixed(const struct sent *s, int job)
{
	const struct thc_job *of = &world_jobs[described[job].id];
	const struct thc_welcome *w = (const void *)s->payload;

	require(s->h.op == THC_OP_WELCOME && !thc_parts_form(w, s->length) && w->parts == 1);
	check_sealed(s, job);
	require(thc_be32(s->h.epoch) == model[job].epoch);
	require(thc_be64(w->joined) == of->joined);
	return w;
}

static u32 be32_at(const u8 *p)
{
	return be16_at(p) << 16 | be16_at(p + 2);
}

/* Checks the records by the protocol: a job with a rate has rows of one to six bits, one for each.
 */
static void check_records(const struct sent *s, int job, u32 rank)
{
	bool rated = described[job].rate || described[job].error;
	struct records r;
	u32 bits;

	require(can_be_served(s->payload, s->length, rank, plans[job].seal == THC_SEAL_NH));
	require(take_records(&r, s->payload, s->length) && r.row == r.of_bits[4]);
	for (bits = 1; bits <= 8; bits++)
		require(!r.of_bits[bits] == !(bits == 4 || (rated && bits <= 6)));
	require(!r.rate == !rated);
	if (!rated)
		return;
	require(be32_at(r.rate) == described[job].rate);
	require(be32_at(r.rate + 4) == described[job].error);
	require(be32_at(r.rate + 8) == described[job].tried);
	reached[RATED].times++;
	reached[TRIED].times += described[job].tried;
}

static void check_to_rank(const struct sent *s, int job, u32 rank)
{
	const struct thc_client_options o = {
		.rank = (u16)rank, .key = plans[job].seal == THC_SEAL_NH ? plans[job].key : NULL,
	};
	const struct rank_model *r = &model[job].rank[rank];
	const struct thc_welcome *w = check_fixed(s, job);
	const struct job_model *m = &model[job];
	struct thc_table table;
	struct thc_spec spec;

	require(thc_spec_read(&spec, w, w + 1, (u32)s->length - (u32)sizeof(*w)));
	require(thc_be16(s->h.rank) == rank);
	require(!thc_job_check(&spec, &o) && !thc_table_read(&spec, &table));
	require(!memcmp(spec.salt, world_records[described[job].id].salt, sizeof(spec.salt)));
	require(!(spec.flags & THC_WELCOME_F_REFUSED) && thc_be32(s->h.epoch) == m->epoch);
	require(!(spec.flags & THC_WELCOME_F_READY) == !m->ready);
	require((spec.reply == THC_REPLY_MULTICAST) == m->multicast);
	require(thc_table_hash(&table) == plans[job].table_hash);
	require(number_of(w->nonce) == r->nonce);
	require(s->port == r->port && thc_addr_equal(&s->to, &r->addr));
	check_records(s, job, rank);
}

static void check_to_group(const struct sent *s, int job)
{
	const struct thc_welcome *w = check_fixed(s, job);
	const u8 *salt = thc_parts_salt(w, (u32)s->length);

	require(salt && !memcmp(salt, world_records[described[job].id].salt, THC_SALT_BYTES));
	require(!s->h.rank && !(w->flags & thc_be16(THC_WELCOME_F_READY)));
	require(!number_of(w->nonce) && s->port == plans[job].group_port);
	require(thc_addr_equal(&s->to, &plans[job].group));
}

static u32 sum_of(const u8 *packet, size_t length)
{
	struct thc_sum s = { 0, 0 };
	u8 copy[200] __attribute__((aligned(8)));

	require(length <= sizeof(copy) && length % 8 == 0);
	memcpy(copy, packet, length);
	memset(copy + 4, 0, 4);
	thc_sum_add(&s, copy, (int)(length / 8));
	return thc_sum_fold(s);
}

/* A WELCOME of version 1 returns the nonce, and the cookie in the tag's place. */
static void check_old_refusal(const struct expected *x, const u8 *packet,
			      const struct thc_path *path)
{
	const struct sent *s = &sent[0];
	u8 all[sizeof(struct thc_hdr) + 136], bare[136] = { [56] = 2, [57] = 6 };

	require(sents == 1 && s->length == 136 && s->port == path->src_port);
	require(thc_addr_equal(&s->to, &path->src));
	require(s->h.version == 1 && s->h.op == THC_OP_WELCOME);
	require(!memcmp((const u8 *)&s->h + 8, packet + 8, 12));
	memcpy(bare + 24, x->nonce_bytes, 8);
	require(!memcmp(s->payload, bare, sizeof(bare)));
	memcpy(all, &s->h, sizeof(s->h));
	memcpy(all + sizeof(s->h), bare, sizeof(bare));
	require(thc_be32(s->h.key_id) == sum_of(all, sizeof(all)));
}

/* A refusal tells only the reason; a worker with the job's key can see that it is thcd's. */
static void check_refusal(const struct expected *x, const struct thc_path *path)
{
	const struct sent *s = &sent[0];
	struct thc_welcome bare = {
		.flags = thc_be16(THC_WELCOME_F_REFUSED), .refusal = (u8)x->why, .parts = 1,
		.version_max = THC_VERSION,
	};

	memcpy(bare.nonce, x->nonce_bytes, sizeof(bare.nonce));
	require(sents == 1 && s->length == sizeof(bare) && s->port == path->src_port);
	require(thc_addr_equal(&s->to, &path->src));
	require(s->h.op == THC_OP_WELCOME && !s->h.epoch);
	check_sealed(s, x->job);
	require(x->why > THC_REFUSED_NOT && x->why <= THC_REFUSED_SEAL);
	require(!memcmp(s->payload, &bare, sizeof(bare)));
}

/* A CHALLENGE goes to the JOIN's sender. It is remembered, and is new unless the same change was
 * challenged in this minute.
 */
static void check_challenge(const struct expected *x, const struct thc_path *path)
{
	const struct sent *s = &sent[0];
	struct thc_challenge c;
	unsigned int i;

	require(sents == 1 && s->length == sizeof(c) && s->port == path->src_port);
	require(thc_addr_equal(&s->to, &path->src));
	require(s->h.op == THC_OP_CHALLENGE && !s->h.epoch && thc_be16(s->h.rank) == x->rank);
	check_sealed(s, x->job);
	memcpy(&c, s->payload, sizeof(c));
	require(!memcmp(c.nonce, x->nonce_bytes, sizeof(c.nonce)));
	for (i = 0; i < asks; i++) {
		bool same = asked[i].minute == now_ms / 60000 &&
			    !memcmp(&asked[i].change, &x->change, sizeof(x->change));

		require(same == !memcmp(asked[i].challenge, c.challenge, sizeof(c.challenge)));
		if (same)
			return;
	}
	require(asks < ASKED_MAX);
	i = asks++;
	memcpy(asked[i].challenge, c.challenge, sizeof(c.challenge));
	asked[i].change = x->change;
	asked[i].minute = now_ms / 60000;
}

/* The other ranks that were in the epoch which this JOIN has ended. */
static u64 others_of(const struct expected *x)
{
	unsigned int id = x->admitted ? described[x->job].id : 0;
	const struct thc_job *was = &before_jobs[id];

	if (!x->admitted || world_jobs[id].epoch == was->epoch)
		return 0;
	return was->joined & ~was->left & ~(1ULL << x->rank);
}

/* Each of these ranks is challenged before any other packet is sent. Returns how many are. */
static unsigned int check_asked(const struct expected *x)
{
	u64 others = others_of(x);
	unsigned int n = 0, rank;

	for (rank = 0; rank < THC_RANKS_MAX; rank++) {
		const struct thc_member *m = &before_jobs[described[x->job].id].member[rank];
		const struct sent *s = &sent[n];

		if (!(others >> rank & 1))
			continue;
		require(n++ < sents && s->length == sizeof(struct thc_challenge));
		require(s->h.op == THC_OP_CHALLENGE && thc_be16(s->h.rank) == rank);
		require(s->port == thc_be16(m->port) && thc_addr_equal(&s->to, &m->addr));
		check_sealed(s, x->job);
	}
	return n;
}

static void check_sent(const struct expected *x, const u8 *packet, const struct thc_path *path,
		       bool muted)
{
	unsigned int i, to_ranks = x->newly_ready ? model[x->job].ranks : 1, asked_again = 0;
	/* after READY no rank needs to hear the group */
	bool to_group = x->admitted && model[x->job].multicast && !model[x->job].ready;

	if (x->refused && muted) {
		require(!sents);
		reached[MUTED].times++;
	} else if (x->old && x->refused) {
		check_old_refusal(x, packet, path);
	} else if (x->refused) {
		check_refusal(x, path);
	} else if (x->challenged) {
		check_challenge(x, path);
	} else if (x->admitted && x->answered) {
		require(sents == check_asked(x));
	} else if (x->admitted) {
		asked_again = check_asked(x);
		require(sents == asked_again + to_ranks + to_group);
		for (i = 0; i < to_ranks; i++)
			check_to_rank(&sent[asked_again + i], x->job, x->newly_ready ? i : x->rank);
		if (to_group)
			check_to_group(&sent[asked_again + to_ranks], x->job);
	} else {
		for (i = 0; i < sents; i++)
			require(sent[i].h.op != THC_OP_WELCOME);
	}
}

static void check_counters(const struct thcd *was)
{
	u64 counted = 0;
	int i;

	for (i = 0; i < THC_EVENT_FATES; i++)
		counted += d.stats.event[i];
	for (i = 0; i < THC_DROP_REASONS; i++)
		counted += d.stats.drop[i];
	require(!d.stats.drop[THC_DROP_NONE] && !d.stats.drop[THC_DROP_INTERNAL]);
	if (d.software)
		require(d.stats.received == was->stats.received + 1 && counted == d.stats.received);
	else
		require(!counted && !d.stats.received);
}

/* `told_at` of members is not part of the comparison: it changes when a rank is told of a new
 * epoch.
 */
static void forget_told(void)
{
	int i, r;

	for (i = 0; i < THC_JOBS_MAX; i++)
		for (r = 0; r < THC_RANKS_MAX; r++)
			before_jobs[i].member[r].told_at = world_jobs[i].member[r].told_at;
}

static void receive(const u8 *packet, size_t length, const struct thc_path *path)
{
	u8 *copy = malloc(length ? length : 1);
	struct thcd was = d;
	struct expected x;
	int i;

	memcpy(before_jobs, world_jobs, sizeof(world_jobs));
	memcpy(before_records, world_records, sizeof(world_records));
	memcpy(copy, packet, length);
	sents = 0;
	packets++;
	x = expect(packet, length, path);
	thcd_packet(&d, copy, (u32)length, path, false);
	free(copy);
	for (i = 0; i < JOBS; i++)
		check_job(i);
	if (!x.admitted && packet[1] != THC_OP_LEAVE) {
		if (d.software)
			forget_told();
		require(!memcmp(before_jobs, world_jobs, sizeof(world_jobs)));
		require(!memcmp(before_records, world_records, sizeof(world_records)));
	}
	check_sent(&x, packet, path, d.counters.muted > was.counters.muted);
	require(d.counters.refused - was.counters.refused == x.refused);
	require(d.counters.challenged - was.counters.challenged ==
		x.challenged + (u64)__builtin_popcountll(others_of(&x)));
	check_counters(&was);
}

/* --- actions ------------------------------------------------------------------------ */

static struct thc_path some_path(struct input *in, int job, u8 rank)
{
	u8 what = next(in);
	struct thc_path p = { .src_port = 40000 + rank, .dst_port = PORT };
	struct thc_addr six = { { thc_be32(0xfd770000), 0, 0, thc_be32(1U + rank) } };

	p.src = described[job].six ? six : thc_addr_v4(thc_be32(0x0a4d0001U + rank));
	if (what < 160)
		return p;
	if (what & 1)
		p.src_port = (u16)next_bytes(in, 2);
	if (what & 2)
		p.src.word[3] ^= thc_be32(1U << next(in) % 32);
	if (what & 4)
		p.src = described[job].six ? thc_addr_v4(thc_be32(0x0a4d0001)) : six;
	if (what & 8)
		p.src_port = 0;
	return p;
}

/* The last epoch that a worker names. */
static u32 some_epoch(struct input *in, int job, bool leave)
{
	u8 what = next(in);
	u32 now = model[job].epoch;

	switch (what & 7) {
	case 0:
		return now - 1;
	case 1:
		return now + (what >> 3);
	case 2:
		return now + 0x7fffffff + (what >> 3) % 3 - 1;
	case 3:
		return (u32)next_bytes(in, 4);
	case 4:
		return 0xffffffff - (what >> 3);
	}
	return leave ? now : 0;
}

/* As a worker at @path's end would; data under the keys of the job's epoch. */
static void seal(u8 *packet, size_t length, int job, const struct thc_path *path)
{
	const struct thc_seals *s = &world_seals[described[job].id];
	const u8 *payload = packet + sizeof(struct thc_hdr);
	int bytes = (int)(length - sizeof(struct thc_hdr));
	struct thc_hdr h;

	memcpy(&h, packet, sizeof(h));
	if (h.op == THC_OP_JOIN || h.op == THC_OP_LEAVE)
		h.tag = member_tag(job, &h, path, payload, (size_t)bytes);
	else
		thc_seal(&h, plans[job].seal, thc_seals_up(s, model[job].epoch), payload,
			 bytes / 8);
	memcpy(packet, &h, sizeof(h));
}

/* Changes some bytes, before or after sealing. */
static void spoil(struct input *in, u8 *packet, size_t length, u8 how, int job,
		  const struct thc_path *path)
{
	int i;

	for (i = how & 3; i; i--)
		packet[next(in) % length] ^= next(in);
	if (!(how & 4))
		seal(packet, length, job, path);
}

/* The fields of a packet beside its payload. */
struct saying {
	u8	op;
	int	job;
	u16	rank;
	u32	epoch;
};

static size_t put_packet(u8 *packet, struct saying it, const struct thc_path *path,
			 const struct thc_join *j)
{
	struct thc_hdr h = {
		.version = THC_VERSION, .op = it.op, .job = thc_be16(described[it.job].id),
		.key_id = world_seals[described[it.job].id].join.id, .rank = thc_be16(it.rank),
		.epoch = thc_be32(it.epoch),
	};
	/* LEAVE has the nonce alone */
	size_t length = sizeof(h) + (it.op == THC_OP_JOIN ? 64 : 16);

	memcpy(packet, &h, sizeof(h));
	memcpy(packet + sizeof(h), j, sizeof(*j));
	seal(packet, length, it.job, path);
	return length;
}

/* A JOIN of a worker of job @job. */
static struct thc_join join_of(int job, u64 nonce)
{
	struct thc_join j = {
		.offers = thc_be32(THC_OFFER_SEAL(plans[job].seal)), .version_max = THC_VERSION,
		.restarted = thc_be16(THC_WORKER_NONE),
	};

	memcpy(j.nonce, &nonce, sizeof(nonce));
	return j;
}

/* HEARD with the salt of the job's epoch, or not. */
static void put_heard(struct thc_join *j, int job, bool heard)
{
	j->flags = thc_be32(heard ? THC_JOIN_F_HEARD : 0);
	memset(j->challenge, 0, sizeof(j->challenge));
	if (heard)
		memcpy(j->challenge, world_records[described[job].id].salt, sizeof(j->challenge));
}

/* Packets that an attacker keeps. */
#define RECORDED	64
static struct {
	u8 packet[PACKET_MAX];
	size_t length;
	struct thc_path path;
} recorded[RECORDED];
static unsigned int records;

static void record(const u8 *packet, size_t length, const struct thc_path *path)
{
	unsigned int i = records++ % RECORDED;

	memcpy(recorded[i].packet, packet, length);
	recorded[i].length = length;
	recorded[i].path = *path;
}

/* The worker answers the challenge that has come, and then says whether it hears the group. */
static void answer_challenge(struct saying it, const struct thc_path *path, struct thc_join *j)
{
	bool heard = j->flags;
	u8 packet[PACKET_MAX];
	struct thc_challenge c;
	size_t length;

	if (sents != 1 || sent[0].h.op != THC_OP_CHALLENGE || thc_be16(sent[0].h.rank) != it.rank)
		return;
	memcpy(&c, sent[0].payload, sizeof(c));
	put_heard(j, it.job, false);
	memcpy(j->challenge, c.challenge, sizeof(c.challenge));
	length = put_packet(packet, it, path, j);
	record(packet, length, path);
	receive(packet, length, path);
	if (!heard)
		return;
	put_heard(j, it.job, true);
	length = put_packet(packet, it, path, j);
	receive(packet, length, path);
}

static void act_membership(struct input *in, u8 op)
{
	u8 who = next(in), how = next(in), packet[PACKET_MAX];
	struct saying it = { op, who % JOBS, who / JOBS % 4, 0 };
	struct thc_join j = join_of(it.job, (who >> 4) * 0x0101010101010101ULL);
	struct thc_path path;
	size_t length;

	/* the nonce that the rank is in with */
	if (op == THC_OP_LEAVE && how & 0x40 && it.rank < model[it.job].ranks)
		memcpy(j.nonce, &model[it.job].rank[it.rank].nonce, 8);
	put_heard(&j, it.job, op == THC_OP_JOIN && how >> 7);
	path = some_path(in, it.job, (u8)it.rank);
	it.epoch = some_epoch(in, it.job, op == THC_OP_LEAVE);
	length = put_packet(packet, it, &path, &j);
	if (how & 7)
		spoil(in, packet, length, how, it.job, &path);
	if (how & 8 && how & 16)
		length -= next(in) % length;
	record(packet, length, &path);
	receive(packet, length, &path);
	if (op == THC_OP_JOIN && !(how & 0x27))
		answer_challenge(it, &path, &j);
}

/* Repeats a recorded packet. */
static void act_replay(struct input *in)
{
	u8 which = next(in);

	if (!records)
		return;
	which %= records < RECORDED ? records : RECORDED;
	receive(recorded[which].packet, recorded[which].length, &recorded[which].path);
	reached[REPLAYED].times++;
}

/* Every rank of a job joins, so that it is ready, or leaves. */
static void act_all(struct input *in, u8 op)
{
	u8 who = next(in), packet[PACKET_MAX];
	int job = who % JOBS;
	u32 r;

	for (r = 0; r < model[job].ranks && asks < ASKED_MAX - RANKS; r++) {
		struct thc_addr six = { { thc_be32(0xfd770000), 0, 0, thc_be32(1 + r) } };
		struct thc_path path = { .src_port = (u16)(40000 + r), .dst_port = PORT };
		u64 nonce = model[job].rank[r].nonce ? model[job].rank[r].nonce : 1 + r;
		struct saying it = { op, job, (u16)r, 0 };
		struct thc_join j = join_of(job, nonce);
		size_t length;

		path.src = described[job].six ? six : thc_addr_v4(thc_be32(0x0a4d0001 + r));
		put_heard(&j, job, op == THC_OP_JOIN && who >> 7);
		length = put_packet(packet, it, &path, &j);
		record(packet, length, &path);
		receive(packet, length, &path);
		if (op == THC_OP_JOIN)
			answer_challenge(it, &path, &j);
	}
}

/* More JOINs of strangers than pass, and JOINs with the key from outside the prefix: more refusals
 * than thcd sends in a second, though each rank stays within its rate.
 */
static void act_flood(struct input *in)
{
	struct thc_path stranger = some_path(in, 0, 0), outside = { .src_port = 40000 };
	struct thc_join j = join_of(0, 1);
	u8 packet[PACKET_MAX];
	size_t length;
	int i;

	flooded = true;
	outside.src = thc_addr_v4(thc_be32(0x0a630001));
	length = put_packet(packet, (struct saying){ THC_OP_JOIN, 0, RANKS, 0 }, &stranger, &j);
	for (i = 0; i < FLOOD; i++)
		receive(packet, length, &stranger);
	for (i = 0; i < FLOOD; i++) {
		length = put_packet(packet, (struct saying){ THC_OP_JOIN, 0, (u16)(i % RANKS), 0 },
				    &outside, &j);
		receive(packet, length, &outside);
	}
}

static void act_data(struct input *in)
{
	static const u16 payload[] = { 0, 256, 512, 1024 };
	u8 who = next(in), how = next(in), packet[PACKET_MAX];
	struct saying it = { how % 5, who % JOBS, who / JOBS % 4, 0 };
	struct thc_join none = { 0 };
	struct thc_path path = some_path(in, it.job, (u8)it.rank);
	size_t length;

	it.epoch = model[it.job].epoch - (how >> 7);
	put_packet(packet, it, &path, &none);
	memset(packet + sizeof(struct thc_hdr), how, PACKET_MAX - sizeof(struct thc_hdr));
	packet[2] = how % 5 == THC_OP_LUT_ADD ? 4 : how & 8 ? 8 : 32;
	length = sizeof(struct thc_hdr) + payload[how >> 4 & 3];
	spoil(in, packet, length, who >> 5, it.job, &path);
	receive(packet, length, &path);
	reached[DATA].times++;
}

static void act_raw(struct input *in)
{
	u8 packet[256] = { 0 };
	struct thc_path path = some_path(in, 0, 0);
	size_t length = next(in), i;

	for (i = 0; i < length; i++)
		packet[i] = next(in);
	/* a long input becomes a JOIN of version 1 */
	if (length >= 192) {
		length = sizeof(struct thc_hdr) + 16;
		packet[0] = 1;
		packet[1] = THC_OP_JOIN;
	}
	receive(packet, length, &path);
}

static void check_jobs_told(const cJSON *jobs)
{
	const cJSON *job;
	int i = 0;

	require(cJSON_IsArray(jobs) && cJSON_GetArraySize(jobs) == JOBS);
	cJSON_ArrayForEach(job, jobs)
	{
		const cJSON *epoch = cJSON_GetObjectItem(job, "epoch");
		const cJSON *joined = cJSON_GetObjectItem(job, "joined");

		require(epoch && epoch->valuedouble == model[i].epoch);
		require(cJSON_GetArraySize(joined) ==
			__builtin_popcountll(world_jobs[described[i].id].joined));
		require(cJSON_IsTrue(cJSON_GetObjectItem(job, "ready")) == model[i].ready);
		i++;
	}
}

static void act_ask(struct input *in)
{
	static const char *const asked[] = { "jobs\n", "stats\n", "jobs" };
	struct pollfd p[1 + THCD_CONTROL_CLIENTS] = { { .revents = 0 } };
	struct thcd_control_state s = { .listener = -1 };
	u8 what = next(in), raw[80];
	static char answer[1 << 16];
	size_t n = next(in) % sizeof(raw), i;
	ssize_t got;
	cJSON *o;
	int fd[2];

	require(!socketpair(AF_UNIX, SOCK_STREAM, 0, fd));
	for (i = 0; i < THCD_CONTROL_CLIENTS; i++)
		s.client[i] = -1;
	for (i = 0; i < n; i++)
		raw[i] = next(in);
	s.client[0] = fd[0];
	p[1].revents = POLLIN;
	if (what < 3)
		require(write(fd[1], asked[what], strlen(asked[what])) > 0);
	else
		require(write(fd[1], raw, n) == (ssize_t)n);
	thcd_control_serve(&s, &d, p);
	require(s.client[0] == -1);
	got = recv(fd[1], answer, sizeof(answer) - 1, MSG_DONTWAIT | MSG_WAITALL);
	close(fd[1]);
	if (what >= 3 && !n)
		return;
	require(got > 0);
	answer[got] = '\0';
	o = cJSON_Parse(answer);
	require(cJSON_IsObject(o) && answer[got - 1] == '\n');
	if (what == 0)
		check_jobs_told(cJSON_GetObjectItem(o, "jobs"));
	cJSON_Delete(o);
	reached[ASKED].times++;
}

static void act(struct input *in)
{
	u8 action = next(in);

	switch (action & 15) {
	default:
		act_membership(in, THC_OP_JOIN);
		break;
	case 7:
		if (action & 0x80)
			act_replay(in);
		else
			act_membership(in, THC_OP_JOIN);
		break;
	case 8:
	case 9:
		act_membership(in, THC_OP_LEAVE);
		break;
	case 10:
		act_data(in);
		break;
	case 11:
		act_raw(in);
		break;
	case 12:
		/* sometimes long enough for a challenge to expire */
		now_ms += action >> 4 == 14 ? 60000 : (action >> 4) * 200;
		if (action >> 4 == 15 && !flooded)
			act_flood(in);
		break;
	case 13:
		if (action & 0x80)
			act_ask(in);
		else
			d.detached ^= d.xdp && (action & 0x70) == 0x70;
		break;
	case 14:
	case 15:
		act_all(in, action & 0x80 ? THC_OP_LEAVE : THC_OP_JOIN);
		break;
	}
}

/* --- from the beginning ---------------------------------------------------------------- */

/* Sets job @i's epoch, whatever the clock says, and moves its keys to their places. */
static void set_epoch(int i, u32 epoch)
{
	struct thc_job *job = &world_jobs[described[i].id];
	struct thc_seals *s = &world_seals[described[i].id];

	if ((job->epoch ^ epoch) & 1) {
		struct thc_seal_key up = s->up[0], down = s->down[0];

		s->up[0] = s->up[1];
		s->up[1] = up;
		s->down[0] = s->down[1];
		s->down[1] = down;
	}
	job->epoch = model[i].epoch = epoch;
}

/* Jobs as they were made, for making them takes longer than an input. */
static struct {
	struct thc_job job[THC_JOBS_MAX];
	struct thcd_record record[THC_JOBS_MAX];
	struct thc_seals seals[THC_JOBS_MAX];
} made;

static void make_jobs(void)
{
	int i;

	d.job = made.job;
	d.record = made.record;
	d.seals = made.seals;
	d.pairs = world_pairs;
	d.port = PORT;
	for (i = 0; i < JOBS; i++)
		thcd_job_create(&d, &plans[i]);
}

static void reset(u8 how)
{
	int i;

	memset(world_slots, 0, sizeof(world_slots));
	memset(&d, 0, sizeof(d));
	memset(model, 0, sizeof(model));
	d.job = world_jobs;
	d.seals = world_seals;
	d.record = world_records;
	d.slot = world_slots;
	d.lanes = world_lanes;
	d.pairs = world_pairs;
	d.slots = SLOTS;
	d.port = PORT;
	d.instance = "fuzz";
	d.mode = how & 1 ? "native" : "software";
	d.interface = "eth0";
	d.software = !(how & 1);
	d.xdp = how & 1 ? (void *)&d : NULL;
	flooded = false;
	heard_until = 0;
	memset(rank_until, 0, sizeof(rank_until));
	memset(leave_until, 0, sizeof(leave_until));
	asks = records = 0;
	/* the beginning of a second in which no refusal was sent */
	now_ms = (now_ms / 1000 + 2) * 1000;
	memcpy(world_jobs, made.job, sizeof(world_jobs));
	memcpy(world_records, made.record, sizeof(world_records));
	memcpy(world_seals, made.seals, sizeof(world_seals));
	for (i = 0; i < JOBS; i++) {
		set_epoch(i, how & 2 ? 0xfffffff0 + (how >> 4) : 1U + how);
		model[i].ranks = plans[i].ranks;
		model[i].multicast = plans[i].reply == THC_REPLY_MULTICAST;
	}
}

static void report(void)
{
	report_outcomes(reached, OUTCOMES, "packets", packets);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	static struct thcd_config c;
	struct thc_addr four = thc_addr_v4(thc_be32(0x0a4d0064));
	struct thc_addr six = { { thc_be32(0xfd770000), 0, 0, thc_be32(0x64) } };
	struct thcd_error note, e;
	char text[256];
	int i;

	(void)argc;
	(void)argv;
	thcd_config_init(&c);
	for (i = 0; i < JOBS; i++) {
		snprintf(text, sizeof(text), "%s,table=uniform,slots=4,norm_slots=2",
			 described[i].text);
		if (thcd_config_job(&c, text, &e) ||
		    thcd_plan_make(&plans[i], &c.job[i], described[i].six ? &six : &four, PORT,
				   &note, &e)) {
			fprintf(stderr, "%s\n", e.text);
			exit(1);
		}
		plans[i].slot_base = (u32)i * 6;
		if (plans[i].seal == THC_SEAL_NH)
			thc_member_key_derive(&welcome_key[i], plans[i].key, THC_KEY_WELCOME,
					      described[i].id);
	}
	make_jobs();
	atexit(report);
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = { data, size };

	begin_input();
	reset(next(&in));
	while (in.left && asks < ASKED_MAX - 2 * RANKS)
		act(&in);
	return 0;
}
