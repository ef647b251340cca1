/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What differs between the kernels this module is built for. Kbuild probes
 * the kernel's headers and defines THC_HAVE_*; nothing elsewhere asks for a
 * version.
 */
#ifndef THC_KMOD_COMPAT_H
#define THC_KMOD_COMPAT_H

#include <linux/btf.h>
#include <linux/btf_ids.h>
#include <linux/module.h>
#include <net/udp_tunnel.h>

#include <linux/icmpv6.h>
#include <linux/udp.h>
#include <net/icmp.h>

/* encap_err_rcv() has been told the error itself since 6.7. @report gets the socket, the packet that
 * says so, whose data begins with the IP header of the packet that did not arrive, the error, and
 * the UDP port to which that one was sent.
 */
#ifdef THC_HAVE_ENCAP_ERR_ERRNO
#define THC_DEFINE_ENCAP_ERR_RCV(name, report)							\
	static void name(struct sock *sk, struct sk_buff *skb, int err, __be16 port, u32 info,	\
			 u8 *payload)								\
	{											\
		report(sk, skb, err, port);							\
	}
#else
static inline int thc_icmp_error(struct sk_buff *skb)
{
	const struct icmphdr *h = icmp_hdr(skb);
	int error = EHOSTUNREACH;

	if (skb->protocol == htons(ETH_P_IPV6))
		icmpv6_err_convert(icmp6_hdr(skb)->icmp6_type, icmp6_hdr(skb)->icmp6_code, &error);
	else if (h->type == ICMP_DEST_UNREACH && h->code <= NR_ICMP_UNREACH)
		error = icmp_err_convert[h->code].errno;
	return error;
}

#define THC_DEFINE_ENCAP_ERR_RCV(name, report)							\
	static void name(struct sock *sk, struct sk_buff *skb, unsigned int udp_offset)		\
	{											\
		report(sk, skb, thc_icmp_error(skb),						\
		       ((const struct udphdr *)(skb->data + udp_offset))->dest);		\
	}
#endif

/* Functions for BPF are marked since 6.3, sets of them since 6.9. */
#ifndef __bpf_kfunc
#define __bpf_kfunc __used noinline
#endif
#ifndef BTF_KFUNCS_START
#define BTF_KFUNCS_START(name)	BTF_SET8_START(name)
#define BTF_KFUNCS_END(name)	BTF_SET8_END(name)
#endif

/* Registering functions of a module without BTF makes the kernel complain. */
static inline bool thc_module_has_btf(const struct module *module)
{
#ifdef CONFIG_DEBUG_INFO_BTF_MODULES
	return module->btf_data_size;
#else
	return false;
#endif
}

/* Who takes packets from a socket's queue in a softirq must not poll devices for more, as
 * the host's net.core.busy_read would have every new socket do.
 */
static inline void thc_never_poll(struct sock *sk)
{
#ifdef CONFIG_NET_RX_BUSY_POLL
	WRITE_ONCE(sk->sk_ll_usec, 0);
#endif
}

/* User-mode Linux has the registers that its host has. */
#ifdef CONFIG_UML
#define cpu_has_xfeatures(features, name)	true
#endif

#endif /* THC_KMOD_COMPAT_H */
