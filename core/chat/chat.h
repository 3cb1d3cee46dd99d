// SPDX-License-Identifier: Apache-2.0
// From a conversation to a prompt. Chat templates disagree about the form of what they read: texts
// or lists of parts, arguments as objects or as text, null or nothing. So test renders find what a
// template reads (chat_probe.c), a conversation is brought into that form, whichever of the API's
// spellings it came in (chat_form.c), and each render is checked for what the request brought
// (chat_check.c).
#ifndef PLM_CHAT_H
#define PLM_CHAT_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/buf.h"
#include "core/base/status.h"
#include "core/template/template.h"

enum plm_chat_role {
    PLM_CHAT_SYSTEM,
    PLM_CHAT_DEVELOPER,
    PLM_CHAT_USER,
    PLM_CHAT_ASSISTANT,
    PLM_CHAT_TOOL,
    PLM_CHAT_FUNCTION,
    PLM_CHAT_ROLES, // how many; also a role that is none of them
};

// In what a role's texts are read; a sum.
enum { PLM_CHAT_STRING = 1, PLM_CHAT_PARTS = 2 };

// As what the content of an assistant's message stands that has none.
enum plm_chat_empty {
    PLM_CHAT_EMPTY_STRING,
    PLM_CHAT_EMPTY_ABSENT,
    PLM_CHAT_EMPTY_NULL,
    PLM_CHAT_EMPTIES,
};

// The form that a template reads.
struct plm_chat_form {
    uint8_t content[PLM_CHAT_ROLES]; // PLM_CHAT_STRING | PLM_CHAT_PARTS
    uint8_t role[PLM_CHAT_ROLES];    // the role that stands in for one that it does not know
    uint8_t empty;                   // enum plm_chat_empty
    bool text_args;                  // arguments of tool calls are read as JSON text
    bool no_tools_list;              // no tools are [], not none
    bool split_calls;                // text beside tool calls is read in a message of its own only
    // Text beside tool calls counts as reasoning, and is left out once the user has spoken again.
    bool drops_call_text;
    bool reads_tools; // definitions of tools are written, and calls of them
    bool reads_calls;
    uint8_t lacks_roles; // 1 << role for each whose texts are not written, or fail
    bool known;          // the test renders worked
};

// What most templates read; known is false.
void plm_chat_form_init(struct plm_chat_form *form);

enum { PLM_CHAT_PARAM_BYTES = 96 }; // "messages[..].tool_calls[..].function.arguments" fits

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
    // Only the form that was given, unchecked.
    bool strict;
    // What plm_chat_probe() found; NULL: not probed. Where a render fails in this form, or lacks
    // something, others are tried.
    const struct plm_chat_form *form;
    // NULL, or PLM_CHAT_PARAM_BYTES bytes: set to the field that an error is about ("messages"
    // where that is all that is known), or to "".
    char *param;
    struct plm_render_opts render; // the limits hold for all attempts of a call together
};

// Default limits, no flags. The caller sets messages and now_s.
void plm_chat_opts_init(struct plm_chat_opts *opts);

// Renders the conversation; the caller owns *ret (plm_render_finish). Unless strict: the text of
// every part that is not blank, every definition of a tool, and every call where the template reads
// calls at all, has bytes in the prompt, or the result is PLM_ERR_INVALID and says what is left
// out. Not held against a template: white space, names, ids, and of an assistant's earlier messages
// what it reads as reasoning. Spellings that mean the same (a text and a list of it alone; content
// that is null, "", [] or absent; a refusal and a content that says the same; no tool calls as null
// or []; arguments "", null, absent and {}) give one prompt. Else errors are those of
// plm_template_render, of the first attempt when none works, and PLM_ERR_INVALID when the last
// message can not be continued. Thread-safe as long as no other thread uses the same json objects
// (json-c counts references without locks).
int plm_chat_render(const struct plm_template *tmpl, const struct plm_chat_opts *opts,
                    struct plm_render *ret, struct plm_error *err);

// Finds what a template reads, by some thirty renders of small conversations, with the tokens and
// the clock of opts. PLM_OK, also where nothing works: then *ret is the initial form; NOMEM_HOST.
int plm_chat_probe(const struct plm_template *tmpl, const struct plm_chat_opts *opts,
                   struct plm_chat_form *ret, struct plm_error *err);

#endif
