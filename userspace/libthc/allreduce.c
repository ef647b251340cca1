// SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0)
/*
 * The public calls of all-reduces: they check their arguments, and hand requests to the I/O thread.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <thc/names.h>

#include "client.h"
#include "dtype.h"
#include "fixed.h"
#include "request.h"
#include "rows.h"
#include "scheme.h"
#include "scheme_lhc.h"
#include "scheme_thc.h"
#include "structs.h"

static const struct thc_struct_layout call_layout = {
	"thc_call", THC_STRUCT_SIZE(struct thc_call, precision), sizeof(struct thc_call),
};
static const struct thc_struct_layout rows_layout = {
	"thc_rows", sizeof(struct thc_rows), sizeof(struct thc_rows),
};

static int check_buffer(const void *buf, size_t count, enum thc_dtype dtype)
{
	if (!buf || !count)
		return thc_fail(-EINVAL, "there is nothing to reduce: buffer %p with %zu values",
				buf, count);
	if ((unsigned int)dtype >= THC_DTYPES)
		return thc_fail(
			-EINVAL,
			"unknown dtype %d: use THC_FP32, THC_FP16 or THC_BF16, or THC_INT8, THC_INT16 or THC_INT32 with the scheme none",
			(int)dtype);
	if (count > UINT32_MAX)
		return thc_fail(-EINVAL, "%zu values are too many for one all-reduce: split it",
				count);
	return 0;
}

static int check_scheme(const struct thc_client *c, const struct thc_scheme *s,
			enum thc_dtype dtype)
{
	const char *reason;

	if (!(s->dtypes & 1U << dtype))
		return thc_fail(-EINVAL,
				"scheme %s takes no %s values: integers are for the scheme none",
				thc_scheme_name[s->id], thc_dtype_name(dtype));
	reason = s->check(&c->spec);
	if (reason)
		return thc_fail(-EOPNOTSUPP, "scheme %s is not for this job: %s",
				thc_scheme_name[s->id], reason);
	/* the job's own scheme was checked when the job was joined */
	return s == c->scheme ? 0 : thc_feedback_check(c, s);
}

static bool has_precision(const struct thc_scheme *s, enum thc_dtype dtype)
{
	return thc_scheme_is_precise(s->id) && THC_DTYPES_FLOAT & 1U << dtype;
}

static int check_grain(const struct thc_scheme *s, size_t grain)
{
	if (grain <= 1)
		return 0;
	if (s->id != THC_SCHEME_LHC)
		return thc_fail(-EINVAL, "a grain is for the scheme lhc: set it to 0");
	if (grain > THC_GRAIN_MAX || grain & (grain - 1))
		return thc_fail(-EINVAL, "the grain %zu is no power of two up to %u", grain,
				THC_GRAIN_MAX);
	return 0;
}

static int check_precision(const struct thc_client *c, const struct thc_scheme *s,
			   enum thc_dtype dtype, unsigned int precision)
{
	if (!precision)
		return 0;
	if (!has_precision(s, dtype))
		return thc_fail(
			-EINVAL,
			"a precision is for floats by the schemes none and lhc: set it to 0");
	if (!thc_precision_known(precision))
		return thc_fail(
			-EINVAL,
			"unknown precision %u: use THC_EXACT, THC_FIXED_8, THC_FIXED_16 or THC_FIXED_32",
			precision);
	if (!thc_precision_fits(precision, c->spec.ranks))
		return thc_fail(-EOPNOTSUPP,
				"%u bits are too few for sums of %u ranks: use a larger precision",
				precision, c->spec.ranks);
	return 0;
}

static int check_keep(const struct thc_client *c, const struct thc_scheme *s, double keep)
{
	if (keep == 0)
		return 0;
	if (s->id != THC_SCHEME_LHC)
		return thc_fail(-EINVAL, "to keep a fraction is for the scheme lhc: set it to 0");
	if (!(keep > 0 && keep < 1))
		return thc_fail(
			-EINVAL,
			"to keep %g of the values is none of them, or all: use a fraction above 0 and below 1",
			keep);
	if (!(c->options.flags & THC_CLIENT_ERROR_FEEDBACK))
		return thc_fail(
			-EINVAL,
			"what is not kept would be lost: open the client with THC_CLIENT_ERROR_FEEDBACK");
	return 0;
}

/* Checks @rate and @error, of a thc_call or of options; -EINVAL. */
int thc_rate_check(double rate, double error)
{
	if (rate != 0 && error != 0)
		return thc_fail(-EINVAL, "a rate and an error are two goals: set one of them to 0");
	if (rate != 0 && rate != THC_RATE_FIXED &&
	    !(rate >= THC_RATE_LEAST && rate <= THC_RATE_MOST))
		return thc_fail(
			-EINVAL,
			"no rate of %g bits a value: use %g to %g, up and down together, or THC_RATE_FIXED",
			rate, THC_RATE_LEAST, THC_RATE_MOST);
	if (error != 0 && !(error >= THC_ERROR_LEAST && error <= THC_ERROR_MOST))
		return thc_fail(-EINVAL, "no error of %g: use %g to %g of the squared norm", error,
				THC_ERROR_LEAST, THC_ERROR_MOST);
	return 0;
}

/* Writes the goal of @known, or else of the client, or of the job, to @goal. */
static int check_rate(const struct thc_client *c, const struct thc_scheme *s,
		      const struct thc_call *known, struct thc_rate_goal *goal)
{
	double rate = known->rate, error = known->error;
	int wrong = thc_rate_check(rate, error);

	*goal = (struct thc_rate_goal){ .bits = 0 };
	if (!wrong && s->id != THC_SCHEME_THC && (rate != 0 || error != 0))
		wrong = thc_fail(-EINVAL, "a rate is for the scheme thc: set it to 0");
	if (wrong || s->id != THC_SCHEME_THC)
		return wrong;
	if (rate == 0 && error == 0) {
		*goal = thc_rate_default(c);
		return 0;
	}
	*goal = thc_rate_goal_of(rate, error);
	if (c->spec.rate || c->spec.error || rate == THC_RATE_FIXED)
		return 0;
	return thc_rate_missing(&c->spec);
}

/* Checks @call for values of @dtype; *@known: its members, *@scheme: its scheme. */
static int check_call(const struct thc_client *c, const struct thc_call *call, enum thc_dtype dtype,
		      struct thc_call *known, const struct thc_scheme **scheme)
{
	int error;

	if (!call)
		return thc_fail(-EINVAL, "there is no thc_call: use THC_CALL_INIT");
	error = thc_struct_in(&call_layout, known, call);
	if (error)
		return error;
	*scheme = known->scheme ? thc_scheme_named(known->scheme) : c->scheme;
	if (!*scheme)
		return thc_fail(-EINVAL, "there is no scheme \"%s\": use one of thc_schemes()",
				known->scheme);
	error = check_scheme(c, *scheme, dtype);
	if (!error)
		error = check_precision(c, *scheme, dtype, known->precision);
	if (!error)
		error = check_grain(*scheme, known->grain);
	if (!error)
		error = check_keep(c, *scheme, known->keep);
	/* the job's own scheme has the job's precision and grain, unless the call sets others */
	if (!error && !known->scheme && !known->precision && has_precision(*scheme, dtype))
		known->precision = (enum thc_precision)c->spec.value_bits;
	if (!error && !known->scheme && !known->grain && (*scheme)->id == THC_SCHEME_LHC)
		known->grain = c->spec.grain;
	return error;
}

/* Hands @r over, or frees it. */
static int submit(struct thc_client *c, struct thc_request *r, struct thc_request **out)
{
	int error = thc_client_submit(c, r);

	if (error)
		thc_request_destroy(r);
	else
		*out = r;
	return error;
}

int thc_allreduce_call_start(struct thc_client *c, void *buf, size_t count, enum thc_dtype dtype,
			     const struct thc_call *call, struct thc_request **out)
{
	const struct thc_scheme *scheme;
	struct thc_rate_goal goal;
	struct thc_request *r;
	struct thc_call known;
	int error = check_buffer(buf, count, dtype);

	if (!error)
		error = check_call(c, call, dtype, &known, &scheme);
	if (!error)
		error = check_rate(c, scheme, &known, &goal);
	if (error)
		return error;
	if (scheme->floats && THC_DTYPES_FLOAT & 1U << dtype)
		scheme = scheme->floats;
	r = thc_request_create(c, buf, count, dtype, scheme, known.key);
	if (!r)
		return thc_fail(-ENOMEM, "out of memory");
	r->precision = known.precision;
	r->keep = known.keep;
	r->goal = goal;
	r->group = known.group;
	r->tried = scheme->id == THC_SCHEME_THC && known.rate == 0 && known.error == 0 &&
		   thc_rate_is_tried(c);
	r->chosen = thc_rate_chosen(c, &goal);
	r->grain_log2 = known.grain ? (unsigned int)__builtin_ctzl(known.grain) : 0;
	return submit(c, r, out);
}

int thc_allreduce_start(struct thc_client *c, void *buf, size_t count, enum thc_dtype dtype,
			uint64_t key, struct thc_request **out)
{
	const struct thc_call call = { .size = sizeof(call), .key = key };

	return thc_allreduce_call_start(c, buf, count, dtype, &call, out);
}

static void wait_for(struct thc_request *r)
{
	while (sem_wait(&r->ended))	/* a signal */
		;
}

int thc_allreduce_wait(struct thc_request *r)
{
	int status;

	if (r->rows)
		return thc_fail(-EINVAL,
				"the request is one of rows: use thc_allreduce_rows_wait()");
	wait_for(r);
	status = r->status;
	if (status < 0)
		thc_fail(status, "%s", r->sentence);
	thc_request_destroy(r);
	return status;
}

int thc_allreduce_test(struct thc_request *r)
{
	if (sem_trywait(&r->ended))
		return 0;
	sem_post(&r->ended);
	return 1;
}

int thc_allreduce(struct thc_client *c, void *buf, size_t count, enum thc_dtype dtype, uint64_t key)
{
	struct thc_request *r;
	int error = thc_allreduce_start(c, buf, count, dtype, key, &r);

	return error ? error : thc_allreduce_wait(r);
}

/* --- rows ------------------------------------------------------------------ */

/* Scheme, precision and key of rows: a call that names no scheme means lhc. */
static int check_rows_call(const struct thc_client *c, const struct thc_call *call,
			   enum thc_dtype dtype, struct thc_call *known)
{
	const struct thc_scheme *scheme;
	struct thc_call lhc;
	int error;

	if (!call)
		return thc_fail(-EINVAL, "there is no thc_call: use THC_CALL_INIT");
	error = thc_struct_in(&call_layout, &lhc, call);
	if (error)
		return error;
	if (lhc.scheme && strcmp(lhc.scheme, "lhc") != 0)
		return thc_fail(-EINVAL, "rows go by the scheme lhc, not by %s", lhc.scheme);
	if (lhc.grain)
		return thc_fail(-EINVAL, "the grain of rows is a row: set it to 0");
	if (lhc.keep != 0)
		return thc_fail(-EINVAL, "rows are kept as a whole: set the fraction to 0");
	if (!lhc.scheme && c->spec.scheme != THC_SCHEME_LHC)
		lhc.scheme = "lhc";
	lhc.size = sizeof(lhc);
	return check_call(c, &lhc, dtype, known, &scheme);
}

int thc_allreduce_rows_start(struct thc_client *c, const struct thc_rows *rows,
			     enum thc_dtype dtype, const struct thc_call *call,
			     struct thc_request **out)
{
	struct thc_request *r;
	struct thc_rows given;
	struct thc_call known;
	int error;

	if (!rows)
		return thc_fail(-EINVAL, "there are no rows: use THC_ROWS_INIT");
	error = thc_struct_in(&rows_layout, &given, rows);
	if (!error)
		error = thc_rows_check(&given, dtype);
	if (!error)
		error = check_rows_call(c, call, dtype, &known);
	if (error)
		return error;
	r = thc_request_create(c, NULL, 0, dtype, &thc_scheme_lhc_rows, known.key);
	if (!r)
		return thc_fail(-ENOMEM, "out of memory");
	r->rows = thc_row_call_create(&given);
	if (!r->rows) {
		thc_request_destroy(r);
		return thc_fail(-ENOMEM, "out of memory");
	}
	r->precision = known.precision;
	r->count = given.total * r->rows->width;
	return submit(c, r, out);
}

int thc_allreduce_rows_wait(struct thc_request *r, struct thc_rows *out)
{
	struct thc_rows rows = { .size = sizeof(rows) };
	int status, error;

	if (!r->rows)
		return thc_fail(-EINVAL,
				"the request is not one of rows: use thc_allreduce_wait()");
	wait_for(r);
	status = r->status;
	if (!status && thc_rows_result(r->rows, r->dtype, &rows)) {
		status = -ENOMEM;
		snprintf(r->sentence, sizeof(r->sentence), "out of memory for the result");
	}
	error = thc_struct_out(&rows_layout, out, &rows);
	if (error)
		thc_rows_free(&rows);
	if (status < 0)
		thc_fail(status, "%s", r->sentence);
	thc_request_destroy(r);
	return status < 0 ? status : error ? error : status;
}
