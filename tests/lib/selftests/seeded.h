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

/* The rest of an input; behind its end all bytes are zero. */
struct bytes {
	const uint8_t	*at;
	size_t		left;
};

uint8_t take(struct bytes *b);

uint64_t take_bytes(struct bytes *b, unsigned int n);

/* Notes that a call of @kind returned @result, an errno or a number. This pair is new, or new
 * after the pair before.
 */
void seeded_saw(unsigned int kind, int result);

/* Requires that @holds; otherwise prints and keeps the current input. */
void seeded_require(bool holds, const char *what, int line);

#define require(what) seeded_require(what, #what, __LINE__)

/* --- a run ------------------------------------------------------------------------ */

/* Runs @one for each input and returns the exit status. @inputs: how many, unless the environment
 * says. @corpus: a folder below tests/fuzz/corpus.
 */
int seeded_run(const char *corpus, uint64_t inputs, void (*one)(struct bytes *b));

/* Prints the plan; exits if there is nothing to fuzz here. */
void seeded_begin(void);

#endif /* THC_SELFTESTS_SEEDED_H */
