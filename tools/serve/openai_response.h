// SPDX-License-Identifier: Apache-2.0
// Responses of /v1/chat/completions and /v1/completions from the engine's events: as a stream of
// server-sent events, or collected into one body.
#ifndef PLM_SERVE_OPENAI_RESPONSE_H
#define PLM_SERVE_OPENAI_RESPONSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/plimsoll.h"
#include "tools/out.h"
#include "tools/serve/errors.h"
#include "tools/serve/openai_request.h"

// Logprobs of the completions format are four parallel arrays; of the chat format, the first alone.
enum plm_logprob_list { PLM_LP_TOKENS, PLM_LP_LOGPROBS, PLM_LP_TOP, PLM_LP_OFFSETS, PLM_LP_LISTS };

struct plm_choice {
    struct plm_out text;                   // collected
    struct plm_out logprobs[PLM_LP_LISTS]; // collected, elements separated by commas
    size_t chars;                          // characters of text so far, for text_offset
    int finish;
};

struct plm_answer {
    plim_engine *engine;
    struct plm_purse *purse; // what its buffers draw on
    const char *model;       // outlives the answer
    bool chat;
    bool stream;
    bool include_usage;
    bool logprobs;
    bool top;
    char id[48];
    int64_t created;
    uint32_t n;
    struct plm_choice *choices;
};

// Sets what an answer will need of the host budget (plim_request_opts.host_answer_bytes and
// host_token_bytes), as streams leave up to backlog_bytes unread.
void plm_answer_needs(struct plm_openai_request *request, size_t backlog_bytes);
// purse has what was reserved for it; the answer and its buffers draw on it. False when memory is
// short.
bool plm_answer_init(struct plm_answer *answer, const struct plm_openai_request *request,
                     plim_engine *engine, struct plm_purse *purse, const char *model);
void plm_answer_finish(struct plm_answer *answer);

// Stream: the first chunk of every choice (role, or the echoed prompt).
void plm_answer_start(struct plm_answer *answer, const struct plm_out *echo, struct plm_out *out);
// Stream or collected: a TOKEN or FINISH event. out is unused when collecting.
void plm_answer_event(struct plm_answer *answer, const plim_event *event, struct plm_out *out);
// The end: the usage chunk and [DONE], or the whole body.
void plm_answer_done(struct plm_answer *answer, const plim_event *event, struct plm_out *out);
// Stream: the request failed after its headers were sent. The last event is the error, and no
// [DONE]: clients raise it. No choice gets a last chunk, since none of the finish reasons that
// clients with types know is true.
void plm_answer_failed(const struct plm_api_error *error, struct plm_out *out);
// Whether everything collected so far found memory.
bool plm_answer_ok(const struct plm_answer *answer);

#endif
