// SPDX-License-Identifier: GPL-2.0
/*
 * Packets on their way, which a queue on loopback delays: they are charged, bounded and freed like
 * those of any UDP socket, and stay unchanged when their message is freed. The queue is tbf,
 * because netem detaches packets from their sockets. And what the caller's cgroup may forbid
 * (kmod/transmit.c).
 */
#include "cgroup.h"
#include "fake.h"
#include "harness.h"

#include <netpacket/packet.h>

#define MESSAGES	8
FAKE_FIXTURE(path)

/* Closing the socket frees its messages, while packets sent before still lie in the aggregator's
 * queue, on the messages' pages.
 */
TEST_F(path, packets_stay_what_they_were)
{
	unsigned int i, data = 0, sound = 0;
	struct sockaddr_in worker;
	struct chunk_packet p;
	uint8_t want[THC_LANE_BYTES];
	struct thc_hdr was;
	ssize_t bytes;

	ASSERT_EQ(fake_join(self->fd, self->udp, &worker), 0);
	for (i = 0; i < MESSAGES; i++)
		ASSERT_EQ(send_part(self->fd, 1, &add8, 1, 8), 0);
	close_all(&self->fd, 1);
	for (i = 0; i < THC_LANE_BYTES; i++)
		want[i] = byte_of(1, add8.tag, i);
	while (!wait_for(self->udp, POLLIN, 500)) {
		bytes = recv(self->udp, &p, sizeof(p), 0);
		ASSERT_GE(bytes, (ssize_t)sizeof(p.h));
		if (bytes < (ssize_t)sizeof(p))
			continue;
		data++;
		was = p.h;
		seal_request(fake_seals(), &p.h, sizeof(p));
		sound += !memcmp(&was, &p.h, sizeof(was)) && p.h.version == THC_VERSION &&
			 p.h.op == THC_OP_ADD && !memcmp(p.lanes, want, sizeof(want));
	}
	EXPECT_GE(data, MESSAGES);
	EXPECT_EQ(sound, data);
}

#define WINDOW		8
#define NORM_SLOTS	1
#define CHUNKS		40
/* Twice a window of each stream, eight JOINs, and one packet beyond the bound. Each packet takes a
 * head and a page, the last one perhaps two.
 */
#define PACKET		5500
#define BOUND		((2 * (WINDOW + NORM_SLOTS) + 8 + 2) * PACKET)
#define PORT_TEXT	"4844"		/* 18500, the daemon's */

AFTHC_FIXTURE(queue)

static int slow_down(const char *rate)
{
	char command[160];

	snprintf(command, sizeof(command),
		 "tc qdisc replace dev lo root tbf rate %s burst 3000 limit 10000000", rate);
	return system(command);
}

/* Bytes of packets on their way from this namespace's UDP sockets, except the daemon's. */
static long on_their_way(void)
{
	char line[256], port[8];
	FILE *f = fopen("/proc/net/udp", "r");
	unsigned long tx;
	long sum = 0;

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, " %*d: %*8[0-9A-F]:%7s %*s %*s %lx:", port, &tx) == 2 &&
		    strcmp(port, PORT_TEXT))
			sum += (long)tx;
	if (f)
		fclose(f);
	return f ? sum : -1;
}

static int begin_narrow(struct daemon *d, int *fd)
{
	int i, error = start_daemon(d, "127.0.0.1", PORT, JOB "2,slots=60,norm_slots=1", NULL);

	for (i = 0; i < 2 && !error; i++) {
		fd[i] = thc_open(0);
		error = fd[i] < 0 ? -errno : set_u32(fd[i], THC_OPT_WINDOW, WINDOW);
	}
	return error ? error : join_all(fd, 2, "127.0.0.1", PORT, 1);
}

/* Nothing arrives for seconds, and retransmissions queue up, too. */
TEST_F(queue, has_a_bound)
{
	uint64_t until;
	long most = 0, now = 0;

	ASSERT_EQ(begin_narrow(&self->daemon, self->fd), 0);
	ASSERT_EQ(all_reduce(self->fd, 2, &add8, CHUNKS), 0);
	EXPECT_EQ(on_their_way(), 0);
	ASSERT_EQ(slow_down("1kbit"), 0);
	ASSERT_EQ(send_part(self->fd[0], 0, &add8, CHUNKS, 8), 0);
	for (until = now_ms() + 8000; now_ms() < until; sleep_ms(20)) {
		now = on_their_way();
		most = now > most ? now : most;
	}
	TH_LOG("%ld bytes at most, %ld at last, bound %d; %llu retransmits", most, now, BOUND,
	       (unsigned long long)stats_of(self->fd[0]).retransmits);
	EXPECT_GT(most, WINDOW * LANES) TH_LOG("packets on their way are nobody's");
	EXPECT_LE(most, BOUND);
	/* the bound was nearly reached; otherwise this test shows nothing */
	EXPECT_GT(most, BOUND / 2);
	/* these packets are lost with the queue; packets that were held back are sent */
	ASSERT_EQ(system("tc qdisc del dev lo root"), 0);
	EXPECT_LT(on_their_way(), BOUND / 2);
	ASSERT_EQ(send_part(self->fd[1], 1, &add8, CHUNKS, 8), 0);
	EXPECT_EQ(check_answer(self->fd[0], &add8, CHUNKS, 8, 2, NULL), 0);
	EXPECT_EQ(check_answer(self->fd[1], &add8, CHUNKS, 8, 2, NULL), 0);
	EXPECT_EQ(on_their_way(), 0);
}

/* A slow queue delays, and takes nothing from the sum. */
TEST_F(queue, is_slow)
{
	ASSERT_EQ(begin_narrow(&self->daemon, self->fd), 0);
	ASSERT_EQ(slow_down("20mbit"), 0);
	EXPECT_EQ(all_reduce(self->fd, 2, &add8, 3 * CHUNKS), 0);
}

/* The socket, its message and its process are gone before its packets are. */
TEST_F(queue, outlives_its_socket)
{
	int i;

	ASSERT_EQ(begin_narrow(&self->daemon, self->fd), 0);
	ASSERT_EQ(slow_down("64kbit"), 0);
	for (i = 0; i < 2; i++)
		ASSERT_EQ(send_part(self->fd[i], (unsigned int)i, &add8, CHUNKS, 8), 0);
	EXPECT_GT(on_their_way(), 0);
	close_all(self->fd, 2);
	/* /proc/net/udp does not list closed sockets, which exist until their packets are sent */
	EXPECT_EQ(on_their_way(), 0);
	sleep_ms(3000);
	ASSERT_EQ(system("tc qdisc del dev lo root"), 0);
	ASSERT_EQ(join_all(self->fd, 2, "127.0.0.1", PORT, 1), 0);
	EXPECT_EQ(all_reduce(self->fd, 2, &add8, CHUNKS), 0);
	/* now the namespace, too, goes before its packets, and ends with the last of them */
	ASSERT_EQ(slow_down("64kbit"), 0);
	ASSERT_EQ(send_part(self->fd[0], 0, &add8, CHUNKS, 8), 0);
	close_all(self->fd, 2);
	stop_daemon(&self->daemon, SIGKILL);
	ASSERT_EQ(unshare(CLONE_NEWNET), 0);
	sleep_ms(3000);
}

/* A cgroup's BPF programs also hold for packets and sockets of AF_THC. */
TEST_F(queue, obeys_its_cgroup)
{
	struct sockaddr_thc a = place("127.0.0.1", PORT, 1, 0);
	int cgroup, program, socket;

	/* the daemon is outside of the cgroup */
	ASSERT_EQ(start_daemon(&self->daemon, "127.0.0.1", PORT, JOB "1", NULL), 0);
	cgroup = enter_cgroup();
	program = load_refusal(BPF_PROG_TYPE_CGROUP_SKB, BPF_CGROUP_INET_EGRESS);
	socket = load_refusal(BPF_PROG_TYPE_CGROUP_SOCK, BPF_CGROUP_INET_SOCK_CREATE);
	if (cgroup < 0 || program < 0 || socket < 0) {
		leave_cgroup(cgroup);
		SKIP(return, "no cgroups with BPF here: %d, %d, %d", cgroup, program, socket);
	}
	/* nothing goes out: as if the aggregator did not answer */
	EXPECT_EQ(bpf_prog_attach(program, cgroup, BPF_CGROUP_INET_EGRESS, 0), 0);
	self->fd[0] = thc_open(0);
	EXPECT_EQ(set_u32(self->fd[0], THC_OPT_JOIN_TIMEOUT, 1000), 0);
	EXPECT_EQ(connect(self->fd[0], (const void *)&a, sizeof(a)), -1);
	EXPECT_EQ(errno, EHOSTUNREACH);
	EXPECT_EQ(failure_of(self->fd[0]).reason, THC_FAILED_SILENT);
	EXPECT_EQ(bpf_prog_detach2(program, cgroup, BPF_CGROUP_INET_EGRESS), 0);
	/* connect() may not create a UDP socket */
	EXPECT_EQ(bpf_prog_attach(socket, cgroup, BPF_CGROUP_INET_SOCK_CREATE, 0), 0);
	EXPECT_EQ(connect(self->fd[0], (const void *)&a, sizeof(a)), -1);
	EXPECT_EQ(errno, EPERM);
	EXPECT_EQ(bpf_prog_detach2(socket, cgroup, BPF_CGROUP_INET_SOCK_CREATE), 0);
	EXPECT_EQ(connect(self->fd[0], (const void *)&a, sizeof(a)), 0);
	EXPECT_EQ(all_reduce(self->fd, 1, &add8, CHUNKS), 0);
	close_all(self->fd, 1);
	leave_cgroup(cgroup);
	close(program);
	close(socket);
}

#define BIG		(16 << 20)
#define SLACK		(3 << 20)

/* A number in a file of our cgroup: the one behind @name, or the only one (@name NULL). -1: none.
 */
static long long cgroup_number(const char *file, const char *name)
{
	char path[128], word[64];
	long long n = -1;
	FILE *f;

	snprintf(path, sizeof(path), CGROUP "/%s", file);
	f = fopen(path, "r");
	if (!f)
		return -1;
	if (!name) {
		if (fscanf(f, "%lld", &n) != 1)
			n = -1;
	} else {
		while (fscanf(f, "%63s %lld", word, &n) == 2 && strcmp(word, name))
			n = -1;
	}
	fclose(f);
	return n;
}

static int set_cgroup(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC), error;

	if (fd < 0)
		return -errno;
	error = write(fd, text, strlen(text)) < 0 ? -errno : 0;
	close(fd);
	return error;
}

/* Into a cgroup whose memory is counted. */
static int enter_memory_cgroup(void)
{
	int cgroup = enter_cgroup(), error;

	if (cgroup < 0)
		return cgroup;
	error = set_cgroup(CGROUPS "/cgroup.subtree_control", "+memory");
	if (error || cgroup_number("memory.current", NULL) < 0) {
		leave_cgroup(cgroup);
		return error ? error : -ENOENT;
	}
	return cgroup;
}

/* Pages are given back late. */
static bool shrinks_to(long long bytes)
{
	uint64_t start = now_ms();

	while (cgroup_number("memory.current", NULL) > bytes) {
		if (now_ms() - start > PATIENCE_MS)
			return false;
		sleep_ms(20);
	}
	return true;
}

/* A message in flight is charged to the sender's cgroup. */
TEST_F(queue, memory_is_its_cgroups)
{
	long long before, after, held;
	char *lanes = malloc(BIG);
	struct sockaddr_in worker;
	int cgroup, udp;

	/* memory of the test itself is charged outside of the cgroup */
	memset(lanes, 1, BIG);
	udp = fake_open();
	self->fd[0] = thc_open(0);
	ASSERT_EQ(fake_join(self->fd[0], udp, &worker), 0);
	cgroup = enter_memory_cgroup();
	ASSERT_GE(cgroup, 0) TH_LOG("no cgroups of memory");
	before = cgroup_number("memory.current", NULL);
	EXPECT_EQ(send_message(self->fd[0], lanes, BIG, &add8, 0), BIG);
	after = cgroup_number("memory.current", NULL);
	held = (long long)stats_of(self->fd[0]).memory;
	EXPECT_GT(held, 2 * BIG);
	EXPECT_GE(after - before, held - SLACK);
	EXPECT_LE(after - before, held + SLACK);
	close_all(self->fd, 1);
	EXPECT_TRUE(shrinks_to(before + SLACK))
	TH_LOG("%lld before, %lld with a message, %lld after", before, after,
	       cgroup_number("memory.current", NULL));
	leave_cgroup(cgroup);
	close(udp);
	free(lanes);
}

/* sendmsg() beyond the cgroup's limit returns ENOMEM, and the OOM killer kills nobody. */
TEST_F(queue, memory_beyond_its_cgroups_is_refused)
{
	char *lanes = malloc(BIG), text[32];
	struct sockaddr_in worker;
	int cgroup, udp;

	memset(lanes, 1, BIG);
	udp = fake_open();
	self->fd[0] = thc_open(0);
	ASSERT_EQ(fake_join(self->fd[0], udp, &worker), 0);
	cgroup = enter_memory_cgroup();
	ASSERT_GE(cgroup, 0) TH_LOG("no cgroups of memory");
	snprintf(text, sizeof(text), "%lld", cgroup_number("memory.current", NULL) + BIG / 2);
	EXPECT_EQ(set_cgroup(CGROUP "/memory.max", text), 0);
	EXPECT_EQ(send_message(self->fd[0], lanes, BIG, &add8, 0), -ENOMEM);
	EXPECT_EQ(cgroup_number("memory.events", "oom_kill"), 0);
	EXPECT_GT(cgroup_number("memory.events", "max"), 0);
	EXPECT_EQ(stats_of(self->fd[0]).memory, 0);
	/* a message within the limit is sent */
	EXPECT_EQ(send_message(self->fd[0], lanes, 1 << 20, &add8, 0), 1 << 20);
	close_all(self->fd, 1);
	leave_cgroup(cgroup);
	close(udp);
	free(lanes);
}

TEST_HARNESS_MAIN
