// SPDX-License-Identifier: Apache-2.0
// What programs of the Hugging Face world are told by their environment.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "tools/pull/cache.h"
#include "tools/pull/models.h"
#include "tools/term.h"

static const char *variable(const char *name)
{
    const char *value = getenv(name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

static bool is_true(const char *name)
{
    static const char *const words[] = {"1", "on", "yes", "true"};
    const char *value = variable(name);
    for (size_t i = 0; value != NULL && i < sizeof(words) / sizeof(words[0]); i++) {
        if (strcasecmp(value, words[i]) == 0)
            return true;
    }
    return false;
}

bool plm_hub_is_offline(void)
{
    return is_true("HF_HUB_OFFLINE");
}

// Without blanks at both ends. False: longer than there is room, or with characters that no token
// has and that would be more than a header's value. It is never said which.
static bool take_token(const char *text, char *out, size_t cap)
{
    static const char blanks[] = " \t\r\n";
    text += strspn(text, blanks);
    size_t len = strlen(text);
    while (len > 0 && strchr(blanks, text[len - 1]) != NULL)
        len--;
    if (len >= cap)
        return false;
    for (size_t i = 0; i < len; i++) {
        if (text[i] <= ' ' || text[i] > '~')
            return false;
    }
    memcpy(out, text, len);
    out[len] = '\0';
    return true;
}

// The file that `hf auth login` writes. None is no mistake.
static bool token_of_file(char *out, size_t cap)
{
    char text[1024] = "";
    char *path = NULL, *home = plm_cache_hf_home();
    if (variable("HF_TOKEN_PATH") != NULL)
        path = strdup(variable("HF_TOKEN_PATH"));
    else if (home == NULL || asprintf(&path, "%s/token", home) < 0)
        path = NULL;
    FILE *file = path != NULL ? fopen(path, "rbe") : NULL;
    if (file != NULL) {
        text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
        fclose(file);
    }
    free(path);
    free(home);
    return take_token(text, out, cap);
}

static bool read_token(struct plm_hub_access *access)
{
    const char *token = variable("HF_TOKEN");
    if (token == NULL)
        token = variable("HUGGING_FACE_HUB_TOKEN");
    if (token != NULL)
        return take_token(token, access->token, sizeof(access->token));
    return is_true("HF_HUB_DISABLE_IMPLICIT_TOKEN") ||
           token_of_file(access->token, sizeof(access->token));
}

bool plm_hub_access_read(const struct plm_model_source *source, struct plm_hub_access *ret)
{
    const char *endpoint = source->endpoint != NULL ? source->endpoint : variable("HF_ENDPOINT");
    if (endpoint == NULL)
        endpoint = "https://huggingface.co";
    size_t len = strlen(endpoint);
    while (len > 0 && endpoint[len - 1] == '/')
        len--;
    bool ok = len < sizeof(ret->endpoint) &&
              (strncmp(endpoint, "https://", 8) == 0 || strncmp(endpoint, "http://", 7) == 0);
    for (size_t i = 0; i < len && ok; i++)
        ok = endpoint[i] > ' ' && endpoint[i] <= '~' && endpoint[i] != '?' && endpoint[i] != '#' &&
             endpoint[i] != '@';
    if (!ok) {
        plm_term_say("plimsoll %s: the hub's address (HF_ENDPOINT, --endpoint) is not one such as "
                     "https://huggingface.co",
                     source->command);
        return false;
    }
    *ret = (struct plm_hub_access){.token = ""};
    memcpy(ret->endpoint, endpoint, len);
    if (read_token(ret))
        return true;
    plm_term_say("plimsoll %s: the token (HF_TOKEN or its file) is none: it is too long or holds "
                 "blanks or control characters",
                 source->command);
    return false;
}

const char *plm_hub_token_for(const struct plm_hub_access *access, struct plm_client *client,
                              const char *url)
{
    const size_t len = strlen(access->endpoint);
    const bool hub = strncmp(url, access->endpoint, len) == 0 && url[len] == '/';
    return access->token[0] != '\0' && hub && plm_client_is_private(client, url) ? access->token
                                                                                 : NULL;
}

int plm_fetch_exit(enum plm_fetch_result result)
{
    if (result == PLM_FETCH_STOPPED)
        return 128 + plm_stop_is_wanted();
    return result == PLM_FETCH_DONE ? 0 : 1;
}
