// SPDX-License-Identifier: Apache-2.0
// Conformance: a case is one dispatch (op, arguments, buffers) that can run on the reference and on
// a target and is then compared. Buffers stand between sentinels; outputs start poisoned.
#ifndef PLM_TESTS_CONF_H
#define PLM_TESTS_CONF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "core/backend.h"

#define CONF_BUFFERS     14
#define CONF_CONTEXT_MAX 800 // tokens of a sequence: three splits of attention and a part

// What a buffer holds, for the comparison with a target of another numerics class.
enum conf_kind {
    CONF_FLOATS,
    CONF_HALVES, // KV in half precision
    CONF_KV_Q8,  // KV in 8 bits: K of kv_heads heads, then V, again and again
    CONF_BITS,   // any word: a NaN's pattern counts too
    CONF_Q8,     // rows of PLM_ACT_Q8
    CONF_ARGMAX, // struct plm_argmax_record
};

struct conf_buf {
    uint8_t *block; // guard, data, guard
    uint8_t *data;
    uint8_t *initial; // contents before a run
    uint64_t bytes;
    uint64_t device; // address on the target while a case runs there
    uint32_t field;  // offset of its address in the arguments; UINT32_MAX: none
    int reloc;       // >= 0: 64-bit words are offsets into that buffer, made addresses for a run
    uint32_t relocs; // so many of them, of which zeros stay; 0: all, zeros too
    bool out;        // compared afterwards
    enum conf_kind kind;
    uint32_t n; // CONF_Q8: elements of a row; CONF_KV_Q8: of a head
    uint32_t kv_heads;
    // A weight: initial holds the file's bytes, data the packed image.
    bool weight;
};

struct conf_case {
    enum plm_op op;
    _Alignas(16) uint8_t args[128];
    size_t args_bytes;
    struct conf_buf buf[CONF_BUFFERS];
    int n_bufs;
    char label[160];
};

// Deterministic draws.
struct conf_rng {
    uint64_t state;
};
uint32_t conf_u32(struct conf_rng *rng);
uint32_t conf_below(struct conf_rng *rng, uint32_t n);               // 0 .. n-1
uint32_t conf_range(struct conf_rng *rng, uint32_t lo, uint32_t hi); // lo .. hi
float conf_normal(struct conf_rng *rng);

// What runs a case. run leaves the outputs in buf[].data. close returns the number of failures that
// show only then.
struct conf_target {
    const char *name;
    int (*run)(struct conf_target *t, struct conf_case *c, struct conf_rng *rng);
    int (*close)(struct conf_target *t); // or NULL
    void *impl;
    bool bit_equal;     // of the reference's numerics class
    bool own_addresses; // buffers lie elsewhere than for the reference
    bool half_math;     // products of plain weights are summed in half precision
    uint64_t types;     // bit t: weights of type t are drawn
    uint64_t kv_types;  // bit t: K and V of type t are drawn; all targets have those of floats
};

// Targets. conf_target_open: "reference", "portable", "avx2", "avx512", "avx512-vnni" run kernels
// directly, "backend:NAME" and "backend:NAME:OPTIONS" go through the backend's list, "simt:WIDTH"
// and "simt:WIDTH:SEED" run the kernels of CUDA and HIP under the emulator. 0, 77 (not on this
// machine) or 1. Closing returns the number of failures that show only then.
int conf_target_open(const char *name, struct conf_target *ret);
// The types with kernels in one of these (PLM_BACKENDS_x), as bits.
uint64_t conf_types(uint8_t backends);
int conf_target_close(struct conf_target *t);
int conf_device_open(const char *name, uint32_t threads, struct conf_target *ret);
int conf_simt_open(const char *options, struct conf_target *ret);
// Loads a library with kernels that take the place of those of the same names. The bits of the ops
// that they run; 0: it has none, or cannot be loaded.
uint64_t conf_simt_load(const char *file);

// Iterations of all loops of one invocation of the op's shaders, at most, and what llvmpipe allows.
#define CONF_LOOPS_MAX 65535u
uint64_t conf_loops(enum plm_op op, const void *args);

// Building a case. The returned data is filled by the caller.
void conf_begin(struct conf_case *c, enum plm_op op, size_t args_bytes);
void *conf_input(struct conf_case *c, size_t field, uint64_t bytes);
void *conf_output(struct conf_case *c, size_t field, uint64_t bytes); // poisoned
void *conf_inout(struct conf_case *c, size_t field, uint64_t bytes);
void *conf_output_q8(struct conf_case *c, size_t field, uint32_t rows, uint32_t n);
// The data of a field, or NULL.
struct conf_buf *conf_at(struct conf_case *c, size_t field);
// 64-bit offsets into the buffer with index `into`.
uint64_t *conf_addresses(struct conf_case *c, size_t field, uint64_t count, int into);
// Adds the address of the buffer that they lead into to a buffer's offsets.
void conf_relocate(struct conf_buf *b, uint64_t address);
// Random weight of a type; returns the file's bytes.
const uint8_t *conf_weight(struct conf_case *c, size_t field, enum plm_type type, uint32_t n_in,
                           uint32_t n_out, struct conf_rng *rng);
void conf_ready(struct conf_case *c); // after the inputs are filled
void conf_reset(struct conf_case *c); // puts the buffers back to their state before a run
// Arguments with the addresses of the buffers in this process, which are put into the buffers of
// addresses, too.
void conf_bind(struct conf_case *c, void *ret_args);
// Builds with the address sanitizer only: whether to touch the guards around buffers is an error.
void conf_forbid_guards(const struct conf_case *c, bool forbid);
void conf_end(struct conf_case *c);
uint32_t conf_units(enum plm_op op, const void *args);
double conf_tolerance(enum plm_op op);
const char *conf_op_name(enum plm_op op);

// Whether an output of a run is the reference's, within `limit` of the largest magnitude. Below 0:
// of the same numerics class, so that records and halves must be equal bit by bit. Prints the first
// differences.
bool conf_same(const struct conf_case *c, const struct conf_buf *b, const uint8_t *want,
               const uint8_t *got, double limit, const char *who);
// Runs on the reference and on the target and compares; prints the first differences.
bool conf_check(struct conf_target *t, struct conf_case *c, struct conf_rng *rng);

// Random cases of every op. The case must be ended by the caller.
void conf_make(struct conf_case *c, enum plm_op op, struct conf_rng *rng);
// Reference against double precision; number of failures.
int conf_doubles(struct conf_rng *rng, int rounds);
// Rows of matmul or attention alone and together; number of failures.
int conf_rows(struct conf_target *t, enum plm_op op, struct conf_rng *rng);
// An optional op against the chain it stands for: qkv, glu or attention_split. Number of failures.
int conf_fused(struct conf_target *t, enum plm_op op, struct conf_rng *rng);
// Variants that the target's backend offers for a product give the same bits; number of failures.
int conf_variants(struct conf_target *t, struct conf_rng *rng);
// fill, then verify, on the target: what they write depends on addresses. Number of failures.
int conf_fill(struct conf_target *t, struct conf_rng *rng);
// Golden blocks through pack and get_rows; number of failures.
int conf_quants(struct conf_target *t, const char *folder);
// Random raw blocks of n values of a type.
uint64_t conf_random_blocks(enum plm_type type, uint64_t values, uint8_t *out,
                            struct conf_rng *rng);
// Bytes in the file of n values, 0: not a weight type.
uint64_t conf_file_bytes(enum plm_type type, uint64_t values);

#endif
