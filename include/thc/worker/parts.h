/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Assembly of a WELCOME from its parts. The aggregator sends the parts in order, and all of them
 * again for the next JOIN. A worker that misses a part keeps the earlier ones and waits for it.
 */
#ifndef THC_PARTS_H
#define THC_PARTS_H

#include <thc/wire/nonce.h>
#include <thc/wire/welcome.h>

/**
 * struct thc_parts - the parts of a WELCOME that have come
 * @info: fixed part and epoch; `bytes`: of @record
 * @next: number of the missing part; equal to the number of parts: none is missing
 * @record: records of the parts that have come
 */
struct thc_parts {
	struct thc_job_info	info;
	u32			next;
	u8			record[THC_RECORDS_MAX] __attribute__((aligned(8)));
};

_Static_assert(THC_WELCOME_PARTS *THC_RECORDS_PER_PART == THC_RECORDS_MAX, "room for records");

/* Have all parts of the WELCOME come? */
THC_INLINE int thc_parts_whole(const struct thc_parts *p)
{
	return p->next && p->next == p->info.welcome.parts;
}

/* Forgets all parts; the records need not be cleared. */
THC_INLINE void thc_parts_begin(struct thc_parts *p)
{
	p->info = (struct thc_job_info){ .epoch = 0 };
	p->next = 0;
}

/* Has a WELCOME with @bytes of payload the form of one part? */
THC_INLINE enum thc_drop_reason thc_parts_form(const struct thc_welcome *w, u32 bytes)
{
	if (bytes < sizeof(*w) || bytes > THC_WELCOME_BYTES || bytes % 8)
		return THC_DROP_LENGTH;
	if (w->reserved || !w->parts || w->parts > THC_WELCOME_PARTS || w->part >= w->parts)
		return THC_DROP_RESERVED;
	return THC_DROP_NONE;
}

/* Are @a and @b the fixed parts of one WELCOME? */
THC_INLINE int thc_parts_together(const struct thc_welcome *a, const struct thc_welcome *b)
{
	const u8 *x = (const u8 *)a, *y = (const u8 *)b;
	u32 i;

	for (i = 0; i < sizeof(*a); i++)
		if (x[i] != y[i] && i != offsetof(struct thc_welcome, part))
			return 0;
	return 1;
}

/* Is this part the first one of the WELCOME that is already complete? */
THC_INLINE int thc_parts_again(const struct thc_parts *p, u32 epoch, const struct thc_welcome *w,
			       u32 bytes)
{
	const u8 *from = (const u8 *)(w + 1);
	u32 i;

	if (w->part || !thc_parts_whole(p) || p->info.epoch != epoch ||
	    !thc_parts_together(&p->info.welcome, w))
		return 0;
	for (i = 0; i < bytes - sizeof(*w); i++)
		if (p->record[i] != from[i])
			return 0;
	return 1;
}

/**
 * thc_parts_add() - adds a part that was admitted and has good form
 * @bytes: of payload
 *
 * Returns whether the WELCOME is complete now. A part out of order is not added. A complete WELCOME
 * stays complete if the aggregator sends it again.
 */
static inline int thc_parts_add(struct thc_parts *p, u32 epoch, const struct thc_welcome *w,
				u32 bytes)
{
	const u8 *from = (const u8 *)(w + 1);
	u32 i;

	if (thc_parts_again(p, epoch, w, bytes))
		return 1;
	if (!w->part) {
		thc_parts_begin(p);
		p->info.epoch = epoch;
		p->info.welcome = *w;
	} else if (w->part != p->next || p->info.epoch != epoch ||
		   !thc_parts_together(&p->info.welcome, w)) {
		return 0;
	}
	for (i = 0; i < bytes - sizeof(*w); i++)
		p->record[p->info.bytes + i] = from[i];
	p->info.bytes += bytes - (u32)sizeof(*w);
	p->next++;
	return thc_parts_whole(p);
}

/* The salt in a WELCOME to the group, whose only record is SEAL; NULL: it is no such WELCOME. */
THC_INLINE const u8 *thc_parts_salt(const struct thc_welcome *w, u32 bytes)
{
	const struct thc_record_seal *r = (const void *)(w + 1);

	if (bytes != sizeof(*w) + sizeof(*r) || r->head.type != THC_RECORD_SEAL ||
	    w->flags & thc_be16(THC_WELCOME_F_REFUSED))
		return NULL;
	return r->salt;
}

#endif /* THC_PARTS_H */
