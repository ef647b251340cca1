// SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0)
/* The index of a bucket, level by level. */
#include <string.h>

#include <thc/types.h>
#include <thc/wire/format.h>

#include "index.h"
#include "request.h"
#include "sparse.h"

static uint32_t words_of(size_t bits)
{
	return (uint32_t)((bits + 31) / 32);
}

static uint32_t chunks_of(uint32_t words)
{
	return (words + THC_INDEX_CHUNK - 1) / THC_INDEX_CHUNK;
}

void thc_index_init(struct thc_index *x, const struct thc_sparse_ops *sparse, size_t count,
		    unsigned int grain_log2, unsigned int levels)
{
	size_t bits = (count + ((size_t)1 << grain_log2) - 1) >> grain_log2;
	unsigned int at;

	x->sparse = sparse;
	x->levels = levels;
	x->grain_log2 = grain_log2;
	x->count = count;
	for (at = 0; at < levels; at++) {
		struct thc_level *l = &x->level[at];

		l->words = words_of(bits);
		l->last_bits = bits % 32 ? (1U << bits % 32) - 1 : UINT32_MAX;
		bits = l->words;
	}
}

void thc_index_lay_out(struct thc_index *x, struct thc_layout *l)
{
	unsigned int at;

	for (at = 0; at < x->levels; at++) {
		struct thc_level *level = &x->level[at];

		level->word = thc_lay(l, level->words * sizeof(*level->word));
		level->packets = thc_lay(l, chunks_of(level->words) * THC_ANSWER_BYTES);
		level->start = thc_lay(l, (chunks_of(level->words) + 1) * sizeof(*level->start));
		level->came = thc_lay(l, chunks_of(level->words));
	}
}

/* --- this rank's ------------------------------------------------------------ */

/* A bit for each run of 2^@grain_log2 bits of @bits that has any, at most 32 in a row. */
static uint32_t narrowed(uint32_t bits, unsigned int grain_log2)
{
	uint32_t out = 0;
	unsigned int i, k;

	for (k = 0; k < grain_log2; k++)
		bits |= bits >> (1U << k);
	for (i = 0; i < 32U >> grain_log2; i++)
		out |= (bits >> (i << grain_log2) & 1) << i;
	return out;
}

void thc_index_put(struct thc_index *x, size_t first, const uint32_t *bits, size_t words)
{
	const unsigned int g = x->grain_log2;
	uint32_t *leaf = x->level[0].word;
	size_t i, item;

	if (!g) {
		memcpy(leaf + first, bits, words * sizeof(*bits));
		return;
	}
	for (i = 0; i < words; i++) {
		item = (first + i) * 32 >> g;
		if (g >= 5)
			leaf[item / 32] |= (uint32_t) !!bits[i] << item % 32;
		else
			leaf[item / 32] |= narrowed(bits[i], g) << item % 32;
	}
}

void thc_index_set(struct thc_index *x, size_t item)
{
	x->level[0].word[item / 32] |= 1U << item % 32;
}

void thc_index_rise(struct thc_index *x)
{
	const struct thc_level *below;
	uint32_t i, k, bits;
	unsigned int at;

	for (at = 1; at < x->levels; at++) {
		below = &x->level[at - 1];
		for (i = 0; i < below->words; i += 32) {
			for (k = 0, bits = 0; k < 32 && i + k < below->words; k++)
				bits |= (uint32_t) !!below->word[i + k] << k;
			x->level[at].word[i / 32] = bits;
		}
	}
}

/* --- what is sent ----------------------------------------------------------- */

static bool is_top(const struct thc_index *x, unsigned int at)
{
	return at == x->levels - 1;
}

/* Finds the words of level @at whose bit the union has. */
static void search(struct thc_index *x, unsigned int at)
{
	const struct thc_level *above = &x->level[at + 1];
	struct thc_level *l = &x->level[at];
	uint32_t bits, n, left;

	for (; l->searched < above->known; l->searched++, l->found += n) {
		bits = above->word[l->searched];
		n = thc_bits_count(&bits, 1);
		/* words that belong to the chunk before */
		left = (THC_INDEX_CHUNK - l->found % THC_INDEX_CHUNK) % THC_INDEX_CHUNK;
		if (left >= n)
			continue;
		for (; left; left--)
			bits &= bits - 1;
		l->start[(l->found + THC_INDEX_CHUNK - 1) / THC_INDEX_CHUNK] =
			32 * l->searched + (uint32_t)__builtin_ctz(bits);
	}
}

/* Have all words that are sent been found? */
static bool is_whole(const struct thc_index *x, unsigned int at)
{
	return is_top(x, at) || x->level[at].searched == x->level[at + 1].words;
}

/* Advances the known part of a level over all chunks that have their answers. */
static void know(const struct thc_index *x, unsigned int at, struct thc_level *l)
{
	while (l->prefix < chunks_of(l->words) && l->came[l->prefix])
		l->prefix++;
	if (is_top(x, at))
		l->known = l->prefix * THC_INDEX_CHUNK;
	else if (l->prefix < chunks_of(l->found))
		l->known = l->start[l->prefix];
	else
		l->known = 32 * l->searched;
	if (l->known > l->words)
		l->known = l->words;
}

uint32_t thc_index_size(struct thc_index *x, unsigned int at, bool *all)
{
	struct thc_level *l = &x->level[at];

	if (is_top(x, at)) {
		*all = true;
		return chunks_of(l->words);
	}
	search(x, at);
	know(x, at, l);
	*all = is_whole(x, at);
	return *all ? chunks_of(l->found) : l->found / THC_INDEX_CHUNK;
}

/* Some words of a chunk: of the 32 words from @base on, those that have a bit of @bits. */
struct run {
	uint32_t base;
	uint32_t bits;
};

/* The word up to which the words to send are known. */
static uint32_t known_to(const struct thc_index *x, unsigned int at)
{
	return is_top(x, at) ? x->level[at].words : 32 * x->level[at + 1].known;
}

/* Those of the 32 words at @base that are sent. */
static uint32_t sent_of(const struct thc_index *x, unsigned int at, uint32_t base)
{
	uint32_t left = known_to(x, at) - base;

	if (!is_top(x, at))
		return x->level[at + 1].word[base / 32];
	return left < 32 ? (1U << left) - 1 : UINT32_MAX;
}

/* The next run from word @base on; no bits: there is none. */
static struct run run_from(const struct thc_index *x, unsigned int at, uint32_t base)
{
	struct run r = { .base = base };

	for (; r.base < known_to(x, at); r.base += 32) {
		r.bits = sent_of(x, at, r.base);
		if (r.bits)
			break;
	}
	return r;
}

static struct run first_run(const struct thc_index *x, unsigned int at, uint32_t chunk)
{
	uint32_t start = is_top(x, at) ? chunk * THC_INDEX_CHUNK : x->level[at].start[chunk];
	struct run r = { start & ~31U, sent_of(x, at, start & ~31U) };

	r.bits &= UINT32_MAX << start % 32;
	return r;
}

/* What a chunk's words need, and what the loops of sparse.h may write behind them. */
#define RUNS_ROOM	(THC_INDEX_CHUNK + 32 + THC_PACK_SLACK)

/* Collects the words of chunk @chunk, one behind the other, to @to, with RUNS_ROOM words; returns
 * their number. The next chunk's words of the last run follow them.
 */
static uint32_t collect(const struct thc_index *x, unsigned int at, uint32_t chunk, uint32_t *to)
{
	const uint32_t *word = x->level[at].word;
	struct run r = first_run(x, at, chunk);
	uint32_t n = 0;

	for (; r.bits && n < THC_INDEX_CHUNK; r = run_from(x, at, r.base + 32))
		n += (uint32_t)x->sparse->pack((const float *)(word + r.base), &r.bits, 1,
					       (float *)(to + n));
	return n < THC_INDEX_CHUNK ? n : THC_INDEX_CHUNK;
}

/* Distributes the words of chunk @chunk, from @from, to their places. Other words of the last run
 * keep the values that collect() has found.
 */
static void spread(const struct thc_index *x, unsigned int at, uint32_t chunk, const uint32_t *from,
		   uint32_t n)
{
	uint32_t *word = x->level[at].word, done = 0;
	struct run r = first_run(x, at, chunk);

	for (; done < n; r = run_from(x, at, r.base + 32)) {
		x->sparse->scatter((const float *)(from + done), &r.bits, 1,
				   (float *)(word + r.base));
		done += thc_bits_count(&r.bits, 1);
	}
}

void thc_index_fill(const struct thc_index *x, unsigned int at, uint32_t chunk, void *lanes)
{
	uint32_t word[RUNS_ROOM], n = collect(x, at, chunk, word), k;
	__le32 *lane = lanes;

	for (k = 0; k < n; k++)
		lane[k] = thc_le32(word[k]);
	memset(lane + n, 0, (THC_INDEX_CHUNK - n) * sizeof(*lane));
}

bool thc_index_answer(struct thc_index *x, unsigned int at, uint32_t chunk, const void *lanes)
{
	uint32_t word[RUNS_ROOM], n = collect(x, at, chunk, word), lacks = 0, k, bits;
	struct thc_level *l = &x->level[at];
	const __le32 *lane = lanes;

	for (k = 0; k < n; k++) {
		bits = thc_le32(lane[k]);
		lacks |= word[k] & ~bits;
		word[k] = bits;
	}
	spread(x, at, chunk, word, n);
	l->word[l->words - 1] &= l->last_bits;
	l->came[chunk] = 1;
	know(x, at, l);
	return !lacks;
}

/* --- the union's ------------------------------------------------------------ */

size_t thc_index_known(const struct thc_index *x)
{
	size_t known = (size_t)x->level[0].known * 32 << x->grain_log2;

	return known < x->count ? known : x->count;
}

/* Repeats each bit 2^@grain_log2 times. */
static uint32_t widened(uint32_t bits, unsigned int grain_log2)
{
	const uint32_t one = (1U << (1U << grain_log2)) - 1;
	uint32_t out = 0;

	for (; bits; bits &= bits - 1)
		out |= one << (__builtin_ctz(bits) << grain_log2);
	return out;
}

/* A word of 32 coordinates, for items of more than one. */
static uint32_t coordinates(const struct thc_index *x, size_t word)
{
	const unsigned int g = x->grain_log2;
	size_t item = word * 32 >> g;
	uint32_t bits = x->level[0].word[item / 32] >> item % 32;

	if (g >= 5)
		return bits & 1 ? UINT32_MAX : 0;
	return widened(bits & ((1U << (32 >> g)) - 1), g);
}

void thc_index_get(const struct thc_index *x, size_t first, uint32_t *bits, size_t words)
{
	size_t end = (first + words) * 32, i;

	if (!x->grain_log2)
		memcpy(bits, x->level[0].word + first, words * sizeof(*bits));
	else
		for (i = 0; i < words; i++)
			bits[i] = coordinates(x, first + i);
	/* an item may go on behind the end */
	if (end > x->count)
		bits[words - 1] &= UINT32_MAX >> (end - x->count);
}
