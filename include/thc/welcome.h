/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A job's constants as WELCOME brings them: what a worker checks before it
 * believes them. libthc and thc.ko run the same code.
 */
#ifndef THC_WELCOME_H
#define THC_WELCOME_H

#include <thc/types.h>

#define THC_WELCOME_FLAGS                                                                          \
	(THC_WELCOME_F_READY | THC_WELCOME_F_REFUSED | THC_WELCOME_F_ONE_PORT |                    \
	 THC_WELCOME_F_NOSUM | THC_WELCOME_F_CORRELATED | THC_WELCOME_F_NOGSO)

/* Constants of @w, not REFUSED, that a worker of this version can serve as @rank. */
THC_INLINE int thc_welcome_is_sound(const struct thc_welcome *w, u32 rank)
{
	u32 ranks = thc_be16(w->ranks), slots = thc_be16(w->data_slots) + thc_be16(w->norm_slots);
	u32 i;

	if (w->flags & ~THC_WELCOME_FLAGS || w->reserved)
		return 0;
	for (i = 0; i < sizeof(w->reserved2); i++)
		if (w->reserved2[i])
			return 0;
	return ranks > rank && ranks <= THC_RANKS_MAX && w->data_slots && w->norm_slots &&
	       slots <= THC_SLOTS_MAX && (w->sum_width == 8 || w->sum_width == 16) &&
	       thc_be16(w->chunk) == (w->sum_width == 8 ? THC_CHUNK_8 : THC_CHUNK_16);
}

#endif /* THC_WELCOME_H */
