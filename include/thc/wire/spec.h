/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What a job may be: WELCOME brings its constants, which thcd does not announce and a worker
 * does not believe unless they pass here.
 */
#ifndef THC_SPEC_H
#define THC_SPEC_H

#include <thc/wire/address.h>

/* Schemes: id, and its name everywhere. */
#define THC_SCHEMES(X) X(THC, thc)

enum thc_scheme_id {
#define THC_SCHEME_ID(id, name) THC_SCHEME_##id,
	THC_SCHEMES(THC_SCHEME_ID)
#undef THC_SCHEME_ID
		THC_SCHEMES_COUNT
};

#define THC_WELCOME_FLAGS                                                                          \
	(THC_WELCOME_F_READY | THC_WELCOME_F_REFUSED | THC_WELCOME_F_ONE_PORT |                    \
	 THC_WELCOME_F_CORRELATED | THC_WELCOME_F_NOGSO)

/* log2 of the coordinates of a block. */
#define THC_BLOCK_LOG2_MIN	10
#define THC_BLOCK_LOG2_MAX	20

/* UDP ports below this one are for privileged programs. */
#define THC_PORT_UNPRIVILEGED	1024

/* A worker binds a socket to the group that @w names, which came from the network:
 * it must be no address of this host, and no port that needs a privilege. A group
 * of another IP version than the worker's is sound, and not joined.
 */
THC_INLINE int thc_welcome_group_is_sound(const struct thc_welcome *w)
{
	if (w->reply != THC_REPLY_MULTICAST)
		return 1;
	if (thc_be16(w->group_port) < THC_PORT_UNPRIVILEGED)
		return 0;
	return w->family == 4 ? (w->group[0] & 0xf0) == 0xe0 :
				w->family == 6 && w->group[0] == 0xff;
}

/* The end that a WELCOME to the group of @w is sealed with. */
THC_INLINE struct thc_end thc_welcome_group(const struct thc_welcome *w)
{
	struct thc_end end = { .port = w->group_port };
	u8 *to = (u8 *)&end.addr;
	u32 i;

	if (w->family == 4)
		end.addr = thc_addr_v4(0);
	for (i = 0; i < (w->family == 4 ? 4 : sizeof(w->group)); i++)
		to[w->family == 4 ? 12 + i : i] = w->group[i];
	return end;
}

/**
 * thc_welcome_is_sound() - constants of @w, not REFUSED, that a worker of this version can serve
 * @rank: the worker's
 * @keyed: it has the job's secret key, and takes no seal without one
 */
THC_INLINE int thc_welcome_is_sound(const struct thc_welcome *w, u32 rank, int keyed)
{
	u32 ranks = thc_be16(w->ranks), slots = thc_be16(w->data_slots) + thc_be16(w->norm_slots);

	if (w->flags & ~THC_WELCOME_FLAGS || w->seal > THC_SEAL_NH ||
	    (w->seal == THC_SEAL_NH) != !!keyed)
		return 0;
	return ranks > rank && ranks <= THC_RANKS_MAX && w->data_slots && w->norm_slots &&
	       slots <= THC_SLOTS_MAX && (w->sum_width == 8 || w->sum_width == 16) &&
	       thc_be16(w->chunk) == (w->sum_width == 8 ? THC_CHUNK_8 : THC_CHUNK_16) &&
	       thc_welcome_group_is_sound(w);
}

#endif /* THC_SPEC_H */
