// SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0)
/*
 * Sentences for failures, whichever transport has noticed them: what went wrong, who is to blame,
 * and what to do.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "client.h"
#include "queue.h"
#include "scheme.h"
#include "transport.h"
#include "way.h"

/* Room for the name of an aggregator. */
#define AGGREGATOR_TEXT	112

static void name_end(const struct thc_end *end, char *text, size_t size)
{
	bool is_ip4 = thc_addr_is_v4(&end->addr);
	char address[INET6_ADDRSTRLEN] = "?";

	inet_ntop(is_ip4 ? AF_INET : AF_INET6,
		  is_ip4 ? &end->addr.word[3] : (const void *)&end->addr, address, sizeof(address));
	snprintf(text, size, is_ip4 ? "%s:%u" : "[%s]:%u", address, thc_be16(end->port));
}

/* Names number @shard: its address, and its number if there are several aggregators. */
static void name_aggregator(const struct thc_client *c, uint32_t shard, char *text, size_t size)
{
	uint32_t count = c->list.count;
	const struct thc_way *way;
	char address[80];

	shard = count ? shard % count : 0;
	way = c->transport->ops->way(c->transport, shard);
	if (way)
		thc_way_name(way, address, sizeof(address));
	else
		name_end(&c->list.at[shard], address, sizeof(address));
	if (count)
		snprintf(text, size, "%s (shard %u of %u)", address, shard, count);
	else
		snprintf(text, size, "%s", address);
}

static void fail_unreachable(struct thc_client *c, int error, const char *aggregator)
{
	if (error == -ECONNREFUSED)
		thc_queue_break(
			c, error,
			"nobody serves at %s any more, or not the same thcd: see that it runs, then call thc_client_rejoin() on all ranks",
			aggregator);
	else
		thc_queue_break(
			c, error,
			"the aggregator at %s cannot be reached: %s; is the interface up? Then call thc_client_rejoin() on all ranks",
			aggregator, strerror(-error));
}

static unsigned int port_of(const struct thc_client *c, uint32_t shard)
{
	return shard < c->list.count ? thc_be16(c->list.at[shard].port) : c->options.port;
}

bool thc_failed(struct thc_client *c, const struct thc_failure *f)
{
	char who[THC_RANKS_TEXT], aggregator[AGGREGATOR_TEXT];

	thc_name_ranks(f->ranks, who, sizeof(who));
	name_aggregator(c, f->shard, aggregator, sizeof(aggregator));
	switch (f->reason) {
	case THC_FAILED_EPOCH:
		snprintf(who, sizeof(who), "rank %u restarted or joined again", f->worker);
		thc_queue_break(
			c, -ESTALE,
			"%s (job %u is now in session %u, this rank is in session %u): call thc_client_rejoin() on all ranks",
			f->worker == THC_WORKER_NONE ? "the aggregator restarted" : who,
			c->options.job, f->epoch, c->transport->ops->epoch(c->transport, f->shard));
		break;
	case THC_FAILED_BEHIND:
		thc_queue_break(
			c, -ESTALE,
			"this rank (%u) fell so far behind that the others' results are gone: raise the job's deadline or call thc_client_rejoin() on all ranks",
			c->options.rank);
		break;
	case THC_FAILED_LEFT:
		thc_queue_break(
			c, -EPIPE,
			"%s did not contribute, and a rank that is missing has left the job: restart it and call thc_client_rejoin() on all ranks",
			who);
		break;
	case THC_FAILED_DIFFERS:
		thc_queue_break(
			c, -ETIMEDOUT,
			"no progress for %u ms: this rank (%u) and %s disagree about what they sum (op, width or round): see that all ranks run the same program, then call thc_client_rejoin() on all ranks",
			c->options.timeout_ms, c->options.rank, who);
		break;
	case THC_FAILED_MISSING:
		thc_queue_break(
			c, -ETIMEDOUT,
			"no progress for %u ms: %s did not contribute; find out why, then call thc_client_rejoin() on all ranks",
			c->options.timeout_ms, who);
		break;
	case THC_FAILED_SILENT:
		thc_queue_break(
			c, -ETIMEDOUT,
			"no answer from the aggregator at %s for %u ms: is thcd running there, or was it restarted, has no other process joined as this rank, and are UDP ports %u to %u open? Then call thc_client_rejoin() on all ranks",
			aggregator, c->options.timeout_ms, port_of(c, f->shard),
			port_of(c, f->shard) + THC_PORT_SPAN - 1);
		break;
	case THC_FAILED_UNREACHABLE:
		fail_unreachable(c, -f->error, aggregator);
		break;
	default:
		return false;
	}
	return true;
}

/* --- joining -------------------------------------------------------------- */

static int fail_refused(const struct thc_client *c, unsigned int refusal)
{
	const struct thc_client_options *o = &c->options;

	switch (refusal) {
	case THC_REFUSED_RANK:
		return thc_fail(-ERANGE,
				"rank %u is too large for job %u: ranks count from 0 to n - 1",
				o->rank, o->job);
	case THC_REFUSED_PREFIX:
		return thc_fail(
			-EACCES,
			"job %u does not admit workers from this address: add this worker's subnet to the job's key prefix (its default is the aggregator's own subnets), or give the option bind an address that the job admits",
			o->job);
	case THC_REFUSED_TAKEN:
		return thc_fail(
			-EADDRINUSE,
			"rank %u of job %u is taken by another worker: give every worker its own rank",
			o->rank, o->job);
	case THC_REFUSED_NO_XDP:
		return thc_fail(
			-EHOSTDOWN,
			"the aggregator's XDP program was taken away, so nothing is aggregated: restart thcd, then join again");
	case THC_REFUSED_SEAL:
		return thc_fail(
			-EPROTO,
			"this library cannot do the seal of job %u: install one release on all hosts of the job",
			o->job);
	case THC_REFUSED_JOB:
		return thc_fail(
			-ENOENT,
			"the aggregator has no job %u %s: compare the job's number and its key file with those of thcd",
			o->job, o->key ? "with this key" : "for workers without a key");
	}
	return thc_fail(-EACCES, "the aggregator refused rank %u of job %u (reason %u)", o->rank,
			o->job, refusal);
}

static int fail_version(unsigned int job, const struct thc_spec *s)
{
	if (s->has & 1U << THC_RECORD_SCHEME && !thc_scheme_of(s->scheme))
		return thc_fail(
			-EPROTO,
			"the aggregator's job %u has scheme %u, which this library does not have: use the same version of THC on all hosts",
			job, s->scheme);
	return thc_fail(
		-EPROTO,
		"the aggregator's job %u has parameters this library does not know: use the same version of THC on all hosts",
		job);
}

int thc_failed_to_join(const struct thc_client *c, const struct thc_failure *f,
		       const struct thc_spec *s)
{
	unsigned int job = c->options.job, waited = c->options.join_timeout_ms;
	char missing[THC_RANKS_TEXT], aggregator[AGGREGATOR_TEXT];

	thc_name_ranks(f->ranks, missing, sizeof(missing));
	name_aggregator(c, f->shard, aggregator, sizeof(aggregator));
	switch (f->reason) {
	case THC_FAILED_REFUSED:
		return fail_refused(c, f->refusal);
	case THC_FAILED_SHARDS:
		return thc_fail(
			-EPROTO,
			"the aggregator at %s does not serve the same job %u as the others: give all of them the same --job, but for shard",
			aggregator, job);
	case THC_FAILED_VERSION:
		return fail_version(job, s);
	case THC_FAILED_JOIN:
		if (!f->ranks)
			return thc_fail(
				-ETIMEDOUT,
				"all ranks have joined job %u, but the aggregator did not say within %u ms that the job is ready: join again",
				job, waited);
		if (!s->ranks)
			return 0;
		return thc_fail(-ETIMEDOUT,
				"%s of job %u did not join within %u ms: start all %u workers",
				missing, job, waited, s->ranks);
	case THC_FAILED_UNREACHABLE:
		if (f->error)
			return thc_fail(-f->error, "nobody serves at %s: %s; start thcd there",
					aggregator, strerror(f->error));
		/* fall through */
	case THC_FAILED_SILENT:
		return thc_fail(
			-EHOSTUNREACH,
			"no answer from %s for %u ms: is thcd running there with job %u, as its only aggregator or its first shard, and is UDP open? A thcd older than this library does not answer it",
			aggregator, waited, job);
	}
	return 0;
}
