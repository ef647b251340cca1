// SPDX-License-Identifier: GPL-2.0
/*
 * Loader of impair.bpf.c: attaches it to both directions of switch ports, says
 * "ready", answers every line on stdin with its counters as one line of JSON,
 * and detaches at the end of stdin. Run by tools/netns.py.
 */
#include <errno.h>
#include <net/if.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "impair.h"
#include "impair.skel.h"

#define PORTS_MAX	64
#define FIRST_PORT	6	/* of the arguments */
/* The detour of packets that are late. */
#define DETOUR_BEGIN	"late0"
#define DETOUR_END	"late1"

static __u32 probability(const char *name, const char *text)
{
	char *end;
	double p = strtod(text, &end);

	if (end == text || *end || !(p >= 0 && p < 1)) {
		fprintf(stderr, "impair: %s is '%s': give a probability from 0 to below 1\n", name,
			text);
		exit(2);
	}
	return (__u32)(p * 4294967296.0);
}

/* Prints libbpf's warnings, except that a clsact exists already. */
static int complain(enum libbpf_print_level level, const char *format, va_list args)
{
	if (level != LIBBPF_WARN || strstr(format, "Kernel error message"))
		return 0;
	return vfprintf(stderr, format, args);
}

static int attach(int ifindex, const struct bpf_program *program, enum bpf_tc_attach_point point)
{
	DECLARE_LIBBPF_OPTS(bpf_tc_hook, hook, .ifindex = ifindex,
			    .attach_point = BPF_TC_INGRESS | BPF_TC_EGRESS);
	DECLARE_LIBBPF_OPTS(bpf_tc_opts, opts, .prog_fd = bpf_program__fd(program));
	int err = bpf_tc_hook_create(&hook);

	if (err && err != -EEXIST)
		return err;
	hook.attach_point = point;
	return bpf_tc_attach(&hook, &opts);
}

static int attach_port(const struct impair_bpf *bpf, int ifindex)
{
	int err = attach(ifindex, bpf->progs.impair_up, BPF_TC_INGRESS);

	return err ? err : attach(ifindex, bpf->progs.impair_down, BPF_TC_EGRESS);
}

static void detach(int ifindex)
{
	DECLARE_LIBBPF_OPTS(bpf_tc_hook, hook, .ifindex = ifindex,
			    .attach_point = BPF_TC_INGRESS | BPF_TC_EGRESS);

	bpf_tc_hook_destroy(&hook);
}

static void print_counts(struct impair_bpf *bpf)
{
	static const char *const name[IMPAIR_DIRECTIONS] = { "up", "down" };
	struct impair_count c;
	__u32 d;

	putchar('{');
	for (d = 0; d < IMPAIR_DIRECTIONS; d++) {
		memset(&c, 0, sizeof(c));
		bpf_map_lookup_elem(bpf_map__fd(bpf->maps.counts), &d, &c);
		printf("%s\"%s\": {\"seen\": %llu, \"dropped\": %llu, \"corrupted\": %llu, "
		       "\"duplicated\": %llu, \"late\": %llu, \"overtaken\": %llu, "
		       "\"super\": %llu}",
		       d ? ", " : "", name[d], c.seen, c.dropped, c.corrupted, c.duplicated, c.late,
		       c.overtaken, c.super);
	}
	puts("}");
	fflush(stdout);
}

int main(int argc, char **argv)
{
	int ifindex[PORTS_MAX], ports = argc - FIRST_PORT, attached = 0, status = 1, err, i;
	struct impair_bpf *bpf;
	char line[64];

	if (ports < 1 || ports > PORTS_MAX) {
		fprintf(stderr,
			"usage: impair DROP CORRUPT DUPLICATE LATE PORT-BASE INTERFACE...\n");
		return 2;
	}
	libbpf_set_print(complain);
	bpf = impair_bpf__open();
	if (!bpf) {
		fprintf(stderr, "impair: cannot open the BPF object: %s\n", strerror(errno));
		return 1;
	}
	bpf->rodata->drop_below = probability("drop", argv[1]);
	bpf->rodata->corrupt_below = probability("corrupt", argv[2]);
	bpf->rodata->duplicate_below = probability("duplicate", argv[3]);
	bpf->rodata->late_below = probability("late", argv[4]);
	bpf->rodata->late_ifindex = if_nametoindex(DETOUR_BEGIN);
	bpf->rodata->port_base = (__u16)atoi(argv[5]);
	err = impair_bpf__load(bpf);
	if (!err && bpf->rodata->late_below)
		err = attach((int)if_nametoindex(DETOUR_END), bpf->progs.impair_return,
			     BPF_TC_INGRESS);
	if (err) {
		fprintf(stderr, "impair: cannot load: %s\n", strerror(-err));
		goto close;
	}
	for (i = 0; i < ports; i++) {
		ifindex[i] = if_nametoindex(argv[FIRST_PORT + i]);
		err = ifindex[i] ? attach_port(bpf, ifindex[i]) : -errno;
		if (err) {
			fprintf(stderr, "impair: %s: %s\n", argv[FIRST_PORT + i], strerror(-err));
			goto detach;
		}
		attached = i + 1;
	}
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin))
		print_counts(bpf);
	status = 0;
detach:
	for (i = 0; i < attached; i++)
		detach(ifindex[i]);
close:
	impair_bpf__destroy(bpf);
	return status;
}
