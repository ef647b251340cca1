// SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0)
/*
 * Error memories by key: the losses of compression, which are added to the key's next gradient.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client.h"

/* The link of the list that points to the memory of @key; it is NULL if there is none. */
static struct thc_residual **find(struct thc_client *c, uint64_t key)
{
	struct thc_residual **p = &c->residuals;

	while (*p && (*p)->key != key)
		p = &(*p)->after;
	return p;
}

static void drop(struct thc_residual **p)
{
	struct thc_residual *m = *p;

	*p = m->after;
	thc_pages_free(m->now, m->count * sizeof(float));
	thc_pages_free(m->next, m->count * sizeof(float));
	free(m);
}

static float *zeros(size_t count)
{
	return count <= SIZE_MAX / sizeof(float) ? thc_pages_get(count * sizeof(float)) : NULL;
}

/* Creates an error memory; NULL: out of memory, with the sentence set. */
static struct thc_residual *create(struct thc_client *c, uint64_t key, size_t count)
{
	struct thc_residual *m = calloc(1, sizeof(*m));

	if (m) {
		m->after = c->residuals;
		c->residuals = m;
		m->key = key;
		m->count = count;
		m->now = zeros(count);
		m->next = zeros(count);
		if (m->now && m->next)
			return m;
		drop(&c->residuals);
	}
	thc_fail(-ENOMEM, "out of memory for %zu values of error memory", count);
	return NULL;
}

void thc_residual_asked(struct thc_client *c, uint64_t key)
{
	struct thc_residual *m = *find(c, key);

	if (m && !m->busy)
		m->undoable = false;
}

int thc_residual_get(struct thc_client *c, uint64_t key, size_t count, struct thc_residual **out)
{
	struct thc_residual *m = *find(c, key);

	if (m && m->busy)
		return thc_fail(
			-EBUSY,
			"key %#llx is in use by an all-reduce that has not ended: give every bucket its own key",
			(unsigned long long)key);
	if (m && m->count != count)
		return thc_fail(
			-EINVAL,
			"key %#llx was used for %zu values, not %zu: drop its error memory first (thc_error_import() with count 0)",
			(unsigned long long)key, m->count, count);
	if (!m) {
		m = create(c, key, count);
		if (!m)
			return -ENOMEM;
		m->fresh = true;
	}
	m->busy = true;
	m->next_turn = m->turn;
	*out = m;
	return 0;
}

void thc_residual_put(struct thc_client *c, struct thc_residual *m, bool failed)
{
	m->busy = false;
	if (!failed)
		m->fresh = false;
	else if (m->fresh)
		drop(find(c, m->key));
}

void thc_residual_swap(struct thc_residual *m, bool undoable)
{
	uint8_t turn = m->turn;
	float *now = m->now;

	m->now = m->next;
	m->next = now;
	m->turn = m->next_turn;
	m->next_turn = turn;
	m->undoable = undoable;
}

void thc_residual_free(struct thc_client *c)
{
	while (c->residuals)
		drop(&c->residuals);
}

size_t thc_error_export(struct thc_client *c, uint64_t key, float *error, size_t count)
{
	struct thc_residual *m;
	size_t have = 0;

	pthread_mutex_lock(&c->lock);
	m = *find(c, key);
	if (m) {
		have = m->count;
		if (error)
			memcpy(error, m->now, (count < have ? count : have) * sizeof(float));
	}
	pthread_mutex_unlock(&c->lock);
	return have;
}

/* Does find(); returns -EBUSY if an all-reduce uses the memory. */
static int find_unused(struct thc_client *c, uint64_t key, struct thc_residual ***out)
{
	struct thc_residual **p = *out = find(c, key);

	if (!*p || !(*p)->busy)
		return 0;
	return thc_fail(-EBUSY, "key %#llx is in use by an all-reduce that has not ended",
			(unsigned long long)key);
}

/* A new memory in the place of the old one, which stays if there is no room for both. */
static int replace(struct thc_client *c, uint64_t key, size_t count, struct thc_residual **m)
{
	struct thc_residual **old;

	*m = create(c, key, count);
	if (!*m)
		return -ENOMEM;
	for (old = &(*m)->after; *old && (*old)->key != key; old = &(*old)->after)
		;
	if (*old)
		drop(old);
	return 0;
}

int thc_error_import(struct thc_client *c, uint64_t key, const float *error, size_t count)
{
	struct thc_residual **old, *m = NULL;
	int result;

	if (count && !error)
		return thc_fail(-EINVAL, "there is no error memory to import: NULL with %zu values",
				count);
	pthread_mutex_lock(&c->lock);
	result = find_unused(c, key, &old);
	if (!result && *old && (*old)->count == count)
		m = *old;
	else if (!result && count)
		result = replace(c, key, count, &m);
	else if (!result && *old)
		drop(old);
	if (m) {
		m->undoable = false;
		m->fresh = false;
		memcpy(m->now, error, count * sizeof(float));
	}
	pthread_mutex_unlock(&c->lock);
	return result;
}

int thc_error_undo(struct thc_client *c, uint64_t key)
{
	struct thc_residual **m;
	int result;

	pthread_mutex_lock(&c->lock);
	result = find_unused(c, key, &m);
	if (!result && *m && (*m)->undoable)
		thc_residual_swap(*m, false);
	pthread_mutex_unlock(&c->lock);
	return result;
}
