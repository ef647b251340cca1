// SPDX-License-Identifier: GPL-2.0
/*
 * The configuration file: JSON whose values are turned into the texts that
 * config.c parses, so that file and command line cannot differ. Everything
 * unknown is refused with its place.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "config.h"

/* A configuration is small; more is a mistake. */
#define FILE_MAX_BYTES	(1 << 20)
/* Larger integers are not exact in JSON. */
#define EXACT_MAX	9007199254740992.0

/* The value that is being read, for sentences that say where a mistake is. */
struct place {
	const cJSON	*item;
	char		where[32];	/* "jobs[0]: " in a job, or empty */
};

static int line_of(const char *text, const char *at)
{
	int line = 1;

	for (; text < at; text++)
		line += *text == '\n';
	return line;
}

/* --- places: where an item stands in text that cJSON has accepted --------- */

static const char *skip_blanks(const char *at)
{
	while (*at && (unsigned char)*at <= ' ')
		at++;
	return at;
}

/* Returns what follows the value at @at. */
static const char *skip_value(const char *at)
{
	const char *end = at;

	cJSON_Delete(cJSON_ParseWithOpts(at, &end, 0));
	return skip_blanks(end);
}

/* @at: the key of a member; returns where its value begins. */
static const char *value_of(const char *at)
{
	return skip_blanks(skip_value(at) + 1);
}

/* Goes through @tree and its text at @at side by side, and puts into @found where @item, a member
 * or an element, begins. Returns what follows the tree.
 */
static const char *find(const char *at, const cJSON *tree, const cJSON *item, const char **found)
{
	bool object = cJSON_IsObject(tree);
	const cJSON *i;

	if (!object && !cJSON_IsArray(tree))
		return skip_value(at);
	at = skip_blanks(at + 1);
	cJSON_ArrayForEach(i, tree)
	{
		if (i == item)
			*found = at;
		at = find(object ? value_of(at) : at, i, item, found);
		at = *at == ',' ? skip_blanks(at + 1) : at;
	}
	return skip_blanks(at + 1);
}

static int check_once(const cJSON *object, const cJSON *item, const char *quote,
		      struct thcd_error *e)
{
	if (cJSON_GetObjectItemCaseSensitive(object, item->string) == item)
		return 0;
	return thcd_fail(e, "%s%s%s is given twice", quote, item->string, quote);
}

/* --- values ----------------------------------------------------------------- */

static int list_text(const cJSON *item, char *out, size_t size, struct thcd_error *e)
{
	const cJSON *v;
	size_t used = 0;

	if (!item->child)
		return thcd_fail(e, "%s: the list is empty", item->string);
	cJSON_ArrayForEach(v, item)
	{
		int n;

		if (!cJSON_IsNumber(v) || v->valuedouble != floor(v->valuedouble))
			return thcd_fail(e, "%s: a list of whole numbers is expected",
					 item->string);
		n = snprintf(out + used, size - used, "%s%.0f", used ? ":" : "", v->valuedouble);
		if (n < 0 || (size_t)n >= size - used)
			return thcd_fail(e, "%s: the list is too long", item->string);
		used += n;
	}
	return 0;
}

/* A JSON value as the text the command line would have. */
static int value_text(const cJSON *item, char *out, size_t size, struct thcd_error *e)
{
	if (cJSON_IsString(item)) {
		if (strlen(item->valuestring) >= size)
			return thcd_fail(e, "%s: the text is too long", item->string);
		strcpy(out, item->valuestring);
		return 0;
	}
	if (cJSON_IsBool(item)) {
		strcpy(out, cJSON_IsTrue(item) ? "on" : "off");
		return 0;
	}
	if (cJSON_IsArray(item))
		return list_text(item, out, size, e);
	if (!cJSON_IsNumber(item))
		return thcd_fail(e, "%s: a number, text, true, false or list is expected",
				 item->string);
	if (fabs(item->valuedouble) > EXACT_MAX)
		return thcd_fail(e,
				 "%s: JSON numbers are not exact beyond 2^53; write it as text, "
				 "\"0x...\"",
				 item->string);
	if (item->valuedouble == floor(item->valuedouble))
		snprintf(out, size, "%.0f", item->valuedouble);
	else
		snprintf(out, size, "%.17g", item->valuedouble);
	return 0;
}

/* A key of a job; some may be lists of texts. */
static int read_key(struct thcd_job_wish *w, const cJSON *item, struct thcd_error *e)
{
	char value[THC_TABLE_LEVELS_MAX * 6];
	const cJSON *v;

	if (!thcd_job_key_is_list(item->string) || !cJSON_IsArray(item))
		return value_text(item, value, sizeof(value), e) ?
			       -1 :
			       thcd_job_wish_set(w, item->string, value, e);
	if (!item->child)
		return thcd_fail(e, "%s: the list is empty: name at least one", item->string);
	cJSON_ArrayForEach(v, item)
	{
		if (!cJSON_IsString(v))
			return thcd_fail(e,
					 "%s: a list of texts is expected, as "
					 "[\"10.0.0.1\", \"fd00::1\"]",
					 item->string);
		if (thcd_job_wish_set(w, item->string, v->valuestring, e))
			return -1;
	}
	return 0;
}

static int read_job(struct thcd_config *c, struct place *p, const cJSON *object, int index,
		    struct thcd_error *e)
{
	struct thcd_job_wish *w = &c->job[c->jobs];
	const cJSON *item;

	p->item = object;
	if (!cJSON_IsObject(object))
		return thcd_fail(e, "jobs[%d] is not an object { ... }", index);
	if (c->jobs == THC_JOBS_MAX)
		return thcd_fail(e, "more than %d jobs", THC_JOBS_MAX);
	thcd_job_wish_init(w);
	snprintf(p->where, sizeof(p->where), "jobs[%d]: ", index);
	cJSON_ArrayForEach(item, object)
	{
		p->item = item;
		if (check_once(object, item, "", e) || read_key(w, item, e))
			return -1;
	}
	p->where[0] = '\0';
	c->jobs++;
	return 0;
}

static int read_jobs(struct thcd_config *c, struct place *p, const cJSON *list,
		     struct thcd_error *e)
{
	const cJSON *object;
	int index = 0;

	if (!cJSON_IsArray(list))
		return thcd_fail(e, "\"jobs\" is not a list [ { ... } ]");
	cJSON_ArrayForEach(object, list)
	{
		if (read_job(c, p, object, index++, e))
			return -1;
	}
	return 0;
}

static int read_listen(struct thcd_config *c, const cJSON *item, struct thcd_error *e)
{
	const cJSON *v;

	cJSON_ArrayForEach(v, item)
	{
		if (!cJSON_IsString(v))
			return thcd_fail(e, "\"listen\" is not a list of addresses");
		if (thcd_config_set(c, "listen", v->valuestring, e))
			return -1;
	}
	return 0;
}

static int read_setting(struct thcd_config *c, const cJSON *item, struct thcd_error *e)
{
	char value[256];

	if (!strcmp(item->string, "listen") && cJSON_IsArray(item))
		return read_listen(c, item, e);
	if (value_text(item, value, sizeof(value), e))
		return -1;
	return thcd_config_set(c, item->string, value, e);
}

static int read_top(struct thcd_config *c, struct place *p, const cJSON *root, struct thcd_error *e)
{
	const cJSON *item;

	cJSON_ArrayForEach(item, root)
	{
		p->item = item;
		if (check_once(root, item, "\"", e) ||
		    (strcmp(item->string, "jobs") ? read_setting(c, item, e) :
						    read_jobs(c, p, item, e)))
			return -1;
	}
	return 0;
}

int thcd_config_text(struct thcd_config *c, const char *name, const char *text,
		     struct thcd_error *e)
{
	const char *end = text, *at = text;
	cJSON *root = cJSON_ParseWithOpts(text, &end, 1);
	struct place p = { 0 };
	struct thcd_error why;
	int err;

	if (!root && !*end)
		return thcd_fail(e, "%s:%d: not JSON: its end comes too early, or behind a comma",
				 name, line_of(text, end));
	if (!root)
		return thcd_fail(e, "%s:%d: not JSON near \"%.20s\"", name, line_of(text, end),
				 end);
	if (!cJSON_IsObject(root))
		err = thcd_fail(e, "%s: the file must hold one object { ... }", name);
	else
		err = read_top(c, &p, root, &why);
	if (err && p.item) {
		find(strchr(text, '{'), root, p.item, &at);
		thcd_fail(e, "%s:%d: %s%.400s", name, line_of(text, at), p.where, why.text);
	}
	cJSON_Delete(root);
	return err;
}

int thcd_config_file(struct thcd_config *c, const char *name, struct thcd_error *e)
{
	FILE *f = fopen(name, "re");
	char *text;
	size_t n;
	int err;

	if (!f)
		return thcd_fail(e, "cannot read %s: %s", name, strerror(errno));
	/* fopen() takes no name longer than PATH_MAX */
	snprintf(c->file, sizeof(c->file), "%s", name);
	text = calloc(1, FILE_MAX_BYTES + 1);
	n = text ? fread(text, 1, FILE_MAX_BYTES + 1, f) : 0;
	if (!text)
		err = thcd_fail(e, "out of memory");
	else if (ferror(f))
		err = thcd_fail(e, "cannot read %s: %s", name, strerror(errno));
	else if (n > FILE_MAX_BYTES)
		err = thcd_fail(e, "%s is larger than 1 MiB: not a configuration of thcd", name);
	else
		err = thcd_config_text(c, name, text, e);
	fclose(f);
	free(text);
	return err;
}
