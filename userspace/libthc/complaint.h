/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0) */
/* Errors that the network reports for lost packets (ICMP); anybody can forge them. */
#ifndef LIBTHC_COMPLAINT_H
#define LIBTHC_COMPLAINT_H

#include "way.h"

/* Reads the queue of errors of @fd: while one is there poll() returns at once, and the queue takes
 * room that answers need. Returns the number of errors, which is limited. *@error: errno of the
 * last error about a packet to a port of the aggregator that @w leads to; else unchanged.
 */
unsigned int thc_complaints_read(int fd, const struct thc_way *w, int *error);

#endif /* LIBTHC_COMPLAINT_H */
