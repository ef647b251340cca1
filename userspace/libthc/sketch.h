/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0) */
/*
 * The layout of a count sketch of a bucket's values: hashes, signs, and the number of cells. peel.h
 * recovers values from sums of sketches.
 *
 * A bucket of gradients is cut into parts of equal size; the last one may be smaller. Within a part
 * coordinate = row * lanes + lane. A row's hashes h_j = murmur3_x86_32(row as four bytes,
 * little-endian; seed j) choose a bucket each, for all its lanes; a cell is one lane of a bucket.
 * Each hash adds a value to a cell, or subtracts it if the hash has its top bit. Cells are summed
 * modulo 2^32.
 *
 * The buckets of a lane form segments of @range buckets. The bucket of hash j is in segment w + j,
 * at x * @range >> 31 for the lower 31 bits x of h_j. (The published layout has h mod R, which
 * needs a division.) Three hashes have three segments, and w is 0: subtables (LHC, arXiv
 * 2402.07529). Four hashes have @windows + 3 segments, and the product h_0 * @windows chooses w:
 * spatial coupling (Walzer, SODA 2021), where peeling that begins at both ends goes on at loads
 * that would stop it elsewhere. So a row never has a bucket twice; two rows with equal buckets
 * cannot be told apart.
 *
 * Pure functions of integers: all ranks have the same cells.
 */
#ifndef LIBTHC_SKETCH_H
#define LIBTHC_SKETCH_H

#include <stddef.h>
#include <stdint.h>

enum thc_sketch_hashes {
	THC_SKETCH_THREE = 3,
	THC_SKETCH_COUPLED = 4,
	THC_SKETCH_HASHES_MAX = 4,
};

/* Least and most coordinates of a part, which are a multiple of the least. */
#define THC_SKETCH_PART_STEP	4096U
#define THC_SKETCH_PART_MAX	(1U << 20)

/**
 * struct thc_sketch - the layout of a bucket
 * @count: the bucket's coordinates; a part has @part, the last one the rest
 * @buckets: buckets of a lane of a part; @range: buckets of a segment
 * @windows: segments that hash 0 may choose
 */
struct thc_sketch {
	size_t		count;
	uint32_t	part;
	uint32_t	parts;
	uint32_t	buckets;
	uint32_t	range;
	uint32_t	windows;
	unsigned int	hashes;
	unsigned int	lanes_log2;
};

/* A row's bucket by each hash, and the mask by which its values are negated: they are XORed with
 * @sign, and then @sign is subtracted. It is 0, or all ones for a negation.
 */
struct thc_places {
	uint32_t bucket[THC_SKETCH_HASHES_MAX];
	uint32_t sign[THC_SKETCH_HASHES_MAX];
};

/* Of @count coordinates (at least 1), of which a union has @capacity, evenly spread. @hashes:
 * THC_SKETCH_THREE or THC_SKETCH_COUPLED.
 */
void thc_sketch_init(struct thc_sketch *s, size_t count, size_t capacity,
		     enum thc_sketch_hashes hashes);
/* Sets the number of lanes, of windows, and the least number of buckets of a lane. */
void thc_sketch_shape(struct thc_sketch *s, unsigned int lanes_log2, uint32_t windows,
		      uint32_t buckets);
/* Buckets and windows by which @items of a lane, at least 1, leave nothing in nine of ten draws. */
uint32_t thc_sketch_buckets(enum thc_sketch_hashes hashes, uint32_t items, uint32_t *windows);

/* Adds @values, one behind the other, to @cells of all parts: values of the coordinates that have a
 * bit in @words words of @bits. Bit 0 is coordinate 32 @first_word.
 */
void thc_sketch_add(const struct thc_sketch *s, size_t first_word, const uint32_t *bits,
		    size_t words, const int32_t *values, uint32_t *cells);

/* Cells of a part. */
static inline uint32_t thc_sketch_part_cells(const struct thc_sketch *s)
{
	return s->buckets << s->lanes_log2;
}

/* Cells of the bucket; those of part p begin at p * thc_sketch_part_cells(). */
static inline size_t thc_sketch_cells(const struct thc_sketch *s)
{
	return (size_t)s->parts * thc_sketch_part_cells(s);
}

/* Words of bits of part @part; those of part p begin at word p * s->part / 32. */
static inline uint32_t thc_sketch_part_words(const struct thc_sketch *s, uint32_t part)
{
	size_t left = s->count - (size_t)part * s->part;

	return (uint32_t)(((left < s->part ? left : s->part) + 31) / 32);
}

static inline uint32_t thc_rotl32(uint32_t x, unsigned int bits)
{
	return x << bits | x >> (32 - bits);
}

/* murmur3_x86_32 of @key's four bytes, the lowest one first. */
static inline uint32_t thc_murmur3(uint32_t key, uint32_t seed)
{
	uint32_t h = seed ^ thc_rotl32(key * 0xcc9e2d51U, 15) * 0x1b873593U;

	h = thc_rotl32(h, 13) * 5 + 0xe6546b64U;
	h ^= sizeof(key);
	h = (h ^ h >> 16) * 0x85ebca6bU;
	h = (h ^ h >> 13) * 0xc2b2ae35U;
	return h ^ h >> 16;
}

static inline void thc_sketch_places(const struct thc_sketch *s, uint32_t row, struct thc_places *p)
{
	const uint32_t lower = INT32_MAX;
	uint32_t h = thc_murmur3(row, 0), first;
	uint64_t x = (uint64_t)(h & lower) * s->windows;
	unsigned int j;

	/* the bits behind the binary point are as uniform as all bits were */
	first = (uint32_t)(x >> 31) * s->range;
	p->bucket[0] = first + (uint32_t)((x & lower) * s->range >> 31);
	p->sign[0] = 0 - (h >> 31);
	for (j = 1; j < s->hashes; j++) {
		h = thc_murmur3(row, j);
		first += s->range;
		p->bucket[j] = first + (uint32_t)((uint64_t)(h & lower) * s->range >> 31);
		p->sign[j] = 0 - (h >> 31);
	}
}

#endif /* LIBTHC_SKETCH_H */
