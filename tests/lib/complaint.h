/* SPDX-License-Identifier: GPL-2.0 */
/* ICMP in the network's name, which whoever may open a raw socket can forge. */
#ifndef THC_TESTS_COMPLAINT_H
#define THC_TESTS_COMPLAINT_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/ip_icmp.h>
#include <stdint.h>

#include <linux/udp.h>

/* The port cannot be reached; what was sent there. */
struct complaint {
	struct icmphdr	icmp;
	struct iphdr	ip;
	struct udphdr	udp;
};

static inline uint16_t complaint_checksum(const void *data, size_t bytes)
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

/* For @worker: its packet to @at:@port did not arrive. */
static inline struct complaint complaint_about(const struct sockaddr_in *worker, const char *at,
					       int port)
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

	c.ip.check = complaint_checksum(&c.ip, sizeof(c.ip));
	c.icmp.checksum = complaint_checksum(&c, sizeof(c));
	return c;
}

#endif /* THC_TESTS_COMPLAINT_H */
