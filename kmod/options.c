// SPDX-License-Identifier: GPL-2.0
/*
 * Socket options of SOL_THC.
 */
#include <linux/capability.h>
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/sockptr.h>
#include <linux/string.h>

#include "calls.h"
#include "sock.h"
#include "wait.h"

/* Reads the value. Called without locks: a fault on the caller's memory may take long. */
static int get_value(int option, sockptr_t from, unsigned int len, u64 *value)
{
	u32 word;

	if (option > THC_OPT_PARTIAL || option < THC_OPT_TIMEOUT)
		return -ENOPROTOOPT;
	if (len != (option == THC_OPT_MEMORY ? sizeof(*value) : sizeof(word)))
		return -EINVAL;
	if (option == THC_OPT_MEMORY)
		return copy_from_sockptr(value, from, sizeof(*value)) ? -EFAULT : 0;
	if (copy_from_sockptr(&word, from, sizeof(word)))
		return -EFAULT;
	*value = word;
	return 0;
}

/* @len 0: the socket forgets its key. The job that it is in keeps the keys derived from it. */
static int set_key(struct thc_sock *ts, sockptr_t from, unsigned int len)
{
	u8 key[THC_KEY_BYTES] = { 0 };
	int error = 0;

	if (len && len != sizeof(key))
		return -EINVAL;
	/* without locks, as every value */
	if (copy_from_sockptr(key, from, len)) {
		error = -EFAULT;
	} else {
		lock_sock(&ts->sk);
		memcpy(ts->key, key, sizeof(key));
		ts->has_key = len;
		release_sock(&ts->sk);
	}
	/* the stack will be reused */
	memzero_explicit(key, sizeof(key));
	return error;
}

void thc_forget_key(struct thc_sock *ts)
{
	sock_owned_by_me(&ts->sk);
	ts->has_key = false;
	memzero_explicit(ts->key, sizeof(ts->key));
	memzero_explicit(&ts->join_key, sizeof(ts->join_key));
}

static int set_memory(struct thc_sock *ts, u64 bytes)
{
	if (!bytes)
		return -EINVAL;
	/* the memory is the host's, and any user may be root of a user namespace */
	if (bytes > THC_MEMORY_DEFAULT && !capable(CAP_NET_ADMIN))
		return -EPERM;
	if (bytes > THC_MEMORY_MAX)
		return -EINVAL;
	spin_lock_bh(&ts->lock);
	ts->memory = bytes;
	/* the refused message may never fit now: sendmsg() says so */
	ts->refused = 0;
	thc_wake_senders(ts);
	spin_unlock_bh(&ts->lock);
	return 0;
}

static int write_option(struct thc_sock *ts, int option, u64 value)
{
	switch (option) {
	case THC_OPT_TIMEOUT:
		if (!value)
			return -EINVAL;
		WRITE_ONCE(ts->timeout_ms, value);
		return 0;
	case THC_OPT_JOIN_TIMEOUT:
		if (!value)
			return -EINVAL;
		ts->join_timeout_ms = value;
		return 0;
	case THC_OPT_WINDOW:
		if (value > THC_SLOTS_MAX)
			return -EINVAL;
		WRITE_ONCE(ts->window, value);
		return 0;
	case THC_OPT_MEMORY:
		return set_memory(ts, value);
	case THC_OPT_PARTIAL:
		if (value > 1)
			return -EINVAL;
		WRITE_ONCE(ts->partial, value);
		return 0;
	}
	return -ENOPROTOOPT;
}

int thc_setsockopt(struct socket *sock, int level, int option, sockptr_t from, unsigned int len)
{
	u64 value;
	int error;

	if (level != SOL_THC)
		return -ENOPROTOOPT;
	if (option == THC_OPT_KEY)
		return set_key(thc_sk(sock->sk), from, len);
	error = get_value(option, from, len, &value);
	if (error)
		return error;
	lock_sock(sock->sk);
	error = write_option(thc_sk(sock->sk), option, value);
	release_sock(sock->sk);
	return error;
}

union option_value {
	u32			word;
	u64			bytes;
	struct thc_socket_stats	stats;
	struct thc_failure	failure;
};

/* Returns the value's size, or an error. */
static int read_option(struct thc_sock *ts, int option, union option_value *v)
{
	sock_owned_by_me(&ts->sk);
	lockdep_assert_held(&ts->lock);
	switch (option) {
	case THC_OPT_TIMEOUT:
		v->word = ts->timeout_ms;
		return sizeof(v->word);
	case THC_OPT_JOIN_TIMEOUT:
		v->word = ts->join_timeout_ms;
		return sizeof(v->word);
	case THC_OPT_WINDOW:
		v->word = ts->window;
		return sizeof(v->word);
	case THC_OPT_PARTIAL:
		v->word = ts->partial;
		return sizeof(v->word);
	case THC_OPT_MEMORY:
		v->bytes = ts->memory;
		return sizeof(v->bytes);
	case THC_OPT_STATS:
		thc_show_stats(ts, &v->stats);
		return sizeof(v->stats);
	case THC_OPT_FAILURE:
		v->failure = ts->failure;
		return sizeof(v->failure);
	}
	return -ENOPROTOOPT;
}

/* Copies the first aggregator's last whole WELCOME, with its records, to *@job, if there is one.
 * The caller frees *@job with kvfree(). Returns its size, or an error.
 */
static int read_job(struct thc_sock *ts, struct thc_job_info **job)
{
	const struct thc_parts *p;
	struct thc_job_info *info;
	int size = -ENOTCONN;

	sock_owned_by_me(&ts->sk);
	/* a packet may bring another one until the socket is ready */
	info = kvmalloc(sizeof(*info) + THC_RECORDS_MAX, GFP_KERNEL_ACCOUNT);
	if (!info)
		return -ENOMEM;
	spin_lock_bh(&ts->lock);
	p = ts->shards ? &ts->peers[0]->joining.parts : NULL;
	if (p && thc_parts_whole(p)) {
		*info = p->info;
		info->shards = ts->shards;
		memcpy(info + 1, p->record, p->info.bytes);
		size = sizeof(*info) + p->info.bytes;
	}
	spin_unlock_bh(&ts->lock);
	*job = info;
	return size;
}

int thc_getsockopt(struct socket *sock, int level, int option, sockopt_t *opt)
{
	struct thc_sock *ts = thc_sk(sock->sk);
	union option_value value = { 0 };
	struct thc_job_info *job = NULL;
	int size;

	if (level != SOL_THC)
		return -ENOPROTOOPT;
	lock_sock(sock->sk);
	if (option == THC_OPT_WELCOME) {
		size = read_job(ts, &job);
	} else {
		spin_lock_bh(&ts->lock);
		size = read_option(ts, option, &value);
		spin_unlock_bh(&ts->lock);
	}
	release_sock(sock->sk);
	/* the caller's memory may take its time to come: without locks */
	if (size > 0 && opt->optlen < size)
		size = -EINVAL;
	if (size > 0 && copy_to_iter(job ? (void *)job : &value, size, &opt->iter_out) != size)
		size = -EFAULT;
	kvfree(job);
	if (size < 0)
		return size;
	opt->optlen = size;
	return 0;
}
