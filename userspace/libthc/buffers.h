/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0) */
/* Buffers that are used again, and the budget of bytes. */
#ifndef LIBTHC_BUFFERS_H
#define LIBTHC_BUFFERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct thc_client;

/* Least bytes that a bucket counts as in the bound of memory; a scheme may raise
 * client.counted_least. A value counts as client.counted_value bytes at least.
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
 * struct thc_taken - memory of a request
 * @buffer: recycled, @size bytes
 * @arrays: zeros at first, @bytes
 */
struct thc_taken {
	void		*buffer;
	size_t		size;
	uint8_t		*arrays;
	size_t		bytes;
};

/* A buffer that grows, and is kept from bucket to bucket. */
struct thc_buffer {
	uint8_t		*at;
	size_t		bytes;
};

/* Accounts @bytes (negative: given back) held beside buffers and errors. */
void thc_account(struct thc_client *c, ssize_t bytes);

/* Gets pages of zeros, @bytes of at least one. Large ones are huge pages: with small pages a bucket
 * of 25 MiB takes a third more time. NULL: out of memory.
 */
void *thc_pages_get(size_t bytes);
void thc_pages_free(void *pages, size_t bytes);

/* Counts a bucket of @bytes as in progress; returns the bytes it counts as, for thc_budget_end(). A
 * client holds at most twice the largest sum of such bytes so far.
 */
size_t thc_budget_begin(struct thc_client *c, size_t bytes);
void thc_budget_end(struct thc_client *c, size_t counted);
/* Bytes that the client may still take, if all spares are freed. */
size_t thc_budget_left(const struct thc_client *c);

/* A buffer of @bytes, recycled if one fits: fresh pages cost more than compressing them. @others:
 * bytes that the caller will allocate next. @size: out: bytes of the buffer.
 */
void *thc_buffer_get(struct thc_client *c, size_t bytes, size_t others, size_t *size);
void thc_buffer_put(struct thc_client *c, void *buffer, size_t size);
void thc_buffer_free(struct thc_client *c);

/* Takes a buffer of @buffer bytes (0: none) and arrays of @arrays bytes to @t. @growth: bytes that
 * the caller will allocate next. -ENOMEM: @t has what could be taken.
 */
int thc_buffers_take(struct thc_client *c, struct thc_taken *t, size_t buffer, size_t arrays,
		     size_t growth);
void thc_buffers_give(struct thc_client *c, struct thc_taken *t);

/* An allocation of several parts. It is laid out twice: with @at NULL, to find its @bytes, and then
 * at its address.
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

/* Grows @b to at least @bytes; -ENOMEM: @b is unchanged. */
int thc_buffer_grow(struct thc_client *c, struct thc_buffer *b, size_t bytes);
/* Frees @b, which is empty then. */
void thc_buffer_drop(struct thc_client *c, struct thc_buffer *b);

#endif /* LIBTHC_BUFFERS_H */
