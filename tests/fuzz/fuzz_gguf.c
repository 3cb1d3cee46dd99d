// SPDX-License-Identifier: Apache-2.0
// Any bytes as a GGUF file: opening must not crash, leak or take much more memory than the input
// has bytes, and what opens must hang together.
#include <stdlib.h>

#include "tests/fuzz/fuzz.h"
#include "tests/support/gguf_walk.h"

static void open_once(const uint8_t *bytes, size_t n, bool header_only)
{
    struct plm_host *host = plm_host_create(0);
    struct plm_gguf *gguf = NULL;
    struct plm_error err = {0};
    struct plm_host_stats stats;
    int status = plm_gguf_open_memory(host, bytes, n, header_only, &gguf, &err);
    plm_host_read(host, &stats);
    if (stats.peak_bytes > GGUF_MAX_PEAK_BYTES(n))
        abort();
    if ((status == PLM_OK) != (gguf != NULL) || err.status != status)
        abort();
    if (status == PLM_OK && !gguf_walk(gguf, host))
        abort();
    plm_gguf_close(gguf);
    if (plm_host_destroy(host) != 0)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    open_once(bytes, n, false);
    open_once(bytes, n, true);
    return 0;
}
