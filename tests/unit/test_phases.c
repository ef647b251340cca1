// SPDX-License-Identifier: GPL-2.0
/*
 * Numbers of chunks (userspace/libthc/phase.h): in whatever order a network lets ranks begin
 * requests and get answers, all ranks give a chunk one number. This includes phases whose size
 * only answers tell, and failing agreements. The same schedules show that ranks which number
 * chunks as soon as they have them disagree.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "phase.h"
#include "tries.h"

#define RANKS		3
#define REQUESTS	6
#define ACTIVE		2	/* active requests */
#define CHUNKS_MAX	5	/* chunks of a phase */
#define NUMBERS		512	/* numbers of a stream */
#define SCHEDULES	100000
/* A schedule with more steps hangs. */
#define STEPS_MAX	100000

typedef void number_fn(struct thc_phases *const *all, unsigned int n, bool control, u64 *next);

/* A phase's final size: constant, or known when answers come. */
struct plan {
	bool		control;
	unsigned int	chunks;
	int		after;	/* the phase whose answers tell; -1: known from the start */
};

/* A request, which is the same on all ranks. */
struct bucket {
	struct plan	plan[THC_PHASES_MAX];
	unsigned int	count;
	bool		fails;	/* its agreement fails */
};

struct rank {
	struct thc_phases	phases[REQUESTS];
	u64			next[2];	/* next number of each stream */
	unsigned int		done;		/* requests */
	/* by number: request, phase and chunk as one value; 0: unused */
	uint32_t		owner[2][NUMBERS];
};

static struct {
	uint64_t	dice;
	struct bucket	bucket[REQUESTS];
	struct rank	rank[RANKS];
} world;

static uint32_t below(uint32_t n)
{
	world.dice = world.dice * 6364136223846793005ULL + 1442695040888963407ULL;
	return (uint32_t)((world.dice >> 33) % n);
}

static uint32_t name_of(unsigned int request, unsigned int phase, uint32_t chunk)
{
	return (request + 1) << 16 | phase << 8 | chunk;
}

/* @more: chunks of the agreement's second phase, in all buckets of a job alike */
static void invent(struct bucket *b, unsigned int more)
{
	unsigned int k;

	*b = (struct bucket){
		.count = THC_AGREEMENT_PHASES + 1 + below(THC_PHASES_MAX - THC_AGREEMENT_PHASES),
		.fails = !below(8),
	};
	b->plan[THC_AGREEMENT] = (struct plan){ true, 1, -1 };
	b->plan[THC_AGREEMENT + 1] = (struct plan){ true, more, -1 };
	for (k = THC_AGREEMENT_PHASES; k < b->count; k++) {
		b->plan[k] = (struct plan){ below(2), below(CHUNKS_MAX), -1 };
		/* only the control stream's answers may size this phase: data phases might wait
		 * for it
		 */
		if (below(2) && b->plan[k - 1].control && k > THC_AGREEMENT_PHASES)
			b->plan[k].after = (int)k - 1;
	}
}

static void invent_all(void)
{
	unsigned int i, more = below(2);

	for (i = 0; i < REQUESTS; i++)
		invent(&world.bucket[i], more);
}

static void begin(struct thc_phases *all, const struct bucket *b)
{
	unsigned int k;

	memset(all, 0, sizeof(*all));
	all->count = b->count;
	for (k = 0; k < b->count; k++) {
		all->phase[k].control = b->plan[k].control;
		if (b->plan[k].after < 0) {
			all->phase[k].sized = b->plan[k].chunks;
			all->phase[k].closed = true;
		}
	}
}

static struct thc_phases *const *active_of(struct rank *r, struct thc_phases **out, unsigned int *n)
{
	for (*n = 0; *n < ACTIVE && r->done + *n < REQUESTS; ++*n)
		out[*n] = &r->phases[r->done + *n];
	return out;
}

static void write_down(struct rank *r, unsigned int request)
{
	struct thc_phases *all = &r->phases[request];
	unsigned int k;
	uint32_t i;

	for (k = 0; k < all->count; k++) {
		const struct thc_phase *p = &all->phase[k];

		for (i = 0; i < p->numbered; i++) {
			assert_true(p->first + i < NUMBERS);
			r->owner[p->control][p->first + i] = name_of(request, k, i);
		}
	}
}

/* Sizes further parts of the phases that wait for answers of @k, perhaps all. */
static void tell(struct thc_phases *all, const struct bucket *b, unsigned int k)
{
	const struct thc_phase *told = &all->phase[k];
	unsigned int i;

	for (i = k + 1; i < b->count; i++) {
		struct thc_phase *p = &all->phase[i];

		if (b->plan[i].after != (int)k)
			continue;
		if (told->closed && told->answered == told->sized) {
			p->sized = b->plan[i].chunks;
			p->closed = true;
		} else if (p->sized < b->plan[i].chunks) {
			p->sized += below(2);
		}
	}
}

/* Answers a random chunk that has a number; false: there is none. */
static bool answer_one(struct rank *r, unsigned int n)
{
	struct {
		unsigned int request, phase;
	} can[ACTIVE * THC_PHASES_MAX];
	unsigned int i, k, count = 0;

	for (i = 0; i < n; i++) {
		struct thc_phases *all = &r->phases[r->done + i];

		for (k = 0; k < all->count && !all->over; k++)
			if (all->phase[k].answered < all->phase[k].numbered) {
				can[count].request = r->done + i;
				can[count++].phase = k;
			}
	}
	if (!count)
		return false;
	i = below(count);
	{
		const struct bucket *b = &world.bucket[can[i].request];
		struct thc_phases *all = &r->phases[can[i].request];

		all->phase[can[i].phase].answered++;
		if (can[i].phase < THC_AGREEMENT_PHASES &&
		    all->phase[THC_AGREEMENT].answered == b->plan[THC_AGREEMENT].chunks &&
		    all->phase[THC_AGREEMENT + 1].answered == b->plan[THC_AGREEMENT + 1].chunks) {
			all->agreed = !b->fails;
			all->over = b->fails;
		}
		tell(all, b, can[i].phase);
	}
	return true;
}

/* Reports phases whose answers are complete, even without chunks. */
static void settle(struct rank *r, unsigned int n)
{
	unsigned int i, k;

	for (i = 0; i < n; i++) {
		struct thc_phases *all = &r->phases[r->done + i];

		for (k = 0; all->agreed && k < all->count; k++)
			if (all->phase[k].closed && all->phase[k].answered == all->phase[k].sized)
				tell(all, &world.bucket[r->done + i], k);
	}
}

/* Runs one rank through all requests, at random speed. */
static void run(struct rank *r, number_fn *number)
{
	struct thc_phases *active[ACTIVE];
	unsigned int i, n, steps = 0;

	memset(r, 0, sizeof(*r));
	for (i = 0; i < REQUESTS; i++)
		begin(&r->phases[i], &world.bucket[i]);
	while (r->done < REQUESTS) {
		active_of(r, active, &n);
		/* sometimes numbers one request only, or one stream */
		n = n > 1 && !below(3) ? 1 : n;
		settle(r, n);
		if (below(4))
			number(active, n, true, &r->next[true]);
		if (below(4))
			number(active, n, false, &r->next[false]);
		for (i = 0; i < n; i++)
			write_down(r, r->done + i);
		for (i = below(4); i; i--)
			answer_one(r, n);
		while (r->done < REQUESTS &&
		       (r->phases[r->done].over || thc_phases_done(&r->phases[r->done])))
			r->done++;
		assert_true(steps++ < STEPS_MAX);
	}
}

/* How many of @schedules lead ranks to different numbers. */
static unsigned int disagreements(number_fn *number, unsigned int schedules)
{
	unsigned int s, i, differ = 0;

	for (s = 0; s < schedules; s++) {
		bool differs = false;

		world.dice = s * 2654435761ULL + 1;
		invent_all();
		for (i = 0; i < RANKS; i++) {
			run(&world.rank[i], number);
			differs |= !!memcmp(world.rank[i].owner, world.rank[0].owner,
					    sizeof(world.rank[i].owner));
		}
		differ += differs;
	}
	return differ;
}

static void numbers__are_the_same_on_all_ranks(void **state)
{
	(void)state;
	assert_int_equal(disagreements(thc_phases_number, tries(SCHEDULES)), 0);
}

/* In the order of requests, phases and chunks, without a gap. */
static void numbers__are_in_order(void **state)
{
	unsigned int s, control, i;

	(void)state;
	for (s = 0; s < 1000; s++) {
		world.dice = s;
		invent_all();
		run(&world.rank[0], thc_phases_number);
		for (control = 0; control < 2; control++) {
			const struct rank *r = &world.rank[0];

			for (i = 0; i < r->next[control]; i++)
				assert_true(r->owner[control][i] >
					    (i ? r->owner[control][i - 1] : 0));
		}
	}
}

/* --- rules that are broken on purpose ---------------------------------------- */

/* Wrong: numbers known phases although phases before them are open. */
static void number_as_it_completes(struct thc_phases *const *all, unsigned int n, bool control,
				   u64 *next)
{
	unsigned int i, k;

	for (i = 0; i < n; i++) {
		for (k = 0; k < all[i]->count && !all[i]->over; k++) {
			struct thc_phase *p = &all[i]->phase[k];

			if ((k >= THC_AGREEMENT_PHASES && !all[i]->agreed) ||
			    p->control != control || p->numbered || !p->closed)
				continue;
			p->first = *next;
			*next += p->sized;
			p->numbered = p->sized;
		}
	}
}

/* Wrong: numbers a request before its agreement has succeeded. */
static void number_in_advance(struct thc_phases *const *all, unsigned int n, bool control,
			      u64 *next)
{
	unsigned int i;

	for (i = 0; i < n; i++) {
		bool agreed = all[i]->agreed;

		all[i]->agreed = true;
		thc_phases_number(all + i, 1, control, next);
		all[i]->agreed = agreed;
	}
}

static void broken__numbers_differ(void **state)
{
	(void)state;
	assert_true(disagreements(number_as_it_completes, 1000) > 100);
	assert_true(disagreements(number_in_advance, 1000) > 100);
}

/* --- by hand ------------------------------------------------------------------ */

static void find__whose_chunk_it_is(void **state)
{
	struct thc_phases one = { .count = 3, .agreed = true }, two = { .count = 1 };
	struct thc_phases *all[] = { &one, &two };
	u64 control = 0, data = 0;

	(void)state;
	one.phase[0] = (struct thc_phase){ .sized = 1, .control = true, .closed = true };
	one.phase[1] = (struct thc_phase){ .sized = 3, .control = true };
	one.phase[2] = (struct thc_phase){ .sized = 2, .closed = true };
	two.phase[0] = (struct thc_phase){ .sized = 1, .control = true, .closed = true };
	thc_phases_number(all, 2, true, &control);
	thc_phases_number(all, 2, false, &data);
	assert_int_equal(control, 4);
	assert_int_equal(data, 2);
	assert_ptr_equal(thc_phases_find(all, 2, true, 0), &one.phase[0]);
	assert_ptr_equal(thc_phases_find(all, 2, true, 3), &one.phase[1]);
	assert_null(thc_phases_find(all, 2, true, 4));
	assert_ptr_equal(thc_phases_find(all, 2, false, 1), &one.phase[2]);
	/* an open phase goes on where it stopped */
	one.phase[1].sized = 5;
	one.phase[1].closed = true;
	thc_phases_number(all, 2, true, &control);
	assert_int_equal(control, 7);
	assert_ptr_equal(thc_phases_find(all, 2, true, 5), &one.phase[1]);
	assert_ptr_equal(thc_phases_find(all, 2, true, 6), &two.phase[0]);
	assert_false(thc_phases_done(&one));
	one.phase[0].answered = 1;
	one.phase[1].answered = 5;
	one.phase[2].answered = 2;
	assert_true(thc_phases_done(&one));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(numbers__are_the_same_on_all_ranks),
		cmocka_unit_test(numbers__are_in_order),
		cmocka_unit_test(broken__numbers_differ),
		cmocka_unit_test(find__whose_chunk_it_is),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
