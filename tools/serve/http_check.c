// SPDX-License-Identifier: Apache-2.0
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "tools/serve/http_impl.h"

struct seen {
    unsigned fields, hosts, lengths, encodings;
    bool bad_name, bad_value, bad_length, bad_encoding, bad_host;
};

// RFC 9110, 5.6.2: the characters of a field name. A blank before the colon arrives here as part of
// the name.
static bool is_token(const char *s, size_t n)
{
    static const char others[] = "!#$%&'*+-.^_`|~";
    for (size_t i = 0; i < n; i++) {
        char c = s[i];
        bool alnum = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        if (!alnum && (c == '\0' || strchr(others, c) == NULL))
            return false;
    }
    return n > 0;
}

static bool is_digits(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (s[i] < '0' || s[i] > '9')
            return false;
    }
    return n > 0;
}

static bool has_control(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s[i];
        if ((c < 0x20 && c != '\t') || c == 0x7F)
            return true;
    }
    return false;
}

static bool is_name(const char *key, size_t n, const char *name)
{
    return n == strlen(name) && strncasecmp(key, name, n) == 0;
}

static enum MHD_Result look(void *cls, enum MHD_ValueKind kind, const char *key, size_t key_size,
                            const char *value, size_t value_size)
{
    (void)kind;
    struct seen *seen = cls;
    seen->fields++;
    if (value == NULL) {
        value = "";
        value_size = 0;
    }
    seen->bad_name |= !is_token(key, key_size);
    seen->bad_value |= has_control(value, value_size);
    if (is_name(key, key_size, "host")) {
        seen->hosts++;
        seen->bad_host |= value_size == 0 || memchr(value, ' ', value_size) != NULL ||
                          memchr(value, ',', value_size) != NULL;
    } else if (is_name(key, key_size, "content-length")) {
        seen->lengths++;
        seen->bad_length |= !is_digits(value, value_size);
    } else if (is_name(key, key_size, "transfer-encoding")) {
        seen->encodings++;
        seen->bad_encoding |= !is_name(value, value_size, "chunked");
    }
    return MHD_YES;
}

int plm_http_check(struct MHD_Connection *mhd, const char *version, const char **why)
{
    struct seen seen = {0};
    MHD_get_connection_values_n(mhd, MHD_HEADER_KIND, look, &seen);
    bool http11 = strcmp(version, "HTTP/1.1") == 0;
    const struct {
        bool wrong;
        int status;
        const char *why;
    } rules[] = {
        {!http11 && strcmp(version, "HTTP/1.0") != 0, 400, "only HTTP/1.1 and 1.0 are spoken"},
        {seen.fields > PLM_HTTP_FIELDS_MAX, 431, "more than 100 header fields"},
        {seen.bad_name, 400, "a header field name is malformed"},
        {seen.bad_value, 400, "a header field has a control character"},
        {seen.hosts == 0 && http11, 400, "the Host header is missing"},
        {seen.hosts > 1, 400, "more than one Host header"},
        {seen.bad_host, 400, "the Host header is malformed"},
        {seen.lengths > 1, 400, "more than one Content-Length header"},
        {seen.bad_length, 400, "the Content-Length header is not a number"},
        {seen.encodings > 0 && seen.lengths > 0, 400,
         "Content-Length together with Transfer-Encoding"},
        {seen.encodings > 1 || seen.bad_encoding, 400,
         "the only Transfer-Encoding that is understood is chunked"},
        {seen.encodings > 0 && !http11, 400, "Transfer-Encoding needs HTTP/1.1"},
    };
    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
        if (rules[i].wrong) {
            *why = rules[i].why;
            return rules[i].status;
        }
    }
    return 0;
}

const char *plm_http_target_path(const char *target)
{
    size_t scheme = strncasecmp(target, "http://", 7) == 0    ? 7
                    : strncasecmp(target, "https://", 8) == 0 ? 8
                                                              : 0;
    if (scheme == 0)
        return target;
    const char *path = strchr(target + scheme, '/');
    return path != NULL ? path : "/";
}
