// SPDX-License-Identifier: GPL-2.0
/*
 * The kernel's UDP sockets to one aggregator: one for requests and answers to
 * this rank, one for answers to the group. They live in the network namespace
 * of the AF_THC socket, which keeps it alive.
 */
#include <linux/cred.h>
#include <linux/err.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/gfp.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <linux/udp.h>
#include <net/addrconf.h>
#include <net/route.h>
#include <net/udp.h>
#include <net/udp_tunnel.h>

#include "compat/compat.h"
#include "sock.h"

/* Any type but 0 makes UDP report ICMP errors to a socket that is not connected. */
#define ENCAP_THC	1
/* SO_RCVBUF, of which the kernel makes twice as much. Packets leave the queue at once, but it has
 * to hold 60 coalesced ones, and those that other CPUs add.
 */
#define RECEIVE_BYTES	(4 << 20)
/* A UDP socket with its inode, dentry and file, none of which a limit on file descriptors counts:
 * what slabs take for them, and a little more.
 */
#define UDP_SOCKET_BYTES	4096
/* What a peer is charged with: whole pages for itself, and both of its sockets. */
#define PEER_BYTES ((PAGE_SIZE << get_order(sizeof(struct thc_peer))) + 2 * UDP_SOCKET_BYTES)

bool thc_peer_is_at(const struct thc_peer *p, __be16 protocol, const void *address, __be16 port)
{
	u16 above = be16_to_cpu(port) - p->sender.port;

	if (above >= THC_PORT_SPAN)
		return false;
	if (protocol == htons(ETH_P_IP))
		return p->address.inet == AF_INET && *(const __be32 *)address == p->address.in;
	return p->address.inet == AF_INET6 && ipv6_addr_equal(address, &p->address.in6);
}

/* ICMP says that a packet to @port has not arrived. The packet has to be one for our aggregator, or
 * anybody who knows our port could forge the error.
 */
static void on_error(struct sock *sk, const struct sk_buff *skb, int error, __be16 port)
{
	struct thc_peer *p = rcu_dereference_sk_user_data(sk);
	const void *to;

	if (!p || !error)
		return;
	to = skb->protocol == htons(ETH_P_IP) ?
		     (const void *)&((const struct iphdr *)skb->data)->daddr :
		     &((const struct ipv6hdr *)skb->data)->daddr;
	if (!thc_peer_is_at(p, skb->protocol, to, port))
		return;
	spin_lock_bh(&p->owner->lock);
	thc_sender_unreachable(&p->sender, error, ktime_get_ns());
	spin_unlock_bh(&p->owner->lock);
}

THC_DEFINE_ENCAP_ERR_RCV(thc_encap_err_rcv, on_error)

static int set_int(struct socket *sock, int level, int option, int value)
{
	return READ_ONCE(sock->ops)->setsockopt(sock, level, option, KERNEL_SOCKPTR(&value),
						sizeof(value));
}

static int sockaddr_of(const struct thc_address *a, struct sockaddr_storage *out)
{
	struct sockaddr_in *in = (void *)out;
	struct sockaddr_in6 *in6 = (void *)out;

	memset(out, 0, sizeof(*out));
	if (a->inet == AF_INET) {
		in->sin_family = AF_INET;
		in->sin_port = a->port;
		in->sin_addr.s_addr = a->in;
		return sizeof(*in);
	}
	in6->sin6_family = AF_INET6;
	in6->sin6_port = a->port;
	in6->sin6_addr = a->in6;
	in6->sin6_scope_id = a->ifindex;
	return sizeof(*in6);
}

/* An address that a BPF program may have changed. */
static void read_address(const struct sockaddr_storage *from, struct thc_address *a)
{
	const struct sockaddr_in *in = (const void *)from;
	const struct sockaddr_in6 *in6 = (const void *)from;

	if (a->inet == AF_INET) {
		a->port = in->sin_port;
		a->in = in->sin_addr.s_addr;
	} else {
		a->port = in6->sin6_port;
		a->in6 = in6->sin6_addr;
	}
}

/* --- a UDP socket --------------------------------------------------------- */

/* Packets of @sock come to @ready, as soon as it is bound. */
static void receive_from(struct thc_peer *p, struct socket *sock, thc_peer_ready *ready)
{
	struct udp_tunnel_sock_cfg cfg = {
		.sk_user_data = p,
		.encap_type = ENCAP_THC,
		.encap_err_rcv = thc_encap_err_rcv,
	};

	if (p->address.inet == AF_INET6) {
		set_int(sock, SOL_IPV6, IPV6_V6ONLY, 1);
		set_int(sock, SOL_UDP, UDP_NO_CHECK6_RX, 1);
	}
	sock_set_rcvbuf(sock->sk, RECEIVE_BYTES);
	setup_udp_tunnel_sock(sock_net(sock->sk), thc_tunnel_of(sock), &cfg);
	thc_never_poll(sock->sk);
	WRITE_ONCE(sock->sk->sk_data_ready, ready);
	/* packets of one flow joined on their way up */
	set_int(sock, SOL_UDP, UDP_GRO, 1);
}

/* Credentials of who opened the AF_THC socket. The file lives as long as the socket has peers. */
static const struct cred *opener_of(const struct thc_sock *ts)
{
	const struct file *file = ts->sk.sk_socket->file;

	/* one of the kernel's has no file */
	return file ? file->f_cred : current_cred();
}

/* Makes a UDP socket that is a user's, not the kernel's: the caller's cgroup can filter what it
 * sends, and it holds its namespace, which packets on their way in another one may need later.
 * Firewall rules for a packet's owner read the credentials of the UDP socket's file, and security
 * modules label new objects by the current credentials: both are the opener's.
 */
static int make_socket(struct thc_peer *p, struct socket **out, thc_peer_ready *ready)
{
	const struct cred *caller = override_creds(opener_of(p->owner));
	int error, device = READ_ONCE(p->owner->sk.sk_bound_dev_if);
	struct net *net = sock_net(&p->owner->sk);
	struct socket *sock;
	struct file *file;

	error = __sock_create(net, p->address.inet, SOCK_DGRAM, IPPROTO_UDP, &sock, 0);
	if (!error) {
		/* releases the socket if it fails */
		file = sock_alloc_file(sock, 0, NULL);
		error = PTR_ERR_OR_ZERO(file);
	}
	revert_creds(caller);
	if (error)
		return error;
	*out = sock;
	receive_from(p, sock, ready);
	/* SO_BINDTODEVICE: packets from other interfaces are not for it */
	return device ? sock_bindtoindex(sock->sk, device, true) : 0;
}

static int bind_to(struct socket *sock, const struct thc_address *local)
{
	struct sockaddr_storage address;
	int len = sockaddr_of(local, &address);

	return kernel_bind(sock, (void *)&address, len);
}

/* The port is free, and no packet finds @sock any more. */
static void leave_port(struct socket *sock)
{
	sock->sk->sk_prot->unhash(sock->sk);
}

/* Ignores packets from now on. The file may be closed after the module is unloaded, and a packet
 * held on its way may still refer to the socket, so no callback may lead here. The exception is
 * encap_err_rcv: the kernel reads it twice per call, so it cannot be cleared. The kernel calls it
 * for sockets in UDP's tables only, so not after synchronize_net().
 */
static void silence(struct thc_peer *p, struct socket *sock)
{
	if (!sock)
		return;
	leave_port(sock);
	rcu_assign_sk_user_data(sock->sk, NULL);
	WRITE_ONCE(sock->sk->sk_data_ready, READ_ONCE(p->owner->sk.sk_data_ready));
}

/* fput() closes the socket when the caller returns to user space. udp_tunnel_sock_release() would
 * wait for packets under way, once for each socket.
 */
static void release(struct socket *sock)
{
	if (!sock)
		return;
	kernel_sock_shutdown(sock, SHUT_RDWR);
	fput(sock->file);
}

/* --- requests out, answers to this rank in -------------------------------- */

static bool is_ours(struct net *net, const struct thc_address *a)
{
	if (a->inet == AF_INET)
		return !a->in || inet_addr_type(net, a->in) == RTN_LOCAL;
	/* booted with ipv6.disable=1 there are no tables to look in */
	return IS_ENABLED(CONFIG_IPV6) &&
	       (ipv6_addr_any(&a->in6) ||
		(ipv6_mod_enabled() && ipv6_chk_addr(net, &a->in6, NULL, 0)));
}

/* Asks the BPF programs of the caller's cgroup about connect(): they may refuse, or change the
 * address. They see the aggregator's first port.
 */
static int ask_cgroup(struct thc_peer *p)
{
	struct sock *sk = p->unicast->sk;
	struct sockaddr_storage address;
	int len = sockaddr_of(&p->address, &address);
	int error = sk->sk_prot->pre_connect(sk, (void *)&address, len);

	if (error)
		return error;
	/* /proc/net/thc shows it */
	spin_lock_bh(&p->owner->lock);
	read_address(&address, &p->address);
	p->sender.port = be16_to_cpu(p->address.port);
	spin_unlock_bh(&p->owner->lock);
	return p->sender.port && thc_address_is_host(&p->address) ? 0 : -EINVAL;
}

/* A BPF program may have chosen another address than @local. */
static int bind_unicast(struct thc_peer *p)
{
	const struct inet_sock *inet = inet_sk(p->unicast->sk);
	int error = bind_to(p->unicast, &p->local);

	if (error)
		return error;
	p->local.port = inet->inet_sport;
	if (p->local.inet == AF_INET)
		p->local.in = inet->inet_saddr;
#if IS_ENABLED(CONFIG_IPV6)
	else
		p->local.in6 = p->unicast->sk->sk_v6_rcv_saddr;
#endif
	p->sender.end = (struct thc_end){
		.port = p->local.port, .aggregator = cpu_to_be16(p->shard),
	};
	if (p->local.inet == AF_INET)
		p->sender.end.addr = thc_addr_v4(p->local.in);
	else
		memcpy(&p->sender.end.addr, &p->local.in6, sizeof(p->local.in6));
	return 0;
}

static int make_sockets(struct thc_peer *p, thc_peer_ready *ready)
{
	int error = make_socket(p, &p->unicast, ready) ?: make_socket(p, &p->group, ready);

	if (!error)
		sock_set_reuseaddr(p->group->sk);
	return error;
}

/* The local address, and the interface that leads to the aggregator. */
static int find_way(struct thc_peer *p)
{
	const struct thc_address *to = &p->address;
	struct sock *sk = &p->owner->sk;
	int error, device = READ_ONCE(sk->sk_bound_dev_if);
	struct net *net = sock_net(sk);
	struct thc_route r = { 0 };

	p->local = p->owner->bound;
	p->local.inet = to->inet;
	if (to->ifindex)
		p->local.ifindex = to->ifindex;
	else if (!p->local.ifindex)
		p->local.ifindex = device;
	p->oif = p->local.ifindex;
	/* a socket bound to @device would not hear the answers */
	if (device && p->oif != device)
		return -EINVAL;
	if (!is_ours(net, &p->local))
		return -EADDRNOTAVAIL;
	error = thc_route_find(p, NULL, READ_ONCE(sk->sk_mark), be16_to_cpu(to->port), &r);
	if (error)
		return error;
	if (to->inet == AF_INET)
		p->local.in = r.in;
	else if (IS_ENABLED(CONFIG_IPV6) && ipv6_addr_any(&p->local.in6))
		ipv6_dev_get_saddr(net, r.dst->dev, &to->in6, 0, &p->local.in6);
	p->local.ifindex = r.dst->dev->ifindex;
	dst_release(r.dst);
	return 0;
}

/* noinline: key derivation needs large stack frames, gone before the network is called. */
static noinline void set_key(struct thc_peer *p, const u8 *key)
{
	thc_sender_set_key(&p->sender, key);
}

int thc_peer_charge(struct thc_sock *ts, u32 peers)
{
	return thc_memory_charge(ts->user, peers * PEER_BYTES) ? 0 : -ENOBUFS;
}

void thc_peer_uncharge(struct thc_sock *ts, u32 peers)
{
	thc_memory_uncharge(ts->user, peers * PEER_BYTES);
}

struct thc_peer *thc_peer_new(struct thc_sock *ts, u32 shard, const struct thc_address *at,
			      const u8 *key)
{
	struct thc_peer *p = kvzalloc(sizeof(*p), GFP_KERNEL_ACCOUNT);

	sock_owned_by_me(&ts->sk);
	if (!p)
		return NULL;
	p->owner = ts;
	p->address = *at;
	p->shard = shard;
	p->sender.job = ts->remote.sthc_job;
	p->sender.rank = ts->remote.sthc_rank;
	p->sender.port = be16_to_cpu(at->port);
	/* JOIN carries it: the next epoch has to be newer, whatever the aggregator's clock says */
	p->sender.epoch = ts->last_epoch[shard];
	set_key(p, key);
	return p;
}

int thc_peer_open(struct thc_peer *p, thc_peer_ready *ready)
{
	const struct thc_address *bound = &p->owner->bound;
	int error;

	if (bound->inet && bound->inet != p->address.inet)
		return -EAFNOSUPPORT;
	error = make_sockets(p, ready) ?: ask_cgroup(p) ?: find_way(p);
	/* the network lacks memory; -ENOBUFS would mean the module's bounds, charged before */
	if (error == -ENOBUFS)
		return -ENOMEM;
	if (error)
		return error;
	p->wmem_limit = thc_wmem_limit(0);
	return bind_unicast(p);
}

void thc_peer_silence(struct thc_peer *p)
{
	silence(p, p->group);
	silence(p, p->unicast);
}

void thc_peer_free(struct thc_peer *p)
{
	release(p->group);
	release(p->unicast);
	thc_routes_free(p);
	thc_peer_free_flights(p);
	thc_peer_uncharge(p->owner, 1);
	/* with the keys of its sender */
	kvfree_sensitive(p, sizeof(*p));
}

/* --- answers to the group in ---------------------------------------------- */

/* Joins or leaves, as @option says, for packets of the aggregator alone: the kernel drops what
 * others send to the group.
 */
static int set_member(const struct thc_peer *p, struct socket *sock, int option,
		      const struct thc_address *group)
{
	struct group_source_req member = { .gsr_interface = p->local.ifindex };
	int level = group->inet == AF_INET ? SOL_IP : SOL_IPV6;

	sockaddr_of(group, &member.gsr_group);
	sockaddr_of(&p->address, &member.gsr_source);
	if (group->inet == AF_INET)
		set_int(sock, SOL_IP, IP_MULTICAST_ALL, 0);
	return READ_ONCE(sock->ops)->setsockopt(sock, level, option, KERNEL_SOCKPTR(&member),
						sizeof(member));
}

bool thc_peer_group(const struct thc_peer *p, struct thc_address *group)
{
	lockdep_assert_held(&p->owner->lock);
	*group = thc_address_of(&p->joining.spec.group, p->local.ifindex);
	return group->inet == p->address.inet;
}

bool thc_peer_in_group(const struct thc_peer *p, const struct thc_address *group)
{
	lockdep_assert_held(&p->owner->lock);
	return thc_address_equal(&p->group_at, group);
}

/* With the opener's credentials: join_work has those of the kernel, which may bind any port. */
static int bind_group(struct socket *sock, const struct thc_address *group)
{
	const struct cred *worker = override_creds(sock->file->f_cred);
	int error = bind_to(sock, group);

	revert_creds(worker);
	return error;
}

static void set_group(struct thc_peer *p, const struct thc_address *group)
{
	spin_lock_bh(&p->owner->lock);
	p->group_at = *group;
	spin_unlock_bh(&p->owner->lock);
}

/* Leaves the group joined before, if any: a restarted aggregator names another one. */
static void leave_group(struct thc_peer *p)
{
	const struct thc_address none = { 0 }, group = p->group_at;

	if (!group.inet)
		return;
	set_group(p, &none);
	/* to be bound again */
	leave_port(p->group);
	/* fails if the interface has gone: the socket keeps the group, but nobody sends to it */
	set_member(p, p->group, MCAST_LEAVE_SOURCE_GROUP, &group);
}

void thc_peer_join_group(struct thc_peer *p, const struct thc_address *group)
{
	leave_group(p);
	if (bind_group(p->group, group))
		return;
	if (set_member(p, p->group, MCAST_JOIN_SOURCE_GROUP, group))
		leave_port(p->group);
	else
		set_group(p, group);
}

/* Softirqs may still use @p for a packet of the group: thc_disconnect() waits for them. */
void thc_peer_close_group(struct thc_peer *p)
{
	silence(p, p->group);
	release(p->group);
	p->group = NULL;
}

/* --- room for the job's slots --------------------------------------------- */

int thc_peer_charge_flights(struct thc_peer *p)
{
	const struct thc_spec *spec = &p->joining.spec;
	size_t need = (spec->data_slots + spec->control_slots) * sizeof(*p->flights);
	/* what the allocator takes for them */
	size_t bytes = PAGE_SIZE << get_order(need);

	if (!thc_memory_charge(p->owner->user, bytes))
		return -ENOBUFS;
	p->flights_bytes = bytes;
	return 0;
}

/* Charges the flights to the cgroup of the socket's creator, since a work item is in none. Where
 * the kernel does not count socket memory (cgroup v1, cgroup.memory=nosocket) the socket has noted
 * no cgroup: then the flights are charged to none, and thc_memory_charge() alone bounds them.
 */
int thc_peer_alloc_flights(struct thc_peer *p)
{
	struct mem_cgroup *old = set_active_memcg(thc_memcg_of(&p->owner->sk));

	p->flights = kvzalloc(p->flights_bytes, GFP_MESSAGE);
	set_active_memcg(old);
	return p->flights ? 0 : -ENOMEM;
}

void thc_peer_free_flights(struct thc_peer *p)
{
	kvfree(p->flights);
	p->flights = NULL;
	thc_memory_uncharge(p->owner->user, p->flights_bytes);
	p->flights_bytes = 0;
}

void thc_peer_streams(struct thc_peer *p)
{
	const struct thc_spec *spec = &p->joining.spec;
	/* an option, which is set under another lock */
	u32 wanted = READ_ONCE(p->owner->window),
	    window = min_not_zero(wanted, (u32)spec->data_slots);
	const struct thc_sock *ts = p->owner;

	/* no packet is looked at with these keys, nor sealed, before the socket is ready */
	thc_sender_set_epoch(&p->sender, spec, ts->keyed ? ts->job_key : NULL);
	/* the timer may be giving up joining just now */
	spin_lock_bh(&p->owner->lock);
	thc_joining_end(&p->joining, &p->sender, p->flights, window);
	p->wmem_limit = thc_wmem_limit(window + spec->control_slots);
	spin_unlock_bh(&p->owner->lock);
}
