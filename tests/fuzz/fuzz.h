/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the fuzzers share: reading an input byte by byte, the oracle's word, and the
 * account of what was reached. Fuzzing that never gets past the first check proves
 * nothing, so a long enough run that misses an outcome fails.
 */
#ifndef THC_FUZZ_H
#define THC_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <thc/types.h>

#define require(what)							\
	do {								\
		if (!(what)) {						\
			fprintf(stderr, "violated: %s\n", #what);	\
			abort();					\
		}							\
	} while (0)

/* Inputs after which each outcome has to have been there. */
#define FUZZ_ENOUGH	10000

/* Inputs between two lines that say how many there were, if somebody reads them. */
#define FUZZ_TELL	8192

static uint64_t inputs;

/* Memory that was freed waits a little to be used again, so that use of it shows; 256 MiB,
 * as otherwise, would cost more time than all else.
 */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
	return "quarantine_size_mb=8";
}

/* One more begins. */
static inline void begin_input(void)
{
	if (++inputs % FUZZ_TELL || !getenv("THC_FUZZ_TELL"))
		return;
	printf("# %llu inputs\n", (unsigned long long)inputs);
	fflush(stdout);
}

/* What is left of an input; behind its end there are zeros. */
struct input {
	const uint8_t *at;
	size_t left;
};

static inline uint8_t next(struct input *in)
{
	if (!in->left)
		return 0;
	in->left--;
	return *in->at++;
}

static inline uint64_t next_bytes(struct input *in, unsigned int bytes)
{
	uint64_t value = 0;

	while (bytes--)
		value = value << 8 | next(in);
	return value;
}

/**
 * struct outcome - something that a fuzzer has to come across
 * @times: how often it did
 */
struct outcome {
	const char	*name;
	uint64_t	times;
};

/* Prints the account, with @units of @unit in it, and ends the process with an error if
 * too little was reached; for atexit().
 */
static inline void report_outcomes(const struct outcome *o, size_t count, const char *unit,
				   uint64_t units)
{
	unsigned int missing = 0;
	size_t i;

	printf("# reached:");
	for (i = 0; i < count; i++) {
		printf("%s %s %llu", i ? "," : "", o[i].name, (unsigned long long)o[i].times);
		missing += !o[i].times;
	}
	printf("\n# %llu inputs, %llu %s, %u outcomes never reached\n", (unsigned long long)inputs,
	       (unsigned long long)units, unit, missing);
	fflush(stdout);
	/* fewer inputs are a crash that is looked at */
	if (inputs >= FUZZ_ENOUGH && missing)
		_exit(1);
}

#endif /* THC_FUZZ_H */
