/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Fuzzing in a test machine: inputs are bytes that a test turns into calls. They come from
 * the corpus, from random numbers, and from changes to inputs that brought something about
 * which no other did before: the test says what its calls came to (seeded_saw()).
 *
 *	THC_FUZZ_INPUTS=20000	how many; THC_FUZZ_SECONDS instead: for how long
 *	THC_FUZZ_SEED=1
 *	THC_FUZZ_FILE=PATH	this one only
 *	THC_FUZZ_KEEP=DIRECTORY	where inputs are kept that are of use, and one that fails
 *	THC_FUZZ_TELL=1		tell how far it is
 */
#ifndef THC_SELFTESTS_SEEDED_H
#define THC_SELFTESTS_SEEDED_H

#include <dirent.h>

#include "afthc.h"
#include "rng.h"

/* What is left of an input; behind its end there are zeros. */
struct bytes {
	const uint8_t	*at;
	size_t		left;
};

uint8_t take(struct bytes *b);

uint64_t take_bytes(struct bytes *b, unsigned int n);

/* A call of @kind came to @result: its errno, or how much. After the one before that may
 * be something new.
 */
void seeded_saw(unsigned int kind, int result);

/* What has to hold; the input under way is told and kept. */
void seeded_require(bool holds, const char *what, int line);

#define require(what) seeded_require(what, #what, __LINE__)

/* --- a run ------------------------------------------------------------------------ */

/* Runs @one for each input; the exit status. @inputs: how many, unless the environment
 * says so. @corpus: a folder below tests/fuzz/corpus.
 */
int seeded_run(const char *corpus, uint64_t inputs, void (*one)(struct bytes *b));

/* Prints the plan; exits if there is nothing to fuzz here. */
void seeded_begin(void);

#endif /* THC_SELFTESTS_SEEDED_H */
