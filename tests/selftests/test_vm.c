// SPDX-License-Identifier: GPL-2.0
/*
 * The test machine itself: it is the one that was asked for, and has what the module's tests need;
 * of the module, only that it is loaded. tests/vm/check tells in THC_VM_* what it asked for.
 */
#include <bpf/bpf.h>
#include <linux/bpf.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <kselftest_harness.h>

static bool exists(const char *path)
{
	struct stat st;

	return !stat(path, &st);
}

static bool is_debug(void)
{
	return !strcmp(getenv("THC_VM_KERNEL") ?: "", "debug");
}

FIXTURE(vm)
{
	struct utsname uts;
};

FIXTURE_SETUP(vm)
{
	if (!getenv("THC_VM_RELEASE"))
		SKIP(return, "this is no test machine: run it by tests/vm/check");
	ASSERT_EQ(uname(&self->uts), 0);
}

FIXTURE_TEARDOWN(vm)
{
}

TEST_F(vm, runs_the_kernel_that_was_asked_for)
{
	EXPECT_STREQ(self->uts.release, getenv("THC_VM_RELEASE"));
	EXPECT_EQ(sysconf(_SC_NPROCESSORS_ONLN), atoi(getenv("THC_VM_CPUS")));
	EXPECT_EQ(geteuid(), 0);
}

TEST_F(vm, writes_stay_in_memory)
{
	EXPECT_EQ(mkdir("/usr/thc-vm-was-here", 0700), 0);
	EXPECT_EQ(rmdir("/usr/thc-vm-was-here"), 0);
}

TEST_F(vm, makes_namespaces_with_veth_bridge_and_netem)
{
	ASSERT_EQ(unshare(CLONE_NEWNET), 0);
	EXPECT_EQ(system("ip link add left type veth peer name right"), 0);
	EXPECT_EQ(system("ip link add br0 type bridge && ip link set right master br0"), 0);
	EXPECT_EQ(system("tc qdisc add dev left root netem loss 10%"), 0);
	EXPECT_EQ(system("tc qdisc add dev right root tbf rate 1gbit burst 256k limit 4m"), 0);
}

/* An interpreted XDP program would not be the code that runs elsewhere. */
TEST_F(vm, compiles_xdp_to_machine_code)
{
	const struct bpf_insn pass[] = {
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0, .imm = XDP_PASS },
		{ .code = BPF_JMP | BPF_EXIT },
	};
	struct bpf_prog_info info = {};
	__u32 len = sizeof(info);
	int fd;

	fd = bpf_prog_load(BPF_PROG_TYPE_XDP, "pass", "GPL", pass, 2, NULL);
	ASSERT_GE(fd, 0);
	ASSERT_EQ(bpf_obj_get_info_by_fd(fd, &info, &len), 0);
	EXPECT_GT(info.jited_prog_len, 0);
	close(fd);
}

TEST_F(vm, attaches_xdp_to_veth)
{
	const struct bpf_insn pass[] = {
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0, .imm = XDP_PASS },
		{ .code = BPF_JMP | BPF_EXIT },
	};
	LIBBPF_OPTS(bpf_link_create_opts, opts, .flags = 1 << 2 /* XDP_FLAGS_DRV_MODE */);
	int prog, link;

	ASSERT_EQ(unshare(CLONE_NEWNET), 0);
	ASSERT_EQ(system("ip link add left index 100 type veth peer name right"), 0);
	prog = bpf_prog_load(BPF_PROG_TYPE_XDP, "pass", "GPL", pass, 2, NULL);
	ASSERT_GE(prog, 0);
	link = bpf_link_create(prog, 100, BPF_XDP, &opts);
	EXPECT_GE(link, 0);
	close(link);
	close(prog);
}

TEST_F(vm, notices_mistakes)
{
	if (!is_debug())
		SKIP(return, "a stock kernel: only the debug kernel does");
	EXPECT_TRUE(exists("/proc/lockdep"));
	EXPECT_TRUE(exists("/sys/kernel/debug/kmemleak"));
	EXPECT_TRUE(exists("/sys/kernel/debug/failslab"));
	EXPECT_TRUE(exists("/sys/kernel/debug/fail_page_alloc"));
	EXPECT_TRUE(exists("/sys/kernel/debug/kunit"));
	EXPECT_TRUE(exists("/proc/self/make-it-fail"));
}

/* Without this, a CPU may hang when one enables an event: see tests/vm/stage2. */
TEST_F(vm, enables_events_without_the_names_of_tasks)
{
	FILE *f = fopen("/sys/kernel/tracing/options/record-cmd", "r");

	ASSERT_NE(f, NULL) TH_LOG("no tracing");
	EXPECT_EQ(fgetc(f), '0');
	fclose(f);
}

TEST_F(vm, has_btf_of_the_kernel)
{
	if (is_debug() && !exists("/sys/kernel/btf/vmlinux"))
		SKIP(return, "the debug kernel is built without BTF");
	EXPECT_TRUE(exists("/sys/kernel/btf/vmlinux"));
}

TEST_F(vm, has_the_module)
{
	if (!getenv("THC_VM_MODULE"))
		SKIP(return, "no module was built for this kernel");
	EXPECT_TRUE(exists("/sys/module/thc"));
}

TEST_HARNESS_MAIN
