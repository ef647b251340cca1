/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0) */
/* What the network says of packets that did not arrive (ICMP), as anybody may in its name. */
#ifndef LIBTHC_COMPLAINT_H
#define LIBTHC_COMPLAINT_H

#include "way.h"

/* Empties the queue of what the network has said to @fd: as long as anything is there poll()
 * returns at once, and it takes up room that answers need. Returns how many complaints there were,
 * a limited number at a time. *@error: errno of the last one about a packet to a port of the
 * aggregator that @w leads to, or what it was before.
 */
unsigned int thc_complaints_read(int fd, const struct thc_way *w, int *error);

#endif /* LIBTHC_COMPLAINT_H */
