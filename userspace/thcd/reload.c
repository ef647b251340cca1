// SPDX-License-Identifier: GPL-2.0
/*
 * SIGHUP, or "reload" on the control socket: thcd reads the command line and its file again,
 * completely, before it changes anything. Then it removes and adds jobs. A job that has ranks in it
 * keeps all but its prefixes, for its ranks rely on its constants. thcd names settings of the
 * start, such as interface and ports, that differ, and leaves them.
 *
 * The number of slots is fixed at the start: new jobs get those of removed jobs, and the spare ones
 * of the file.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "control.h"
#include "jobs.h"
#include "net.h"
#include "pins.h"
#include "plan.h"
#include "xdp.h"

/* One reading of the file. */
struct again {
	struct thcd			*d;
	const struct thcd_config	*was;
	struct thcd_config		is;
	struct thcd_plan		plan[THC_JOBS_MAX];	/* .ranks 0: no such job */
	cJSON				*said;
	bool				failed;			/* something stays as it was */
};

static void tell(cJSON *said, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void tell(cJSON *said, const char *format, ...)
{
	char line[THCD_TEXT_MAX];
	va_list ap;

	va_start(ap, format);
	vsnprintf(line, sizeof(line), format, ap);
	va_end(ap);
	thcd_say("%s", line);
	if (said)
		cJSON_AddItemToArray(said, cJSON_CreateString(line));
}

/* The list for tell(), to say why something stays as it was. */
static cJSON *failed(struct again *a)
{
	a->failed = true;
	return a->said;
}

static void look_at_settings(const struct again *a)
{
	unsigned int at = 0;
	const char *name;

	while ((name = thcd_config_difference(a->was, &a->is, &at)))
		tell(a->said, "reload: %s: the start settles it: restart thcd to change it", name);
}

/* Finds @need slots in a row that no job has. @first: out: the first one; false: there are none */
static bool find_slots(const struct thcd *d, u32 need, u32 *first)
{
	u32 at = 0;
	int i;

	for (i = 0; i < THC_JOBS_MAX; i++) {
		const struct thcd_plan *p = &d->record[i].plan;
		u32 end = p->slot_base + p->data_slots + p->control_slots;

		if (!d->record[i].used || at + need <= p->slot_base || at >= end)
			continue;
		/* try behind this job, and compare with all jobs again */
		at = end;
		i = -1;
	}
	*first = at;
	return at + need <= d->slots;
}

static int add(struct again *a, u32 id, struct thcd_plan *plan)
{
	u32 need = plan->data_slots + plan->control_slots;
	struct thcd *d = a->d;
	struct thcd_error e;

	if (!find_slots(d, need, &plan->slot_base)) {
		tell(failed(a),
		     "reload: job %u: no %u slots in a row are free, and a running thcd gets no "
		     "more: restart it, with spare_slots for jobs to come",
		     id, need);
		return -1;
	}
	thcd_job_create(d, plan);
	if (!d->software && thcd_xdp_job(d, id, &e)) {
		thcd_job_forget(d, id);
		tell(failed(a), "reload: %s", e.text);
		return -1;
	}
	return 0;
}

/* False if job @id must stay as it is. */
static bool remove_job(struct again *a, u32 id)
{
	struct thcd *d = a->d;
	struct thcd_error e;

	thcd_job_show(d, id, false);
	/* wait for packets that XDP handles for this job */
	if (!d->software && thcd_xdp_wait(d, &e)) {
		thcd_job_show(d, id, true);
		tell(failed(a), "reload: job %u stays: %s", id, e.text);
		return false;
	}
	thcd_job_forget(d, id);
	thcd_foreign_restart(id, 0);
	return true;
}

/* May job @id be removed? @why: the change that is asked for, for the printed line */
static bool may_go(struct again *a, u32 id, const char *why)
{
	const struct thc_job *job = &a->d->job[id];
	int inside = __builtin_popcountll(job->joined & ~job->left);

	if (!inside)
		return true;
	tell(failed(a),
	     "reload: job %u stays as it is: %s, but %d of its %u ranks %s in it: reload once more "
	     "when they have left",
	     id, why, inside, job->ranks, inside == 1 ? "is" : "are");
	return false;
}

static void tell_job(const struct again *a, const char *change, u32 id)
{
	char text[THCD_TEXT_MAX];

	thcd_job_describe(&a->plan[id], text, sizeof(text));
	tell(a->said, "reload: %s %s", change, text);
}

static void replace_job(struct again *a, u32 id)
{
	struct thcd_plan was = a->d->record[id].plan;
	struct thcd_error e;

	thcd_keep_difference(&was, &a->plan[id], &e);
	if (may_go(a, id, e.text) && remove_job(a, id)) {
		if (!add(a, id, &a->plan[id]))
			tell_job(a, "changed", id);
		/* the old job comes back: its slots are still free */
		else if (add(a, id, &was))
			tell(a->said, "reload: job %u is gone: reload once more", id);
	}
	explicit_bzero(&was, sizeof(was));
}

/* Jobs are removed first: their slots make room for new ones. */
static void change_jobs(struct again *a)
{
	const struct thcd_record *r = a->d->record;
	u32 id;

	for (id = 0; id < THC_JOBS_MAX; id++)
		if (r[id].used && !a->plan[id].ranks && may_go(a, id, "the file has it no more") &&
		    remove_job(a, id))
			tell(a->said, "reload: job %u removed", id);
	for (id = 0; id < THC_JOBS_MAX; id++) {
		if (!a->plan[id].ranks || thcd_keep_equal(&r[id].plan, &a->plan[id]))
			continue;
		if (r[id].used)
			replace_job(a, id);
		else if (!add(a, id, &a->plan[id]))
			tell_job(a, "added", id);
	}
}

/* Changes the prefixes of jobs, even if their other changes have to wait for ranks to leave:
 * prefixes are compared at each JOIN only.
 */
static bool change_prefixes(struct again *a)
{
	char from[THC_PREFIXES_TEXT];
	bool any = false;
	u32 id;

	for (id = 0; id < THC_JOBS_MAX; id++) {
		struct thcd_plan *was = &a->d->record[id].plan, *is = &a->plan[id];

		if (!a->d->record[id].used || !is->ranks ||
		    !memcmp(&was->admits, &is->admits, sizeof(is->admits)))
			continue;
		was->admits = is->admits;
		any = true;
		tell(a->said, "reload: job %u: workers may join from %s", id,
		     thc_prefixes_text(&is->admits, from));
	}
	return any;
}

/* Do the jobs of the file differ from those that run? */
static bool jobs_differ(const struct again *a)
{
	u32 id;

	for (id = 0; id < THC_JOBS_MAX; id++)
		if (!thcd_keep_equal(&a->d->record[id].plan, &a->plan[id]))
			return true;
	return false;
}

static void apply(struct again *a)
{
	bool changed = change_prefixes(a), differ = jobs_differ(a);

	look_at_settings(a);
	if (differ && a->d->adopted) {
		tell(failed(a),
		     "reload: a thcd without root cannot change jobs: thcd --prepare, see "
		     "thcd(8)");
	} else if (differ) {
		change_jobs(a);
	} else if (!changed) {
		tell(a->said, "reload: %s: the jobs are those that run", a->was->file);
	}
}

bool thcd_reload(struct thcd *d, const struct thcd_config *was, int argc, char **argv, cJSON *said)
{
	/* zero between two reloads */
	static struct again a;
	struct thcd_error e = { "" };
	u32 slots;
	bool ok;

	a.d = d;
	a.was = was;
	a.said = said;
	thcd_config_init(&a.is);
	if (!*was->file)
		tell(failed(&a), "reload: there is no file to read again: thcd was started without "
				 "--config");
	else if (thcd_options(&a.is, argc, argv, &e) != THCD_RUN ||
		 thcd_plan_jobs(d, &a.is, a.plan, &slots, &e))
		tell(failed(&a), "reload: nothing changes: %.400s", e.text);
	else
		apply(&a);
	ok = !a.failed;
	/* wipes keys */
	explicit_bzero(&a, sizeof(a));
	return ok;
}
