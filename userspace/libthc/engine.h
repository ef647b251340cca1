/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0) */
/* The I/O thread: receive, send, compute, sleep. */
#ifndef LIBTHC_ENGINE_H
#define LIBTHC_ENGINE_H

#include <stdint.h>

/* Requests worked on at a time: one in its data stream, the next in its control stream. */
#define THC_ACTIVE_MAX		2

struct thc_client;

struct thc_request;

void *thc_engine_run(void *client);
/* The first THC_ACTIVE_MAX requests of the queue are active: how many. */
unsigned int thc_engine_active(struct thc_client *c, struct thc_request **out);
/* Everything in the queue fails with @status and a sentence; only a rejoin helps. */
void thc_engine_break(struct thc_client *c, int status, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

#endif /* LIBTHC_ENGINE_H */
