// SPDX-License-Identifier: Apache-2.0
#include "core/tokenizer/tokens.h"

#include <string.h>

#include "core/base/status.h"

void plm_tokens_init(struct plm_tokens *tokens, struct plm_host *host)
{
    *tokens = (struct plm_tokens){.host = host};
}

void plm_tokens_finish(struct plm_tokens *tokens)
{
    plm_free(tokens->host, tokens->ids);
    tokens->ids = NULL;
    tokens->n = tokens->cap = 0;
}

int plm_tokens_append(struct plm_tokens *tokens, const int32_t *ids, size_t n)
{
    if (n > tokens->cap - tokens->n) {
        if (n > SIZE_MAX / 16 - tokens->n) // neither the sum nor its bytes overflow
            return PLM_ERR_NOMEM_HOST;
        size_t cap = tokens->cap + tokens->cap / 2;
        if (cap < tokens->n + n)
            cap = tokens->n + n;
        if (cap < 32)
            cap = 32;
        int32_t *grown =
            plm_realloc(tokens->host, PLM_HOST_REQUEST, tokens->ids, cap * sizeof(*grown));
        if (grown == NULL)
            return PLM_ERR_NOMEM_HOST;
        tokens->ids = grown;
        tokens->cap = cap;
    }
    if (n > 0)
        memcpy(tokens->ids + tokens->n, ids, n * sizeof(*ids));
    tokens->n += n;
    return PLM_OK;
}
