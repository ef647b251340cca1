// SPDX-License-Identifier: GPL-2.0
/*
 * A table as the published prototype keeps it (github.com/SophiaLi06/BytePS_THC): levels in a
 * file whose name ends in _recv_table.txt, one a line, written as floats; the clamp in the file
 * beside it whose name ends in _data.txt instead, behind 'T'. The name says more, as
 * 1001_tablesize_30_maxval_16_qlevels_32_ofreq_recv_table.txt: granularity 30, 16 levels, p = 1/32.
 * A file that was cut off must not pass for another table.
 */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config.h"

#define LEVELS_END	"_recv_table.txt"
#define DATA_END	"_data.txt"

/* 256 levels of 25 characters are 6,400 bytes. */
#define FILE_BYTES	16384

/* Clamp fractions that differ by less than this share are equal. */
#define SAME_FRACTION	1e-6

static int read_open(int fd, const char *path, char text[FILE_BYTES + 1], struct thcd_error *e)
{
	struct stat st;
	ssize_t n;

	if (fstat(fd, &st) || !S_ISREG(st.st_mode))
		return thcd_fail(e, "table: %s is no regular file", path);
	n = read(fd, text, FILE_BYTES + 1);
	if (n < 0)
		return thcd_fail(e, "table: cannot read %s: %s", path, strerror(errno));
	if (n > FILE_BYTES)
		return thcd_fail(e, "table: %s has more than %d bytes: that is no table", path,
				 FILE_BYTES);
	text[n] = '\0';
	if (strlen(text) != (size_t)n)
		return thcd_fail(e, "table: %s has zero bytes in it: that is no table", path);
	return 0;
}

/* A file's text, with a zero behind it. */
static int read_text(const char *path, char text[FILE_BYTES + 1], struct thcd_error *e)
{
	/* neither a terminal nor a pipe is to stop us */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY), err;

	if (fd < 0)
		return thcd_fail(e, "table: cannot read %s: %s", path, strerror(errno));
	err = read_open(fd, path, text, e);
	close(fd);
	return err;
}

/* Least clamp, in standard deviations: smaller ones clamp everything. */
#define LEAST_CLAMP	1e-6

/* Parses a decimal number at @at; *end == @at: there is none. */
static double decimal(const char *at, const char **end)
{
	size_t length = strspn(at, "0123456789.eE+-");
	char *behind;
	double v;

	*end = at;
	if (*at < '0' || *at > '9')
		return 0;
	v = strtod(at, &behind);
	/* strtod() reads 0x10, too */
	if (behind == at + length)
		*end = behind;
	return v;
}

/* One line of levels; *at: out: the next one. */
static int add_level(struct thcd_job_wish *w, const char *path, const char **at,
		     struct thcd_error *e)
{
	int length = (int)strcspn(*at, "\n"), line = (int)w->values + 1;
	const char *end;
	double v = decimal(*at, &end);

	if (!(*at)[length])
		return thcd_fail(e, "table: %s:%d: the line has no end: the file was cut off", path,
				 line);
	if (length && (*at)[length - 1] == '\r')
		return thcd_fail(e,
				 "table: %s:%d: the line ends with a carriage return: give the "
				 "file as it was published",
				 path, line);
	if (end != *at + length || end == *at || v != floor(v) || v > THC_TABLE_GRANULARITY_MAX)
		return thcd_fail(e,
				 "table: %s:%d: \"%.*s\" is not a level, a whole number from 0 to "
				 "%d",
				 path, line, length < 40 ? length : 40, *at,
				 THC_TABLE_GRANULARITY_MAX);
	if (w->values == THC_TABLE_LEVELS_MAX)
		return thcd_fail(e, "table: %s:%d: more than %d levels", path, line,
				 THC_TABLE_LEVELS_MAX);
	if (!w->values && v > 0)
		return thcd_fail(e, "table: %s:%d: the first level is %g, and has to be 0", path,
				 line, v);
	if (w->values && v == w->value[w->values - 1])
		return thcd_fail(e,
				 "table: %s:%d: level %g is there twice: two indices would mean "
				 "the same, and 2^bits levels have to differ",
				 path, line, v);
	if (w->values && v < w->value[w->values - 1])
		return thcd_fail(e, "table: %s:%d: level %g follows %d: levels have to rise", path,
				 line, v, w->value[w->values - 1]);
	w->value[w->values++] = (u16)v;
	*at = end + 1;
	return 0;
}

static int read_levels(struct thcd_job_wish *w, const char *path, struct thcd_error *e)
{
	char text[FILE_BYTES + 1];
	const char *at = text;

	w->values = 0;
	if (read_text(path, text, e))
		return -1;
	while (*at)
		if (add_level(w, path, &at, e))
			return -1;
	if (w->values < 2 || w->values & (w->values - 1))
		return thcd_fail(e,
				 "table: %s:%d: the file ends after %u level%s, and a table has 2, "
				 "4, 8 and so on up to %d",
				 path, (int)w->values + 1, w->values, w->values == 1 ? "" : "s",
				 THC_TABLE_LEVELS_MAX);
	return 0;
}

/* @t: out: the clamp in standard deviations */
static int read_clamp(double *t, const char *path, struct thcd_error *e)
{
	char text[FILE_BYTES + 1];
	const char *at, *end;

	if (read_text(path, text, e))
		return -1;
	at = strstr(text, "'T'");
	if (!at)
		return thcd_fail(e, "table: %s has no 'T', the clamp", path);
	if (strstr(at + 3, "'T'"))
		return thcd_fail(e, "table: %s has 'T' twice", path);
	at += 3;
	at += strspn(at, " ");
	at += *at == ':';
	at += strspn(at, " ");
	*t = decimal(at, &end);
	/* a file that was cut off may end within the number */
	if (end == at || !strchr(",}", *end) || !*end || !(*t > LEAST_CLAMP && *t < 16))
		return thcd_fail(e,
				 "table: %s: behind 'T' a number between 0 and 16 is expected, as "
				 "'T': 2.1538746940614564",
				 path);
	return 0;
}

/* The number behind @word in a file's name; 0: it is not there. */
static u32 named(const char *name, const char *word)
{
	const char *at = strstr(name, word);

	return at ? (u32)strtoul(at + strlen(word), NULL, 10) : 0;
}

/* Compares the table with the values in the file's name. */
static int check_name(const struct thcd_job_wish *w, const char *path, struct thcd_error *e)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	u32 g = named(name, "tablesize_"), levels = named(name, "maxval_");
	u32 inverse = named(name, "qlevels_");

	if (levels && levels != w->values)
		return thcd_fail(e, "table: %s has %u levels, and its name says %u", path,
				 w->values, levels);
	if (g && g != w->value[w->values - 1])
		return thcd_fail(e, "table: %s ends with level %u, and its name says %u", path,
				 w->value[w->values - 1], g);
	if (inverse && fabs(w->table_clamp * inverse - 1) > SAME_FRACTION)
		return thcd_fail(e,
				 "table: the 'T' that belongs to %s clamps 1 in %.6g, and the "
				 "file's name says 1 in %u",
				 path, 1 / w->table_clamp, inverse);
	return 0;
}

int thcd_table_read(struct thcd_job_wish *w, const char *path, struct thcd_error *e)
{
	size_t length = strlen(path), begin = length - strlen(LEVELS_END);
	char data[PATH_MAX];
	double t = 0;

	if (length < strlen(LEVELS_END) || strcmp(path + begin, LEVELS_END))
		return thcd_fail(e,
				 "table: the name of a file of levels ends in " LEVELS_END
				 ", and \"%s\" does not",
				 path);
	if (snprintf(data, sizeof(data), "%.*s" DATA_END, (int)begin, path) >= PATH_MAX)
		return thcd_fail(e, "table: the name of the file is too long");
	if (read_levels(w, path, e) || read_clamp(&t, data, e))
		return -1;
	w->table_clamp = erfc(t / sqrt(2));
	if (check_name(w, path, e))
		return -1;
	w->table = THCD_TABLE_LIST;
	if (!thcd_job_wish_given(w, "bits"))
		w->bits = (u32)__builtin_ctz(w->values);
	return 0;
}
