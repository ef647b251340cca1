// SPDX-License-Identifier: GPL-2.0
/*
 * thcctl: the operator's view of thcd. Options and which command.
 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "thcctl.h"

#define EXIT_USAGE	2

static const char commands[] = "check, job, stats, top, reload, genkey";

static const struct option options[] = {
	{ "instance", required_argument, NULL, 'n' },
	{ "control", required_argument, NULL, 'C' },
	{ "json", no_argument, NULL, 'J' },
	{ "count", required_argument, NULL, 'c' },
	{ "help", no_argument, NULL, 'h' },
	{ "version", no_argument, NULL, 'V' },
	{ NULL, 0, NULL, 0 },
};

static void print_help(void)
{
	fputs("usage: thcctl [OPTION]... COMMAND\n"
	      "\n"
	      "  check [INTERFACE]     whether this host can aggregate in XDP, and what to change if not\n"
	      "  job [NUMBER]          jobs: session, members, table, open chunks\n"
	      "  stats                 packets by fate and by drop reason, and whether they add up\n"
	      "  top                   the counters of stats as rates, every second\n"
	      "  reload                read thcd's configuration again; for root\n"
	      "  genkey FILE           make a new secret key for a job, in a file that is not there yet\n"
	      "\n"
	      "  -n, --instance NAME   the thcd to ask; needed if several run\n"
	      "  -C, --control PATH    control socket of thcd; default /run/thc/INSTANCE.sock\n"
	      "  -J, --json            JSON instead of tables\n"
	      "  -c, --count N         top: stop after N seconds\n"
	      "  -h, --help            this text\n"
	      "  -V, --version         version\n"
	      "\n"
	      "job, stats and top read the pinned maps when thcd is dead.\n"
	      "Exit status: 0 if all is well; 1 if something is wrong (no thcd, counters that do not add up,\n"
	      "no XDP here, no file made); 2 for a wrong command line.\n",
	      stdout);
}

static int run(struct thcctl *t, int argc, char **argv)
{
	const char *command = argv[0], *argument = argc > 1 ? argv[1] : NULL;
	bool genkey = !strcmp(command, "genkey");
	bool takes_one = genkey || !strcmp(command, "check") || !strcmp(command, "job");

	if (argc > (takes_one ? 2 : 1)) {
		thcctl_say("\"%s\" is one argument too many for %s", argv[takes_one ? 2 : 1],
			   command);
		return EXIT_USAGE;
	}
	if (!strcmp(command, "job") && argument &&
	    (!*argument || strspn(argument, "0123456789") != strlen(argument))) {
		thcctl_say(
			"\"%s\" is not the number of a job; thcctl job, without a number, shows all",
			argument);
		return EXIT_USAGE;
	}
	if (genkey && !argument) {
		thcctl_say("genkey needs the name of the file to make");
		return EXIT_USAGE;
	}
	if (genkey)
		return thcctl_genkey(argument);
	if (!strcmp(command, "check"))
		return thcctl_check(t, argument);
	if (!strcmp(command, "job"))
		return thcctl_job(t, argument);
	if (!strcmp(command, "stats"))
		return thcctl_stats(t);
	if (!strcmp(command, "top"))
		return thcctl_top(t);
	if (!strcmp(command, "reload"))
		return thcctl_reload(t);
	thcctl_say("unknown command \"%s\"; there are: %s", command, commands);
	return EXIT_USAGE;
}

/* Options and the command; the exit status. */
static int read_and_run(int argc, char **argv)
{
	struct thcctl t = { .control = NULL };
	char *end;
	int opt;

	opterr = 0;
	while ((opt = getopt_long(argc, argv, ":n:C:Jc:hV", options, NULL)) >= 0) {
		switch (opt) {
		case 'n':
			if (!*optarg || strlen(optarg) >= sizeof(t.instance) ||
			    strchr(optarg, '/')) {
				thcctl_say("\"%s\" is not the name of an instance", optarg);
				return EXIT_USAGE;
			}
			strcpy(t.instance, optarg);
			break;
		case 'C':
			t.control = optarg;
			break;
		case 'J':
			t.json = true;
			break;
		case 'c':
			t.count = strtol(optarg, &end, 10);
			if (end == optarg || *end || t.count < 1) {
				thcctl_say("--count: \"%s\" is not a number from 1 on", optarg);
				return EXIT_USAGE;
			}
			break;
		case 'h':
			print_help();
			return EXIT_SUCCESS;
		case 'V':
			puts("thcctl " THC_LIB_VERSION);
			return EXIT_SUCCESS;
		default:
			thcctl_say(opt == ':' ? "option %s needs a value" :
						"unknown option %s; thcctl --help lists them",
				   argv[optind - 1]);
			return EXIT_USAGE;
		}
	}
	if (optind == argc) {
		thcctl_say("no command; there are: %s (thcctl --help)", commands);
		return EXIT_USAGE;
	}
	return run(&t, argc - optind, argv + optind);
}

int main(int argc, char **argv)
{
	int status = read_and_run(argc, argv);

	errno = 0;
	if (!fflush(stdout) && !ferror(stdout))
		return status;
	thcctl_say("not all of the output could be written: %s; ask again where there is room",
		   errno ? strerror(errno) : "an earlier write has failed");
	return EXIT_FAILURE;
}
