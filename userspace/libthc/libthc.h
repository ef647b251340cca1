/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0) */
/*
 * libthc: all-reduce of compressed gradients through a THC aggregator. This
 * is the whole public interface, except rows of tensors (libthc_rows.h);
 * everything else in the library is private.
 *
 *	struct thc_client_options opt = THC_CLIENT_OPTIONS_INIT;
 *	uint8_t key[THC_KEY_BYTES];
 *	struct thc_client *c;
 *
 *	if (thc_key_read("/etc/thc/job1.key", key))
 *		die(thc_last_error());
 *	opt.aggregator = "10.0.0.100";
 *	opt.job = 1; opt.key = key; opt.rank = 2;
 *	if (thc_client_open(&opt, &c))
 *		die(thc_last_error());
 *	explicit_bzero(key, sizeof(key));	// the client has a copy
 *	if (thc_allreduce(c, gradient, count, THC_FP32, 0))
 *		die(thc_last_error());	// gradient is unchanged
 *	thc_client_close(c);		// gradient held the mean
 *
 * Errors are negative errno values; thc_last_error() is a sentence about this
 * thread's last error that says what to do. One thread at a time may use a
 * client, but any thread may call thc_allreduce_wait(), thc_allreduce_rows_wait() and
 * thc_rows_free() at any time.
 *
 * Structs that begin with @size grow at their end from version to version. Set
 * @size to sizeof(): a program may run with an older or a newer library than
 * the header it was built with. thc_client_open() and thc_client_info() say what
 * the library does with the difference.
 */
#ifndef LIBTHC_H
#define LIBTHC_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define THC_API __attribute__((visibility("default")))

/* Element type of a caller's buffer. An estimate that is beyond 65504, the largest fp16 number, is
 * given as that. Integers are for the scheme none.
 */
enum thc_dtype {
	THC_FP32 = 0,
	THC_FP16 = 1,
	THC_BF16 = 2,
	THC_INT8 = 3,
	THC_INT16 = 4,
	THC_INT32 = 5,
};

/* Which implementation of the codec's kernels runs; all of them give the same bits. */
enum thc_simd { THC_SIMD_AUTO, THC_SIMD_SCALAR, THC_SIMD_AVX2, THC_SIMD_AVX512 };

/* "major.minor.patch" of the library. */
THC_API const char *thc_version(void);

/* A sentence about the last error of the calling thread; never NULL. */
THC_API const char *thc_last_error(void);

/* A job's secret key. */
#define THC_KEY_BYTES		32

/**
 * thc_key_read() - reads a job's secret key from a file of `thcctl genkey`
 * @key: out: the key; the caller wipes it and all its copies
 *
 * -EINVAL no regular file, or no key in it; or why the file cannot be read.
 */
THC_API int thc_key_read(const char *path, uint8_t key[THC_KEY_BYTES]);

struct thc_client;
struct thc_request;

enum thc_transport_choice {
	THC_TRANSPORT_AUTO,
	THC_TRANSPORT_UDP,
	THC_TRANSPORT_AF_THC,
};

/* thc_client_options.flags */
#define THC_CLIENT_ERROR_FEEDBACK	0x1u	/* keep what compression lost, per key */
#define THC_CLIENT_NONFINITE		0x2u	/* NaN or Inf is a result, not an error */

/* What an all-reduce returns in place of 0 if some rank's gradient held NaN or
 * Inf, or values whose squares overflow fp32, and the client was opened with
 * THC_CLIENT_NONFINITE.
 */
#define THC_NONFINITE			1

/**
 * struct thc_client_options - how to join a job
 * @size: sizeof(struct thc_client_options), set by the initialiser; the first
 *	version ended with @transport and padding
 * @flags: THC_CLIENT_*
 * @aggregator: address of the aggregator, IPv4 or IPv6, or its host name, text. A link-local
 *	address names its interface, as fe80::1%eth0, if neither @bind nor @interface does. Of
 *	several addresses of a name the client takes the first one, in the order of getaddrinfo(),
 *	that has the family of @bind. Only thc_client_open() looks the name up
 * @port: the aggregator's base UDP port, 0: 18500
 * @bind: local address to use, or a host name, or NULL; local ranks on one host differ by port
 * @interface: interface that receives answers to the group, or NULL: the one of the route to the
 *	aggregator
 * @job: job number
 * @rank: this worker's, 0 .. n-1
 * @key: the job's secret key, THC_KEY_BYTES bytes: see thc_key_read(); NULL: the job has none.
 *	thc_client_open() copies the key, and the caller may wipe its own afterwards. The client's
 *	copy is wiped when the client is closed
 * @timeout_ms: an all-reduce without progress for this long fails with -ETIMEDOUT and a sentence
 *	that names the missing ranks; 0: 60,000
 * @join_timeout_ms: longest wait for all ranks to join; 0: 60,000
 * @window: most chunks in flight at each of the job's aggregators, 0: the job's slots
 * @simd: forces a code path, for tests; -EOPNOTSUPP if this CPU lacks it
 * @transport: how packets travel. AUTO: as the environment variable THC_TRANSPORT says (auto, udp,
 *	af_thc), else AF_THC sockets where the kernel has them (thc.ko), else UDP sockets. The
 *	results are the same.
 * @rate, @error: defaults for calls, as in struct thc_call; 0: the job's
 */
struct thc_client_options {
	size_t		size;
	uint32_t	flags;
	const char	*aggregator;
	uint16_t	port;
	const char	*bind;
	const char	*interface;
	uint16_t	job;
	uint16_t	rank;
	const uint8_t	*key;
	uint32_t	timeout_ms;
	uint32_t	join_timeout_ms;
	uint32_t	window;
	enum thc_simd	simd;
	enum thc_transport_choice transport;
	double		rate;
	double		error;
};

/* clang-format off */
#define THC_CLIENT_OPTIONS_INIT { .size = sizeof(struct thc_client_options) }
/* clang-format on */

/**
 * thc_client_open() - join a job; returns when all its ranks have joined
 * @out: the client, to be closed by thc_client_close()
 *
 * Options that an older program does not have are zero. A newer program's
 * options that this library does not have must be zero, or else -E2BIG.
 *
 * -EINVAL bad options (a link-local address without its interface is one), or a
 * size below that of the first version, -E2BIG options of a newer version are
 * set, or a size above 4096, -ECONNREFUSED / -ENETUNREACH / -EHOSTUNREACH no
 * aggregator there or no way to it, -EHOSTUNREACH also a name without an
 * address, -ENOENT no job with this number and key, -EACCES address outside
 * the job's prefix, -ERANGE rank is not below n, -EADDRINUSE the rank is taken,
 * -EHOSTDOWN the aggregator's XDP program was taken away,
 * -ETIMEDOUT not all ranks joined (thc_last_error() names those missing),
 * -EPROTO the aggregator's job needs another version of the library, -EOPNOTSUPP
 * it has no tables for the rate or error of the options, or one by which error memories
 * (THC_CLIENT_ERROR_FEEDBACK) would grow without end, or this CPU lacks the code path that @simd
 * forces, -EAFNOSUPPORT this kernel lacks the sockets that @transport insists on, or
 * @aggregator is of the other IP version than the job's other aggregators, -ENOBUFS the AF_THC
 * sockets of this host or user held as much as they may until @join_timeout_ms were over, or leave
 * no room for all of the job's aggregators, -ENOMEM, or what the system says of a socket or a
 * thread.
 */
THC_API int thc_client_open(const struct thc_client_options *options, struct thc_client **out);

/* Leaves the job and frees the client; requests not waited for fail with -ECANCELED. NULL is
 * ignored. A forked process has no thread for the client and does not hold the rank: there this is
 * the only allowed call, and it frees the client without leaving the job; thc_client_rejoin() and
 * calls that start an all-reduce fail with -EINVAL there.
 */
THC_API void thc_client_close(struct thc_client *c);

/**
 * thc_client_rejoin() - join again after an error
 *
 * After an all-reduce has failed with -ETIMEDOUT, -ESTALE, -EPIPE, -EPROTO, -ENOMEM, -ENOBUFS or an
 * error of the network, ranks may be in different rounds: every further call fails with -ESTALE
 * until all ranks have called this function. After -EDOM and -EBADMSG, which all ranks see alike,
 * the next call may follow at once, except on a rank that a deadline has left out: the sentence
 * there says that it has to rejoin. Begins a new session; error memories are kept. Same errors as
 * thc_client_open(); after one the client can be rejoined again, or closed.
 */
THC_API int thc_client_rejoin(struct thc_client *c);

/**
 * thc_allreduce() - mean over all ranks, in place
 * @buf: @count values of @dtype; replaced by the mean over the contributors of each chunk;
 *	unchanged on error. In a job with a deadline a chunk whose sum was gone when this rank asked
 *	for it is zero on this rank alone, and the rank's whole contribution stays in its error
 *	memory
 * @key: names the error memory of this buffer, when the client was opened with
 *	THC_CLIENT_ERROR_FEEDBACK: the same key for the same parameters. thc_error_* manage the
 *	memory. Scheme lhc chooses an index by the last contents of the key's buffer: use as many
 *	keys as buffers. Ignored otherwise.
 *
 * Returns 0, or THC_NONFINITE to a client with THC_CLIENT_NONFINITE: @buf then
 * holds NaN in every value, on all ranks that took part, as a plain sum would
 * spread NaN; no error memory has changed, and the next call may follow at once.
 *
 * All ranks must call with the same count, dtype and key, in the same order.
 * -EINVAL zero count or NULL, or another count than the error memory of @key has, -EDOM NaN or
 * Inf in some rank's gradient, without THC_CLIENT_NONFINITE (the sentence names the rank; nothing
 * was sent), -EBADMSG ranks disagree (the sentence names who brought what), or hold different
 * results of the all-reduce before the last one (it names the ranks and the round), -ETIMEDOUT no
 * progress (names who is missing, or sent something else), -ESTALE a rank or the aggregator
 * restarted (named; see thc_client_rejoin()), -EPIPE a rank left, -EPROTO answers contradict each
 * other or the scheme (the sentence says what came), -EBUSY the key is in use,
 * -ENOMEM, -ENOBUFS the AF_THC sockets of this host or user held as much as they may for the whole
 * timeout, -ECONNREFUSED / -ENETUNREACH / -EHOSTUNREACH the aggregator or the network is gone.
 */
THC_API int thc_allreduce(struct thc_client *c, void *buf, size_t count, enum thc_dtype dtype,
			  uint64_t key);

/**
 * thc_allreduce_start() - begin an all-reduce, thc_allreduce_wait() ends it
 * @out: to be given to thc_allreduce_wait(), exactly once
 *
 * @buf belongs to the library until then. Requests of one client are served
 * in the order they were started, overlapped.
 */
THC_API int thc_allreduce_start(struct thc_client *c, void *buf, size_t count, enum thc_dtype dtype,
				uint64_t key, struct thc_request **out);

/*
 * How the schemes none and lhc send floats. EXACT: the result is the mean, rounded once, to nearest
 * or even. It sends 4 bytes per value and digit: a block of 4096 values has one digit if the set
 * bits of its values are close together, two as a rule, 12 at most, none if all values are zero.
 * FIXED_n: n bits per value, with an error of at most 2^-k times the power of two above the block's
 * largest value, where k is n less 1 less log2(ranks), rounded up; k must be 4 or more.
 */
enum thc_precision {
	THC_EXACT = 0,
	THC_FIXED_8 = 8,
	THC_FIXED_16 = 16,
	THC_FIXED_32 = 32,
};

/**
 * struct thc_call - how one all-reduce is done
 * @size: sizeof(struct thc_call)
 * @scheme: one of thc_schemes(), NULL: the job's, as thc_allreduce() does.
 *	"thc": the mean of floats, compressed by the job's table (THC, NSDI'24, algorithm 3): its
 *	levels follow from the norm of a block, what is beyond them is clamped.
 *	"uthc": the same with levels that span a block's values (uniform THC, algorithm 1); in jobs
 *	whose table is uniform.
 *	"lhc": as "none", for floats of which few are not zero (LHC, arXiv 2402.07529): what is zero
 *	on all ranks is not sent. How places are told follows from the last buckets of the same key;
 *	with hardly any zeros for a while it is as "none"
 *	"none": the sum of integers, modulo 2^8, 2^16 or 2^32 (two's complement), or the mean of
 *	floats, uncompressed, the same bits in every order of the ranks; in jobs without a deadline
 * @key: as in thc_allreduce(); only thc and uthc have an error memory, and lhc with @keep
 * @precision: of floats by "none" and "lhc"; else 0. 0 without a @scheme: the job's
 * @reserved: not looked at: padding in the first version
 * @grain: of "lhc": values in an item, a power of two up to 256: if any of them is not zero, all
 *	are sent. 0: 1, or the job's without a @scheme. Rows of an embedding are zero as a whole,
 *	and such an index is shorter. Of other schemes 0
 * @keep: of "lhc": 0: all values are sent; or a fraction below 1: about that part of this rank's
 *	values, those of the largest magnitude. Where any rank sends a value, all ranks do. The rest
 *	stays in the error memory of the key, and is added to the key's next gradient: the client
 *	needs THC_CLIENT_ERROR_FEEDBACK. The result is the mean of the values sent, and zeros. Ranks
 *	may differ in @keep; in jobs with a sketch it is 0 on all ranks or on none
 * @rate: of "thc", in jobs that have tables for it (thcd's rate= or error=): average bits per
 *	value, up and down together, THC_RATE_LEAST to THC_RATE_MOST. Each block of 1024 values gets
 *	bits according to its norm. With THC_CLIENT_ERROR_FEEDBACK a block of small norm may be left
 *	out for up to 7 rounds of its key; else no block is. 0: as @error says; THC_RATE_FIXED:
 *	every block has the bits of the job's table
 * @error: the call uses the fewest bits with which the mean has this expected squared error, in
 *	parts of the squared norm, if the ranks' gradients were equal, THC_ERROR_LEAST to
 *	THC_ERROR_MOST. 0, with a @rate of 0, too: the client's, and without one the job's
 * @group: buckets of one gradient, which a step reduces one after another, meet @rate or @error
 *	together if they have the same number here: bits then go where they count in the whole
 *	gradient, according to the norms of the buckets' last all-reduces; the very last one does
 *	not count, since it may be in progress. All ranks must give the same number. 0: each bucket
 *	meets the goal by itself. Without a rate or an error it means nothing
 */
struct thc_call {
	size_t			size;
	const char		*scheme;
	uint64_t		key;
	enum thc_precision	precision;
	uint32_t		reserved;
	size_t			grain;
	double			keep;
	double			rate;
	double			error;
	uint64_t		group;
};

#define THC_RATE_FIXED	(-1.0)
#define THC_RATE_LEAST	0.25
#define THC_RATE_MOST	24.0
#define THC_ERROR_LEAST	1e-6
#define THC_ERROR_MOST	0.5

/* clang-format off */
#define THC_CALL_INIT { .size = sizeof(struct thc_call) }
/* clang-format on */

/**
 * thc_allreduce_call_start() - thc_allreduce_start() with the options of @call
 *
 * All ranks must choose alike, or thc_allreduce_wait() returns -EBADMSG on each, with a sentence
 * that names each choice. -EINVAL: the scheme or precision does not exist, or takes no values of
 * @dtype; -EOPNOTSUPP: not in this job.
 */
THC_API int thc_allreduce_call_start(struct thc_client *c, void *buf, size_t count,
				     enum thc_dtype dtype, const struct thc_call *call,
				     struct thc_request **out);

/* Waits for @r, frees it and returns what thc_allreduce() would have; also
 * after the client was closed: -ECANCELED. -EINVAL: a request of rows, which stays as it is.
 */
THC_API int thc_allreduce_wait(struct thc_request *r);

/* 1 when thc_allreduce_wait() would not block. */
THC_API int thc_allreduce_test(struct thc_request *r);

/**
 * thc_error_export() - copy the error memory of @key, for checkpoints
 * @error: room for @count floats
 *
 * Returns the number of floats the memory has (0: none under this key), and
 * copies at most @count of them.
 */
THC_API size_t thc_error_export(struct thc_client *c, uint64_t key, float *error, size_t count);

/* Replaces the error memory of @key by @count floats; 0 drops it. -EBUSY an
 * all-reduce uses it, -EINVAL NULL with a count, -ENOMEM.
 */
THC_API int thc_error_import(struct thc_client *c, uint64_t key, const float *error, size_t count);

/**
 * thc_error_undo() - undoes the last all-reduce of @key in its error memory
 *
 * The error memory of @key becomes what it was before that all-reduce, bit for bit. Call this for
 * all keys of a training step that is skipped: otherwise the step's gradients, however large, would
 * come out of the memories in the next step. Nothing changes if @key has no memory, if its last
 * all-reduce failed or returned THC_NONFINITE, if the memory was imported since, or at a second
 * call. 0, -EBUSY an all-reduce uses the key.
 */
THC_API int thc_error_undo(struct thc_client *c, uint64_t key);

/* --- tables --------------------------------------------------------------- */

#define THC_TABLE_BITS_MAX		8
#define THC_TABLE_LEVELS_MAX		256
#define THC_TABLE_GRANULARITY_MAX	4095

/**
 * struct thc_table - non-uniform levels (THC, NSDI'24, section 5.3)
 * @bits: bits of a level index, 1..8
 * @granularity: g, the number of steps of the fine grid
 * @levels: 1 << @bits
 * @p: expected fraction of coordinates that are clamped
 * @t: clamp threshold in standard deviations, the normal quantile at 1 - p/2,
 *	rounded to a multiple of 2^-30 so that it does not depend on the math library
 * @cost: expected squared rounding error of one coordinate of unit variance
 * @value: grid position of each level; 0 first, @granularity last, strictly increasing
 */
struct thc_table {
	uint32_t	bits;
	uint32_t	granularity;
	uint32_t	levels;
	double		p;
	double		t;
	double		cost;
	uint16_t	value[THC_TABLE_LEVELS_MAX];
};

/*
 * These need no client and no aggregator; their errors have no sentence.
 */

/**
 * thc_table_solve() - computes the optimal table, exactly
 *
 * A shortest path over (levels used, grid position), O(2^bits g^2). If two mirrored tables have
 * equal cost, the one that begins with the smaller values is the result. 0, -EINVAL for arguments
 * out of range, -ERANGE for a @p whose threshold t is no number above 0 and below 16, -ENOMEM.
 */
THC_API int thc_table_solve(unsigned int bits, unsigned int granularity, double p,
			    struct thc_table *out);

/* A table with given values (1 << bits of them). 0, -EINVAL for values that
 * are none of a table or arguments out of range, -ERANGE as above, -ENOMEM.
 */
THC_API int thc_table_from_values(unsigned int bits, unsigned int granularity, double p,
				  const uint16_t *values, struct thc_table *out);

/* 0 if sums of @n contributors fit lanes of @width bits, -ERANGE if not,
 * -EINVAL for no table, one that no client can use, or no width.
 */
THC_API int thc_table_check(const struct thc_table *t, unsigned int n, unsigned int width);

/* Expected ||x - xhat||^2 / ||x||^2 of the mean over @n ranks that hold the
 * same gradient, rounded independently, without error feedback.
 */
THC_API double thc_table_nmse(const struct thc_table *t, unsigned int n);

/* The job uses error feedback: thc_table_wish.flags. */
#define THC_TABLE_FEEDBACK	1

/**
 * struct thc_table_wish - requirements for a table
 * @size: sizeof(struct thc_table_wish)
 * @bits: bits of an index, 1..8
 * @ranks: number of ranks whose sums have to fit
 * @width: bits of a sum: 4, 8, 16 or 32
 * @granularity: g, 0: the best one, up to 127, or 255 if @bits is above 4
 * @p: clamp fraction, 0: the best one
 * @flags: THC_TABLE_FEEDBACK: a rank's own loss, thc_table_nmse() for one rank, is at most 1/2, so
 *	that its error memory stays shorter than its gradient, or as small as the given @p and
 *	@granularity allow. If granularity is 0, it changes only tables of one bit, for three ranks
 *	or more
 */
struct thc_table_wish {
	size_t		size;
	uint32_t	bits;
	uint32_t	ranks;
	uint32_t	width;
	uint32_t	granularity;
	double		p;
	uint64_t	flags;
};

/* clang-format off */
#define THC_TABLE_WISH_INIT { .size = sizeof(struct thc_table_wish) }
/* clang-format on */

/* Chooses the table of least thc_table_nmse() that meets @wish, over granularity and clamp fraction
 * together, except those that @wish gives. Takes up to 50 ms, and more for a granularity above 255.
 * 0, -EINVAL an argument out of range, -E2BIG a member that this library does not know, -ENOMEM,
 * -ERANGE: sums of no such table fit, or @wish->p has no threshold below 16.
 */
THC_API int thc_table_choose(const struct thc_table_wish *wish, struct thc_table *out);

/* A hash by which ranks compare tables: equal for equal bits, granularity, values and threshold. */
THC_API uint32_t thc_table_hash(const struct thc_table *t);

/* --- what a client knows and has done ------------------------------------- */

/**
 * struct thc_client_info - the job a client joined
 * @size: sizeof(struct thc_client_info), set by the caller; the first version
 *	ended with @transport
 * @memory_peak: most bytes held beside the caller's buffers and error memory: at most 2 x the
 *	largest sum of bytes of buckets in progress so far. At most two are in progress, and their
 *	memory is kept for the next ones. A bucket counts as at least 512 KiB and three blocks of
 *	floats, so the bound is never below 1 MiB or six blocks; where sums have 32 bits it counts
 *	as at least 4 bytes a value, and in jobs with sketches as at least 12. Slots of the job
 *	beyond 2048 add 88 bytes each. A job with a rate adds 100 KiB, and 4 bytes for each 1024
 *	values of buckets that meet a goal together (struct thc_call), also while they are not in
 *	progress
 * @simd: "none" after a failed thc_client_rejoin()
 * @window: most data chunks in flight at each of the job's aggregators. The congestion windows,
 *	whose sum thc_client_stats() shows, move below it
 * @window_limit: the bound of @window, in plain words: "the job's slots", "the receive buffer
 *	(net.core.rmem_max)", or "the option window". A receive buffer bounds it over UDP alone, and
 *	only for a user without CAP_NET_ADMIN
 * @chunk, @block: coordinates of a chunk and of a block of floats, by the job's scheme
 * @sum_width, @table: of thc and uthc: bits of a sum, and the job's table
 * @scheme: of the job: "thc", "uthc", "none" or "lhc"
 * @shards: aggregators that share the job's chunks
 * @precision: enum thc_precision of floats, if the job's scheme is none or lhc; of others 0
 * @seal: the seal of the job's packets, "nh", "sum" or "none", as in thcd(8)
 * @rate_goal, @error_goal: goal of calls by thc that give none, as @rate and @error of struct
 *	thc_call; both 0: the bits of the job's table
 * @table_error: expected error of a mean with the bits of the job's table, as @error of struct
 *	thc_call, if the ranks' gradients were equal; 0: the job's scheme is not thc, or it does not
 *	rotate
 * @rate_tried: 1: such calls use the goal or the table's bits, whichever takes less time: see
 *	thc_client_stats.trial
 */
struct thc_client_info {
	size_t		size;
	uint32_t	ranks;
	uint32_t	epoch;
	uint32_t	data_slots;
	uint32_t	chunk;
	uint32_t	block;
	uint32_t	sum_width;
	uint32_t	multicast;	/* 1: answers come by multicast, 0: fanout */
	struct thc_table table;
	size_t		memory_peak;
	const char	*simd;		/* "scalar", "avx2", "avx512" */
	const char	*transport;	/* "UDP", "AF_THC" */
	uint32_t	window;
	const char	*window_limit;
	const char	*scheme;
	uint32_t	shards;
	uint32_t	precision;
	const char	*seal;
	double		rate_goal;
	double		error_goal;
	double		table_error;
	uint32_t	rate_tried;
};

/* Names of this library's schemes, as in struct thc_client_info.scheme; NULL ends the list. */
THC_API const char *const *thc_schemes(void);

/* Fills in @info->size bytes: an older program gets the members it knows, and a newer program gets
 * zero in members that this library does not know. @info->size remains. -EINVAL: it is below that
 * of the first version, -E2BIG: it is above 4096.
 */
THC_API int thc_client_info(const struct thc_client *c, struct thc_client_info *info);

/* In a job with rate=auto the ranks measure, in turns, whether bits by norms or the table's bits
 * take less time: thc_client_stats.trial
 */
enum thc_trial_state {
	THC_TRIAL_NOT,		/* there is no trial: the job, the client or its calls decide */
	THC_TRIAL_RUNS,
	THC_TRIAL_FOR_FIXED,	/* the table's bits are used for a while */
	THC_TRIAL_FOR_RATE,	/* bits follow norms */
};

/**
 * struct thc_client_stats - counters of a client since it was opened
 * @size: sizeof(struct thc_client_stats), set by the caller; the first version
 *	ended with @reserved
 *
 * Bytes are UDP payloads with their 48-byte headers plus 42 (IPv4) or 62
 * (IPv6) bytes of Ethernet, IP and UDP headers each: bytes on the wire.
 */
struct thc_client_stats {
	size_t		size;
	uint64_t	requests;	/* all-reduces finished, nonfinite included */
	uint64_t	failures;	/* all-reduces failed */
	uint64_t	packets_up;	/* requests sent, retransmits included */
	uint64_t	bytes_up;
	uint64_t	packets_down;	/* answers received */
	uint64_t	bytes_down;
	uint64_t	chunks;		/* chunks completed */
	uint64_t	retransmits;
	uint64_t	repeats;	/* answers that came again, by unicast */
	uint64_t	waits;		/* WAIT received */
	uint64_t	excluded;	/* chunks of data whose sum lacks this rank */
	uint64_t	partial;	/* chunks of data whose sum lacks some rank */
	uint64_t	bad_tag;	/* packets whose tag was wrong: forged, or corrupted */
	uint64_t	unexpected;	/* answers without a request: duplicates, old ones */
	uint64_t	foreign;	/* packets from elsewhere, of another key, or of no use */
	uint64_t	window_cuts;	/* multiplicative decreases */
	uint64_t	send_calls;	/* system calls made to send */
	uint64_t	receive_calls;	/* system calls made to receive */
	uint64_t	rtt_us;		/* smoothed round trip now */
	uint64_t	window;		/* congestion windows now, of all aggregators, chunks */
	uint64_t	reserved;	/* 0 */
	uint64_t	nonfinite;	/* all-reduces that returned THC_NONFINITE */
	uint64_t	rate_requests;	/* all-reduces with a rate whose bits were chosen */
	uint64_t	rate_blocks;	/* blocks of rate_requests */
	uint64_t	rate_skipped;	/* rate_blocks that were left out */
	uint64_t	rate_bits_up;	/* bits of rate_blocks up: indices alone */
	uint64_t	rate_bits_down;	/* bits of rate_blocks down: sums alone */
	double		rate_square;	/* sum of squares of agreed norms of rate_blocks */
	double		rate_lost;	/* expected loss of rate_square, if gradients were equal */
	uint64_t	trial;		/* enum thc_trial_state */
	uint64_t	trial_fixed_ns;	/* time of 1024 values in the trial, table's bits */
	uint64_t	trial_rate_ns;	/* time of 1024 values in the trial, rate */
};

/* Fills in @stats->size bytes, as thc_client_info() does; same errors. */
THC_API int thc_client_stats(const struct thc_client *c, struct thc_client_stats *stats);

#ifdef __cplusplus
}
#endif

#endif /* LIBTHC_H */
