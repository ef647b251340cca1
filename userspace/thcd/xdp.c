// SPDX-License-Identifier: GPL-2.0
/*
 * The XDP side of the daemon: loads the programs of bpf/ (programs.c), or goes on
 * with the maps that a killed predecessor left pinned (predecessor.c), attaches, and
 * serves what XDP cannot do itself (deadlines; relay.c has the answers it relays).
 *
 * Order at start, so that a daemon that is killed at any point leaves either
 * pins that its successor can use or pins that it recognises as unfinished:
 *
 *	lock the pins		nobody else is starting
 *	query the hook		free, or ours; else refuse before anything changes
 *	state, meta		daemon's own maps; meta.complete says if to trust
 *	load			libbpf pins new maps, or reuses those pinned
 *	jobs			created by main.c, only if not kept
 *	attach, pin program	thcd_xdp_attach()
 *	meta.complete
 */
#include <errno.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "xdp.h"
#include "xdp_state.h"

#include "thc.skel.h"

/* Tries before a CLOSE waits for the next scan; a slot's lock is held for microseconds. */
#define CLOSE_TRIES	8
/* Bytes of the frame that thc_close runs on: the least of Ethernet. */
#define FRAME_MIN	64

/* d->xdp with nothing in it. */
int thcd_xdp_empty(struct thcd *d, struct thcd_error *e)
{
	struct thcd_xdp *x = calloc(1, sizeof(*x));

	d->xdp = x;
	if (!x)
		return thcd_fail(e, "out of memory");
	x->pins.lock = x->old_fd = x->state_fd = x->meta_fd = x->prog_fd = x->close_fd = -1;
	x->ifindex = if_nametoindex(d->interface);
	thcd_libbpf_quiet(d->verbose);
	return 0;
}

int thcd_xdp_init(struct thcd *d, const struct thcd_config *c, u32 slots,
		  const struct thcd_plan *plans, struct thcd_error *e)
{
	bool generic = c->mode == THCD_MODE_GENERIC;
	struct thcd_xdp *x;

	if (thcd_xdp_empty(d, e))
		return -1;
	x = d->xdp;
	d->adopted = !thcd_privileges_can_load();
	if (thcd_pins_open(&x->pins, d->instance, c->heir, e) ||
	    thcd_predecessor_find(d, c, slots, plans, e))
		return -1;
	if (d->adopted)
		return thcd_programs_adopt(d, c, e);
	/* the driver refused native XDP to the predecessor, too */
	if (c->mode == THCD_MODE_AUTO && d->kept && x->hook.id && x->hook.generic)
		generic = true;
	return thcd_programs_load(d, generic, e);
}

static int attach(struct thcd *d, char *reason)
{
	struct thcd_xdp *x = d->xdp;
	int old = x->hook.id ? x->old_fd : -1, err;

	/* the hook's two modes exclude each other */
	if (old >= 0 && x->hook.generic != x->generic) {
		thcd_hook_detach(x->ifindex, old, x->hook.generic);
		old = -1;
	}
	err = thcd_hook_attach(x->ifindex, x->prog_fd, old, x->generic, reason);
	x->attached = !err;
	return err;
}

static int pin_done(struct thcd_xdp *x, struct thcd_error *e)
{
	struct thc_pin from = thc_pin(x->pins.dir, "next"), to = thc_pin(x->pins.dir, "prog");

	if (rename(from.path, to.path))
		return thcd_fail(e, "cannot rename %s: %s", from.path, strerror(errno));
	return 0;
}

static int attach_failed(struct thcd *d, int err, const char *reason, struct thcd_error *e)
{
	struct thcd_xdp *x = d->xdp;
	struct thc_hook now;
	char driver[48];

	if ((err == -EBUSY || err == -EEXIST) &&
	    !thcd_hook_query(x->ifindex, d->interface, &now, e) && now.id)
		return thcd_hook_foreign(d->interface, &now, e);
	return thcd_fail(e, "%s XDP refused by %s (%s): %s; --software does without", d->mode,
			 d->interface, thc_device_driver(d->interface, driver, sizeof(driver)),
			 reason);
}

/* Loads maps and programs again, for generic XDP, which relays answers. */
static int fall_back(struct thcd *d, const char *reason, struct thcd_error *e)
{
	char driver[48];
	int i;

	thcd_say(
		"native XDP refused by %s: %s; generic XDP: answers are sent by the daemon, expect "
		"about two thirds of the native rate",
		thc_device_driver(d->interface, driver, sizeof(driver)), reason);
	thcd_programs_unload(d);
	if (thcd_programs_load(d, true, e))
		return -1;
	for (i = 0; i < THC_JOBS_MAX; i++)
		if (d->job[i].active && thcd_xdp_job(d, i, e))
			return -1;
	return 0;
}

int thcd_xdp_attach(struct thcd *d, const struct thcd_config *c, struct thcd_error *e)
{
	struct thcd_xdp *x = d->xdp;
	char reason[THCD_REASON_MAX];
	int err;

	if (d->adopted)
		return 0;
	/* A successor must find the hook's holder among the pins whenever we die: the
	 * new program is pinned as "next" before it is attached, and as "prog" after.
	 */
	for (;;) {
		if (thcd_pins_put(&x->pins, "next", x->prog_fd, e))
			return -1;
		err = attach(d, reason);
		if (!err || err == -EBUSY || err == -EEXIST || x->generic ||
		    c->mode != THCD_MODE_AUTO)
			break;
		if (fall_back(d, reason, e))
			return -1;
	}
	if (err)
		return attach_failed(d, err, reason, e);
	if (thcd_inspect(d, !x->generic, c->force, e) || pin_done(x, e))
		return -1;
	/* what the predecessor's program holds, thc.ko for one, is free now */
	thcd_close_fd(&x->old_fd);
	if (thcd_state_complete(x, true))
		return thcd_fail(e, "cannot write the pinned state: %s", strerror(errno));
	return 0;
}

int thcd_xdp_hand_over(struct thcd *d, const struct thcd_config *c, struct thcd_error *e)
{
	struct thcd_xdp *x = d->xdp;

	if (thcd_pins_put(&x->pins, "close", x->close_fd, e) ||
	    thcd_pins_give(&x->pins, c->heir, e))
		return -1;
	x->handed_over = true;
	return 0;
}

/* 1: our program is on the hook; 0: it is not; -1: the kernel does not say now. */
static int is_on(struct thcd *d, struct thc_hook *hook)
{
	struct thcd_xdp *x = d->xdp;
	struct thcd_error e;

	if (!x->id)
		x->id = thcd_prog_id(x->prog_fd);
	if (!x->id || thcd_hook_query(x->ifindex, d->interface, hook, &e))
		return -1;
	return hook->id == x->id;
}

/* False: our program stays, and so do the pins by which a successor recognises it. */
static bool detach(struct thcd *d)
{
	struct thcd_xdp *x = d->xdp;
	struct thc_hook hook;
	int err;

	if (!x->skel || !x->attached)
		return true;
	err = thcd_hook_detach(x->ifindex, x->prog_fd, x->generic);
	if (!err || !is_on(d, &hook))
		return true;
	thcd_say(
		"the XDP program stays on %s: %s; the next thcd of instance \"%s\" goes on with it",
		d->interface, strerror(-err), d->instance);
	return false;
}

void thcd_xdp_exit(struct thcd *d, bool failed)
{
	struct thcd_xdp *x = d->xdp;
	bool stays;

	if (!x)
		return;
	/* a start that failed leaves a predecessor's aggregator alone */
	stays = d->adopted || x->handed_over || (failed && !x->fresh);
	if (!stays && detach(d)) {
		/* a successor must not trust pins that cannot be removed */
		thcd_state_complete(x, false);
		thcd_pins_remove(&x->pins);
	}
	if (d->adopted)
		thcd_close_fd(&x->close_fd);
	if (x->skel)
		thcd_programs_unload(d);
	thcd_state_close(d);
	thcd_close_fd(&x->old_fd);
	thcd_pins_close(&x->pins);
	free(x);
	d->xdp = NULL;
}

/* Says what became of our program. @hook: as it is now */
static const char *what_became(const struct thcd *d, const struct thc_hook *hook, char *text)
{
	if (hook->id)
		snprintf(text, THCD_TEXT_MAX,
			 "somebody has put another XDP program, id %u, in the place of ours on %s",
			 hook->id, d->interface);
	else
		snprintf(text, THCD_TEXT_MAX, "somebody removed the XDP program from %s",
			 d->interface);
	return text;
}

/* Somebody may take our program away: whoever attached ours can detach it. */
bool thcd_xdp_watch(struct thcd *d)
{
	struct thcd_xdp *x = d->xdp;
	u64 now = thcd_now_ms();
	char text[THCD_TEXT_MAX];
	struct thc_hook hook;
	int ours;

	if (now < x->watch_ms)
		return true;
	x->watch_ms = now + THCD_WATCH_MS;
	ours = is_on(d, &hook);
	if (ours != 1 && !if_nametoindex(d->interface) && errno == ENODEV) {
		thcd_say("interface %s is gone, and thcd ends: start it when it is back",
			 d->interface);
		return false;
	}
	if (ours < 0 || ours == !d->detached)
		return true;
	d->detached = !ours;
	if (ours)
		thcd_say("the XDP program is back on %s", d->interface);
	else
		thcd_say("%s, so nothing is aggregated and no worker admitted: %s to go on",
			 what_became(d, &hook, text),
			 d->adopted ? "stop thcd, run thcd --prepare as root, and start it" :
				      "restart thcd");
	return true;
}

bool thcd_xdp_close(struct thcd *d, u16 job_id, u32 slot, u32 generation)
{
	u8 frame[FRAME_MIN] = { 0 };
	struct thc_close_request request = { .job = job_id, .slot = slot,
					     .generation = generation };
	LIBBPF_OPTS(bpf_test_run_opts, run, .data_in = frame, .data_size_in = sizeof(frame),
		    .repeat = 1);
	int i;

	memcpy(frame, &request, sizeof(request));
	for (i = 0; i < CLOSE_TRIES; i++) {
		if (bpf_prog_test_run_opts(d->xdp->close_fd, &run)) {
			thcd_say_limited("cannot close a generation: %s", strerror(errno));
			return false;
		}
		if (run.retval != XDP_ABORTED)
			return run.retval == XDP_TX;
	}
	return false;
}

void thcd_xdp_stats(const struct thcd *d, struct thc_stats *out)
{
	thc_report_read_stats(bpf_map__fd(d->xdp->skel->maps.stats), out);
}
