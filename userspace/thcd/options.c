// SPDX-License-Identifier: GPL-2.0
/*
 * The command line. Options that the file has too are set through
 * thcd_config_set(); what is given here wins over the file.
 */
#include <getopt.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "config.h"

static const struct option options[] = {
	{ "interface", required_argument, NULL, 'i' },
	{ "mode", required_argument, NULL, 'm' },
	{ "software", no_argument, NULL, 's' },
	{ "no-simd", no_argument, NULL, 'S' },
	{ "listen", required_argument, NULL, 'l' },
	{ "port", required_argument, NULL, 'p' },
	{ "job", required_argument, NULL, 'j' },
	{ "config", required_argument, NULL, 'c' },
	{ "instance", required_argument, NULL, 'n' },
	{ "control", required_argument, NULL, 'C' },
	{ "control-group", required_argument, NULL, 'g' },
	{ "fresh", no_argument, NULL, 'f' },
	{ "prepare", required_argument, NULL, 'u' },
	{ "discard", no_argument, NULL, 'D' },
	{ "force", no_argument, NULL, 'F' },
	{ "ready-fd", required_argument, NULL, 'R' },
	{ "pidfile", required_argument, NULL, 'P' },
	{ "verbose", no_argument, NULL, 'v' },
	{ "help", no_argument, NULL, 'h' },
	{ "version", no_argument, NULL, 'V' },
	{ NULL, 0, NULL, 0 },
};

static void print_help(void)
{
	const char *meaning;
	unsigned int i;

	fputs("usage: thcd -i INTERFACE --job KEY=VALUE,... [OPTION]...\n"
	      "       thcd --software --listen ADDRESS --job KEY=VALUE,... [OPTION]...\n"
	      "       thcd -c FILE\n"
	      "       thcd -c FILE --prepare USER\n"
	      "       thcd -i INTERFACE --discard\n"
	      "\n"
	      "Aggregates compressed gradients: attaches an XDP program to an interface and\n"
	      "coordinates the jobs whose workers send to it.\n"
	      "\n"
	      "  -i, --interface NAME  interface that gets the XDP program\n"
	      "  -m, --mode MODE       auto, native or generic XDP; default auto: native, and\n"
	      "                        generic if the driver refuses it\n"
	      "  -s, --software        aggregate in user space, without BPF\n"
	      "  -S, --no-simd         sum lanes in BPF, though thc.ko would do it faster\n"
	      "  -l, --listen ADDRESS  address that workers send to, one of IPv4 and one of\n"
	      "                        IPv6 at most; default: the first ones of the interface\n"
	      "  -p, --port PORT       first of the 64 UDP ports of the aggregator; default 18500\n"
	      "  -j, --job KEYS        a job, KEY=VALUE,...; may be repeated\n"
	      "  -c, --config FILE     JSON file with the same keys\n"
	      "  -n, --instance NAME   name of pins and control socket; default: the interface,\n"
	      "                        or \"software\"\n"
	      "  -C, --control PATH    control socket; default /run/thc/INSTANCE.sock\n"
	      "  -g, --control-group NAME\n"
	      "                        group whose members may ask thcctl; default thc, if there is\n"
	      "                        that group\n"
	      "  -f, --fresh           discard what a dead thcd of this instance left behind\n"
	      "  -u, --prepare USER    load and attach, leave it to a thcd of USER, and end\n"
	      "  -D, --discard         remove what a thcd that does not run has left, and end\n"
	      "  -F, --force           start even where thcd sees that no round could end\n"
	      "  -R, --ready-fd N      write \"ready\" to this file descriptor, not to stdout\n"
	      "  -P, --pidfile FILE    write the process id there\n"
	      "  -v, --verbose         libbpf's own messages, too\n"
	      "  -h, --help            this text\n"
	      "  -V, --version         version\n"
	      "\n"
	      "Keys of a job:\n",
	      stdout);
	for (i = 0; thcd_job_key(i, &meaning); i++)
		printf("  %-13s %s\n", thcd_job_key(i, NULL), meaning);
	fputs("\nExample: thcd -i eth0 --job 1,ranks=4,key=@/etc/thc/job1.key\n", stdout);
}

static int set_ready_fd(struct thcd_config *c, const char *text, struct thcd_error *e)
{
	u64 fd;

	if (thcd_number_parse(text, &fd) || fd > 1 << 20)
		return thcd_fail(e, "--ready-fd: \"%s\" is not a file descriptor", text);
	c->ready_fd = fd;
	return 0;
}

static int set_heir(struct thcd_config *c, const char *name, struct thcd_error *e)
{
	const struct passwd *user = getpwnam(name);

	if (!user)
		return thcd_fail(e, "--prepare: there is no user %s", name);
	if (!user->pw_uid)
		return thcd_fail(e, "--prepare: %s needs no preparation: start thcd", name);
	c->prepare = true;
	c->heir = user->pw_uid;
	return 0;
}

/* Options that overwrite what the file says. */
static int apply(struct thcd_config *c, int opt, const char *arg, struct thcd_error *e)
{
	const struct option *o = options;

	switch (opt) {
	case 'S':
		return thcd_config_set(c, "simd", "off", e);
	case 'j':
		return thcd_config_job(c, arg, e);
	case 'g':
		return thcd_config_set(c, "control_group", arg, e);
	case 'R':
		return set_ready_fd(c, arg, e);
	case 'u':
		return set_heir(c, arg, e);
	case 'D':
		c->discard = true;
		return 0;
	case 'f':
		c->fresh = true;
		return 0;
	case 'v':
		c->verbose = true;
		return 0;
	case 'c':
		return 0;
	default:
		/* all other options have the names of the file's keys */
		while (o->val != opt)
			o++;
		return thcd_config_set(c, o->name, arg ? arg : "on", e);
	}
}

static void forget_listens(struct thcd_config *c)
{
	memset(c->listen, 0, sizeof(c->listen));
	c->listens = 0;
}

static enum thcd_start look(struct thcd_config *c, int argc, char **argv, bool file,
			    struct thcd_error *e)
{
	static const char repeated[] = "ljsSDfFv";
	u64 seen = 0;
	int opt;

	optind = 1;
	opterr = 0;
	while ((opt = getopt_long(argc, argv, ":i:m:sSl:p:j:c:n:C:g:u:DfFR:P:vhV", options,
				  NULL)) >= 0) {
		if (opt == '?' || opt == ':')
			return thcd_fail(e,
					 opt == '?' ? "unknown option %s; thcd --help lists them" :
						      "option %s needs a value",
					 argv[optind - 1]);
		if (seen & 1ULL << (opt & 63) && !strchr(repeated, opt))
			return thcd_fail(e, "option -%c is given twice: which one?", opt);
		/* the first --listen discards the addresses of the file */
		if (!file && opt == 'l' && !(seen & 1ULL << ('l' & 63)))
			forget_listens(c);
		seen |= 1ULL << (opt & 63);
		if (file && opt == 'h') {
			print_help();
			return THCD_DONE;
		}
		if (file && opt == 'V') {
			puts("thcd " THC_LIB_VERSION);
			return THCD_DONE;
		}
		if (file ? opt == 'c' && thcd_config_file(c, optarg, e) : apply(c, opt, optarg, e))
			return THCD_BAD;
	}
	if (optind < argc)
		return thcd_fail(e, "\"%s\" is not an option; thcd --help lists them",
				 argv[optind]);
	return THCD_RUN;
}

static int check_errand(const struct thcd_config *c, struct thcd_error *e)
{
	const char *name = c->prepare ? "--prepare" : "--discard";

	if (c->prepare && c->discard)
		return thcd_fail(e, "--prepare makes what --discard removes: give one of them");
	if (c->software || !*c->interface)
		return thcd_fail(e, "%s is for XDP: give -i NAME%s", name,
				 c->software ? " without --software" : "");
	if (geteuid())
		return thcd_fail(e, "%s is for root", name);
	return 0;
}

static int check(const struct thcd_config *c, struct thcd_error *e)
{
	u32 i, seen = 0;

	if ((c->prepare || c->discard) && check_errand(c, e))
		return -1;
	if (c->discard)
		return 0;

	if (!c->software && !*c->interface)
		return thcd_fail(
			e, "no interface: give -i NAME for XDP, or --software --listen ADDRESS");
	if (c->software && !*c->interface && !c->listens)
		return thcd_fail(e, "no address: give --listen ADDRESS or -i NAME with --software");
	if (c->software && c->mode != THCD_MODE_AUTO)
		return thcd_fail(
			e, "--mode is for XDP, and --software does without: give one of them");
	if (!c->jobs)
		return thcd_fail(e,
				 "no job: give --job 1,ranks=N,key=@FILE or a -c FILE with jobs");
	for (i = 0; i < c->jobs; i++) {
		if (seen & 1u << c->job[i].job)
			return thcd_fail(e, "job %u is given twice: each needs its own number",
					 c->job[i].job);
		seen |= 1u << c->job[i].job;
	}
	return 0;
}

enum thcd_start thcd_options(struct thcd_config *c, int argc, char **argv, struct thcd_error *e)
{
	enum thcd_start start = look(c, argc, argv, true, e);

	if (start == THCD_RUN)
		start = look(c, argc, argv, false, e);
	return start ? start : check(c, e);
}
