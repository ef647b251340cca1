// SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0)
/* The index of a bucket, level by level. */
#include <string.h>

#include <thc/types.h>
#include <thc/wire/format.h>

#include "index.h"
#include "request.h"

static uint32_t words_of(size_t bits)
{
	return (uint32_t)((bits + 31) / 32);
}

static uint32_t chunks_of(uint32_t words)
{
	return (words + THC_INDEX_CHUNK - 1) / THC_INDEX_CHUNK;
}

void thc_index_init(struct thc_index *x, size_t count, unsigned int grain_log2, unsigned int levels)
{
	size_t bits = (count + ((size_t)1 << grain_log2) - 1) >> grain_log2;
	unsigned int at;

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
	uint32_t bits;

	for (; l->searched < above->known; l->searched++) {
		for (bits = above->word[l->searched]; bits; bits &= bits - 1) {
			if (l->found % THC_INDEX_CHUNK == 0)
				l->start[l->found / THC_INDEX_CHUNK] =
					32 * l->searched + (uint32_t)__builtin_ctz(bits);
			l->found++;
		}
	}
}

/* All words that are sent are found. */
static bool is_whole(const struct thc_index *x, unsigned int at)
{
	return is_top(x, at) || x->level[at].searched == x->level[at + 1].words;
}

/* Answers have come for all chunks up to here; what of the level is known by that. */
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

/* The words of a chunk, one after the other. */
struct walk {
	const struct thc_level *above;	/* NULL: of the top level */
	uint32_t word;
	uint32_t end;			/* of a top level */
	uint32_t bits;			/* of @above's word, those that are not over */
};

static struct walk walk_from(const struct thc_index *x, unsigned int at, uint32_t chunk)
{
	const struct thc_level *l = &x->level[at];
	struct walk w = { .word = chunk * THC_INDEX_CHUNK, .end = l->words };

	if (is_top(x, at))
		return w;
	w.above = &x->level[at + 1];
	w.word = l->start[chunk];
	w.bits = w.above->word[w.word / 32] >> w.word % 32 << w.word % 32;
	return w;
}

/* False: there are no more; else *@word is the next one's number. */
static bool step(struct walk *w, uint32_t *word)
{
	if (!w->above) {
		*word = w->word++;
		return *word < w->end;
	}
	while (!w->bits) {
		w->word = w->word / 32 * 32 + 32;
		if (w->word / 32 >= w->above->known)
			return false;
		w->bits = w->above->word[w->word / 32];
	}
	*word = w->word / 32 * 32 + (uint32_t)__builtin_ctz(w->bits);
	w->bits &= w->bits - 1;
	return true;
}

void thc_index_fill(const struct thc_index *x, unsigned int at, uint32_t chunk, void *lanes)
{
	struct walk w = walk_from(x, at, chunk);
	__le32 *lane = lanes;
	uint32_t word, k;

	for (k = 0; k < THC_INDEX_CHUNK; k++)
		lane[k] = thc_le32(step(&w, &word) ? x->level[at].word[word] : 0);
}

bool thc_index_answer(struct thc_index *x, unsigned int at, uint32_t chunk, const void *lanes)
{
	struct walk w = walk_from(x, at, chunk);
	struct thc_level *l = &x->level[at];
	const __le32 *lane = lanes;
	uint32_t word, k, bits;
	bool lacks = false;

	for (k = 0; k < THC_INDEX_CHUNK && step(&w, &word); k++) {
		bits = thc_le32(lane[k]);
		if (word == l->words - 1)
			bits &= l->last_bits;
		lacks |= l->word[word] & ~bits;
		l->word[word] = bits;
	}
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

/* Each bit, 2^@grain_log2 times. */
static uint32_t widened(uint32_t bits, unsigned int grain_log2)
{
	const uint32_t one = (1U << (1U << grain_log2)) - 1;
	uint32_t out = 0;

	for (; bits; bits &= bits - 1)
		out |= one << (__builtin_ctz(bits) << grain_log2);
	return out;
}

/* Of items that are more than one. */
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
