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
	j->epoch = d.joined.epoch;
	j->shards = d.joined.shards;
	return len == sizeof(d.joined) + d.joined.bytes &&
			       thc_spec_take(&j->spec, &d.joined.welcome, d.record,
					     d.joined.bytes) ?
		       0 :
		       -EBADMSG;
}

uint32_t epoch_of(int fd)
{
	struct known_job j;

	return know_job(fd, &j) ? 0 : j.epoch;
}
