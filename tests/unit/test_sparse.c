// SPDX-License-Identifier: GPL-2.0
/* The loops of sparse.h, of every instruction set, beside a loop over single values. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "codec_ops.h"
#include "randomword.h"
#include "sparse.h"

enum { WORDS = 40, N = 32 * WORDS };

static const struct thc_sparse_ops *loops[3];
static unsigned int all_loops;

static int setup(void **state)
{
	enum thc_simd simd;

	(void)state;
	for (simd = THC_SIMD_SCALAR; simd <= THC_SIMD_AVX512; simd++)
		if (thc_simd_ops(simd))
			loops[all_loops++] = thc_simd_ops(simd)->sparse;
	return 0;
}

/* @n values, about @share of 256 of which are not zero; no page is mapped behind them. */
static float *values(size_t n, unsigned int share)
{
	float *x = malloc(n * sizeof(*x));
	size_t i;

	assert_non_null(x);
	for (i = 0; i < n; i++) {
		x[i] = random_word() % 2 ? 0.0f : -0.0f;
		if (random_word() % 256 < share)
			x[i] = thc_bits_float((uint32_t)random_word());
		if (random_word() % 64 == 0)
			x[i] = random_word() % 2 ? NAN : 0x1p-149f;
	}
	return x;
}

static void mark__has_a_bit_a_value(void **state)
{
	uint32_t bits[WORDS];
	unsigned int k;
	size_t n, i;

	(void)state;
	for (n = 1; n < 200; n++) {
		float *x = values(n, 100);
		/* every third test counts nonzero values, the others large values */
		uint32_t least = n % 3 ? thc_float_bits(0x1p-20f) + n : 1;

		/* every second one has no -0 */
		for (i = 0; n % 2 && i < n; i++)
			x[i] = x[i] == 0 ? 0 : x[i];

		for (k = 0; k < all_loops; k++) {
			bool others = false;

			memset(bits, 0xff, sizeof(bits));
			for (i = 0; i < n; i++)
				others |= thc_float_bits(fabsf(x[i])) < least &&
					  thc_float_bits(x[i]) != 0;
			assert_int_equal(loops[k]->mark(x, n, least, bits), others);
			for (i = 0; i < (n + 31) / 32 * 32; i++)
				assert_int_equal(bits[i / 32] >> i % 32 & 1,
						 i < n && thc_float_bits(fabsf(x[i])) >= least);
			assert_int_equal(bits[(n + 31) / 32], UINT32_MAX);
		}
		free(x);
	}
}

static void pack__and_back(void **state)
{
	uint32_t bits[WORDS];
	unsigned int share, k;
	size_t i, n;

	(void)state;
	for (share = 0; share <= 256; share += 8) {
		float *x = values(N, 256), packed[N + THC_PACK_SLACK], back[N], *tight;

		for (i = 0; i < WORDS; i++)
			bits[i] = 0;
		for (i = 0; i < N; i++)
			bits[i / 32] |= (uint32_t)(random_word() % 256 < share) << i % 32;
		for (k = 0; k < all_loops; k++) {
			memset(packed, 0x77, sizeof(packed));
			n = loops[k]->pack(x, bits, WORDS, packed);
			/* nothing is read behind the last value */
			tight = malloc(n * sizeof(*tight) + !n);
			assert_non_null(tight);
			memcpy(tight, packed, n * sizeof(*tight));
			memset(back, 0x77, sizeof(back));
			assert_int_equal(loops[k]->unpack(tight, bits, WORDS, back), n);
			for (i = 0, n = 0; i < N; i++) {
				uint32_t there = bits[i / 32] >> i % 32 & 1;

				if (there)
					assert_memory_equal(&packed[n++], &x[i], sizeof(*x));
				assert_int_equal(thc_float_bits(back[i]),
						 there ? thc_float_bits(x[i]) : 0);
			}
			memset(back, 0x77, sizeof(back));
			loops[k]->scatter(tight, bits, WORDS, back);
			for (i = 0; i < N; i++)
				assert_int_equal(thc_float_bits(back[i]),
						 bits[i / 32] >> i % 32 & 1 ? thc_float_bits(x[i]) :
									      0x77777777);
			free(tight);
		}
		free(x);
	}
}

/* Draws bits of coordinates, and makes some, all or none of them own ones. */
static void draw_own(unsigned int share, uint32_t *bits, uint32_t *own)
{
	size_t i;

	for (i = 0; i < WORDS; i++)
		bits[i] = own[i] = 0;
	for (i = 0; i < N; i++) {
		/* some words have no bit, and some no own bit */
		uint32_t any = share == 256 || (i / 32 % 5 && random_word() % 256 < share);
		uint32_t mine = share % 3 ? share % 3 == 1 : i / 32 % 7 && random_word() % 3 == 0;

		bits[i / 32] |= any << i % 32;
		own[i / 32] |= (any & mine) << i % 32;
	}
}

static void widen__has_zero_where_there_is_no_own_bit(void **state)
{
	uint32_t own[WORDS], bits[WORDS];
	unsigned int share, k;
	size_t i, n, all;

	(void)state;
	for (share = 0; share <= 256; share += 8) {
		float *x, wide[N + THC_PACK_SLACK + 1];

		draw_own(share, bits, own);
		x = values(thc_bits_count(own, WORDS) + THC_PACK_SLACK, 256);
		for (k = 0; k < all_loops; k++) {
			memset(wide, 0x77, sizeof(wide));
			n = loops[k]->widen(x, own, bits, WORDS, wide);
			assert_int_equal(n, thc_bits_count(own, WORDS));
			for (i = 0, n = 0, all = 0; i < N; i++) {
				if (!(bits[i / 32] >> i % 32 & 1))
					continue;
				assert_int_equal(
					thc_float_bits(wide[all++]),
					own[i / 32] >> i % 32 & 1 ? thc_float_bits(x[n++]) : 0);
			}
			assert_int_equal(thc_float_bits(wide[all + THC_PACK_SLACK]), 0x77777777);
		}
		free(x);
	}
}

/* The last word may lack values. */
static void pack__reads_no_further(void **state)
{
	uint32_t bits[1];
	unsigned int k;
	size_t n, i;

	(void)state;
	for (n = 1; n <= 32; n++) {
		float *x = values(n, 256), packed[32 + THC_PACK_SLACK];

		bits[0] = UINT32_MAX >> (32 - n);
		for (k = 0; k < all_loops; k++) {
			assert_int_equal(loops[k]->pack(x, bits, 1, packed), n);
			for (i = 0; i < n; i++)
				assert_memory_equal(&packed[i], &x[i], sizeof(*x));
		}
		free(x);
	}
}

static void count__is_of_all_words(void **state)
{
	uint32_t bits[WORDS], wanted, word;
	size_t words;

	(void)state;
	for (words = 0; words < WORDS; words++) {
		for (wanted = 0, word = 0; word < WORDS; word++) {
			bits[word] = (uint32_t)random_word();
			/* what is behind the words does not count */
			wanted += word < words ? (uint32_t)__builtin_popcount(bits[word]) : 0;
		}
		assert_int_equal(thc_bits_count(bits, words), wanted);
	}
	memset(bits, 0xff, sizeof(bits));
	assert_int_equal(thc_bits_count(bits, WORDS), N);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(mark__has_a_bit_a_value),
		cmocka_unit_test(pack__and_back),
		cmocka_unit_test(widen__has_zero_where_there_is_no_own_bit),
		cmocka_unit_test(pack__reads_no_further),
		cmocka_unit_test(count__is_of_all_words),
	};

	return cmocka_run_group_tests_name("sparse", tests, setup, NULL);
}
