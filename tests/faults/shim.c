/* Faults of a machine for one process, by LD_PRELOAD: a full disk, a clock that is set, a disk that can lose its power,
   a kill in the middle of a write.

   FAULTS_CONTROL  a file of 24 bytes, read all the time: seconds to add to the clock; whether the disk is full; which of
                   the process's writes at a place in a file is cut off by a kill, and which by a full disk (0: none)
   FAULTS_PREFIX   the folder that the faults of the disk are for
   FAULTS_SHADOW   where a copy of each file goes when it is synced: what a power cut would leave (see machine.py)
   FAULTS_BOOT     is read in the place of /proc/sys/kernel/random/boot_id */

#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

struct control {
    volatile int64_t clock;
    volatile int32_t full;
    volatile int32_t killed, failing, unused;
};

static struct control none, *control = &none;
static const char *prefix, *shadow, *boot;
static int (*real_open)(const char *, int, ...);
static int (*real_openat)(int, const char *, int, ...);
static ssize_t (*real_write)(int, const void *, size_t);
static ssize_t (*real_pwrite)(int, const void *, size_t, off_t);
static int (*real_fsync)(int), (*real_fdatasync)(int);
static int (*real_clock)(clockid_t, struct timespec *);

__attribute__((constructor)) static void begin(void) {
    real_open = dlsym(RTLD_NEXT, "open");
    real_openat = dlsym(RTLD_NEXT, "openat");
    real_write = dlsym(RTLD_NEXT, "write");
    real_pwrite = dlsym(RTLD_NEXT, "pwrite");
    real_fsync = dlsym(RTLD_NEXT, "fsync");
    real_fdatasync = dlsym(RTLD_NEXT, "fdatasync");
    real_clock = dlsym(RTLD_NEXT, "clock_gettime");
    prefix = getenv("FAULTS_PREFIX");
    shadow = getenv("FAULTS_SHADOW");
    boot = getenv("FAULTS_BOOT");
    const char *path = getenv("FAULTS_CONTROL");
    int fd = path ? real_open(path, O_RDONLY) : -1;
    if (fd >= 0) {
        void *at = mmap(0, sizeof *control, PROT_READ, MAP_SHARED, fd, 0);
        if (at != MAP_FAILED) control = at;
        close(fd);
    }
}

/* The part of a descriptor's path below the prefix; 0: it is not there. */
static const char *below(int fd, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, PATH_MAX - 1);
    if (n <= 0 || !prefix) return 0;
    path[n] = 0;
    size_t length = strlen(prefix);
    if (strncmp(path, prefix, length) != 0) return 0;
    return path[length] == '/' ? path + length + 1 : path[length] ? 0 : path + length;
}

/* A full disk takes what replaces old bytes, and nothing more. */
static int too_much(int fd, off_t end) {
    char path[PATH_MAX];
    struct stat found;
    int before = errno, no = control->full && below(fd, path) && fstat(fd, &found) == 0 && end > found.st_size;
    errno = no ? ENOSPC : before;
    return no;
}

static int no_new_file(const char *path, int flags) {
    if (!control->full || !(flags & O_CREAT) || !prefix || access(path, F_OK) == 0) return 0;
    char folder[PATH_MAX], real[PATH_MAX];
    snprintf(folder, sizeof folder, "%s", path);
    char *slash = strrchr(folder, '/');
    if (slash) *slash = 0;
    if (!realpath(slash ? folder : ".", real) || strncmp(real, prefix, strlen(prefix)) != 0) return 0;
    errno = ENOSPC;
    return 1;
}

static const char *instead(const char *path) {
    return boot && strcmp(path, "/proc/sys/kernel/random/boot_id") == 0 ? boot : path;
}

int open(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    mode_t mode = va_arg(rest, mode_t);
    va_end(rest);
    return no_new_file(path, flags) ? -1 : real_open(instead(path), flags, mode);
}

int open64(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    mode_t mode = va_arg(rest, mode_t);
    va_end(rest);
    return no_new_file(path, flags) ? -1 : real_open(instead(path), flags | O_LARGEFILE, mode);
}

int openat(int folder, const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    mode_t mode = va_arg(rest, mode_t);
    va_end(rest);
    return no_new_file(path, flags) ? -1 : real_openat(folder, instead(path), flags, mode);
}

ssize_t write(int fd, const void *data, size_t size) {
    if (control->full) {
        struct stat found;
        int append = fcntl(fd, F_GETFL) & O_APPEND;
        off_t at = append && fstat(fd, &found) == 0 ? found.st_size : lseek(fd, 0, SEEK_CUR);
        if (at >= 0 && too_much(fd, at + (off_t)size)) return -1;
    }
    return real_write(fd, data, size);
}

/* True if a write has been cut off. Half of what is to be written is there, as where the kernel hears of the kill, or
   finds no room, between two pages; nothing of a few bytes, which it takes in one step. */
static int cut_off(int fd, const void *data, size_t size, off_t at) {
    static int writes;
    char path[PATH_MAX];
    if (!below(fd, path)) return 0;
    writes++;
    int fails = writes == control->failing && size > 1; /* a byte that is there needs no room */
    if (writes != control->killed && !fails) return 0;
    if (size > 512) real_pwrite(fd, data, size / 2, at);
    if (writes == control->killed) kill(getpid(), SIGKILL);
    errno = ENOSPC;
    return 1;
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t at) {
    if ((control->killed || control->failing) && cut_off(fd, data, size, at)) return -1;
    return control->full && too_much(fd, at + (off_t)size) ? -1 : real_pwrite(fd, data, size, at);
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) {
    return pwrite(fd, data, size, at);
}

/* Slashes become %, so that the copies need no folders. */
static void name_copy(char *to, size_t room, const char *rest) {
    int n = snprintf(to, room, "%s/", shadow);
    for (; *rest && n < (int)room - 1; rest++) to[n++] = *rest == '/' ? '%' : *rest;
    to[n] = 0;
}

/* Copy a file that has been synced; the copy takes its name in one step, as the process may be killed meanwhile. */
static void copy_file(const char *path, const char *rest) {
    char copy[PATH_MAX], half[PATH_MAX + 32], data[65536];
    int in = real_open(path, O_RDONLY);
    if (in < 0) return;
    name_copy(copy, sizeof copy, rest);
    snprintf(half, sizeof half, "%s.half%d", copy, (int)gettid());
    int out = real_open(half, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (out < 0) abort();
    for (ssize_t n; (n = read(in, data, sizeof data)) > 0;)
        if (real_write(out, data, n) != n) abort();
    close(in);
    close(out);
    rename(half, copy);
}

/* A folder that is synced forgets the names that have gone from it. */
static void forget_names(const char *rest) {
    char start[PATH_MAX], real[3 * PATH_MAX], gone[3 * PATH_MAX];
    name_copy(start, sizeof start, rest);
    const char *mine = start + strlen(shadow) + 1;
    size_t length = strlen(mine);
    DIR *copies = opendir(shadow);
    for (struct dirent *each; copies && (each = readdir(copies));) {
        const char *name = each->d_name;
        if (length && (strncmp(name, mine, length) != 0 || name[length] != '%')) continue;
        name += length ? length + 1 : 0;
        snprintf(real, sizeof real, "%s/%s%s%s", prefix, rest, length ? "/" : "", name);
        snprintf(gone, sizeof gone, "%s/%s", shadow, each->d_name);
        if (!strchr(name, '%') && name[0] != '.' && access(real, F_OK) != 0) unlink(gone);
    }
    if (copies) closedir(copies);
}

static void note_sync(int fd) {
    char path[PATH_MAX];
    struct stat found;
    const char *rest = shadow ? below(fd, path) : 0;
    if (!rest || fstat(fd, &found) != 0) return;
    struct rlimit before, more; /* the copy is no affair of a process that may open no file */
    getrlimit(RLIMIT_NOFILE, &before);
    more = before;
    more.rlim_cur = more.rlim_max;
    setrlimit(RLIMIT_NOFILE, &more);
    if (S_ISDIR(found.st_mode)) forget_names(rest);
    else copy_file(path, rest);
    setrlimit(RLIMIT_NOFILE, &before);
}

int fsync(int fd) {
    int failed = real_fsync(fd), before = errno;
    if (!failed) note_sync(fd);
    errno = before;
    return failed;
}

int fdatasync(int fd) {
    int failed = real_fdatasync(fd), before = errno;
    if (!failed) note_sync(fd);
    errno = before;
    return failed;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = real_clock(clock, now);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += control->clock;
    return failed;
}

int gettimeofday(struct timeval *now, void *zone) {
    struct timespec found;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &found);
    now->tv_sec = found.tv_sec;
    now->tv_usec = found.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *to) {
    struct timespec found;
    clock_gettime(CLOCK_REALTIME, &found);
    if (to) *to = found.tv_sec;
    return found.tv_sec;
}
