/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * Generic netlink family "thc": jobs that a host's administrator describes,
 * and what the sockets of a network namespace are doing. The specification is
 * Documentation/netlink/specs/thc.yaml.
 */
#ifndef _UAPI_LINUX_THC_NETLINK_H
#define _UAPI_LINUX_THC_NETLINK_H

#define THC_GENL_NAME		"thc"
#define THC_GENL_VERSION	1

/* Aggregators of one job at most. */
#define THC_GENL_AGGREGATORS_MAX 64
/* Jobs of one network namespace at most. */
#define THC_GENL_JOBS_MAX	256

/*
 * A command refuses attributes that are not named here. Dumps come in parts; if
 * the list changed between two of them (NLM_F_DUMP_INTR), ask again.
 */
enum thc_genl_cmd {
	THC_CMD_UNSPEC,
	THC_CMD_JOB_NEW,	/* CAP_NET_ADMIN: JOB, KEY, AGGREGATOR (some), USERS, GROUPS */
	THC_CMD_JOB_DEL,	/* CAP_NET_ADMIN: JOB; connected sockets go on */
	THC_CMD_JOB_GET,	/* JOB; without it, a dump */
	THC_CMD_SOCKET_GET,	/* dump */
	THC_CMD_STATS_GET,	/* dropped packets, by reason */
	__THC_CMD_END
};
#define THC_CMD_MAX	(__THC_CMD_END - 1)

enum thc_genl_attr {
	THC_ATTR_UNSPEC,
	THC_ATTR_PAD,
	THC_ATTR_JOB,		/* u16 */
	THC_ATTR_KEY,		/* binary, THC_KEY_BYTES; never shown */
	THC_ATTR_AGGREGATOR,	/* nest of THC_AGGR_*, in the order of shards */
	THC_ATTR_SOCKET,	/* nest of THC_SOCK_* */
	THC_ATTR_DROP,		/* nest of THC_REASON_* */
	THC_ATTR_USERS,		/* nest of THC_IDS_*: who may join; default nobody */
	THC_ATTR_GROUPS,	/* nest of THC_IDS_*: groups whose members may join; default none */
	__THC_ATTR_END
};
#define THC_ATTR_MAX	(__THC_ATTR_END - 1)

enum thc_genl_aggr_attr {
	THC_AGGR_UNSPEC,
	THC_AGGR_IPV4,		/* binary, 4 bytes */
	THC_AGGR_IPV6,		/* binary, 16 bytes */
	THC_AGGR_PORT,		/* u16, host order; default THC_PORT_DEFAULT */
	THC_AGGR_IFINDEX,	/* u32 */
	__THC_AGGR_END
};
#define THC_AGGR_MAX	(__THC_AGGR_END - 1)

/*
 * A range of users or groups: numbers of the user namespace that owns the network
 * namespace. CAP_NET_ADMIN joins in any case.
 */
enum thc_genl_ids_attr {
	THC_IDS_UNSPEC,
	THC_IDS_FIRST,		/* u32 */
	THC_IDS_LAST,		/* u32, inclusive; at most 4294967294 */
	__THC_IDS_END
};
#define THC_IDS_MAX	(__THC_IDS_END - 1)

enum thc_genl_sock_attr {
	THC_SOCK_UNSPEC,
	THC_SOCK_PAD,
	THC_SOCK_INODE,		/* u64 */
	THC_SOCK_UID,		/* u32 */
	THC_SOCK_JOB,		/* u16 */
	THC_SOCK_RANK,		/* u8 */
	THC_SOCK_STATE,		/* string: idle, joining, ready, broken */
	THC_SOCK_EPOCH,		/* u32 */
	THC_SOCK_SHARDS,	/* u32 */
	THC_SOCK_STATS,		/* binary, struct thc_socket_stats */
	__THC_SOCK_END
};
#define THC_SOCK_MAX	(__THC_SOCK_END - 1)

enum thc_genl_reason_attr {
	THC_REASON_UNSPEC,
	THC_REASON_PAD,
	THC_REASON_NAME,	/* string, as in thcctl stats */
	THC_REASON_PACKETS,	/* u64 */
	__THC_REASON_END
};
#define THC_REASON_MAX	(__THC_REASON_END - 1)

#endif /* _UAPI_LINUX_THC_NETLINK_H */
