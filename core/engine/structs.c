// SPDX-License-Identifier: Apache-2.0

#include "core/engine/structs.h"

#include <string.h>

#include "core/plimsoll.h"

// Of every struct that begins with its size: it and one field beside it.
#define STRUCT_BYTES_MIN 8u

bool plm_struct_sized(size_t bytes)
{
    return bytes >= STRUCT_BYTES_MIN && bytes <= PLIM_STRUCT_MAX;
}

int plm_struct_out(void *ret, const void *full, size_t full_bytes)
{
    uint32_t size;
    memcpy(&size, ret, sizeof(size));
    if (!plm_struct_sized(size))
        return PLIM_ERR_INVALID;
    const size_t n = size < full_bytes ? size : full_bytes;
    memcpy((char *)ret + sizeof(size), (const char *)full + sizeof(size), n - sizeof(size));
    return PLIM_OK;
}

void plm_struct_init(void *ret, size_t ret_bytes, const void *full, size_t full_bytes)
{
    const uint32_t size = (uint32_t)ret_bytes;
    if (ret == NULL || !plm_struct_sized(ret_bytes))
        return;
    const size_t n = ret_bytes < full_bytes ? ret_bytes : full_bytes;
    memset(ret, 0, ret_bytes);
    memcpy(ret, full, n);
    memcpy(ret, &size, sizeof(size));
}
