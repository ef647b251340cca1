// SPDX-License-Identifier: GPL-2.0
/*
 * The XDP side of the daemon.
 */
#include "xdp.h"

int thcd_xdp_init(struct thcd *d, const struct thcd_config *c, u32 slots,
		  const struct thcd_plan *plans, bool *kept, struct thcd_error *e)
{
	(void)d, (void)c, (void)slots, (void)plans, (void)kept;
	return thcd_fail(e, "XDP mode is not there yet; use --software");
}

void thcd_xdp_exit(struct thcd *d)
{
	(void)d;
}

int thcd_xdp_job(struct thcd *d, u16 job_id, struct thcd_error *e)
{
	(void)d, (void)job_id, (void)e;
	return 0;
}

int thcd_xdp_fd(const struct thcd *d)
{
	(void)d;
	return -1;
}

void thcd_xdp_relay(struct thcd *d)
{
	(void)d;
}

bool thcd_xdp_close(struct thcd *d, u16 job_id, u32 slot, u32 generation)
{
	(void)d, (void)job_id, (void)slot, (void)generation;
	return false;
}

void thcd_xdp_stats(const struct thcd *d, struct thc_stats *out)
{
	(void)d, (void)out;
}
