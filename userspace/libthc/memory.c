// SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0)
/*
 * What a client holds: error memories by key, and large buffers that are
 * recycled from one all-reduce to the next. Counts the bytes held beside the
 * caller's buffers and the error memories.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "client.h"

#define HUGE_PAGE	(2UL << 20)

void thc_account(struct thc_client *c, ssize_t bytes)
{
	c->memory_now += (size_t)bytes;
	if (c->memory_now > c->memory_peak)
		c->memory_peak = c->memory_now;
}

/* --- recycled buffers ----------------------------------------------------- */

void *thc_buffer_get(struct thc_client *c, size_t bytes, size_t *room)
{
	void *fresh;
	int i;

	for (i = 0; i < THC_SPARE_BUFFERS; i++) {
		void *buffer = c->spare[i].buffer;

		/* a much larger one would break the promise of 2 x the bucket */
		if (buffer && c->spare[i].room >= bytes && c->spare[i].room <= bytes + bytes / 4) {
			*room = c->spare[i].room;
			c->spare[i].buffer = NULL;
			return buffer;
		}
	}
	for (i = 0; i < THC_SPARE_BUFFERS; i++) {
		if (!c->spare[i].buffer)
			continue;
		munmap(c->spare[i].buffer, c->spare[i].room);
		thc_account(c, -(ssize_t)c->spare[i].room);
		c->spare[i].buffer = NULL;
	}
	fresh = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (fresh == MAP_FAILED)
		return NULL;
	if (bytes >= HUGE_PAGE)
		madvise(fresh, bytes, MADV_HUGEPAGE);
	*room = bytes;
	thc_account(c, (ssize_t)bytes);
	return fresh;
}

void thc_buffer_put(struct thc_client *c, void *buffer, size_t room)
{
	int i;

	for (i = 0; buffer && i < THC_SPARE_BUFFERS; i++) {
		if (!c->spare[i].buffer) {
			c->spare[i].buffer = buffer;
			c->spare[i].room = room;
			return;
		}
	}
	if (buffer) {
		munmap(buffer, room);
		thc_account(c, -(ssize_t)room);
	}
}

void thc_buffer_free(struct thc_client *c)
{
	int i;

	for (i = 0; i < THC_SPARE_BUFFERS; i++) {
		if (c->spare[i].buffer)
			munmap(c->spare[i].buffer, c->spare[i].room);
		c->spare[i].buffer = NULL;
	}
}

/* --- error memory --------------------------------------------------------- */

static struct thc_memory *find(struct thc_client *c, uint64_t key)
{
	struct thc_memory *m;

	for (m = c->memories; m; m = m->link)
		if (m->key == key)
			return m;
	return NULL;
}

static void drop(struct thc_client *c, uint64_t key)
{
	struct thc_memory **p, *m;

	for (p = &c->memories; (m = *p); p = &m->link) {
		if (m->key != key)
			continue;
		*p = m->link;
		free(m->now);
		free(m->next);
		free(m);
		return;
	}
}

static struct thc_memory *create(struct thc_client *c, uint64_t key, size_t count)
{
	struct thc_memory *m = calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	m->key = key;
	m->count = count;
	m->now = calloc(count, sizeof(float));
	m->next = calloc(count, sizeof(float));
	if (!m->now || !m->next) {
		free(m->now);
		free(m->next);
		free(m);
		return NULL;
	}
	m->link = c->memories;
	c->memories = m;
	return m;
}

/* Called with client.lock held; NULL with the sentence set on error. */
struct thc_memory *thc_memory_get(struct thc_client *c, uint64_t key, size_t count)
{
	struct thc_memory *m = find(c, key);

	if (m && m->busy) {
		thc_fail(-EBUSY, "key %#llx is in use by an all-reduce that has not ended: give every bucket its own key",
			 (unsigned long long)key);
		return NULL;
	}
	if (m && m->count != count) {
		thc_fail(-EINVAL, "key %#llx was used for %zu values, not %zu: drop its error memory first (thc_error_import() with count 0)",
			 (unsigned long long)key, m->count, count);
		return NULL;
	}
	if (!m)
		m = create(c, key, count);
	if (!m) {
		thc_fail(-ENOMEM, "out of memory for %zu values of error memory", count);
		return NULL;
	}
	m->busy = true;
	return m;
}

void thc_memory_free(struct thc_client *c)
{
	while (c->memories)
		drop(c, c->memories->key);
}

size_t thc_error_export(struct thc_client *c, uint64_t key, float *error, size_t count)
{
	struct thc_memory *m;
	size_t have = 0;

	pthread_mutex_lock(&c->lock);
	m = find(c, key);
	if (m) {
		have = m->count;
		if (error)
			memcpy(error, m->now, (count < have ? count : have) * sizeof(float));
	}
	pthread_mutex_unlock(&c->lock);
	return have;
}

int thc_error_import(struct thc_client *c, uint64_t key, const float *error, size_t count)
{
	struct thc_memory *m;
	int result = 0;

	pthread_mutex_lock(&c->lock);
	m = find(c, key);
	if (m && m->busy) {
		result = thc_fail(-EBUSY, "key %#llx is in use by an all-reduce that has not ended",
				  (unsigned long long)key);
		goto out;
	}
	drop(c, key);
	if (!count)
		goto out;
	m = create(c, key, count);
	if (m)
		memcpy(m->now, error, count * sizeof(float));
	else
		result = thc_fail(-ENOMEM, "out of memory for %zu values of error memory", count);
out:
	pthread_mutex_unlock(&c->lock);
	return result;
}
