// SPDX-License-Identifier: GPL-2.0
/*
 * The packet sum against what it is there for: no changed byte and no two
 * exchanged words go unseen, in packets of every payload size; and the sum of
 * parts is the sum of the whole.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <thc/sum.h>

struct packet {
	struct thc_hdr hdr;
	u8 payload[THC_LANE_BYTES];
};

static const int payload_words[] = { 0, 2, 32, 64, 128 };
#define SIZES (sizeof(payload_words) / sizeof(payload_words[0]))

/* Bytes 4 to 7 are the sum itself, not part of what is summed. */
static int in_sum_field(int byte)
{
	return byte >= 4 && byte < 8;
}

static void fill(struct packet *p, unsigned int seed, int kind)
{
	u8 *bytes = (u8 *)p;
	size_t i;

	srandom(seed);
	for (i = 0; i < sizeof(*p); i++)
		bytes[i] = kind == 0 ? 0 : kind == 1 ? 0xff : random() >> 7;
}

static void sum__every_changed_byte_is_seen(void **state)
{
	struct packet p;
	size_t s;
	int kind;

	(void)state;
	for (s = 0; s < SIZES; s++) {
		int bytes = sizeof(p.hdr) + payload_words[s] * 8;

		for (kind = 0; kind < 4; kind++) {
			u32 right;
			int i, x;

			fill(&p, 7 * s + kind, kind);
			right = thc_sum_packet(&p.hdr, p.payload, payload_words[s]);
			for (i = 0; i < bytes; i++)
				for (x = 1; x < 256 && !in_sum_field(i); x++) {
					((u8 *)&p)[i] ^= x;
					if (thc_sum_packet(&p.hdr, p.payload, payload_words[s]) == right)
						fail_msg("byte %d ^ %02x of %d goes unseen", i, x, bytes);
					((u8 *)&p)[i] ^= x;
				}
		}
	}
}

static void sum__exchanged_words_are_seen(void **state)
{
	struct packet p;
	u64 *w = (u64 *)p.payload;
	u32 right;
	int i, j;

	(void)state;
	fill(&p, 3, 2);
	right = thc_sum_packet(&p.hdr, p.payload, 128);
	for (i = 0; i < 128; i++)
		for (j = 0; j < i; j++) {
			u64 saved_i = w[i], saved_j = w[j];

			w[i] = saved_j;
			w[j] = saved_i;
			assert_int_not_equal(thc_sum_packet(&p.hdr, p.payload, 128), right);
			w[i] = saved_i;
			w[j] = saved_j;
		}
}

/* Random bursts over two to twelve bytes: at 32 bits one in 4e9 may go unseen. */
static void sum__bursts_are_seen(void **state)
{
	struct packet p, q;
	u32 right;
	int i, k;

	(void)state;
	fill(&p, 5, 2);
	right = thc_sum_packet(&p.hdr, p.payload, 64);
	for (i = 0; i < 200000; i++) {
		int len = 2 + i % 11, at = random() % (512 - len);

		q = p;
		for (k = 0; k < len; k++)
			q.payload[at + k] ^= random() >> 7;
		if (memcmp(&p, &q, sizeof(p)))
			assert_int_not_equal(thc_sum_packet(&q.hdr, q.payload, 64), right);
	}
}

static void sum__of_parts_is_that_of_the_whole(void **state)
{
	struct packet p;
	struct thc_sum payload = { 0, 0 };

	(void)state;
	fill(&p, 11, 2);
	thc_sum_add(&payload, p.payload, 128);
	assert_int_equal(thc_sum32(&p.hdr, payload, 128),
			 thc_sum_packet(&p.hdr, p.payload, 128));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sum__every_changed_byte_is_seen),
		cmocka_unit_test(sum__exchanged_words_are_seen),
		cmocka_unit_test(sum__bursts_are_seen),
		cmocka_unit_test(sum__of_parts_is_that_of_the_whole),
	};

	return cmocka_run_group_tests_name("sum", tests, NULL, NULL);
}
