// SPDX-License-Identifier: Apache-2.0
// Texts of the public API: prompts (text.c) and chats (chat.c).
#ifndef PLM_ENGINE_TEXT_H
#define PLM_ENGINE_TEXT_H

#include <stddef.h>
#include <stdint.h>

#include "core/plimsoll.h"
#include "core/template/template.h"
#include "core/tokenizer/tokenizer.h"

struct plm_core;
struct plm_error;

// Finds what core->chat reads, into core->chat_form. PLM_OK or NOMEM_HOST.
int plm_text_probe(struct plm_core *core, struct plm_error *err);
// Renders a chat body; the caller finishes *ret.
int plm_text_render(const struct plm_core *core, const char *json, size_t len,
                    struct plm_render *ret, plim_error *err);
// The prompt's tokens of a chat, text or list of ids. CONTEXT where it is longer than any context
// by its bytes alone; *ret_least tokens then, which it has at least.
int plm_text_prompt(const struct plm_core *core, const plim_request_opts *opts,
                    struct plm_tokens *ret, uint64_t *ret_least, plim_error *err);

#endif
