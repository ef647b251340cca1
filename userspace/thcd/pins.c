// SPDX-License-Identifier: GPL-2.0
/*
 * The instance's directory in bpffs, /sys/fs/bpf/thc/INSTANCE. Programs and
 * maps pinned there live on when the daemon is killed; a lock on the directory
 * tells a dead daemon's pins from a living one's.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bpf/bpf.h>

#include "../aggregator/paths.h"
#include "pins.h"

static int mount_bpffs(struct thcd_error *e)
{
	int mounted = thc_bpffs_mounted();

	if (mounted > 0)
		return 0;
	/* a second mount would hide the pins of all instances */
	if (mounted < 0)
		return thcd_fail(e, "cannot look at %s: %s", THC_BPFFS, strerror(-mounted));
	if (mount("bpf", THC_BPFFS, "bpf", 0, "mode=0700"))
		return thcd_fail(
			e,
			"cannot mount bpffs on %s: %s; mount it (mount -t bpf -o mode=0700 bpf %s), give "
			"CAP_SYS_ADMIN, or use --software",
			THC_BPFFS, strerror(errno), THC_BPFFS);
	thcd_say(
		"mounted bpffs on %s; under ip netns exec this mount and the pins in it end with the "
		"process: use nsenter --net= there",
		THC_BPFFS);
	return 0;
}

/* A user who can write to the directory can put other programs and maps into it. */
static int make_dir(const char *dir, uid_t heir, struct thcd_error *e)
{
	bool made = !mkdir(dir, 0700);
	struct stat st;
	bool ours;

	if ((!made && errno != EEXIST) || lstat(dir, &st)) {
		thcd_fail(e, "cannot make %s: %s%s", dir, strerror(errno),
			  geteuid() ? "; thcd --prepare, as root, does so" : "");
		if (made)
			rmdir(dir);
		return -1;
	}
	if (!S_ISDIR(st.st_mode) || st.st_mode & (S_IWGRP | S_IWOTH))
		return thcd_fail(e,
				 "%s is there, and other users can write to it: look at what it "
				 "is (ls -ld %s), remove it, and mount bpffs with mode=0700",
				 dir, dir);
	ours = !st.st_uid || st.st_uid == geteuid() || st.st_uid == heir ||
	       heir == THCD_PINS_ANYBODYS;
	return ours ? 0 :
		      thcd_fail(e,
				"%s belongs to user %u, for whom it may have been prepared: run "
				"thcd as that user, or thcd --discard first",
				dir, (unsigned int)st.st_uid);
}

/* A directory with pins, or with other instances, stays. */
static void remove_dirs(const struct thcd_pins *p)
{
	rmdir(p->dir);
	rmdir(THC_PINS_ROOT);
}

/* Name of the next pin; NULL: no more. */
static const char *next_pin(DIR *dir)
{
	struct dirent *entry;

	while ((entry = readdir(dir)))
		if (entry->d_name[0] != '.')
			return entry->d_name;
	return NULL;
}

/* A user who owned the pins may have put links among them, and root would open other files
 * through such links. From here on only root can add any, until the pins are given to a user.
 */
static int reclaim(struct thcd_pins *p, struct thcd_error *e)
{
	const char *name;
	struct stat st;
	DIR *dir;
	int err;

	err = fstat(p->lock, &st) || fchown(p->lock, 0, (gid_t)-1);
	dir = err ? NULL : opendir(p->dir);
	if (!dir)
		return thcd_fail(e, "cannot take back %s: %s", p->dir, strerror(errno));
	p->owner = st.st_uid;
	while (!err && (name = next_pin(dir))) {
		if (fstatat(dirfd(dir), name, &st, AT_SYMLINK_NOFOLLOW))
			err = thcd_fail(e, "cannot look at %s/%s: %s", p->dir, name,
					strerror(errno));
		else if (!S_ISREG(st.st_mode) || st.st_nlink != 1)
			err = thcd_fail(e,
					"%s/%s is a link or a folder, which no thcd has put there: "
					"remove it",
					p->dir, name);
	}
	closedir(dir);
	return err;
}

int thcd_pins_open(struct thcd_pins *p, const char *instance, uid_t heir, struct thcd_error *e)
{
	p->lock = -1;
	p->owner = 0;
	thc_pins_dir(instance, p->dir, sizeof(p->dir));
	if (mount_bpffs(e) || make_dir(THC_PINS_ROOT, 0, e) || make_dir(p->dir, heir, e))
		return -1;
	p->lock = open(p->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (p->lock >= 0 && !flock(p->lock, LOCK_EX | LOCK_NB))
		return heir ? reclaim(p, e) : 0;
	if (p->lock >= 0 && errno == EWOULDBLOCK) {
		thcd_fail(
			e,
			"another thcd runs instance \"%s\"; stop it, or give --instance another name",
			instance);
	} else {
		thcd_fail(e, "cannot lock %s: %s%s", p->dir, strerror(errno),
			  geteuid() ? "; thcd --prepare, as root, prepares it" : "");
		remove_dirs(p);
	}
	if (p->lock >= 0)
		close(p->lock);
	p->lock = -1;
	return -1;
}

int thcd_pins_put(const struct thcd_pins *p, const char *name, int fd, struct thcd_error *e)
{
	struct thc_pin pin = thc_pin(p->dir, name);

	unlink(pin.path);
	return bpf_obj_pin(fd, pin.path) ?
		       thcd_fail(e, "cannot pin %s: %s", pin.path, strerror(errno)) :
		       0;
}

int thcd_pins_remove(struct thcd_pins *p)
{
	DIR *dir = opendir(p->dir);
	const char *name;
	int removed = 0;

	if (!dir) {
		thcd_say("cannot list %s: %s; what is pinned there stays", p->dir, strerror(errno));
		return 0;
	}
	while ((name = next_pin(dir))) {
		if (unlinkat(dirfd(dir), name, 0))
			thcd_say("cannot remove %s/%s: %s", p->dir, name, strerror(errno));
		else
			removed++;
	}
	closedir(dir);
	return removed;
}

int thcd_pins_give(struct thcd_pins *p, uid_t heir, struct thcd_error *e)
{
	const char *name;
	struct stat st;
	DIR *dir;
	int err = 0;

	if (stat(THC_BPFFS, &st) || !(st.st_mode & S_IXOTH))
		return thcd_fail(e,
				 "only root can pass through %s to the pins: chmod 711 %s lets "
				 "others pass, and see nothing",
				 THC_BPFFS, THC_BPFFS);
	dir = opendir(p->dir);
	if (!dir)
		return thcd_fail(e, "cannot read %s: %s", p->dir, strerror(errno));
	while (!err && (name = next_pin(dir)))
		err = fchownat(dirfd(dir), name, heir, (gid_t)-1, AT_SYMLINK_NOFOLLOW);
	err = err || fchown(dirfd(dir), heir, (gid_t)-1) || chmod(THC_PINS_ROOT, 0711);
	if (err)
		thcd_fail(e, "cannot give %s to the user: %s", p->dir, strerror(errno));
	else
		p->owner = 0;
	closedir(dir);
	return err ? -1 : 0;
}

void thcd_pins_close(struct thcd_pins *p)
{
	if (p->lock < 0)
		return;
	if (p->owner && fchown(p->lock, p->owner, (gid_t)-1))
		thcd_say("cannot give %s back to user %u: %s", p->dir, (unsigned int)p->owner,
			 strerror(errno));
	remove_dirs(p);
	close(p->lock);
	p->lock = -1;
}
