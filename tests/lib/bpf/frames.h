/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Packets of the tests of the XDP programs: requests and their frames, the seals of answers, and
 * what an answer has to say. Frames are built byte by byte from the RFCs, not with the structures
 * the programs parse with.
 */
#ifndef THC_TEST_FRAMES_H
#define THC_TEST_FRAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <thc/aggregator/job.h>

/* By what requests are sealed, and what jobs are made with: enum thc_seal_type. At first NH. */
extern u8 rig_seal;

/* The keys of @job in @epoch, under rig_seal, as its workers know them; of this thread, until its
 * next call.
 */
const struct thc_seals *rig_seals(u16 job, u32 epoch);

/* A request; @h gets what the fields above do not say. */
struct rig_request {
	u8 op, width;
	u16 rank, job;
	u32 epoch, round, chunk, slot, generation;
};

void rig_header(struct thc_hdr *h, const struct rig_request *r);

/* Data @h + @payload into @out, under the keys of its job and epoch; returns its length. */
size_t rig_packet(u8 *out, struct thc_hdr *h, const void *payload, size_t len);

/* JOIN or LEAVE of a worker at @end, into @out. */
size_t rig_membership(u8 *out, struct thc_hdr *h, const struct thc_end *end, const void *payload,
		      size_t len);

/* Is @h sealed as an answer of its job and epoch, with @len bytes of @payload? */
bool rig_sealed(const struct thc_hdr *h, const void *payload, size_t len);

/* Does @h end the epoch of the worker at @end, in answer to its request of this @tag? */
bool rig_ends(const struct thc_hdr *h, const struct thc_end *end, __be64 tag);

/**
 * struct rig_frame - everything in front of a THC packet
 * @vlan: tag control, host order
 * @vlan_proto: 0x8100 unless set; untagged if both are 0
 * @options: bytes of IPv4 options
 * @ext: @ext_len bytes of IPv6 extension headers, of which @next is the first one's number
 * @frag: IPv4 flags and offset
 * @next: IP protocol, 17 unless set
 * @ttl: TTL or hop limit, 3 unless set
 * @ip_len: 0: right, else what the IP header says
 * @udp_len: 0: right, else what the UDP header says
 */
struct rig_frame {
	bool v6;
	u16 vlan, vlan_proto;
	u8 src_mac[6], dst_mac[6];
	struct thc_addr src, dst;
	u16 sport, dport;
	u8 tos, options, next, ttl;
	u16 frag, ip_len, udp_len, ext_len;
	const u8 *ext;
};

/* The worker's end of a frame from it. */
struct thc_end rig_end(const struct rig_frame *f);

/* The frame of UDP payload @data; returns its length. RFC 768, 791, 8200. */
size_t rig_frame(u8 *out, const struct rig_frame *f, const void *data, size_t len);

/* Payload bytes that an op with this width takes. */
static inline size_t rig_payload(u8 op, u8 width, u8 sum_width)
{
	return op != THC_OP_LUT_ADD ? 1024 : 1024 * width / sum_width;
}

/* Answer bytes expected from @n payloads of requests of @width; the first replaces. */
void rig_reference(u8 *out, u8 op, u8 width, u8 answer_width, const u16 *table,
		   const u8 *const payload[], int n);

#endif /* THC_TEST_FRAMES_H */
