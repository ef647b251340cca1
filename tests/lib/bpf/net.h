/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Workers and an aggregator in native XDP on real links, for what
 * BPF_PROG_TEST_RUN cannot show: it neither clones frames nor runs the egress
 * program, and its frames have the tailroom that those of a veth lack.
 *
 *	 worker 0        worker 1        worker 2        aggregator
 *	   eth0            eth0            eth0       eth0, native XDP
 *	    |               |               |               |
 *	 sw0 ----------- sw1 ----------- sw2 ------------ sw3   GRO on: else veth
 *	                       br0, in a switch                 does not take
 *	                                                        redirected frames
 *
 * Each box is a network namespace that only this process holds open, so
 * nothing remains, however the test ends.
 *
 * A VLAN tag is seen by XDP only inside the frame. veth would carry it beside
 * the frame, so sw3 must be told not to (txvlan off).
 */
#ifndef THC_TESTS_BPF_NET_H
#define THC_TESTS_BPF_NET_H

#include "rig.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_ether.h>
#include <linux/if_link.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#define RANKS 3
#define AGG RANKS /* hosts: workers, aggregator, switch */
#define SWITCH (RANKS + 1)
#define HOSTS (RANKS + 2)
#define WORKER_PORT 40000
#define QUIET_MS 60 /* how long nothing must come */
#define ANSWER_MS 2000

#ifndef UDP_NO_CHECK6_RX
#define UDP_NO_CHECK6_RX 102
#endif

struct net {
	int ns[HOSTS];
	int home;
	bool v6;
	int queues; /* of each link */
	int one[RANKS]; /* each worker's own socket */
	int group[RANKS]; /* and the one on the group's address */
	int control; /* the daemon's */
	__be64 tag[RANKS]; /* of each worker's last request */
	struct rig rig;
	struct thc_job *job;
};

extern struct net net;

static inline void enter(int host)
{
	assert_int_equal(setns(host < 0 ? net.home : net.ns[host], CLONE_NEWNET), 0);
}

/* Runs a command of iproute2 or ethtool; in @host's namespace. */
void run(int host, const char *format, ...);

struct thc_addr address(int host);

struct thc_addr group_address(void);

socklen_t sockaddr_of(struct sockaddr_storage *ss, struct thc_addr a, u16 port);

void net_up_queues(bool v6, bool relay, int queues);

static inline void net_up(bool v6, bool relay)
{
	net_up_queues(v6, relay, 1);
}

void net_down(void);

/* @rank sends request @r with @payload to the port its slot is reached on. */
void send_request(int rank, struct rig_request r, const u8 *payload, size_t len);

static inline bool readable(int fd, int ms)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, ms) == 1;
}

/* The worker's end of its paths. */
struct thc_end end_of(int rank);

/* The next packet at @fd, from where it was asked for; returns its length. */
ssize_t receive(int fd, u8 *packet, size_t size);

/* Nothing more has come, to anybody. */
void nothing_else(void);

/* The kinds of payload: shorter than an answer, and as long. */
struct shape {
	const char *name;
	u8 op, width, sum_width, answer_width;
	u16 len;
};

static const struct shape shapes[] = {
	{ "LUT8", THC_OP_LUT_ADD, 4, 8, 8, 512 },
	{ "LUT16", THC_OP_LUT_ADD, 4, 16, 16, 256 },
	{ "BITS8", THC_OP_LUT_ADD, 2, 8, 8, 256 },
	{ "BITS32", THC_OP_LUT_ADD, 3, 32, 32, 96 },
	{ "ADD32", THC_OP_ADD, 32, 8, 32, 1024 },
	{ "MAX", THC_OP_MAX, 32, 8, 32, 1024 },
};

extern u8 payload[RANKS][1024];
static const u8 *const payloads[RANKS] = { payload[0], payload[1], payload[2] };

void expect_result(const u8 *packet, ssize_t len, const struct shape *s,
		   const struct rig_request *r, u8 flags, u16 rank);

#endif /* THC_TESTS_BPF_NET_H */
