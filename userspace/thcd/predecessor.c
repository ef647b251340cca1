// SPDX-License-Identifier: GPL-2.0
/*
 * The pins of this instance, made by us or by a thcd before us. The daemon has two maps of its own:
 * state has a record of each job, and meta says whether the other pins can be trusted.
 */
#include <errno.h>
#include <net/if.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "../aggregator/paths.h"
#include "xdp.h"
#include "xdp_state.h"

/* Is @fd a map of the daemon's own, with this version's layout? */
static bool is_own(int fd, u32 size, u32 entries, u32 flags)
{
	struct bpf_map_info info = { 0 };
	u32 len = sizeof(info);

	return !bpf_obj_get_info_by_fd(fd, &info, &len) && info.type == BPF_MAP_TYPE_ARRAY &&
	       info.map_flags == flags && info.value_size == size && info.max_entries == entries;
}

/* Opens or creates a map of the daemon's own. */
static int own_map(struct thcd_xdp *x, const char *name, u32 size, u32 entries, u32 flags,
		   struct thcd_error *e)
{
	LIBBPF_OPTS(bpf_map_create_opts, opts, .map_flags = flags);
	struct thc_pin pin = thc_pin(x->pins.dir, name);
	int fd = bpf_obj_get(pin.path);

	if (fd >= 0) {
		if (is_own(fd, size, entries, flags))
			return fd;
		close(fd);
		return thcd_fail(
			e,
			"%s is of another version of thcd; --fresh discards it, and all ranks "
			"have to join again",
			pin.path);
	}
	if (errno != ENOENT)
		return thcd_fail(e, "cannot open %s: %s; thcd needs " THCD_XDP_TAKES, pin.path,
				 strerror(errno));
	if (!strcmp(name, THC_PIN_META))
		x->fresh = true;
	fd = bpf_map_create(BPF_MAP_TYPE_ARRAY, name, sizeof(u32), size, entries, &opts);
	if (fd < 0)
		return thcd_fail(e, "cannot create a BPF map: %s; thcd needs " THCD_XDP_TAKES,
				 strerror(-fd));
	if (!thcd_pins_put(&x->pins, name, fd, e))
		return fd;
	close(fd);
	return -1;
}

static int open_state(struct thcd *d, struct thcd_error *e)
{
	struct thcd_xdp *x = d->xdp;

	x->meta_fd = own_map(x, THC_PIN_META, sizeof(struct thcd_meta), 1, 0, e);
	if (x->meta_fd < 0)
		return -1;
	x->state_fd = own_map(x, THC_PIN_STATE, sizeof(struct thcd_record), THC_JOBS_MAX,
			      BPF_F_MMAPABLE, e);
	if (x->state_fd < 0)
		return -1;
	d->record = thcd_map_memory(x->state_fd, THC_JOBS_MAX * sizeof(*d->record));
	return d->record ? 0 : thcd_fail(e, "cannot map the state: %s", strerror(errno));
}

void thcd_state_close(struct thcd *d)
{
	struct thcd_xdp *x = d->xdp;

	if (d->record)
		munmap(d->record, THC_JOBS_MAX * sizeof(*d->record));
	d->record = NULL;
	thcd_close_fd(&x->meta_fd);
	thcd_close_fd(&x->state_fd);
}

int thcd_state_complete(struct thcd_xdp *x, bool complete)
{
	u32 key = 0;

	x->meta.complete = complete;
	return x->meta_fd < 0 ? -1 : bpf_map_update_elem(x->meta_fd, &key, &x->meta, 0);
}

static u64 own_netns(void)
{
	struct stat st;

	return stat("/proc/self/ns/net", &st) ? 0 : st.st_ino;
}

/* Detaches the predecessor's program and removes all pins; returns how many. If the program cannot
 * be detached, its pins stay.
 */
static int discard(struct thcd *d, struct thcd_error *e)
{
	struct thcd_xdp *x = d->xdp;
	int err = 0;

	if (x->old_fd >= 0 && x->hook.id) {
		u32 id = thcd_prog_id(x->old_fd);

		if (!id)
			err = -errno;
		else if (id == x->hook.id)
			err = thcd_hook_detach(x->ifindex, x->old_fd, x->hook.generic);
	}
	if (err)
		return thcd_fail(e,
				 "cannot detach the XDP program from %s: %s; nothing was discarded",
				 d->interface, strerror(-err));
	if (x->old_fd >= 0)
		x->hook.id = 0;
	thcd_close_fd(&x->old_fd);
	return thcd_pins_remove(&x->pins);
}

/* The pinned program that holds the hook, else the one last attached; -1: none is pinned. */
static int pinned_program(const struct thcd_xdp *x)
{
	int fd = bpf_obj_get(thc_pin(x->pins.dir, "next").path);

	if (fd >= 0 && thcd_prog_id(fd) == x->hook.id)
		return fd;
	thcd_close_fd(&fd);
	return bpf_obj_get(thc_pin(x->pins.dir, "prog").path);
}

/* Has the instance pins? thcd pins meta first. */
static bool has_pins(const struct thcd_xdp *x)
{
	return !access(thc_pin(x->pins.dir, THC_PIN_META).path, F_OK);
}

/* False: there is no meta of this version. */
static bool read_meta(const struct thcd_xdp *x, struct thcd_meta *was)
{
	int fd = bpf_obj_get(thc_pin(x->pins.dir, THC_PIN_META).path);
	u32 key = 0;
	bool ok;

	if (fd < 0)
		return false;
	ok = is_own(fd, sizeof(*was), 1, 0) && !bpf_map_lookup_elem(fd, &key, was);
	close(fd);
	return ok;
}

/* -1: the pinned program is on another interface of this namespace, where nobody would find it once
 * the pins are gone. thcd cannot look into another namespace: it only warns.
 */
static int check_elsewhere(const struct thcd *d, struct thcd_error *e)
{
	const struct thcd_xdp *x = d->xdp;
	u32 id = thcd_prog_id(x->old_fd);
	char name[IF_NAMESIZE];
	struct thcd_meta was;
	struct thc_hook hook;

	if (!read_meta(x, &was))
		return 0;
	if (was.netns != own_netns()) {
		thcd_say("the pins of instance \"%s\" are of another network namespace: if that "
			 "is still there, so is the XDP program: ip link set dev NAME xdp off",
			 d->instance);
		return 0;
	}
	if (!id || was.ifindex == x->ifindex || thc_device_hook(was.ifindex, &hook) ||
	    hook.id != id || !if_indextoname(was.ifindex, name))
		return 0;
	return thcd_fail(e,
			 "instance \"%s\" is not on %s, but on %s; nothing was discarded: "
			 "thcd --discard --interface %s --instance %s does it",
			 d->instance, d->interface, name, name, d->instance);
}

static int not_prepared(const struct thcd *d, struct thcd_error *e)
{
	return thcd_fail(e,
			 "nothing is prepared on %s for a thcd without root: run thcd --prepare "
			 "USER with these jobs as root, or use --software",
			 d->interface);
}

/* Goes on with a predecessor's aggregator @was, if it is the one asked for. */
static int keep(struct thcd *d, const struct thcd_meta *was, const struct thcd_plan *plans,
		struct thcd_error *e)
{
	struct thcd_xdp *x = d->xdp;
	u32 slots = x->meta.slots;

	if (thcd_keep_meta(was, &x->meta, d->instance, e) || thcd_keep_jobs(d->record, plans, e))
		return -1;
	if (was->slots < slots)
		thcd_say("the aggregator that is attached keeps its %u slots, and %u are asked "
			 "for (spare_slots): --fresh makes them, and all ranks have to join again",
			 was->slots, slots);
	x->meta.slots = was->slots;
	return 0;
}

int thcd_predecessor_find(struct thcd *d, const struct thcd_config *c, u32 slots,
			  const struct thcd_plan *plans, struct thcd_error *e)
{
	struct thcd_xdp *x = d->xdp;
	struct thcd_meta was;
	u32 key = 0;
	int i;

	if (thcd_hook_query(x->ifindex, d->interface, &x->hook, e))
		return -1;
	x->old_fd = pinned_program(x);
	if (x->hook.id && x->hook.id != thcd_prog_id(x->old_fd))
		return thcd_hook_foreign(d->interface, &x->hook, e);
	if (d->adopted && !x->hook.id)
		return not_prepared(d, e);
	if (d->adopted && c->fresh)
		return thcd_fail(e, "--fresh is for root: thcd --prepare USER --fresh");
	if (c->fresh && (check_elsewhere(d, e) || discard(d, e) < 0))
		return -1;
	x->meta = (struct thcd_meta){
		.netns = own_netns(),
		.layout = THCD_LAYOUT,
		.ifindex = x->ifindex,
		.slots = slots,
		.port = d->port,
	};
	for (i = 0; i < d->sockets; i++) {
		if (d->socket[i].family == AF_INET)
			x->meta.addr4 = d->socket[i].addr;
		else
			x->meta.addr6 = d->socket[i].addr;
	}
	if (open_state(d, e))
		return -1;
	if (bpf_map_lookup_elem(x->meta_fd, &key, &was))
		return thcd_fail(e, "cannot read the pinned state: %s", strerror(errno));
	if (was.complete) {
		d->kept = true;
		return keep(d, &was, plans, e);
	}
	if (d->adopted)
		return not_prepared(d, e);
	/* the predecessor died while starting: its pins are useless */
	thcd_state_close(d);
	return discard(d, e) < 0 ? -1 : open_state(d, e);
}

/* -1: a thcd's program would stay on an interface after its pins are removed. */
static int check_discard(struct thcd *d, bool was_on, struct thcd_error *e)
{
	struct thcd_xdp *x = d->xdp;

	if (was_on)
		return 0;
	if (!has_pins(x) && x->hook.id && !strcmp(x->hook.name, "thc_xdp"))
		return thcd_hook_foreign(d->interface, &x->hook, e);
	return check_elsewhere(d, e);
}

int thcd_xdp_discard(struct thcd *d, struct thcd_error *e)
{
	struct thcd_xdp *x;
	bool was_on;
	int pins;

	if (thcd_xdp_empty(d, e))
		return -1;
	x = d->xdp;
	if (thcd_pins_open(&x->pins, d->instance, THCD_PINS_ANYBODYS, e) ||
	    (x->ifindex && thcd_hook_query(x->ifindex, d->interface, &x->hook, e)))
		return -1;
	x->old_fd = pinned_program(x);
	was_on = x->hook.id && x->hook.id == thcd_prog_id(x->old_fd);
	if (check_discard(d, was_on, e))
		return -1;
	pins = discard(d, e);
	if (pins < 0)
		return -1;
	if (was_on)
		thcd_say("detached the XDP program from %s and removed %d pins of instance \"%s\"",
			 d->interface, pins, d->instance);
	else if (pins)
		thcd_say("removed %d pins of instance \"%s\"; its XDP program was not on %s", pins,
			 d->instance, d->interface);
	return pins;
}
