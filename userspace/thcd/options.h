/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The command line.
 */
#ifndef THCD_OPTIONS_H
#define THCD_OPTIONS_H

#include "config.h"

/* What to do after the command line was read. */
enum thcd_start { THCD_RUN, THCD_DONE, THCD_BAD };

/**
 * thcd_options() - read the command line and the file it names
 * @c: initialised
 *
 * THCD_DONE: help or version was printed. THCD_BAD: @e says why.
 */
enum thcd_start thcd_options(struct thcd_config *c, int argc, char **argv, struct thcd_error *e);

#endif /* THCD_OPTIONS_H */
