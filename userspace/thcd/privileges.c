// SPDX-License-Identifier: GPL-2.0
/*
 * thcd starts with root's privileges and serves without them. Serving takes no capability:
 * pins, maps, BPF_PROG_TEST_RUN and the query of the hook ask for file descriptors only.
 * What is left is for the end, and for what a reload may bring:
 *
 *	CAP_NET_ADMIN	detaching the XDP program
 *	CAP_BPF		the device map of a job that a reload adds; closing chunks by
 *			deadline on kernels before 5.19
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/capability.h>
#include <sys/prctl.h>

#include "privileges.h"

#define KEPT_MAX	2

struct kept {
	cap_value_t	cap[KEPT_MAX];
	int		count;
};

static bool has(cap_t caps, cap_value_t cap, cap_flag_t set)
{
	cap_flag_value_t on = CAP_CLEAR;

	return !cap_get_flag(caps, cap, set, &on) && on == CAP_SET;
}

bool thcd_privileges_can_load(void)
{
	cap_t have = cap_get_proc();
	bool can;

	if (!have)
		return true;	/* the kernel will say */
	can = has(have, CAP_NET_ADMIN, CAP_EFFECTIVE) &&
	      (has(have, CAP_BPF, CAP_EFFECTIVE) || has(have, CAP_SYS_ADMIN, CAP_EFFECTIVE));
	cap_free(have);
	return can;
}

static bool any_deadline(const struct thcd *d)
{
	int i;

	for (i = 0; i < THC_JOBS_MAX; i++)
		if (d->record[i].used && d->record[i].plan.deadline_ms)
			return true;
	return false;
}

/* What this thcd needs, as far as it has it. */
static struct kept choose(const struct thcd *d, const struct thcd_config *c, cap_t have)
{
	cap_value_t want[KEPT_MAX];
	struct kept k = { .count = 0 };
	int i, n = 0;

	if (d->software)
		return k;
	want[n++] = CAP_NET_ADMIN;
	if (c->file || any_deadline(d))
		want[n++] = CAP_BPF;
	for (i = 0; i < n; i++)
		if (has(have, want[i], CAP_PERMITTED))
			k.cap[k.count++] = want[i];
	return k;
}

static bool is_kept(const struct kept *k, cap_value_t cap)
{
	int i;

	for (i = 0; i < k->count; i++)
		if (k->cap[i] == cap)
			return true;
	return false;
}

/* Who may not do that was started with little, and no_new_privs holds all the same. */
static int shrink_bounds(const struct kept *k, cap_t have)
{
	cap_value_t cap;

	if (!has(have, CAP_SETPCAP, CAP_EFFECTIVE))
		return 0;
	for (cap = 0; cap < cap_max_bits(); cap++)
		if (!is_kept(k, cap) && cap_get_bound(cap) > 0 && cap_drop_bound(cap))
			return -1;
	return 0;
}

static int apply(const struct kept *k, cap_t have)
{
	cap_t left = cap_init();
	int err;

	if (!left)
		return -1;
	err = k->count && (cap_set_flag(left, CAP_PERMITTED, k->count, k->cap, CAP_SET) ||
			   cap_set_flag(left, CAP_EFFECTIVE, k->count, k->cap, CAP_SET));
	err = err || shrink_bounds(k, have) || cap_reset_ambient() || cap_set_proc(left) ||
	      prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	cap_free(left);
	return err ? -1 : 0;
}

static void name_all(const struct kept *k, char *text, size_t size)
{
	size_t used = 0;
	int i;

	snprintf(text, size, "none");
	for (i = 0; i < k->count && used < size; i++) {
		char *name = cap_to_name(k->cap[i]);

		used += snprintf(text + used, size - used, "%s%s", i ? " " : "", name ? name : "?");
		cap_free(name);
	}
}

int thcd_privileges_drop(struct thcd *d, const struct thcd_config *c, struct thcd_error *e)
{
	cap_t have = cap_get_proc();
	struct kept k;
	int err;

	if (!have)
		return thcd_fail(e, "cannot read the capabilities of thcd: %s", strerror(errno));
	k = choose(d, c, have);
	err = apply(&k, have);
	cap_free(have);
	if (err)
		return thcd_fail(e, "cannot drop capabilities: %s; thcd does not serve with all",
				 strerror(errno));
	name_all(&k, d->privileges, sizeof(d->privileges));
	if (d->verbose)
		thcd_say("capabilities left: %s", d->privileges);
	return 0;
}
