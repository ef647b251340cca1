// SPDX-License-Identifier: GPL-2.0
/*
 * Who may load the module. With the module's own configuration (kmod/modprobe.conf, which
 * tests/vm/guest installs) only the administrator may, by name: asking for a socket or the netlink
 * family loads nothing. Where the administrator has switched that file off, any such request loads
 * it.
 */
#include "afthc.h"
#include "harness.h"
#include "netlink.h"

#include <grp.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#define INSTALLED	"/lib/modprobe.d/thc.conf"
#define SWITCHED_OFF	"/etc/modprobe.d/thc.conf"
#define NOBODY		65534
#define ATTEMPTS	100

static bool is_loaded(void)
{
	return !access("/sys/module/thc", F_OK);
}

/* The last sockets' memory is freed after a grace period. */
static int remove_module(void)
{
	int i;

	for (i = 0; i < ATTEMPTS && is_loaded(); i++) {
		if (!syscall(SYS_delete_module, "thc", O_NONBLOCK))
			return 0;
		if (errno != EWOULDBLOCK)
			return -errno;
		sleep_ms(100);
	}
	return is_loaded() ? -EWOULDBLOCK : 0;
}

static int ask_for_socket(void)
{
	return thc_open(0) < 0 ? errno : 0;
}

static int ask_for_netlink(void)
{
	struct nl nl;

	return -nl_open(&nl);
}

/* What @ask returns to a process without privileges: 0, or errno. */
static int by_nobody(int (*ask)(void))
{
	pid_t child = fork();
	int status;

	if (!child) {
		if (setgroups(0, NULL) || setgid(NOBODY) || setuid(NOBODY))
			_exit(255);
		_exit(ask());
	}
	if (waitpid(child, &status, 0) != child || !WIFEXITED(status))
		return -1;
	return WEXITSTATUS(status);
}

FIXTURE(modprobe)
{
	int unused;
};

FIXTURE_SETUP(modprobe)
{
	if (geteuid())
		SKIP(return, "needs root");
	if (!getenv("THC_VM_MODULE"))
		SKIP(return, "only in a test machine: it removes the module");
	ASSERT_EQ(access(INSTALLED, F_OK), 0) TH_LOG("tests/vm/guest has not put it there");
	ASSERT_NE(access(SWITCHED_OFF, F_OK), 0);
	ASSERT_EQ(remove_module(), 0);
}

FIXTURE_TEARDOWN(modprobe)
{
	unlink(SWITCHED_OFF);
	EXPECT_EQ(system("modprobe thc"), 0);
}

TEST_F(modprobe, is_off_as_installed)
{
	EXPECT_EQ(by_nobody(ask_for_socket), EAFNOSUPPORT);
	EXPECT_FALSE(is_loaded()) TH_LOG("a socket of nobody's has loaded the module");
	EXPECT_EQ(by_nobody(ask_for_netlink), ENOENT);
	EXPECT_FALSE(is_loaded()) TH_LOG("nobody's netlink has loaded the module");
	/* root's request for a socket does not load the module either */
	EXPECT_EQ(ask_for_socket(), EAFNOSUPPORT);
	EXPECT_EQ(ask_for_netlink(), ENOENT);
	EXPECT_FALSE(is_loaded());
	/* after the administrator has loaded it by name, everybody may use it */
	ASSERT_EQ(system("modprobe thc"), 0);
	EXPECT_EQ(by_nobody(ask_for_socket), 0);
	EXPECT_EQ(by_nobody(ask_for_netlink), 0);
}

TEST_F(modprobe, is_on_where_the_administrator_wants_it)
{
	mkdir("/etc/modprobe.d", 0755);
	ASSERT_EQ(symlink("/dev/null", SWITCHED_OFF), 0);
	EXPECT_EQ(by_nobody(ask_for_socket), 0);
	EXPECT_TRUE(is_loaded());
	ASSERT_EQ(remove_module(), 0);
	EXPECT_EQ(by_nobody(ask_for_netlink), 0);
	EXPECT_TRUE(is_loaded());
}

TEST_HARNESS_MAIN
