// SPDX-License-Identifier: GPL-2.0
/*
 * How much memory the sockets of the host may hold: all of them together, and those of one user. A
 * user may hold no more than it leaves free: half of all if no other user holds anything, a third
 * each if two users take all they can. So users that work together, however many, leave something
 * for one that comes later, which fixed shares would not ensure; and a user that is alone needs no
 * other limit.
 *
 * The kernel has counters by user that know of user namespaces (ucounts), but no module can add one
 * or use one. Only a number for each user that has a socket is needed here.
 */
#include <linux/atomic.h>
#include <linux/capability.h>
#include <linux/cred.h>
#include <linux/err.h>
#include <linux/hashtable.h>
#include <linux/mm.h>
#include <linux/moduleparam.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/user_namespace.h>
#include <linux/workqueue.h>

#include "join.h"
#include "sock.h"

/* Items of join_work of one user that run at once. Each occupies a kernel thread while it waits,
 * and the threads of all queues come from one pool.
 */
#define JOINS_AT_ONCE	16

static unsigned int memory_mib;
module_param(memory_mib, uint, 0644);
MODULE_PARM_DESC(memory_mib, "MiB that all sockets may hold; 0: an eighth of the host's memory");

/**
 * struct thc_user - whose sockets are counted together
 * @hash: in users
 * @uid: see user_of()
 * @sockets: number of sockets that refer to it; under users_lock
 * @held: bytes of the peers, messages and flights of these sockets
 * @queue: runs their join_work, see thc_join_queue_new()
 */
struct thc_user {
	struct hlist_node	hash;
	kuid_t			uid;
	u32			sockets;
	atomic64_t		held;
	struct workqueue_struct	*queue;
};

/* Bytes of all peers, messages and flights of the host. */
static atomic64_t all_held = ATOMIC64_INIT(0);

static DEFINE_HASHTABLE(users, 6);
static DEFINE_SPINLOCK(users_lock);

static u64 host_bound(void)
{
	u64 mib = READ_ONCE(memory_mib);

	return mib ? mib << 20 : (u64)totalram_pages() << PAGE_SHIFT >> 3;
}

/* --- users ---------------------------------------------------------------- */

/* The user to be charged. A user that makes a user namespace may have many numbers in it, and is
 * charged for all of them. Namespaces that the host's root makes (containers) are told apart by the
 * number that their own root has.
 */
static kuid_t user_of(const struct cred *cred)
{
	struct user_namespace *ns = cred->user_ns;
	kuid_t uid = cred->fsuid;

	for (; ns != &init_user_ns; ns = ns->parent)
		uid = uid_eq(ns->owner, GLOBAL_ROOT_UID) ? make_kuid(ns, 0) : ns->owner;
	return uid;
}

static struct thc_user *find(kuid_t uid)
{
	struct thc_user *user;

	lockdep_assert_held(&users_lock);
	hash_for_each_possible(users, user, hash, __kuid_val(uid))
		if (uid_eq(user->uid, uid))
			return user;
	return NULL;
}

static void free_user(struct thc_user *user)
{
	if (!user)
		return;
	destroy_workqueue(user->queue);
	kfree(user);
}

static struct thc_user *make_user(kuid_t uid)
{
	struct thc_user *user = kzalloc(sizeof(*user), GFP_KERNEL_ACCOUNT);

	if (!user)
		return NULL;
	user->uid = uid;
	user->queue = thc_join_queue_new(JOINS_AT_ONCE);
	if (!user->queue) {
		kfree(user);
		return NULL;
	}
	return user;
}

/* Takes a reference, for one more socket, to user @uid; adds @new if there is none. NULL: no user
 * and no @new.
 */
static struct thc_user *get(kuid_t uid, struct thc_user *new)
{
	struct thc_user *user;

	spin_lock(&users_lock);
	user = find(uid);
	if (!user && new) {
		hash_add(users, &new->hash, __kuid_val(uid));
		user = new;
	}
	if (user)
		user->sockets++;
	spin_unlock(&users_lock);
	return user;
}

struct thc_user *thc_user_get(void)
{
	struct thc_user *user, *new;
	kuid_t uid;

	/* such a caller may raise THC_OPT_MEMORY, too: no bound of a user */
	if (ns_capable_noaudit(&init_user_ns, CAP_NET_ADMIN))
		return NULL;
	uid = user_of(current_cred());
	user = get(uid, NULL);
	if (user)
		return user;
	new = make_user(uid);
	if (!new)
		return ERR_PTR(-ENOMEM);
	user = get(uid, new);
	/* another call was faster */
	if (user != new)
		free_user(new);
	return user;
}

void thc_user_put(struct thc_user *user)
{
	bool last;

	if (!user)
		return;
	spin_lock(&users_lock);
	last = !--user->sockets;
	if (last)
		hash_del(&user->hash);
	spin_unlock(&users_lock);
	if (!last)
		return;
	WARN_ON_ONCE(atomic64_read(&user->held));
	free_user(user);
}

struct workqueue_struct *thc_user_queue(const struct thc_user *user)
{
	return user->queue;
}

/* --- bytes ---------------------------------------------------------------- */

bool thc_memory_charge(struct thc_user *user, size_t bytes)
{
	s64 free = host_bound() - atomic64_add_return(bytes, &all_held);
	s64 held = user ? atomic64_add_return(bytes, &user->held) : 0;

	if (held <= free)
		return true;
	thc_memory_uncharge(user, bytes);
	return false;
}

void thc_memory_uncharge(struct thc_user *user, size_t bytes)
{
	if (user)
		atomic64_sub(bytes, &user->held);
	atomic64_sub(bytes, &all_held);
}
