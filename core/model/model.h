// SPDX-License-Identifier: Apache-2.0
// A model: hyper-parameters and tensors of a file, checked; its weights on a device; and its
// forward, which appends the launches of one step to the device's open list.
#ifndef PLM_MODEL_MODEL_H
#define PLM_MODEL_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/alloc.h"
#include "core/base/status.h"
#include "core/device.h"
#include "core/gguf/gguf.h"
#include "core/kv/group.h"
#include "core/mem/arena.h"
#include "core/plan/cost.h"

struct plm_model;

// What the file's author says of sampling (general.sampling.*); NaN, -1: nothing.
struct plm_model_sampling {
    float temperature, top_p, min_p, repeat_penalty;
    int32_t top_k;
};

// What the rest of the engine may know about a model.
struct plm_model_facts {
    char arch[32];
    char name[128];
    uint32_t n_vocab;
    uint32_t n_embd;
    uint32_t n_layer;
    uint32_t n_head;
    uint32_t n_ff;
    uint32_t n_ctx_train;
    uint32_t short_context; // longer contexts take other factors of rope; 0: there is one set
    uint64_t n_params;
    uint64_t file_bytes;
    enum plm_type main_type; // of most weight bytes
    uint32_t n_groups;
    struct plm_kv_group groups[PLM_KV_GROUPS_MAX];
    struct plm_model_sampling sampling;
};

struct plm_model_opts {
    enum plm_type kv_type;  // of K and V in the cache: F16 or Q8_0; tests: F32
    bool float_activations; // tests: no 8-bit activations
};

// Reads and checks hyper-parameters and the list of tensors; touches no device and no tensor data.
// The gguf must outlive the model. PLM_ERR_UNSUPPORTED names architecture, key or tensor type.
int plm_model_create(struct plm_host *host, const struct plm_gguf *gguf,
                     const struct plm_model_opts *opts, struct plm_model **ret,
                     struct plm_error *err);
void plm_model_destroy(struct plm_model *model);
const struct plm_model_facts *plm_model_facts(const struct plm_model *model);
// Fits forwards and their workspace to a device: which optional ops they take, and the memory for
// them. Once, before anything is planned from the cost table; without it they take none.
void plm_model_specialize(struct plm_model *model, const struct plm_caps *caps);
// The longest context that will be served: rope may have one set of factors for short contexts and
// one for long ones (facts.short_context). Before it is called, the set is that of short contexts.
void plm_model_set_context(struct plm_model *model, uint32_t context);
// Whether a forward also finds the best token of each row of logits.
bool plm_model_device_argmax(const struct plm_model *model);
// Whether it may draw one instead, as plm_forward.sampling says: the record's index is then that
// token, and the rest of it as before.
bool plm_model_samples(const struct plm_model *model);
// The kernels that its forwards and the engine's own launches run.
void plm_model_needs(const struct plm_model *model, struct plm_kernel_needs *ret);
// The workspace of a step, as a table of numbers for cost().
const struct plm_cost_table *plm_model_cost_table(const struct plm_model *model);
// Dispatches of the longest step, for plm_device_opts.max_dispatches.
uint32_t plm_model_max_dispatches(const struct plm_model *model);

// Weights by what they are for.
enum plm_weight_class {
    PLM_WEIGHT_TOKEN_EMBD, // and the head, where the file has no other
    PLM_WEIGHT_ATTENTION,
    PLM_WEIGHT_FEED_FORWARD,
    PLM_WEIGHT_HEAD,
    PLM_WEIGHT_VECTORS, // norms, biases, and what is made at load
    PLM_WEIGHT_CLASSES,
};
const char *plm_weight_class_name(enum plm_weight_class weight_class); // "token_embd"

struct plm_weight_sizes {
    uint64_t by_class[PLM_WEIGHT_CLASSES]; // re-laid, alignment included
    uint64_t bytes;                        // of all classes
    uint64_t held_bytes;                   // of the slabs that hold them, in granules
    uint32_t slabs;
};

// Layout of a weight as a device has it, or will have it: plm_device_weight_layout.
typedef int plm_layout_fn(const void *ctx, enum plm_type type, uint32_t n_in, uint32_t n_out,
                          struct plm_weight_layout *ret);

// What the re-laid weights take on a device of these caps; pure. UNSUPPORTED names a type that the
// layout does not know, TOO_LARGE a tensor beyond the largest slab.
int plm_model_weight_sizes(const struct plm_model *model, const struct plm_caps *caps,
                           plm_layout_fn *layout, const void *layout_ctx,
                           struct plm_weight_sizes *ret, struct plm_error *err);
// The same on an open device.
int plm_model_weight_bytes(const struct plm_model *model, const struct plm_device *device,
                           struct plm_weight_sizes *ret, struct plm_error *err);
// Takes slabs of the arena, which holds none yet, and streams the weights into them, tensor by
// tensor. progress (may be NULL) gets bytes done and
// in all; it may return false to stop (PLM_ERR_CANCELLED). On failure the arena may hold tensors;
// the caller frees the arena.
struct plm_load_progress {
    bool (*report)(void *ctx, uint64_t done, uint64_t total);
    void *ctx;
};
int plm_model_load(struct plm_model *model, struct plm_device *device, struct plm_arena *weights,
                   const struct plm_load_progress *progress, struct plm_error *err);

enum plm_forward_flags {
    PLM_FORWARD_SKIP_HEAD = 1,  // no norm, gather and LM head at the end: nothing wants logits
    PLM_FORWARD_FEW_LAYERS = 2, // one layer of each kind and the last one: stress on the CPU
    // A tuning run: products and attention are offered to the tuner, which runs them as it likes,
    // instead of being appended. Whether the head takes part is SKIP_HEAD's matter alone.
    PLM_FORWARD_TUNING = 4,
    PLM_FORWARD_CAPTURE = 8,  // the caller makes a graph of the list before it runs it
    PLM_FORWARD_CHAINED = 16, // of dummy steps: with tokens of the step before
};

// Gets the ops of a tuning run in order. What they need was appended before and may be submitted;
// their results are looked at by nobody.
struct plm_tuner {
    void *ctx;
    int (*offer)(void *ctx, enum plm_op op, const void *args);
};

// Told where a step stands while it is appended: part 0 stands before the layers, part n + 1 is
// layer n, the last part the head.
struct plm_parts {
    void *ctx;
    void (*enter)(void *ctx, uint32_t part);
};

// One step. Host arrays; the forward copies them into the workspace, all at once.
struct plm_forward {
    struct plm_shape shape;
    unsigned flags;
    uint64_t workspace;    // device address of at least plm_cost(table, &shape) bytes
    const int32_t *tokens; // [rows]; not looked at where tokens are chained
    const int32_t *pos;    // [rows]
    const int32_t *seq;    // [rows], 0 .. seqs-1
    // Of each group: slots [rows], the address of the KV block of each token; tables
    // [seqs][table_stride], those of all blocks up to ctx. What lies before a window is not read.
    const uint64_t *slots[PLM_KV_GROUPS_MAX];
    const uint64_t *tables[PLM_KV_GROUPS_MAX];
    uint32_t table_stride;      // ceil(ctx / 16)
    const int32_t *logits_rows; // [logits_rows]: rows whose logits are wanted, ascending
    // [logits_rows], where the model samples; NULL: the best tokens are found, none is drawn.
    const struct plm_sample_row *sampling;
    const void *guard; // [PLM_COST_GUARD_BYTES], which no kernel may write; NULL: any
    // Bytes before the guard, and of the workspace beside its cost, for what earlier steps wrote
    // beyond their buffers: whole PLM_COST_ALIGN; 0 with results.
    uint64_t reserve;
    const struct plm_tuner *tuner; // with TUNING
    const struct plm_parts *parts; // may be NULL
    // Only where the model runs ahead; 0: without. chained: device address of a step's results,
    // whose records hold this step's tokens; source_rows [rows]: four times the number of each
    // row's record. results: device address to which the records of this step's rows and its guard
    // are copied when it ends, plm_model_results_bytes.
    uint64_t chained;
    const int32_t *source_rows;
    uint64_t results;
};

// Device addresses of what a step leaves behind.
struct plm_forward_out {
    uint64_t logits; // float32 [logits_rows, n_vocab]; 0 with SKIP_HEAD or no logits rows
    uint64_t best;   // struct plm_argmax_record [logits_rows]; 0 where the device finds none
    uint64_t guard;  // as the host gave it, unless a kernel wrote beyond its buffers
};

// Whether steps of the model on its device may leave their results where the host reads them while
// the next step runs, and may take their tokens from there: a device that is asynchronous and finds
// the best tokens.
bool plm_model_runs_ahead(const struct plm_model *model);
// Of a step with logits rows: its records (struct plm_argmax_record), and the guard at the end.
uint64_t plm_model_results_bytes(const struct plm_model *model, const struct plm_shape *shape);

// The shortest context over which a decode of so many rows attends in one piece, since it has more
// splits than are kept: the launches are others from there on. Beyond any context: it never does.
// 0: it always does.
uint64_t plm_model_unsplit_context(const struct plm_model *model, uint32_t rows);

// Copies the inputs in and appends all launches; the caller submits.
int plm_model_forward(struct plm_model *model, struct plm_device *device,
                      const struct plm_forward *forward, struct plm_forward_out *ret);

#endif
