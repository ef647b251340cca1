/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The daemon's UDP sockets: packets that reach them, the batch of frames that leaves them, the
 * answers in it, and what is heard on groups.
 */
#ifndef THCD_NET_H
#define THCD_NET_H

#include <poll.h>
#include <sys/socket.h>

#include "thcd.h"

/* A numeric address as sockaddr and back; ports in host order. */
socklen_t thcd_sockaddr(struct sockaddr_storage *out, const struct thc_addr *addr, u16 port,
			int family, unsigned int ifindex);
int thcd_sockaddr_parse(const struct sockaddr *in, struct thc_addr *addr, u16 *port);

/* Opens d->socket[d->sockets] on @address, of this host: a number or a name. */
int thcd_net_open(struct thcd *d, const char *address, struct thcd_error *e);

/* Opens a socket on each address of @interface. */
int thcd_net_open_interface(struct thcd *d, const char *interface, struct thcd_error *e);

/**
 * thcd_net_subnets() - subnets that packets for our sockets come from
 * @out: out: the subnets of all addresses that the socket's interface has in the socket's
 *	family
 *
 * A socket on any address, or on an address of lo that other hosts route to us, is reached through
 * every interface. Later calls return the result of the first: an address that comes, or is gone
 * for a moment, must not change the jobs of a reload. -1 with a sentence if there are too many
 * subnets.
 */
int thcd_net_subnets(const struct thcd *d, struct thcd_prefixes *out, struct thcd_error *e);

/* Does thcd listen on @addr? */
bool thcd_is_own(const struct thcd *d, const struct thc_addr *addr);

/* May another host have this address? Not the unspecified address, a group, loopback, or ours. */
bool thcd_is_hosts(const struct thcd *d, const struct thc_addr *addr);

/* Index of our socket of @addr's family; -1: this aggregator cannot send to it. */
int thcd_socket_for(const struct thcd *d, const struct thc_addr *addr);

void thcd_net_close(struct thcd *d);

/* Binds the ports beside the base port that XDP answers from, on each address of d->socket: they
 * are closed to other programs. -1 and @e if a port cannot be bound.
 */
int thcd_guard_init(const struct thcd *d, struct thcd_error *e);
void thcd_guard_exit(void);

/**
 * thcd_out_put() - queues one datagram
 * @words: 64-bit words of lanes after the header, host order; NULL: none
 * @bytes: raw payload instead of @words; NULL: none
 * @length: payload bytes
 *
 * Nothing is sent before thcd_out_flush() or a full batch. If the send buffer is half full, a
 * datagram without @words is dropped and counted as unsent: its receiver asks again.
 */
void thcd_out_put(struct thcd *d, const struct thc_addr *addr, u16 port, const struct thc_hdr *h,
		  const u64 *words, const void *bytes, u32 length);
void thcd_out_flush(struct thcd *d);

/* Sends the answer of a finished generation of slot @slot of job @job_id to all ranks. */
void thcd_answer_all(struct thcd *d, u16 job_id, u32 slot, u32 generation);

/* Sends the answer of a finished generation again, to one rank. */
void thcd_answer_one(struct thcd *d, u16 job_id, u32 slot, u32 generation, u8 rank);

/* Receives from socket @i, at most a few batches. If XDP takes the data, JOIN and LEAVE arrive
 * here.
 */
void thcd_receive(struct thcd *d, int i);

/* Handles a packet of @length bytes, and may overwrite it. @ce: its IP header was marked CE. */
void thcd_packet(struct thcd *d, void *packet, u32 length, const struct thc_path *path, bool ce);

/* Watches for another aggregator that answers to a job's group. thcd_foreign_poll() opens a socket
 * for each group that has none yet, fills @p (THCD_FOREIGN_POLLS entries) for poll(), and returns
 * how many entries, 0 in software mode. thcd_foreign_look() handles the events.
 */
#define THCD_FOREIGN_POLLS	THC_JOBS_MAX
int thcd_foreign_poll(const struct thcd *d, struct pollfd *p);
void thcd_foreign_look(struct thcd *d, const struct pollfd *p);

/* Job @id was created or removed, so its group may have changed: thcd listens again from @from_ms
 * (monotonic; 0: at once).
 */
void thcd_foreign_restart(u32 id, uint64_t from_ms);

#endif /* THCD_NET_H */
