// SPDX-License-Identifier: GPL-2.0
/* Sketches of scheme lhc: what peeling leaves of items that are drawn, and how long it takes. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "peel.h"
#include "trial.h"

/**
 * struct sketch_trial - library.py has the same
 * @count: coordinates; @items of them have values, drawn anew each of @draws times
 * @buckets: of each of 2^@lanes_log2 lanes; 0: buckets and lanes are those of thc_sketch_init()
 */
struct sketch_trial {
	uint64_t count;
	uint64_t items;
	uint64_t seed;
	uint32_t draws;
	uint32_t hashes;
	uint32_t lanes_log2;
	uint32_t buckets;
};

/**
 * struct sketch_outcome - library.py has the same
 * @cells: of the bucket
 * @lanes: of a bucket; @windows: of the segments
 * @add_ns, @find_ns, @values_ns: of the processor, an item, the least of all draws
 */
struct sketch_outcome {
	uint64_t cells;
	uint64_t lanes;
	uint64_t windows;
	double add_ns;
	double find_ns;
	double values_ns;
};

/* A draw. @sum: by item of the union. */
struct draw {
	struct thc_sketch s;
	struct thc_peel peel;
	uint64_t state;
	uint32_t *bits;
	uint32_t *cells;
	int32_t *value;
	int32_t *sum;
	void *memory;
};

/* splitmix64 */
static uint64_t random_word(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15ULL;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ z >> 27) * 0x94d049bb133111ebULL;
	return z ^ z >> 31;
}

/* Of this thread, so that nobody else's work counts. */
static double cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void keep_least(double *least, double ns)
{
	if (!*least || ns < *least)
		*least = ns;
}

static size_t words_of(const struct draw *d)
{
	return (d->s.count + 31) / 32;
}

static void lay_out(struct draw *d, uint64_t items, struct thc_layout *l)
{
	d->bits = thc_lay(l, words_of(d) * sizeof(*d->bits));
	d->cells = thc_lay(l, thc_sketch_cells(&d->s) * sizeof(*d->cells));
	d->value = thc_lay(l, items * sizeof(*d->value));
	d->sum = thc_lay(l, items * sizeof(*d->sum));
	thc_peel_lay_out(&d->peel, &d->s, l);
}

static int draw_init(struct draw *d, const struct sketch_trial *t)
{
	struct thc_layout l = { .at = NULL };
	uint32_t windows;

	thc_sketch_init(&d->s, t->count, t->items, t->hashes);
	if (t->buckets) {
		thc_sketch_buckets(t->hashes, (uint32_t)(t->items >> t->lanes_log2), &windows);
		thc_sketch_shape(&d->s, t->lanes_log2, windows, t->buckets);
	}
	d->state = t->seed;
	lay_out(d, t->items, &l);
	d->memory = aligned_alloc(64, l.bytes);
	if (!d->memory)
		return -ENOMEM;
	memset(d->memory, 0, l.bytes);
	l = (struct thc_layout){ .at = d->memory };
	lay_out(d, t->items, &l);
	return 0;
}

static void draw_items(struct draw *d, uint64_t items)
{
	uint64_t i, at;

	memset(d->bits, 0, words_of(d) * sizeof(*d->bits));
	memset(d->cells, 0, thc_sketch_cells(&d->s) * sizeof(*d->cells));
	for (i = 0; i < items; i++) {
		do
			at = (random_word(&d->state) >> 32) * d->s.count >> 32;
		while (d->bits[at / 32] >> at % 32 & 1);
		d->bits[at / 32] |= 1U << at % 32;
		d->value[i] = (int32_t)random_word(&d->state);
	}
}

/* Is each value of the part that is peeled the one that was added? */
static int is_exact(const struct draw *d, const uint32_t *bits, uint32_t words,
		    const int32_t *value)
{
	uint32_t i, left, n = 0;

	for (i = 0; i < words; i++)
		for (left = bits[i]; left; left &= left - 1, n++)
			if (!(d->peel.left[i] & left & -left) && d->sum[n] != value[n])
				return 0;
	return 1;
}

/* Items that are left, or -1: a value is wrong. */
static int64_t run(struct draw *d, uint64_t items, struct sketch_outcome *out)
{
	double start = cpu_ns(), add, find = 0, values = 0, begun;
	const int32_t *value = d->value;
	int64_t left = 0;
	uint32_t part;

	thc_sketch_add(&d->s, 0, d->bits, words_of(d), d->value, d->cells);
	add = cpu_ns() - start;
	for (part = 0; part < d->s.parts; part++) {
		const uint32_t *bits = d->bits + (size_t)part * d->s.part / 32;

		begun = cpu_ns();
		left += thc_peel_find(&d->peel, &d->s, part, bits);
		find += cpu_ns() - begun;
		begun = cpu_ns();
		thc_peel_values(&d->peel, &d->s, bits,
				d->cells + (size_t)part * thc_sketch_part_cells(&d->s), d->sum);
		values += cpu_ns() - begun;
		if (!is_exact(d, bits, thc_sketch_part_words(&d->s, part), value))
			return -1;
		value += d->peel.items;
	}
	keep_least(&out->add_ns, add / (double)items);
	keep_least(&out->find_ns, find / (double)items);
	keep_least(&out->values_ns, values / (double)items);
	return left;
}

/* Buckets of a lane that libthc chooses for @items. */
CALL uint32_t sketch_buckets(uint32_t hashes, uint32_t items)
{
	uint32_t windows;

	return thc_sketch_buckets(hashes, items, &windows);
}

/**
 * round_by_sketch() - sketches of items that are drawn, peeled
 * @left: of each draw, how many items are left
 *
 * 0, -EINVAL, -ENOMEM; -EBADMSG: a value that was peeled is not the one that was added.
 */
CALL int round_by_sketch(const struct sketch_trial *t, uint64_t *left, struct sketch_outcome *out)
{
	struct draw d;
	int64_t of = 0;
	uint32_t i;

	if (!(t->items >> t->lanes_log2) || t->items > t->count || t->count > UINT32_MAX ||
	    (t->hashes != THC_SKETCH_THREE && t->hashes != THC_SKETCH_COUPLED))
		return -EINVAL;
	if (draw_init(&d, t))
		return -ENOMEM;
	*out = (struct sketch_outcome){
		.cells = thc_sketch_cells(&d.s), .lanes = 1U << d.s.lanes_log2,
		.windows = d.s.windows,
	};
	for (i = 0; i < t->draws && of >= 0; i++) {
		draw_items(&d, t->items);
		of = run(&d, t->items, out);
		left[i] = (uint64_t)of;
	}
	free(d.memory);
	return of < 0 ? -EBADMSG : 0;
}
