// SPDX-License-Identifier: GPL-2.0
#include "seals.h"

#include <thc/wire/format.h>

#include <netinet/in.h>
#include <string.h>

void job_seals_set(struct job_seals *s, const uint8_t *key, uint16_t job, const uint8_t *salt)
{
	memset(s, 0, sizeof(*s));
	s->seal = key ? THC_SEAL_NH : THC_SEAL_SUM;
	s->control = s->seal;
	thc_seal_key_set(&s->up, key, THC_KEY_UP, job, salt);
	thc_seal_key_set(&s->down, key, THC_KEY_DOWN, job, salt);
	if (!key)
		return;
	thc_member_key_derive(&s->join, key, THC_KEY_JOIN, job);
	thc_member_key_derive(&s->welcome, key, THC_KEY_WELCOME, job);
	thc_member_key_derive(&s->lost, key, THC_KEY_LOST, job);
}

struct thc_end end_of(const void *to)
{
	const struct sockaddr_in *in = to;
	const struct sockaddr_in6 *in6 = to;
	struct thc_end end = { .port = in->sin_port };

	if (in->sin_family == AF_INET)
		end.addr = thc_addr_v4(in->sin_addr.s_addr);
	else
		memcpy(&end.addr, &in6->sin6_addr, sizeof(end.addr));
	return end;
}

/* Whole words of the payload; a tag covers no longer payload. */
static int words_of(size_t bytes)
{
	size_t words = (bytes - sizeof(struct thc_hdr)) / 8;

	return (int)(words < THC_LANE_WORDS ? words : THC_LANE_WORDS);
}

void seal_request(const struct job_seals *s, struct thc_hdr *h, size_t bytes)
{
	thc_seal(h, s->seal, &s->up, h + 1, words_of(bytes));
}

void seal_answer(const struct job_seals *s, struct thc_hdr *h, size_t bytes)
{
	h->key_id = s->down.id;
	tag_answer(s, h, bytes);
}

void tag_answer(const struct job_seals *s, struct thc_hdr *h, size_t bytes)
{
	int words = words_of(bytes);
	struct thc_digest d = thc_seal_digest(s->seal, &s->down, h + 1, words);

	h->tag = thc_be64(thc_seal_tag(s->seal, &s->down, h, d, (u64)words));
}

void seal_join(const struct job_seals *s, struct thc_hdr *h, size_t bytes, const void *worker)
{
	const struct thc_end end = end_of(worker);

	thc_member_seal(h, s->control, &s->join, &end, h + 1, words_of(bytes));
}

void seal_welcome(const struct job_seals *s, struct thc_hdr *h, size_t bytes, const void *to)
{
	const struct thc_end end = end_of(to);

	h->key_id = s->welcome.id;
	tag_welcome(s, h, bytes, &end);
}

void tag_welcome(const struct job_seals *s, struct thc_hdr *h, size_t bytes,
		 const struct thc_end *end)
{
	h->tag = thc_member_tag(s->control, &s->welcome, h, end, h + 1, words_of(bytes));
}

void seal_end(const struct job_seals *s, struct thc_hdr *h, const void *worker, __be64 request)
{
	const struct thc_end end = end_of(worker);

	thc_member_seal(h, s->control, &s->lost, &end, &request, 1);
}

void seal_nobodys(struct thc_hdr *h, size_t bytes)
{
	const struct thc_member_key none = { .id = 0 };

	thc_member_seal(h, THC_SEAL_SUM, &none, NULL, h + 1, words_of(bytes));
}
