// SPDX-License-Identifier: GPL-2.0
/*
 * thcd: start, the poll loop, and the end. One thread; everything that waits
 * waits in poll().
 */
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "control.h"
#include "jobs.h"
#include "net.h"
#include "notify.h"
#include "plan.h"
#include "relay.h"
#include "software.h"
#include "xdp.h"

#define EXIT_USAGE	2
/* A poll() that fails for want of memory is tried again after this time. */
#define POLL_AGAIN_US	10000

/* The state that main() builds up and takes down. */
struct run {
	struct thcd			d;
	struct thcd_config		c;
	struct thcd_control_state	control;
	int				argc;
	char				**argv;
	struct thcd_plan		plan[THC_JOBS_MAX];
	int				signals;
	bool				pid_written;
	char				name[80];
};

/* Signals are read in the loop, so that nothing is interrupted. */
static int catch_signals(struct thcd_error *e)
{
	sigset_t set;
	int fd;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return fd < 0 ? thcd_fail(e, "no signalfd: %s", strerror(errno)) : fd;
}

static int open_sockets(struct run *r, struct thcd_error *e)
{
	struct thcd_prefixes now;
	struct thcd_error unused;
	u32 i;

	if (r->d.interface && !if_nametoindex(r->d.interface))
		return thcd_fail(e, "there is no interface %s here; ip link shows them",
				 r->d.interface);
	for (i = 0; i < r->c.listens; i++)
		if (thcd_net_open(&r->d, r->c.listen[i], e))
			return -1;
	if (!r->c.listens && thcd_net_open_interface(&r->d, r->c.interface, e))
		return -1;
	/* remembers the subnets of now; the job that needs them reports an error */
	thcd_net_subnets(&r->d, &now, &unused);
	return 0;
}

static int make_jobs(struct run *r, struct thcd_error *e)
{
	char text[THCD_TEXT_MAX], from[THC_PREFIXES_TEXT];
	int i;

	for (i = 0; i < THC_JOBS_MAX; i++) {
		if (!r->plan[i].ranks)
			continue;
		if (r->d.kept)
			r->d.record[i].plan.admits = r->plan[i].admits;
		else
			thcd_job_create(&r->d, &r->plan[i]);
		if (!r->d.software && thcd_xdp_job(&r->d, i, e))
			return -1;
		/* a predecessor that died during a reload may have hidden the job */
		thcd_job_show(&r->d, i, true);
		thcd_job_describe(&r->plan[i], text, sizeof(text));
		thcd_say("%s%s", text, r->d.kept ? ", continued" : "");
		thcd_say("job %d: workers may join from %s", i,
			 thc_prefixes_text(&r->plan[i].admits, from));
	}
	return 0;
}

static int tell_ready(const struct thcd_config *c, struct thcd_error *e)
{
	if (c->ready_fd >= 0) {
		if (write(c->ready_fd, "ready\n", 6) != 6)
			return thcd_fail(e, "--ready-fd %d: %s; give one that is open for writing",
					 c->ready_fd, strerror(errno));
		close(c->ready_fd);
		return 0;
	}
	puts("ready");
	fflush(stdout);
	return 0;
}

static int write_pid(struct run *r, struct thcd_error *e)
{
	const char *file = r->c.pidfile;
	FILE *f;

	if (!*file)
		return 0;
	f = fopen(file, "we");
	if (!f)
		return thcd_fail(e, "cannot write %s: %s", file, strerror(errno));
	r->pid_written = true;
	fprintf(f, "%d\n", getpid());
	return fclose(f) ? thcd_fail(e, "cannot write %s: %s", file, strerror(errno)) : 0;
}

/* A software aggregator has no pins that its successor must find by the instance's name. So if the
 * default name is taken (on another port, in another namespace), thcd takes another name.
 */
static int open_control(struct run *r, struct thcd_error *e)
{
	struct thcd *d = &r->d;
	const char *taken = d->instance;
	int err = thcd_control_open(&r->control, d, &r->c, e);

	if (err != -EADDRINUSE || !d->software || *r->c.instance || *r->c.control)
		return err;
	snprintf(r->name, sizeof(r->name), "%.63s-%d", d->instance, getpid());
	d->instance = r->name;
	if (thcd_control_open(&r->control, d, &r->c, e))
		return -1;
	thcd_say("instance %s, since there is a %s already", d->instance, taken);
	return 0;
}

static int start_jobs(struct run *r, u32 slots, struct thcd_error *e)
{
	struct thcd *d = &r->d;

	if (d->software) {
		d->mode = "software";
		d->welcome_flags = THC_WELCOME_F_ONE_PORT;
		if (thcd_software_init(d, slots, e))
			return -1;
	} else if (thcd_guard_init(d, e) || thcd_xdp_init(d, &r->c, slots, r->plan, e)) {
		return -1;
	}
	return make_jobs(r, e) || (!d->software && thcd_xdp_attach(d, &r->c, e)) ? -1 : 0;
}

static void describe(const struct run *r, char *text, size_t size)
{
	const struct thcd *d = &r->d;
	char ports[32], address[INET6_ADDRSTRLEN];

	snprintf(ports, sizeof(ports), d->software ? "port %u" : "ports %u to %u", d->port,
		 d->port + THC_PORT_SPAN - 1);
	snprintf(text, size, "%s aggregator on %s, UDP %s: %u slots, %llu bytes%s%s", d->mode,
		 r->c.listens ? thc_addr_text(&d->socket[0].addr, address) : r->c.interface, ports,
		 d->slots, (unsigned long long)thc_report_slot_bytes(d->slots),
		 d->lanes_by ? ", lanes summed by " : "", d->lanes_by ? d->lanes_by : "");
}

/* Tells the service manager that thcd is ready, and its status line. */
static void tell_manager(const struct run *r)
{
	char text[THCD_TEXT_MAX];
	int i, jobs = 0;

	for (i = 0; i < THC_JOBS_MAX; i++)
		jobs += r->d.record[i].used != 0;
	describe(r, text, sizeof(text));
	thcd_notify("READY=1\nSTATUS=%d job%s, %.400s", jobs, jobs == 1 ? "" : "s", text);
}

static bool reload(void *context, cJSON *said)
{
	struct run *r = context;
	bool ok;

	thcd_notify_reloading();
	ok = thcd_reload(&r->d, &r->c, r->argc, r->argv, said);
	tell_manager(r);
	return ok;
}

/* Takes names, ports and modes out of the configuration. */
static void name_all(struct run *r)
{
	struct thcd *d = &r->d;

	d->port = r->c.port;
	d->software = r->c.software;
	d->verbose = r->c.verbose;
	d->no_simd = r->c.no_simd;
	d->interface = *r->c.interface ? r->c.interface : NULL;
	d->instance = *r->c.instance ? r->c.instance : d->interface ? d->interface : "software";
	r->control.reload = reload;
	r->control.context = r;
}

/* Wipes the start's copies of keys. Jobs have their own, which thcd_job_forget() wipes. */
static void forget_keys(struct run *r)
{
	u32 i;

	for (i = 0; i < THC_JOBS_MAX; i++)
		explicit_bzero(r->c.job[i].key, sizeof(r->c.job[i].key));
	explicit_bzero(r->plan, sizeof(r->plan));
}

/* Opens sockets and makes plans. @slots: out: slots for the plans, and the spare ones */
static int begin(struct run *r, u32 *slots, struct thcd_error *e)
{
	int err = thcd_salts_begin();

	if (!err)
		err = thcd_secret_draw(&r->d.secret);
	if (err)
		return thcd_fail(e, "no random numbers from the kernel: %s", strerror(-err));
	r->signals = catch_signals(e);
	if (r->signals < 0 || open_sockets(r, e) || thcd_plan_jobs(&r->d, &r->c, r->plan, slots, e))
		return -1;
	*slots += r->c.spare_slots;
	return 0;
}

static int start(struct run *r, struct thcd_error *e)
{
	struct thcd *d = &r->d;
	char text[THCD_TEXT_MAX];
	u32 slots;

	thcd_notify_init();
	if (begin(r, &slots, e) || open_control(r, e) || start_jobs(r, slots, e) ||
	    thcd_deadline_init(d, e) || write_pid(r, e))
		return -1;
	describe(r, text, sizeof(text));
	thcd_say("%s", text);
	forget_keys(r);
	if (thcd_privileges_drop(d, &r->c, e) || tell_ready(&r->c, e))
		return -1;
	tell_manager(r);
	return 0;
}

/* Does all that takes privileges, for a thcd that will run without root. */
static int prepare(struct run *r, struct thcd_error *e)
{
	u32 slots;

	if (begin(r, &slots, e) || start_jobs(r, slots, e) || thcd_xdp_hand_over(&r->d, &r->c, e))
		return -1;
	thcd_say("%s XDP on %s is prepared for user %u; thcd -i %s%s%s --discard removes it",
		 r->d.mode, r->c.interface, (unsigned int)r->c.heir, r->c.interface,
		 *r->c.instance ? " --instance " : "", r->c.instance);
	return 0;
}

/* Removes what an instance that does not run has left. */
static int discard(struct run *r, struct thcd_error *e)
{
	int pins = thcd_xdp_discard(&r->d, e);

	if (pins < 0)
		return -1;
	if (!thcd_control_discard(&r->d, &r->c) && !pins)
		thcd_say("instance \"%s\" has left nothing to discard", r->d.instance);
	return 0;
}

/* SIGHUP reloads; true: a signal came that ends thcd. */
static bool read_signals(struct run *r)
{
	struct signalfd_siginfo info;
	bool hangup = false;

	while (read(r->signals, &info, sizeof(info)) == sizeof(info)) {
		if (info.ssi_signo != SIGHUP)
			return true;
		hangup = true;
	}
	if (hangup)
		reload(r, NULL);
	return false;
}

/* poll() has no memory: that may pass, and ending would end the jobs. */
static void wait_again(void)
{
	thcd_say_limited("cannot wait for packets: %s; thcd tries again", strerror(errno));
	usleep(POLL_AGAIN_US);
}

/* Serves until thcd has to end; returns the exit status. */
static int loop(struct run *r)
{
	struct pollfd p[2 + THCD_LISTEN_MAX + THCD_FOREIGN_POLLS + 1 + THCD_CONTROL_CLIENTS];
	struct thcd *d = &r->d;
	struct pollfd *foreign = p + 2 + d->sockets, *control;
	int i, n;

	for (;;) {
		int wait = thcd_deadline_scan(d);

		if (!d->software) {
			if (!thcd_xdp_watch(d))
				return EXIT_FAILURE;
			wait = wait < 0 || wait > THCD_WATCH_MS ? THCD_WATCH_MS : wait;
		}
		wait = thcd_notify_alive(wait);
		p[0] = (struct pollfd){ .fd = r->signals, .events = POLLIN };
		p[1] = (struct pollfd){ .fd = thcd_relay_fd(d), .events = POLLIN };
		for (i = 0; i < d->sockets; i++)
			p[2 + i] = (struct pollfd){ .fd = d->socket[i].fd, .events = POLLIN };
		control = foreign + thcd_foreign_poll(d, foreign);
		n = control - p + thcd_control_poll(&r->control, control, &wait);
		if (poll(p, n, wait) < 0) {
			if (errno != EINTR)
				wait_again();
			continue;
		}
		if (p[0].revents && read_signals(r))
			return EXIT_SUCCESS;
		if (p[1].revents)
			thcd_relay_serve(d);
		for (i = 0; i < d->sockets; i++)
			if (p[2 + i].revents)
				thcd_receive(d, i);
		thcd_foreign_look(d, foreign);
		thcd_control_serve(&r->control, d, control);
	}
}

static void stop(struct run *r, bool failed)
{
	struct thcd *d = &r->d;

	thcd_notify("STOPPING=1");
	thcd_deadline_exit();
	if (d->software)
		thcd_software_exit(d);
	else
		thcd_xdp_exit(d, failed);
	thcd_control_close(&r->control);
	thcd_guard_exit();
	thcd_net_close(d);
	if (r->pid_written)
		unlink(r->c.pidfile);
}

/* Runs thcd after the command line was read; returns the exit status. */
static int run(struct run *r)
{
	struct thcd_error e = { "" };
	int err, status = EXIT_SUCCESS;

	name_all(r);
	if (r->c.discard)
		err = discard(r, &e);
	else
		err = r->c.prepare ? prepare(r, &e) : start(r, &e);
	if (err)
		thcd_say("%s", e.text);
	else if (!r->c.prepare && !r->c.discard)
		status = loop(r);
	stop(r, err != 0);
	return err ? EXIT_FAILURE : status;
}

int main(int argc, char **argv)
{
	static struct run r = { .control.listener = -1 };
	struct thcd_error e = { "" };
	enum thcd_start start_as;

	thcd_config_init(&r.c);
	start_as = thcd_options(&r.c, argc, argv, &e);
	if (start_as == THCD_DONE) {
		if (!fflush(stdout))
			return EXIT_SUCCESS;
		thcd_say("not all of the output could be written: %s", strerror(errno));
		return EXIT_FAILURE;
	}
	if (start_as == THCD_BAD) {
		thcd_say("%s", e.text);
		return EXIT_USAGE;
	}
	r.argc = argc;
	r.argv = argv;
	return run(&r);
}
