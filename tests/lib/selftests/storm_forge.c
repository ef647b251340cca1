// SPDX-License-Identifier: GPL-2.0
#include "storm_forge.h"

#define FORGED_MAX	(sizeof(struct thc_hdr) + THC_LANE_BYTES + 8)
/* Packets of a train. */
#define FORGED_TRAIN	8

/**
 * struct forger - a process that forges packets
 * @seals: seals of each job, in the epoch of @salt
 * @end4, @end6: addresses that its packets come from
 */
struct forger {
	struct storm	*storm;
	struct rng	rng;
	struct job_seals seals[JOBS];
	uint8_t		salt[JOBS][THC_SALT_BYTES];
	struct sockaddr_in end4;
	struct sockaddr_in6 end6;
	int		udp4;
	int		udp6;
	int		raw4;
	int		raw6;
	/* header for raw sockets, and the packets behind it */
	struct udphdr	udp;
	uint8_t		packets[FORGED_TRAIN * FORGED_MAX];
};

/* A train's job and direction: to the workers, or to their aggregator. */
struct aim {
	unsigned int	job;
	bool		down;
	const void	*to;
};

/* Seals of the epoch that the job had lately. */
static const struct job_seals *seals_of(struct forger *f, unsigned int job)
{
	const struct target *t = &f->storm->target[job];
	struct job_seals *s = &f->seals[job];

	if (!s->seal || memcmp(f->salt[job], t->salt, sizeof(t->salt))) {
		memcpy(f->salt[job], t->salt, sizeof(t->salt));
		job_seals_set(s, job_key, (uint16_t)job, f->salt[job]);
	}
	return s;
}

/* The answer, or the request, of a chunk that is in flight, or soon will be. */
static void forge_right_one(struct forger *f, uint8_t *packet, const struct aim *a)
{
	const struct target *t = &f->storm->target[a->job];
	const struct job_seals *s = seals_of(f, a->job);
	struct thc_hdr *h = (void *)packet;
	uint32_t chunk = t->chunk + below(&f->rng, 4);
	size_t i;

	memset(h, 0, sizeof(*h));
	h->version = THC_VERSION;
	h->op = t->op ?: THC_OP_ADD;
	h->width = t->width ?: 8;
	h->flags = a->down ? THC_F_ANSWER : 0;
	h->key_id = a->down ? s->down.id : s->up.id;
	h->job = htobe16((uint16_t)a->job);
	h->rank = htobe16((uint16_t)(a->down ? 0 : below(&f->rng, RANKS)));
	h->epoch = htobe32(t->epoch);
	h->round = htobe32(t->round);
	h->chunk = htobe32(chunk);
	h->slot = htobe16((uint16_t)(chunk % JOB_SLOTS));
	h->generation = htobe32(chunk / JOB_SLOTS);
	h->count = htobe16(a->down ? RANKS : 0);
	h->bitmap = htobe64(a->down ? (1 << RANKS) - 1 : 0);
	for (i = sizeof(*h); i < FORGED_MAX; i += 8)
		memcpy(packet + i, &(uint64_t){ draw(&f->rng) }, 8);
}

static void spoil_field(struct forger *f, struct thc_hdr *h)
{
	static const uint8_t ops[] = { THC_OP_WAIT, THC_OP_STALE, THC_OP_WELCOME, THC_OP_LEAVE,
				       THC_OP_CLOSE };

	switch (below(&f->rng, 8)) {
	case 0:
		h->op = ops[below(&f->rng, 5)];
		break;
	case 1:
		h->width = (uint8_t)(4 << below(&f->rng, 4));
		break;
	case 2:
		h->flags = (uint8_t)draw(&f->rng);
		break;
	case 3:
		h->rank = htobe16((uint16_t)draw(&f->rng));
		break;
	case 4:
		h->epoch = htobe32(be32toh(h->epoch) + below(&f->rng, 3) - 1);
		break;
	case 5:
		h->chunk = htobe32(be32toh(h->chunk) + below(&f->rng, 200) - 100);
		break;
	case 6:
		h->count = htobe16((uint16_t)draw(&f->rng));
		break;
	default:
		((uint8_t *)h)[below(&f->rng, sizeof(*h))] ^= (uint8_t)(1 + below(&f->rng, 255));
	}
}

/* Computes the right tag of data or an answer, whatever key the packet names. */
static void tag(struct forger *f, const struct aim *a, struct thc_hdr *h, size_t bytes)
{
	struct job_seals s = *seals_of(f, a->job);

	if (!a->down)
		s.down = s.up;
	tag_answer(&s, h, bytes);
}

/* Seals the packet by the right key. A JOIN gets the form of a worker's JOIN. */
static void seal_right(struct forger *f, const struct aim *a, struct thc_hdr *h, size_t bytes)
{
	const void *here = job_is_v6(a->job) ? (void *)&f->end6 : (void *)&f->end4;
	struct thc_join *j = (void *)(h + 1);

	if (h->op == THC_OP_JOIN && bytes == sizeof(*h) + sizeof(*j)) {
		j->flags = 0;
		j->offers = htobe32(THC_OFFER_SEAL(THC_SEAL_NH));
		j->workers = 0;
		j->reserved = 0;
		j->restarted = htobe16(THC_WORKER_NONE);
		memset(j->reserved2, 0, sizeof(j->reserved2));
		seal_join(seals_of(f, a->job), h, bytes, here);
	} else if (h->op == THC_OP_WELCOME && bytes > sizeof(*h)) {
		seal_welcome(seals_of(f, a->job), h, bytes, a->to);
	} else {
		tag(f, a, h, bytes);
	}
}

/* A part of WELCOME, mostly of good form. */
static void make_welcome(struct forger *f, struct thc_hdr *h)
{
	struct thc_welcome *w = (void *)(h + 1);

	h->op = THC_OP_WELCOME;
	w->parts = (uint8_t)(1 + below(&f->rng, 3));
	w->part = (uint8_t)below(&f->rng, 3);
	w->reserved = 0;
}

/* Forges a packet of a job that anybody may disturb; returns its bytes. */
static size_t forge_wild(struct forger *f, uint8_t *packet, const struct aim *a)
{
	/* 48 and: WELCOME's fixed part, or a JOIN; WELCOME to the group; all records */
	static const size_t sizes[] = { 1,   47,  48,  48,  49,	  56,	64,   112,
					112, 136, 232, 232, 1072, 1072, 1072, 1080 };
	size_t bytes = sizes[below(&f->rng, sizeof(sizes) / sizeof(sizes[0]))];
	struct thc_hdr *h = (void *)packet;
	unsigned int spoilt = below(&f->rng, 4);

	if (bytes > 64 && bytes < sizeof(*h) + THC_LANE_BYTES)
		make_welcome(f, h);
	/* which is challenged, and ends nothing */
	if (bytes == sizeof(*h) + sizeof(struct thc_join) && one_in(&f->rng, 2))
		h->op = THC_OP_JOIN;
	while (spoilt--)
		spoil_field(f, h);
	if (bytes >= sizeof(*h) && !one_in(&f->rng, 3))
		seal_right(f, a, h, bytes);
	return bytes;
}

/* Bytes of a packet that has to be refused. */
static size_t forge_harmless(struct forger *f, uint8_t *packet, const struct aim *a)
{
	static const uint8_t ops[] = { 0, 5, 9, 15, THC_OP_CLOSE, 22, 99, 255 };
	static const uint8_t header_only[] = { THC_OP_WAIT, THC_OP_STALE };
	size_t bytes = sizeof(struct thc_hdr) + THC_LANE_BYTES;
	struct thc_hdr *h = (void *)packet;
	bool sound = true;

	switch (below(&f->rng, 8)) {
	case 0:
		h->key_id ^= htobe32(1U << below(&f->rng, 32));
		break;
	case 1:
		h->version ^= (uint8_t)(1 + below(&f->rng, 255));
		break;
	case 2:
		h->op = ops[below(&f->rng, sizeof(ops))];
		break;
	case 3:
		h->width = 7;
		break;
	case 4:
		/* an epoch or a rank that does not exist */
		h->epoch = htobe32(be32toh(h->epoch) + (a->down ? 1 + below(&f->rng, 9) : 0));
		h->rank = a->down ? h->rank : htobe16((uint16_t)(RANKS + below(&f->rng, 200)));
		break;
	case 5:
		bytes = 8 * (1 + below(&f->rng, (unsigned int)(bytes / 8) - 1));
		/* a header alone could be meant */
		bytes += bytes == sizeof(*h) ? 8 : 0;
		break;
	case 6:
		h->op = header_only[below(&f->rng, 2)];
		bytes = sizeof(*h);
		sound = false;
		break;
	default:
		sound = false;
	}
	if (bytes >= sizeof(*h))
		tag(f, a, h, bytes);
	if (!sound)
		h->tag ^= htobe64(1 + below(&f->rng, 0xfffffffe));
	return bytes;
}

/* Where packets of a job go. */
static const void *destination(struct forger *f, unsigned int job, bool down)
{
	static struct sockaddr_in in;
	static struct sockaddr_in6 in6;
	uint16_t port = down ? f->storm->target[job].port[below(&f->rng, RANKS)] : PORT;

	if (job_is_v6(job)) {
		in6 = (struct sockaddr_in6){ .sin6_family = AF_INET6, .sin6_port = htons(port) };
		inet_pton(AF_INET6, down ? WORKERS6 : AGGREGATOR6, &in6.sin6_addr);
		return &in6;
	}
	in = (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons(port) };
	inet_pton(AF_INET, down ? WORKERS4 : AGGREGATOR4, &in.sin_addr);
	return &in;
}

static const void *group_of(const struct target *t)
{
	static struct sockaddr_in in;

	in = (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons(t->group_port),
				   .sin_addr = t->group };
	return &in;
}

/* Forges one packet, or a train of packets of one length. */
static size_t forge_train(struct forger *f, const struct aim *a, int *segment)
{
	unsigned int packets = one_in(&f->rng, 4) ? FORGED_TRAIN : 1, i;
	_Alignas(8) uint8_t packet[FORGED_MAX];
	size_t bytes = 0, each = 0;

	for (i = 0; i < packets; i++) {
		size_t now;

		forge_right_one(f, packet, a);
		now = a->job < JOB_KILLED ? forge_harmless(f, packet, a) : forge_wild(f, packet, a);
		if (!i)
			each = now;
		else if (now != each)
			continue;
		memcpy(f->packets + bytes, packet, each);
		bytes += each;
	}
	*segment = bytes > each ? (int)each : 0;
	return bytes;
}

/* One packet to @to from thcd's port. */
static int send_raw(struct forger *f, bool v6, const void *to, size_t bytes)
{
	union {
		struct sockaddr_in in;
		struct sockaddr_in6 in6;
	} host = { .in6.sin6_port = 0 };
	uint16_t *port = v6 ? &host.in6.sin6_port : &host.in.sin_port;

	memcpy(&host, to, v6 ? sizeof(host.in6) : sizeof(host.in));
	f->udp = (struct udphdr){ .source = htons(PORT), .dest = *port,
				  .len = htons((uint16_t)(sizeof(f->udp) + bytes)) };
	/* in raw sockets the port field is the protocol */
	*port = 0;
	return send_one(v6 ? f->raw6 : f->raw4, &host, &f->udp, sizeof(f->udp) + bytes);
}

static void forge(struct forger *f, bool down)
{
	unsigned int job = 1 + below(&f->rng, JOBS - 1);
	const struct target *t = &f->storm->target[job];
	bool group = down && t->group_port && one_in(&f->rng, 2);
	int udp = job_is_v6(job) ? f->udp6 : f->udp4, segment;
	const void *to = group ? group_of(t) : destination(f, job, down);
	const struct aim aim = { job, down, to };
	size_t bytes = forge_train(f, &aim, &segment);
	int error;

	if (down && !t->port[0])
		return;
	if (down && !segment && one_in(&f->rng, 2)) {
		error = send_raw(f, job_is_v6(job), to, bytes);
	} else {
		setsockopt(udp, IPPROTO_UDP, UDP_SEGMENT, &segment, sizeof(segment));
		error = send_one(udp, to, f->packets, bytes);
	}
	note(f->storm, group ? FORGED_GROUP : down ? FORGED_DOWN : FORGED_UP, -error);
}

/* A JOIN's tag covers its sender, so the sockets are bound. */
static int bind_ends(struct forger *f, bool aggregator)
{
	socklen_t len4 = sizeof(f->end4), len6 = sizeof(f->end6);

	f->end4 = (struct sockaddr_in){ .sin_family = AF_INET };
	inet_pton(AF_INET, aggregator ? AGGREGATOR4 : WORKERS4, &f->end4.sin_addr);
	f->end6 = (struct sockaddr_in6){ .sin6_family = AF_INET6 };
	inet_pton(AF_INET6, aggregator ? AGGREGATOR6 : WORKERS6, &f->end6.sin6_addr);
	return bind(f->udp4, (void *)&f->end4, len4) || bind(f->udp6, (void *)&f->end6, len6) ||
	       getsockname(f->udp4, (void *)&f->end4, &len4) ||
	       getsockname(f->udp6, (void *)&f->end6, &len6);
}

int run_forger(struct storm *s, struct rng r, bool aggregator)
{
	static struct forger f;
	struct ip_mreqn where = { 0 };
	int checksum_at = offsetof(struct udphdr, check);

	f.storm = s;
	f.rng = r;
	f.udp4 = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	f.udp6 = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	f.raw4 = socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_UDP);
	f.raw6 = socket(AF_INET6, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_UDP);
	inet_pton(AF_INET, aggregator ? AGGREGATOR4 : WORKERS4, &where.imr_address);
	if (f.udp4 < 0 || f.udp6 < 0 || f.raw4 < 0 || f.raw6 < 0 || bind_ends(&f, aggregator) ||
	    setsockopt(f.udp4, IPPROTO_IP, IP_MULTICAST_IF, &where, sizeof(where)) ||
	    setsockopt(f.raw4, IPPROTO_IP, IP_MULTICAST_IF, &where, sizeof(where)) ||
	    setsockopt(f.raw6, IPPROTO_IPV6, IPV6_CHECKSUM, &checksum_at, sizeof(checksum_at)))
		return 1;
	for (;;) {
		forge(&f, aggregator || one_in(&f.rng, 8));
		usleep(1 + below(&f.rng, 10000));
	}
}
