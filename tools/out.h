// SPDX-License-Identifier: Apache-2.0
// A growable byte string whose capacity is charged to the engine's host budget, with a JSON writer.
// It holds request bodies on their way in and responses on their way out.
#ifndef PLM_TOOLS_OUT_H
#define PLM_TOOLS_OUT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/plimsoll.h"

// A part of the host budget that some buffers have in common: together they never hold more.
struct plm_share {
    _Atomic int64_t used_bytes;
    int64_t limit_bytes; // 0: no limit but the budget itself
};

// Bytes that the host budget has for one answer from the start (plim_request_take_reserved): its
// buffers draw on them first, so that nobody can take them while it is made. One thread at a time.
struct plm_purse {
    plim_engine *engine;
    int64_t left_bytes;
    uint32_t refs; // its owner and the buffers
};
// Takes over bytes that are charged already. NULL: no memory; then they were returned.
struct plm_purse *plm_purse_create(plim_engine *engine, int64_t bytes);
void plm_purse_unref(
    struct plm_purse *purse); // NULL is allowed. At the last one the rest is returned
bool plm_purse_take(struct plm_purse *purse, int64_t bytes); // false: the budget has no more
void plm_purse_give(struct plm_purse *purse, int64_t bytes);

// A failed append sets `failed` and all later appends do nothing, so that a run of appends needs
// one check at its end.
struct plm_out {
    plim_engine *engine;     // whose host budget is charged; NULL: nobody's
    struct plm_share *share; // charged as well; NULL: none. Set it while the buffer is empty.
    struct plm_purse *purse; // drawn on before the budget; NULL: none. plm_out_draw_on() sets it
    char *data;
    size_t len;
    size_t cap;
    bool failed; // budget, share or malloc
};

void plm_out_init(struct plm_out *out, plim_engine *engine);
void plm_out_finish(struct plm_out *out); // frees; may be used again, without its purse
// While the buffer is empty. A buffer that is moved (copied, and the source initialised) keeps it.
void plm_out_draw_on(struct plm_out *out, struct plm_purse *purse);
void plm_out_clear(struct plm_out *out); // keeps the memory and clears `failed`
// Gives memory back when far more is held than a usual event needs.
void plm_out_shrink(struct plm_out *out);
bool plm_out_reserve(struct plm_out *out, size_t more); // room for `more` bytes beyond len
void plm_out_bytes(struct plm_out *out, const void *bytes, size_t n);
void plm_out_str(struct plm_out *out, const char *s);
void plm_out_printf(struct plm_out *out, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
// A JSON string with its quotes. What is not valid UTF-8 becomes U+FFFD.
void plm_out_json(struct plm_out *out, const char *s, size_t n);
void plm_out_json_str(struct plm_out *out, const char *s);
// A JSON number; what JSON cannot say (infinities, NaN) becomes -9999, which clients of the OpenAI
// API know as "no probability to speak of".
void plm_out_number(struct plm_out *out, double value);

// Length of the valid UTF-8 character at s (n > 0 bytes are there), or 0.
size_t plm_utf8_len(const char *s, size_t n);
// Whether the n bytes at s end inside a character.
bool plm_utf8_is_cut(const char *s, size_t n);

#endif
