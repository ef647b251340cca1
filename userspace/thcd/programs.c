// SPDX-License-Identifier: GPL-2.0
/* The programs of bpf/ and their maps: loaded, or adopted from root; and tables of jobs in them. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "../aggregator/paths.h"
#include "relay.h"
#include "xdp.h"
#include "xdp_state.h"

#include "../../bpf/thc_open.h"

/* Sets the number of slots, and the paths of pins, which libbpf makes or reuses. Negative errno. */
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

/* Loads the programs that call thc.ko, if it offers its functions and the kernel accepts them. */
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
	/* on a virtual link generic XDP sees GSO's super-packets before they are cut up; and all of
	 * its answers leave from our one socket
	 */
	d->welcome_flags = generic ? THC_WELCOME_F_ONE_PORT | THC_WELCOME_F_NOGSO : 0;
	d->mode = generic ? "generic" : "native";
}

/* Maps jobs, seals, slots and lanes into our memory, and opens the relay's ring. */
static int open_maps(struct thcd *d, struct thcd_error *e)
{
	struct thcd_xdp *x = d->xdp;

	d->slots = x->meta.slots;
	d->job = thcd_map_memory(bpf_map__fd(x->skel->maps.jobs), THC_JOBS_MAX * sizeof(*d->job));
	d->seals = thcd_map_memory(bpf_map__fd(x->skel->maps.seals_of),
				   THC_JOBS_MAX * sizeof(*d->seals));
	d->slot = thcd_map_memory(bpf_map__fd(x->skel->maps.slots), d->slots * sizeof(*d->slot));
	d->lanes = thcd_map_memory(bpf_map__fd(x->skel->maps.lanes), d->slots * sizeof(*d->lanes));
	if (!d->job || !d->seals || !d->slot || !d->lanes)
		return thcd_fail(e, "cannot map the aggregator's slots: %s", strerror(errno));
	return thcd_relay_open(d, bpf_map__fd(x->skel->maps.relay), e);
}

int thcd_programs_load(struct thcd *d, bool generic, struct thcd_error *e)
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

void thcd_programs_unload(struct thcd *d)
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

int thcd_programs_adopt(struct thcd *d, const struct thcd_config *c, struct thcd_error *e)
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
