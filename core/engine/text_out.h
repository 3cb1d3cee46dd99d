// SPDX-License-Identifier: Apache-2.0
// Texts into a caller's buffer, by the rule of plimsoll.h.
#ifndef PLM_ENGINE_TEXT_OUT_H
#define PLM_ENGINE_TEXT_OUT_H

#include <stddef.h>

#include "core/base/buf.h"
#include "core/plimsoll.h"

int plm_text_out(const char *text, size_t len, char *out, size_t cap, size_t *need);
// The same with what was written to buf, which it finishes.
int plm_buf_out(struct plm_buf *buf, char *out, size_t cap, size_t *need);

#endif
