// SPDX-License-Identifier: Apache-2.0
// What the files of `plimsoll run` share.
#ifndef PLM_TOOLS_RUN_H
#define PLM_TOOLS_RUN_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/plimsoll.h"
#include "tools/opts.h"
#include "tools/sampling.h"

// What the options of `run` set, beside the engine's.
struct plm_run_flags {
    const char *prompt, *prompt_file;
    const char *system, *system_file;
    const char *template_kwargs; // JSON object
    struct plm_opt_list stop;
    int64_t predict; // -1: to the end of the context
    struct plm_sampling sampling;
    bool ignore_eos;
    bool conversation; // go on chatting after the first prompt
    bool raw;          // no chat template
    bool timings;
    bool no_history; // of earlier chats
};

void plm_run_flags_init(struct plm_run_flags *flags);
struct plm_opt_group plm_run_flags_group(struct plm_run_flags *flags);

// ---- the conversation (run_chat.c) ----

struct plm_run_chat; // messages, as the JSON that plim_chat_render() takes

// system and template_kwargs may be NULL. NULL: out of memory, or the kwargs are no JSON object (a
// message was printed).
struct plm_run_chat *plm_run_chat_create(const char *system, const char *template_kwargs);
void plm_run_chat_destroy(struct plm_run_chat *chat);
// Appends a message of role "user" or "assistant".
bool plm_run_chat_add(struct plm_run_chat *chat, const char *role, const char *text, size_t len);
// Takes the last message away again (a refused question, an answer to be redone).
void plm_run_chat_drop_last(struct plm_run_chat *chat);
// Back to the system prompt alone.
void plm_run_chat_reset(struct plm_run_chat *chat);
// Messages beside the system prompt.
size_t plm_run_chat_length(const struct plm_run_chat *chat);
// Forgets the n oldest messages behind the system prompt.
void plm_run_chat_drop_oldest(struct plm_run_chat *chat, size_t n);
// The body without the n_left_out oldest messages, which stay in the conversation. Valid until the
// next call. NULL: out of memory.
const char *plm_run_chat_json(struct plm_run_chat *chat, size_t n_left_out, size_t *ret_len);

// ---- answers (run_answer.c) ----

struct plm_run {
    plim_engine *engine;
    const struct plm_run_flags *flags;
    struct plm_run_chat *chat; // NULL: raw text
    bool out_terminal;         // stdout is one: control characters are made harmless
    bool chatting;             // a person reads along: say why an answer ended
};

enum plm_answer {
    PLM_ANSWER_DONE,
    PLM_ANSWER_STOPPED, // by Ctrl-C; what came so far counts
    PLM_ANSWER_REFUSED, // before the first token
    PLM_ANSWER_FAILED,  // in the middle
    PLM_ANSWER_OUTPUT,  // stdout takes nothing more
};

// Answers prompt (raw) or the chat as it stands, writing the text as it comes, and appends the
// answer to the chat; where there is none the question is taken out again. Messages about refusals
// and failures go to stderr.
enum plm_answer plm_run_answer(struct plm_run *run, const char *prompt, size_t prompt_len);

// ---- the terminal (run_input.c) ----

// Set by Ctrl-C, cleared by who acted on it.
extern volatile sig_atomic_t plm_run_interrupted;

// From here on Ctrl-C does not end the program. False: a message was printed.
bool plm_run_catch_interrupt(void);

// Whether questions are kept in a file for later chats in a terminal, and found again.
void plm_run_input_history(bool on);
// Reads one question from stdin: a line, or several where each but the last ends in a backslash. On
// a terminal it can be edited, and is remembered for the next ones. Returns false at the end of
// input. Ctrl-C empties the line. *ret is freed by the caller.
bool plm_run_read_question(bool terminal, char **ret, size_t *ret_len);
// Forgets the questions.
void plm_run_input_finish(void);

#endif
