// SPDX-License-Identifier: Apache-2.0
#include "tools/pull/fetch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/files.h"
#include "tools/pull/client.h"
#include "tools/term.h"

// Connections in a row that bring nothing: the last waits 16 s, all together half a minute.
#define TRIES_IN_VAIN_MAX 5
// Connections in all for one file, each of which brought something. A line that is cut every ten
// megabytes still brings a file of 10 GB.
#define TRIES_MAX 1000
// A server that wants to be left alone for longer is not waited for.
#define RETRY_AFTER_MAX_S 60
#define READ_BYTES        (1 << 20) // of a part, whose digest is taken again
#define NOTE_MAX_BYTES    200

// A file on its way.
struct job {
    struct plm_fetch *f;
    struct plm_digest *digest;
    int fd;
    int64_t have;              // bytes of the part, all of which are in the digest
    char note[NOTE_MAX_BYTES]; // what the part is a part of, for If-Range; "": not known
    double started_s;
    int64_t started_at; // bytes that were there then
    bool failed;        // for good; a message was printed
};

__attribute__((format(printf, 2, 3))) static bool fail(struct job *job, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    plm_term_progress_end();
    plm_term_say("plimsoll %s: %s: %s", job->f->command, job->f->name, text);
    job->failed = true;
    return false;
}

void plm_bytes_text(char out[PLM_BYTES_TEXT], int64_t bytes)
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    size_t unit = 0;
    while (value >= 1024 && unit < 4) {
        value /= 1024;
        unit++;
    }
    snprintf(out, PLM_BYTES_TEXT, value < 100 && unit > 1 ? "%.2f %s" : "%.0f %s", value,
             units[unit]);
}

static void show_progress(const struct job *job)
{
    const struct plm_fetch *f = job->f;
    const int64_t total = f->all_bytes > 0 ? f->all_bytes : f->bytes;
    plm_term_progress(NULL, &(plim_progress){"fetch", (uint64_t)(f->before_bytes + job->have),
                                             total > 0 ? (uint64_t)total : 0});
}

// ---- the part ----

static bool write_all(int fd, const char *data, size_t len)
{
    while (len > 0) {
        const ssize_t n = write(fd, data, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        data += n;
        len -= (size_t)n;
    }
    return true;
}

// Adds what a descriptor has from here on to a digest. Returns the bytes; -1 with errno.
static int64_t digest_rest(struct plm_digest *digest, int fd)
{
    char *bytes = malloc(READ_BYTES);
    int64_t total = 0;
    ssize_t n = -1;
    errno = ENOMEM;
    while (bytes != NULL && (n = read(fd, bytes, READ_BYTES)) != 0) {
        if (plm_stop_is_wanted()) {
            n = -1;
            errno = EINTR;
        }
        if (n < 0 && (errno != EINTR || plm_stop_is_wanted()))
            break;
        plm_digest_add(digest, bytes, n > 0 ? (size_t)n : 0);
        total += n > 0 ? n : 0;
    }
    const int why = errno;
    free(bytes);
    errno = why;
    return n < 0 ? -1 : total;
}

bool plm_digest_of_file(struct plm_client *client, const char *path,
                        char hex[PLM_HUB_HASH_DIGITS + 1])
{
    struct plm_digest *digest = plm_digest_create(client);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const bool ok = digest != NULL && fd >= 0 && digest_rest(digest, fd) >= 0;
    const int why = digest != NULL ? errno : ENOMEM;
    if (ok)
        plm_digest_end(digest, hex);
    if (fd >= 0)
        close(fd);
    plm_digest_destroy(digest);
    errno = why;
    return ok;
}

// Takes the digest of what is there. The descriptor ends behind it.
static bool read_part(struct job *job)
{
    plm_digest_begin(job->digest);
    const int64_t bytes = digest_rest(job->digest, job->fd);
    job->have = bytes > 0 ? bytes : 0;
    return bytes >= 0 || plm_stop_is_wanted() || fail(job, "%s: %s", job->f->part, strerror(errno));
}

// Begins with nothing.
static bool empty_part(struct job *job)
{
    job->have = 0;
    plm_digest_begin(job->digest);
    if (ftruncate(job->fd, 0) != 0 || lseek(job->fd, 0, SEEK_SET) != 0)
        return fail(job, "%s: %s", job->f->part, strerror(errno));
    return true;
}

static void read_note(struct job *job)
{
    FILE *file = job->f->note != NULL ? fopen(job->f->note, "rbe") : NULL;
    if (file == NULL)
        return;
    const size_t n = fread(job->note, 1, sizeof(job->note) - 1, file);
    job->note[n] = '\0';
    // It goes into a header as it stands.
    for (size_t i = 0; i < n; i++) {
        if (job->note[i] < ' ' || job->note[i] > '~')
            job->note[0] = '\0';
    }
    fclose(file);
}

static bool open_part(struct job *job)
{
    struct plm_fetch *f = job->f;
    struct stat st;
    job->fd = open(f->part, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (job->fd < 0 || fstat(job->fd, &st) != 0)
        return fail(job, "%s: %s", f->part, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return fail(job, "%s is no file", f->part);
    read_note(job);
    // Without hash and note nobody knows what it is a part of.
    const bool known = f->hash[0] != '\0' || job->note[0] != '\0';
    if (!known || (f->bytes >= 0 && st.st_size > f->bytes))
        return empty_part(job);
    return read_part(job);
}

// ---- one answer ----

// The folder of a path, for statvfs().
static bool part_has_room(struct job *job, int64_t bytes)
{
    char *folder = strdup(job->f->part);
    char *slash = folder != NULL ? strrchr(folder, '/') : NULL;
    if (slash != NULL)
        slash[slash == folder] = '\0';
    const bool ok = plm_fetch_has_room(job->f->command, slash != NULL ? folder : ".", bytes);
    free(folder);
    job->failed = job->failed || !ok;
    return ok;
}

// What the server says of the file against what is known, or becomes known by it.
static bool learn(struct job *job, const struct plm_head *a)
{
    struct plm_fetch *f = job->f;
    const int64_t said = a->status == 206 ? a->total : a->bytes;
    if (f->hash[0] == '\0')
        memcpy(f->hash, a->linked_hash, sizeof(f->hash));
    else if (a->linked_hash[0] != '\0' && strcmp(a->linked_hash, f->hash) != 0)
        return fail(job, "the server has another file: its SHA-256 is %s, not %s", a->linked_hash,
                    f->hash);
    if (f->bytes < 0)
        f->bytes = a->linked_bytes >= 0 ? a->linked_bytes : said;
    if (said >= 0 && f->bytes >= 0 && said != f->bytes)
        return fail(job, "the server gives %lld bytes, but the file has %lld", (long long)said,
                    (long long)f->bytes);
    return f->bytes < 0 || part_has_room(job, f->bytes - job->have);
}

static void write_note(struct job *job, const struct plm_head *a)
{
    const struct plm_fetch *f = job->f;
    snprintf(job->note, sizeof(job->note), "%s", a->validator);
    if (f->note != NULL && job->note[0] != '\0')
        plm_file_replace(f->command, f->note, job->note, strlen(job->note));
    else if (f->note != NULL)
        unlink(f->note);
}

static bool begin(void *ctx, const struct plm_head *a)
{
    struct job *job = ctx;
    const bool goes_on = a->status == 206 && job->have > 0 && a->from == job->have;
    if (a->status != 200 && !goes_on)
        return fail(job,
                    a->status == 206 ? "the server gives another part than was asked for"
                                     : "HTTP %ld is no answer to this",
                    a->status);
    // Before anything is given up for it.
    if (!learn(job, a))
        return false;
    if (!goes_on && job->have > 0) {
        plm_term_say("plimsoll %s: %s: the server does not go on where it ended: from the start",
                     job->f->command, job->f->name);
        if (!empty_part(job))
            return false;
    }
    if (!goes_on)
        write_note(job, a);
    job->started_at = goes_on ? job->started_at : 0;
    return true;
}

static bool take(void *ctx, const char *data, size_t len)
{
    struct job *job = ctx;
    const struct plm_fetch *f = job->f;
    if (f->bytes >= 0 && (int64_t)len > f->bytes - job->have)
        return fail(job, "the server gives more than the %lld bytes that the file has",
                    (long long)f->bytes);
    // An answer of 200 may still be a page about the file.
    for (size_t i = 0; i < len && job->have + (int64_t)i < 4; i++) {
        if (data[i] != "GGUF"[job->have + (int64_t)i])
            return fail(job, "what the server gives is no GGUF file");
    }
    if (!write_all(job->fd, data, len)) {
        // A piece that was written in part is as good as the rest: the next digest has it, too.
        const int why = errno;
        char kept[PLM_BYTES_TEXT];
        plm_bytes_text(kept, job->have);
        return fail(job, "%s: %s; %s are kept, and the same command goes on from there", f->part,
                    strerror(why), kept);
    }
    plm_digest_add(job->digest, data, len);
    job->have += (int64_t)len;
    show_progress(job);
    return true;
}

// ---- again and again ----

// How the answer without the file is to be understood.
enum verdict { AGAIN, FROM_START, NEVER };

static enum verdict verdict_of(const struct plm_fetch *f, const struct plm_head *a, char *why,
                               size_t cap)
{
    snprintf(why, cap, "HTTP %ld%s%s", a->status, a->reason[0] != '\0' ? ": " : "", a->reason);
    const size_t at = strlen(why);
    switch (a->status) {
    case 416: return FROM_START;
    case 408:
    case 429:
    case 500:
    case 502:
    case 503:
    case 504:
        if (a->retry_after_s <= RETRY_AFTER_MAX_S)
            return AGAIN;
        snprintf(why + at, cap - at, "; it asks to wait for %lld s", (long long)a->retry_after_s);
        return NEVER;
    case 401:
    case 403:
        snprintf(why + at, cap - at, "%s",
                 f->token != NULL ? "; the token may not have it"
                                  : "; there is no such thing, or a token is needed (HF_TOKEN)");
        return NEVER;
    default: return NEVER;
    }
}

// Waits before the next connection: not where the last one brought something.
static bool wait_before(int vain, int64_t retry_after_s)
{
    double seconds = vain > 0 ? (double)(1 << (vain - 1)) : 0;
    if (retry_after_s > 0 && (double)retry_after_s > seconds)
        seconds = (double)retry_after_s;
    return plm_stop_sleep(seconds);
}

static enum plm_fetch_result stopped(struct job *job)
{
    char kept[PLM_BYTES_TEXT];
    struct stat st;
    plm_bytes_text(kept, fstat(job->fd, &st) == 0 ? st.st_size : 0);
    plm_term_progress_end();
    plm_term_say("plimsoll %s: %s: stopped; %s are kept, and the same command goes on from there",
                 job->f->command, job->f->name, kept);
    return PLM_FETCH_STOPPED;
}

// One connection after the other, until all is there.
static enum plm_fetch_result get_all(struct job *job)
{
    struct plm_fetch *f = job->f;
    int vain = 0;
    bool from_start = false;
    for (int tries = 0; tries < TRIES_MAX; tries++) {
        if (f->bytes >= 0 && job->have == f->bytes)
            return PLM_FETCH_DONE;
        struct plm_head a;
        const int64_t before = job->have;
        const struct plm_client_request request = {
            .url = f->url,
            .token = f->token,
            .from = job->have,
            .if_range = f->note != NULL && job->note[0] != '\0' ? job->note : NULL,
            .timeout_s = f->timeout_s,
            .ctx = job,
            .begin = begin,
            .take = take};
        const enum plm_client_result r = plm_client_get(f->client, &request, &a);
        char why[320];
        snprintf(why, sizeof(why), "%s", a.reason);
        if (r == PLM_CLIENT_STOPPED || plm_stop_is_wanted())
            return stopped(job);
        if (job->failed || r == PLM_CLIENT_ENDED)
            return PLM_FETCH_FAILED;
        if (r == PLM_CLIENT_ANSWERED && a.status / 100 == 2 &&
            (f->bytes < 0 || job->have == f->bytes)) {
            f->bytes = job->have;
            return PLM_FETCH_DONE;
        }
        enum verdict verdict = r == PLM_CLIENT_FAILED ? NEVER : AGAIN;
        if (r == PLM_CLIENT_ANSWERED && a.status / 100 == 2)
            snprintf(why, sizeof(why), "the connection ended early");
        else if (r == PLM_CLIENT_ANSWERED)
            verdict = verdict_of(f, &a, why, sizeof(why));
        // Once: a server that can not say where to go on may still give the whole.
        if (verdict == FROM_START && (from_start || job->have == 0 || !empty_part(job)))
            verdict = NEVER;
        from_start = from_start || verdict == FROM_START;
        vain = job->have > before ? 0 : vain + 1;
        if (verdict == NEVER || vain > TRIES_IN_VAIN_MAX) {
            fail(job, "%s", why);
            return r == PLM_CLIENT_CUT ? PLM_FETCH_UNREACHABLE : PLM_FETCH_FAILED;
        }
        if (vain > 0)
            plm_term_say("plimsoll %s: %s: %s; trying again", f->command, f->name, why);
        if (!wait_before(vain, a.retry_after_s))
            return stopped(job);
    }
    fail(job, "cut %d times; the same command goes on from here", TRIES_MAX);
    return PLM_FETCH_FAILED;
}

// The digest against the one that is known. What is wrong can not be completed: it goes.
static bool prove(struct job *job)
{
    char hash[PLM_HUB_HASH_DIGITS + 1];
    plm_digest_end(job->digest, hash);
    if (job->f->hash[0] != '\0' && strcmp(hash, job->f->hash) != 0) {
        unlink(job->f->part);
        return fail(job, "the content is wrong: its SHA-256 is %s, not %s; what came is removed",
                    hash, job->f->hash);
    }
    if (fdatasync(job->fd) != 0)
        return fail(job, "%s: %s", job->f->part, strerror(errno));
    return true;
}

static void say_done(const struct job *job)
{
    const struct plm_fetch *f = job->f;
    char size[PLM_BYTES_TEXT], rate[PLM_BYTES_TEXT];
    const double seconds = plm_term_now_s() - job->started_s;
    const int64_t got = job->have - job->started_at;
    plm_bytes_text(size, job->have);
    plm_bytes_text(rate, seconds > 0 ? (int64_t)((double)got / seconds) : 0);
    plm_term_progress_end();
    plm_term_say("%s: %s in %.1f s (%s/s), %s", f->name, size, seconds, rate,
                 f->hash[0] != '\0' ? "SHA-256 as it should be" : "no SHA-256 known to hold it to");
}

// A part of nothing is of no use to a later call.
static void close_part(const struct job *job, bool done)
{
    struct stat st;
    if (!done && fstat(job->fd, &st) == 0 && st.st_size == 0)
        unlink(job->f->part);
    close(job->fd);
}

enum plm_fetch_result plm_fetch_file(struct plm_fetch *f)
{
    struct job job = {.f = f, .fd = -1, .started_s = plm_term_now_s()};
    enum plm_fetch_result result = PLM_FETCH_FAILED;
    job.digest = plm_digest_create(f->client);
    if (job.digest == NULL)
        fail(&job, "out of memory");
    else if (open_part(&job)) {
        job.started_at = job.have;
        result = plm_stop_is_wanted() ? stopped(&job) : get_all(&job);
    }
    if (result == PLM_FETCH_DONE && !prove(&job))
        result = PLM_FETCH_FAILED;
    if (result == PLM_FETCH_DONE) {
        say_done(&job);
        if (f->note != NULL)
            unlink(f->note);
    }
    if (job.fd >= 0)
        close_part(&job, result == PLM_FETCH_DONE);
    plm_digest_destroy(job.digest);
    return result;
}

// ---- texts ----

struct text {
    char *data;
    size_t len, cap, max;
};

static bool begin_text(void *ctx, const struct plm_head *a)
{
    struct text *text = ctx;
    text->len = 0;
    return a->bytes <= (int64_t)text->max;
}

static bool take_text(void *ctx, const char *data, size_t len)
{
    struct text *text = ctx;
    if (len > text->max - text->len)
        return false;
    if (text->len + len + 1 > text->cap) {
        const size_t cap = 2 * (text->len + len) + 1;
        char *more = realloc(text->data, cap);
        if (more == NULL)
            return false;
        text->data = more;
        text->cap = cap;
    }
    memcpy(text->data + text->len, data, len);
    text->len += len;
    return true;
}

// A text is asked for by somebody who may have the file already: two tries are enough.
#define TEXT_TRIES 2

enum plm_fetch_result plm_fetch_text(const struct plm_fetch *f, size_t max_bytes, char **ret,
                                     size_t *ret_len)
{
    struct text text = {.max = max_bytes};
    const struct plm_client_request request = {.url = f->url,
                                               .token = f->token,
                                               .timeout_s = f->timeout_s,
                                               .ctx = &text,
                                               .begin = begin_text,
                                               .take = take_text};
    enum plm_client_result r = PLM_CLIENT_FAILED;
    struct plm_head a = {.status = 0};
    char why[320] = "";
    for (int tries = 1;; tries++) {
        r = plm_client_get(f->client, &request, &a);
        enum verdict verdict = r == PLM_CLIENT_CUT ? AGAIN : NEVER;
        snprintf(why, sizeof(why), "%s", a.reason);
        if (r == PLM_CLIENT_ANSWERED && a.status == 200)
            break;
        if (r == PLM_CLIENT_ANSWERED)
            verdict = verdict_of(f, &a, why, sizeof(why));
        if (verdict != AGAIN || tries == TEXT_TRIES || !wait_before(tries, a.retry_after_s))
            break;
    }
    if (r == PLM_CLIENT_ANSWERED && a.status == 200 && text.len > 0) {
        text.data[text.len] = '\0';
        *ret = text.data;
        *ret_len = text.len;
        return PLM_FETCH_DONE;
    }
    free(text.data);
    if (r == PLM_CLIENT_STOPPED || plm_stop_is_wanted()) {
        plm_term_say("plimsoll %s: %s: stopped", f->command, f->name);
        return PLM_FETCH_STOPPED;
    }
    if (r == PLM_CLIENT_ENDED)
        snprintf(why, sizeof(why), "the answer is larger than %zu KiB, or memory is short",
                 max_bytes / 1024);
    else if (r == PLM_CLIENT_ANSWERED && a.status == 200)
        snprintf(why, sizeof(why), "the answer is empty");
    plm_term_say("plimsoll %s: %s: %s", f->command, f->name, why);
    const bool nobody = r == PLM_CLIENT_CUT || (r == PLM_CLIENT_ANSWERED && a.status >= 500);
    return nobody ? PLM_FETCH_UNREACHABLE : PLM_FETCH_FAILED;
}
