// SPDX-License-Identifier: Apache-2.0
// Whose a stretch of a text is: what a template renders, and what a tokenizer then reads.
#ifndef PLM_BASE_SPAN_H
#define PLM_BASE_SPAN_H

#include <stdbool.h>
#include <stddef.h>

// A stretch of rendered text. Only trusted text (from the template itself) may spell control
// tokens; text that a user sent never does.
struct plm_span {
    size_t begin; // byte offsets into the text
    size_t end;
    bool trusted;
};

#endif
