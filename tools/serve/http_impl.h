// SPDX-License-Identifier: Apache-2.0
// Shared by http.c and http_check.c.
#ifndef PLM_SERVE_HTTP_IMPL_H
#define PLM_SERVE_HTTP_IMPL_H

#include <microhttpd.h>

#include "tools/serve/http.h"

// The strict checks: what libmicrohttpd 0.9.75 lets pass although two parties may read it
// differently. Returns 0, or the status (400 or 431) and a constant sentence in *why.
int plm_http_check(struct MHD_Connection *mhd, const char *version, const char **why);

// The path of a request target in origin or absolute form; target itself when it is neither.
const char *plm_http_target_path(const char *target);

#endif
