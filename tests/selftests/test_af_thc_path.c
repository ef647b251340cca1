// SPDX-License-Identifier: GPL-2.0
/*
 * The way of packets: whose routing rules they obey, and that they stay what they
 * were when their message has gone. And calls that wait on a connection which another
 * thread replaces.
 */
#include "fake.h"
#include "harness.h"
#include "netlink.h"
#include "waiting.h"

#include <net/ethernet.h>
#include <netinet/ip.h>
#include <netinet/ip_icmp.h>
#include <netpacket/packet.h>

#define MESSAGES	8
#define USER		12345
#define MARK		7

FIXTURE(path)
{
	int	fd;
	int	udp;
};

FIXTURE_SETUP(path)
{
	if (why_not())
		SKIP(return, "%s", why_not());
	ASSERT_EQ(enter_netns(), 0);
	self->fd = thc_open(0);
	ASSERT_GE(self->fd, 0);
	self->udp = fake_open();
	ASSERT_GE(self->udp, 0);
}

FIXTURE_TEARDOWN(path)
{
	close_all(&self->fd, 1);
	close_all(&self->udp, 1);
}

/* Messages are freed as their socket is closed; what was sent before lies in the aggregator's
 * queue, on the same pages.
 */
TEST_F(path, packets_stay_what_they_were)
{
	unsigned int i, data = 0, sound = 0;
	struct sockaddr_in worker;
	struct chunk_packet p;
	uint8_t want[THC_LANE_BYTES];
	ssize_t bytes;
	uint32_t q;

	ASSERT_EQ(fake_join(self->fd, self->udp, &worker), 0);
	for (i = 0; i < MESSAGES; i++)
		ASSERT_EQ(send_part(self->fd, 1, &add8, 1, 8), 0);
	close_all(&self->fd, 1);
	for (i = 0; i < THC_LANE_BYTES; i++)
		want[i] = byte_of(1, add8.tag, i);
	while (!wait_for(self->udp, POLLIN, 500)) {
		bytes = recv(self->udp, &p, sizeof(p), 0);
		ASSERT_GE(bytes, (ssize_t)sizeof(p.h));
		q = be32toh(p.h.sum);
		set_sum(&p.h, (size_t)bytes);
		if (bytes < (ssize_t)sizeof(p))
			continue;
		data++;
		sound += be32toh(p.h.sum) == q && p.h.version == THC_VERSION &&
			 p.h.op == THC_OP_ADD && be64toh(p.h.cookie) == COOKIE &&
			 !memcmp(p.lanes, want, sizeof(want));
	}
	EXPECT_GE(data, MESSAGES);
	EXPECT_EQ(sound, data);
}

/* Loopback's own table comes first; here it comes after a rule. */
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
	uint64_t nonce;
	int error = begin_join(fd, &a);

	if (!error)
		error = fake_take_join(udp, worker, &nonce);
	if (error)
		return error;
	good_welcome(&p, nonce);
	p.w.flags = THC_WELCOME_F_READY;
	set_sum(&p.h, sizeof(p));
	error = send_one(udp, worker, &p, sizeof(p));
	return error ? error : end_join(fd);
}

/* One of the aggregator's, whatever the rules say of the port that was asked about first. */
TEST_F(path, rules_for_a_port_are_obeyed)
{
	int next = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct chunk_packet request, p;
	struct sockaddr_in at, worker;
	char what[64];
	uint32_t i;

	if (!has_rules())
		SKIP(return, "this kernel has no policy routing");
	loopback(&at, FAKE_PORT + 1);
	ASSERT_EQ(bind(next, (void *)&at, sizeof(at)), 0);
	snprintf(what, sizeof(what), "ipproto udp dport %d", FAKE_PORT + 1);
	ASSERT_EQ(prohibit(what), 0);
	ASSERT_EQ(fake_join_ports(self->fd, self->udp, &worker), 0);
	ASSERT_EQ(send_part(self->fd, 1, &add8, THC_SLOTS_PER_PORT + 1, 8), 0);
	/* once all chunks of the first port have their answers, the last one is in flight */
	for (i = 0; i < THC_SLOTS_PER_PORT; i++) {
		ASSERT_EQ(fake_take_chunk(self->udp, &request, i), 0);
		fake_answer(&p, &request.h, 3, 1);
		ASSERT_EQ(deliver(self->fd, self->udp, &worker, &p, sizeof(p)), 0);
	}
	EXPECT_EQ(wait_for(next, POLLIN, 3000), -ETIMEDOUT) TH_LOG("it went where it may not");
	ASSERT_EQ(wait_for(self->fd, POLLERR, PATIENCE_MS / 2), 0);
	EXPECT_EQ(failure_of(self->fd).error, EACCES);
	EXPECT_EQ(failure_of(self->fd).reason, THC_FAILED_UNREACHABLE);
	EXPECT_GT(stats_of(self->fd).send_errors, 0);
	close(next);
}

/* A socket bound to a port; job 9 is at two aggregators, of which we are one. */
static int bind_and_describe_job(int fd)
{
	struct sockaddr_thc a = place("127.0.0.1", 20000, 0, 0);
	struct nl nl;
	int error = nl_open(&nl);

	if (error)
		return error;
	error = nl_new_job(&nl, 9, COOKIE, "127.0.0.1", FAKE_PORT, FAKE_PORT + 100);
	nl_close(&nl);
	a.sthc_cookie = 0;
	return error ? error : bind(fd, (void *)&a, sizeof(a)) ? -errno : 0;
}

/* One local port cannot be at two aggregators. */
TEST_F(path, a_port_of_ones_own_is_for_one_aggregator)
{
	struct sockaddr_thc job = place(NULL, 0, 9, 0);

	ASSERT_EQ(bind_and_describe_job(self->fd), 0);
	EXPECT_EQ(begin_join(self->fd, &job), -EINVAL);
	close(self->fd);
	self->fd = thc_open(0);
	EXPECT_EQ(begin_join(self->fd, &job), 0);
}

/* Nor does it lose the aggregator that it has. */
TEST_F(path, a_port_of_ones_own_stays_at_its_aggregator)
{
	struct sockaddr_thc job = place(NULL, 0, 9, 0);
	struct sockaddr_in worker;
	struct chunk_packet p;

	ASSERT_EQ(bind_and_describe_job(self->fd), 0);
	ASSERT_EQ(fake_join(self->fd, self->udp, &worker), 0);
	fake_forget(self->udp);
	EXPECT_EQ(begin_join(self->fd, &job), -EINVAL);
	ASSERT_EQ(set_nonblock(self->fd, false), 0);
	ASSERT_EQ(send_part(self->fd, 1, &add8, 1, 8), 0);
	ASSERT_EQ(fake_take(self->udp, &p, PATIENCE_MS), 0);
	EXPECT_EQ(p.h.op, THC_OP_ADD);
}

/* Whoever listens at the end of a link. */
static int listen_at(const char *interface)
{
	struct timeval patience = { .tv_sec = PATIENCE_MS / 1000 };
	struct sockaddr_ll at = { .sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_IP),
				  .sll_ifindex = (int)if_nametoindex(interface) };
	int fd = socket(AF_PACKET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	return bind(fd, (void *)&at, sizeof(at)) ? -errno : fd;
}

/* Of a connection that there is already, too. */
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

/* --- what the network says ------------------------------------------------ */

/* ICMP: the port cannot be reached; what was sent there. */
struct complaint {
	struct icmphdr	icmp;
	struct iphdr	ip;
	struct udphdr	udp;
};

static uint16_t checksum(const void *data, size_t bytes)
{
	const uint16_t *word = data;
	uint32_t sum = 0;
	size_t i;

	for (i = 0; i < bytes / 2; i++)
		sum += word[i];
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)~sum;
}

/* Tells @worker that its packet to @at:@port did not arrive. */
static int complain(int raw, const struct sockaddr_in *worker, const char *at, int port)
{
	struct complaint c = {
		.icmp = { .type = ICMP_DEST_UNREACH, .code = ICMP_PORT_UNREACH },
		.ip = { .version = 4,
			.ihl = 5,
			.tot_len = htons(sizeof(struct iphdr) + sizeof(struct udphdr)),
			.ttl = 64,
			.protocol = IPPROTO_UDP,
			.saddr = worker->sin_addr.s_addr,
			.daddr = inet_addr(at) },
		.udp = { .source = worker->sin_port,
			 .dest = htons((uint16_t)port),
			 .len = htons(sizeof(struct udphdr)) },
	};

	c.ip.check = checksum(&c.ip, sizeof(c.ip));
	c.icmp.checksum = checksum(&c, sizeof(c));
	return send_one(raw, worker, &c, sizeof(c));
}

/* Who knows our port alone cannot say that the aggregator is not there. */
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
	/* one second of complaints, without an answer, is enough */
	for (until = now_ms() + 4000; now_ms() < until; sleep_ms(50))
		for (i = 0; i < sizeof(others) / sizeof(others[0]); i++)
			ASSERT_EQ(complain(raw, &worker, others[i].at, others[i].port), 0);
	EXPECT_EQ(poll_now(self->fd), POLLOUT);
	EXPECT_EQ(failure_of(self->fd).reason, THC_FAILED_NOT);
	/* about the last of the aggregator's ports it is */
	ASSERT_EQ(complain(raw, &worker, "127.0.0.1", FAKE_PORT + THC_PORT_SPAN - 1), 0);
	ASSERT_EQ(wait_for(self->fd, POLLERR, PATIENCE_MS / 2), 0);
	EXPECT_EQ(failure_of(self->fd).reason, THC_FAILED_UNREACHABLE);
	EXPECT_EQ(failure_of(self->fd).error, ECONNREFUSED);
	close(raw);
}

/* --- a connection that another thread replaces ---------------------------- */

static int wait_in_recvmsg(struct waiting *w)
{
	static uint8_t room[THC_LANE_BYTES];
	struct thc_received r;

	return (int)receive_message(w->fd, room, sizeof(room), &r, 0, NULL);
}

/* By one that fails: nothing will come any more. */
TEST_F(path, recvmsg_ends_with_its_connection)
{
	struct sockaddr_thc nowhere = place("203.0.113.1", 1, 1, 1);
	struct timeval patience = { .tv_sec = PATIENCE_MS / 1000 };
	struct waiting w = { .call = wait_in_recvmsg, .number = SYS_recvmsg, .fd = self->fd };
	struct sockaddr_in worker;
	uint64_t start;

	ASSERT_EQ(fake_join(self->fd, self->udp, &worker), 0);
	ASSERT_EQ(setsockopt(self->fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)), 0);
	ASSERT_EQ(begin_waiting(&w), 0);
	start = now_ms();
	EXPECT_EQ(connect(self->fd, (void *)&nowhere, sizeof(nowhere)), -1);
	EXPECT_EQ(errno, ENETUNREACH);
	EXPECT_EQ(end_waiting(&w), -ECANCELED);
	/* at once, not when its time is over */
	EXPECT_LT(now_ms() - start, PATIENCE_MS / 2);
}

static void *connect_to_silence(void *arg)
{
	struct sockaddr_thc a = place("127.0.0.1", FAKE_PORT + 1, 1, 1);

	return (void *)(intptr_t)(connect(*(int *)arg, (void *)&a, sizeof(a)) ? -errno : 0);
}

/* What the other one comes to is not this call's to tell. */
TEST_F(path, connect_ends_with_its_connection)
{
	int silent = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct sockaddr_in at, worker;
	struct thc_joined joined;
	socklen_t len = sizeof(joined);
	pthread_t thread;
	void *error;

	loopback(&at, FAKE_PORT + 1);
	ASSERT_EQ(bind(silent, (void *)&at, sizeof(at)), 0);
	ASSERT_EQ(pthread_create(&thread, NULL, connect_to_silence, &self->fd), 0);
	ASSERT_EQ(wait_for(silent, POLLIN, PATIENCE_MS), 0);
	ASSERT_EQ(fake_join(self->fd, self->udp, &worker), 0);
	pthread_join(thread, &error);
	EXPECT_EQ((intptr_t)error, -ECANCELED);
	ASSERT_EQ(getsockopt(self->fd, SOL_THC, THC_OPT_WELCOME, &joined, &len), 0);
	EXPECT_EQ(joined.epoch, FAKE_EPOCH);
	close(silent);
}

TEST_HARNESS_MAIN
