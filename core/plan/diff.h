// SPDX-License-Identifier: Apache-2.0
// What differs between two plans or two certificates, field by field. Both are foreign bytes.
#ifndef PLM_PLAN_DIFF_H
#define PLM_PLAN_DIFF_H

#include "core/base/buf.h"
#include "core/base/status.h"

// Appends a line for each field that is not the same in both or is in one only, with bytes as MiB
// and as they are and the change; "no difference" where there is none. Times are left out: they
// differ between any two starts. PLM_OK; FORMAT, LIMIT: which of the two, and the byte at which it
// goes wrong, or that they are not the same kind of text; NOMEM_HOST.
int plm_plan_diff(struct plm_host *host, struct plm_slice a, struct plm_slice b,
                  struct plm_buf *out, struct plm_error *err);

#endif
