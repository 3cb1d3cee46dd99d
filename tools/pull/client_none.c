// SPDX-License-Identifier: Apache-2.0
// In place of client.c where the build found no headers of libcurl and libcrypto: the cache can be
// used, and nothing is fetched.
#include <errno.h>

#include "tools/pull/client.h"
#include "tools/term.h"

struct plm_client *plm_client_create(const char *command)
{
    plm_term_say("plimsoll %s: nothing can be fetched: this program was built without libcurl and "
                 "libcrypto (Debian: libcurl4-openssl-dev, libssl-dev)",
                 command);
    return NULL;
}

// Nobody has a client or a digest for these.
void plm_client_destroy(struct plm_client *client)
{
    (void)client;
}

enum plm_client_result plm_client_get(struct plm_client *client,
                                      const struct plm_client_request *request,
                                      struct plm_head *ret)
{
    (void)client;
    (void)request;
    *ret = (struct plm_head){.status = 0};
    return PLM_CLIENT_FAILED;
}

bool plm_client_is_private(struct plm_client *client, const char *url)
{
    (void)client;
    (void)url;
    return false;
}

bool plm_client_file_name(struct plm_client *client, const char *url, char *out, size_t cap)
{
    (void)client;
    (void)url;
    if (cap > 0)
        out[0] = '\0';
    return false;
}

struct plm_digest *plm_digest_create(struct plm_client *client)
{
    (void)client;
    return NULL;
}

void plm_digest_begin(struct plm_digest *digest)
{
    (void)digest;
}

void plm_digest_add(struct plm_digest *digest, const void *data, size_t len)
{
    (void)digest;
    (void)data;
    (void)len;
}

void plm_digest_end(struct plm_digest *digest, char hex[PLM_HUB_HASH_DIGITS + 1])
{
    (void)digest;
    hex[0] = '\0';
}

void plm_digest_destroy(struct plm_digest *digest)
{
    (void)digest;
}
