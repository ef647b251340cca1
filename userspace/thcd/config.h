/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the operator asks for: the daemon's options and its jobs, from the
 * command line and from a JSON file, through one parser of keys. plan.c turns
 * a job's wishes into constants.
 */
#ifndef THCD_CONFIG_H
#define THCD_CONFIG_H

#include <limits.h>
#include <sys/types.h>

#include "thcd.h"

/* Slots of THC_JOBS_MAX jobs of the largest size. */
#define THCD_SPARE_SLOTS_MAX	(THC_JOBS_MAX * THC_SLOTS_MAX)

enum thcd_mode { THCD_MODE_AUTO, THCD_MODE_NATIVE, THCD_MODE_GENERIC };

/* Bytes of an address or a prefix as written. */
#define THCD_WORD_MAX	64
/* thcd_job_wish.rate: aim at a third of the table's bits, up and down together, where that is
 * faster. The default of a job that asks for no table.
 */
#define THCD_RATE_AUTO	1

/* How a job names its table; LIST: its levels, in the configuration or in a file. */
enum thcd_table_wish { THCD_TABLE_AUTO, THCD_TABLE_UNIFORM, THCD_TABLE_LIST };

/**
 * struct thcd_job_wish - a job as written; 0 or an empty text: not given
 * @given: bit per key, in the order of the key table of config.c
 * @clamp: p, the fraction of coordinates that are clamped
 * @table_clamp: p from the table's file, 0: the table is from no file
 * @feedback: choose the table for ranks with error feedback
 */
struct thcd_job_wish {
	u64			given;
	u64			seed;
	double			clamp;
	double			table_clamp;
	u32			job;
	u32			ranks;
	u32			bits;
	u32			granularity;
	u32			scheme;		/* enum thc_scheme_id */
	u32			precision;	/* bits of fixed point, 0: exact */
	u32			grain;		/* 0: not given, so 1 */
	u32			sketch;		/* THC_SCHEME_F_SKETCH, _COUPLED */
	u32			sum_width;
	u32			rate;		/* thousandths of a bit, 0: fixed, or _AUTO */
	u32			error;		/* millionths, 0: none */
	u32			block;
	u32			slots;
	u32			control_slots;
	u32			group_port;
	u32			quorum;
	u32			deadline_ms;
	u32			hops;
	enum thcd_table_wish	table;
	enum thc_reply		reply;
	enum thc_seal_type	seal;
	bool			correlated;
	bool			feedback;
	bool			rotate;
	u32			values;
	u16			value[THC_TABLE_LEVELS_MAX];
	u32			prefixes;
	u32			shard;
	u32			aggregators;
	char			group[THCD_WORD_MAX];
	char			prefix[THCD_PREFIXES_MAX][THCD_WORD_MAX];
	char			aggregator[THC_SHARDS_MAX][THCD_WORD_MAX];
	u8			key[THC_KEY_BYTES];
};

/* Bytes of names, host names among them. */
#define THCD_NAME_MAX	256

/* The daemon's options; texts are empty when not given. */
struct thcd_config {
	char			file[PATH_MAX];
	char			interface[THCD_NAME_MAX];
	char			instance[THCD_NAME_MAX];
	char			control[PATH_MAX];
	char			control_group[THCD_NAME_MAX];
	char			pidfile[PATH_MAX];
	char			listen[THCD_LISTEN_MAX][THCD_NAME_MAX];
	u32			listens;
	u32			port;
	u32			spare_slots;	/* for jobs that a reload adds */
	enum thcd_mode		mode;
	bool			software;
	bool			no_simd;
	bool			fresh;
	bool			force;		/* start even if every round would time out */
	bool			prepare;	/* prepare XDP for @heir, then exit */
	bool			discard;	/* remove what a dead thcd left, then exit */
	uid_t			heir;		/* user of --prepare, 0: none */
	bool			verbose;
	int			ready_fd;	/* -1: a line on stdout */
	u32			jobs;
	struct thcd_job_wish	job[THC_JOBS_MAX];
};

void thcd_config_init(struct thcd_config *c);

/* The wish before any key: defaults. */
void thcd_job_wish_init(struct thcd_job_wish *w);

/* Sets one key of a job; `prefix` and `shards` add to a list. Returns 0, or -1 with a sentence. */
int thcd_job_wish_set(struct thcd_job_wish *w, const char *key, const char *value,
		      struct thcd_error *e);

/* Does each use of @key add to a list? */
bool thcd_job_key_is_list(const char *key);

/* Was @key given? */
bool thcd_job_wish_given(const struct thcd_job_wish *w, const char *key);

/* Sets one option of the daemon by its long name, as in file and --name. */
int thcd_config_set(struct thcd_config *c, const char *key, const char *value,
		    struct thcd_error *e);

/* Name, as in the file, of the next setting that differs, NULL: none. @at: where to go on */
const char *thcd_config_difference(const struct thcd_config *a, const struct thcd_config *b,
				   unsigned int *at);

/* Adds "key=value,key=value"; the values of `shards` are separated by commas, too. */
int thcd_config_job(struct thcd_config *c, const char *text, struct thcd_error *e);

/* Reads a JSON file, or its text; @name is for the sentences. */
int thcd_config_file(struct thcd_config *c, const char *name, struct thcd_error *e);
int thcd_config_text(struct thcd_config *c, const char *name, const char *text,
		     struct thcd_error *e);

/* Parses a decimal number, or one with 0x; no sign, no blanks, nothing after it. */
int thcd_number_parse(const char *text, u64 *out);
/* Parses a numeric address; returns its family or -1. */
int thcd_addr_parse(const char *text, struct thc_addr *addr);

/* Reads the key in file @name. A name without a slash is looked up in the directory of systemd's
 * credentials, if thcd has one. Warns if every user can read the file.
 */
int thcd_secret_read(const char *name, u8 key[THC_KEY_BYTES], struct thcd_error *e);

/* Fills in levels and clamp of @w from file @path and the one beside it, and bits unless given
 * (table_file.c).
 */
int thcd_table_read(struct thcd_job_wish *w, const char *path, struct thcd_error *e);

/* What thcd does after reading the command line; thcd_fail() returns THCD_BAD. */
enum thcd_start { THCD_RUN = 0, THCD_DONE = 1, THCD_BAD = -1 };

/**
 * thcd_options() - read the command line and the file it names
 * @c: initialised
 *
 * THCD_DONE: help or version was printed. THCD_BAD: @e says why.
 */
enum thcd_start thcd_options(struct thcd_config *c, int argc, char **argv, struct thcd_error *e);

/* Name of the @i-th key of a job, NULL after the last; tests and help use it. */
const char *thcd_job_key(unsigned int i, const char **meaning);

#endif /* THCD_CONFIG_H */
