// SPDX-License-Identifier: Apache-2.0
// From a conversation to a prompt: builds the variables that chat templates expect, renders, and
// tries the forms that templates disagree about until one works.
#ifndef PLM_MODEL_CHAT_H
#define PLM_MODEL_CHAT_H

#include <stdbool.h>

#include "core/base/buf.h"
#include "core/base/status.h"
#include "core/model/template.h"

struct plm_chat_opts {
    // Borrowed for the call and left as they are. Their members follow OpenAI's chat API; unknown
    // members reach the template as they stand.
    struct json_object *messages; // array, at least one message
    struct json_object *tools;    // array; NULL: none
    // Object of further variables (`enable_thinking`, `documents`, ...), or NULL. The names that
    // this struct has fields for are ignored in it, so that a request can neither replace the
    // messages nor bring a trusted token.
    struct json_object *kwargs;
    struct plm_slice bos_token; // trusted; ptr NULL: undefined in the template
    struct plm_slice eos_token;
    bool add_generation_prompt;
    // Leave the last message open: the text ends where its content ends.
    bool continue_final_message;
    // As Transformers 5: members of a message that are null are dropped, and the first of
    // reasoning_content, thinking, reasoning also gets the other two names that templates read.
    bool normalize;
    // Only the form that was given, no other. By default (false) arguments of tool calls that are
    // JSON text become objects; and where the render fails, or prints a list of parts as a list,
    // these are tried in turn, alone and together: content parts that are all text joined by
    // newlines; an empty list for no tools; arguments as text.
    bool strict;
    struct plm_render_opts render;
};

// Default limits, no flags. The caller sets messages and now_s.
void plm_chat_opts_init(struct plm_chat_opts *opts);

// Renders the conversation; the caller owns *ret (plm_render_finish). Errors are those of
// plm_template_render, of the form that was given when no form works, and PLM_ERR_INVALID when the
// last message can not be continued. Thread-safe as long as no other thread uses the same json
// objects (json-c counts references without locks).
int plm_chat_render(const struct plm_template *tmpl, const struct plm_chat_opts *opts,
                    struct plm_render *ret, struct plm_error *err);

#endif
