/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0) */
/*
 * A scheme: how a bucket becomes chunks that can be summed, and the sums a bucket. It fills
 * phases (phase.h); pipeline and transports do not know what is in them.
 */
#ifndef LIBTHC_SCHEME_H
#define LIBTHC_SCHEME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <thc/wire/spec.h>

struct thc_client;
struct thc_client_info;
struct thc_request;

/**
 * struct thc_scheme - its functions, called by the I/O thread except those up to @describe
 * @dtypes: a bit per enum thc_dtype that it accepts
 * @floats: the scheme's other half, for floats: its functions from @prepare on; NULL: it has none
 * @loses: results are not exact: losses go to the error memory
 * @check: NULL, or the reason, in words, why this scheme cannot serve a job, which is sound
 * @open: makes its client.context for client.spec, and may raise client.counted_least and
 *	counted_value; -ENOMEM, -EPROTO, with a sentence; NULL: it needs no context
 * @close: frees what @open made, whether or not @open was called, or succeeded; NULL: it made
 *	nothing
 * @describe: fills in the scheme's members of @info, also while there is no context
 * @prepare: thc_request.taken and progress, and phases behind the agreement, with the chunks that
 *	are known from the start; the transport will take @growth bytes. -ENOMEM
 * @compute: computes a slice of THC_SLICE coordinates, or some more; false: there is nothing to do
 *	now. Writes its findings to thc_request.claimed and claim_status
 * @agreed: the agreement has succeeded, and phases have their numbers
 * @answer: takes in the sums of @chunks chunks of @phase, from @first on: @lanes, THC_LANE_BYTES
 *	each, NULL: they are gone; @counts: number of contributors of each, and THC_COUNT_EXCLUDED.
 *	May write results to the caller's buffer, which @undo can restore
 * @ended: NULL, or called when the request has succeeded: nothing can fail or be undone any more,
 *	and its error memory is still thc_residual.next. May write the rest of the results
 * @undo: restores the caller's buffer after the request has failed; called whether or not @prepare
 *	was, or succeeded
 */
struct thc_scheme {
	enum thc_scheme_id id;
	unsigned int	dtypes;
	const struct thc_scheme *floats;
	bool		loses;
	const char	*(*check)(const struct thc_spec *s);
	int		(*open)(struct thc_client *c);
	void		(*close)(struct thc_client *c);
	void		(*describe)(const struct thc_client *c, struct thc_client_info *info);
	int		(*prepare)(struct thc_request *r, size_t growth);
	bool		(*compute)(struct thc_request *r);
	void		(*agreed)(struct thc_request *r);
	void (*answer)(struct thc_request *r, unsigned int phase, uint32_t first, uint32_t chunks,
		       const uint16_t *counts, const uint8_t *lanes);
	void		(*ended)(struct thc_request *r);
	void		(*undo)(struct thc_request *r);
};

#define THC_SCHEME_DECLARE(id, word) extern const struct thc_scheme thc_scheme_##word;
THC_SCHEMES(THC_SCHEME_DECLARE)
#undef THC_SCHEME_DECLARE

/* The scheme of a job, struct thc_spec.scheme; NULL: this library does not have it. */
const struct thc_scheme *thc_scheme_of(unsigned int id);
/* The scheme of this name, or NULL. */
const struct thc_scheme *thc_scheme_named(const char *name);

#endif /* LIBTHC_SCHEME_H */
