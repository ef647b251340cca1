/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0) */
/*
 * The client's private structures. A request goes from client.c through engine.c
 * and request.c to a transport. The transport hands answers back to request.c. A
 * failure goes from the transport through failure.c to engine.c, which ends all
 * requests and makes the transport forget what is in flight.
 *
 *	client.c    the public calls; a queue of requests
 *	engine.c    the I/O thread: receive, send, compute, sleep
 *	request.c   one all-reduce: agreement, norms, compress, decode
 *	udp.c       the transport over UDP sockets (join.c: JOIN and WELCOME;
 *	            link.c: batches of packets out and in)
 *	resolve.c   the aggregator's address and ours, out of text
 *	kernel.c    the transport over an AF_THC socket of thc.ko
 *	job.c       the job's constants, and what is made from them
 *	failure.c   what went wrong, in sentences
 *	memory.c    error memory by key, recycled buffers, the budget of bytes
 *	structs.c   options, info and stats of older and newer programs
 *
 * What may be sent, what an answer means and what is sent again is in
 * <thc/worker/flight.h> and <thc/worker/window.h>, which the kernel module shares.
 *
 * Locking: client.lock guards the queue, the error memories' list and what it
 * takes to wake the I/O thread. A request belongs to who waits for it as soon as
 * it has ended, and may outlive the client. All else belongs to the I/O thread
 * while it runs, and to the caller of open, rejoin and close while it does not.
 */
#ifndef LIBTHC_CLIENT_H
#define LIBTHC_CLIENT_H

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <thc/worker/flight.h>
#include <thc/aggregator/admit.h>

#include "codec.h"
#include "error.h"
#include "libthc.h"

#define THC_TIMEOUT_MS		60000
#define THC_JOIN_TIMEOUT_MS	60000

/* Packets sent per system call. */
#define THC_BATCH		64
/* Datagrams received per system call at most, each of many packets joined (UDP
 * GRO); all of them only once a bucket is so large that the room for them is no
 * more than one part in THC_RX_SHARE of it.
 */
#define THC_RX_BATCH		16
#define THC_RX_BYTES		65536
#define THC_RX_SHARE		4
/* Bytes of an answer: header and lanes. */
#define THC_ANSWER_BYTES	(sizeof(struct thc_hdr) + THC_LANE_BYTES)
/* Socket memory one answer may take while it waits to be read: a page-sized
 * XDP frame and its bookkeeping.
 */
#define THC_ANSWER_TRUESIZE	4608
/* Coordinates compressed between two looks at the sockets. */
#define THC_SLICE		65536
/* fp16 and bf16: coordinates rotated ahead of their norms at most, and the part
 * of the bucket that their floats may take. A millisecond of work: the norms
 * take two round trips.
 */
#define THC_AHEAD		(1U << 20)
#define THC_AHEAD_SHARE		8
/* Requests worked on at a time: one in its data, the next in its norms. */
#define THC_ACTIVE_MAX		2

/* The job's constants, from WELCOME, host order. */
struct thc_params {
	uint64_t	seed;
	uint64_t	joined;
	uint32_t	epoch;
	uint32_t	table_hash;
	uint32_t	deadline_ms;
	uint16_t	ranks;
	uint16_t	data_slots;
	uint16_t	norm_slots;
	uint16_t	chunk;
	uint16_t	group_port;
	uint8_t		flags;
	uint8_t		refusal;
	uint8_t		reply;
	uint8_t		sum_width;
	uint8_t		block_log2;
	uint8_t		family;
	uint8_t		group[16];
	struct thc_table table;
};

/* --- link.c --------------------------------------------------------------- */

/**
 * struct thc_link - the sockets of a client
 * @unicast: requests out, answers to this rank in
 * @group: answers to all ranks in, -1 without a group
 * @peer: the aggregator, base port
 * @local: bound address of @unicast
 * @group_address: of @group, as in WELCOME
 * @group_port: of @group, host order
 * @ifindex: interface of @local, 0: the system's choice
 * @gso: the kernel segments UDP for us
 * @answers_max: answers the sockets have room for
 * @foreign: packets from other hosts than the aggregator, which nobody saw
 * @rx: room for a batch of @rx_batch datagrams
 */
struct thc_link {
	int			unicast;
	int			group;
	struct sockaddr_storage	peer;
	struct sockaddr_storage	local;
	socklen_t		addrlen;
	uint8_t			group_address[16];
	uint16_t		group_port;
	int			ifindex;
	bool			gso;
	uint32_t		answers_max;
	uint64_t		foreign;
	uint8_t			*rx;
	unsigned int		rx_batch;
};

/* Bytes of @rx. */
static inline size_t thc_link_room(const struct thc_link *l)
{
	return (size_t)l->rx_batch * THC_RX_BYTES;
}

/* One packet to send: header and payload, contiguous. */
struct thc_outgoing {
	const void	*data;
	uint16_t	bytes;
	uint16_t	port;	/* host order */
};

/* Addresses and interface, no sockets yet. */
int thc_link_find(struct thc_link *l, const struct thc_client_options *o);
int thc_link_open(struct thc_link *l, const struct thc_client_options *o);
void thc_link_close(struct thc_link *l);
/* Room to receive for buckets of @bytes from now on; never less than before.
 * thc_link_growth(): by so many bytes.
 */
size_t thc_link_growth(const struct thc_link *l, size_t bytes);
int thc_link_grow(struct thc_link *l, size_t bytes);
int thc_link_join_group(struct thc_link *l, const struct thc_params *p);
void thc_link_leave_group(struct thc_link *l);
/* Sends all of @out; returns packets the kernel took or -errno. */
int thc_link_send(struct thc_link *l, const struct thc_outgoing *out, unsigned int count,
		  uint64_t *calls);
/* @ce: the packet met congestion on its way to us (ECN). */
typedef void thc_link_each(void *ctx, struct thc_hdr *h, unsigned int bytes, uint16_t port,
			   bool ce);
/* Reads what one call gets from @fd, without blocking; @each sees those
 * that came from the aggregator.
 * Returns datagrams read or -errno.
 */
int thc_link_receive(struct thc_link *l, int fd, thc_link_each *each, void *ctx, uint64_t *calls);
/* Wire bytes of a packet with @bytes of UDP payload. */
unsigned int thc_link_wire_bytes(const struct thc_link *l, unsigned int bytes);
const char *thc_link_peer_name(const struct thc_link *l, char *text, size_t room);

/* --- request.c ------------------------------------------------------------ */

enum thc_stage {
	THC_STAGE_QUEUED,	/* nothing done */
	THC_STAGE_MEASURE,	/* norms and finiteness of the bucket, slice by slice */
	THC_STAGE_AGREE,	/* agreement in flight or waiting for its turn */
	THC_STAGE_DATA,		/* norms, compress, decode, all overlapped */
	THC_STAGE_DONE,
};

/**
 * struct thc_request - one all-reduce
 *
 * A region holds one chunk while it is on its way: its packet at the front,
 * the answer's lanes at the end, at last the chunk's mean in the caller's
 * dtype. For fp32 regions are as long as the chunk's floats, so that blocks
 * are rotated and decoded in place; for the others blocks that are rotated
 * ahead of their norms wait in a ring.
 *
 * @region_bytes: of a chunk's region
 * @regions: all chunks' regions
 * @arrays: one allocation for all that follows, up to @ahead
 * @norms: of each block; own ones, replaced by the agreed maxima
 * @norm_packets: agreement, then norm chunks, THC_ANSWER_BYTES each
 * @counts: contributors of each answered chunk
 * @lost: 1: the chunk's sum lacks this rank
 * @missing: answers each block still waits for
 * @measured: blocks whose norm is known
 * @norm_done: by norm packet: its maxima are in @norms
 * @ahead: the ring
 * @ahead_blocks: blocks of floats it has room for; 0 for fp32
 * @rotated: blocks rotated, the last of them ahead of their norms
 * @packed: blocks compressed and ready to be sent
 * @answered: data chunks answered
 */
struct thc_request {
	struct thc_request	*next;
	struct thc_client	*client;
	void			*buf;
	size_t			count;
	uint64_t		key;
	enum thc_dtype		dtype;

	enum thc_stage		stage;
	sem_t			ended;		/* 1: status and sentence are final */
	bool			data_reserved;	/* sequence numbers are given */
	bool			adrift;		/* it failed here, the others go on without us */
	int			status;
	int			claim_status;
	size_t			bad;
	char			sentence[THC_SENTENCE_MAX];

	uint64_t		round;
	uint64_t		norm_first;	/* sequence of the agreement */
	uint64_t		data_first;
	uint32_t		norm_chunks;	/* agreement not counted */
	uint32_t		data_chunks;
	uint32_t		norms_sendable;	/* norm packets ready, agreement included */
	uint32_t		norms_handed;	/* AF_THC: norm packets handed over */
	uint32_t		data_handed;	/* AF_THC: data packets handed over */
	size_t			blocks;
	size_t			region_bytes;
	uint8_t			*regions;
	size_t			regions_room;
	uint8_t			*arrays;
	float			*norms;
	uint8_t			*norm_packets;
	uint8_t			*norm_done;
	uint16_t		*counts;
	uint8_t			*lost;
	uint16_t		*missing;
	float			*ahead;
	size_t			ahead_blocks;
	size_t			arrays_bytes;
	size_t			counted;	/* by thc_budget_begin() */
	struct thc_memory	*error;
	size_t			measured;
	size_t			rotated;
	size_t			packed;
	uint32_t		answered;
};

struct thc_request *thc_request_create(struct thc_client *c, void *buf, size_t count,
				       enum thc_dtype dtype, uint64_t key);
void thc_request_destroy(struct thc_request *r);
/* Its end: wakes who waits for it, who then owns it. */
void thc_request_end(struct thc_request *r);
int thc_request_prepare(struct thc_request *r);
void thc_request_release(struct thc_request *r);
/* One slice of computation; false: nothing to do now. */
bool thc_request_compute(struct thc_request *r);
void thc_request_agree_packet(struct thc_request *r);
void thc_request_norm_answer(struct thc_request *r, uint32_t index, const void *lanes);
void thc_request_data_answer(struct thc_request *r, uint32_t index, const struct thc_hdr *h,
			     const void *lanes);
/* Answers to data chunks from @first on, side by side; counts as recvmsg() of
 * AF_THC gives them.
 */
void thc_request_data_answers(struct thc_request *r, uint32_t first, uint32_t chunks,
			      const uint16_t *counts, const uint8_t *lanes);
/* The packet of norm chunk (0: agreement) or data chunk @index. */
struct thc_hdr *thc_request_norm_packet(const struct thc_request *r, uint32_t index);
struct thc_hdr *thc_request_data_packet(const struct thc_request *r, uint32_t index);
/* It has succeeded: hands the mean, or THC_NONFINITE's NaN, to the caller's buffer. */
void thc_request_finish(struct thc_request *r);

/* --- agree.c -------------------------------------------------------------- */

void thc_agree_claim(const struct thc_request *r, void *lanes);
/* 0, or -EBADMSG / -EDOM with the request's sentence filled in, and `adrift` if
 * only this rank, left out by a deadline, knows of it.
 */
int thc_agree_check(struct thc_request *r, const void *lanes);

/* --- memory.c ------------------------------------------------------------- */

/**
 * struct thc_memory - error memory of one key
 * @now: what compression has lost so far, @count floats
 * @next: the same after the round in progress; exchanged when it succeeds, so
 *	that a failed round leaves nothing half-applied
 * @undoable: @next is what @now was before the last round of the key
 * @busy: a request uses it
 */
struct thc_memory {
	struct thc_memory	*link;
	uint64_t		key;
	size_t			count;
	float			*now;
	float			*next;
	bool			undoable;
	bool			busy;
};

/* Called with client.lock held: 0, or an error with the sentence set. */
int thc_memory_get(struct thc_client *c, uint64_t key, size_t count, struct thc_memory **out);
void thc_memory_free(struct thc_client *c);

/* A bucket of @bytes is in progress: returns what it counts as, to be given to
 * thc_budget_end(). A client holds no more than twice the most that has been
 * counted at a time.
 */
size_t thc_budget_begin(struct thc_client *c, size_t bytes);
void thc_budget_end(struct thc_client *c, size_t counted);
/* Bytes that may still be held, if no buffer waits to be used again. */
size_t thc_budget_left(const struct thc_client *c);

/* Large buffers are recycled: fresh pages cost more than compressing them. Who
 * takes one of @bytes is going to allocate @others beside it.
 */
void *thc_buffer_get(struct thc_client *c, size_t bytes, size_t others, size_t *room);
void thc_buffer_put(struct thc_client *c, void *buffer, size_t room);
void thc_buffer_free(struct thc_client *c);

/* --- udp.c, kernel.c ------------------------------------------------------ */

/**
 * struct thc_transport - how chunks travel between a client and the aggregator
 * @open: sockets; -EAFNOSUPPORT: this kernel has none of the kind
 * @close: of what @open made, also after it failed
 * @join: until all ranks have joined: fills client.params
 * @leave: says so to the aggregator
 * @growth: bytes more that it needs to receive what a bucket of @bytes brings
 * @room: takes them
 * @forget: what is in flight, after a failure
 * @receive: what has come; true if anything did
 * @send: what can be sent; lowers *@due to the time of the next look
 * @poll: what to sleep on, at most two; how many. 0: nothing can come
 * @show: fills in the counters that only it knows, often; may be NULL
 * @ask: fills in those that are costly to know, when somebody asks; may be NULL
 */
struct thc_transport {
	const char	*name;
	int		(*open)(struct thc_client *c);
	void		(*close)(struct thc_client *c);
	int		(*join)(struct thc_client *c);
	void		(*leave)(struct thc_client *c);
	size_t		(*growth)(const struct thc_client *c, size_t bytes);
	int		(*room)(struct thc_client *c, size_t bytes);
	void		(*forget)(struct thc_client *c);
	bool		(*receive)(struct thc_client *c);
	bool		(*send)(struct thc_client *c, uint64_t *due);
	unsigned int	(*poll)(const struct thc_client *c, struct pollfd *fds);
	void		(*show)(const struct thc_client *c, struct thc_client_stats *stats);
	void		(*ask)(const struct thc_client *c, struct thc_client_stats *stats);
};

extern const struct thc_transport thc_udp_transport;
extern const struct thc_transport thc_kernel_transport;

/* --- client.c, engine.c, join.c ------------------------------------------- */

/* Small buckets count as so much in what is promised about memory: bytes, and
 * blocks of floats.
 */
#define THC_COUNTED_BYTES	(512U << 10)
#define THC_COUNTED_BLOCKS	3

/* Buffers kept for reuse, and for how many all-reduces an unused one is. */
#define THC_SPARES	4
#define THC_SPARE_AGE	64

struct thc_spare {
	void		*buffer;
	size_t		room;
	uint64_t	taken;		/* all-reduces begun when it came back */
};

/* What the I/O thread does, and what it takes to wake it. */
enum thc_thread_state {
	THC_AWAKE,	/* nothing: it looks for news before it sleeps */
	THC_IDLE,	/* waits for client.work */
	THC_POLLING,	/* a write to client.wake */
};

struct thc_client {
	pthread_mutex_t		lock;
	pthread_cond_t		work;		/* lock: news, for a thread that is idle */
	enum thc_thread_state	state;		/* lock */
	bool			news;		/* lock: a request or an order to stop */
	struct thc_request	*queue;		/* lock: in order, active ones included */
	struct thc_memory	*memories;	/* lock */
	bool			stop;		/* lock */
	bool			broken;		/* lock: rejoin needed */
	struct thc_client_stats	shown;		/* lock: stats, for who asks */
	size_t			memory_shown;	/* lock: memory_peak, likewise */
	char			sentence[THC_SENTENCE_MAX];	/* lock: why broken */

	struct thc_client_options options;
	char			aggregator[NI_MAXHOST];
	pthread_t		thread;
	bool			running;
	int			wake;		/* eventfd */

	const struct thc_transport *transport;
	struct thc_link		link;
	int			socket;		/* of AF_THC, -1 with UDP */
	uint8_t			*in;		/* room for one of its messages */
	size_t			in_room;
	bool			blocked;	/* it has no room for more messages */
	uint64_t		starved_at;	/* its host has had none since then, 0: it has */
	uint64_t		retry_at;	/* time of the next try while it has none */
	bool			readable;	/* there is something to receive */
	uint64_t		norms_at;	/* time the last norms were sent */
	uint64_t		norms_ns[2];	/* what agreements, norms took the last time */
	uint64_t		looked_at;	/* time of the last look for them */
	uint64_t		look_ns;	/* until the next one */
	unsigned int		messages;	/* in flight */
	unsigned int		norm_messages;	/* of them */
	struct thc_params	params;
	uint32_t		window;		/* most data chunks in flight */
	const char		*window_limit;	/* what bounds it */
	struct thc_codec	codec;
	bool			codec_ready;
	float			*scratch;	/* one block, for what is being computed */
	struct thc_sender	sender;
	struct thc_flight	*flights;	/* of both its streams */
	uint64_t		nonce;
	uint64_t		round;		/* rounds begun this epoch */
	int			unreachable;	/* the network's last complaint */

	struct thc_spare	spare[THC_SPARES];
	uint64_t		takes;		/* buffers asked for */
	size_t			counted;	/* buckets in progress, see thc_budget_begin() */
	size_t			counted_most;	/* at a time, so far */
	size_t			memory_now;
	size_t			memory_peak;
	struct thc_client_stats	stats;
};

uint64_t thc_now(void);
/* Accounts @bytes (negative: given back) held beside buffers and errors. */
void thc_account(struct thc_client *c, ssize_t bytes);
/* Bytes of client.scratch. */
static inline size_t thc_scratch_bytes(const struct thc_client *c)
{
	return sizeof(float) << c->codec.block_log2;
}

/* Bytes of client.flights. */
static inline size_t thc_flights_bytes(const struct thc_client *c)
{
	return (c->sender.data.slots + c->sender.norms.slots) * sizeof(*c->flights);
}

/* Called with the lock held, or while there is no thread. */
void thc_client_show(struct thc_client *c);
int thc_udp_join(struct thc_client *c);
void thc_udp_leave(struct thc_client *c);
void *thc_engine_run(void *client);
/* The first THC_ACTIVE_MAX requests of the queue are active: how many. */
unsigned int thc_engine_active(struct thc_client *c, struct thc_request **out);
/* Everything in the queue fails; only a rejoin helps. */
void thc_engine_break(struct thc_client *c, int status, const char *sentence);
/* A round that failed for this rank alone. */
void thc_engine_adrift(struct thc_client *c, const struct thc_request *r);

/* --- job.c ---------------------------------------------------------------- */

/* -EPROTO: constants that this library cannot serve. */
int thc_params_take(struct thc_params *p, const struct thc_welcome *w, uint32_t epoch,
		    unsigned int rank);
/* client.window and why it is no larger; the sockets have room for so many @answers. */
void thc_window_choose(struct thc_client *c, uint32_t answers);
/* Codec and memory for client.params. */
int thc_client_set_up(struct thc_client *c);

/* --- failure.c ------------------------------------------------------------ */

/* These break the client. */
void thc_fail_epoch(struct thc_client *c, unsigned int rank, uint32_t epoch);
void thc_fail_behind(struct thc_client *c);
void thc_fail_left(struct thc_client *c, uint64_t missing);
void thc_fail_missing(struct thc_client *c, uint64_t missing);
void thc_fail_differs(struct thc_client *c, uint64_t differing);
void thc_fail_unreachable(struct thc_client *c, int error);
/* These end a join; they return the error. */
int thc_fail_refused(const struct thc_client *c, unsigned int refusal);
int thc_fail_unknown(const struct thc_client *c);
int thc_fail_not_joined(const struct thc_client *c, uint64_t missing, unsigned int ranks);
int thc_fail_no_answer(const struct thc_client *c, int error);
/* Room for the names of THC_RANKS_MAX ranks. */
#define THC_RANKS_TEXT		288
/* "rank 2" or "ranks 2, 5 and 7" for the bits set in @ranks. */
const char *thc_name_ranks(uint64_t ranks, char *text, size_t room);

#endif /* LIBTHC_CLIENT_H */
