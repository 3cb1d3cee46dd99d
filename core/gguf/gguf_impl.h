// SPDX-License-Identifier: Apache-2.0
// What the parts of the GGUF reader share, from the ground up: gguf_pool.c keeps names and values,
// gguf_file.c gets bytes, gguf_keys.c gives values out, gguf_parse.c turns one file's header into
// keys and tensors, gguf.c joins splits. Each calls those before it alone.
#ifndef PLM_GGUF_IMPL_H
#define PLM_GGUF_IMPL_H

#include "core/gguf/gguf.h"
#include "core/gguf/name_index.h"

_Static_assert(sizeof(size_t) == 8, "sizes of files and tensors are kept in size_t");

// Caps on what a header may hold. Real files have below 100 keys, 2,000 tensors and 20 MiB.
#define PLM_GGUF_MAX_KEYS         65536ull
#define PLM_GGUF_MAX_TENSORS      1048576ull // all splits together
#define PLM_GGUF_MAX_SPLITS       1024ull    // each holds a file descriptor
#define PLM_GGUF_MAX_HEADER_BYTES (256ull << 20)
#define PLM_GGUF_MAX_KEY_LEN      65535ull // of the specification
#define PLM_GGUF_MAX_NAME_LEN     63ull    // tensors; ggml keeps 64 bytes with the NUL

#define PLM_GGUF_QUOTE_BYTES 72 // of a name in a message, with dots where it was cut, and the NUL

// Memory that is freed as a whole: names and values of one header.
struct plm_gguf_chunk;
struct plm_gguf_pool {
    struct plm_gguf_chunk *head;
};

struct plm_gguf_key {
    struct plm_slice name; // first: plm_name_index
    enum plm_gguf_type type;
    uint64_t offset; // of the value in the file, for messages
    union {
        uint64_t u64; // U8 to U64
        int64_t i64;  // I8 to I64
        double f64;   // F32, F64
        bool flag;
        struct plm_slice str;
        struct plm_gguf_array array; // strs is an allocation of its own
    } as;
};

struct plm_gguf_keys {
    struct plm_gguf_key *items;
    uint64_t n;
    uint64_t cap;
    struct plm_name_index index;
    struct plm_gguf_pool pool;
};

// One opened file, or bytes in memory.
struct plm_gguf_file {
    char *path;                 // NULL: memory
    int fd;                     // -1: memory
    const unsigned char *bytes; // NULL: a file
    uint64_t size;
    uint64_t dev, ino; // which file, and its state when it was opened
    int64_t mtime_s, mtime_ns;
};

struct plm_gguf {
    struct plm_host *host;
    uint32_t version;
    struct plm_gguf_keys keys; // of the first split
    struct plm_gguf_tensor *tensors;
    uint64_t n_tensors;
    uint64_t cap_tensors;
    struct plm_name_index tensor_index;
    struct plm_gguf_pool pool; // tensor names
    struct plm_gguf_file *files;
    uint32_t n_files;
};

// n bytes (at least one is reserved), unaligned and not zeroed; NULL when the host budget is used
// up.
void *plm_gguf_pool_alloc(struct plm_gguf_pool *pool, struct plm_host *host, size_t n);
void plm_gguf_pool_finish(struct plm_gguf_pool *pool, struct plm_host *host);

// Opens a regular file and notes its identity. PLM_ERR_NOT_FOUND, _IO, _NOMEM_HOST.
int plm_gguf_file_open(struct plm_gguf_file *file, struct plm_host *host, const char *path,
                       struct plm_error *err);
void plm_gguf_file_close(struct plm_gguf_file *file, struct plm_host *host);
// Reads n bytes at from; the caller keeps from + n <= size. PLM_ERR_IO, also when the file ends
// early.
int plm_gguf_file_read(const struct plm_gguf_file *file, uint64_t from, void *dst, uint64_t n,
                       struct plm_error *err);
// PLM_ERR_IO when the file was truncated, written or replaced since it was opened.
int plm_gguf_file_unchanged(const struct plm_gguf_file *file, struct plm_error *err);

// Reads the header of gguf->files[file]: keys go to keys, tensors are appended to gguf.
int plm_gguf_parse(struct plm_gguf *gguf, uint32_t file, struct plm_gguf_keys *keys,
                   struct plm_error *err);

void plm_gguf_keys_finish(struct plm_gguf_keys *keys, struct plm_host *host);
const struct plm_gguf_key *plm_gguf_keys_find(const struct plm_gguf_keys *keys, const char *name);
int plm_gguf_keys_u64(const struct plm_gguf_keys *keys, const char *name, uint64_t *ret,
                      struct plm_error *err);

// Bytes of one element in the file; 0 for strings, arrays and unknown types.
uint32_t plm_gguf_type_bytes(uint32_t type);
const char *plm_gguf_type_name(uint32_t type); // "u8"; NULL for unknown types
// Number of the given type from its little-endian bytes: unsigned and bool as *ret_u, signed as the
// same bits sign-extended, floats as *ret_f.
void plm_gguf_decode(enum plm_gguf_type type, const unsigned char *bytes, uint64_t *ret_u,
                     double *ret_f);
// A printable form of a name, cut where it is long. Returns out.
const char *plm_gguf_quote(struct plm_slice name, char out[PLM_GGUF_QUOTE_BYTES]);

#endif
