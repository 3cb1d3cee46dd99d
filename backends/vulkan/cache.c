// SPDX-License-Identifier: Apache-2.0
// The pipeline cache's file: a header of ours, then what the driver gave. Drivers have crashed on
// damaged caches, so nothing reaches them whose checksum or device is not right.
#include "backends/vulkan/cache.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "backends/vulkan/device.h"
#include "backends/vulkan/instance.h"

#define MAGIC   "PLMVKPC"
#define VERSION 1
// Some hundred pipelines have a few MB.
#define BYTES_MAX (UINT64_C(256) << 20)

// In this machine's byte order: a file that comes from another one does not fit its driver either.
struct header {
    char magic[8];
    uint32_t version;
    uint32_t vendor_id;
    uint32_t device_id;
    uint32_t driver_version;
    uint8_t cache_uuid[VK_UUID_SIZE];
    uint64_t bytes; // that follow
    uint64_t hash;  // XXH3 of them
};

static struct header header_of(const struct plm_vk_physical *physical, const void *data,
                               uint64_t bytes)
{
    struct header h = {.magic = MAGIC,
                       .version = VERSION,
                       .vendor_id = physical->vendor_id,
                       .device_id = physical->device_id,
                       .driver_version = physical->driver_version,
                       .bytes = bytes,
                       .hash = XXH3_64bits(data, bytes)};
    memcpy(h.cache_uuid, physical->cache_uuid, sizeof(h.cache_uuid));
    return h;
}

// ---- reading ----

static bool read_all(int fd, void *into, uint64_t bytes)
{
    char *at = into;
    while (bytes > 0) {
        ssize_t n = read(fd, at, bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        at += n;
        bytes -= (uint64_t)n;
    }
    return true;
}

// What of an open file can not be used, or NULL and its data, which the caller frees.
static const char *load(const struct plm_backend_device *dev, int fd, void **ret, struct header *h)
{
    struct stat st;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
        return "it is no file";
    if (!read_all(fd, h, sizeof(*h)) || memcmp(h->magic, MAGIC, sizeof(h->magic)) != 0)
        return "it is no pipeline cache";
    if (h->bytes == 0 || h->bytes > BYTES_MAX || (uint64_t)st.st_size != sizeof(*h) + h->bytes)
        return "its size is wrong";
    *ret = plm_malloc(dev->host, PLM_HOST_DEVICE, h->bytes);
    if (*ret == NULL)
        return "there is no host memory for it";
    if (!read_all(fd, *ret, h->bytes))
        return "it can not be read";
    const struct header want = header_of(&dev->physical, *ret, h->bytes);
    if (want.hash != h->hash)
        return "it is damaged";
    if (memcmp(&want, h, sizeof(want)) != 0)
        return "it is of another device, driver or version";
    return NULL;
}

int plm_vk_cache_open(struct plm_backend_device *dev, VkPipelineCache *ret, struct plm_error *err)
{
    const char *path = dev->opts.cache_path;
    struct header h = {.bytes = 0};
    void *data = NULL;
    const int fd = path[0] != '\0' ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
    if (fd >= 0) {
        const char *wrong = load(dev, fd, &data, &h);
        close(fd);
        if (wrong != NULL) {
            plm_logf(dev->log, PLM_LOG_WARN, "the pipeline cache %s is not used: %s", path, wrong);
            h.bytes = 0;
        }
    }
    const VkPipelineCacheCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO,
        .initialDataSize = h.bytes,
        .pInitialData = data,
    };
    int r = plm_vk_status(dev, dev->vk->CreatePipelineCache(dev->handle, &info, NULL, ret));
    plm_free(dev->host, data);
    return r == PLM_OK ? r
                       : plm_fail(err, r, "the driver could not make a pipeline cache: %s",
                                  plm_strstatus(r));
}

// ---- writing ----

static bool write_all(int fd, const void *from, uint64_t bytes)
{
    const char *at = from;
    while (bytes > 0) {
        ssize_t n = write(fd, at, bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        at += n;
        bytes -= (uint64_t)n;
    }
    return true;
}

// Whether the new file may take the place of what is there: /dev/null and the like stay.
static bool may_replace(const char *path)
{
    struct stat st;
    return stat(path, &st) != 0 ? errno == ENOENT : S_ISREG(st.st_mode);
}

// Readers see the old file or the new one.
static bool replace(const char *path, const struct header *h, const void *data)
{
    char temporary[sizeof(((struct plm_vk_opts *)0)->cache_path) + 8];
    snprintf(temporary, sizeof(temporary), "%s.XXXXXX", path);
    const int fd = mkstemp(temporary);
    if (fd < 0)
        return false;
    bool ok = write_all(fd, h, sizeof(*h)) && write_all(fd, data, h->bytes);
    ok = close(fd) == 0 && ok;
    ok = ok && rename(temporary, path) == 0;
    if (!ok)
        unlink(temporary);
    return ok;
}

void plm_vk_cache_save(struct plm_backend_device *dev, VkPipelineCache cache)
{
    const char *path = dev->opts.cache_path;
    size_t bytes = 0;
    if (path[0] == '\0' ||
        dev->vk->GetPipelineCacheData(dev->handle, cache, &bytes, NULL) != VK_SUCCESS ||
        bytes == 0 || bytes > BYTES_MAX)
        return;
    void *data = plm_malloc(dev->host, PLM_HOST_DEVICE, bytes);
    bool ok = data != NULL &&
              dev->vk->GetPipelineCacheData(dev->handle, cache, &bytes, data) == VK_SUCCESS;
    if (ok) {
        const struct header h = header_of(&dev->physical, data, bytes);
        ok = may_replace(path) && replace(path, &h, data);
    }
    if (!ok)
        plm_logf(dev->log, PLM_LOG_WARN, "the pipeline cache %s could not be written", path);
    plm_free(dev->host, data);
}
