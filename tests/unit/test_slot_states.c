// SPDX-License-Identifier: GPL-2.0
/*
 * Exhaustive exploration of the slot state machine (include/thc/aggregator/slot.h),
 * of what is done about it and answered (react.h), together with the smallest
 * model of the workers, the network and the daemon that use them. Nothing here
 * knows about lanes, frames or time.
 *
 * The network loses, duplicates, delays and reorders without bound: it is the
 * set of all packets ever sent. A packet that was sent may be delivered in any
 * later state, any number of times, or never. Every behaviour of a channel
 * with a bounded number of packets in flight is one of these, so what holds
 * here holds for any bound. The set needs no room in a state: which requests
 * exist follows from how far each worker got in each epoch, which results
 * exist is kept by (epoch, slot, generation), and of the other answers only
 * those matter that their worker would still take.
 *
 * A request may reach the slot although its epoch has ended meanwhile: it was
 * admitted on one CPU while the daemon raised the epoch on another.
 *
 * Lanes are one integer per generation. Each (worker, epoch, slot's generation)
 * adds its own power of four, so the sum tells who is in and how often.
 *
 * Safety, checked in every step:
 *	- lanes of every open or finished generation hold exactly the contributors
 *	  in its bitmap, each once, all of that epoch and generation;
 *	- all results of one (epoch, slot, generation) are the same bits;
 *	- a generation finishes with everybody, or closed with its quorum;
 *	- what STALE says about who was in is what the result said, and without
 *	  a deadline nobody is told STALE who still waits for the result;
 *	- WAIT names its receiver among the contributors, and not everybody;
 *	- workers that keep the rules are never BUSY, and MISMATCH only when
 *	  their epoch is gone.
 * Liveness, checked in every state: if nothing is lost from here on and nobody
 * restarts, some worker gets further. Progress is bounded and the next state
 * is again one of those explored, so from everywhere everybody finishes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <thc/aggregator/react.h>

#define WORKERS_MAX	3
#define WORKERS		(model->workers)
#define EVERYBODY	((1U << WORKERS) - 1)
#define EPOCHS_MAX	3
#define SLOTS_MAX	2
#define ROUNDS_MAX	8

/* What is explored: one chunk per slot and round, so generation = round. */
struct model {
	const char *name;
	int workers;
	int slots;
	int rounds;
	int epochs;	/* restarts are possible until this epoch */
	int quorum;	/* 0: no deadline */
	int mixed;	/* that many workers send indices, the others sums. The row of indices
			 * differs from generation to generation
			 */
	int large;	/* not under sanitizers, which make it ten times slower */
};

struct worker {
	u8 epoch;			/* epoch that it joined, from 1 */
	u8 running;			/* it has seen READY of this epoch */
	u8 generation[SLOTS_MAX];	/* the one it waits for; rounds: done */
	u8 stale[SLOTS_MAX];		/* a STALE for that generation is under way */
};

struct state {
	struct thc_slot slot[SLOTS_MAX];
	u64 lanes[SLOTS_MAX][2];
	u8 epoch;			/* the job's */
	u8 joined;			/* ranks of this epoch */
	u8 ready[EPOCHS_MAX];		/* READY of this epoch was sent */
	struct worker worker[WORKERS_MAX];
	u8 sent[EPOCHS_MAX][WORKERS_MAX][SLOTS_MAX];	/* generations below this were sent */
	u8 result[EPOCHS_MAX][SLOTS_MAX][ROUNDS_MAX];	/* bitmap of the answer, 0: none yet */
};

/* States are kept packed; unpack() restores what pack() was given. */
#define PACKED_MAX 128

struct node {
	u32 parent;
	u32 action;
};

enum { RESTART = 1, REJOIN, START, RESULT, STALE, REQUEST, CLOSE };

static const struct model *model;
static u8 *arena;		/* packed states, in order of discovery */
static struct node *nodes;
static u32 *table;		/* hash set of indices into the arena, + 1 */
static u32 count, room, table_size, here;
static int packed_size;
/* by their fate; THC_EVENT_EPOCH: those whose epoch had ended when they came to the slot */
static u64 reactions[THC_EVENT_FATES];
static u64 unknown_stales, strays;

/* --- packing --------------------------------------------------------------- */

struct cursor {
	u8 *at;
	int writing;
};

static void put(struct cursor *c, void *field, size_t size)
{
	if (c->writing)
		memcpy(c->at, field, size);
	else
		memcpy(field, c->at, size);
	c->at += size;
}

/* One byte stands for a u32 that is small or a small negative number. */
static void put_small(struct cursor *c, u32 *field)
{
	if (c->writing) {
		assert_true((u32)(s32)(signed char)*field == *field);
		*c->at = *field;
	} else {
		*field = (u32)(s32)(signed char)*c->at;
	}
	c->at++;
}

static void put_generation(struct cursor *c, struct thc_generation *g)
{
	u32 bitmap = g->bitmap, number = g->count;

	assert_true(!g->digest.a && !g->digest.b && !g->ce && g->bitmap <= EVERYBODY);
	put_small(c, &bitmap);
	put_small(c, &g->number);
	put_small(c, &g->round);
	put_small(c, &g->chunk);
	put_small(c, &number);
	put(c, &g->state, 1);
	put(c, &g->width, 1);
	put(c, &g->op, 1);
	put(c, &g->row, 1);
	g->bitmap = bitmap;
	g->count = number;
}

static void put_past(struct cursor *c, struct thc_past *p)
{
	u8 b = p->bitmap | p->count << 4 | p->known << 7;

	put(c, &b, 1);
	put_small(c, &p->generation);
	p->bitmap = b & 7;
	p->count = b >> 4 & 7;
	p->known = b >> 7;
}

static void put_state(struct cursor *c, struct state *s)
{
	int i, k, w, e;

	for (i = 0; i < model->slots; i++) {
		put_small(c, &s->slot[i].epoch);
		put_small(c, &s->slot[i].top);
		for (k = 0; k < 2; k++) {
			put_generation(c, &s->slot[i].generation[k]);
			put(c, &s->lanes[i][k], 8);
		}
		for (k = 0; k < THC_PASTS; k++)
			put_past(c, &s->slot[i].past[k]);
		for (e = 0; e < model->epochs; e++) {
			put(c, s->result[e][i], model->rounds);
			for (w = 0; w < WORKERS; w++)
				put(c, &s->sent[e][w][i], 1);
		}
		for (w = 0; w < WORKERS; w++) {
			put(c, &s->worker[w].generation[i], 1);
			put(c, &s->worker[w].stale[i], 1);
		}
	}
	put(c, &s->epoch, 1);
	put(c, &s->joined, 1);
	put(c, s->ready, model->epochs);
	for (w = 0; w < WORKERS; w++) {
		put(c, &s->worker[w].epoch, 1);
		put(c, &s->worker[w].running, 1);
	}
}

static int pack(struct state *s, u8 *to)
{
	struct cursor c = { .at = to, .writing = 1 };

	put_state(&c, s);
	return c.at - to;
}

static void unpack(struct state *s, u8 *from)
{
	struct cursor c = { .at = from };

	memset(s, 0, sizeof(*s));
	put_state(&c, s);
}

/* --- the set of visited states ---------------------------------------------- */

static u64 hash(const u8 *p, int n)
{
	u64 h = 0x9e3779b97f4a7c15ULL;

	for (; n--; p++)
		h = (h ^ *p) * 0x100000001b3ULL;
	return h ^ h >> 29;
}

static void table_insert(u32 index)
{
	u64 i = hash(arena + (size_t)index * packed_size, packed_size);

	while (table[i & (table_size - 1)])
		i++;
	table[i & (table_size - 1)] = index + 1;
}

static void grow(void)
{
	u32 i;

	room = room ? 2 * room : 1U << 16;
	table_size = 4 * room;
	arena = realloc(arena, (size_t)room * packed_size);
	nodes = realloc(nodes, (size_t)room * sizeof(*nodes));
	free(table);
	table = calloc(table_size, sizeof(*table));
	assert_true(arena && nodes && table);
	for (i = 0; i < count; i++)
		table_insert(i);
}

static void visit(struct state *s, u32 action)
{
	u8 key[PACKED_MAX * SLOTS_MAX];
	u64 i;

	pack(s, key);
	for (i = hash(key, packed_size); table[i & (table_size - 1)]; i++)
		if (!memcmp(arena + (size_t)(table[i & (table_size - 1)] - 1) * packed_size, key,
			    packed_size))
			return;
	if (count == room)
		grow();
	memcpy(arena + (size_t)count * packed_size, key, packed_size);
	nodes[count] = (struct node){ here, action };
	table_insert(count++);
}

/* --- a violation comes with the way that led to it --------------------------- */

static u32 action_code(int what, int w, int e, int i, int g)
{
	return what | w << 4 | e << 8 | i << 12 | g << 16;
}

static void print_action(u32 a)
{
	static const char *const name[] = {
		[RESTART] = "restart", [REJOIN] = "rejoin", [START] = "start",
		[RESULT] = "result", [STALE] = "stale", [REQUEST] = "request",
		[CLOSE] = "close",
	};

	print_message("#   %-8s worker %u epoch %u slot %u generation %u\n", name[a & 15],
		      a >> 4 & 15, a >> 8 & 15, a >> 12 & 15, a >> 16);
}

static void print_way(u32 index)
{
	if (!index)
		return;
	print_way(nodes[index].parent);
	print_action(nodes[index].action);
}

static void require(int holds, const char *what, u32 action)
{
	if (holds)
		return;
	print_message("# %s: %s, after\n", model->name, what);
	print_way(here);
	if (action)
		print_action(action);
	fail();
}

/* --- the aggregator ---------------------------------------------------------- */

/* The home for react.h: slots of a state, and lanes that are one integer. */
struct thc_home {
	u64 *lanes;
	struct thc_slot *slot;
	u64 weight;
	int locked;
};

THC_INLINE struct thc_bucket *thc_home_strangers(struct thc_home *home)
{
	(void)home;
	return NULL;
}

THC_INLINE struct thc_bucket *thc_home_joins(struct thc_home *home, struct thc_job *job, u32 rank)
{
	(void)home;
	(void)job;
	(void)rank;
	return NULL;
}

THC_INLINE struct thc_bucket *thc_home_leaves(struct thc_home *home, struct thc_job *job, u32 rank)
{
	return thc_home_joins(home, job, rank);
}

THC_INLINE enum thc_drop_reason thc_home_seal(struct thc_home *home, const struct thc_packet *p,
					      u8 seal, const struct thc_seal_key *key)
{
	(void)home;
	(void)p;
	(void)seal;
	(void)key;
	return THC_DROP_NONE;
}

THC_INLINE enum thc_drop_reason thc_home_membership(struct thc_home *home,
						    const struct thc_packet *p,
						    const struct thc_seals *s)
{
	(void)home;
	(void)p;
	(void)s;
	return THC_DROP_NONE;
}

THC_INLINE u64 *thc_home_told(struct thc_home *home, struct thc_member *m)
{
	(void)home;
	return &m->told_at;
}

THC_INLINE int thc_home_hears(struct thc_home *home, const struct thc_packet *p)
{
	(void)home;
	(void)p;
	return 1;
}

THC_INLINE u64 thc_home_clock(struct thc_home *home)
{
	(void)home;
	return 0;
}

THC_INLINE void thc_home_heard(struct thc_home *home, struct thc_member *m)
{
	(void)home;
	(void)m;
}

THC_INLINE enum thc_drop_reason thc_home_lock(struct thc_home *home, u32 index, u32 row,
					      struct thc_slot **slot)
{
	(void)row;
	home->locked++;
	*slot = &home->slot[index];
	return THC_DROP_NONE;
}

THC_INLINE void thc_home_unlock(struct thc_home *home, struct thc_slot *slot)
{
	(void)slot;
	home->locked--;
}

THC_INLINE void thc_home_combine(struct thc_home *home, enum thc_lane_kind kind,
				 const struct thc_packet *p, u32 odd, u32 first)
{
	(void)kind;
	(void)p;
	home->lanes[odd] = (first ? 0 : home->lanes[odd]) + home->weight;
}

THC_INLINE void thc_home_finish(struct thc_home *home, struct thc_slot *slot, u32 odd,
				const struct thc_seals *s)
{
	(void)home;
	(void)slot;
	(void)odd;
	(void)s;
}

THC_INLINE int thc_home_answer(struct thc_home *home, struct thc_hdr *h, struct thc_job *job,
			       const struct thc_seals *s, struct thc_slot *slot, u32 verdict)
{
	(void)home;
	return thc_react_answer(h, job, s, slot, verdict);
}

/* No seals: an epoch's number stands for its keys. */
static const struct thc_seals seals = { .seal = THC_SEAL_NONE };

static u64 weight(int w, int e, int g)
{
	return 1ULL << 2 * (w + WORKERS * (g + model->rounds * (e - 1)));
}

static u64 sum_of(u64 bitmap, int e, int g)
{
	u64 sum = 0;
	int w;

	for (w = 0; w < WORKERS; w++)
		if (bitmap >> w & 1)
			sum += weight(w, e, g);
	return sum;
}

static void job_init(struct thc_job *job, const struct state *s)
{
	memset(job, 0, sizeof(*job));
	job->all = EVERYBODY;
	job->ranks = WORKERS;
	job->epoch = s->epoch;
	job->joined = s->joined;
	memset(&job->widths, 32, sizeof(job->widths));
}

/* Bits of an index in generation @g. */
static u8 row_of(int g)
{
	return (u8)(4 + g % 3);
}

static struct thc_hdr request(int w, int e, int i, int g)
{
	return (struct thc_hdr){
		.version = THC_VERSION, .rank = thc_be16(w),
		.op = w < model->mixed ? THC_OP_LUT_ADD : THC_OP_ADD,
		.width = w < model->mixed ? row_of(g) : 32,
		.epoch = thc_be32(e), .round = thc_be32(g), .slot = thc_be16(i),
		.chunk = thc_be32(g * model->slots + i), .generation = thc_be32(g),
	};
}

/* The op is the first contributor's: a worker takes either op of sums. */
static int op_is_right(const struct thc_hdr *h)
{
	u64 in = thc_be64(h->bitmap);

	if (!model->mixed)
		return h->op == THC_OP_ADD;
	return h->op == THC_OP_LUT_ADD ? !!(in & ((1U << model->mixed) - 1)) :
					 h->op == THC_OP_ADD && !!(in >> model->mixed);
}

/* A result for one rank or all must be true, and always the same. */
static void check_result(struct state *s, int i, const struct thc_hdr *h, u32 action)
{
	int e = thc_be32(h->epoch), g = thc_be32(h->generation), k = g & 1;
	u64 in = thc_be64(h->bitmap);

	require(e >= 1 && e <= s->epoch && g >= 0 && g < model->rounds,
		"a result of an epoch or generation that never was", action);
	require((int)thc_be32(h->round) == g && thc_be16(h->slot) == i &&
			(int)thc_be32(h->chunk) == g * model->slots + i && op_is_right(h) &&
			h->width == 32,
		"a result under a wrong label", action);
	require(s->lanes[i][k] == sum_of(in, e, g), "a result is not the sum of its contributors",
		action);
	require(thc_be16(h->count) == __builtin_popcountll(in), "count differs from bitmap",
		action);
	require(h->flags & THC_F_CLOSED ? model->quorum && thc_be16(h->count) >= model->quorum :
					  in == EVERYBODY,
		"a result without everybody and without its quorum", action);
	require(!s->result[e - 1][i][g] || s->result[e - 1][i][g] == in,
		"two different results of one generation", action);
	s->result[e - 1][i][g] = in;
}

static void check_wait(const struct thc_generation *held, const struct thc_hdr *h, int w,
		       u32 action)
{
	require(thc_be64(h->bitmap) & 1ULL << w, "WAIT to a worker that is not in", action);
	require(thc_be64(h->bitmap) != EVERYBODY, "WAIT although everybody is in", action);
	require(held->state == THC_OPEN, "WAIT for a generation that is not open", action);
}

static void check_stale(struct state *s, int i, const struct thc_hdr *h, int w, u32 action)
{
	int e = thc_be32(h->epoch), g = thc_be32(h->generation);
	struct worker *to = &s->worker[w];

	require(s->result[e - 1][i][g], "STALE for a generation that never finished", action);
	require((s32)(s->slot[i].top - g) >= 2, "STALE although the result is still there", action);
	if (h->flags & THC_F_KNOWN)
		require(thc_be64(h->bitmap) == s->result[e - 1][i][g] &&
			thc_be16(h->count) == __builtin_popcount(s->result[e - 1][i][g]),
			"STALE tells wrongly who was in", action);
	else
		unknown_stales++;
	require(h->flags & THC_F_KNOWN || s->slot[i].top - g >= 2 + THC_PASTS,
		"STALE does not know a recent generation", action);
	if (!to->running || to->epoch != e || to->generation[i] != g)
		return;
	require(model->quorum, "a result is gone before everybody has it", action);
	to->stale[i] = 1;
}

/* What must hold of every slot at any time, whatever happened. */
static void check_slot(const struct state *s, int i, u32 action)
{
	const struct thc_slot *slot = &s->slot[i];
	int k;

	for (k = 0; k < 2; k++) {
		const struct thc_generation *held = &slot->generation[k];

		if (held->state == THC_EMPTY)
			continue;
		require((int)(held->number & 1) == k, "a generation in the other's place", action);
		require(held->bitmap &&
				s->lanes[i][k] == sum_of(held->bitmap, slot->epoch, held->number),
			"lanes do not hold exactly the contributors", action);
		require(held->count == __builtin_popcountll(held->bitmap),
			"count differs from bitmap", action);
		require(held->number == slot->top || thc_generation_done(held),
			"an older generation is open", action);
		require(held->row == (held->bitmap & ((1U << model->mixed) - 1) ?
					      row_of((int)held->number) :
					      0),
			"the row is not that of the indices that are in", action);
	}
}

/* Indices of another row, with sums as wide, meet a generation that has indices: the answer names
 * the contributors, and nothing changes.
 */
static void deliver_stray(const struct state *from, int w, int e, int i, int g, u32 action)
{
	const struct thc_generation *held = &from->slot[i].generation[g & 1];
	struct thc_hdr h = request(w, e, i, g);
	const struct thc_packet p = { .hdr = &h };
	struct state s = *from;
	struct thc_home home = { .lanes = s.lanes[i], .slot = s.slot, .weight = 1 };
	struct thc_reaction r;
	struct thc_job job;

	if (held->state == THC_EMPTY || !held->row || (int)held->number != g ||
	    (int)from->slot[i].epoch != e)
		return;
	job_init(&job, &s);
	h.op = THC_OP_LUT_ADD;
	h.width = row_of(g + 1);
	r = thc_react_slot(&home, &job, &seals, &p);
	require(r.why == THC_DROP_MISMATCH && r.to == THC_TO_SENDER && h.op == THC_OP_WAIT &&
			h.flags == THC_F_DIFFERS && thc_be64(h.bitmap) == held->bitmap,
		"indices of another row are not a mismatch", action);
	require(!memcmp(&s, from, sizeof(s)), "a mismatch changes the slot", action);
	strays++;
}

/* A request that was admitted in its epoch meets the slot. */
static void deliver_request(struct state *s, int w, int e, int i, int g, u32 action)
{
	struct thc_hdr h = request(w, e, i, g);
	const struct thc_packet p = { .hdr = &h };
	struct thc_home home = { .lanes = s->lanes[i], .slot = s->slot, .weight = weight(w, e, g) };
	const struct thc_generation *held = &s->slot[i].generation[g & 1];
	struct thc_reaction r;
	struct thc_job job;

	deliver_stray(s, w, e, i, g, action);
	job_init(&job, s);
	r = thc_react_slot(&home, &job, &seals, &p);
	require(!home.locked, "a slot stays locked", action);
	require(!r.why || r.why == THC_DROP_MISMATCH,
		"BUSY although every worker waits for its results", action);
	if (r.why)
		require((int)s->slot[i].epoch > e && r.to == THC_TO_NOBODY,
			"MISMATCH although all agree", action);
	else
		require(r.event < THC_EVENT_EPOCH, "no such reaction", action);
	reactions[r.why ? THC_EVENT_EPOCH : r.event]++;
	switch (r.why ? THC_EVENT_EPOCH : r.event) {
	case THC_EVENT_ADDED:
		require((r.to == THC_TO_ALL) == (held->state == THC_FINISHED) &&
				(r.to == THC_TO_ALL || r.to == THC_TO_NOBODY),
			"all are told too early, or not at all", action);
		if (r.to == THC_TO_ALL)
			check_result(s, i, &h, action);
		break;
	case THC_EVENT_REPEATED:
		require((int)held->number == g && (int)s->slot[i].epoch == e &&
				r.to == THC_TO_SENDER,
			"another generation's result repeated", action);
		check_result(s, i, &h, action);
		break;
	case THC_EVENT_WAITED:
		check_wait(held, &h, w, action);
		break;
	case THC_EVENT_STALE:
		check_stale(s, i, &h, w, action);
		break;
	}
	check_slot(s, i, action);
}

static int deliver_close(struct state *s, int e, int i, int g, u32 action)
{
	struct thc_hdr h;

	if (!thc_slot_close(&s->slot[i], e, g, model->quorum))
		return 0;
	thc_answer_result(&h, &seals, (struct thc_answer_at){ 0, i, s->slot[i].epoch },
			  &s->slot[i].generation[g & 1], 0, 0);
	check_result(s, i, &h, action);
	check_slot(s, i, action);
	return 1;
}

/* --- the workers ------------------------------------------------------------- */

/* Generation @g of slot @i may be sent: its own slot and the round before are done. */
static int may_send(const struct worker *w, int i, int g)
{
	int k;

	if (!w->running || g >= model->rounds || g > w->generation[i])
		return 0;
	for (k = 0; k < model->slots; k++)
		if (w->generation[k] < g)
			return 0;
	return 1;
}

static void note_sent(struct state *s, int w)
{
	struct worker *me = &s->worker[w];
	int i;

	/* requests sent later are refused: STALE with THC_F_EPOCH */
	if (me->epoch != s->epoch)
		return;
	for (i = 0; i < model->slots; i++)
		if (may_send(me, i, me->generation[i]))
			s->sent[me->epoch - 1][w][i] = me->generation[i] + 1;
}

static void join(struct state *s, int w)
{
	memset(&s->worker[w], 0, sizeof(s->worker[w]));
	s->worker[w].epoch = s->epoch;
	s->joined |= 1 << w;
	if (s->joined == EVERYBODY)
		s->ready[s->epoch - 1] = 1;
}

/* The daemon hears a JOIN with a new nonce. */
static int restart(struct state *s, int w)
{
	if (s->joined >> w & 1) {
		if (s->epoch == model->epochs)
			return 0;
		s->epoch++;
		s->joined = 0;
	}
	join(s, w);
	return 1;
}

static int start(struct state *s, int w)
{
	struct worker *me = &s->worker[w];

	if (me->running || !s->ready[me->epoch - 1])
		return 0;
	me->running = 1;
	note_sent(s, w);
	return 1;
}

static int waits_for(const struct worker *w, int i)
{
	return may_send(w, i, w->generation[i]);
}

static void advance(struct state *s, int w, int i)
{
	s->worker[w].generation[i]++;
	s->worker[w].stale[i] = 0;
	note_sent(s, w);
}

/* The worker takes an answer that carries its epoch, slot and generation. */
static int take_result(struct state *s, int w, int i)
{
	struct worker *me = &s->worker[w];

	if (!waits_for(me, i) || !s->result[me->epoch - 1][i][me->generation[i]])
		return 0;
	advance(s, w, i);
	return 1;
}

static int take_stale(struct state *s, int w, int i)
{
	if (!waits_for(&s->worker[w], i) || !s->worker[w].stale[i])
		return 0;
	advance(s, w, i);
	return 1;
}

/* --- exploration ------------------------------------------------------------- */

static void expand(const struct state *from)
{
	struct state s;
	int w, e, i, g;

	for (w = 0; w < WORKERS; w++) {
		s = *from;
		if (restart(&s, w))
			visit(&s, action_code(RESTART, w, 0, 0, 0));
		s = *from;
		if (s.worker[w].epoch < s.epoch) {
			join(&s, w);
			visit(&s, action_code(REJOIN, w, 0, 0, 0));
		}
		s = *from;
		if (start(&s, w))
			visit(&s, action_code(START, w, 0, 0, 0));
		for (i = 0; i < model->slots; i++) {
			s = *from;
			if (take_result(&s, w, i))
				visit(&s, action_code(RESULT, w, 0, i, 0));
			s = *from;
			if (take_stale(&s, w, i))
				visit(&s, action_code(STALE, w, 0, i, 0));
		}
	}
	for (e = 1; e <= from->epoch; e++) {
		for (i = 0; i < model->slots; i++) {
			for (w = 0; w < WORKERS; w++) {
				for (g = 0; g < from->sent[e - 1][w][i]; g++) {
					u32 action = action_code(REQUEST, w, e, i, g);

					s = *from;
					deliver_request(&s, w, e, i, g, action);
					visit(&s, action);
				}
			}
			for (g = 0; model->quorum && g < model->rounds; g++) {
				u32 action = action_code(CLOSE, 0, e, i, g);

				s = *from;
				if (deliver_close(&s, e, i, g, action))
					visit(&s, action);
			}
		}
	}
}

static int progress(const struct state *s)
{
	int w, i, sum = 0;

	for (w = 0; w < WORKERS; w++) {
		if (s->worker[w].epoch != s->epoch)
			continue;
		sum += 1 + s->worker[w].running;
		for (i = 0; i < model->slots; i++)
			sum += s->worker[w].generation[i];
	}
	return sum;
}

/* Once, every worker sends what it may send, and everything arrives. */
static void fair_round(struct state *s)
{
	int w, i;

	for (w = 0; w < WORKERS; w++) {
		if (s->worker[w].epoch < s->epoch)
			join(s, w);
		for (i = 0; i < model->slots; i++)
			if (s->worker[w].epoch == s->epoch && waits_for(&s->worker[w], i))
				deliver_request(s, w, s->epoch, i, s->worker[w].generation[i], 0);
	}
	for (w = 0; w < WORKERS; w++) {
		for (i = 0; i < model->slots; i++)
			if (!take_result(s, w, i))
				take_stale(s, w, i);
		start(s, w);
	}
}

static void check_liveness(const struct state *from)
{
	int before = progress(from);
	struct state s = *from;

	if (before == WORKERS * (2 + model->slots * model->rounds))
		return;
	fair_round(&s);
	require(progress(&s) > before, "nobody gets further although nothing is lost", 0);
}

static void state_init(struct state *s)
{
	int w;

	memset(s, 0, sizeof(*s));
	s->epoch = 1;
	for (w = 0; w < WORKERS; w++)
		join(s, w);
}

static void explore(void **arg)
{
	struct state s;
	u32 finished = 0;

	model = *arg;
#ifdef __SANITIZE_ADDRESS__
	if (model->large)
		skip();
#endif
	count = room = here = 0;
	unknown_stales = strays = 0;
	memset(reactions, 0, sizeof(reactions));
	state_init(&s);
	{
		u8 key[PACKED_MAX * SLOTS_MAX];

		packed_size = pack(&s, key);
		assert_true(packed_size <= (int)sizeof(key));
	}
	grow();
	visit(&s, 0);
	for (here = 0; here < count; here++) {
		unpack(&s, arena + (size_t)here * packed_size);
		finished += progress(&s) == WORKERS * (2 + model->slots * model->rounds);
		check_liveness(&s);
		expand(&s);
	}
	print_message(
		"# %s: %u states, everybody done in %u of them; verdicts: add %llu, wait %llu, "
		"repeat %llu, stale %llu (%llu without the bitmap), mismatch %llu\n",
		model->name, count, finished, (unsigned long long)reactions[THC_EVENT_ADDED],
		(unsigned long long)reactions[THC_EVENT_WAITED],
		(unsigned long long)reactions[THC_EVENT_REPEATED],
		(unsigned long long)reactions[THC_EVENT_STALE], (unsigned long long)unknown_stales,
		(unsigned long long)reactions[THC_EVENT_EPOCH]);
	/* all cases that safety depends on must have occurred */
	assert_true(finished > 0 && reactions[THC_EVENT_ADDED] && reactions[THC_EVENT_WAITED] &&
		    reactions[THC_EVENT_REPEATED]);
	if (model->rounds > 2)
		assert_true(reactions[THC_EVENT_STALE]);
	if (model->epochs > 1)
		assert_true(reactions[THC_EVENT_EPOCH]);
	assert_int_equal(!!strays, !!model->mixed);
	if (model->rounds > THC_PASTS + 2 && model->quorum)
		assert_true(unknown_stales);
	free(arena);
	free(nodes);
	free(table);
	arena = NULL;
	nodes = NULL;
	table = NULL;
}

static struct model models[] = {
	{ "loss", .workers = 3, .slots = 1, .rounds = 3, .epochs = 1 },
	{ "loss_close", .workers = 3, .slots = 1, .rounds = 3, .epochs = 1, .quorum = 2 },
	{ "loss_mixed", .workers = 3, .slots = 1, .rounds = 3, .epochs = 1, .mixed = 1 },
	{ "loss_rows", .workers = 3, .slots = 1, .rounds = 3, .epochs = 1, .mixed = 2 },
	{ "loss_close_rows", .workers = 3, .slots = 1, .rounds = 3, .epochs = 1, .quorum = 2,
	  .mixed = 2 },
	{ "restart_close_mixed", .workers = 2, .slots = 1, .rounds = 2, .epochs = 2, .quorum = 1,
	  .mixed = 1 },
	{ "loss_restart", .workers = 3, .slots = 1, .rounds = 3, .epochs = 2 },
	{ "loss_restart_close", .workers = 3, .slots = 1, .rounds = 3, .epochs = 2, .quorum = 2,
	  .large = 1 },
	{ "restart_twice", .workers = 3, .slots = 1, .rounds = 3, .epochs = 3 },
	{ "restart_twice_close", .workers = 2, .slots = 1, .rounds = 2, .epochs = 3, .quorum = 1,
	  .large = 1 },
	{ "long_lag", .workers = 2, .slots = 1, .rounds = 8, .epochs = 1, .quorum = 1 },
	{ "two_slots", .workers = 3, .slots = 2, .rounds = 3, .epochs = 1 },
	{ "two_slots_close", .workers = 3, .slots = 2, .rounds = 3, .epochs = 1, .quorum = 2,
	  .large = 1 },
	{ "two_slots_restart", .workers = 3, .slots = 2, .rounds = 3, .epochs = 2 },
};

int main(void)
{
	struct CMUnitTest tests[sizeof(models) / sizeof(*models)];
	size_t i;

	memset(tests, 0, sizeof(tests));
	for (i = 0; i < sizeof(models) / sizeof(*models); i++) {
		tests[i].name = models[i].name;
		tests[i].test_func = explore;
		tests[i].initial_state = &models[i];
	}
	return cmocka_run_group_tests_name("slot states", tests, NULL, NULL);
}
