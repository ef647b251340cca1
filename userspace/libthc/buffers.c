// SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0)
/*
 * Large buffers that are recycled from one all-reduce to the next. This file counts the bytes that
 * a client holds beside the caller's buffers and the error memories, and keeps their bound
 * (thc_client_info.memory_peak): spare buffers are freed for it.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "client.h"

#define HUGE_PAGE	(2UL << 20)

void thc_account(struct thc_client *c, ssize_t bytes)
{
	c->memory_now += (size_t)bytes;
	if (c->memory_now > c->memory_peak)
		c->memory_peak = c->memory_now;
}

/* --- the budget ----------------------------------------------------------- */

/* The bytes that a bucket counts as: a small one counts as the least size. */
static size_t count_bucket(const struct thc_client *c, size_t bytes)
{
	return bytes > c->counted_least ? bytes : c->counted_least;
}

size_t thc_budget_begin(struct thc_client *c, size_t bytes)
{
	size_t counted = count_bucket(c, bytes);

	c->counted += counted;
	if (c->counted > c->counted_most)
		c->counted_most = c->counted;
	return counted;
}

void thc_budget_end(struct thc_client *c, size_t counted)
{
	c->counted -= counted;
}

/* --- pages ---------------------------------------------------------------- */

void *thc_pages_get(size_t bytes)
{
	void *pages = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (pages == MAP_FAILED)
		return NULL;
	if (bytes >= HUGE_PAGE)
		madvise(pages, bytes, MADV_HUGEPAGE);
	return pages;
}

void thc_pages_free(void *pages, size_t bytes)
{
	if (pages)
		munmap(pages, bytes);
}

/* --- recycled buffers ----------------------------------------------------- */

static void free_spare(struct thc_client *c, struct thc_spare *s)
{
	if (!s->buffer)
		return;
	thc_pages_free(s->buffer, s->bytes);
	thc_account(c, -(ssize_t)s->bytes);
	s->buffer = NULL;
}

/* Frees old spares. A training step reduces the same few sizes again and again, so a size that was
 * not used in THC_SPARE_AGE all-reduces is not coming back.
 */
static void free_old(struct thc_client *c)
{
	int i;

	c->takes++;
	for (i = 0; i < THC_SPARES; i++)
		if (c->takes - c->spare[i].taken > THC_SPARE_AGE)
			free_spare(c, &c->spare[i]);
}

/* The oldest spare; NULL: there is none. */
static struct thc_spare *oldest_spare(struct thc_client *c)
{
	struct thc_spare *old = NULL;
	int i;

	for (i = 0; i < THC_SPARES; i++)
		if (c->spare[i].buffer && (!old || c->spare[i].taken < old->taken))
			old = &c->spare[i];
	return old;
}

static size_t spare_bytes(const struct thc_client *c)
{
	size_t bytes = 0;
	int i;

	for (i = 0; i < THC_SPARES; i++)
		bytes += c->spare[i].buffer ? c->spare[i].bytes : 0;
	return bytes;
}

size_t thc_budget_left(const struct thc_client *c)
{
	size_t limit = 2 * c->counted_most, held = c->memory_now - spare_bytes(c);

	return held < limit ? limit - held : 0;
}

/* Frees spares, as far as @bytes need their room in the budget. */
static void drop_spares(struct thc_client *c, size_t bytes)
{
	struct thc_spare *s;

	while (c->memory_now + bytes > 2 * c->counted_most && (s = oldest_spare(c)))
		free_spare(c, s);
}

/* A spare for @bytes that leaves room for @others; a much larger one stays for
 * its own size.
 */
static struct thc_spare *fitting_spare(struct thc_client *c, size_t bytes, size_t others)
{
	size_t left = thc_budget_left(c);
	int i;

	for (i = 0; i < THC_SPARES; i++) {
		struct thc_spare *s = &c->spare[i];

		if (s->buffer && s->bytes >= bytes && s->bytes <= bytes + bytes / 4 &&
		    s->bytes + others <= left)
			return s;
	}
	return NULL;
}

void *thc_buffer_get(struct thc_client *c, size_t bytes, size_t others, size_t *size)
{
	struct thc_spare *s;
	void *fresh;

	free_old(c);
	s = fitting_spare(c, bytes, others);
	if (s) {
		void *buffer = s->buffer;

		*size = s->bytes;
		s->buffer = NULL;
		drop_spares(c, others);
		return buffer;
	}
	drop_spares(c, bytes + others);
	fresh = thc_pages_get(bytes);
	if (!fresh)
		return NULL;
	*size = bytes;
	thc_account(c, (ssize_t)bytes);
	return fresh;
}

void thc_buffer_put(struct thc_client *c, void *buffer, size_t size)
{
	struct thc_spare back = { .buffer = buffer, .bytes = size, .taken = c->takes };
	int i;

	for (i = 0; buffer && i < THC_SPARES; i++) {
		if (!c->spare[i].buffer) {
			c->spare[i] = back;
			return;
		}
	}
	free_spare(c, &back);
}

void thc_buffer_free(struct thc_client *c)
{
	int i;

	for (i = 0; i < THC_SPARES; i++)
		free_spare(c, &c->spare[i]);
}

int thc_buffers_take(struct thc_client *c, struct thc_taken *t, size_t buffer, size_t arrays,
		     size_t growth)
{
	if (buffer)
		t->buffer = thc_buffer_get(c, buffer, growth + arrays, &t->size);
	else
		drop_spares(c, growth + arrays);
	t->arrays = calloc(1, arrays);
	t->bytes = arrays;
	thc_account(c, (ssize_t)arrays);
	return (t->buffer || !buffer) && t->arrays ? 0 : -ENOMEM;
}

void thc_buffers_give(struct thc_client *c, struct thc_taken *t)
{
	thc_buffer_put(c, t->buffer, t->size);
	free(t->arrays);
	thc_account(c, -(ssize_t)t->bytes);
	*t = (struct thc_taken){ 0 };
}

/* --- buffers that grow ----------------------------------------------------- */

int thc_buffer_grow(struct thc_client *c, struct thc_buffer *b, size_t bytes)
{
	uint8_t *at;

	if (bytes <= b->bytes)
		return 0;
	at = realloc(b->at, bytes);
	if (!at)
		return -ENOMEM;
	thc_account(c, (ssize_t)(bytes - b->bytes));
	*b = (struct thc_buffer){ at, bytes };
	return 0;
}

void thc_buffer_drop(struct thc_client *c, struct thc_buffer *b)
{
	free(b->at);
	thc_account(c, -(ssize_t)b->bytes);
	*b = (struct thc_buffer){ 0 };
}
