// SPDX-License-Identifier: GPL-2.0
/*
 * The only rank of a job: joins, reduces two buckets with error feedback, leaves. For
 * test_failures.py, which lets one call fail: then the program does it all once more, and must
 * succeed.
 *
 *	one_rank ADDRESS PORT JOB KEY_FILE
 *
 * Exit status 0: success; 1: the first time failed, printed the sentence and left no trace; 2: a
 * fault, which is printed.
 */
#include <fcntl.h>

#include "ranks.h"

#define COUNT		5000
#define BUCKETS		2
#define PATIENCE_MS	5000
#define DESCRIPTORS	256

static float gradient[BUCKETS][COUNT], owed[BUCKETS][COUNT];

static int wrong(const char *what)
{
	printf("wrong: %s\n", what);
	exit(2);
}

static int open_descriptors(void)
{
	int fd, n = 0;

	for (fd = 0; fd < DESCRIPTORS; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static void expect_unchanged(const float *g)
{
	size_t i;

	for (i = 0; i < COUNT; i++)
		if (g[i] != gradient_at(0, i))
			wrong("a failed all-reduce changed the gradient");
}

/* The rank's mean plus its new error memory equals its gradient plus its old error memory. */
static void expect_accounted(struct thc_client *c, int k)
{
	static float kept[COUNT];
	size_t i;

	if (thc_error_export(c, (uint64_t)k + 1, kept, COUNT) != COUNT)
		wrong("there is no error memory");
	for (i = 0; i < COUNT; i++)
		if (fabs(gradient[k][i] + kept[i] - owed[k][i] - gradient_at(0, i)) > 1e-4)
			wrong("the mean and what is kept are not the gradient");
}

/* Prints an error's sentence; after an error the buffer must be unchanged. */
static int look_at(int error, const float *g)
{
	if (error && !*thc_last_error())
		wrong("an error without a sentence");
	if (error && g)
		expect_unchanged(g);
	if (error)
		printf("%d: %s\n", error, thc_last_error());
	return error;
}

static int reduce(struct thc_client *c)
{
	struct thc_request *request[BUCKETS] = { NULL };
	int error[BUCKETS], result = 0, k;
	size_t i;

	for (k = 0; k < BUCKETS; k++) {
		for (i = 0; i < COUNT; i++)
			gradient[k][i] = gradient_at(0, i);
		memset(owed[k], 0, sizeof(owed[k]));
		thc_error_export(c, (uint64_t)k + 1, owed[k], COUNT);
		error[k] = thc_allreduce_start(c, gradient[k], COUNT, THC_FP32, (uint64_t)k + 1,
					       &request[k]);
		if (look_at(error[k], error[k] ? gradient[k] : NULL))
			result = error[k];
	}
	for (k = 0; k < BUCKETS; k++) {
		if (error[k])
			continue;
		if (look_at(thc_allreduce_wait(request[k]), gradient[k]))
			result = -EIO;
		else
			expect_accounted(c, k);
	}
	return result;
}

static int join(const char *key_file, uint8_t *key, const struct thc_client_options *o,
		struct thc_client **c)
{
	int error = thc_key_read(key_file, key);

	return error ? error : thc_client_open(o, c);
}

int main(int argc, char **argv)
{
	struct thc_client_options o = THC_CLIENT_OPTIONS_INIT;
	uint8_t key[THC_KEY_BYTES];
	struct thc_client *c = NULL;
	int before, failed;

	if (argc != 5)
		wrong("usage: one_rank ADDRESS PORT JOB KEY_FILE");
	setvbuf(stdout, NULL, _IOLBF, 0);
	o.aggregator = argv[1];
	o.port = (uint16_t)atoi(argv[2]);
	o.job = (uint16_t)atoi(argv[3]);
	o.key = key;
	o.flags = THC_CLIENT_ERROR_FEEDBACK;
	o.timeout_ms = o.join_timeout_ms = PATIENCE_MS;
	before = open_descriptors();
	failed = look_at(join(argv[4], key, &o, &c), NULL);
	if (failed && c)
		wrong("a client in spite of an error");
	failed = failed || reduce(c);
	if (failed &&
	    (c ? look_at(thc_client_rejoin(c), NULL) : look_at(join(argv[4], key, &o, &c), NULL)))
		wrong("it does not join the second time");
	if (failed && reduce(c))
		wrong("it fails a second time");
	thc_client_close(c);
	if (open_descriptors() != before)
		wrong("it left descriptors open");
	return failed ? 1 : 0;
}
