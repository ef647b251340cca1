// SPDX-License-Identifier: GPL-2.0
#include "jobkey.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

const uint8_t job_key[THC_KEY_BYTES] = {
	0x5e, 0xed, 0x12, 0x34, 0xab, 0xcd, 0x00, 0x01, 0x5e, 0xed, 0x12,
	0x34, 0xab, 0xcd, 0x00, 0x02, 0x5e, 0xed, 0x12, 0x34, 0xab, 0xcd,
	0x00, 0x03, 0x5e, 0xed, 0x12, 0x34, 0xab, 0xcd, 0x00, 0x04,
};

int write_key_file(void)
{
	char path[64], digits[2 * THC_KEY_BYTES + 1];
	int fd, error = 0;
	unsigned int i;

	for (i = 0; i < THC_KEY_BYTES; i++)
		snprintf(digits + 2 * i, 3, "%02x", job_key[i]);
	snprintf(path, sizeof(path), KEY_FILE ".%d", getpid());
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	if (write(fd, digits, sizeof(digits) - 1) < 0)
		error = -errno;
	close(fd);
	return error ?: rename(path, KEY_FILE) ? -errno : 0;
}
