/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Tags of packets, written from Documentation/protocol.md and SipHash's paper: shares no code with
 * thc.ko.
 */
#ifndef THC_SELFTESTS_TAGS_H
#define THC_SELFTESTS_TAGS_H

#include <linux/thc.h>
#include <stddef.h>
#include <stdint.h>

/* A key of SipHash, and its name. */
struct tag_key {
	uint64_t	sip[2];
	uint32_t	id;
};

/* A worker's end, or the group's, as the tag of a membership packet holds it. */
struct tag_end {
	uint8_t		address[16];
	uint8_t		port[2];
	uint8_t		zero[6];
};

/* NH of @bytes, under as many of @key. */
uint64_t tag_nh(const uint32_t *key, const uint8_t *payload, size_t bytes);
/* The tag of data or an answer. @nh: NH of the payload */
uint64_t tag_of_data(const struct tag_key *key, const void *header, uint64_t nh);
/* The tag of a membership packet. @payload: the bytes that the tag covers */
uint64_t tag_of_membership(const struct tag_key *key, const void *header, const struct tag_end *end,
			   const void *payload, size_t bytes);
/* What an answer whose lanes have NH @nh adds to the digest of its round. */
uint32_t tag_of_result(const struct tag_key *key, const void *header, uint64_t nh);
/* "The packet sum" of Documentation/protocol.md. */
uint32_t tag_sum(const uint8_t *packet, size_t bytes);

#endif /* THC_SELFTESTS_TAGS_H */
