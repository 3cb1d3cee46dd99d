// SPDX-License-Identifier: Apache-2.0
#ifndef PLM_TESTS_GGUF_WALK_H
#define PLM_TESTS_GGUF_WALK_H

#include "core/gguf/gguf.h"

// Calls every getter on every key and reads both ends of every tensor, so that a sanitizer sees all
// bytes that an opened file hands out. Returns false where the object contradicts itself.
bool gguf_walk(const struct plm_gguf *gguf, struct plm_host *host);

// Upper bound of the host memory that a file of n bytes may take: the read buffer, and per byte
// what the densest header needs (a key of 15 bytes becomes a struct of 64 in an array that
// doubles).
#define GGUF_MAX_PEAK_BYTES(n) (8192 + 65536 + 24 * (int64_t)(n))

#endif
