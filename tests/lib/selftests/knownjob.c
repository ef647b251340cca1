// SPDX-License-Identifier: GPL-2.0
#include "knownjob.h"

#include <thc/wire/welcome.h>

#include <errno.h>
#include <sys/socket.h>

int know_job(int fd, struct known_job *j)
{
	struct described_job d;
	socklen_t len = sizeof(d);

	if (getsockopt(fd, SOL_THC, THC_OPT_WELCOME, &d, &len))
		return -errno;
	j->epoch = d.info.epoch;
	j->shards = d.info.shards;
	return len == sizeof(d.info) + d.info.bytes &&
			       thc_spec_read(&j->spec, &d.info.welcome, d.record, d.info.bytes) ?
		       0 :
		       -EBADMSG;
}

uint32_t epoch_of(int fd)
{
	struct known_job j;

	return know_job(fd, &j) ? 0 : j.epoch;
}
