// SPDX-License-Identifier: Apache-2.0
// Any bytes as a world file: it is refused with a reason, or what is written of it parses to the
// same text again.
#include <stdlib.h>
#include <string.h>

#include "backends/sim/world.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct plm_host *host = plm_host_create(64 << 20);
    struct plm_world *first = NULL, *second = NULL;
    struct plm_error err = {0};
    struct plm_buf a, b;
    if (host == NULL)
        abort();
    plm_buf_init(&a, host, PLM_HOST_OTHER);
    plm_buf_init(&b, host, PLM_HOST_OTHER);
    if (plm_world_parse(host, (const char *)bytes, n, &first, &err) != PLM_OK) {
        if (err.msg[0] == '\0')
            abort();
    } else {
        plm_world_write(first, &a);
        // Spelled out it may be longer than a world may be.
        if (a.len <= PLM_WORLD_BYTES_MAX) {
            if (plm_world_parse(host, a.data, a.len, &second, &err) != PLM_OK)
                abort();
            plm_world_write(second, &b);
            if (a.len != b.len || memcmp(a.data, b.data, a.len) != 0)
                abort();
        }
    }
    plm_world_free(first);
    plm_world_free(second);
    plm_buf_finish(&a);
    plm_buf_finish(&b);
    if (plm_host_destroy(host) != 0)
        abort();
    return 0;
}
