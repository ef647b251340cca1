// SPDX-License-Identifier: GPL-2.0
/*
 * Finds faults that let workers join, but make every round time out: JOIN and WELCOME pass through
 * the network stack, data and answers do not. thcd refuses to start with such a fault, unless
 * --force is given. Where it cannot check, it warns.
 */
#include <net/if.h>
#include <string.h>

#include "attach.h"

/* @otherwise: how else to get past a bad finding than by --force, or "" */
static int judge(const char *subject, const struct thc_finding *f, const char *otherwise,
		 bool force, struct thcd_error *e)
{
	if (f->fit == THC_FIT_OK)
		return 0;
	if (f->fit == THC_FIT_BAD && !force)
		return thcd_fail(e,
				 "%s: %s. Workers could join, and every round would time out%s; "
				 "--force starts thcd all the same",
				 subject, f->text, otherwise);
	thcd_say("warning: %s: %s", subject, f->text);
	return 0;
}

/* The VLAN device above the interface, if one of our addresses is on it. */
static bool find_vlan(const struct thcd *d, char *name)
{
	int i;

	for (i = 0; i < d->sockets; i++)
		if (if_indextoname(d->socket[i].ifindex, name) &&
		    thc_device_vlan_above(d->interface, name, IF_NAMESIZE))
			return true;
	return false;
}

static int inspect_native(const struct thcd *d, bool force, struct thcd_error *e)
{
	static const char generic[] = "; --mode generic does not need that";
	char vlan[IF_NAMESIZE];
	struct thc_finding f;

	if (thc_device_peer(d->interface, &f) && judge("the veth's peer", &f, generic, force, e))
		return -1;
	if (!find_vlan(d, vlan))
		return 0;
	thc_device_vlan(d->interface, vlan, &f);
	return judge("VLAN", &f, generic, force, e);
}

int thcd_inspect(const struct thcd *d, bool native, bool force, struct thcd_error *e)
{
	struct thc_finding f;

	/* the link may come up later */
	thc_device_link(d->interface, &f);
	judge("link", &f, "", true, e);
	thc_device_mtu(d->interface, &f);
	if (f.fit == THC_FIT_BAD && judge("MTU", &f, "", force, e))
		return -1;
	return native ? inspect_native(d, force, e) : 0;
}
