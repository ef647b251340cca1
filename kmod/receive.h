/* SPDX-License-Identifier: GPL-2.0 */
/* Packets in. */
#ifndef THC_KMOD_RECEIVE_H
#define THC_KMOD_RECEIVE_H

struct sock;

/* sk_data_ready of both UDP sockets of a peer: thc_peer_open() gets it. */
void thc_receive(struct sock *sk);

#endif /* THC_KMOD_RECEIVE_H */
