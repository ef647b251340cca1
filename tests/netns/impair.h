/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the packet-loss injector and its loader share.
 */
#ifndef IMPAIR_H
#define IMPAIR_H

enum impair_direction {
	IMPAIR_UP,		/* from the worker: ingress of its switch port */
	IMPAIR_DOWN,		/* to the worker: egress */
	IMPAIR_DIRECTIONS
};

/**
 * struct impair_count - what happened to THC packets in one direction
 * @seen: packets, copies made here not included
 * @dropped: lost
 * @corrupted: passed on with one byte of UDP payload changed
 * @duplicated: passed on twice
 * @late: passed on after a detour
 * @overtaken: of these, those that others of the port have passed meanwhile
 * @super: GSO super-packets; not zero means that packets were not met one by
 *	one, and a test that sees it must fail
 */
struct impair_count {
	unsigned long long seen;
	unsigned long long dropped;
	unsigned long long corrupted;
	unsigned long long duplicated;
	unsigned long long late;
	unsigned long long overtaken;
	unsigned long long super;
};

#endif /* IMPAIR_H */
