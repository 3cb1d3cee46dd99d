// SPDX-License-Identifier: Apache-2.0
// World files as devices: "sim:FILE".
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/sim/sim_internal.h"
#include "backends/sim/world.h"

// What a device from a file stands on, over all its opens. The options come first: the caller
// knows them only.
struct configured {
    struct plm_sim_opts opts;
    struct plm_sim_world around;
    struct plm_world *world;
};

static int open_file(const char *path, int *ret, struct plm_error *err)
{
    struct stat st;
    char text[64];
    // Not blocking: a FIFO of that name must not hang the start.
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return plm_fail(err, errno == ENOENT ? PLM_ERR_NOT_FOUND : PLM_ERR_IO,
                        "%s: cannot be opened: %s", path, strerror_r(errno, text, sizeof(text)));
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        close(fd);
        return plm_fail(err, PLM_ERR_IO, "%s: is not a regular file", path);
    }
    *ret = fd;
    return PLM_OK;
}

// Reads at most one byte more than a world may have, so that the parser can say so.
static int read_all(int fd, const char *path, struct plm_buf *buf, struct plm_error *err)
{
    char part[4096], text[64];
    while (buf->len <= PLM_WORLD_BYTES_MAX) {
        const ssize_t got = read(fd, part, sizeof(part));
        if (got == 0)
            return PLM_OK;
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return plm_fail(err, PLM_ERR_IO, "%s: cannot be read: %s", path,
                            strerror_r(errno, text, sizeof(text)));
        if (!plm_buf_append(buf, part, (size_t)got))
            return plm_fail(err, PLM_ERR_NOMEM_HOST, "%s: no host memory to read it", path);
    }
    return PLM_OK;
}

// As plm_world_parse(), also NOT_FOUND, IO. Messages start with the path.
static int load(struct plm_host *host, const char *path, struct plm_world **ret,
                struct plm_error *err)
{
    struct plm_error why = {0};
    struct plm_buf buf;
    int fd = -1;
    int r = open_file(path, &fd, err);
    if (r != PLM_OK)
        return r;
    plm_buf_init(&buf, host, PLM_HOST_OTHER);
    r = read_all(fd, path, &buf, err);
    close(fd);
    if (r == PLM_OK) {
        r = plm_world_parse(host, buf.len > 0 ? buf.data : "", buf.len, ret, &why);
        if (r != PLM_OK)
            plm_fail(err, r, "%s: %s", path, why.msg);
    }
    plm_buf_finish(&buf);
    return r;
}

static const struct plm_backend *find_cpu(void)
{
    for (const struct plm_backend *const *b = plm_backends; *b != NULL; b++) {
        if (strcmp((*b)->name, "cpu") == 0)
            return *b;
    }
    return NULL;
}

int plm_sim_configure(struct plm_host *host, const char *argument, const void **ret_opts,
                      struct plm_error *err)
{
    struct plm_world *world;
    int r = load(host, argument, &world, err);
    if (r != PLM_OK)
        return r;
    struct configured *c = plm_calloc(host, PLM_HOST_DEVICE, 1, sizeof(*c));
    if (c == NULL) {
        plm_world_free(world);
        return plm_fail(err, PLM_ERR_NOMEM_HOST, "%s: no host memory for its device", argument);
    }
    c->world = world;
    c->opts = world->device;
    c->opts.world = &c->around;
    if (world->computes && (c->opts.inner = find_cpu()) == NULL)
        r = plm_fail(err, PLM_ERR_UNSUPPORTED, "%s: this build has no CPU to compute with",
                     argument);
    if (r != PLM_OK) {
        plm_sim_release(host, c);
        return r;
    }
    *ret_opts = c;
    return PLM_OK;
}

void plm_sim_release(struct plm_host *host, const void *opts)
{
    struct configured *c = (struct configured *)(uintptr_t)opts;
    plm_world_free(c->world);
    plm_free(host, c);
}
