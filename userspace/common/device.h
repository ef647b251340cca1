/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Checks an interface for use by an XDP aggregator: `thcctl check` shows all findings, and thcd
 * refuses to start where every round would time out. Also tells whether thc.ko sums lanes for XDP.
 */
#ifndef THC_COMMON_DEVICE_H
#define THC_COMMON_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum thc_fit {
	THC_FIT_OK,
	THC_FIT_NOTE,	/* it works with a reservation, or cannot be told */
	THC_FIT_BAD,	/* it does not work; the text says what to do */
};

struct thc_finding {
	enum thc_fit	fit;
	char		text[400];
};

/* Fills in a finding. */
void thc_find(struct thc_finding *f, enum thc_fit fit, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* Name of the driver of @interface, or "the driver of @interface"; returns @out. */
const char *thc_device_driver(const char *interface, char *out, size_t size);

/* The program on an interface's XDP hook. */
struct thc_hook {
	unsigned int	id;		/* program, 0: nobody */
	bool		generic;
	char		name[32];	/* "": not known */
};

/* 0 or a negative errno. */
int thc_device_hook(unsigned int ifindex, struct thc_hook *out);

/* Is the link up? */
void thc_device_link(const char *interface, struct thc_finding *f);

/* Does a packet fit the MTU? */
void thc_device_mtu(const char *interface, struct thc_finding *f);

/* Does the other end of a veth take redirected frames? False: it is no veth. */
bool thc_device_peer(const char *interface, struct thc_finding *f);

/**
 * thc_device_vlan() - does native XDP see the tags of tagged frames?
 * @vlan: VLAN device above @interface whose frames are meant; NULL: any
 */
void thc_device_vlan(const char *interface, const char *vlan, struct thc_finding *f);

/* Is @name, or with an empty @name any device of this network namespace, a VLAN device above
 * @interface? @name is filled in, with room for @size characters.
 */
bool thc_device_vlan_above(const char *interface, char *name, size_t size);

/* Does thc.ko sum lanes for XDP programs on this host? */
enum thc_simd_offer {
	THC_SIMD_NO_MODULE,	/* thc.ko is not loaded */
	THC_SIMD_NO_FUNCTIONS,	/* it was built without BTF, or is another version */
	THC_SIMD_OFFERED,
};

/* Asks the kernel; @name takes the vector unit's name ("avx2"), or "". */
enum thc_simd_offer thc_simd_offered(char *name, size_t size);

#endif /* THC_COMMON_DEVICE_H */
