// SPDX-License-Identifier: GPL-2.0
/*
 * Reads counters and jobs from the maps that a dead daemon left pinned. Its program goes on
 * aggregating, so the numbers are current.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "../aggregator/paths.h"
#include "../aggregator/report.h"
#include "thcctl.h"

/* Checks type and size of values: a user may pin any map, and a lookup writes as many bytes as the
 * map's values have.
 */
static int open_pin(const char *instance, const char *name, enum bpf_map_type type,
		    size_t value_size, struct bpf_map_info *info)
{
	u32 len = sizeof(*info);
	char dir[THC_PATH_BYTES];
	int fd;

	thc_pins_dir(instance, dir, sizeof(dir));
	fd = bpf_obj_get(thc_pin(dir, name).path);
	memset(info, 0, sizeof(*info));
	if (fd >= 0 && (bpf_obj_get_info_by_fd(fd, info, &len) || info->type != type ||
			info->value_size != value_size)) {
		close(fd);
		return -1;
	}
	return fd;
}

/* Reads all values of an array map, which the caller frees. @count: entries that it must have; 0:
 * out: entries that it has
 */
static void *read_array(const char *instance, const char *name, size_t value_size, u32 *count)
{
	struct bpf_map_info info;
	int fd = open_pin(instance, name, BPF_MAP_TYPE_ARRAY, value_size, &info);
	char *all;
	u32 i;

	if (fd < 0)
		return NULL;
	if (!*count)
		*count = info.max_entries;
	all = info.max_entries == *count ? calloc(*count, value_size) : NULL;
	for (i = 0; all && i < *count; i++)
		bpf_map_lookup_elem(fd, &i, all + i * value_size);
	close(fd);
	return all;
}

static bool read_stats(const char *instance, struct thc_stats *out)
{
	struct bpf_map_info info;
	int fd = open_pin(instance, "stats", BPF_MAP_TYPE_PERCPU_ARRAY, sizeof(*out), &info);
	bool ok;

	if (fd < 0)
		return false;
	ok = thc_report_read_stats(fd, out);
	close(fd);
	return ok;
}

static void add_jobs(cJSON *o, const char *instance)
{
	u32 jobs = THC_JOBS_MAX, slots = 0;
	struct thc_job *job = read_array(instance, "jobs", sizeof(*job), &jobs);
	struct thcd_record *record = read_array(instance, THC_PIN_STATE, sizeof(*record), &jobs);
	struct thc_slot *slot = read_array(instance, "slots", sizeof(*slot), &slots);

	thc_report_jobs(o, job, record, slot, slots);
	free(job);
	free(record);
	free(slot);
}

cJSON *thcctl_pinned(const char *instance, const char *request)
{
	u32 one = 1;
	struct thcd_meta *meta = read_array(instance, THC_PIN_META, sizeof(*meta), &one);
	struct thc_stats stats;
	cJSON *o = NULL;

	if (meta && meta->complete && read_stats(instance, &stats)) {
		o = cJSON_CreateObject();
		cJSON_AddStringToObject(o, "instance", instance);
		cJSON_AddStringToObject(o, "mode", "pinned");
		cJSON_AddNumberToObject(o, "port", meta->port);
		cJSON_AddNumberToObject(o, "slots", meta->slots);
		cJSON_AddNumberToObject(o, "slot_bytes", thc_report_slot_bytes(meta->slots));
		if (!strcmp(request, "jobs"))
			add_jobs(o, instance);
		else
			thc_report_stats(o, &stats);
	}
	free(meta);
	return o;
}
