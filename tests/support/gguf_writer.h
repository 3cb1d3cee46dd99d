// SPDX-License-Identifier: Apache-2.0
// A tiny GGUF writer for tests and fuzzers. It writes good files by default and bad ones on
// request: the raw calls put anything anywhere, and the claims override what the head of the file
// says. Runs out of memory by abort: it is no part of the library.
#ifndef PLM_TESTS_GGUF_WRITER_H
#define PLM_TESTS_GGUF_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/gguf/gguf.h"

struct gguf_bytes {
    unsigned char *ptr;
    size_t len;
    size_t cap;
};

struct gguf_writer {
    char magic[4];
    uint32_t version;
    uint32_t alignment;   // used for padding; write general.alignment yourself
    uint64_t n_keys;      // what the head claims; the key and tensor calls count up, tests may
    uint64_t n_tensors;   // overwrite both before gguf_writer_finish
    uint64_t next_offset; // of the next tensor's data
    size_t cut;           // bytes to drop from the end of the finished file
    bool pad_last;        // pads the data of the last tensor as well (default)
    struct gguf_bytes keys, infos, data, file;
};

void gguf_writer_init(struct gguf_writer *w);
void gguf_writer_finish(struct gguf_writer *w); // frees everything

// Keys.
void gguf_writer_u32(struct gguf_writer *w, const char *key, uint32_t value);
void gguf_writer_f32(struct gguf_writer *w, const char *key, float value);
void gguf_writer_bool(struct gguf_writer *w, const char *key, bool value);
void gguf_writer_str(struct gguf_writer *w, const char *key, const char *value);
// An integer of the given type (PLM_GGUF_U8 to PLM_GGUF_I64).
void gguf_writer_int(struct gguf_writer *w, const char *key, enum plm_gguf_type type,
                     uint64_t value);
// n numbers of the given type, as they lie in memory of a little-endian machine.
void gguf_writer_array(struct gguf_writer *w, const char *key, enum plm_gguf_type type,
                       const void *data, uint64_t n);
void gguf_writer_strs(struct gguf_writer *w, const char *key, const char *const *strs, uint64_t n);
// Name and type of a key whose value the caller writes with the raw calls below.
void gguf_writer_key(struct gguf_writer *w, struct plm_slice key, uint32_t type);

// A tensor with its data; NULL writes a pattern of bytes. The type must be in enum plm_type.
void gguf_writer_tensor(struct gguf_writer *w, const char *name, enum plm_type type,
                        uint32_t n_dims, const uint64_t *ne, const void *data);
// Only the entry of a tensor, with any content.
void gguf_writer_info(struct gguf_writer *w, struct plm_slice name, uint32_t n_dims,
                      const uint64_t *ne, uint32_t n_written, uint32_t type, uint64_t offset);

// Raw bytes and little-endian numbers, to &w->keys, &w->infos or &w->data.
void gguf_put(struct gguf_bytes *to, const void *bytes, size_t n);
void gguf_put_uint(struct gguf_bytes *to, uint64_t value, unsigned bytes);
void gguf_put_str(struct gguf_bytes *to, struct plm_slice s); // u64 length and bytes

// Puts the file together. The bytes belong to the writer.
const unsigned char *gguf_writer_bytes(struct gguf_writer *w, size_t *ret_n);
// The same, written to path (an existing file is truncated). False on an error of the system.
bool gguf_writer_save(struct gguf_writer *w, const char *path);

// A small good model header with every value type, arrays and tensors of every type; its data
// follows. For tests that damage it.
void gguf_writer_sample(struct gguf_writer *w);

#endif
