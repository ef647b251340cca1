/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0) */
/*
 * The structs of libthc.h that begin with their size, copied between a program
 * and this library. The program may have been built with an older or a newer
 * libthc.h: versions differ by members at the end alone, and a member that the
 * program or the library does not know is zero.
 *
 * A new member begins behind sizeof() of the version before, and there is no
 * padding behind the last one: padding has arbitrary bytes in it.
 */
#ifndef THC_STRUCTS_H
#define THC_STRUCTS_H

#include <stddef.h>

/* Largest valid size: a program with a larger one has not set it. */
#define THC_STRUCT_MOST		4096

/**
 * struct thc_struct_layout - a struct of libthc.h
 * @name: as the error sentences call it
 * @first: its size in the first version of libthc.h, the least that is taken
 * @now: its size in this version
 */
struct thc_struct_layout {
	const char	*name;
	size_t		first;
	size_t		now;
};

/* The size of @type in the version whose last member was @last. */
#define THC_STRUCT_SIZE(type, last)                                                                \
	((offsetof(type, last) + sizeof(((type *)0)->last) + _Alignof(type) - 1) /                 \
	 _Alignof(type) * _Alignof(type))

/* Fills in @ours, layout->now bytes, from the program's struct @theirs. -EINVAL:
 * @theirs is smaller than layout->first; -E2BIG: a byte from layout->now on is not
 * zero, or the size exceeds THC_STRUCT_MOST.
 */
int thc_struct_in(const struct thc_struct_layout *layout, void *ours, const void *theirs);

/* Fills in the program's struct @theirs from @ours; its size remains. -EINVAL:
 * @theirs is smaller than layout->first; -E2BIG: the size exceeds THC_STRUCT_MOST.
 */
int thc_struct_out(const struct thc_struct_layout *layout, void *theirs, const void *ours);

#endif /* THC_STRUCTS_H */
