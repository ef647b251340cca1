/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0) */
/* The queue of requests. */
#ifndef LIBTHC_QUEUE_H
#define LIBTHC_QUEUE_H

/* Requests worked on at a time: one in its data stream, the next in its control stream. */
#define THC_ACTIVE_MAX		2

struct thc_client;
struct thc_request;

/* Gets the active requests: the first THC_ACTIVE_MAX of the queue. Returns their number. */
unsigned int thc_queue_active(struct thc_client *c, struct thc_request **out);
/* Takes a finished request off the queue and wakes the thread that waits for it. */
void thc_queue_complete(struct thc_client *c, struct thc_request *r);
/* Everything in the queue fails with @status and a sentence; only a rejoin helps. */
void thc_queue_break(struct thc_client *c, int status, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

#endif /* LIBTHC_QUEUE_H */
