/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Counters and jobs as JSON: for thcd's answers on its control socket, and for thcctl, which reads
 * the pinned maps of a dead daemon.
 */
#ifndef THC_REPORT_H
#define THC_REPORT_H

#include <netinet/in.h>
#include <stdbool.h>

#include <cjson/cJSON.h>

#include <thc/aggregator/event.h>
#include <thc/aggregator/slot.h>

#include "record.h"

/* Counters that only a daemon has: name and meaning. */
#define THCD_COUNTERS(X)                                                                         \
	X(unsent, "answers the kernel did not take, or had too little room for")                                              \
	X(overflow, "packets lost in a full receive buffer, before they were counted")           \
	X(past_xdp, "packets that reached thcd by another way than the XDP program")             \
	X(gone, "answers asked for whose slot had moved on")                                     \
	X(challenged, "JOINs answered by a challenge: nothing has changed yet")                  \
	X(refused, "JOINs refused")                                                              \
	X(muted, "refusals not sent, for their rate")                                            \
	X(foreign, "times another host was heard on a job's group, once a minute at most")

/* Bytes an aggregator keeps for @slots slots. */
u64 thc_report_slot_bytes(u64 slots);

/* Adds received, events, drops and whether they add up. */
void thc_report_stats(cJSON *to, const struct thc_stats *s);

/* Reads the map `stats`, summed over CPUs; false if it cannot be read. */
bool thc_report_read_stats(int map, struct thc_stats *out);

/* Text of an address, IPv4 as such; @text has room for INET6_ADDRSTRLEN characters. */
const char *thc_addr_text(const struct thc_addr *addr, char *text);

/* Characters of a prefix, and of all that a job may have. */
#define THC_PREFIX_TEXT		(INET6_ADDRSTRLEN + 4)
#define THC_PREFIXES_TEXT	(THCD_PREFIXES_MAX * (THC_PREFIX_TEXT + 2))

/* 10.0.0.0/24; @text has room for THC_PREFIX_TEXT characters. */
const char *thc_prefix_text(const struct thcd_prefix *p, char *text);

/* All prefixes of a list; @text has room for THC_PREFIXES_TEXT characters. */
const char *thc_prefixes_text(const struct thcd_prefixes *p, char *text);

/* Adds the list of jobs, without those that no thcd can have written: a user may own the pins.
 * @job, @record: by job number; @slot: the aggregator's @slots slots. NULL: not known.
 */
void thc_report_jobs(cJSON *to, const struct thc_job *job, const struct thcd_record *record,
		     const struct thc_slot *slot, u32 slots);

#endif /* THC_REPORT_H */
