// SPDX-License-Identifier: GPL-2.0
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon.h"
#include "jobkey.h"

const char *daemon_path(void)
{
	static char path[512];

	snprintf(path, sizeof(path), "%s/thcd", getenv("BUILD") ?: "build");
	return path;
}

bool is_ready(int out)
{
	char line[64];
	size_t n = 0;

	while (n < sizeof(line) - 1 && read(out, line + n, 1) == 1) {
		line[++n] = 0;
		if (line[n - 1] != '\n')
			continue;
		if (!strncmp(line, "ready", 5))
			return true;
		n = 0;
	}
	return false;
}

int start_daemon(struct daemon *d, const char *at, uint16_t port, const char *job,
		 const char *other)
{
	char number[8], control[64];
	int out[2], error = write_key_file();

	if (error)
		return error;
	if (pipe2(out, O_CLOEXEC))
		return -errno;
	snprintf(number, sizeof(number), "%u", port);
	snprintf(control, sizeof(control), "/tmp/afthc-%d-%u.sock", getpid(), port);
	d->pid = fork();
	if (!d->pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(out[1], 1);
		if (!getenv("THC_TEST_VERBOSE"))
			dup2(open("/dev/null", O_WRONLY), 2);
		execl(daemon_path(), "thcd", "--software", "--listen", at, "--port", number,
		      "--control", control, "--job", job, other ? "--job" : NULL, other, NULL);
		_exit(127);
	}
	close(out[1]);
	d->out = out[0];
	return is_ready(d->out) ? 0 : -ECHILD;
}

int start_shard(struct daemon *d, const char *job, unsigned int shard, unsigned int n)
{
	char text[2048];
	unsigned int i;
	int at = snprintf(text, sizeof(text), "%s,shard=%u,shards=", job, shard);

	for (i = 0; i < n; i++)
		at += snprintf(text + at, sizeof(text) - (size_t)at, "%s127.0.0.1:%u", i ? "," : "",
			       shard_port(i));
	return start_daemon(d, "127.0.0.1", shard_port(shard), text, NULL);
}

void stop_daemon(struct daemon *d, int number)
{
	if (d->pid <= 0)
		return;
	kill(d->pid, number);
	waitpid(d->pid, NULL, 0);
	close(d->out);
	d->pid = 0;
}
