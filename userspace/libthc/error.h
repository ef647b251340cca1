/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0) */
/*
 * Errors with a sentence: a negative errno to return and a line, kept per
 * thread, that says what happened and what to do about it.
 */
#ifndef LIBTHC_ERROR_H
#define LIBTHC_ERROR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define THC_SENTENCE_MAX	512

struct thc_client;
struct thc_failure;
struct thc_spec;

/* Keeps the sentence for thc_last_error() and returns @error (negative). */
int thc_fail(int error, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* clang's analyser sees one file at a time, and would think that it may return 0. */
#ifdef __clang_analyzer__
#define thc_fail(error, ...) (thc_fail(error, __VA_ARGS__), (error) < 0 ? (error) : -1)
#endif

/* Breaks the client with a sentence for @f; false: @f has no reason. */
bool thc_failed(struct thc_client *c, const struct thc_failure *f);
/* Calls thc_fail() for a failed join; 0: @f has no reason. @s: the job, all zero: not known. */
int thc_failed_to_join(const struct thc_client *c, const struct thc_failure *f,
		       const struct thc_spec *s);
/* Room for the names of THC_RANKS_MAX ranks. */
#define THC_RANKS_TEXT		288
/* "rank 2" or "ranks 2, 5 and 7" for the bits set in @ranks. */
const char *thc_name_ranks(uint64_t ranks, char *text, size_t size);

#endif /* LIBTHC_ERROR_H */
