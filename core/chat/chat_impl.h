// SPDX-License-Identifier: Apache-2.0
// What the files of chat.h share: one attempt to render a conversation.
#ifndef PLM_CHAT_IMPL_H
#define PLM_CHAT_IMPL_H

#include "core/chat/chat.h"
#include "core/template/run.h"

enum plm_chat_what {
    PLM_CHAT_TEXT,      // of a message
    PLM_CHAT_TOOL_DEF,  // a definition, by its name
    PLM_CHAT_CALL,      // a call in a message, by its name
    PLM_CHAT_ARGUMENTS, // of a call
};

// In place of a part.
#define PLM_CHAT_WHOLE   UINT32_MAX       // the content is one string
#define PLM_CHAT_REFUSAL (UINT32_MAX - 1) // it is the message's member "refusal"

// Something that the request brought, and that its prompt is looked through for. Item i has the
// origin PLM_ORIGIN_TEXT + i.
struct plm_chat_item {
    enum plm_chat_what what;
    uint32_t at;   // number of the message, or of the tool
    uint32_t part; // number of the part (or one of the above), or of the call
    enum plm_chat_role role;
    bool may_vanish; // what a template may drop: see drops_call_text
    bool seen;
};

// Tool calls whose arguments are no JSON object: the first of them.
struct plm_chat_broken {
    bool any;
    uint32_t message;
    uint32_t call;
    bool in_function; // the call has a member "function", as it should
    struct plm_error why;
};

// Of which kinds the conversation has something, so that another form would differ.
enum {
    PLM_CHAT_HAS_PARTS = 1,
    PLM_CHAT_HAS_NO_TOOLS = 2,
    PLM_CHAT_HAS_ARGS = 4,
    PLM_CHAT_HAS_EMPTY = 8,
    PLM_CHAT_HAS_CALL_TEXT = 16, // text beside calls
    PLM_CHAT_HAS_TEXT = 32,
};

struct plm_chat_attempt {
    // Given.
    const struct plm_chat_opts *opts;
    struct plm_chat_form form;
    bool mend_args;  // arguments that are no object are given as none
    bool mark_texts; // see plm_chat_check
    // While it renders, in the arena of the render.
    struct plm_chat_item *items;
    size_t n_items, cap_items;
    uint32_t last_user;         // number of the last message of a user
    struct plm_slice continued; // text of the last message without the mark; ptr NULL: none
    // What came out.
    unsigned has; // PLM_CHAT_HAS_*
    uint32_t n_missing;
    struct plm_chat_item missing; // the first
    bool missing_reply_only;      // all that is missing are texts of the assistant
    bool some_tool;               // one definition at least was written
    bool some_call;               // and one call
    bool calls_missing;           // or arguments of one
    bool printed_parts, printed_args;
    struct plm_chat_broken broken;
};

// Put behind the last message's text. Ends in a space, so that it shows whether the template trims.
#define PLM_CHAT_MARK "CONTINUE_FINAL_MESSAGE_TAG "

// chat_form.c: the role of a message, PLM_CHAT_ROLES where it is none of them.
enum plm_chat_role plm_chat_role_of(struct json_object *message);
// The variables of a render, and the items.
bool plm_chat_prepare(struct plm_trun *r, void *attempt);
// chat_check.c: cuts what is behind an open message, and looks for the items. With mark_texts each
// text of the assistant has a word at its end, and is there if the word is: so a text that went
// away whole counts if the template, reading it, took it for reasoning.
bool plm_chat_check(struct plm_trun *r, void *attempt);

// Says which field an error is about.
void plm_chat_set_param(const struct plm_chat_opts *opts, const char *param);
// The refusal of what is missing.
int plm_chat_refuse(const struct plm_chat_attempt *attempt, struct plm_error *err);
// The refusal of arguments that a template can not take; cause is its own word.
int plm_chat_refuse_arguments(const struct plm_chat_attempt *attempt, const char *cause,
                              struct plm_error *err);

// chat.c: one render. *steps (left of the limit) goes down by those that it took.
int plm_chat_try(const struct plm_template *tmpl, struct plm_chat_attempt *attempt, uint64_t *steps,
                 struct plm_render *ret, struct plm_error *err);

#endif
