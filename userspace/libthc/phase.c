// SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0)
/* The numbers of chunks: phase.h has the rules. */
#include "phase.h"

void thc_phases_number(struct thc_phases *const *all, unsigned int n, bool control, u64 *next)
{
	unsigned int i, k;

	for (i = 0; i < n; i++) {
		for (k = 0; k < all[i]->count && !all[i]->over; k++) {
			struct thc_phase *p = &all[i]->phase[k];

			if (k >= THC_AGREEMENT_PHASES && !all[i]->agreed)
				return;
			if (p->control != control)
				continue;
			if (!p->numbered)
				p->first = *next;
			*next += p->sized - p->numbered;
			p->numbered = p->sized;
			if (!p->closed)
				return;
		}
	}
}

bool thc_phases_done(const struct thc_phases *all)
{
	unsigned int k;

	for (k = 0; k < all->count; k++)
		if (!all->phase[k].closed || all->phase[k].answered < all->phase[k].sized)
			return false;
	return true;
}

struct thc_phase *thc_phases_find(struct thc_phases *const *all, unsigned int n, bool control,
				  uint64_t number)
{
	unsigned int i, k;

	for (i = 0; i < n; i++) {
		for (k = 0; k < all[i]->count; k++) {
			struct thc_phase *p = &all[i]->phase[k];

			if (p->control == control && number - p->first < p->numbered)
				return p;
		}
	}
	return NULL;
}
