// SPDX-License-Identifier: GPL-2.0
/*
 * The XDP side of the daemon: loads the programs of bpf/, or goes on with the
 * maps that a killed predecessor left pinned, attaches, and serves what XDP
 * cannot do itself (deadlines; relay.c has the answers it relays).
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
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <linux/if_link.h>

#include "../aggregator/paths.h"
#include "attach.h"
#include "net.h"
#include "pins.h"
#include "relay.h"
#include "xdp.h"

#include "../../bpf/thc_open.h"

/* A slot's lock is held for microseconds; tries before a CLOSE is put off. */
#define CLOSE_TRIES	8
#define CAPABILITIES	"CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON, or --software"
/* XDP programs are not run on less. */
#define FRAME_MIN	64

struct thcd_xdp {
	struct thcd_pins	pins;
	struct thc_hook	hook;
	struct thcd_meta	meta;
	struct thc_bpf		*skel;
	unsigned int		ifindex;
	int			old_fd;		/* program of the predecessor, -1: none */
	int			state_fd;
	int			meta_fd;
	int			prog_fd;	/* our program, of skel unless adopted */
	int			close_fd;
	bool			handed_over;
	bool			generic;
	bool			fresh;		/* nothing was pinned before us */
	bool			attached;
	u64			fan;		/* bit k: fan[k] is filled */
	u64			watch_ms;	/* next look at the hook */
	u32			id;		/* of our program, 0: not asked yet */
	char			lanes_by[32];
};

static void *map_memory(int fd, size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	return p == MAP_FAILED ? NULL : p;
}

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

/* Opens or creates a map of the daemon's own. */
static int own_map(struct thcd_xdp *x, const char *name, u32 size, u32 entries, u32 flags,
		   struct thcd_error *e)
{
	LIBBPF_OPTS(bpf_map_create_opts, opts, .map_flags = flags);
	struct bpf_map_info info = { 0 };
	u32 len = sizeof(info);
	struct thc_pin pin = thc_pin(x->pins.dir, name);
	int fd = bpf_obj_get(pin.path);

	if (fd >= 0) {
		if (!bpf_obj_get_info_by_fd(fd, &info, &len) && info.type == BPF_MAP_TYPE_ARRAY &&
		    info.map_flags == flags && info.value_size == size &&
		    info.max_entries == entries)
			return fd;
		close(fd);
		return thcd_fail(
			e,
			"%s is of another version of thcd; --fresh discards it, and all ranks "
			"have to join again",
			pin.path);
	}
	if (errno != ENOENT)
		return thcd_fail(e, "cannot open %s: %s; thcd needs " CAPABILITIES, pin.path,
				 strerror(errno));
	if (!strcmp(name, THC_PIN_META))
		x->fresh = true;
	fd = bpf_map_create(BPF_MAP_TYPE_ARRAY, name, sizeof(u32), size, entries, &opts);
	if (fd < 0)
		return thcd_fail(e, "cannot create a BPF map: %s; thcd needs " CAPABILITIES,
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
	d->record = map_memory(x->state_fd, THC_JOBS_MAX * sizeof(*d->record));
	return d->record ? 0 : thcd_fail(e, "cannot map the state: %s", strerror(errno));
}

static void close_state(struct thcd *d)
{
	struct thcd_xdp *x = d->xdp;

	if (d->record)
		munmap(d->record, THC_JOBS_MAX * sizeof(*d->record));
	d->record = NULL;
	close_fd(&x->meta_fd);
	close_fd(&x->state_fd);
}

/* Can the pins be trusted? */
static int set_complete(struct thcd_xdp *x, bool complete)
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

/* The predecessor's program goes, and all it left; if the program stays, so do its pins.
 * Returns how many these were.
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
	close_fd(&x->old_fd);
	return thcd_pins_remove(&x->pins);
}

/* The pinned program that holds the hook, or any; -1: none is pinned. */
static int pinned_program(const struct thcd_xdp *x)
{
	int fd = bpf_obj_get(thc_pin(x->pins.dir, "next").path);

	if (fd >= 0 && thcd_prog_id(fd) == x->hook.id)
		return fd;
	close_fd(&fd);
	return bpf_obj_get(thc_pin(x->pins.dir, "prog").path);
}

/* thcd makes this one first. */
static bool has_pins(const struct thcd_xdp *x)
{
	return !access(thc_pin(x->pins.dir, THC_PIN_META).path, F_OK);
}

/* False: there is none that this version knows. */
static bool read_meta(const struct thcd_xdp *x, struct thcd_meta *was)
{
	struct bpf_map_info info = { 0 };
	int fd = bpf_obj_get(thc_pin(x->pins.dir, THC_PIN_META).path);
	u32 key = 0, len = sizeof(info);
	bool ok;

	if (fd < 0)
		return false;
	ok = !bpf_obj_get_info_by_fd(fd, &info, &len) && info.type == BPF_MAP_TYPE_ARRAY &&
	     info.value_size == sizeof(*was) && !bpf_map_lookup_elem(fd, &key, was);
	close(fd);
	return ok;
}

/* Another interface that has the program of the pins, which nobody would find without; or 0. */
static u32 elsewhere(const struct thcd_xdp *x)
{
	u32 id = thcd_prog_id(x->old_fd);
	struct thcd_meta was;
	struct thc_hook hook;

	if (!id || !read_meta(x, &was))
		return 0;
	if (was.netns != own_netns() || was.ifindex == x->ifindex ||
	    thc_device_hook(was.ifindex, &hook) || hook.id != id)
		return 0;
	return was.ifindex;
}

/* -1: the program is on another interface, where it would stay as if it had never been. */
static int check_elsewhere(const struct thcd *d, struct thcd_error *e)
{
	char name[IF_NAMESIZE];
	u32 ifindex = elsewhere(d->xdp);

	if (ifindex && if_indextoname(ifindex, name))
		return thcd_fail(e,
				 "instance \"%s\" is not on %s, but on %s; nothing was discarded: "
				 "thcd --discard --interface %s --instance %s does it",
				 d->instance, d->interface, name, name, d->instance);
	return 0;
}

static int not_prepared(const struct thcd *d, struct thcd_error *e)
{
	return thcd_fail(e,
			 "nothing is prepared on %s for a thcd without root: run thcd --prepare "
			 "USER with these jobs as root, or use --software",
			 d->interface);
}

/* Goes on with what a predecessor @was, if that is what is asked for. */
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

/* Looks at the hook and at the pins: whose are they? */
static int find_predecessor(struct thcd *d, const struct thcd_config *c, u32 slots,
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
	/* one that died while starting: nothing there is worth keeping */
	close_state(d);
	return discard(d, e) < 0 ? -1 : open_state(d, e);
}

/* How many slots there are, and where maps are pinned, or found. Negative errno. */
static int set_up_maps(const struct thcd_xdp *x, struct thc_bpf *skel)
{
	struct bpf_map *map;
	int err;

	err = bpf_map__set_max_entries(skel->maps.slots, x->meta.slots);
	if (!err)
		err = bpf_map__set_max_entries(skel->maps.lanes, x->meta.slots);
	bpf_object__for_each_map(map, skel->obj)
	{
		/* constants belong to one load of the program */
		if (err || bpf_map__is_internal(map))
			continue;
		err = bpf_map__set_pin_path(map, thc_pin(x->pins.dir, bpf_map__name(map)).path);
	}
	return err;
}

/* Loads the programs; maps are pinned, or found pinned. Negative errno. */
static int load_programs(struct thcd *d, bool generic, bool simd)
{
	struct thc_bpf *skel = thc_bpf_open(simd);
	struct thcd_xdp *x = d->xdp;
	int err;

	if (!skel)
		return -errno;
	skel->rodata->thc_config.port_base = d->port;
	skel->rodata->thc_config.relay = generic;
	skel->rodata->thc_config.addr4 = x->meta.addr4;
	skel->rodata->thc_config.addr6 = x->meta.addr6;
	err = set_up_maps(x, skel);
	if (!err)
		err = thc_bpf__load(skel);
	if (err) {
		thc_bpf__destroy(skel);
		return err;
	}
	x->skel = skel;
	x->prog_fd = bpf_program__fd(skel->progs.thc_xdp);
	x->close_fd = bpf_program__fd(skel->progs.thc_close);
	return 0;
}

/* Loads the programs that call thc.ko, if it is there and they can. */
static bool load_simd(struct thcd *d, bool generic)
{
	struct thcd_xdp *x = d->xdp;
	char name[16];
	int err;

	if (d->no_simd || thc_simd_offered(name, sizeof(name)) != THC_SIMD_OFFERED)
		return false;
	err = load_programs(d, generic, true);
	if (err) {
		thcd_say("the kernel refused the XDP program that calls thc.ko: %s; lanes are "
			 "summed by BPF",
			 strerror(-err));
		return false;
	}
	snprintf(x->lanes_by, sizeof(x->lanes_by), "thc.ko (%s)", name);
	return true;
}

static int load(struct thcd *d, bool generic, struct thcd_error *e)
{
	struct thcd_xdp *x = d->xdp;
	int err;

	d->lanes_by = x->lanes_by;
	if (load_simd(d, generic))
		return 0;
	strcpy(x->lanes_by, "BPF");
	err = load_programs(d, generic, false);
	if (!err)
		return 0;
	if (err == -EINVAL && d->kept)
		return thcd_fail(
			e, "the pinned maps do not fit this version of thcd; --fresh discards "
			   "them, and all ranks have to join again");
	if (err == -EPERM)
		return thcd_fail(e, "not allowed to load BPF programs: run thcd as root, or use "
				    "--software");
	return thcd_fail(e,
			 "the kernel refused the XDP program: %s; thcd --verbose shows its log, "
			 "--software does without BPF",
			 strerror(-err));
}

/* fan[k]: the interface k + 1 times, each with the egress program. */
static int fill_fan(struct thcd_xdp *x, u32 k, struct thcd_error *e)
{
	struct bpf_devmap_val val = { .ifindex = x->ifindex };
	int fd, err = 0;
	u32 i;

	if (k < 64 && x->fan & 1ULL << k)
		return 0;
	val.bpf_prog.fd = bpf_program__fd(x->skel->progs.thc_egress);
	fd = bpf_map_create(BPF_MAP_TYPE_DEVMAP, "fan_inner", sizeof(u32), sizeof(val), k + 1,
			    NULL);
	if (fd < 0)
		return thcd_fail(e, "cannot create a device map: %s", strerror(-fd));
	for (i = 0; i <= k && !err; i++)
		err = bpf_map_update_elem(fd, &i, &val, 0);
	if (!err)
		err = bpf_map_update_elem(bpf_map__fd(x->skel->maps.fan), &k, &fd, 0);
	close(fd);
	if (err)
		return thcd_fail(e, "cannot fill the device map of %u answers: %s", k,
				 strerror(errno));
	if (k < 64)
		x->fan |= 1ULL << k;
	return 0;
}

static void set_mode(struct thcd *d, bool generic)
{
	d->xdp->generic = generic;
	/* generic XDP comes after receive offload, and before a virtual link's
	 * super-packets are cut up; and all answers leave from our one socket
	 */
	d->welcome_flags = generic ? THC_WELCOME_F_ONE_PORT | THC_WELCOME_F_NOGSO : 0;
	d->mode = generic ? "generic" : "native";
}

/* Our side of the maps. */
static int open_maps(struct thcd *d, struct thcd_error *e)
{
	struct thcd_xdp *x = d->xdp;

	d->slots = x->meta.slots;
	d->job = map_memory(bpf_map__fd(x->skel->maps.jobs), THC_JOBS_MAX * sizeof(*d->job));
	d->seals =
		map_memory(bpf_map__fd(x->skel->maps.seals_of), THC_JOBS_MAX * sizeof(*d->seals));
	d->slot = map_memory(bpf_map__fd(x->skel->maps.slots), d->slots * sizeof(*d->slot));
	d->lanes = map_memory(bpf_map__fd(x->skel->maps.lanes), d->slots * sizeof(*d->lanes));
	if (!d->job || !d->seals || !d->slot || !d->lanes)
		return thcd_fail(e, "cannot map the aggregator's slots: %s", strerror(errno));
	return thcd_relay_open(d, bpf_map__fd(x->skel->maps.relay), e);
}

static int load_for(struct thcd *d, bool generic, struct thcd_error *e)
{
	struct thcd_xdp *x = d->xdp;

	x->fan = 0;
	x->id = 0;
	set_mode(d, generic);
	if (load(d, generic, e) || open_maps(d, e))
		return -1;
	if (generic)
		return 0;
	return fill_fan(x, 0, e) || fill_fan(x, 1, e) ? -1 : 0;
}

static void unload(struct thcd *d)
{
	struct thcd_xdp *x = d->xdp;

	thcd_relay_close(d);
	if (d->job)
		munmap(d->job, THC_JOBS_MAX * sizeof(*d->job));
	if (d->seals)
		munmap(d->seals, THC_JOBS_MAX * sizeof(*d->seals));
	if (d->slot)
		munmap(d->slot, d->slots * sizeof(*d->slot));
	if (d->lanes)
		munmap(d->lanes, d->slots * sizeof(*d->lanes));
	d->job = NULL;
	d->seals = NULL;
	d->slot = NULL;
	d->lanes = NULL;
	thc_bpf__destroy(x->skel);
	x->skel = NULL;
}

static int open_pin(const struct thcd_xdp *x, const char *name, struct thcd_error *e)
{
	struct thc_pin pin = thc_pin(x->pins.dir, name);
	int fd = bpf_obj_get(pin.path);

	return fd >= 0 ? fd :
			 thcd_fail(e, "cannot open %s: %s; thcd --prepare makes it", pin.path,
				   strerror(errno));
}

/* The programs and maps as root has left them: nothing here takes a privilege. */
static int adopt(struct thcd *d, const struct thcd_config *c, struct thcd_error *e)
{
	struct thcd_xdp *x = d->xdp;
	struct bpf_map *map;
	int fd, err;

	set_mode(d, x->hook.generic);
	if (c->mode != THCD_MODE_AUTO && x->generic != (c->mode == THCD_MODE_GENERIC))
		return thcd_fail(e, "%s XDP is prepared on %s: --mode %s takes thcd --prepare",
				 d->mode, d->interface, x->generic ? "native" : "generic");
	d->lanes_by = "the prepared program";
	x->prog_fd = x->old_fd;
	x->close_fd = open_pin(x, "close", e);
	if (x->close_fd < 0)
		return -1;
	x->skel = thc_bpf_open(false);
	if (!x->skel)
		return thcd_fail(e, "cannot open the XDP program: %s", strerror(errno));
	bpf_object__for_each_map(map, x->skel->obj)
	{
		if (bpf_map__is_internal(map))
			continue;
		fd = open_pin(x, bpf_map__name(map), e);
		if (fd < 0)
			return -1;
		err = bpf_map__reuse_fd(map, fd);
		close(fd);
		if (err)
			return thcd_fail(e, "cannot use the map %s: %s", bpf_map__name(map),
					 strerror(-err));
	}
	return open_maps(d, e);
}

/* d->xdp with nothing in it. */
static int make_empty(struct thcd *d, struct thcd_error *e)
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

	if (make_empty(d, e))
		return -1;
	x = d->xdp;
	d->adopted = !thcd_privileges_can_load();
	if (thcd_pins_open(&x->pins, d->instance, c->heir, e) ||
	    find_predecessor(d, c, slots, plans, e))
		return -1;
	if (d->adopted)
		return adopt(d, c, e);
	/* the driver refused native XDP to the predecessor, too */
	if (c->mode == THCD_MODE_AUTO && d->kept && x->hook.id && x->hook.generic)
		generic = true;
	return load_for(d, generic, e);
}

static int load_row(struct thcd_xdp *x, u16 job_id, const struct thc_table_row *row,
		    struct thcd_error *e)
{
	u32 key = thc_row_of_all(job_id, row->bits);
	struct thc_pairs pairs;

	thc_pairs_init(&pairs, row->level, row->bits);
	if (!bpf_map_update_elem(bpf_map__fd(x->skel->maps.pairs), &key, &pairs, 0))
		return 0;
	return thcd_fail(e, "cannot load the table of %u bits of job %u: %s", row->bits, job_id,
			 strerror(errno));
}

int thcd_xdp_job(struct thcd *d, u16 job_id, struct thcd_error *e)
{
	struct thcd_xdp *x = d->xdp;
	u32 bits;

	if (d->adopted)
		return 0;
	for (bits = 1; bits <= THC_BITS_MAX; bits++) {
		const struct thc_table_row row =
			thc_tables_row(&d->record[job_id].plan.tables, bits);

		if (row.sum_width && load_row(x, job_id, &row, e))
			return -1;
	}
	return x->generic ? 0 : fill_fan(x, d->job[job_id].ranks, e);
}

int thcd_xdp_wait(struct thcd *d, struct thcd_error *e)
{
	struct thcd_xdp *x = d->xdp;

	/* changing a map of maps waits for the programs that may have the old one */
	x->fan &= ~1ULL;
	return fill_fan(x, 0, e);
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
			 d->interface, thcd_hook_driver(d->interface, driver, sizeof(driver)),
			 reason);
}

/* Once more from the maps on, with the program that relays. */
static int fall_back(struct thcd *d, const char *reason, struct thcd_error *e)
{
	char driver[48];
	int i;

	thcd_say(
		"native XDP refused by %s: %s; generic XDP: answers are sent by the daemon, expect "
		"about two thirds of the native rate",
		thcd_hook_driver(d->interface, driver, sizeof(driver)), reason);
	unload(d);
	if (load_for(d, true, e))
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
	close_fd(&x->old_fd);
	if (set_complete(x, true))
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

/* -1: an interface has a program that would stay, as if it had never been. */
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

	if (make_empty(d, e))
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
	else
		thcd_say("instance \"%s\" has left nothing to discard", d->instance);
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

/* False: our program stays. Then the pins stay, too, by which a successor knows it. */
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
		/* those that cannot be removed are of no use to a successor */
		set_complete(x, false);
		thcd_pins_remove(&x->pins);
	}
	if (d->adopted)
		close_fd(&x->close_fd);
	if (x->skel)
		unload(d);
	close_state(d);
	close_fd(&x->old_fd);
	thcd_pins_close(&x->pins);
	free(x);
	d->xdp = NULL;
}

/* Somebody may take our program away: whoever attached ours can detach it. */
bool thcd_xdp_watch(struct thcd *d)
{
	struct thcd_xdp *x = d->xdp;
	u64 now = thcd_now_ms();
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
		thcd_say(
			"somebody removed the XDP program from %s%s%s, so nothing is aggregated and no "
			"worker admitted: %s to go on",
			d->interface, hook.id ? " and put there " : "", hook.id ? hook.name : "",
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
