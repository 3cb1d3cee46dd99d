// SPDX-License-Identifier: Apache-2.0
#include "tools/serve/log.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tools/term.h"

#define RING_BYTES (256 * 1024) // some thousand lines: a pause of the reader of seconds
#define TIME_BYTES 32
// How long a descriptor that somebody made non-blocking is waited for before it is asked again.
#define WAIT_MS 1000

struct head {
    uint32_t len;
    int32_t fd;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t more, idle;
static struct {
    char bytes[RING_BYTES];
    size_t at, used; // of the oldest entry; bytes in use
    bool runs;       // the thread
    bool writing;    // it holds an entry
    bool ended;      // nothing is taken any more
} ring;
static atomic_uint_fast64_t dropped;
static uint64_t told; // of them, said so far; the writer's

// ---- writing ----

// False: the system took not all of it.
static bool write_all(int fd, const char *text, size_t len)
{
    while (len > 0) {
        ssize_t n = write(fd, text, len);
        if (n > 0) {
            text += n;
            len -= (size_t)n;
        } else if (n < 0 && errno == EAGAIN) {
            poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, WAIT_MS);
        } else if (n == 0 || errno != EINTR) {
            return false;
        }
    }
    return true;
}

// "2026-11-28T12:00:00.000Z "
static size_t begin_line(char *out, size_t cap)
{
    struct timespec now;
    struct tm utc;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    size_t n = strftime(out, cap, "%Y-%m-%dT%H:%M:%S", &utc);
    return n + (size_t)snprintf(out + n, cap - n, ".%03ldZ ", now.tv_nsec / 1000000);
}

// After a gap, where the reader is back.
static void tell_gap(int fd)
{
    char line[PLM_TERM_LINE_BYTES];
    const uint64_t now = atomic_load(&dropped);
    if (fd != STDERR_FILENO || now == told)
        return;
    size_t n = begin_line(line, sizeof(line));
    n += (size_t)snprintf(line + n, sizeof(line) - n,
                          "plimsoll serve: %llu lines of the log were dropped\n",
                          (unsigned long long)(now - told));
    if (write_all(fd, line, n))
        told = now;
}

static void write_entry(int fd, const char *text, size_t len)
{
    tell_gap(fd);
    if (!write_all(fd, text, len))
        atomic_fetch_add(&dropped, 1);
}

// ---- the ring ----

static void ring_copy_in(size_t at, const void *from, size_t n)
{
    const size_t first = n < RING_BYTES - at ? n : RING_BYTES - at;
    memcpy(ring.bytes + at, from, first);
    memcpy(ring.bytes, (const char *)from + first, n - first);
}

static void ring_copy_out(size_t at, void *to, size_t n)
{
    const size_t first = n < RING_BYTES - at ? n : RING_BYTES - at;
    memcpy(to, ring.bytes + at, first);
    memcpy((char *)to + first, ring.bytes, n - first);
}

static void put(int fd, const char *text, size_t len)
{
    const struct head head = {(uint32_t)len, fd};
    pthread_mutex_lock(&mutex);
    if (ring.ended || (ring.runs && sizeof(head) + len > RING_BYTES - ring.used)) {
        atomic_fetch_add(&dropped, 1);
    } else if (ring.runs) {
        ring_copy_in((ring.at + ring.used) % RING_BYTES, &head, sizeof(head));
        ring_copy_in((ring.at + ring.used + sizeof(head)) % RING_BYTES, text, len);
        ring.used += sizeof(head) + len;
        pthread_cond_signal(&more);
    } else {
        write_entry(fd, text, len);
    }
    pthread_mutex_unlock(&mutex);
}

static void *run(void *arg)
{
    static char entry[RING_BYTES];
    (void)arg;
    pthread_mutex_lock(&mutex);
    for (;;) {
        while (ring.used == 0) {
            ring.writing = false;
            pthread_cond_broadcast(&idle);
            pthread_cond_wait(&more, &mutex);
        }
        struct head head;
        ring_copy_out(ring.at, &head, sizeof(head));
        ring_copy_out((ring.at + sizeof(head)) % RING_BYTES, entry, head.len);
        ring.at = (ring.at + sizeof(head) + head.len) % RING_BYTES;
        ring.used -= sizeof(head) + head.len;
        ring.writing = true;
        // May take for ever; nobody waits for it but plm_log_finish(), and that not for long.
        pthread_mutex_unlock(&mutex);
        write_entry(head.fd, entry, head.len);
        pthread_mutex_lock(&mutex);
    }
    return NULL;
}

// ---- lines ----

static void put_line(const char *text)
{
    char line[TIME_BYTES + PLM_TERM_LINE_BYTES];
    size_t n = begin_line(line, sizeof(line));
    const size_t room = sizeof(line) - n - 1, len = strlen(text);
    memcpy(line + n, text, len < room ? len : room);
    n += len < room ? len : room;
    line[n++] = '\n';
    put(STDERR_FILENO, line, n);
}

static void put_bar(const char *text, size_t len)
{
    put(STDERR_FILENO, text, len);
}

void plm_log(const char *fmt, ...)
{
    char text[PLM_TERM_LINE_BYTES];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    plm_term_say("plimsoll serve: %s", text);
}

void plm_log_result(const char *text, size_t len)
{
    put(STDOUT_FILENO, text, len);
}

uint64_t plm_log_dropped(void)
{
    return atomic_load(&dropped);
}

void plm_log_start(void)
{
    static const struct plm_term_sink sink = {put_line, put_bar};
    pthread_condattr_t attr;
    pthread_t thread;
    sigset_t all, before;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&more, &attr);
    pthread_cond_init(&idle, &attr);
    pthread_condattr_destroy(&attr);
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    pthread_mutex_lock(&mutex);
    ring.runs = pthread_create(&thread, NULL, run, NULL) == 0;
    if (ring.runs)
        pthread_detach(thread); // it may stand in a write when the program ends
    pthread_mutex_unlock(&mutex);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    plm_term_redirect(&sink);
}

void plm_log_finish(int64_t limit_ms)
{
    struct timespec end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += limit_ms / 1000;
    end.tv_nsec += limit_ms % 1000 * 1000000;
    if (end.tv_nsec >= 1000000000) {
        end.tv_sec++;
        end.tv_nsec -= 1000000000;
    }
    pthread_mutex_lock(&mutex);
    int r = 0;
    while (ring.runs && (ring.used > 0 || ring.writing) && r == 0)
        r = pthread_cond_timedwait(&idle, &mutex, &end);
    ring.ended = true;
    pthread_mutex_unlock(&mutex);
}
