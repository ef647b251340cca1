// SPDX-License-Identifier: GPL-2.0
/*
 * The UDP sockets below an AF_THC socket: their owner; how packet filters, BPF programs of the
 * cgroup, privileged ports, routing rules and ICMP errors affect them; and that close() ends them
 * (kmod/peer.c).
 */
#include "../lib/complaint.h"
#include "cgroup.h"
#include "fake.h"
#include "harness.h"
#include "netlink.h"
#include "nftables.h"

#include <net/ethernet.h>
#include <netpacket/packet.h>
#include <stddef.h>

#define USER		12345
#define MARK		7

FAKE_FIXTURE(path)

/* Puts the rule before loopback's own table, which is the first by default. */
static int prohibit(const char *who)
{
	char command[200];

	snprintf(command, sizeof(command),
		 "ip rule add pref 100 lookup local && ip rule del pref 0 && "
		 "ip rule add pref 50 %s prohibit",
		 who);
	return system(command);
}

static bool has_rules(void)
{
	return !system("ip rule show >/dev/null 2>&1");
}

static int try_to_join(int fd)
{
	struct sockaddr_thc a = fake_place();

	return begin_join(fd, &a);
}

TEST_F(path, rules_for_a_user_are_obeyed)
{
	char who[64];
	int status, fd;
	pid_t pid;

	if (!has_rules())
		SKIP(return, "this kernel has no policy routing");
	snprintf(who, sizeof(who), "uidrange %d-%d", USER, USER);
	ASSERT_EQ(prohibit(who), 0);
	EXPECT_EQ(try_to_join(self->fd), 0);
	pid = fork();
	if (!pid) {
		if (setresuid(USER, USER, USER))
			_exit(1);
		fd = thc_open(0);
		_exit(fd < 0 ? 2 : -try_to_join(fd));
	}
	ASSERT_EQ(waitpid(pid, &status, 0), pid);
	ASSERT_TRUE(WIFEXITED(status));
	EXPECT_EQ(WEXITSTATUS(status), EACCES);
}

TEST_F(path, rules_for_a_mark_are_obeyed)
{
	int mark = MARK;

	if (!has_rules())
		SKIP(return, "this kernel has no policy routing");
	ASSERT_EQ(prohibit("fwmark 7"), 0);
	EXPECT_EQ(try_to_join(self->fd), 0);
	ASSERT_EQ(setsockopt(self->fd, SOL_SOCKET, SO_MARK, &mark, sizeof(mark)), 0);
	EXPECT_EQ(try_to_join(self->fd), 0) TH_LOG("joining goes on as it was begun");
	close(self->fd);
	self->fd = thc_open(0);
	ASSERT_EQ(setsockopt(self->fd, SOL_SOCKET, SO_MARK, &mark, sizeof(mark)), 0);
	EXPECT_EQ(try_to_join(self->fd), -EACCES);
}

/* Slots beyond the first 64 are reached on another port. */
static int fake_join_ports(int fd, int udp, struct sockaddr_in *worker)
{
	struct sockaddr_thc a = fake_place();
	struct welcome_packet p;
	fake_nonce nonce;
	int error = begin_join(fd, &a);

	if (!error)
		error = fake_take_join(udp, worker, &nonce);
	if (error)
		return error;
	good_welcome(&p, nonce);
	p.all.w.flags = htobe16(THC_WELCOME_F_READY);
	fake_seal_welcome(&p, worker);
	error = send_one(udp, worker, &p, sizeof(p));
	return error ? error : end_join(fd);
}

#define BEYOND	32

/* A rule for one of the aggregator's ports holds, whatever route the first port was given. */
TEST_F(path, rules_for_a_port_are_obeyed)
{
	int next = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct chunk_packet request, p;
	struct sockaddr_in at, worker;
	struct thc_socket_stats s;
	char what[64];
	uint32_t i;

	if (!has_rules())
		SKIP(return, "this kernel has no policy routing");
	loopback(&at, FAKE_PORT + 1);
	ASSERT_EQ(bind(next, (void *)&at, sizeof(at)), 0);
	snprintf(what, sizeof(what), "ipproto udp dport %d", FAKE_PORT + 1);
	ASSERT_EQ(prohibit(what), 0);
	ASSERT_EQ(fake_join_ports(self->fd, self->udp, &worker), 0);
	ASSERT_EQ(send_part(self->fd, 1, &add8, THC_SLOTS_PER_PORT + BEYOND, 8), 0);
	/* the second port's chunks are sent when all chunks of the first have answers */
	for (i = 0; i < THC_SLOTS_PER_PORT; i++) {
		ASSERT_EQ(fake_take_chunk(self->udp, &request, i), 0);
		fake_answer(&p, &request.h, 3, 1);
		ASSERT_EQ(deliver(self->fd, self->udp, &worker, &p, sizeof(p)), 0);
	}
	EXPECT_EQ(wait_for(next, POLLIN, 3000), -ETIMEDOUT) TH_LOG("it went where it may not");
	ASSERT_EQ(wait_for(self->fd, POLLERR, PATIENCE_MS / 2), 0);
	EXPECT_EQ(failure_of(self->fd).error, EACCES);
	EXPECT_EQ(failure_of(self->fd).reason, THC_FAILED_UNREACHABLE);
	/* send_errors counts every packet, even if the network got several in one train */
	s = stats_of(self->fd);
	EXPECT_GE(s.send_errors + THC_SLOTS_PER_PORT + s.retransmits, s.packets_up);
	close(next);
}

/* Binds the socket to a port. Job 9 has two aggregators; this test is one. */
static int bind_and_describe_job(int fd)
{
	struct sockaddr_thc a = place("127.0.0.1", 20000, 0, 0);
	struct nl nl;
	int error = nl_open(&nl);

	if (error)
		return error;
	error = nl_new_job(&nl, 9, "127.0.0.1", FAKE_PORT, FAKE_PORT + 100);
	nl_close(&nl);
	return error ? error : bind(fd, (void *)&a, sizeof(a)) ? -errno : 0;
}

/* A socket bound to one local port cannot connect to two aggregators. */
TEST_F(path, a_port_of_ones_own_is_for_one_aggregator)
{
	struct sockaddr_thc job = place(NULL, 0, 9, 0);

	ASSERT_EQ(set_key(self->fd, NULL, 0), 0);
	ASSERT_EQ(bind_and_describe_job(self->fd), 0);
	EXPECT_EQ(begin_join(self->fd, &job), -EINVAL);
	close(self->fd);
	self->fd = thc_open_keyless(0);
	EXPECT_EQ(begin_join(self->fd, &job), 0);
}

/* When connect() is refused, the socket keeps the aggregator that it has. */
TEST_F(path, a_port_of_ones_own_stays_at_its_aggregator)
{
	struct sockaddr_thc job = place(NULL, 0, 9, 0);
	struct sockaddr_in worker;
	struct chunk_packet p;

	ASSERT_EQ(bind_and_describe_job(self->fd), 0);
	ASSERT_EQ(fake_join(self->fd, self->udp, &worker), 0);
	fake_forget(self->udp);
	ASSERT_EQ(set_key(self->fd, NULL, 0), 0);
	EXPECT_EQ(begin_join(self->fd, &job), -EINVAL);
	ASSERT_EQ(set_nonblock(self->fd, false), 0);
	ASSERT_EQ(send_part(self->fd, 1, &add8, 1, 8), 0);
	ASSERT_EQ(fake_take(self->udp, &p, PATIENCE_MS), 0);
	EXPECT_EQ(p.h.op, THC_OP_ADD);
}

/* A packet socket that listens at one end of a link. */
static int listen_at(const char *interface)
{
	struct timeval patience = { .tv_sec = PATIENCE_MS / 1000 };
	struct sockaddr_ll at = { .sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_IP),
				  .sll_ifindex = (int)if_nametoindex(interface) };
	int fd = socket(AF_PACKET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	return bind(fd, (void *)&at, sizeof(at)) ? -errno : fd;
}

/* A connection follows a route that changes after it was made. */
TEST_F(path, a_route_that_changes_is_followed)
{
	struct sockaddr_thc a = place("203.0.113.1", FAKE_PORT, 1, 1);
	char packet[200];
	int end[2];

	ASSERT_EQ(system("for i in 0 1; do"
			 "	ip link add way$i arp off type veth peer name end$i &&"
			 "	ip link set way$i up && ip link set end$i up || exit 1;"
			 "done;"
			 "ip addr add 198.51.100.1/32 dev way0 &&"
			 "ip route add 203.0.113.1/32 dev way0 src 198.51.100.1"),
		  0);
	end[0] = listen_at("end0");
	end[1] = listen_at("end1");
	ASSERT_GE(end[0], 0);
	ASSERT_GE(end[1], 0);
	ASSERT_EQ(begin_join(self->fd, &a), 0);
	EXPECT_GT(recv(end[0], packet, sizeof(packet), 0), 0);
	ASSERT_EQ(system("ip route replace 203.0.113.1/32 dev way1 src 198.51.100.1"), 0);
	EXPECT_GT(recv(end[1], packet, sizeof(packet), 0), 0);
	close_all(end, 2);
}

/* A byte from anybody to a socket at 198.51.100.1, as if it came by @device; NULL: by loopback. */
static int stray(const char *device, __be16 port)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = port,
				  .sin_addr.s_addr = inet_addr("198.51.100.1") };
	int udp = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), error = 0;

	if (device &&
	    setsockopt(udp, SOL_SOCKET, SO_BINDTODEVICE, device, (socklen_t)strlen(device)))
		error = -errno;
	if (!error)
		error = send_one(udp, &to, "", 1);
	close(udp);
	return error;
}

TEST_F(path, packets_of_other_devices_are_not_taken)
{
	struct sockaddr_thc a = place("203.0.113.1", FAKE_PORT, 1, 1), me;
	socklen_t len = sizeof(me);
	uint64_t start = now_ms();

	ASSERT_EQ(system("ip link add way0 arp off type veth peer name end0 &&"
			 "ip link set way0 up && ip link set end0 up &&"
			 "ip addr add 198.51.100.1/32 dev lo &&"
			 "ip addr add 198.51.100.1/32 dev way0 &&"
			 "ip route add 203.0.113.1/32 dev way0"),
		  0);
	ASSERT_EQ(setsockopt(self->fd, SOL_SOCKET, SO_BINDTODEVICE, "way0", 4), 0);
	a.sthc_ifindex = if_nametoindex("end0");
	EXPECT_EQ(begin_join(self->fd, &a), -EINVAL);
	a.sthc_ifindex = 0;
	ASSERT_EQ(begin_join(self->fd, &a), 0);
	ASSERT_EQ(getsockname(self->fd, (void *)&me, &len), 0);
	ASSERT_EQ(stray(NULL, me.sthc_port), 0);
	ASSERT_EQ(stray("way0", me.sthc_port), 0);
	while (!stats_of(self->fd).foreign && now_ms() - start < PATIENCE_MS)
		sleep_ms(10);
	EXPECT_EQ(stats_of(self->fd).foreign, 1);
}

/* Sends @worker an ICMP error: its packet to @at:@port did not arrive. */
static int complain(int raw, const struct sockaddr_in *worker, const char *at, int port)
{
	struct complaint c = complaint_about(worker, at, port);

	return send_one(raw, worker, &c, sizeof(c));
}

/* ICMP errors about other addresses than the aggregator's end no connection. */
TEST_F(path, complaints_about_others_are_not_believed)
{
	static const struct {
		const char *at;
		int port;
	} others[] = {
		{ "127.0.0.2", FAKE_PORT },
		{ "127.0.0.1", FAKE_PORT - 1 },
		{ "127.0.0.1", FAKE_PORT + THC_PORT_SPAN },
	};
	int raw = socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_ICMP);
	struct sockaddr_in worker;
	uint64_t until;
	size_t i;

	ASSERT_EQ(fake_join(self->fd, self->udp, &worker), 0);
	ASSERT_EQ(send_part(self->fd, 1, &add8, 1, 8), 0);
	/* one second of valid errors without an answer would be enough */
	for (until = now_ms() + 4000; now_ms() < until; sleep_ms(50))
		for (i = 0; i < sizeof(others) / sizeof(others[0]); i++)
			ASSERT_EQ(complain(raw, &worker, others[i].at, others[i].port), 0);
	EXPECT_EQ(poll_now(self->fd), POLLOUT);
	EXPECT_EQ(failure_of(self->fd).reason, THC_FAILED_NOT);
	/* an error about the last of the aggregator's ports is valid */
	ASSERT_EQ(complain(raw, &worker, "127.0.0.1", FAKE_PORT + THC_PORT_SPAN - 1), 0);
	ASSERT_EQ(wait_for(self->fd, POLLERR, PATIENCE_MS / 2), 0);
	EXPECT_EQ(failure_of(self->fd).reason, THC_FAILED_UNREACHABLE);
	EXPECT_EQ(failure_of(self->fd).error, ECONNREFUSED);
	close(raw);
}

#define OTHER		12346
#define GROUP		"239.84.72.1"
#define GROUP_PORT	20000
#define LOCAL_PORT	20001
/* Long enough for many JOINs, and for two looks at a group that could not be joined. */
#define A_WHILE_MS	2500

FIXTURE(owner)
{
	int	fd[2];
	int	udp;
	int	cgroup;
	struct daemon daemon;
};

FIXTURE_SETUP(owner)
{
	memset(self, 0, sizeof(*self));
	self->fd[0] = self->fd[1] = self->udp = self->cgroup = -1;
	if (why_not())
		SKIP(return, "%s", why_not());
	ASSERT_EQ(enter_netns(), 0);
	self->udp = fake_open();
	ASSERT_GE(self->udp, 0);
}

FIXTURE_TEARDOWN(owner)
{
	close_all(self->fd, 2);
	close_all(&self->udp, 1);
	stop_daemon(&self->daemon, SIGKILL);
	if (self->cgroup >= 0)
		leave_cgroup(self->cgroup);
}

static int open_as(uid_t uid, gid_t gid)
{
	int fd;

	if (setegid(gid) || seteuid(uid))
		return -errno;
	fd = thc_open(0);
	return seteuid(0) || setegid(0) ? -errno : fd;
}

/* @uid makes all calls, or root calls connect() on a socket that @uid opened. */
static int join_as(int *fd, uid_t uid, bool whole)
{
	struct sockaddr_thc a = fake_place();
	int error;

	*fd = open_as(uid, uid);
	if (*fd < 0)
		return *fd;
	if (whole && seteuid(uid))
		return -errno;
	error = begin_join(*fd, &a);
	return seteuid(0) ? -errno : error;
}

static bool hears_join(int udp, int ms)
{
	fake_forget(udp);
	return !wait_for(udp, POLLIN, ms);
}

static bool has_no_nftables(int error)
{
	return error == -EPROTONOSUPPORT || error == -EOPNOTSUPP || error == -ENOENT;
}

TEST_F(owner, rules_for_the_owner_are_obeyed)
{
	static const struct {
		enum nft_meta_keys key;
		bool whole;
	} c[] = { { NFT_META_SKUID, true }, { NFT_META_SKUID, false }, { NFT_META_SKGID, false } };
	size_t i;

	for (i = 0; i < sizeof(c) / sizeof(c[0]); i++) {
		int error = nft_drop(c[i].key, USER);

		if (has_no_nftables(error))
			SKIP(return, "this kernel has no nftables");
		ASSERT_EQ(error, 0);
		ASSERT_EQ(join_as(&self->fd[0], USER, c[i].whole), 0);
		EXPECT_FALSE(hears_join(self->udp, A_WHILE_MS))
		TH_LOG("case %zu: the rule does not match", i);
		/* refused for that owner alone */
		ASSERT_EQ(join_as(&self->fd[1], OTHER, c[i].whole), 0);
		EXPECT_TRUE(hears_join(self->udp, PATIENCE_MS)) TH_LOG("case %zu", i);
		close_all(&self->fd[1], 1);
		ASSERT_EQ(nft_drop_no_more(), 0);
		EXPECT_TRUE(hears_join(self->udp, PATIENCE_MS))
		TH_LOG("case %zu: nothing had been sent at all", i);
		close_all(self->fd, 1);
	}
}

/* The owner of an IPv4 UDP socket in /proc/net/udp; -1: there is no such socket. */
static long uid_at(const char *at, unsigned int port)
{
	unsigned int in, there;
	FILE *f = fopen("/proc/net/udp", "r");
	char line[256];
	long uid, found = -1;

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, " %*d: %x:%x %*s %*s %*s %*s %*s %ld", &in, &there, &uid) == 3 &&
		    in == inet_addr(at) && there == port)
			found = uid;
	if (f)
		fclose(f);
	return found;
}

static int set_sysctl(const char *name, const char *value)
{
	char path[128];
	int fd, error;

	snprintf(path, sizeof(path), "/proc/sys/net/ipv4/%s", name);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	error = fd < 0 || write(fd, value, strlen(value)) < 0 ? -errno : 0;
	close(fd);
	return error;
}

/* Sends WELCOMEs of a job that waits for ranks and answers to a group, until the group's UDP
 * socket exists. Returns its owner, or -1.
 */
static long uid_of_group(int udp, const struct sockaddr_in *worker, fake_nonce nonce, int ms)
{
	uint64_t until = now_ms() + (uint64_t)ms;
	struct welcome_packet p;
	long uid;

	good_welcome(&p, nonce);
	p.all.w.flags = htobe16(THC_WELCOME_F_ONE_PORT);
	p.all.w.reply = THC_REPLY_MULTICAST;
	p.all.group.at.port = htobe16(GROUP_PORT);
	inet_pton(AF_INET, GROUP, p.all.group.at.addr);
	fake_seal_welcome(&p, worker);
	do {
		if (send_one(udp, worker, &p, sizeof(p)))
			return -1;
		sleep_ms(20);
		uid = uid_at(GROUP, GROUP_PORT);
	} while (uid < 0 && now_ms() < until);
	return uid;
}

TEST_F(owner, both_sockets_are_the_openers)
{
	struct sockaddr_in worker;
	fake_nonce nonce;

	ASSERT_EQ(join_as(&self->fd[0], USER, false), 0);
	ASSERT_EQ(fake_take_join(self->udp, &worker, &nonce), 0);
	EXPECT_EQ(uid_at("127.0.0.1", ntohs(worker.sin_port)), USER);
	EXPECT_EQ(uid_of_group(self->udp, &worker, nonce, PATIENCE_MS), USER);
	close_all(self->fd, 1);
	EXPECT_EQ(uid_at("127.0.0.1", ntohs(worker.sin_port)), -1);
	EXPECT_EQ(uid_at(GROUP, GROUP_PORT), -1);
}

/* The group's port is bound with the opener's privileges, and not with the kernel's. */
TEST_F(owner, port_of_the_group_may_need_a_privilege)
{
	struct sockaddr_in worker;
	fake_nonce nonce;

	ASSERT_EQ(set_sysctl("ip_unprivileged_port_start", "30000"), 0);
	ASSERT_EQ(join_as(&self->fd[0], USER, false), 0);
	ASSERT_EQ(fake_take_join(self->udp, &worker, &nonce), 0);
	EXPECT_EQ(uid_of_group(self->udp, &worker, nonce, A_WHILE_MS), -1);
	/* the socket tries again to bind the port */
	ASSERT_EQ(set_sysctl("ip_unprivileged_port_start", "1024"), 0);
	EXPECT_EQ(uid_of_group(self->udp, &worker, nonce, PATIENCE_MS), USER);
	close_all(self->fd, 1);
	fake_forget(self->udp);

	ASSERT_EQ(set_sysctl("ip_unprivileged_port_start", "30000"), 0);
	ASSERT_EQ(join_as(&self->fd[0], 0, false), 0);
	ASSERT_EQ(fake_take_join(self->udp, &worker, &nonce), 0);
	EXPECT_EQ(uid_of_group(self->udp, &worker, nonce, PATIENCE_MS), 0);
}

/* If the group cannot be joined, its port is closed; later both succeed. */
TEST_F(owner, group_that_cannot_be_joined)
{
	struct sockaddr_in worker;
	fake_nonce nonce;

	ASSERT_EQ(set_sysctl("igmp_max_memberships", "0"), 0);
	ASSERT_EQ(join_as(&self->fd[0], USER, false), 0);
	ASSERT_EQ(fake_take_join(self->udp, &worker, &nonce), 0);
	/* the group's socket may exist for a moment */
	uid_of_group(self->udp, &worker, nonce, A_WHILE_MS);
	sleep_ms(100);
	EXPECT_EQ(uid_at(GROUP, GROUP_PORT), -1);
	ASSERT_EQ(set_sysctl("igmp_max_memberships", "20"), 0);
	EXPECT_EQ(uid_of_group(self->udp, &worker, nonce, PATIENCE_MS), USER);
}

#define BEGIN_IN_CGROUP()                                                                   \
	do {                                                                                \
		self->cgroup = enter_cgroup();                                              \
		if (self->cgroup < 0)                                                       \
			SKIP(return, "no cgroups here: %s", strerror(-self->cgroup));       \
	} while (0)

/* A program for addresses; negative errno. */
static int load_program(const struct bpf_insn *program, size_t n, enum bpf_attach_type attach)
{
	LIBBPF_OPTS(bpf_prog_load_opts, opts, .expected_attach_type = attach);

	return bpf_prog_load(BPF_PROG_TYPE_CGROUP_SOCK_ADDR, "address", "GPL", program, n, &opts);
}

TEST_F(owner, programs_of_the_cgroup_refuse)
{
	static const struct {
		enum bpf_attach_type attach;
		const char *at;
	} c[] = {
		{ BPF_CGROUP_INET4_CONNECT, "127.0.0.1" },
		{ BPF_CGROUP_INET6_CONNECT, "::1" },
		{ BPF_CGROUP_INET4_BIND, "127.0.0.1" },
		{ BPF_CGROUP_INET6_BIND, "::1" },
	};
	size_t i;

	BEGIN_IN_CGROUP();
	for (i = 0; i < sizeof(c) / sizeof(c[0]); i++) {
		struct sockaddr_thc a = place(c[i].at, FAKE_PORT, 1, 1);
		int program = load_refusal(BPF_PROG_TYPE_CGROUP_SOCK_ADDR, c[i].attach);

		ASSERT_GE(program, 0);
		self->fd[0] = thc_open(0);
		ASSERT_EQ(bpf_prog_attach(program, self->cgroup, c[i].attach, 0), 0);
		EXPECT_EQ(begin_join(self->fd[0], &a), -EPERM) TH_LOG("case %zu", i);
		EXPECT_EQ(bpf_prog_detach2(program, self->cgroup, c[i].attach), 0);
		EXPECT_EQ(begin_join(self->fd[0], &a), 0) TH_LOG("case %zu", i);
		close_all(self->fd, 1);
		close(program);
	}
}

/* A load balancer's program names another address than the caller. */
TEST_F(owner, programs_of_the_cgroup_name_another_address)
{
	const struct bpf_insn program[] = {
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_2,
		  .imm = htons(FAKE_PORT) },
		{ .code = BPF_STX | BPF_MEM | BPF_W, .dst_reg = BPF_REG_1, .src_reg = BPF_REG_2,
		  .off = offsetof(struct bpf_sock_addr, user_port) },
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0, .imm = 1 },
		{ .code = BPF_JMP | BPF_EXIT },
	};
	struct sockaddr_thc a = place("127.0.0.1", 1, 1, 1), name;
	socklen_t len = sizeof(name);
	int fd;

	BEGIN_IN_CGROUP();
	fd = load_program(program, 4, BPF_CGROUP_INET4_CONNECT);
	ASSERT_GE(fd, 0);
	ASSERT_EQ(bpf_prog_attach(fd, self->cgroup, BPF_CGROUP_INET4_CONNECT, 0), 0);
	self->fd[0] = thc_open(0);
	EXPECT_EQ(begin_join(self->fd[0], &a), 0);
	EXPECT_TRUE(hears_join(self->udp, PATIENCE_MS));
	/* getpeername() returns the address that the caller named */
	ASSERT_EQ(getpeername(self->fd[0], (void *)&name, &len), 0);
	EXPECT_EQ(name.sthc_port, htons(1));
	EXPECT_EQ(bpf_prog_detach2(fd, self->cgroup, BPF_CGROUP_INET4_CONNECT), 0);
	close(fd);
}

/* The group's socket belongs to the caller's cgroup, although a work item binds it. */
TEST_F(owner, programs_of_the_cgroup_see_the_group)
{
	struct sockaddr_in worker;
	fake_nonce nonce;
	int program;

	BEGIN_IN_CGROUP();
	program = load_refusal(BPF_PROG_TYPE_CGROUP_SOCK_ADDR, BPF_CGROUP_INET4_BIND);
	ASSERT_GE(program, 0);
	ASSERT_EQ(join_as(&self->fd[0], USER, false), 0);
	ASSERT_EQ(fake_take_join(self->udp, &worker, &nonce), 0);
	ASSERT_EQ(bpf_prog_attach(program, self->cgroup, BPF_CGROUP_INET4_BIND, 0), 0);
	EXPECT_EQ(uid_of_group(self->udp, &worker, nonce, A_WHILE_MS), -1);
	EXPECT_EQ(bpf_prog_detach2(program, self->cgroup, BPF_CGROUP_INET4_BIND), 0);
	EXPECT_EQ(uid_of_group(self->udp, &worker, nonce, PATIENCE_MS), USER);
	close(program);
}

/* close() frees the ports at once, though the kernel closes UDP sockets' files late. */
TEST_F(owner, ports_are_free_at_once)
{
	struct sockaddr_thc local = place("127.0.0.1", LOCAL_PORT, 0, 0);
	struct sockaddr_in worker, at;
	fake_nonce nonce;
	int i, udp;

	self->fd[0] = thc_open(0);
	ASSERT_EQ(bind(self->fd[0], (void *)&local, sizeof(local)), 0);
	/* each connection replaces the one before */
	for (i = 0; i < 20; i++) {
		struct sockaddr_thc a = place("127.0.0.1", FAKE_PORT, 1, (uint8_t)i);

		ASSERT_EQ(begin_join(self->fd[0], &a), 0) TH_LOG("join %d", i);
	}
	ASSERT_EQ(fake_take_join(self->udp, &worker, &nonce), 0);
	EXPECT_EQ(ntohs(worker.sin_port), LOCAL_PORT);
	close_all(self->fd, 1);
	udp = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	loopback(&at, LOCAL_PORT);
	EXPECT_EQ(bind(udp, (void *)&at, sizeof(at)), 0);
	close(udp);
}

TEST_HARNESS_MAIN
