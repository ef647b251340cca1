// SPDX-License-Identifier: GPL-2.0
/*
 * The aggregators that share a job's chunks, as the operator names them. Each of them is told the
 * same list; number 0 tells it to the workers.
 */
#include <string.h>

#include "plan.h"

static int not_an_address(const char *word, struct thcd_error *e)
{
	return thcd_fail(e,
			 "shards: \"%s\" is not an address of an aggregator, as 10.0.0.1, "
			 "10.0.0.1:9100, fd00::1 or [fd00::1]:9100",
			 word);
}

/* Cuts the port, if there is one, off @text; NULL: none. @text: out: the address */
static char *cut_port(char **text)
{
	char *last = strrchr(*text, ':'), *bracket = strchr(*text, ']');

	if (**text == '[' && bracket) {
		++*text;
		*bracket = '\0';
		return bracket[1] == ':' ? bracket + 2 : bracket[1] ? bracket + 1 : NULL;
	}
	/* several colons are an address of IPv6 */
	if (!last || strchr(*text, ':') != last)
		return NULL;
	*last = '\0';
	return last + 1;
}

static int parse(struct thc_end *end, const char *word, u16 port, struct thcd_error *e)
{
	char copy[THCD_WORD_MAX], *text = copy, *number;
	u64 n = port;
	int family;

	strcpy(copy, word);
	number = cut_port(&text);
	family = thcd_addr_parse(text, &end->addr);
	if (family < 0 || thc_addr_is_group(&end->addr) ||
	    (number && (thcd_number_parse(number, &n) || !n)) || n > 65535 - THC_PORT_SPAN)
		return not_an_address(word, e);
	end->port = thc_be16((u16)n);
	return 0;
}

static bool is_twice(const struct thc_shards *s, u32 at)
{
	u32 i;

	for (i = 0; i < at; i++)
		if (s->at[i].port == s->at[at].port &&
		    thc_addr_equal(&s->at[i].addr, &s->at[at].addr))
			return true;
	return false;
}

int thcd_shards_choose(struct thc_shards *out, const struct thcd_job_wish *w, u16 port,
		       struct thcd_error *e)
{
	bool has_number = thcd_job_wish_given(w, "shard");
	u32 i;

	if (!w->aggregators)
		return has_number ? thcd_fail(e, "shard: give the list shards as well") : 0;
	if (!has_number)
		return thcd_fail(e,
				 "shard is missing: which of the %u shards is this aggregator? "
				 "They count from 0",
				 w->aggregators);
	if (w->shard >= w->aggregators)
		return thcd_fail(e, "shard=%u: there are %u shards, 0 to %u", w->shard,
				 w->aggregators, w->aggregators - 1);
	for (i = 0; i < w->aggregators; i++) {
		if (parse(&out->at[i], w->aggregator[i], port, e))
			return -1;
		if (is_twice(out, i))
			return thcd_fail(e, "shards: %s is there twice", w->aggregator[i]);
		if (thc_addr_is_v4(&out->at[i].addr) != thc_addr_is_v4(&out->at[0].addr))
			return thcd_fail(e, "shards: %s is not of the IP version of %s",
					 w->aggregator[i], w->aggregator[0]);
		out->at[i].aggregator = thc_be16((u16)i);
	}
	out->count = w->aggregators;
	out->own = w->shard;
	return 0;
}
