// SPDX-License-Identifier: GPL-2.0
#include "afthc.h"
#include "seeded.h"

#include <kselftest.h>

#define SEEDED_BYTES	256	/* of an input, at most */
#define SEEDED_INPUTS	4096	/* remembered, at most */
#define SEEDED_SEEN	65536
#define SEEDED_TELL	1000	/* inputs between two lines */

struct seeded_input {
	uint16_t	size;
	uint8_t		at[SEEDED_BYTES];
};

/**
 * struct seeded - a run
 * @kept: inputs with a new result
 * @seen: a bit per result of calls, see seeded_saw()
 * @last: the last call's result
 * @calls: made so far
 * @fresh: the current input has had a new result
 */
struct seeded {
	const char		*name;
	struct rng		rng;
	struct seeded_input	kept[SEEDED_INPUTS];
	unsigned int		count;
	unsigned int		files;
	uint8_t			seen[SEEDED_SEEN / 8];
	uint32_t		last;
	uint64_t		inputs;
	uint64_t		calls;
	bool			fresh;
	struct seeded_input	now;
};

static struct seeded seeded;

uint8_t take(struct bytes *b)
{
	if (!b->left)
		return 0;
	b->left--;
	return *b->at++;
}

uint64_t take_bytes(struct bytes *b, unsigned int n)
{
	uint64_t value = 0;

	while (n--)
		value = value << 8 | take(b);
	return value;
}

void seeded_saw(unsigned int kind, int result)
{
	uint32_t what = kind * 131 + (uint32_t)(result + 200), both[2], i;

	both[0] = what * 2654435761U;
	both[1] = (what ^ seeded.last * 31) * 2246822519U;
	for (i = 0; i < 2; i++) {
		uint32_t bit = both[i] >> 16;

		seeded.fresh |= !(seeded.seen[bit / 8] & 1U << bit % 8);
		seeded.seen[bit / 8] |= (uint8_t)(1U << bit % 8);
	}
	seeded.last = what;
	seeded.calls++;
}

static void seeded_write(const char *name)
{
	const char *directory = getenv("THC_FUZZ_KEEP");
	char path[512];
	int fd;

	if (!directory)
		return;
	snprintf(path, sizeof(path), "%s/%s", directory, name);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	if (fd < 0 || write(fd, seeded.now.at, seeded.now.size) != (ssize_t)seeded.now.size)
		fprintf(stderr, "# cannot write %s: %s\n", path, strerror(errno));
	if (fd >= 0)
		close(fd);
}

void seeded_require(bool holds, const char *what, int line)
{
	unsigned int i;

	if (holds)
		return;
	printf("# violated, line %d: %s (errno %d)\n# input %llu of seed:", line, what, errno,
	       (unsigned long long)seeded.inputs);
	for (i = 0; i < seeded.now.size; i++)
		printf("%s%02x", i % 32 ? "" : "\n#   ", seeded.now.at[i]);
	printf("\nnot ok 1 - %s\n", seeded.name);
	fflush(stdout);
	seeded_write("failed");
	_exit(1);
}

static bool seeded_load(const char *path)
{
	struct seeded_input *to = &seeded.kept[seeded.count];
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return false;
	n = read(fd, to->at, sizeof(to->at));
	close(fd);
	if (n <= 0)
		return false;
	to->size = (uint16_t)n;
	seeded.count++;
	return true;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static void seeded_load_all(const char *directory)
{
	struct dirent **entry;
	char path[512];
	int n = scandir(directory, &entry, NULL, by_name), i;

	for (i = 0; i < n; i++) {
		snprintf(path, sizeof(path), "%s/%s", directory, entry[i]->d_name);
		if (entry[i]->d_name[0] != '.' && seeded.count < SEEDED_INPUTS)
			seeded_load(path);
		free(entry[i]);
	}
	if (n >= 0)
		free(entry);
}

static void seeded_random(struct seeded_input *in)
{
	unsigned int i;

	in->size = (uint16_t)(1 + below(&seeded.rng, SEEDED_BYTES));
	for (i = 0; i < in->size; i++)
		in->at[i] = (uint8_t)draw(&seeded.rng);
}

/* Changes, removes or adds some bytes, or appends the rest of another input. */
static void seeded_change(struct seeded_input *in)
{
	const struct seeded_input *other = &seeded.kept[below(&seeded.rng, seeded.count)];
	unsigned int at = below(&seeded.rng, in->size), n = 1 + below(&seeded.rng, 4);

	switch (below(&seeded.rng, 6)) {
	case 0:
		in->at[at] ^= (uint8_t)(1U << below(&seeded.rng, 8));
		break;
	case 1:
	case 2:
		in->at[at] = (uint8_t)draw(&seeded.rng);
		break;
	case 3:
		if (in->size > n && at + n < in->size) {
			memmove(in->at + at, in->at + at + n, in->size - at - n);
			in->size -= (uint16_t)n;
		}
		break;
	case 4:
		if (in->size + n <= SEEDED_BYTES) {
			memmove(in->at + at + n, in->at + at, in->size - at);
			in->size += (uint16_t)n;
			while (n--)
				in->at[at + n] = (uint8_t)draw(&seeded.rng);
		}
		break;
	case 5:
		if (other->size > at) {
			memcpy(in->at + at, other->at + at, other->size - at);
			in->size = other->size;
		}
		break;
	}
}

static void seeded_next(void)
{
	unsigned int changes;

	if (seeded.inputs < seeded.files) {
		seeded.now = seeded.kept[seeded.inputs];
		return;
	}
	if (!seeded.count || one_in(&seeded.rng, 8)) {
		seeded_random(&seeded.now);
		return;
	}
	seeded.now = seeded.kept[below(&seeded.rng, seeded.count)];
	for (changes = 1 + below(&seeded.rng, 5); changes; changes--)
		seeded_change(&seeded.now);
}

static void seeded_keep(void)
{
	char name[32];

	if (seeded.inputs < seeded.files || seeded.count == SEEDED_INPUTS)
		return;
	seeded.kept[seeded.count++] = seeded.now;
	snprintf(name, sizeof(name), "%llu", (unsigned long long)seeded.inputs);
	seeded_write(name);
}

static uint64_t seeded_setting(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);

	return text ? strtoull(text, NULL, 0) : otherwise;
}

static void seeded_tell(const char *directory)
{
	printf("# %llu inputs, %llu calls, %u kept (%u in %s)\n", (unsigned long long)seeded.inputs,
	       (unsigned long long)seeded.calls, seeded.count - seeded.files, seeded.files,
	       directory);
	fflush(stdout);
}

static bool seeded_goes_on(uint64_t wanted, uint64_t seconds, uint64_t start)
{
	return seconds ? now_ms() - start < seconds * 1000 : seeded.inputs < wanted;
}

/* The debug kernel takes several times as long for each. */
static uint64_t seeded_fewer(uint64_t inputs)
{
	return on_debug_kernel() ? inputs / 5 : inputs;
}

int seeded_run(const char *corpus, uint64_t inputs, void (*one)(struct bytes *b))
{
	uint64_t wanted = seeded_setting("THC_FUZZ_INPUTS", seeded_fewer(inputs)), start = now_ms();
	uint64_t seconds = seeded_setting("THC_FUZZ_SECONDS", 0);
	const char *file = getenv("THC_FUZZ_FILE"), *keep = getenv("THC_FUZZ_KEEP");
	bool tell = getenv("THC_FUZZ_TELL");
	char directory[128];

	seeded.name = corpus;
	seeded.rng = rng_of(seeded_setting("THC_FUZZ_SEED", 1), 0);
	snprintf(directory, sizeof(directory), "tests/fuzz/corpus/%s", corpus);
	if (file) {
		wanted = 1;
		seconds = 0;
		if (!seeded_load(file))
			printf("# cannot read %s\n", file);
	} else {
		seeded_load_all(directory);
		if (keep)
			seeded_load_all(keep);
	}
	seeded.files = seeded.count;
	require(seeded.files);
	while (seeded_goes_on(wanted, seconds, start)) {
		struct bytes b;

		seeded_next();
		seeded.fresh = false;
		seeded.last = 0;
		b = (struct bytes){ seeded.now.at, seeded.now.size };
		one(&b);
		if (seeded.fresh)
			seeded_keep();
		if (!(++seeded.inputs % SEEDED_TELL) && tell)
			seeded_tell(directory);
	}
	seeded_tell(directory);
	printf("ok 1 - %s\n", corpus);
	return 0;
}

void seeded_begin(void)
{
	const char *reason = why_not();

	printf("TAP version 13\n1..1%s%s\n", reason ? " # SKIP " : "", reason ? reason : "");
	if (reason)
		exit(KSFT_SKIP);
	if (enter_netns()) {
		printf("not ok 1 - a network namespace: %s\n", strerror(errno));
		exit(1);
	}
}
