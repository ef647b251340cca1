/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0) */
/* Buffers that are used again, and the budget of bytes. */
#ifndef LIBTHC_BUFFERS_H
#define LIBTHC_BUFFERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct thc_client;

/* What is promised about memory depends on the bytes of the buckets. A smaller bucket counts as
 * this many, or as what a scheme sets client.counted_least to; and a value as client.counted_value
 * bytes at least.
 */
#define THC_COUNTED_BYTES	(512U << 10)

/* Buffers kept for reuse, and for how many all-reduces an unused one is. */
#define THC_SPARES	4
#define THC_SPARE_AGE	64

struct thc_spare {
	void		*buffer;
	size_t		bytes;
	uint64_t	taken;		/* all-reduces begun when it came back */
};

/**
 * struct thc_taken - what a request has taken
 * @buffer: recycled, @size bytes
 * @arrays: zeros at first, @bytes
 */
struct thc_taken {
	void		*buffer;
	size_t		size;
	uint8_t		*arrays;
	size_t		bytes;
};

/* One that grows, kept from bucket to bucket. */
struct thc_buffer {
	uint8_t		*at;
	size_t		bytes;
};

/* Accounts @bytes (negative: given back) held beside buffers and errors. */
void thc_account(struct thc_client *c, ssize_t bytes);

/* Pages of zeros for at least a byte, huge ones if they are worth it: small ones cost a bucket of
 * 25 MiB a third more time. NULL: there is no memory.
 */
void *thc_pages_get(size_t bytes);
void thc_pages_free(void *pages, size_t bytes);

/* A bucket of @bytes is in progress: returns what it counts as, to be given to
 * thc_budget_end(). A client holds no more than twice the most that has been
 * counted at a time.
 */
size_t thc_budget_begin(struct thc_client *c, size_t bytes);
void thc_budget_end(struct thc_client *c, size_t counted);
/* Bytes that may still be held, if no buffer waits to be used again. */
size_t thc_budget_left(const struct thc_client *c);

/* A buffer of @bytes, recycled if one fits: fresh pages cost more than compressing them. @others:
 * bytes that the caller will allocate next. @size: out: bytes of the buffer.
 */
void *thc_buffer_get(struct thc_client *c, size_t bytes, size_t others, size_t *size);
void thc_buffer_put(struct thc_client *c, void *buffer, size_t size);
void thc_buffer_free(struct thc_client *c);

/* @t has a buffer of @buffer bytes, none if that is 0, and arrays of @arrays. @growth: bytes that
 * the caller will allocate next. -ENOMEM: it has what there was.
 */
int thc_buffers_take(struct thc_client *c, struct thc_taken *t, size_t buffer, size_t arrays,
		     size_t growth);
void thc_buffers_give(struct thc_client *c, struct thc_taken *t);

/* An allocation that has several parts: laid out once with @at NULL, to know its @bytes, and then
 * where it is.
 */
struct thc_layout {
	uint8_t	*at;
	size_t	bytes;
};

/* The next part, of @bytes, which begins with a cache line. */
static inline void *thc_lay(struct thc_layout *l, size_t bytes)
{
	uint8_t *at = l->at ? l->at + l->bytes : NULL;

	l->bytes = (l->bytes + bytes + 63) & ~(size_t)63;
	return at;
}

/* @b has at least @bytes then; -ENOMEM: it is as before. */
int thc_buffer_grow(struct thc_client *c, struct thc_buffer *b, size_t bytes);
/* @b is empty then. */
void thc_buffer_drop(struct thc_client *c, struct thc_buffer *b);

#endif /* LIBTHC_BUFFERS_H */
