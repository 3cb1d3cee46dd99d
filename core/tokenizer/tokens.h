// SPDX-License-Identifier: Apache-2.0
#ifndef PLM_TOKENIZER_TOKENS_H
#define PLM_TOKENIZER_TOKENS_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/alloc.h"

// A growable array of token ids.
struct plm_tokens {
    struct plm_host *host;
    int32_t *ids;
    size_t n;
    size_t cap;
};

void plm_tokens_init(struct plm_tokens *tokens, struct plm_host *host);
void plm_tokens_finish(struct plm_tokens *tokens);
// PLM_OK or PLM_ERR_NOMEM_HOST.
int plm_tokens_append(struct plm_tokens *tokens, const int32_t *ids, size_t n);

#endif
