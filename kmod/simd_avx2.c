// SPDX-License-Identifier: GPL-2.0
/*
 * Lane loops for AVX2: 32 bytes of lanes at a time, tables by byte shuffle.
 *
 * LUT sums add 64-bit words, as lane.h does: no lane carries into the next
 * unless the table is too large, and then both are wrong in the same way.
 */
#if defined(__x86_64__) && !defined(__CHECKER__) /* sparse has no intrinsics */
#include "simd.h"
#include "simd_intrin.h"

#include <thc/wire/nh_x86.h>

#define VECTOR 32

typedef __m256i vector;

THC_INLINE vector load(const void *p)
{
	return _mm256_loadu_si256(p);
}

THC_INLINE void store(vector *p, vector v)
{
	_mm256_storeu_si256(p, v);
}

/* 16 packed bytes -> their 32 indices as bytes, in coordinate order. */
THC_INLINE __m256i spread(const u8 *packed)
{
	__m256i byte = _mm256_cvtepu8_epi16(_mm_loadu_si128((const void *)packed));
	__m256i both = _mm256_or_si256(_mm256_srli_epi16(byte, 4), _mm256_slli_epi16(byte, 8));

	return _mm256_and_si256(both, _mm256_set1_epi8(0x0f));
}

/* The low bytes of 16 words, in both halves. */
THC_INLINE __m256i bytes(__m256i words)
{
	words = _mm256_and_si256(words, _mm256_set1_epi16(0xff));
	return _mm256_permute4x64_epi64(_mm256_packus_epi16(words, words), 0x88);
}

/* The table itself: T[z] is the odd half of the pair at packed byte z < 16. */
THC_INLINE __m256i table8(const struct thc_pairs *p)
{
	return bytes(_mm256_srli_epi16(load(p->w8), 8));
}

THC_INLINE __m256i table16(const struct thc_pairs *p)
{
	__m256i low = _mm256_srli_epi32(load(p->w16), 16);
	__m256i high = _mm256_srli_epi32(load(p->w16 + 8), 16);

	return _mm256_permute4x64_epi64(_mm256_packus_epi32(low, high), 0xd8);
}

THC_INLINE void avx2_lut8(u64 *lanes, const void *payload, const struct thc_pairs *p, int first)
{
	__m256i table = table8(p);
	const u8 *in = payload;
	int i;

	for (i = 0; i < THC_LANE_BYTES / VECTOR; i++)
		PUT(_mm256_add_epi64, i, _mm256_shuffle_epi8(table, spread(in + 16 * i)));
}

THC_INLINE void avx2_linear8(u64 *lanes, const void *payload, int first)
{
	const u8 *in = payload;
	int i;

	for (i = 0; i < THC_LANE_BYTES / VECTOR; i++)
		PUT(_mm256_add_epi64, i, spread(in + 16 * i));
}

/* Adds 32 terms, given as their low and their high bytes. Unpacking works in halves: lanes 0..7 and
 * 16..23 come first, then 8..15 and 24..31.
 */
THC_INLINE void put16(u64 *lanes, int i, __m256i low, __m256i high, int first)
{
	__m256i a = _mm256_unpacklo_epi8(low, high), b = _mm256_unpackhi_epi8(low, high);

	PUT(_mm256_add_epi64, 2 * i, _mm256_permute2x128_si256(a, b, 0x20));
	PUT(_mm256_add_epi64, 2 * i + 1, _mm256_permute2x128_si256(a, b, 0x31));
}

THC_INLINE void avx2_lut16(u64 *lanes, const void *payload, const struct thc_pairs *p, int first)
{
	__m256i table = table16(p), low = bytes(table), high = bytes(_mm256_srli_epi16(table, 8));
	const u8 *in = payload;
	int i;

	for (i = 0; i < THC_LANE_BYTES / (2 * VECTOR); i++) {
		__m256i index = spread(in + 16 * i);

		put16(lanes, i, _mm256_shuffle_epi8(low, index), _mm256_shuffle_epi8(high, index),
		      first);
	}
}

/* The rows of THC_FORMATS_GROUP. A group here is one index, or two where sums have 4 bits; it has
 * @bits bits, 1 to 6. 16 groups have 2 * @bits bytes, which are loaded as the last ones of a
 * 16-byte vector. The vector is shuffled into eight words: word @i has the two bytes of group 2 *
 * @i and the group after it. In big-endian order the second group stands above group_rest() bits.
 */
THC_INLINE int group_end(int bits, int i)
{
	return 16 - 2 * bits + (2 * bits * (i + 1) - 1) / 8;
}

THC_INLINE int group_rest(int bits, int i)
{
	return -2 * bits * (i + 1) & 7;
}

/* GROUP_BYTES: the bytes of a word, for the shuffle, lower one first. The word times GROUP_FIRST
 * has the first group from bit 0 of the product's upper half on, times GROUP_SECOND the second
 * group from bit 8 of its lower half on.
 */
#define GROUP_BYTES(bits, i)	(group_end(bits, i) | (group_end(bits, i) - 1) << 8)
#define GROUP_FIRST(bits, i)	(1 << (16 - group_rest(bits, i) - (bits)))
#define GROUP_SECOND(bits, i)	(1 << (8 - group_rest(bits, i)))

/* Those of all words, in both halves. */
#define GROUP_WORDS(of, bits) \
	_mm256_broadcastsi128_si256(_mm_setr_epi16( \
		(short)of(bits, 0), (short)of(bits, 1), (short)of(bits, 2), (short)of(bits, 3), \
		(short)of(bits, 4), (short)of(bits, 5), (short)of(bits, 6), (short)of(bits, 7)))

/* 4 * @bits packed bytes -> their 32 groups as bytes, in coordinate order. */
THC_INLINE __m256i groups(const u8 *packed, int bits)
{
	__m128i low = _mm_loadu_si128((const void *)(packed + 2 * bits - 16));
	__m128i high = _mm_loadu_si128((const void *)(packed + 4 * bits - 16));
	__m256i both = _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
	__m256i word = _mm256_shuffle_epi8(both, GROUP_WORDS(GROUP_BYTES, bits));
	__m256i first = _mm256_mulhi_epu16(word, GROUP_WORDS(GROUP_FIRST, bits));
	__m256i second = _mm256_mullo_epi16(word, GROUP_WORDS(GROUP_SECOND, bits));
	short mask = (1 << bits) - 1;

	return _mm256_or_si256(_mm256_and_si256(first, _mm256_set1_epi16(mask)),
			       _mm256_and_si256(second, _mm256_set1_epi16(mask << 8)));
}

/* A table from groups of up to 6 bits to bytes, 16 entries in a vector. Vectors but the first one
 * are stored as XOR with the vector before.
 */
struct found {
	__m256i of[4];
};

/* Looks @group up. A shuffle gives 0 for a byte whose top bit is set, that is for groups below
 * those of a vector. _mm256_blendv_epi8() does not work: GCC 12 drops it where char is unsigned, as
 * in the kernel.
 */
THC_INLINE __m256i find(const struct found *f, __m256i group, int vectors)
{
	__m256i byte = _mm256_shuffle_epi8(f->of[0], group);
	int i;

	THC_UNROLL_WHOLE
	for (i = 1; i < vectors; i++) {
		group = _mm256_sub_epi8(group, _mm256_set1_epi8(16));
		byte = _mm256_xor_si256(byte, _mm256_shuffle_epi8(f->of[i], group));
	}
	return byte;
}

THC_INLINE void find_differences(struct found *f, int vectors)
{
	int i;

	THC_UNROLL_WHOLE
	for (i = vectors - 1; i > 0; i--)
		f->of[i] = _mm256_xor_si256(f->of[i], f->of[i - 1]);
}

/* The bits of levels from @shift on. */
THC_INLINE void find_levels(struct found *f, const struct thc_pairs *p, int vectors, int shift)
{
	int i;

	THC_UNROLL_WHOLE
	for (i = 0; i < vectors; i++)
		f->of[i] = bytes(_mm256_srli_epi16(load(p->level + 16 * i), shift));
	find_differences(f, vectors);
}

/* Two levels of 4 bits, by two indices of @bits bits. */
THC_INLINE void find_pairs(struct found *f, const struct thc_pairs *p, int vectors, int bits)
{
	__m256i levels = _mm256_and_si256(bytes(load(p->level)), _mm256_set1_epi8(0x0f));
	__m256i mask = _mm256_set1_epi8((1 << bits) - 1);
	__m256i pair = _mm256_broadcastsi128_si256(
		_mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
	int i;

	THC_UNROLL_WHOLE
	for (i = 0; i < vectors; i++) {
		__m256i first = _mm256_and_si256(_mm256_srli_epi16(pair, bits), mask);
		__m256i second = _mm256_and_si256(pair, mask);

		second = _mm256_slli_epi16(_mm256_shuffle_epi8(levels, second), 4);
		f->of[i] = _mm256_or_si256(_mm256_shuffle_epi8(levels, first), second);
		pair = _mm256_add_epi8(pair, _mm256_set1_epi8(16));
	}
	find_differences(f, vectors);
}

/* thc_lanes_group() */
THC_INLINE void add_row(u64 *lanes, const void *payload, const struct thc_pairs *p, int bits,
			int width, int first)
{
	const int each = width == 4 ? 2 * bits : bits;
	const int vectors = each > 4 ? 1 << (each - 4) : 1;
	const int turns = THC_LANE_BYTES / VECTOR / (width == 16 ? 2 : 1);
	const u8 *in = payload;
	struct found low, high;
	int i;

	if (width == 4)
		find_pairs(&low, p, vectors, bits);
	else
		find_levels(&low, p, vectors, 0);
	if (width == 16)
		find_levels(&high, p, vectors, 8);
	for (i = 0; i < turns; i++) {
		__m256i group = groups(in + 4 * each * i, each);
		__m256i l = find(&low, group, vectors);

		if (width == 16)
			put16(lanes, i, l, find(&high, group, vectors), first);
		else
			PUT(_mm256_add_epi64, i, l);
	}
}

THC_SIMD_ADD(avx2, 8, _mm256_add_epi8)
THC_SIMD_ADD(avx2, 16, _mm256_add_epi16)
THC_SIMD_ADD(avx2, 32, _mm256_add_epi32)

static void avx2_nh(u64 *nh, const u32 *key, const void *data, int words)
{
	*nh = thc_nh_avx2(key, data, words);
}

THC_SIMD_OPS(avx2, "avx2");
#endif
