/* SPDX-License-Identifier: GPL-2.0 */
/* What a socket knows of its job: THC_OPT_WELCOME, raw and parsed. */
#ifndef THC_SELFTESTS_KNOWNJOB_H
#define THC_SELFTESTS_KNOWNJOB_H

#include <linux/thc.h>
#include <stdint.h>

#include <thc/wire/spec.h>

/* Room for every job. */
struct described_job {
	struct thc_job_info	info;
	uint8_t			record[THC_RECORDS_MAX];
};

struct known_job {
	uint32_t	epoch;
	uint32_t	shards;
	struct thc_spec	spec;
};

/* Returns 0 or -errno; -EBADMSG if the lengths disagree or a record is invalid. */
int know_job(int fd, struct known_job *j);

/* The job's epoch, 0: no job. */
uint32_t epoch_of(int fd);

#endif /* THC_SELFTESTS_KNOWNJOB_H */
