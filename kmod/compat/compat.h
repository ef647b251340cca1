/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What differs between the kernels this module is built for. Kbuild probes
 * the kernel's headers and defines THC_HAVE_*; nothing elsewhere asks for a
 * version.
 */
#ifndef THC_KMOD_COMPAT_H
#define THC_KMOD_COMPAT_H

#include <net/udp_tunnel.h>

/* encap_err_rcv() has been told the error itself since 6.7. */
#ifdef THC_HAVE_ENCAP_ERR_ERRNO
#define THC_DEFINE_ENCAP_ERR_RCV(name, report)						\
	static void name(struct sock *sk, struct sk_buff *skb, int err, __be16 port, u32 info, \
			 u8 *payload) \
	{ \
		report(sk, err); \
	}
#else
#define THC_DEFINE_ENCAP_ERR_RCV(name, report)						\
	static void name(struct sock *sk, struct sk_buff *skb, unsigned int udp_offset) \
	{ \
		report(sk, EHOSTUNREACH); \
	}
#endif

#endif /* THC_KMOD_COMPAT_H */
