/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Reading the configuration again while jobs run.
 */
#ifndef THCD_RELOAD_H
#define THCD_RELOAD_H

#include <cjson/cJSON.h>

#include "config.h"

/* @config: what thcd was started with; @argc, @argv: its command line. */
struct thcd_reload {
	struct thcd			*d;
	const struct thcd_config	*config;
	int				argc;
	char				**argv;
};

/**
 * thcd_reload() - add and remove jobs as the file now says
 * @said: list that gets what is said, or NULL
 *
 * No job that a rank is in ends or changes, and a file with an error changes nothing: false.
 */
bool thcd_reload(const struct thcd_reload *reload, cJSON *said);

#endif /* THCD_RELOAD_H */
