// SPDX-License-Identifier: Apache-2.0
#include <stddef.h>

#include "tools/serve/connections.h"
#include "tools/serve/flags.h"

#define IN(field) offsetof(struct plm_serve_flags, field)

static const struct plm_opt table[] = {
    PLM_OPT("--host", "ADDRESS",
            "address, or path of a unix socket ending in .sock\n"
            "(default 127.0.0.1)",
            PLM_OPT_STRING, IN(host)),
    PLM_OPT_IN("--port", "N", "port; 0: any free one (default 8080)", PLM_OPT_U32, IN(port), 0,
               65535),
    PLM_OPT("-a, --alias, --served-model-name", "NAME",
            "name of the model for clients; may be repeated", PLM_OPT_LIST, IN(aliases)),
    PLM_OPT("--api-key", "KEY",
            "key that clients must send; may be repeated, or a list with commas", PLM_OPT_LIST,
            IN(api_keys)),
    PLM_OPT("--api-key-file", "FILE", "keys from a file, one per line", PLM_OPT_STRING,
            IN(api_key_file)),
    PLM_OPT("--admin-key", "KEY",
            "key of operators, who may call all that users may, and\n"
            "/v1/sleep and /v1/wake; repeated as --api-key. Unless given, only\n"
            "programs on this machine operate, and with --api-key nobody",
            PLM_OPT_LIST, IN(admin_keys)),
    PLM_OPT("--admin-key-file", "FILE", "those from a file", PLM_OPT_STRING, IN(admin_key_file)),
    PLM_OPT("--allowed-hosts", "HOST",
            "host that clients may call the server by, beside localhost, its\n"
            "addresses and --host: a name, .example.org for all below it, an\n"
            "address, or * for any; repeated as --api-key",
            PLM_OPT_LIST, IN(allowed_hosts)),
    PLM_OPT("--cors-origins", "ORIGIN",
            "web page that may call the server: its origin, such as\n"
            "https://example.org, null, or * for any; repeated as --api-key",
            PLM_OPT_LIST, IN(cors_origins)),
    PLM_OPT("--trusted-proxies", "RANGE",
            "proxies that speak for many clients: an address, or a range as\n"
            "10.0.0.0/8; repeated as --api-key",
            PLM_OPT_LIST, IN(trusted_proxies)),
    PLM_OPT_IN("-n, --predict, --n-predict", "N",
               "tokens of an answer when the request does not say; -1: no limit\n(default -1)",
               PLM_OPT_I64, IN(predict), -1, 2147483647),
    PLM_OPT_IN("--max-body", "BYTES",
               "largest request body (default 16MiB, and 1/8 of the host "
               "budget at most)",
               PLM_OPT_BYTES, IN(max_body_bytes), 1024, 1e9),
    PLM_OPT_IN("-to, --timeout", "S",
               "seconds after which an idle or stalled connection is closed\n"
               "(default 120)",
               PLM_OPT_U32, IN(timeout_s), 1, 86400),
    PLM_OPT_IN("--threads-http", "N", "threads that read requests (default 2)", PLM_OPT_U32,
               IN(http_threads), 1, 64),
    PLM_OPT_IN("--max-connections", "N",
               "connections at once; more are answered 503, but for probes\n"
               "(default: what half of the host budget holds, of 64MiB where\n"
               "--host-limit is not given)",
               PLM_OPT_U32, IN(max_connections), 1, PLM_CONNECTIONS_MAX),
    PLM_OPT_IN("--max-connections-per-peer", "N",
               "connections of one address (IPv6: /64) that wait for it: to send\n"
               "the rest of a request, or to take an answer; not of\n"
               "--trusted-proxies (default: half of all)",
               PLM_OPT_U32, IN(max_per_peer), 1, PLM_CONNECTIONS_MAX),
    PLM_OPT_IN("--sse-ping-interval", "S",
               "seconds of silence after which a stream sends a comment;\n0: never (default 15)",
               PLM_OPT_DOUBLE, IN(ping_s), 0, 3600),
    PLM_OPT_IN("--shutdown-timeout", "S",
               "seconds that running requests get after SIGTERM, SIGINT, or SIGHUP\n"
               "where a terminal was attached at the start (default 30)",
               PLM_OPT_DOUBLE, IN(shutdown_s), 0, 86400),
    PLM_OPT_ONE_OF("--overload-status", "N", "HTTP status of \"not now\" (default 503)",
                   IN(overload), "503|429"),
    PLM_OPT_ONE_OF("--metrics-alias", "NAME", "repeat the metrics under the names of vllm",
                   IN(metrics_alias), "none|vllm"),
    PLM_OPT("--plan-out", "FILE", "write the memory plan as JSON", PLM_OPT_STRING, IN(plan_out)),
    PLM_OPT("-q, --quiet", NULL, "no line in the log for each request", PLM_OPT_FLAG, IN(quiet)),
    PLM_OPT_END,
};

void plm_serve_flags_init(struct plm_serve_flags *flags)
{
    *flags = (struct plm_serve_flags){
        .host = "127.0.0.1",
        .port = 8080,
        .predict = -1,
        .max_body_bytes = 16 * 1024 * 1024,
        .timeout_s = 120,
        .http_threads = 2,
        .ping_s = 15,
        .shutdown_s = 30,
    };
    plm_sampling_init(&flags->sampling);
}

struct plm_opt_group plm_serve_flags_group(struct plm_serve_flags *flags)
{
    return (struct plm_opt_group){"server", table, flags};
}
