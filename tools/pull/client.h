// SPDX-License-Identifier: Apache-2.0
// HTTP(S) by libcurl, and SHA-256 by libcrypto, which libcurl needs itself. Both are opened at run
// time by who fetches something: a server never holds them. Proxies are those of the environment
// (http_proxy, https_proxy, all_proxy, no_proxy), certificates the system's or those of
// $SSL_CERT_FILE, $REQUESTS_CA_BUNDLE or $CURL_CA_BUNDLE.
#ifndef PLM_TOOLS_PULL_CLIENT_H
#define PLM_TOOLS_PULL_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/pull/head.h"

struct plm_client;

// NULL: a message was printed.
struct plm_client *plm_client_create(const char *command);
void plm_client_destroy(struct plm_client *client);

struct plm_client_request {
    const char *url;
    const char *token;    // goes to the URL's own host alone, by TLS or to this machine; or NULL
    int64_t from;         // the first byte that is wanted
    const char *if_range; // resume only what this validator fits; or NULL
    double timeout_s;     // without a byte for so long the connection counts as dead
    void *ctx;
    // Of an answer of success: once when its body begins (also an empty one), then with its bytes.
    // False ends the transfer; the functions know why.
    bool (*begin)(void *ctx, const struct plm_head *head);
    bool (*take)(void *ctx, const char *data, size_t len);
};

enum plm_client_result {
    PLM_CLIENT_ANSWERED, // whatever the status; the body is whole as far as the server said
    PLM_CLIENT_CUT,      // no connection, or one that ended or stalled before its end
    PLM_CLIENT_ENDED,    // by begin() or take()
    PLM_CLIENT_STOPPED,  // by plm_stop_is_wanted()
    PLM_CLIENT_FAILED,   // what trying again does not help
};

// Follows redirects. On CUT and FAILED *ret->reason says why.
enum plm_client_result plm_client_get(struct plm_client *client,
                                      const struct plm_client_request *request,
                                      struct plm_head *ret);

// Whether a token may go to this address: by TLS, or in clear to this machine.
bool plm_client_is_private(struct plm_client *client, const char *url);
// The last part of an address's path as the name of a file. False: it is none.
bool plm_client_file_name(struct plm_client *client, const char *url, char *out, size_t cap);

// ---- digests ----

struct plm_digest;

struct plm_digest *plm_digest_create(struct plm_client *client); // NULL: no memory
void plm_digest_begin(struct plm_digest *digest);
void plm_digest_add(struct plm_digest *digest, const void *data, size_t len);
void plm_digest_end(struct plm_digest *digest, char hex[PLM_HUB_HASH_DIGITS + 1]);
// Of a whole file. False, with errno: it can not be read, or a signal came (EINTR).
bool plm_digest_of_file(struct plm_client *client, const char *path,
                        char hex[PLM_HUB_HASH_DIGITS + 1]);
void plm_digest_destroy(struct plm_digest *digest);

// ---- Ctrl-C (stop.c) ----

// From here on SIGINT, SIGTERM and SIGHUP do not end the program but are told; until
// plm_stop_release(), which gives back what was before.
void plm_stop_catch(void);
void plm_stop_release(void);
// The signal that came, or 0.
int plm_stop_is_wanted(void);
// Waits; ends early, and returns false, when a signal came.
bool plm_stop_sleep(double seconds);

#endif
