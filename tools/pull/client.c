// SPDX-License-Identifier: Apache-2.0
#include "tools/pull/client.h"

#include <curl/curl.h>
#include <dlfcn.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "tools/term.h"

// What is called of each library. The names are those of the functions without "curl_" and "EVP_".
#define CURL_FUNCTIONS(X)                                                                          \
    X(curl_, global_init)                                                                          \
    X(curl_, global_cleanup)                                                                       \
    X(curl_, version_info)                                                                         \
    X(curl_, easy_init)                                                                            \
    X(curl_, easy_setopt)                                                                          \
    X(curl_, easy_getinfo)                                                                         \
    X(curl_, easy_perform)                                                                         \
    X(curl_, easy_reset)                                                                           \
    X(curl_, easy_strerror)                                                                        \
    X(curl_, easy_cleanup)                                                                         \
    X(curl_, slist_append)                                                                         \
    X(curl_, slist_free_all)                                                                       \
    X(curl_, url)                                                                                  \
    X(curl_, url_set)                                                                              \
    X(curl_, url_get)                                                                              \
    X(curl_, url_cleanup)                                                                          \
    X(curl_, free)
#define CRYPTO_FUNCTIONS(X)                                                                        \
    X(EVP_, MD_CTX_new)                                                                            \
    X(EVP_, MD_CTX_free)                                                                           \
    X(EVP_, DigestInit_ex)                                                                         \
    X(EVP_, DigestUpdate)                                                                          \
    X(EVP_, DigestFinal_ex)                                                                        \
    X(EVP_, sha256)

#define MEMBER(prefix, name) __typeof__(prefix##name) *name;
struct plm_client {
    CURL_FUNCTIONS(MEMBER)
    CRYPTO_FUNCTIONS(MEMBER)
    CURL *easy; // kept, and with it its connections
};

// Where a function's address goes, and by which name it is found.
struct entry {
    const char *name;
    size_t offset;
};
#define ENTRY(prefix, name) {#prefix #name, offsetof(struct plm_client, name)},

static bool open_library(struct plm_client *client, const char *file, const char *package,
                         const struct entry *entries, size_t n, const char *command)
{
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        plm_term_say("plimsoll %s: fetching needs %s (Debian: %s): %s", command, file, package,
                     dlerror());
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        void *address = dlsym(library, entries[i].name);
        if (address == NULL) {
            plm_term_say("plimsoll %s: %s has no %s", command, file, entries[i].name);
            return false;
        }
        memcpy((char *)client + entries[i].offset, &address, sizeof(address));
    }
    return true;
}

// 7.85, the first that can be told which protocols to follow: without it a redirect could leave
// TLS.
#define CURL_VERSION_MIN 0x075500u

struct plm_client *plm_client_create(const char *command)
{
    static const struct entry curl[] = {CURL_FUNCTIONS(ENTRY)};
    static const struct entry crypto[] = {CRYPTO_FUNCTIONS(ENTRY)};
    struct plm_client *client = calloc(1, sizeof(*client));
    // The libraries stay: they are not made to be closed, and the program ends or serves.
    if (client == NULL ||
        !open_library(client, "libcurl.so.4", "libcurl4", curl, sizeof(curl) / sizeof(curl[0]),
                      command) ||
        !open_library(client, "libcrypto.so.3", "libssl3", crypto,
                      sizeof(crypto) / sizeof(crypto[0]), command)) {
        free(client);
        return NULL;
    }
    const curl_version_info_data *version = client->version_info(CURLVERSION_NOW);
    if (version->version_num < CURL_VERSION_MIN) {
        plm_term_say("plimsoll %s: fetching needs libcurl 7.85 or newer; libcurl.so.4 is %s",
                     command, version->version);
        free(client);
        return NULL;
    }
    if (client->global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK)
        client->easy = client->easy_init();
    if (client->easy == NULL) {
        plm_term_say("plimsoll %s: libcurl does not start", command);
        client->global_cleanup();
        free(client);
        return NULL;
    }
    return client;
}

void plm_client_destroy(struct plm_client *client)
{
    if (client == NULL)
        return;
    client->easy_cleanup(client->easy);
    client->global_cleanup();
    free(client);
}

// ---- addresses ----

// A part of an address; freed with client->free(). NULL: it has none, or is none.
static void url_part(struct plm_client *client, const char *url, CURLUPart part, char **ret)
{
    CURLU *parsed = client->url();
    *ret = NULL;
    if (parsed != NULL && client->url_set(parsed, CURLUPART_URL, url, 0) == CURLUE_OK)
        client->url_get(parsed, part, ret, 0);
    if (parsed != NULL)
        client->url_cleanup(parsed);
}

bool plm_client_is_private(struct plm_client *client, const char *url)
{
    static const char *const here[] = {"localhost", "127.0.0.1", "[::1]"};
    char *scheme, *host;
    url_part(client, url, CURLUPART_SCHEME, &scheme);
    url_part(client, url, CURLUPART_HOST, &host);
    bool ok = scheme != NULL && strcmp(scheme, "https") == 0;
    for (size_t i = 0; i < 3 && host != NULL; i++)
        ok = ok || strcasecmp(host, here[i]) == 0;
    client->free(scheme);
    client->free(host);
    return ok;
}

static int hex_digit(char c)
{
    const char *digits = "0123456789abcdef0123456789ABCDEF";
    const char *at = c != '\0' ? strchr(digits, c) : NULL;
    return at != NULL ? (int)((at - digits) % 16) : -1;
}

// Writes text with its %XX decoded. False: too long, or a NUL or slash comes out.
static bool unescape(const char *text, char *out, size_t cap)
{
    size_t n = 0;
    for (; *text != '\0'; text++) {
        int c = (unsigned char)*text;
        if (c == '%') {
            const int high = hex_digit(text[1]), low = high >= 0 ? hex_digit(text[2]) : -1;
            c = low >= 0 ? 16 * high + low : 0;
            text += low >= 0 ? 2 : 0;
        }
        if (c == '\0' || c == '/' || n + 1 >= cap)
            return false;
        out[n++] = (char)c;
    }
    out[n] = '\0';
    return true;
}

bool plm_client_file_name(struct plm_client *client, const char *url, char *out, size_t cap)
{
    char *path;
    url_part(client, url, CURLUPART_PATH, &path);
    const char *slash = path != NULL ? strrchr(path, '/') : NULL;
    const bool ok = slash != NULL && unescape(slash + 1, out, cap) && plm_hub_path_is_safe(out);
    client->free(path);
    return ok;
}

// ---- one transfer ----

struct transfer {
    struct plm_client *client;
    const struct plm_client_request *request;
    struct plm_head head;
    bool begun; // request->begin() was called
    bool ended; // by begin() or take()
};

// libcurl hands over one line at a time, and bounds it and the whole head.
static size_t on_header(char *data, size_t one, size_t len, void *ctx)
{
    struct transfer *t = ctx;
    plm_head_line(&t->head, data, len);
    return one * len;
}

static bool begin_body(struct transfer *t)
{
    struct plm_client *c = t->client;
    curl_off_t bytes = -1;
    t->begun = true;
    c->easy_getinfo(t->client->easy, CURLINFO_RESPONSE_CODE, &t->head.status);
    c->easy_getinfo(t->client->easy, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &bytes);
    t->head.bytes = bytes;
    if (t->head.status / 100 != 2)
        return true;
    t->ended = !t->request->begin(t->request->ctx, &t->head);
    return !t->ended;
}

#define ERROR_BODY_MAX_BYTES (1 << 20) // of an error page, which nobody reads

static size_t on_body(char *data, size_t one, size_t len, void *ctx)
{
    struct transfer *t = ctx;
    if (!t->begun && !begin_body(t))
        return 0;
    if (t->head.status / 100 == 2) {
        t->ended = !t->request->take(t->request->ctx, data, len);
        return t->ended ? 0 : one * len;
    }
    curl_off_t so_far = 0;
    t->client->easy_getinfo(t->client->easy, CURLINFO_SIZE_DOWNLOAD_T, &so_far);
    return so_far < ERROR_BODY_MAX_BYTES ? one * len : 0;
}

static int on_tick(void *ctx, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
    (void)ctx;
    (void)a;
    (void)b;
    (void)c;
    (void)d;
    return plm_stop_is_wanted() != 0;
}

// One of the variables by which programs of this world are told of other certificates.
static const char *certificates(void)
{
    static const char *const names[] = {"SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *value = getenv(names[i]);
        if (value != NULL && value[0] != '\0')
            return value;
    }
    return NULL;
}

#define REDIRECTS_MAX 5L

// False: libcurl refuses what keeps a transfer where it is to stay.
static bool set_options(struct transfer *t)
{
    struct plm_client *c = t->client;
    const struct plm_client_request *r = t->request;
    CURL *easy = c->easy;
    const bool tls = strncasecmp(r->url, "https:", 6) == 0;
    const long seconds = r->timeout_s < 1 ? 1 : (long)r->timeout_s;
    c->easy_reset(easy);
    // Nothing but HTTP, and what began with TLS never goes on without.
    const char *const redirects = tls ? "https" : "http,https";
    bool ok = c->easy_setopt(easy, CURLOPT_URL, r->url) == CURLE_OK;
    ok = ok && c->easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https") == CURLE_OK;
    ok = ok && c->easy_setopt(easy, CURLOPT_REDIR_PROTOCOLS_STR, redirects) == CURLE_OK;
    c->easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 1L);
    c->easy_setopt(easy, CURLOPT_MAXREDIRS, REDIRECTS_MAX);
    c->easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    c->easy_setopt(easy, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L); // a proxy's head is not the hub's
    c->easy_setopt(easy, CURLOPT_CONNECTTIMEOUT, seconds);
    c->easy_setopt(easy, CURLOPT_LOW_SPEED_LIMIT, 1L);
    c->easy_setopt(easy, CURLOPT_LOW_SPEED_TIME, seconds);
    c->easy_setopt(easy, CURLOPT_BUFFERSIZE, 256L * 1024);
    c->easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header);
    c->easy_setopt(easy, CURLOPT_HEADERDATA, t);
    c->easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
    c->easy_setopt(easy, CURLOPT_WRITEDATA, t);
    c->easy_setopt(easy, CURLOPT_XFERINFOFUNCTION, on_tick);
    c->easy_setopt(easy, CURLOPT_NOPROGRESS, 0L);
    char agent[64];
    snprintf(agent, sizeof(agent), "plimsoll/%s", plim_version());
    c->easy_setopt(easy, CURLOPT_USERAGENT, agent);
    if (certificates() != NULL)
        ok = ok && c->easy_setopt(easy, CURLOPT_CAINFO, certificates()) == CURLE_OK;
    return ok;
}

// A header of our own; *list stays as it is where memory is short. libcurl sends Authorization to
// the host, port and scheme of the first address alone (CURLOPT_UNRESTRICTED_AUTH is off).
static bool add_header(struct plm_client *client, struct curl_slist **list, const char *name,
                       const char *value)
{
    char *line = NULL;
    struct curl_slist *longer = NULL;
    if (asprintf(&line, "%s: %s", name, value) >= 0)
        longer = client->slist_append(*list, line);
    free(line);
    if (longer != NULL)
        *list = longer;
    return longer != NULL;
}

static bool add_headers(struct transfer *t, struct curl_slist **list)
{
    const struct plm_client_request *r = t->request;
    struct plm_client *c = t->client;
    bool ok = true;
    if (r->token != NULL) {
        char bearer[512];
        snprintf(bearer, sizeof(bearer), "Bearer %s", r->token);
        ok = add_header(c, list, "Authorization", bearer);
    }
    if (r->from > 0) {
        char range[48];
        snprintf(range, sizeof(range), "%lld-", (long long)r->from);
        ok = ok && c->easy_setopt(c->easy, CURLOPT_RANGE, range) == CURLE_OK;
    }
    if (r->from > 0 && r->if_range != NULL)
        ok = ok && add_header(c, list, "If-Range", r->if_range);
    return ok && c->easy_setopt(c->easy, CURLOPT_HTTPHEADER, *list) == CURLE_OK;
}

static enum plm_client_result result_of(struct transfer *t, CURLcode code)
{
    struct plm_head *a = &t->head;
    if (t->ended)
        return PLM_CLIENT_ENDED;
    switch (code) {
    case CURLE_OK: return PLM_CLIENT_ANSWERED;
    case CURLE_ABORTED_BY_CALLBACK: return PLM_CLIENT_STOPPED;
    // An error page that is too long: its status is known.
    case CURLE_WRITE_ERROR: return PLM_CLIENT_ANSWERED;
    default: break;
    }
    plm_copy_printable(a->reason, sizeof(a->reason), t->client->easy_strerror(code),
                       strlen(t->client->easy_strerror(code)));
    switch (code) {
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
    case CURLE_PARTIAL_FILE:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_GOT_NOTHING:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM: return PLM_CLIENT_CUT;
    default: return PLM_CLIENT_FAILED;
    }
}

enum plm_client_result plm_client_get(struct plm_client *client,
                                      const struct plm_client_request *request,
                                      struct plm_head *ret)
{
    struct transfer t = {.client = client, .request = request};
    struct curl_slist *list = NULL;
    enum plm_client_result result = PLM_CLIENT_FAILED;
    plm_head_init(&t.head);
    if (!set_options(&t)) {
        snprintf(t.head.reason, sizeof(t.head.reason), "libcurl does not take an option");
    } else if (add_headers(&t, &list)) {
        const CURLcode code = client->easy_perform(client->easy);
        if (code == CURLE_OK && !t.begun)
            begin_body(&t);
        result = result_of(&t, code);
    } else {
        snprintf(t.head.reason, sizeof(t.head.reason), "out of memory");
    }
    client->easy_setopt(client->easy, CURLOPT_HTTPHEADER, NULL);
    client->slist_free_all(list);
    *ret = t.head;
    return result;
}

// ---- digests ----

struct plm_digest {
    struct plm_client *client;
    EVP_MD_CTX *md;
};

struct plm_digest *plm_digest_create(struct plm_client *client)
{
    struct plm_digest *digest = malloc(sizeof(*digest));
    if (digest == NULL)
        return NULL;
    *digest = (struct plm_digest){client, client->MD_CTX_new()};
    if (digest->md == NULL || client->DigestInit_ex(digest->md, client->sha256(), NULL) != 1) {
        plm_digest_destroy(digest);
        return NULL;
    }
    return digest;
}

void plm_digest_begin(struct plm_digest *digest)
{
    digest->client->DigestInit_ex(digest->md, digest->client->sha256(), NULL);
}

void plm_digest_add(struct plm_digest *digest, const void *data, size_t len)
{
    digest->client->DigestUpdate(digest->md, data, len);
}

void plm_digest_end(struct plm_digest *digest, char hex[PLM_HUB_HASH_DIGITS + 1])
{
    unsigned char bytes[PLM_HUB_HASH_DIGITS / 2] = {0};
    digest->client->DigestFinal_ex(digest->md, bytes, NULL);
    for (size_t i = 0; i < sizeof(bytes); i++)
        snprintf(hex + 2 * i, 3, "%02x", bytes[i]);
}

void plm_digest_destroy(struct plm_digest *digest)
{
    if (digest == NULL)
        return;
    digest->client->MD_CTX_free(digest->md);
    free(digest);
}
