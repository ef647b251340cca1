// SPDX-License-Identifier: GPL-2.0
/*
 * LD_PRELOAD library: lets one call of a program fail, as failslab does in the kernel.
 * netns/test_failures.py lets each fail that a run has had.
 *
 * A call is named by the way that it came by (a hash of its callers) and by how often one has
 * come by it: the order of calls is another one in each run of a program with threads, and these
 * names are not. It counts if it comes from the program's own code, not from libc or libbpf, and
 * for the first $FAIL_PER_SITE times: what a poll loop calls again and again would never come to
 * an end. libbpf and cJSON fail as a whole: their functions are calls like system calls here.
 *
 *	FAIL_IN		name of the program; others, such as nsenter before it, are left alone
 *	FAIL_AT		name of the call that fails; empty: none
 *	FAIL_PER_SITE	see above, 1 if not given
 *	FAIL_REPORT	file for one line about each call up to the one that failed, one about
 *			that, and one for each kind of memory that the program has not given
 *			back at its end
 */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <grp.h>
#include <ifaddrs.h>
#include <inttypes.h>
#include <link.h>
#include <net/if.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/capability.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <cjson/cJSON.h>

#define SITES		4096
#define BLOCKS		65536
#define FRAMES		12

/* glibc's own, for dlsym() and backtrace() call malloc() themselves. */
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *old, size_t bytes);
void __libc_free(void *block);

static struct {
	uintptr_t	first, last;	/* the program's code */
	uint64_t	site[SITES];	/* hash of the way that a call came by; 0: unused */
	unsigned int	times[SITES];
	void		*block[BLOCKS];	/* allocated by the program */
	unsigned int	per_site, fail_time;
	uint64_t	fail_site;	/* 0: none */
	bool		failed;
	size_t		mapped;
	int		report;
	pthread_mutex_t	lock;
} all = { .lock = PTHREAD_MUTEX_INITIALIZER, .report = -1 };

/* This thread is in here, whose calls are not the program's. */
static __thread bool inside;

static int find_program(struct dl_phdr_info *info, size_t size, void *unused)
{
	int i;

	(void)size;
	(void)unused;
	for (i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];

		if (p->p_type == PT_LOAD && p->p_flags & PF_X) {
			all.first = info->dlpi_addr + p->p_vaddr;
			all.last = all.first + p->p_memsz;
		}
	}
	return 1; /* the first object is the program */
}

__attribute__((constructor)) static void begin(void)
{
	const char *program = getenv("FAIL_IN"), *report = getenv("FAIL_REPORT");
	const char *at = getenv("FAIL_AT"), *per_site = getenv("FAIL_PER_SITE");
	void *frame[FRAMES];

	if (!program || !report || strcmp(program, program_invocation_short_name))
		return;
	inside = true;
	/* it loads a library when it is called first */
	backtrace(frame, FRAMES);
	all.per_site = per_site ? (unsigned int)atoi(per_site) : 1;
	if (at)
		sscanf(at, "%" SCNx64 ".%u", &all.fail_site, &all.fail_time);
	all.report = open(report, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
	inside = false;
	if (all.report >= 0)
		dl_iterate_phdr(find_program, NULL);
}

static bool is_own(const void *caller)
{
	return (uintptr_t)caller >= all.first && (uintptr_t)caller < all.last;
}

/* The way that a call came by, as far as it is in the program. */
static uint64_t hash_callers(void)
{
	void *frame[FRAMES];
	int i, n = backtrace(frame, FRAMES);
	uint64_t hash = 1;

	for (i = 0; i < n; i++)
		if (is_own(frame[i]))
			hash = (hash ^ ((uintptr_t)frame[i] - all.first)) * 0x9e3779b97f4a7c15ULL;
	return hash | 1;
}

/* How often a call came by this way, this time included. */
static unsigned int count_site(uint64_t hash)
{
	unsigned int i = hash >> 52, tries;

	for (tries = 0; tries < SITES; tries++, i = (i + 1) % SITES) {
		if (!all.site[i])
			all.site[i] = hash;
		if (all.site[i] == hash)
			return ++all.times[i];
	}
	return 1;
}

/* True if this call is the one that fails. */
static bool hit(const char *name, const void *caller)
{
	unsigned int time;
	bool fails = false;
	uint64_t hash;

	if (inside || !is_own(caller))
		return false;
	inside = true;
	hash = hash_callers();
	pthread_mutex_lock(&all.lock);
	time = count_site(hash);
	if (time <= all.per_site && !all.failed) {
		dprintf(all.report, "at %" PRIx64 ".%u\n", hash, time);
		all.failed = fails = hash == all.fail_site && time == all.fail_time;
	}
	pthread_mutex_unlock(&all.lock);
	if (fails)
		dprintf(all.report, "%s called at %#lx\n", name,
			(unsigned long)((uintptr_t)caller - 1));
	inside = false;
	return fails;
}

/* --- what the program has to give back ------------------------------------ */

static size_t pages(size_t bytes)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	return (bytes + page - 1) / page * page;
}

/* A place that was taken; a search goes on behind it. */
#define GONE ((void *)&all)

static void **place_of(const void *block, unsigned int tries)
{
	return &all.block[(((uintptr_t)block >> 4) + tries) % BLOCKS];
}

static void *taken(void *block, const void *caller)
{
	unsigned int tries;
	void **place;

	if (!block || inside || !is_own(caller))
		return block;
	pthread_mutex_lock(&all.lock);
	for (tries = 0; tries < BLOCKS; tries++) {
		place = place_of(block, tries);
		if (!*place || *place == GONE) {
			*place = block;
			break;
		}
	}
	pthread_mutex_unlock(&all.lock);
	return block;
}

/* Most blocks are libc's, and in no table. */
static void given_back(const void *block)
{
	unsigned int tries;
	void **place;

	if (!block || all.report < 0 || inside)
		return;
	pthread_mutex_lock(&all.lock);
	for (tries = 0; tries < BLOCKS && *(place = place_of(block, tries)); tries++) {
		if (*place == block) {
			*place = GONE;
			break;
		}
	}
	pthread_mutex_unlock(&all.lock);
}

__attribute__((destructor)) static void end(void)
{
	unsigned int i, blocks = 0;

	if (all.report < 0)
		return;
	for (i = 0; i < BLOCKS; i++)
		blocks += all.block[i] && all.block[i] != GONE;
	if (blocks)
		dprintf(all.report, "leaked %u blocks\n", blocks);
	if (all.mapped)
		dprintf(all.report, "leaked %zu mapped bytes\n", all.mapped);
}

#pragma GCC visibility push(default)

#define CALLER __builtin_return_address(0)

void *malloc(size_t bytes)
{
	if (hit("malloc", CALLER)) {
		errno = ENOMEM;
		return NULL;
	}
	return taken(__libc_malloc(bytes), CALLER);
}

void *calloc(size_t count, size_t bytes)
{
	if (hit("calloc", CALLER)) {
		errno = ENOMEM;
		return NULL;
	}
	return taken(__libc_calloc(count, bytes), CALLER);
}

void free(void *block)
{
	given_back(block);
	__libc_free(block);
}

void *realloc(void *old, size_t bytes)
{
	if (hit("realloc", CALLER)) {
		errno = ENOMEM;
		return NULL;
	}
	given_back(old);
	return taken(__libc_realloc(old, bytes), CALLER);
}

#define REAL(name)                                            \
	({                                                    \
		static __typeof__(name) *real;                \
		if (!real)                                    \
			real = dlsym(RTLD_NEXT, #name);       \
		real;                                         \
	})

/* A function that fails with @error in errno and this @result. */
#define FAILS(type, name, parameters, arguments, error, result) \
	type name parameters                                    \
	{                                                       \
		if (hit(#name, CALLER)) {                       \
			errno = error;                          \
			return result;                          \
		}                                               \
		return REAL(name) arguments;                    \
	}

FAILS(char *, strdup, (const char *s), (s), ENOMEM, NULL)

void *mmap(void *at, size_t bytes, int prot, int flags, int fd, off_t offset)
{
	void *mapped;

	if (hit("mmap", CALLER)) {
		errno = ENOMEM;
		return MAP_FAILED;
	}
	mapped = REAL(mmap)(at, bytes, prot, flags, fd, offset);
	if (mapped != MAP_FAILED && is_own(CALLER))
		__atomic_add_fetch(&all.mapped, pages(bytes), __ATOMIC_RELAXED);
	return mapped;
}

/* It fails only for wrong arguments. */
int munmap(void *at, size_t bytes)
{
	if (is_own(CALLER))
		__atomic_sub_fetch(&all.mapped, pages(bytes), __ATOMIC_RELAXED);
	return REAL(munmap)(at, bytes);
}

FAILS(int, madvise, (void *at, size_t bytes, int advice), (at, bytes, advice), ENOMEM, -1)

/* An eventfd takes what is written: it has no type. */
static bool is_eventfd(int fd)
{
	struct stat st;

	return !REAL(fstat)(fd, &st) && !(st.st_mode & S_IFMT);
}

ssize_t write(int fd, const void *from, size_t bytes)
{
	if (!is_eventfd(fd) && hit("write", CALLER)) {
		errno = ENOSPC;
		return -1;
	}
	return REAL(write)(fd, from, bytes);
}

/* --- files ---------------------------------------------------------------- */

int open(const char *path, int flags, ...)
{
	va_list more;
	mode_t mode;

	va_start(more, flags);
	mode = va_arg(more, mode_t);
	va_end(more);
	if (hit("open", CALLER)) {
		errno = EMFILE;
		return -1;
	}
	return REAL(open)(path, flags, mode);
}

/* The stream is gone all the same. */
int fclose(FILE *f)
{
	int result = REAL(fclose)(f);

	if (hit("fclose", CALLER)) {
		errno = ENOSPC;
		return EOF;
	}
	return result;
}

FAILS(FILE *, fopen, (const char *path, const char *mode), (path, mode), EMFILE, NULL)
FAILS(ssize_t, read, (int fd, void *to, size_t bytes), (fd, to, bytes), EIO, -1)
FAILS(int, access, (const char *path, int mode), (path, mode), EACCES, -1)
FAILS(int, stat, (const char *path, struct stat *st), (path, st), EACCES, -1)
FAILS(int, lstat, (const char *path, struct stat *st), (path, st), EACCES, -1)
FAILS(int, fstat, (int fd, struct stat *st), (fd, st), EIO, -1)
FAILS(int, fstatat, (int dir, const char *name, struct stat *st, int flags), (dir, name, st, flags),
      EIO, -1)
FAILS(int, statfs, (const char *path, struct statfs *st), (path, st), EACCES, -1)
FAILS(int, fstatfs, (int fd, struct statfs *st), (fd, st), EIO, -1)
FAILS(int, chmod, (const char *path, mode_t mode), (path, mode), EPERM, -1)
FAILS(int, fchmod, (int fd, mode_t mode), (fd, mode), EPERM, -1)
FAILS(int, chown, (const char *path, uid_t user, gid_t group), (path, user, group), EPERM, -1)
FAILS(int, mkdir, (const char *path, mode_t mode), (path, mode), ENOSPC, -1)
FAILS(int, rmdir, (const char *path), (path), EBUSY, -1)
FAILS(int, rename, (const char *from, const char *to), (from, to), ENOSPC, -1)
FAILS(int, unlink, (const char *path), (path), EBUSY, -1)
FAILS(int, unlinkat, (int folder, const char *path, int flags), (folder, path, flags), EBUSY, -1)
FAILS(int, flock, (int fd, int operation), (fd, operation), ENOLCK, -1)
FAILS(DIR *, opendir, (const char *path), (path), EMFILE, NULL)
FAILS(struct dirent *, readdir, (DIR * folder), (folder), EIO, NULL)
FAILS(int, mount,
      (const char *source, const char *target, const char *type, unsigned long flags,
       const void *data),
      (source, target, type, flags, data), EPERM, -1)

/* --- waiting, signals, threads -------------------------------------------- */

FAILS(int, poll, (struct pollfd * p, nfds_t n, int ms), (p, n, ms), ENOMEM, -1)
FAILS(int, ppoll, (struct pollfd * p, nfds_t n, const struct timespec *wait, const sigset_t *mask),
      (p, n, wait, mask), ENOMEM, -1)
FAILS(int, signalfd, (int fd, const sigset_t *mask, int flags), (fd, mask, flags), EMFILE, -1)
FAILS(int, eventfd, (unsigned int count, int flags), (count, flags), EMFILE, -1)
FAILS(ssize_t, getrandom, (void *to, size_t bytes, unsigned int flags), (to, bytes, flags), ENOSYS,
      -1)
FAILS(int, pthread_create,
      (pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument),
      (thread, attributes, run, argument), 0, EAGAIN)

/* --- the network ---------------------------------------------------------- */

int ioctl(int fd, unsigned long request, ...)
{
	va_list more;
	void *argument;

	va_start(more, request);
	argument = va_arg(more, void *);
	va_end(more);
	if (hit("ioctl", CALLER)) {
		errno = ENODEV;
		return -1;
	}
	return REAL(ioctl)(fd, request, argument);
}

FAILS(int, socket, (int family, int type, int protocol), (family, type, protocol), EMFILE, -1)
FAILS(int, bind, (int fd, const struct sockaddr *to, socklen_t bytes), (fd, to, bytes), EADDRINUSE,
      -1)
FAILS(int, connect, (int fd, const struct sockaddr *to, socklen_t bytes), (fd, to, bytes), ENOMEM,
      -1)
FAILS(int, listen, (int fd, int backlog), (fd, backlog), EADDRINUSE, -1)
FAILS(int, accept4, (int fd, struct sockaddr *from, socklen_t *bytes, int flags),
      (fd, from, bytes, flags), EMFILE, -1)
FAILS(int, getsockname, (int fd, struct sockaddr *at, socklen_t *bytes), (fd, at, bytes), ENOBUFS,
      -1)
FAILS(int, getsockopt, (int fd, int level, int name, void *value, socklen_t *bytes),
      (fd, level, name, value, bytes), ENOBUFS, -1)
FAILS(int, setsockopt, (int fd, int level, int name, const void *value, socklen_t bytes),
      (fd, level, name, value, bytes), ENOBUFS, -1)
FAILS(ssize_t, send, (int fd, const void *from, size_t bytes, int flags), (fd, from, bytes, flags),
      ENOBUFS, -1)
FAILS(ssize_t, sendmsg, (int fd, const struct msghdr *m, int flags), (fd, m, flags), ENOBUFS, -1)
FAILS(int, sendmmsg, (int fd, struct mmsghdr *m, unsigned int n, int flags), (fd, m, n, flags),
      ENOBUFS, -1)
FAILS(ssize_t, recv, (int fd, void *to, size_t bytes, int flags), (fd, to, bytes, flags), ENOMEM,
      -1)
FAILS(ssize_t, recvfrom,
      (int fd, void *to, size_t bytes, int flags, struct sockaddr *from, socklen_t *length),
      (fd, to, bytes, flags, from, length), ENOMEM, -1)
FAILS(ssize_t, recvmsg, (int fd, struct msghdr *m, int flags), (fd, m, flags), ENOMEM, -1)
FAILS(int, recvmmsg, (int fd, struct mmsghdr *m, unsigned int n, int flags, struct timespec *wait),
      (fd, m, n, flags, wait), ENOMEM, -1)
FAILS(int, getifaddrs, (struct ifaddrs * *list), (list), ENOMEM, -1)
FAILS(unsigned int, if_nametoindex, (const char *name), (name), EMFILE, 0)
FAILS(char *, if_indextoname, (unsigned int index, char name[IF_NAMESIZE]), (index, name), EMFILE,
      NULL)
FAILS(int, getaddrinfo,
      (const char *node, const char *service, const struct addrinfo *hints,
       struct addrinfo **found),
      (node, service, hints, found), ENOMEM, EAI_MEMORY)
FAILS(int, getnameinfo,
      (const struct sockaddr *at, socklen_t bytes, char *host, socklen_t host_bytes, char *service,
       socklen_t service_bytes, int flags),
      (at, bytes, host, host_bytes, service, service_bytes, flags), ENOMEM, EAI_MEMORY)

FAILS(ssize_t, sendto,
      (int fd, const void *from, size_t bytes, int flags, const struct sockaddr *to,
       socklen_t length),
      (fd, from, bytes, flags, to, length), ENOBUFS, -1)

/* --- users and what they may do ------------------------------------------- */

FAILS(struct group *, getgrnam, (const char *name), (name), ENOMEM, NULL)
FAILS(struct passwd *, getpwnam, (const char *name), (name), ENOMEM, NULL)
FAILS(int, fchown, (int fd, uid_t uid, gid_t gid), (fd, uid, gid), EPERM, -1)
FAILS(int, fchownat, (int dir, const char *name, uid_t uid, gid_t gid, int flags),
      (dir, name, uid, gid, flags), EPERM, -1)
FAILS(cap_t, cap_init, (void), (), ENOMEM, NULL)
FAILS(cap_t, cap_get_proc, (void), (), ENOMEM, NULL)
FAILS(int, cap_set_proc, (cap_t caps), (caps), EPERM, -1)
FAILS(int, cap_drop_bound, (cap_value_t cap), (cap), EPERM, -1)
FAILS(int, cap_reset_ambient, (void), (), EPERM, -1)

/* --- what the fortified headers make of some of them ---------------------- */

ssize_t __read_chk(int fd, void *to, size_t bytes, size_t room);
ssize_t __recv_chk(int fd, void *to, size_t bytes, size_t room, int flags);
ssize_t __recvfrom_chk(int fd, void *to, size_t bytes, size_t room, int flags,
		       struct sockaddr *from, socklen_t *length);
int __poll_chk(struct pollfd *p, nfds_t n, int ms, size_t room);
int __ppoll_chk(struct pollfd *p, nfds_t n, const struct timespec *wait, const sigset_t *mask,
		size_t room);

FAILS(ssize_t, __read_chk, (int fd, void *to, size_t bytes, size_t room), (fd, to, bytes, room),
      EIO, -1)
FAILS(ssize_t, __recv_chk, (int fd, void *to, size_t bytes, size_t room, int flags),
      (fd, to, bytes, room, flags), ENOMEM, -1)
FAILS(ssize_t, __recvfrom_chk,
      (int fd, void *to, size_t bytes, size_t room, int flags, struct sockaddr *from,
       socklen_t *length),
      (fd, to, bytes, room, flags, from, length), ENOMEM, -1)
FAILS(int, __poll_chk, (struct pollfd *p, nfds_t n, int ms, size_t room), (p, n, ms, room), ENOMEM,
      -1)
FAILS(int, __ppoll_chk,
      (struct pollfd *p, nfds_t n, const struct timespec *wait, const sigset_t *mask, size_t room),
      (p, n, wait, mask, room), ENOMEM, -1)

/* --- libbpf: negative errno, also in errno -------------------------------- */

FAILS(int, bpf_map_create,
      (enum bpf_map_type type, const char *name, __u32 key, __u32 value, __u32 entries,
       const struct bpf_map_create_opts *options),
      (type, name, key, value, entries, options), ENOMEM, -ENOMEM)
FAILS(int, bpf_map_lookup_elem, (int fd, const void *key, void *value), (fd, key, value), ENOMEM,
      -ENOMEM)
FAILS(int, bpf_map_update_elem, (int fd, const void *key, const void *value, __u64 flags),
      (fd, key, value, flags), ENOMEM, -ENOMEM)
FAILS(int, bpf_obj_get, (const char *path), (path), EMFILE, -EMFILE)
FAILS(int, bpf_obj_pin, (int fd, const char *path), (fd, path), ENOSPC, -ENOSPC)
FAILS(int, bpf_obj_get_info_by_fd, (int fd, void *info, __u32 *bytes), (fd, info, bytes), ENOMEM,
      -ENOMEM)
FAILS(int, bpf_prog_get_fd_by_id, (__u32 id), (id), EMFILE, -EMFILE)
FAILS(int, bpf_prog_test_run_opts, (int fd, struct bpf_test_run_opts *options), (fd, options),
      ENOMEM, -ENOMEM)
FAILS(int, bpf_xdp_attach,
      (int ifindex, int fd, __u32 flags, const struct bpf_xdp_attach_opts *options),
      (ifindex, fd, flags, options), ENOMEM, -ENOMEM)
FAILS(int, bpf_xdp_detach, (int ifindex, __u32 flags, const struct bpf_xdp_attach_opts *options),
      (ifindex, flags, options), ENOMEM, -ENOMEM)
FAILS(int, bpf_xdp_query, (int ifindex, int flags, struct bpf_xdp_query_opts *options),
      (ifindex, flags, options), ENOMEM, -ENOMEM)
FAILS(int, bpf_map__set_max_entries, (struct bpf_map * map, __u32 entries), (map, entries), ENOMEM,
      -ENOMEM)
FAILS(int, bpf_map__set_pin_path, (struct bpf_map * map, const char *path), (map, path), ENOMEM,
      -ENOMEM)
FAILS(int, bpf_object__open_skeleton,
      (struct bpf_object_skeleton * skeleton, const struct bpf_object_open_opts *options),
      (skeleton, options), ENOMEM, -ENOMEM)
FAILS(int, bpf_object__load_skeleton, (struct bpf_object_skeleton * skeleton), (skeleton), ENOMEM,
      -ENOMEM)
FAILS(struct btf *, btf__load_vmlinux_btf, (void), (), ENOMEM, NULL)
FAILS(struct btf *, btf__load_module_btf, (const char *name, struct btf *base), (name, base),
      ENOMEM, NULL)
FAILS(int, libbpf_num_possible_cpus, (void), (), EMFILE, -EMFILE)
FAILS(struct ring_buffer *, ring_buffer__new,
      (int fd, ring_buffer_sample_fn sample, void *context, const struct ring_buffer_opts *options),
      (fd, sample, context, options), ENOMEM, NULL)
FAILS(int, ring_buffer__consume, (struct ring_buffer * ring), (ring), ENOMEM, -ENOMEM)

/* --- cJSON: no memory ----------------------------------------------------- */

FAILS(cJSON *, cJSON_CreateObject, (void), (), ENOMEM, NULL)
FAILS(cJSON *, cJSON_CreateArray, (void), (), ENOMEM, NULL)
FAILS(cJSON *, cJSON_CreateNumber, (double value), (value), ENOMEM, NULL)
FAILS(cJSON *, cJSON_CreateString, (const char *text), (text), ENOMEM, NULL)
FAILS(cJSON *, cJSON_CreateIntArray, (const int *values, int count), (values, count), ENOMEM, NULL)
FAILS(cJSON *, cJSON_AddArrayToObject, (cJSON * const in, const char *const name), (in, name),
      ENOMEM, NULL)
FAILS(cJSON *, cJSON_AddObjectToObject, (cJSON * const in, const char *const name), (in, name),
      ENOMEM, NULL)
FAILS(cJSON *, cJSON_AddBoolToObject,
      (cJSON *const in, const char *const name, const cJSON_bool value), (in, name, value), ENOMEM,
      NULL)
FAILS(cJSON *, cJSON_AddNumberToObject,
      (cJSON * const in, const char *const name, const double value), (in, name, value), ENOMEM,
      NULL)
FAILS(cJSON *, cJSON_AddStringToObject,
      (cJSON *const in, const char *const name, const char *const value), (in, name, value), ENOMEM,
      NULL)
FAILS(cJSON_bool, cJSON_AddItemToArray, (cJSON * array, cJSON *item), (array, item), ENOMEM, 0)
FAILS(cJSON_bool, cJSON_AddItemToObject, (cJSON * in, const char *name, cJSON *item),
      (in, name, item), ENOMEM, 0)
FAILS(char *, cJSON_PrintUnformatted, (const cJSON *value), (value), ENOMEM, NULL)
FAILS(cJSON *, cJSON_ParseWithOpts, (const char *text, const char **end_of_it, cJSON_bool whole),
      (text, end_of_it, whole), ENOMEM, NULL)
