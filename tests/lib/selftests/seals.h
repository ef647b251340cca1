/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Seals packets that a test makes in the place of a worker or an aggregator, by functions that
 * thc.ko uses, too. test_af_thc_seal and oracle.h test these functions.
 */
#ifndef THC_SELFTESTS_SEALS_H
#define THC_SELFTESTS_SEALS_H

#include <stddef.h>
#include <stdint.h>

#include <thc/key.h>

/**
 * struct job_seals - keys and seals of a job in one epoch
 * @seal: of data and answers
 * @control: of all else
 */
struct job_seals {
	uint8_t			seal;
	uint8_t			control;
	struct thc_seal_key	up;
	struct thc_seal_key	down;
	struct thc_member_key	join;
	struct thc_member_key	welcome;
	struct thc_member_key	lost;
};

/* Sets the seals of job @job with @key (NULL: no key, seal sum) in the epoch of @salt. */
void job_seals_set(struct job_seals *s, const uint8_t *key, uint16_t job, const uint8_t *salt);

/* A worker's end, or the group's; @to: a sockaddr_in, or a sockaddr_in6. */
struct thc_end end_of(const void *to);

/* Packets of @bytes. The payload ends at the last whole word. */
void seal_request(const struct job_seals *s, struct thc_hdr *h, size_t bytes);
/* An answer, WAIT, or STALE that does not end the epoch. */
void seal_answer(const struct job_seals *s, struct thc_hdr *h, size_t bytes);
/* The tag alone: whatever key the header names. */
void tag_answer(const struct job_seals *s, struct thc_hdr *h, size_t bytes);

void seal_join(const struct job_seals *s, struct thc_hdr *h, size_t bytes, const void *worker);
/* WELCOME, a part of it, or CHALLENGE. @to: the worker, or the group */
void seal_welcome(const struct job_seals *s, struct thc_hdr *h, size_t bytes, const void *to);
void tag_welcome(const struct job_seals *s, struct thc_hdr *h, size_t bytes,
		 const struct thc_end *end);
/* STALE with EPOCH, about the request whose tag is @request. */
void seal_end(const struct job_seals *s, struct thc_hdr *h, const void *worker, __be64 request);
/* Seals a membership packet without a key, as anybody can. */
void seal_nobodys(struct thc_hdr *h, size_t bytes);

#endif /* THC_SELFTESTS_SEALS_H */
