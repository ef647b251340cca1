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

#include "xdp.h"

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

/* The capabilities that this thcd needs and has; NULL: out of memory. */
static cap_t choose(const struct thcd *d, const struct thcd_config *c, cap_t have)
{
	const cap_value_t want[] = { CAP_NET_ADMIN, CAP_BPF };
	int i, n = d->software ? 0 : *c->file || any_deadline(d) ? 2 : 1;
	cap_t left = cap_init();

	for (i = 0; left && i < n; i++)
		if (has(have, want[i], CAP_PERMITTED)) {
			cap_set_flag(left, CAP_PERMITTED, 1, &want[i], CAP_SET);
			cap_set_flag(left, CAP_EFFECTIVE, 1, &want[i], CAP_SET);
		}
	return left;
}

/* Drops the others from the bounding set. A thcd without CAP_SETPCAP cannot: it was started with
 * few capabilities, and no_new_privs keeps it from getting more.
 */
static int shrink_bounds(cap_t left, cap_t have)
{
	cap_value_t cap;

	if (!has(have, CAP_SETPCAP, CAP_EFFECTIVE))
		return 0;
	for (cap = 0; cap < cap_max_bits(); cap++)
		if (!has(left, cap, CAP_PERMITTED) && cap_get_bound(cap) > 0 && cap_drop_bound(cap))
			return -1;
	return 0;
}

static void name_all(cap_t left, char *text, size_t size)
{
	cap_value_t cap;
	size_t used = 0;

	snprintf(text, size, "none");
	for (cap = 0; cap < cap_max_bits() && used < size; cap++) {
		char *name = has(left, cap, CAP_PERMITTED) ? cap_to_name(cap) : NULL;

		if (name)
			used += snprintf(text + used, size - used, "%s%s", used ? " " : "", name);
		cap_free(name);
	}
}

int thcd_privileges_drop(struct thcd *d, const struct thcd_config *c, struct thcd_error *e)
{
	cap_t have = cap_get_proc(), left;
	int err;

	if (!have)
		return thcd_fail(e, "cannot read the capabilities of thcd: %s", strerror(errno));
	left = choose(d, c, have);
	err = !left || shrink_bounds(left, have) || cap_reset_ambient() || cap_set_proc(left) ||
	      prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	if (err)
		thcd_fail(e, "cannot drop capabilities: %s; thcd does not serve with all",
			  strerror(errno));
	else
		name_all(left, d->privileges, sizeof(d->privileges));
	cap_free(have);
	cap_free(left);
	if (!err && d->verbose)
		thcd_say("capabilities left: %s", d->privileges);
	return err ? -1 : 0;
}
