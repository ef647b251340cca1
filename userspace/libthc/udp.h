/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0) */
/* The sockets of a client over UDP: packets out and in, in batches. */
#ifndef LIBTHC_UDP_H
#define LIBTHC_UDP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include <thc/worker/answer.h>

#include "buffers.h"
#include "libthc.h"
#include "way.h"

/* Packets sent per system call. */
#define THC_BATCH		64
/* Datagrams received per system call at most, each of many packets joined (UDP GRO). Room to
 * receive is at most one part in THC_RX_SHARE of a bucket, but at least for one datagram.
 */
#define THC_RX_BATCH		16
#define THC_RX_BYTES		65536
#define THC_RX_SHARE		4
/* Socket memory one answer may take while it waits to be read: a page-sized
 * XDP frame and its bookkeeping.
 */
#define THC_ANSWER_TRUESIZE	4608
/**
 * struct thc_sockets - the sockets of a client
 * @unicast: for requests, and for answers to this rank
 * @group: for answers to all ranks, -1 without a group
 * @way: way to the aggregator; its local address is that of @unicast
 * @group_at: address of @group
 * @gso: the kernel segments UDP super-packets
 * @answers_max: answers the sockets have room for
 * @foreign: packets from other hosts than the aggregator, which were dropped
 * @complaint: errno of the network's last error about packets to the aggregator, 0: none
 */
struct thc_sockets {
	int			unicast;
	int			group;
	struct thc_way		way;
	struct sockaddr_storage	group_at;
	bool			gso;
	uint32_t		answers_max;
	uint64_t		foreign;
	int			complaint;
};

/* One packet to send: header and payload, contiguous. */
struct thc_outgoing {
	const void	*data;
	uint16_t	bytes;
	uint16_t	port;	/* host order */
};

int thc_sockets_open(struct thc_sockets *l, const struct thc_client_options *o);
/* Opens sockets to another aggregator of the job, at @to, with the options of @first. */
int thc_sockets_open_beside(struct thc_sockets *l, const struct thc_sockets *first,
			    const struct thc_end *to);
void thc_sockets_close(struct thc_sockets *l);
int thc_sockets_join_group(struct thc_sockets *l, const struct thc_end *group);
void thc_sockets_leave_group(struct thc_sockets *l);
/* Sends all of @out; returns packets the kernel took or -errno. */
int thc_sockets_send(struct thc_sockets *l, const struct thc_outgoing *out, unsigned int count,
		     uint64_t *calls);
/* Handles a packet of @bytes, header included. */
typedef void thc_sockets_each(void *ctx, struct thc_hdr *h, unsigned int bytes,
			      struct thc_origin from);
/* Reads into @rx, without blocking, the datagrams that one call gets from @fd, and calls @each for
 * packets from the aggregator. Returns the number of datagrams or -errno.
 */
int thc_sockets_receive(struct thc_sockets *l, int fd, struct thc_buffer rx, thc_sockets_each *each,
			void *ctx, uint64_t *calls);
/* Wire bytes of a packet with @bytes of UDP payload. */
unsigned int thc_sockets_wire_bytes(const struct thc_sockets *l, unsigned int bytes);

#endif /* LIBTHC_UDP_H */
