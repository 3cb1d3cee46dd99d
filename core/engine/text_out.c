// SPDX-License-Identifier: Apache-2.0

#include "core/engine/text_out.h"

#include <string.h>

int plm_text_out(const char *text, size_t len, char *out, size_t cap, size_t *need)
{
    if (out == NULL && cap > 0)
        return PLIM_ERR_INVALID;
    if (need != NULL)
        *need = len;
    size_t n = len < cap ? len : cap;
    if (n > 0)
        memcpy(out, text, n);
    if (n < cap)
        out[n] = '\0';
    return len <= cap ? PLIM_OK : PLIM_ERR_LIMIT;
}

int plm_buf_out(struct plm_buf *buf, char *out, size_t cap, size_t *need)
{
    int r = buf->failed ? PLIM_ERR_NOMEM_HOST : plm_text_out(buf->data, buf->len, out, cap, need);
    plm_buf_finish(buf);
    return r;
}
