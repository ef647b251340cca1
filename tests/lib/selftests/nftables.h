/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Adds a packet filter's rule by nftables' netlink (libmnl): it judges a user's outgoing packets.
 * The tool nft is not needed.
 */
#ifndef THC_SELFTESTS_NFTABLES_H
#define THC_SELFTESTS_NFTABLES_H

#include <arpa/inet.h>
#include <errno.h>
#include <libmnl/libmnl.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

/* Packets out whose owner's @key (NFT_META_SKUID, NFT_META_SKGID) is @number are dropped. */
int nft_drop(enum nft_meta_keys key, uint32_t number);

int nft_drop_no_more(void);

#endif /* THC_SELFTESTS_NFTABLES_H */
