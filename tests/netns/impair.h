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
 * @super: GSO super-packets; not zero means that packets were not met one by
 *	one, and a test that sees it must fail
 */
struct impair_count {
	unsigned long long seen;
	unsigned long long dropped;
	unsigned long long corrupted;
	unsigned long long duplicated;
	unsigned long long super;
};

#endif /* IMPAIR_H */
