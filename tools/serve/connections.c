// SPDX-License-Identifier: Apache-2.0
#include "tools/serve/connections.h"

#include "tools/serve/http.h"

// The host budget where none is asked for and the machine is small (core/plimsoll.h).
#define HOST_BUDGET_MIN (UINT64_C(64) << 20)
// However small the budget is that is asked for.
#define CONNECTIONS_MIN 16

unsigned plm_connections_by_budget(uint64_t host_limit_bytes)
{
    const uint64_t budget = host_limit_bytes > 0 ? host_limit_bytes : HOST_BUDGET_MIN;
    const uint64_t n = budget / 2 / plm_http_connection_bytes();
    if (n < CONNECTIONS_MIN)
        return CONNECTIONS_MIN;
    return n < PLM_CONNECTIONS_MAX ? (unsigned)n : PLM_CONNECTIONS_MAX;
}

void plm_connections_plan(plim_engine_opts *opts, unsigned n)
{
    opts->host_caller_bytes =
        ((uint64_t)n + PLM_HTTP_PROBE_PLACES) * (uint64_t)plm_http_connection_bytes() +
        plm_http_wide_bytes();
}
