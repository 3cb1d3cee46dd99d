// SPDX-License-Identifier: Apache-2.0
// The flags of plimsoll serve, but for those that other commands have, too.
#ifndef PLM_SERVE_FLAGS_H
#define PLM_SERVE_FLAGS_H

#include <stdbool.h>
#include <stdint.h>

#include "tools/opts.h"
#include "tools/sampling.h"

struct plm_serve_flags {
    const char *host;
    uint32_t port;
    struct plm_opt_list aliases;
    struct plm_opt_list api_keys, admin_keys;
    const char *api_key_file;
    const char *admin_key_file;
    struct plm_opt_list allowed_hosts, cors_origins, trusted_proxies;
    int64_t predict; // -1: to the end of the context
    uint64_t max_body_bytes;
    uint32_t timeout_s;
    uint32_t http_threads;
    uint32_t max_connections; // 0: by the host budget
    uint32_t max_per_peer;    // 0: half of them
    double ping_s;
    double shutdown_s;
    uint32_t overload;      // 0: 503, 1: 429
    uint32_t metrics_alias; // 0: none, 1: vllm
    const char *plan_out;
    bool quiet; // no line for each request
    struct plm_sampling sampling;
};

// The defaults.
void plm_serve_flags_init(struct plm_serve_flags *flags);
struct plm_opt_group plm_serve_flags_group(struct plm_serve_flags *flags);

#endif
