/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0) */
/*
 * Errors with a sentence: a negative errno to return and a line, kept per
 * thread, that says what happened and what to do about it.
 */
#ifndef LIBTHC_ERROR_H
#define LIBTHC_ERROR_H

#define THC_SENTENCE_MAX	512

/* Keeps the sentence for thc_last_error() and returns @error (negative). */
int thc_fail(int error, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* clang's analyser sees one file at a time, and would think that it may return 0. */
#ifdef __clang_analyzer__
#define thc_fail(error, ...) (thc_fail(error, __VA_ARGS__), (error) < 0 ? (error) : -1)
#endif

#endif /* LIBTHC_ERROR_H */
