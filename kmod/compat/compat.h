/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What differs between the kernels this module is built for. Kbuild probes
 * the kernel's headers and defines THC_HAVE_*; nothing elsewhere asks for a
 * version. Releases named below are upstream's: stable kernels take over some
 * of their changes, as Debian's 6.12 has the getsockopt() of 7.1.
 */
#ifndef THC_KMOD_COMPAT_H
#define THC_KMOD_COMPAT_H

#include <linux/btf.h>
#include <linux/btf_ids.h>
#include <linux/hrtimer.h>
#include <linux/icmpv6.h>
#include <linux/module.h>
#include <linux/net.h>
#include <linux/uaccess.h>
#include <linux/udp.h>
#include <linux/uio.h>
#include <net/icmp.h>
#include <net/ipv6.h>
#include <net/sock.h>
#include <net/udp_tunnel.h>

#ifdef THC_HAVE_IPV6_STUB
#include <net/ipv6_stubs.h>
#endif

/* The cgroup that pays for @sk's memory, or NULL: it is the root's, or the kernel does not count
 * what sockets hold (cgroup v1, cgroup.memory=nosocket); since 6.18 there is no field for it
 * without CONFIG_MEMCG.
 */
static inline struct mem_cgroup *thc_memcg_of(const struct sock *sk)
{
#ifdef CONFIG_MEMCG
	return sk->sk_memcg;
#else
	return NULL;
#endif
}

/* Since 6.7, encap_err_rcv() is told the error itself. @report gets the socket, the ICMP packet,
 * whose data begins with the IP header of the packet that did not arrive, the error, and the UDP
 * port to which the latter packet was sent.
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

/* Since 6.15, a timer's function is set together with its clock and mode. */
#ifndef THC_HAVE_HRTIMER_SETUP
static inline void hrtimer_setup(struct hrtimer *timer,
				 enum hrtimer_restart (*function)(struct hrtimer *),
				 clockid_t clock, enum hrtimer_mode mode)
{
	hrtimer_init(timer, clock, mode);
	timer->function = function;
}
#endif

/* A socket has known its owner without a lock since 6.17. */
#ifndef THC_HAVE_SK_UID
static inline kuid_t sk_uid(struct sock *sk)
{
	return sock_i_uid(sk);
}
#endif

/* A packet into a tunnel has had flags for its IP header's control block since 6.17. */
#ifdef THC_HAVE_XMIT4_FLAGS
#define thc_tunnel_xmit4(...)	udp_tunnel_xmit_skb(__VA_ARGS__, 0)
#else
#define thc_tunnel_xmit4(...)	udp_tunnel_xmit_skb(__VA_ARGS__)
#endif
#ifdef THC_HAVE_XMIT6_FLAGS
#define thc_tunnel_xmit6(...)	udp_tunnel6_xmit_skb(__VA_ARGS__, 0)
#else
#define thc_tunnel_xmit6(...)	udp_tunnel6_xmit_skb(__VA_ARGS__)
#endif

/* bind() and connect() have had addresses without a size of their own since 6.19. */
#ifndef THC_HAVE_SOCKADDR_UNSIZED
#define sockaddr_unsized	sockaddr
#endif

/* Tunnels have been set up and released by struct sock, not struct socket, since 7.1. */
#ifdef THC_HAVE_TUNNEL_OF_SOCK
#define thc_tunnel_of(socket)	((socket)->sk)
#else
#define thc_tunnel_of(socket)	(socket)
#endif

/* IPv6 could be a module, behind a table of functions, until 7.1. Both refuse with
 * EAFNOSUPPORT where IPv6 is switched off.
 */
static inline struct dst_entry *thc_route6(struct net *net, const struct sock *sk,
					   struct flowi6 *fl)
{
#ifdef THC_HAVE_IPV6_STUB
	return ipv6_stub->ipv6_dst_lookup_flow(net, sk, fl, NULL);
#else
	return ip6_dst_lookup_flow(net, sk, fl, NULL);
#endif
}

/* Since 7.1, a sockopt_t tells getsockopt() where the value goes and how long it may be. The
 * operation has a name of its own until all protocols are converted.
 */
#ifdef THC_HAVE_GETSOCKOPT_ITER
#define THC_GETSOCKOPT	getsockopt_iter
#else
#define THC_GETSOCKOPT	getsockopt
#endif

#ifdef THC_HAVE_SOCKOPT
#define THC_DEFINE_GETSOCKOPT(name, get)							\
	static int name(struct socket *sock, int level, int option, sockopt_t *opt)		\
	{											\
		return get(sock, level, option, opt);						\
	}
#else
/* The fields of the kernel's struct that a protocol needs. */
typedef struct sockopt {
	struct iov_iter	iter_out;
	int		optlen;
} sockopt_t;

typedef int thc_getsockopt_fn(struct socket *sock, int level, int option, sockopt_t *opt);

static inline int thc_getsockopt_user(thc_getsockopt_fn *get, struct socket *sock, int level,
				      int option, char __user *to, int __user *to_len)
{
	sockopt_t opt;
	int error;

	if (get_user(opt.optlen, to_len))
		return -EFAULT;
	if (opt.optlen < 0)
		return -EINVAL;
	iov_iter_ubuf(&opt.iter_out, ITER_DEST, to, opt.optlen);
	error = get(sock, level, option, &opt);
	if (!error && put_user(opt.optlen, to_len))
		return -EFAULT;
	return error;
}

#define THC_DEFINE_GETSOCKOPT(name, get)							\
	static int name(struct socket *sock, int level, int option, char __user *to,		\
			int __user *to_len)							\
	{											\
		return thc_getsockopt_user(get, sock, level, option, to, to_len);		\
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

/* A socket whose queue is emptied in a softirq must not poll devices for more packets, as the
 * host's net.core.busy_read would have every new socket do.
 */
static inline void thc_never_poll(struct sock *sk)
{
#ifdef CONFIG_NET_RX_BUSY_POLL
	WRITE_ONCE(sk->sk_ll_usec, 0);
#endif
}

/* User-mode Linux has the host's registers, and no cpu_has_xfeatures(). */
#ifdef CONFIG_UML
#define cpu_has_xfeatures(features, name)	true
#endif

#endif /* THC_KMOD_COMPAT_H */
