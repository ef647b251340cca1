// SPDX-License-Identifier: GPL-2.0
#include "tags.h"

#include <endian.h>
#include <string.h>

/* Bytes of a membership packet's payload. */
#define MEMBERSHIP_MAX	THC_WELCOME_BYTES

static uint64_t turn(uint64_t x, int left)
{
	return x << left | x >> (64 - left);
}

static void rounds(uint64_t *v, int n)
{
	while (n--) {
		v[0] += v[1];
		v[2] += v[3];
		v[1] = turn(v[1], 13) ^ v[0];
		v[3] = turn(v[3], 16) ^ v[2];
		v[0] = turn(v[0], 32);
		v[2] += v[1];
		v[0] += v[3];
		v[1] = turn(v[1], 17) ^ v[2];
		v[3] = turn(v[3], 21) ^ v[0];
		v[2] = turn(v[2], 32);
	}
}

/* SipHash-2-4, of whole words. */
static uint64_t siphash(const struct tag_key *key, const uint8_t *data, size_t bytes)
{
	static const char text[] = "somepseudorandomlygeneratedbytes";
	uint64_t v[4] = { 0 }, m;
	size_t i;

	for (i = 0; i < 32; i++)
		v[i / 8] = v[i / 8] << 8 | (uint8_t)text[i];
	for (i = 0; i < 4; i++)
		v[i] ^= key->sip[i % 2];
	for (i = 0; i <= bytes; i += 8) {
		/* the last block holds the length */
		m = (uint64_t)bytes << 56;
		if (i < bytes) {
			memcpy(&m, data + i, 8);
			m = le64toh(m);
		}
		v[3] ^= m;
		rounds(v, 2);
		v[0] ^= m;
	}
	v[2] ^= 0xff;
	rounds(v, 4);
	return v[0] ^ v[1] ^ v[2] ^ v[3];
}

uint64_t tag_nh(const uint32_t *key, const uint8_t *payload, size_t bytes)
{
	uint64_t nh = 0;
	uint32_t m[2];
	size_t i;

	for (i = 0; i < bytes / 4; i += 2) {
		memcpy(m, payload + 4 * i, 8);
		m[0] = le32toh(m[0]) + key[i];
		m[1] = le32toh(m[1]) + key[i + 1];
		nh += (uint64_t)m[0] * m[1];
	}
	return nh;
}

/* Writes a header without its tag. */
static size_t put_header(uint8_t *to, const void *header)
{
	memcpy(to, header, 8);
	memcpy(to + 8, (const uint8_t *)header + 16, 32);
	return 40;
}

uint64_t tag_of_data(const struct tag_key *key, const void *header, uint64_t nh)
{
	uint8_t text[48];
	size_t n = put_header(text, header);

	nh = htole64(nh);
	memcpy(text + n, &nh, sizeof(nh));
	return siphash(key, text, sizeof(text));
}

uint32_t tag_of_result(const struct tag_key *key, const void *header, uint64_t nh)
{
	const struct thc_hdr *h = header;
	uint8_t text[24];

	memcpy(text, &h->chunk, 4);
	memcpy(text + 4, &h->slot, 2);
	memcpy(text + 6, &h->count, 2);
	memcpy(text + 8, &h->bitmap, 8);
	nh = htole64(nh);
	memcpy(text + 16, &nh, sizeof(nh));
	return (uint32_t)(siphash(key, text, sizeof(text)) >> 32);
}

uint64_t tag_of_membership(const struct tag_key *key, const void *header, const struct tag_end *end,
			   const void *payload, size_t bytes)
{
	uint8_t text[40 + sizeof(*end) + MEMBERSHIP_MAX];
	size_t n = put_header(text, header);

	memcpy(text + n, end, sizeof(*end));
	n += sizeof(*end);
	memcpy(text + n, payload, bytes);
	return siphash(key, text, n + bytes);
}

uint32_t tag_sum(const uint8_t *packet, size_t bytes)
{
	uint64_t a = 0, b = 0, x, w;
	size_t i;

	for (i = 0; i < bytes; i += 8) {
		memcpy(&w, packet + i, 8);
		/* the tag counts as zero */
		w = i == 8 ? 0 : le64toh(w);
		a += w ^ (w >> 32);
		b += a;
	}
	x = a * 0x9e3779b97f4a7c15;
	x ^= x >> 32;
	x = x * 0xd6e8feb86659fd93 + b;
	x ^= x >> 32;
	x *= 0xd6e8feb86659fd93;
	return (uint32_t)(x >> 32);
}
