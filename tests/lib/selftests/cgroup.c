// SPDX-License-Identifier: GPL-2.0
#include "cgroup.h"

int enter_cgroup(void)
{
	int fd, error;

	mkdir(CGROUPS, 0700);
	if (mount("none", CGROUPS, "cgroup2", 0, NULL))
		return -errno;
	if (mkdir(CGROUP, 0700) && errno != EEXIST)
		return -errno;
	fd = open(CGROUP "/cgroup.procs", O_WRONLY | O_CLOEXEC);
	error = fd < 0 || write(fd, "0", 1) != 1 ? -errno : 0;
	close(fd);
	return error ? error : open(CGROUP, O_DIRECTORY | O_RDONLY | O_CLOEXEC);
}

void leave_cgroup(int cgroup)
{
	int fd = open(CGROUPS "/cgroup.procs", O_WRONLY | O_CLOEXEC);

	if (fd >= 0) {
		(void)!write(fd, "0", 1);
		close(fd);
	}
	if (cgroup >= 0)
		close(cgroup);
	rmdir(CGROUP);
	umount(CGROUPS);
	rmdir(CGROUPS);
}

int load_refusal(enum bpf_prog_type type, enum bpf_attach_type attach)
{
	static const struct bpf_insn program[] = {
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0, .imm = 0 },
		{ .code = BPF_JMP | BPF_EXIT },
	};
	LIBBPF_OPTS(bpf_prog_load_opts, opts, .expected_attach_type = attach);

	return bpf_prog_load(type, "refuse", "GPL", program, 2, &opts);
}
