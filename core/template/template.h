// SPDX-License-Identifier: Apache-2.0
// Chat templates: the subset of Jinja that model makers use, rendered under limits, since a
// template is code that came with a model file. Every byte of a string knows its origin, and
// the output says which bytes are the template's own and which came from a user.
//
// Outside of the subset, and refused by name: integers beyond 64 bits, characters by their names,
// `**`, `*` and `**` in calls, formats by `%`, recursive loops, varargs and kwargs, templates that
// extend, import or include others, and what has no function in the tables of filters, tests,
// methods and globals.
#ifndef PLM_TEMPLATE_H
#define PLM_TEMPLATE_H

#include <stdint.h>

#include "core/base/alloc.h"
#include "core/base/buf.h"
#include "core/base/span.h"
#include "core/base/status.h"

struct json_object; // json-c

struct plm_template;

// Parses source (UTF-8). PLM_ERR_FORMAT for what is no Jinja, PLM_ERR_UNSUPPORTED for what is
// outside the subset, both naming construct and line; PLM_ERR_LIMIT for depth or size.
int plm_template_create(struct plm_host *host, struct plm_slice source, struct plm_template **ret,
                        struct plm_error *err);
void plm_template_destroy(struct plm_template *tmpl);

struct plm_render_limits {
    uint64_t steps;        // evaluated nodes
    uint32_t depth;        // nesting of expressions, blocks and macro calls
    uint64_t output_bytes; // of the result and of each intermediate string
    uint64_t memory_bytes; // of everything that one render holds
};

struct plm_render_opts {
    struct plm_render_limits limits;
    int64_t now_s; // seconds since 1970 for strftime_now, UTC
};

// Limits that every known template stays far below.
void plm_render_opts_init(struct plm_render_opts *opts);

struct plm_render {
    struct plm_buf text;
    struct plm_span *spans; // cover the text in order
    size_t n_spans;
    struct plm_host *host;
};

void plm_render_finish(struct plm_render *render);

// Renders with the members of context (an object) as variables; context is only read, and must
// stay as it is meanwhile. ret need not be initialised. Strings inside the members named
// "bos_token" and "eos_token" are trusted; all others are the user's. PLM_ERR_INVALID when the
// template calls raise_exception (err->msg is its text) or fails on the values; PLM_ERR_LIMIT;
// PLM_ERR_NOMEM_HOST. Thread-safe: each call has its own arena.
int plm_template_render(const struct plm_template *tmpl, struct json_object *context,
                        const struct plm_render_opts *opts, struct plm_render *ret,
                        struct plm_error *err);

#endif
