/* SPDX-License-Identifier: GPL-2.0 */
#ifndef THC_COMMON_LINK_H
#define THC_COMMON_LINK_H

#include <stdbool.h>

/* Is the device that @interface is linked to, a veth's other end, in another network namespace? */
bool thc_link_is_elsewhere(const char *interface);

#endif /* THC_COMMON_LINK_H */
