// SPDX-License-Identifier: Apache-2.0
#include "fatbin.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "tests/fakegpu/rules.h"

struct fatbin {
    uint32_t magic;
    uint16_t version, header_bytes;
    uint64_t bytes;
};

struct entry {
    uint16_t kind; // 1: PTX, 2: ELF
    uint16_t version;
    uint32_t header_bytes;
    uint64_t bytes;
    uint32_t unused[3];
    uint32_t arch; // 90
    uint32_t more[2];
    uint64_t flags;
};

#define FATBIN_MAGIC 0xba55ed50u
#define KIND_PTX     1u
#define KIND_ELF     2u
#define ONLY_THIS    0x100000u // an architecture with its own features runs on no other
#define COMPRESSED   0xa000u

// PTX runs on its architecture and on later ones; machine code on its own and on later ones of the
// same major version.
static bool runs(const struct entry *e, uint32_t arch)
{
    if (e->kind == KIND_PTX)
        return (e->flags & ONLY_THIS) != 0 ? e->arch == arch : e->arch <= arch;
    return e->kind == KIND_ELF && e->arch / 10 == arch / 10 &&
           ((e->flags & ONLY_THIS) != 0 ? e->arch == arch : e->arch <= arch);
}

int fatbin_look(const void *data, const char *arch, const char **symbols, size_t *bytes)
{
    struct fatbin fat;
    unsigned major = 0, minor = 0;
    memcpy(&fat, data, sizeof(fat));
    if (fat.magic != FATBIN_MAGIC || fat.header_bytes < sizeof(fat))
        return FAKE_INVALID_IMAGE;
    if (sscanf(arch, "%u.%u", &major, &minor) != 2)
        return FAKE_UNKNOWN;
    const char *at = (const char *)data + fat.header_bytes;
    bool found = false;
    *symbols = at;
    *bytes = fat.bytes;
    for (uint64_t used = 0; used + sizeof(struct entry) <= fat.bytes;) {
        struct entry e;
        memcpy(&e, at + used, sizeof(e));
        if ((e.kind != KIND_PTX && e.kind != KIND_ELF) || e.header_bytes < sizeof(e) ||
            e.bytes > fat.bytes - used - e.header_bytes)
            return FAKE_INVALID_IMAGE;
        if (e.kind == KIND_ELF && (e.flags & COMPRESSED) == 0 &&
            memcmp(at + used + e.header_bytes, "\177ELF", 4) != 0)
            return FAKE_INVALID_IMAGE;
        found = found || runs(&e, 10 * major + minor);
        used += e.header_bytes + e.bytes;
    }
    return found ? FAKE_OK : FAKE_NO_BINARY;
}
