// SPDX-License-Identifier: GPL-2.0
#include "fake.h"

void loopback(struct sockaddr_in *a, uint16_t port)
{
	memset(a, 0, sizeof(*a));
	a->sin_family = AF_INET;
	a->sin_port = htons(port);
	a->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
}

/* Salts of different epochs differ, and so do the keys. */
static void set_salt(uint8_t *salt, uint8_t epoch)
{
	memset(salt, 0xa5, THC_SALT_BYTES);
	salt[THC_SALT_BYTES - 1] = epoch;
}

struct job_seals fake_seals_of(uint8_t epoch)
{
	uint8_t salt[THC_SALT_BYTES];
	struct job_seals s;

	set_salt(salt, epoch);
	job_seals_set(&s, job_key, 1, salt);
	return s;
}

const struct job_seals *fake_seals(void)
{
	static struct job_seals s;

	if (!s.seal)
		s = fake_seals_of(FAKE_EPOCH);
	return &s;
}

/* After a failed send: waits for room, since thcd's own sockets do not block. */
static bool has_room_now(int fd)
{
	struct pollfd out = { .fd = fd, .events = POLLOUT };

	return errno == EAGAIN && poll(&out, 1, PATIENCE_MS) == 1;
}

int send_one(int fd, const void *to, const void *packet, size_t bytes)
{
	bool v6 = ((const struct sockaddr *)to)->sa_family == AF_INET6;
	socklen_t len = v6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);

	while (sendto(fd, packet, bytes, 0, to, len) < 0)
		if (!has_room_now(fd))
			return -errno;
	return 0;
}

int send_joined(int udp, const void *to, void *packets, size_t bytes, uint16_t each)
{
	bool v6 = ((const struct sockaddr *)to)->sa_family == AF_INET6;
	char control[CMSG_SPACE(sizeof(each))] = "";
	struct iovec iov = { .iov_base = packets, .iov_len = bytes };
	struct msghdr msg = { .msg_name = (void *)to,
			      .msg_namelen = v6 ? sizeof(struct sockaddr_in6) :
						  sizeof(struct sockaddr_in),
			      .msg_iov = &iov,
			      .msg_iovlen = 1,
			      .msg_control = control,
			      .msg_controllen = sizeof(control) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

	c->cmsg_level = IPPROTO_UDP;
	c->cmsg_type = UDP_SEGMENT;
	c->cmsg_len = CMSG_LEN(sizeof(each));
	memcpy(CMSG_DATA(c), &each, sizeof(each));
	while (sendmsg(udp, &msg, 0) < 0)
		if (!has_room_now(udp))
			return -errno;
	return 0;
}

void put_field(void *packet, size_t offset, size_t bytes, uint64_t value)
{
	size_t i;

	for (i = 0; i < bytes; i++)
		((uint8_t *)packet)[offset + i] = (uint8_t)(value >> 8 * (bytes - 1 - i));
}

int fake_open(void)
{
	struct timeval patience = { .tv_sec = PATIENCE_MS / 1000 };
	struct ip_mreqn lo = { .imr_ifindex = (int)if_nametoindex("lo") };
	struct sockaddr_in at;
	int udp = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	loopback(&at, FAKE_PORT);
	setsockopt(udp, IPPROTO_IP, IP_MULTICAST_IF, &lo, sizeof(lo));
	setsockopt(udp, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	return bind(udp, (void *)&at, sizeof(at)) ? -errno : udp;
}

bool is_bound(uint16_t port)
{
	FILE *f = fopen("/proc/net/udp", "r");
	unsigned int found;
	bool bound = false;
	char line[256];

	while (f && fgets(line, sizeof(line), f))
		bound |= sscanf(line, "%*d: %*8x:%x", &found) == 1 && found == port;
	if (f)
		fclose(f);
	return bound;
}

bool is_member(const char *group)
{
	FILE *f = fopen("/proc/net/mcfilter", "r");
	unsigned int at, from;
	bool member = false;
	char line[256];

	while (f && fgets(line, sizeof(line), f))
		member |= sscanf(line, "%*d %*s %x %x", &at, &from) == 2 &&
			  at == ntohl(inet_addr(group)) && from == INADDR_LOOPBACK;
	if (f)
		fclose(f);
	return member;
}

int wait_for_group(const char *at, uint16_t port)
{
	uint64_t start = now_ms();

	while (!is_bound(port) || !is_member(at)) {
		if (now_ms() - start > PATIENCE_MS / 4)
			return -ETIMEDOUT;
		sleep_ms(10);
	}
	return 0;
}

int fake_take_join_packet(int udp, struct sockaddr_in *worker, struct join_packet *p)
{
	socklen_t len = sizeof(*worker);

	return recvfrom(udp, p, sizeof(*p), 0, (void *)worker, &len) == sizeof(*p) &&
			       p->h.op == THC_OP_JOIN ?
		       0 :
		       -EIO;
}

int fake_take_join(int udp, struct sockaddr_in *worker, fake_nonce *nonce)
{
	struct join_packet p;
	int error = fake_take_join_packet(udp, worker, &p);

	if (!error)
		*nonce = nonce_of(&p);
	return error;
}

void fake_forget(int udp)
{
	char packet[2048];

	while (recv(udp, packet, sizeof(packet), MSG_DONTWAIT) > 0)
		;
}

int deliver(int fd, int udp, const struct sockaddr_in *worker, const void *packet, size_t bytes)
{
	uint64_t seen = looked_at(fd), start = now_ms();
	int error = send_one(udp, worker, packet, bytes);

	while (!error && looked_at(fd) == seen) {
		if (now_ms() - start > PATIENCE_MS)
			error = -ETIMEDOUT;
		sleep_ms(1);
	}
	return error;
}

void good_welcome(struct welcome_packet *p, fake_nonce nonce)
{
	memset(&p->h, 0, sizeof(p->h));
	whole_welcome_init(&p->all);
	p->h.version = THC_VERSION;
	p->h.op = THC_OP_WELCOME;
	p->h.job = htobe16(1);
	p->h.rank = htobe16(1);
	p->h.epoch = htobe32(FAKE_EPOCH);
	set_nonce(p, nonce);
	p->all.w.ranks = htobe16(2);
	p->all.w.joined = htobe64(3);
	p->all.w.data_slots = htobe16(FAKE_SLOTS);
	p->all.w.control_slots = htobe16(4);
	p->all.w.reply = THC_REPLY_FANOUT;
	p->all.w.flags = htobe16(THC_WELCOME_F_READY | THC_WELCOME_F_ONE_PORT);
	p->all.seal.seal = THC_SEAL_NH;
	set_salt(p->all.seal.salt, FAKE_EPOCH);
	p->all.row.sum_width = 8;
	p->all.row.granularity = htobe16(30);
	p->all.level[1] = p->all.row.granularity;
	p->all.scheme.block_log2 = THC_BLOCK_LOG2_MIN;
	whole_welcome_hash(&p->all);
}

void fake_seal_to_group(struct welcome_packet *p, const void *group)
{
	set_nonce(p, 0);
	p->all.w.flags &= ~htobe16(THC_WELCOME_F_READY);
	seal_welcome(fake_seals(), &p->h, TO_GROUP_PACKET, group);
}

void fake_challenge(struct challenge_packet *p, fake_nonce nonce, uint8_t first, const void *to)
{
	memset(p, 0, sizeof(*p));
	p->h.version = THC_VERSION;
	p->h.op = THC_OP_CHALLENGE;
	p->h.job = htobe16(1);
	p->h.rank = htobe16(1);
	memcpy(p->c.nonce, &nonce, sizeof(nonce));
	memset(p->c.challenge, 0xc4, sizeof(p->c.challenge));
	p->c.challenge[0] = first;
	seal_welcome(fake_seals(), &p->h, sizeof(*p), to);
}

int fake_join(int fd, int udp, struct sockaddr_in *worker)
{
	struct sockaddr_thc a = fake_place();
	struct welcome_packet p;
	fake_nonce nonce;
	int error;

	fake_forget(udp);
	error = begin_join(fd, &a);
	if (!error)
		error = fake_take_join(udp, worker, &nonce);
	if (error)
		return error;
	good_welcome(&p, nonce);
	fake_seal_welcome(&p, worker);
	error = send_one(udp, worker, &p, sizeof(p));
	return error ? error : end_join(fd);
}

int fake_take(int udp, struct chunk_packet *p, int ms)
{
	do {
		if (wait_for(udp, POLLIN, ms))
			return -EAGAIN;
		if (recv(udp, p, sizeof(*p), 0) < (ssize_t)sizeof(p->h))
			return -EIO;
	} while (p->h.op == THC_OP_JOIN || p->h.op == THC_OP_LEAVE);
	return 0;
}

int fake_take_chunk(int udp, struct chunk_packet *p, uint32_t chunk)
{
	int error;

	do {
		error = fake_take(udp, p, PATIENCE_MS);
	} while (!error && be32toh(p->h.chunk) != chunk);
	return error;
}

void fake_answer(struct chunk_packet *out, const struct thc_hdr *request, uint64_t ranks,
		 uint8_t value)
{
	out->h = *request;
	out->h.flags = THC_F_ANSWER;
	out->h.rank = 0;
	out->h.count = htobe16((uint16_t)__builtin_popcountll(ranks));
	out->h.bitmap = htobe64(ranks);
	memset(out->lanes, value, sizeof(out->lanes));
	seal_answer(fake_seals(), &out->h, sizeof(*out));
}
