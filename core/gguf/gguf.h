// SPDX-License-Identifier: Apache-2.0
// Reader of GGUF v2 and v3 files, single or split. It trusts nothing: every length is checked
// against the bytes that are left before anything is allocated, and every error names the key or
// tensor and the offset. Format: the GGUF specification of the ggml project.
#ifndef PLM_GGUF_H
#define PLM_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/alloc.h"
#include "core/base/buf.h"
#include "core/base/status.h"
#include "kernels/abi.h" // enum plm_type: the tensor types

// Value types of a key, with the numbers of the file format.
enum plm_gguf_type {
    PLM_GGUF_U8,
    PLM_GGUF_I8,
    PLM_GGUF_U16,
    PLM_GGUF_I16,
    PLM_GGUF_U32,
    PLM_GGUF_I32,
    PLM_GGUF_F32,
    PLM_GGUF_BOOL,
    PLM_GGUF_STRING,
    PLM_GGUF_ARRAY,
    PLM_GGUF_U64,
    PLM_GGUF_I64,
    PLM_GGUF_F64,
};

// An array value. Numbers lie in data as in the file (little-endian, unaligned); strings are
// reached through plm_gguf_array_str.
struct plm_gguf_array {
    enum plm_gguf_type type;
    uint64_t count;
    const unsigned char *data;    // numbers; NULL for strings
    const struct plm_slice *strs; // strings; NULL for numbers and for an empty array
};

struct plm_gguf_tensor {
    struct plm_slice name;
    enum plm_type type;
    uint32_t n_dims; // 1 to 4
    uint64_t ne[4];  // ne[0] is the contiguous row; unused dimensions are 1
    uint64_t bytes;  // in the file
    uint32_t file;   // index of the split
    uint64_t offset; // from the start of that file
};

struct plm_gguf;

// Opens path; a file with split.count > 1 must be the first split and the others are opened beside
// it. Reads the headers only, through a small buffer: host memory stays within a small multiple of
// the header's real bytes, whatever its counts promise. The object is immutable afterwards and may
// be read from any thread. Messages start with the path. PLM_ERR_NOT_FOUND (no such file), _IO,
// _FORMAT, _UNSUPPORTED (version, big-endian, array of arrays, tensor type: the message names it),
// _LIMIT (counts far beyond real files), _NOMEM_HOST.
int plm_gguf_open(struct plm_host *host, const char *path, struct plm_gguf **ret,
                  struct plm_error *err);
// The same, but the data of tensors may be missing: for plans from a header and for devices that
// keep no bytes. plm_gguf_read of what is not there is PLM_ERR_IO.
int plm_gguf_open_header(struct plm_host *host, const char *path, struct plm_gguf **ret,
                         struct plm_error *err);
// Puts the file's path before the message of a failure that is about what the file says. Returns
// status.
int plm_gguf_about(const struct plm_gguf *gguf, int status, struct plm_error *err);
// PLM_OK where every tensor's data lies within its file, as after plm_gguf_open; else
// PLM_ERR_FORMAT: the file is truncated.
int plm_gguf_check_data(const struct plm_gguf *gguf, struct plm_error *err);
// As plm_gguf_open over bytes in memory, which must stay valid (tests, fuzzing). With header_only,
// tensor data may be missing (planning from a header; vocabularies). A first split is
// PLM_ERR_UNSUPPORTED unless header_only, which then shows this split alone.
int plm_gguf_open_memory(struct plm_host *host, const void *bytes, size_t n, bool header_only,
                         struct plm_gguf **ret, struct plm_error *err);
void plm_gguf_close(struct plm_gguf *gguf); // accepts NULL

uint32_t plm_gguf_version(const struct plm_gguf *gguf);
uint64_t plm_gguf_file_bytes(const struct plm_gguf *gguf); // all splits together
// A hash of every byte that stands before tensor data: keys, names, shapes, offsets. PLM_ERR_IO.
int plm_gguf_fingerprint(const struct plm_gguf *gguf, uint64_t *ret, struct plm_error *err);

// Typed getters. A missing key is PLM_ERR_NOT_FOUND, a value of another kind or out of range
// PLM_ERR_FORMAT; both leave *ret alone and fill err (may be NULL). Integers of any width and sign
// are accepted where the value fits; f32 accepts f64 and integers are not floats.
int plm_gguf_u32(const struct plm_gguf *gguf, const char *key, uint32_t *ret,
                 struct plm_error *err);
int plm_gguf_u64(const struct plm_gguf *gguf, const char *key, uint64_t *ret,
                 struct plm_error *err);
int plm_gguf_f32(const struct plm_gguf *gguf, const char *key, float *ret, struct plm_error *err);
int plm_gguf_bool(const struct plm_gguf *gguf, const char *key, bool *ret, struct plm_error *err);
int plm_gguf_str(const struct plm_gguf *gguf, const char *key, struct plm_slice *ret,
                 struct plm_error *err);
int plm_gguf_array(const struct plm_gguf *gguf, const char *key, struct plm_gguf_array *ret,
                   struct plm_error *err);
// Element i of a number array as the given kind; the caller keeps i < count. False where the
// element type does not convert.
bool plm_gguf_array_i64(const struct plm_gguf_array *array, uint64_t i, int64_t *ret);
bool plm_gguf_array_f32(const struct plm_gguf_array *array, uint64_t i, float *ret);

// Walks all keys in file order: i < plm_gguf_n_keys. Scalars are printed by plm_gguf_key_text.
uint64_t plm_gguf_n_keys(const struct plm_gguf *gguf);
struct plm_slice plm_gguf_key_name(const struct plm_gguf *gguf, uint64_t i);
enum plm_gguf_type plm_gguf_key_type(const struct plm_gguf *gguf, uint64_t i);
// Appends a readable, bounded form of value i ("llama", 0.25, [string x 49152]).
void plm_gguf_key_text(const struct plm_gguf *gguf, uint64_t i, struct plm_buf *out);

uint64_t plm_gguf_n_tensors(const struct plm_gguf *gguf);
const struct plm_gguf_tensor *plm_gguf_tensor_at(const struct plm_gguf *gguf, uint64_t i);
const struct plm_gguf_tensor *plm_gguf_tensor_find(const struct plm_gguf *gguf, const char *name);

// Reads bytes [from, from + n) of a tensor's data. Thread-safe (pread). PLM_ERR_IO when the file
// was truncated, written or replaced since it was opened (size, modification time or inode differ);
// it is checked after the read, and dst holds nothing of use then. PLM_ERR_INVALID beyond the
// tensor's bytes.
int plm_gguf_read(const struct plm_gguf *gguf, const struct plm_gguf_tensor *tensor, uint64_t from,
                  void *dst, uint64_t n, struct plm_error *err);

#endif
