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
/* Integers beyond it are not exact in JSON. */
#define EXACT_MAX	9007199254740992.0

struct source {
	const char *name;
	const char *text;
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
	at = skip_value(at);
	return *at == ':' ? skip_blanks(at + 1) : at;
}

/* Where the @index-th member or element of the object or list at @at begins. */
static const char *enter(const char *at, int index)
{
	bool object = *at == '{';

	at = skip_blanks(at + 1);
	for (; index > 0 && *at; index--) {
		at = skip_value(object ? value_of(at) : at);
		at = *at == ',' ? skip_blanks(at + 1) : at;
	}
	return at;
}

static int index_in(const cJSON *parent, const cJSON *item)
{
	const cJSON *i;
	int index = 0;

	for (i = parent->child; i && i != item; i = i->next)
		index++;
	return index;
}

/* Puts file, line and place in front of a sentence about @item, a member of the
 * object that begins at @at.
 */
static int at_member(const struct source *s, const char *at, const cJSON *object, const cJSON *item,
		     const char *where, struct thcd_error *e)
{
	int line = line_of(s->text, enter(at, index_in(object, item)));
	struct thcd_error inner = *e;

	return thcd_fail(e, "%s:%d: %s%.400s", s->name, line, where, inner.text);
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

/* A key of a job; `prefix` may be a list. */
static int read_key(struct thcd_job_wish *w, const cJSON *item, struct thcd_error *e)
{
	char value[256];
	const cJSON *v;

	if (strcmp(item->string, "prefix") || !cJSON_IsArray(item))
		return value_text(item, value, sizeof(value), e) ?
			       -1 :
			       thcd_job_wish_set(w, item->string, value, e);
	if (!item->child)
		return thcd_fail(e, "prefix: the list is empty: nobody could join");
	cJSON_ArrayForEach(v, item)
	{
		if (!cJSON_IsString(v))
			return thcd_fail(e, "prefix: a list of texts is expected, as "
					    "[\"10.0.0.0/24\", \"fd00::/64\"]");
		if (thcd_job_wish_set(w, item->string, v->valuestring, e))
			return -1;
	}
	return 0;
}

/* @at: where the @index-th job begins */
static int read_job(struct thcd_config *c, const struct source *s, const char *at,
		    const cJSON *object, int index, struct thcd_error *e)
{
	struct thcd_job_wish *w = &c->job[c->jobs];
	const cJSON *item;
	char where[32];

	snprintf(where, sizeof(where), "jobs[%d]: ", index);
	if (!cJSON_IsObject(object))
		return thcd_fail(e, "%s:%d: jobs[%d] is not an object { ... }", s->name,
				 line_of(s->text, at), index);
	if (c->jobs == THC_JOBS_MAX)
		return thcd_fail(e, "%s:%d: more than %d jobs", s->name, line_of(s->text, at),
				 THC_JOBS_MAX);
	thcd_job_wish_init(w);
	cJSON_ArrayForEach(item, object)
	{
		if (check_once(object, item, "", e) || read_key(w, item, e))
			return at_member(s, at, object, item, where, e);
	}
	c->jobs++;
	return 0;
}

/* @at: where the list begins */
static int read_jobs(struct thcd_config *c, const struct source *s, const char *at,
		     const cJSON *list, struct thcd_error *e)
{
	const cJSON *object;
	int index = 0;

	if (!cJSON_IsArray(list))
		return thcd_fail(e, "%s:%d: \"jobs\" is not a list [ { ... } ]", s->name,
				 line_of(s->text, at));
	cJSON_ArrayForEach(object, list)
	{
		if (read_job(c, s, enter(at, index), object, index, e))
			return -1;
		index++;
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

/* @at: where the file's object begins */
static int read_top(struct thcd_config *c, const struct source *s, const char *at,
		    const cJSON *root, struct thcd_error *e)
{
	const cJSON *item;
	int index = 0;

	cJSON_ArrayForEach(item, root)
	{
		const char *key = enter(at, index++);
		bool jobs = !strcmp(item->string, "jobs");

		if (check_once(root, item, "\"", e) || (!jobs && read_setting(c, item, e)))
			return at_member(s, at, root, item, "", e);
		if (jobs && read_jobs(c, s, value_of(key), item, e))
			return -1;
	}
	return 0;
}

int thcd_config_text(struct thcd_config *c, const char *name, const char *text,
		     struct thcd_error *e)
{
	struct source s = { name, text };
	const char *end = text;
	cJSON *root = cJSON_ParseWithOpts(text, &end, 1);
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
		err = read_top(c, &s, strchr(text, '{'), root, e);
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
	thcd_secret_warn(fileno(f), name);
	free(c->file);
	c->file = strdup(name);
	text = malloc(FILE_MAX_BYTES + 1);
	if (!text || !c->file) {
		free(text);
		fclose(f);
		return thcd_fail(e, "out of memory");
	}
	n = fread(text, 1, FILE_MAX_BYTES + 1, f);
	err = ferror(f);
	fclose(f);
	if (err) {
		err = thcd_fail(e, "cannot read %s: %s", name, strerror(errno));
	} else if (n > FILE_MAX_BYTES) {
		err = thcd_fail(e, "%s is larger than 1 MiB: not a configuration of thcd", name);
	} else {
		text[n] = '\0';
		err = thcd_config_text(c, name, text, e);
	}
	free(text);
	return err;
}
