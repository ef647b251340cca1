// SPDX-License-Identifier: GPL-2.0
/*
 * /proc/net/thc: one line for each socket of the network namespace, for
 * people. Programs ask by netlink.
 */
#include <linux/proc_fs.h>
#include <linux/seq_file.h>
#include <net/net_namespace.h>

#include "netns.h"
#include "sock.h"
#include "state.h"

static void *thc_seq_start(struct seq_file *seq, loff_t *pos)
{
	struct thc_net *tn = thc_net_of(seq_file_net(seq));

	mutex_lock(&tn->lock);
	return seq_list_start_head(&tn->sockets, *pos);
}

static void *thc_seq_next(struct seq_file *seq, void *v, loff_t *pos)
{
	return seq_list_next(v, &thc_net_of(seq_file_net(seq))->sockets, pos);
}

static void thc_seq_stop(struct seq_file *seq, void *v)
{
	mutex_unlock(&thc_net_of(seq_file_net(seq))->lock);
}

/* Without lock_sock(): a connect() that waits for the network's locks would stop
 * everybody who needs the list.
 */
static void show_socket(struct seq_file *seq, struct thc_sock *ts)
{
	u64 inode = sock_i_ino(&ts->sk);
	struct thc_socket_stats stats;
	struct thc_address to = { 0 };
	u32 shards;

	spin_lock_bh(&ts->lock);
	shards = ts->shards;
	if (shards)
		to = ts->peers[0]->address;
	thc_show_stats(ts, &stats);
	seq_printf(seq, "%5u %4u %-8s ", ts->remote.sthc_job, ts->remote.sthc_rank,
		   thc_state_name[ts->state]);
	spin_unlock_bh(&ts->lock);
	if (to.inet == AF_INET)
		seq_printf(seq, "%pI4:%u", &to.in, be16_to_cpu(to.port));
	else if (to.inet)
		seq_printf(seq, "[%pI6c]:%u", &to.in6, be16_to_cpu(to.port));
	else
		seq_puts(seq, "-");
	seq_printf(seq, " %u %llu %llu %llu %llu %llu %llu %llu %u %llu\n", shards, stats.messages,
		   stats.chunks, stats.retransmits, stats.window_cuts, stats.window, stats.rtt_us,
		   stats.memory, from_kuid_munged(seq_user_ns(seq), sk_uid(&ts->sk)), inode);
}

static int thc_seq_show(struct seq_file *seq, void *v)
{
	struct thc_sock *ts = list_entry(v, struct thc_sock, list);

	if (v == &thc_net_of(seq_file_net(seq))->sockets) {
		seq_puts(seq, "  job rank state    aggregator shards messages chunks retransmits"
			      " cuts window rtt_us memory uid inode\n");
		return 0;
	}
	show_socket(seq, ts);
	return 0;
}

static const struct seq_operations thc_seq_ops = {
	.start	= thc_seq_start,
	.next	= thc_seq_next,
	.stop	= thc_seq_stop,
	.show	= thc_seq_show,
};

int thc_proc_init(struct net *net)
{
	return proc_create_net("thc", 0444, net->proc_net, &thc_seq_ops,
			       sizeof(struct seq_net_private)) ?
		       0 :
		       -ENOMEM;
}

void thc_proc_exit(struct net *net)
{
	remove_proc_entry("thc", net->proc_net);
}
