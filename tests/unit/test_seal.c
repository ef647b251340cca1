// SPDX-License-Identifier: GPL-2.0
/*
 * Seals (include/thc/wire/seal.h): a packet that is not as it was sealed is refused: with flipped
 * bits, mixed of two genuine packets, with lanes of an equal sum, of another epoch, job, direction
 * or worker, and with guessed tags: 10^6, or THC_FORGED. test_nh.c tests NH itself.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <thc/key.h>

#include "randomword.h"
#include "testkey.h"

#define COUNT(a)	(sizeof(a) / sizeof((a)[0]))
#define JOB		1
#define FORGED		1000000ULL

struct packet {
	struct thc_hdr	h;
	u8		payload[THC_LANE_BYTES + 8]; /* a word more, for one that is too long */
};

/* Words of payloads: of none, of the table's two widths, of lanes. */
static const int lengths[] = { 0, 32, 64, THC_LANE_WORDS };

/* --- keys and packets ------------------------------------------------------------ */

/* The key of the epoch whose salt counts up from @salt. */
static struct thc_seal_key key_of(enum thc_key_purpose purpose, u16 job, u8 salt)
{
	u8 bytes[THC_SALT_BYTES];
	struct thc_seal_key key;
	size_t i;

	for (i = 0; i < sizeof(bytes); i++)
		bytes[i] = (u8)(salt + i);
	thc_seal_key_set(&key, test_key, purpose, job, bytes);
	return key;
}

static struct thc_member_key member_key_of(enum thc_key_purpose purpose)
{
	struct thc_member_key key;

	thc_member_key_derive(&key, test_key, purpose, JOB);
	return key;
}

static struct thc_end end_of(u32 addr, u16 port)
{
	return (struct thc_end){ .addr = thc_addr_v4(thc_be32(addr)), .port = thc_be16(port) };
}

static struct packet random_packet(void)
{
	struct packet p;

	random_bytes(&p, sizeof(p));
	p.h.version = THC_VERSION;
	return p;
}

static int is_genuine(const struct packet *p, u8 seal, const struct thc_seal_key *key, int words)
{
	return thc_seal_names(&p->h, key->id) && thc_seal_ok(&p->h, seal, key, p->payload, words);
}

static int is_membership(const struct packet *p, const struct thc_member_key *key,
			 const struct thc_end *end, int words)
{
	return thc_seal_names(&p->h, key->id) &&
	       p->h.tag == thc_member_tag(THC_SEAL_NH, key, &p->h, end, p->payload, words);
}

static void flip(void *bytes, size_t bit)
{
	((u8 *)bytes)[bit / 8] ^= (u8)(1 << bit % 8);
}

/* --- known answers ------------------------------------------------------------------ */

/* A LUT_ADD of rank 2, and the payload 3, 10, 17 and so on. */
static struct packet known_packet(void)
{
	struct packet p = { .h = {
				    .version = THC_VERSION,
				    .op = THC_OP_LUT_ADD,
				    .width = 4,
				    .job = thc_be16(JOB),
				    .rank = thc_be16(2),
				    .epoch = thc_be32(5),
				    .round = thc_be32(6),
				    .chunk = thc_be32(0x107),
				    .slot = thc_be16(7),
				    .generation = thc_be32(1),
			    } };
	size_t i;

	for (i = 0; i < sizeof(p.payload); i++)
		p.payload[i] = (u8)(7 * i + 3);
	return p;
}

static void assert_sealed(struct packet p, u8 seal, const struct thc_seal_key *key, int words,
			  u64 tag)
{
	thc_seal(&p.h, seal, key, p.payload, words);
	assert_int_equal(p.h.key_id, key->id);
	assert_true(thc_be64(p.h.tag) == tag);
	assert_true(is_genuine(&p, seal, key, words));
}

/* By tests/lib/decoder.py, from the secret key 00 01 .. 1f and the salt 10 11 .. 1f. */
static void seal__known_answers(void **state)
{
	struct packet request = known_packet(), answer = request, wait = request;
	struct thc_seal_key up = key_of(THC_KEY_UP, JOB, 0x10);
	struct thc_seal_key down = key_of(THC_KEY_DOWN, JOB, 0x10);
	struct thc_seal_key none = { .id = thc_be32(0x10111213) };

	(void)state;
	answer.h.width = 8;
	answer.h.flags = THC_F_ANSWER;
	answer.h.rank = 0;
	answer.h.count = thc_be16(3);
	answer.h.bitmap = thc_be64(7);
	wait.h.op = THC_OP_WAIT;
	wait.h.width = 0;
	wait.h.count = thc_be16(2);
	wait.h.bitmap = thc_be64(5);
	assert_int_equal(thc_be32(up.id), 0x3feadb38);
	assert_sealed(request, THC_SEAL_NH, &up, 64, 0x8020f261da67e1f0);
	assert_sealed(answer, THC_SEAL_NH, &down, 128, 0x66391499c9b05644);
	assert_sealed(wait, THC_SEAL_NH, &down, 0, 0x14463eb023100d56);
	assert_sealed(request, THC_SEAL_SUM, &none, 64, 0xf015d695);
	assert_sealed(answer, THC_SEAL_SUM, &none, 128, 0x894f9877);
	assert_sealed(wait, THC_SEAL_SUM, &none, 0, 0x646b0f28);
	assert_sealed(request, THC_SEAL_NONE, &none, 64, 0);
	assert_sealed(wait, THC_SEAL_NONE, &none, 0, 0);
}

/* By decoder.py's SipHash of what Documentation/protocol.md says; 10.0.0.7, port 40000. */
static void membership__known_answers(void **state)
{
	static const struct {
		enum thc_key_purpose	purpose;
		u8			op;
		u8			flags;
		int			words;
		u64			nh;
		u32			sum;
	} known[] = {
		{ THC_KEY_JOIN, THC_OP_JOIN, 0, 8, 0xf46f6bbc5315357a, 0x7f87821b },
		{ THC_KEY_WELCOME, THC_OP_WELCOME, 0, 17, 0x47a360b780c91e9a, 0x226ed9ae },
		{ THC_KEY_WELCOME, THC_OP_CHALLENGE, 0, 4, 0x5f5cbedbceb74387, 0x99336050 },
		{ THC_KEY_JOIN, THC_OP_LEAVE, 0, 2, 0x6f6f4577ea510d88, 0xb709d4aa },
		{ THC_KEY_LOST, THC_OP_STALE, THC_F_EPOCH, 1, 0x4cc826833ef6f885, 0x131a66bb },
	};
	const struct thc_end end = end_of(0x0a000007, 40000);
	const struct thc_member_key none = { .id = 0 };
	size_t i;

	(void)state;
	for (i = 0; i < COUNT(known); i++) {
		const struct thc_member_key key = member_key_of(known[i].purpose);
		struct packet p = known_packet();

		p.h = (struct thc_hdr){
			.version = THC_VERSION, .op = known[i].op, .flags = known[i].flags,
			.job = thc_be16(JOB), .rank = thc_be16(2), .epoch = thc_be32(5),
		};
		thc_member_seal(&p.h, THC_SEAL_NH, &key, &end, p.payload, known[i].words);
		assert_int_equal(thc_be32(p.h.key_id), 0xa774bf5a);
		assert_true(thc_be64(p.h.tag) == known[i].nh);
		thc_member_seal(&p.h, THC_SEAL_SUM, &none, &end, p.payload, known[i].words);
		assert_int_equal(p.h.key_id, 0);
		assert_true(thc_be64(p.h.tag) == known[i].sum);
	}
}

/* --- as it was sealed ------------------------------------------------------------ */

/* A digest seals an answer as often as it is sent, and a payload may lie at any address. */
static void seal__in_two_steps_and_of_a_payload_anywhere(void **state)
{
	const struct thc_seal_key key = key_of(THC_KEY_DOWN, JOB, 1);
	u8 bytes[sizeof(((struct packet *)0)->payload) + 8];
	struct thc_digest d;
	struct packet p;
	size_t i, shift;
	u8 seal;

	(void)state;
	for (i = 0; i < COUNT(lengths); i++) {
		for (seal = THC_SEAL_NONE; seal <= THC_SEAL_NH; seal++) {
			struct thc_hdr h;

			p = random_packet();
			h = p.h;
			thc_seal(&p.h, seal, &key, p.payload, lengths[i]);
			d = thc_seal_digest(seal, &key, p.payload, lengths[i]);
			thc_seal_digested(&h, seal, &key, d, lengths[i]);
			assert_memory_equal(&h, &p.h, sizeof(h));
			for (shift = 1; shift < 8; shift++) {
				memcpy(bytes + shift, p.payload, sizeof(p.payload));
				assert_true(
					thc_seal_ok(&p.h, seal, &key, bytes + shift, lengths[i]));
			}
		}
	}
}

/* Every bit of the packet counts, the key's name and the tag included. Without a seal only the tag
 * does, which must be zero.
 */
static void seal__every_bit_counts(void **state)
{
	const size_t first = 8 * offsetof(struct thc_hdr, tag), last = first + 63;
	const struct thc_seal_key key = key_of(THC_KEY_UP, JOB, 1);
	struct packet p;
	size_t i, bit;
	u8 seal;

	(void)state;
	for (i = 0; i < COUNT(lengths); i++) {
		for (seal = THC_SEAL_NONE; seal <= THC_SEAL_NH; seal++) {
			p = random_packet();
			thc_seal(&p.h, seal, &key, p.payload, lengths[i]);
			for (bit = 0; bit < 8 * (sizeof(p.h) + 8 * lengths[i]); bit++) {
				int seen = seal != THC_SEAL_NONE || (bit >= first && bit <= last);

				flip(&p, bit);
				if (thc_seal_ok(&p.h, seal, &key, p.payload, lengths[i]) == seen)
					fail_msg("seal %u: bit %zu", seal, bit);
				flip(&p, bit);
			}
			assert_true(is_genuine(&p, seal, &key, lengths[i]));
		}
	}
}

/* A payload that is cut, or has zeros behind it, is refused. */
static void seal__length_counts(void **state)
{
	const struct thc_seal_key key = key_of(THC_KEY_UP, JOB, 1);
	struct packet p;
	int words, k;

	(void)state;
	for (words = 0; words <= THC_LANE_WORDS; words++) {
		p = random_packet();
		memset(p.payload + 8 * words, 0, sizeof(p.payload) - 8 * words);
		thc_seal(&p.h, THC_SEAL_NH, &key, p.payload, words);
		for (k = 0; k <= THC_LANE_WORDS; k++)
			assert_int_equal(is_genuine(&p, THC_SEAL_NH, &key, k), k == words);
	}
}

/* --- mixed of genuine ones ----------------------------------------------------------- */

/* clang-format off */
#define FIELDS(X)								\
	X(op) X(width) X(flags) X(tag) X(job) X(rank) X(epoch) X(round)		\
	X(chunk) X(slot) X(count) X(generation) X(bitmap)
/* clang-format on */

/* Parts of a packet that differ between two: fields of the header, and the payload. */
enum part {
#define PART(field) PART_##field,
	FIELDS(PART)
#undef PART
	PART_PAYLOAD,
	PARTS,
};

/* @a, with the parts of @b that are in @mask. */
static struct packet mixture(const struct packet *a, const struct packet *b, u32 mask)
{
	struct packet p = *a;

#define TAKE(field)				\
	if (mask & 1U << PART_##field)		\
		p.h.field = b->h.field;
	FIELDS(TAKE)
#undef TAKE
	if (mask & 1U << PART_PAYLOAD)
		memcpy(p.payload, b->payload, sizeof(p.payload));
	return p;
}

/* Makes @h the complement of @other, except for the version: every field differs. */
static void differ_from(struct thc_hdr *h, const struct thc_hdr *other)
{
	size_t i;

	for (i = 0; i < sizeof(*h); i++)
		((u8 *)h)[i] = (u8) ~((const u8 *)other)[i];
	h->version = other->version;
}

/* Two packets of an epoch yield no third one that mixes their parts, tags included. */
static void seal__mixtures_are_refused(void **state)
{
	const struct thc_seal_key key = key_of(THC_KEY_DOWN, JOB, 1);
	static const u8 seals[] = { THC_SEAL_SUM, THC_SEAL_NH };
	const u32 all = (1U << PARTS) - 1;
	struct packet a, b, p;
	size_t s, i;
	u32 mask;

	(void)state;
	for (s = 0; s < sizeof(seals); s++) {
		for (i = 0; i < COUNT(lengths); i++) {
			const int words = lengths[i];
			/* without a payload its part makes no difference */
			const u32 differ = words ? all : all & ~(1U << PART_PAYLOAD);

			a = random_packet();
			b = random_packet();
			differ_from(&b.h, &a.h);
			thc_seal(&a.h, seals[s], &key, a.payload, words);
			thc_seal(&b.h, seals[s], &key, b.payload, words);
			for (mask = 0; mask <= all; mask++) {
				int whole = !(mask & differ) || (mask & differ) == differ;

				p = mixture(&a, &b, mask);
				if (is_genuine(&p, seals[s], &key, words) != whole)
					fail_msg("seal %u, parts %04x", seals[s], mask);
			}
		}
	}
}

/* Adds @by to what the packet sum makes of a word. */
static void add_mixed(u8 *at, u64 by)
{
	u64 word;

	memcpy(&word, at, 8);
	word = thc_sum_mix(thc_le64(word)) + by;
	word = thc_le64(thc_sum_mix(word));
	memcpy(at, &word, 8);
}

/* Changed lanes under the genuine header, key id and tag: anybody can keep the sum, which is no
 * secret, but not NH.
 */
static void seal__lanes_of_an_equal_sum_are_refused(void **state)
{
	const struct thc_seal_key key = key_of(THC_KEY_DOWN, JOB, 1);
	struct packet p, forged;
	struct thc_digest a, b;
	int round, at;

	(void)state;
	for (round = 0; round < 10000; round++) {
		const u64 by = random_word() | 1;

		p = forged = random_packet();
		at = 8 * (int)(random_word() % (THC_LANE_WORDS - 2));
		/* both of the sum's accumulators stay */
		add_mixed(forged.payload + at, by);
		add_mixed(forged.payload + at + 8, -2 * by);
		add_mixed(forged.payload + at + 16, by);
		a = thc_seal_digest(THC_SEAL_SUM, &key, p.payload, THC_LANE_WORDS);
		b = thc_seal_digest(THC_SEAL_SUM, &key, forged.payload, THC_LANE_WORDS);
		assert_memory_equal(&a, &b, sizeof(a));
		assert_memory_not_equal(p.payload, forged.payload, sizeof(p.payload));
		thc_seal(&p.h, THC_SEAL_SUM, &key, p.payload, THC_LANE_WORDS);
		forged.h = p.h;
		assert_true(is_genuine(&forged, THC_SEAL_SUM, &key, THC_LANE_WORDS));
		thc_seal(&p.h, THC_SEAL_NH, &key, p.payload, THC_LANE_WORDS);
		forged.h = p.h;
		assert_false(is_genuine(&forged, THC_SEAL_NH, &key, THC_LANE_WORDS));
	}
}

/* Payloads of one NH, which only the key's owners can find, have one tag under one header: the tag
 * covers nothing of a payload but its NH, and no other header has that tag.
 */
static void seal__holds_nh_of_the_payload(void **state)
{
	struct thc_seal_key key = key_of(THC_KEY_DOWN, JOB, 1);
	struct packet p, other;
	u32 high;

	(void)state;
	p = random_packet();
	high = -key.nh[1];
	high = thc_le32(high);
	memcpy(p.payload + 4, &high, 4);
	thc_seal(&p.h, THC_SEAL_NH, &key, p.payload, THC_LANE_WORDS);
	other = p;
	random_bytes(other.payload, 4);
	assert_memory_not_equal(p.payload, other.payload, 4);
	assert_true(is_genuine(&other, THC_SEAL_NH, &key, THC_LANE_WORDS));
	other.h.chunk ^= thc_be32(1);
	assert_false(is_genuine(&other, THC_SEAL_NH, &key, THC_LANE_WORDS));
}

/* --- of somebody else ---------------------------------------------------------------- */

/* A key of another epoch, job, direction or secret is refused. */
static void seal__of_another_key_is_refused(void **state)
{
	struct thc_seal_key key = key_of(THC_KEY_UP, JOB, 1), other[5];
	u8 secret[THC_KEY_BYTES], salt[THC_SALT_BYTES] = { 0 };
	struct packet p;
	size_t i, k;

	(void)state;
	memcpy(secret, test_key, sizeof(secret));
	secret[31] ^= 1;
	thc_seal_key_set(&key, test_key, THC_KEY_UP, JOB, salt);
	thc_seal_key_set(&other[0], test_key, THC_KEY_DOWN, JOB, salt);
	thc_seal_key_set(&other[1], test_key, THC_KEY_UP, JOB + 1, salt);
	thc_seal_key_set(&other[2], secret, THC_KEY_UP, JOB, salt);
	salt[15] ^= 0x80;
	thc_seal_key_set(&other[3], test_key, THC_KEY_UP, JOB, salt);
	thc_seal_key_set(&other[4], NULL, THC_KEY_UP, JOB, salt);
	for (k = 0; k < COUNT(other); k++) {
		/* only requests and answers of one epoch name the same key */
		assert_int_equal(other[k].id == key.id, k == 0);
		for (i = 0; i < COUNT(lengths); i++) {
			p = random_packet();
			thc_seal(&p.h, THC_SEAL_NH, &other[k], p.payload, lengths[i]);
			assert_false(is_genuine(&p, THC_SEAL_NH, &key, lengths[i]));
			/* nor is the packet accepted under our key's name */
			p.h.key_id = key.id;
			assert_false(is_genuine(&p, THC_SEAL_NH, &key, lengths[i]));
			thc_seal(&p.h, THC_SEAL_NH, &other[k], p.payload, lengths[i]);
			assert_true(is_genuine(&p, THC_SEAL_NH, &other[k], lengths[i]));
		}
	}
}

/* A packet with one type of seal is refused under another. */
static void seal__of_another_kind_is_refused(void **state)
{
	const struct thc_seal_key key = key_of(THC_KEY_UP, JOB, 1);
	struct packet p;
	u8 seal, other;
	size_t i;

	(void)state;
	for (i = 0; i < COUNT(lengths); i++) {
		for (seal = THC_SEAL_NONE; seal <= THC_SEAL_NH; seal++) {
			for (other = THC_SEAL_NONE; other <= THC_SEAL_NH; other++) {
				p = random_packet();
				thc_seal(&p.h, seal, &key, p.payload, lengths[i]);
				assert_int_equal(is_genuine(&p, other, &key, lengths[i]),
						 seal == other);
			}
		}
	}
}

/* --- membership packets ------------------------------------------------------------------ */

/* Words of payload: none, STALE with EPOCH, LEAVE, CHALLENGE, JOIN, WELCOME. */
static const int membership_words[] = { 0,
					1,
					sizeof(struct thc_leave) / 8,
					sizeof(struct thc_challenge) / 8,
					sizeof(struct thc_join) / 8,
					sizeof(struct thc_welcome) / 8,
					THC_WELCOME_BYTES / 8 };

static void membership__every_bit_counts(void **state)
{
	const struct thc_member_key key = member_key_of(THC_KEY_WELCOME);
	struct packet p;
	struct thc_end end;
	size_t i, bit;
	__be64 tag;

	(void)state;
	random_bytes(&end, sizeof(end));
	for (i = 0; i < COUNT(membership_words); i++) {
		const int words = membership_words[i];

		p = random_packet();
		thc_member_seal(&p.h, THC_SEAL_NH, &key, &end, p.payload, words);
		assert_true(is_membership(&p, &key, &end, words));
		for (bit = 0; bit < 8 * (sizeof(p.h) + 8 * words); bit++) {
			flip(&p, bit);
			tag = thc_member_tag(THC_SEAL_NH, &key, &p.h, &end, p.payload, words);
			assert_true(p.h.tag != tag);
			flip(&p, bit);
		}
		/* the worker's address and port, and the aggregator's number */
		for (bit = 0; bit < 8 * sizeof(end); bit++) {
			flip(&end, bit);
			assert_false(is_membership(&p, &key, &end, words));
			flip(&end, bit);
		}
		/* and the payload's length */
		memset(p.payload, 0, sizeof(p.payload));
		thc_member_seal(&p.h, THC_SEAL_NH, &key, &end, p.payload, words);
		assert_false(is_membership(&p, &key, &end, words + 1));
	}
}

/* A membership packet counts for one worker and one of the job's aggregators. */
static void membership__is_between_two_ends(void **state)
{
	const struct thc_member_key key = member_key_of(THC_KEY_JOIN);
	struct thc_end end[4];
	struct packet p;
	size_t i, k;

	(void)state;
	end[0] = end_of(0x0a000007, 40000);
	end[1] = end_of(0x0a000008, 40000);
	end[2] = end_of(0x0a000007, 40001);
	end[3] = end[0];
	end[3].aggregator = thc_be16(1);
	for (i = 0; i < COUNT(end); i++) {
		p = random_packet();
		thc_member_seal(&p.h, THC_SEAL_NH, &key, &end[i], p.payload, 2);
		for (k = 0; k < COUNT(end); k++)
			assert_int_equal(is_membership(&p, &key, &end[k], 2), i == k);
	}
}

/* A job's control keys have one name, but a packet sealed by one of them counts under no other,
 * nor do data keys seal control packets.
 */
static void membership__keys_are_for_one_purpose(void **state)
{
	const struct thc_member_key key[] = { member_key_of(THC_KEY_JOIN),
					      member_key_of(THC_KEY_WELCOME),
					      member_key_of(THC_KEY_LOST) };
	const struct thc_end end = end_of(0x0a000007, 40000);
	struct thc_seal_key data = { .id = key[0].id };
	struct packet p;
	size_t i, k;

	(void)state;
	for (i = 0; i < COUNT(key); i++) {
		p = random_packet();
		thc_member_seal(&p.h, THC_SEAL_NH, &key[i], &end, p.payload, 2);
		for (k = 0; k < COUNT(key); k++) {
			assert_int_equal(key[k].id, key[i].id);
			assert_int_equal(is_membership(&p, &key[k], &end, 2), i == k);
		}
		/* even with the same key, data and membership packets are sealed differently */
		memcpy(data.sip, key[i].sip, sizeof(data.sip));
		assert_false(is_genuine(&p, THC_SEAL_NH, &data, 2));
		thc_seal(&p.h, THC_SEAL_NH, &data, p.payload, 2);
		assert_false(is_membership(&p, &key[i], &end, 2));
	}
}

/* A job whose data has no seal has the sum in membership packets. */
static void membership__is_never_without_a_seal(void **state)
{
	const struct thc_member_key none = { .id = 0 };
	struct thc_end end = end_of(0x0a000007, 40000);
	struct packet p;
	size_t bit;

	(void)state;
	assert_int_equal(thc_seal_of_members(THC_SEAL_NONE), THC_SEAL_SUM);
	assert_int_equal(thc_seal_of_members(THC_SEAL_SUM), THC_SEAL_SUM);
	assert_int_equal(thc_seal_of_members(THC_SEAL_NH), THC_SEAL_NH);
	p = random_packet();
	thc_member_seal(&p.h, THC_SEAL_SUM, &none, &end, p.payload, 2);
	for (bit = 0; bit < 8 * (sizeof(p.h) + 16); bit++) {
		flip(&p, bit);
		assert_true(p.h.tag !=
			    thc_member_tag(THC_SEAL_SUM, &none, &p.h, &end, p.payload, 2));
		flip(&p, bit);
	}
}

/* --- guesses ------------------------------------------------------------------------ */

static u64 tries(void)
{
	const char *text = getenv("THC_FORGED");
	char *end;
	u64 n;

	if (!text)
		return FORGED;
	n = strtoull(text, &end, 10);
	assert_true(n && !*end);
	return n;
}

/* Makes of @p, which an attacker has seen, and of @q a forged packet. */
static void forge(struct packet *p, const struct packet *q, int words, u32 how)
{
	struct thc_seal_key guess = { .id = p->h.key_id };
	u64 *w = (void *)p;
	int n;

	switch (how) {
	case 0: /* another packet, and any tag */
		random_bytes(p->payload, 16);
		p->h.tag = random_word();
		return;
	case 1: /* a few bytes of the payload */
		for (n = 1 + random_word() % 4; n; n--)
			p->payload[random_word() % (8 * words)] ^= 1 + random_word() % 255;
		return;
	case 2: /* a word of the header but the tag */
		n = random_word() % (THC_HDR_WORDS - 1);
		w[n ? n + 1 : 0] ^= random_word() | 1;
		return;
	case 3: /* changes of two words that cancel out */
		n = THC_HDR_WORDS + random_word() % (words - 1);
		w[n] += 1ULL << random_word() % 64;
		w[n + 1] -= 1ULL << random_word() % 64;
		return;
	case 4: /* another packet's tag */
		p->h.tag = q->h.tag;
		return;
	case 5: /* a key that is guessed */
		random_bytes(guess.sip, sizeof(guess.sip));
		thc_seal(&p->h, THC_SEAL_NH, &guess, p->payload, words);
		return;
	default: /* another packet's lanes */
		memcpy(p->payload, q->payload, 8 * words);
	}
}

static void forged__none_is_taken(void **state)
{
	const struct thc_seal_key key = key_of(THC_KEY_DOWN, JOB, 1);
	const u64 n = tries();
	struct packet p = { 0 }, q = { 0 }, bad;
	int words = 0;
	u64 i;

	(void)state;
	for (i = 0; i < n; i++) {
		if (i % 1000 == 0) {
			words = lengths[1 + i / 1000 % (COUNT(lengths) - 1)];
			p = random_packet();
			q = random_packet();
			thc_seal(&p.h, THC_SEAL_NH, &key, p.payload, words);
			thc_seal(&q.h, THC_SEAL_NH, &key, q.payload, words);
			assert_true(is_genuine(&p, THC_SEAL_NH, &key, words));
			assert_true(is_genuine(&q, THC_SEAL_NH, &key, words));
		}
		memcpy(&bad, &p, sizeof(p.h) + 8 * words);
		forge(&bad, &q, words, (u32)(i % 7));
		if (memcmp(&bad, &p, sizeof(p.h) + 8 * words) &&
		    thc_seal_ok(&bad.h, THC_SEAL_NH, &key, bad.payload, words))
			fail_msg("forged packet %llu is taken", (unsigned long long)i);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(seal__known_answers),
		cmocka_unit_test(membership__known_answers),
		cmocka_unit_test(seal__in_two_steps_and_of_a_payload_anywhere),
		cmocka_unit_test(seal__every_bit_counts),
		cmocka_unit_test(seal__length_counts),
		cmocka_unit_test(seal__mixtures_are_refused),
		cmocka_unit_test(seal__lanes_of_an_equal_sum_are_refused),
		cmocka_unit_test(seal__holds_nh_of_the_payload),
		cmocka_unit_test(seal__of_another_key_is_refused),
		cmocka_unit_test(seal__of_another_kind_is_refused),
		cmocka_unit_test(membership__every_bit_counts),
		cmocka_unit_test(membership__is_between_two_ends),
		cmocka_unit_test(membership__keys_are_for_one_purpose),
		cmocka_unit_test(membership__is_never_without_a_seal),
		cmocka_unit_test(forged__none_is_taken),
	};

	return cmocka_run_group_tests_name("seal", tests, NULL, NULL);
}
