// SPDX-License-Identifier: Apache-2.0
#include "tools/serve/fields.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum kind { HONOURED_KIND, HINT_KIND, REFUSED_KIND };

// Values that ask for nothing, as fields.def calls them.
enum neutral {
    ZERO = 1,
    ONE = 2,
    MINUS = 4,
    NO = 8,
    YES = 16,
    EMPTY = 32,
    NONE = 64,
    AUTO = 128,
    AS_N = 256,
};

enum {
    CHAT = PLM_FIELDS_CHAT,
    TEXT = PLM_FIELDS_TEXT,
    TOKENIZE = PLM_FIELDS_TOKENIZE,
    DETOKENIZE = PLM_FIELDS_DETOKENIZE,
    TEMPLATE = PLM_FIELDS_TEMPLATE,
    SLEEP = PLM_FIELDS_SLEEP,
    WAKE = PLM_FIELDS_WAKE,
};

struct field {
    enum kind kind;
    unsigned formats;
    const char *name;
    unsigned neutral;
    const char *instead;
};

#define HONOURED(formats, name, sample) {HONOURED_KIND, (formats), name, 0, ""},
#define HINT(formats, name, sample)     {HINT_KIND, (formats), name, 0, ""},
#define REFUSED(formats, name, neutral, sample, instead)                                           \
    {REFUSED_KIND, (formats), name, (neutral), instead},

static const struct field fields[] = {
#include "tools/serve/fields.def"
};

#define FIELDS_N (sizeof(fields) / sizeof(fields[0]))

// ---- what was named ----

// Clients may make up names without end: so many are remembered, and after them none is named.
#define NAMED_MAX 256

// Longer names of unknown fields are cut.
#define NAME_BYTES 64

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static char named[NAMED_MAX][NAME_BYTES];
static size_t n_named;
static void (*tell_ignored)(const char *name, bool known);

void plm_fields_on_ignored(void (*tell)(const char *name, bool known))
{
    tell_ignored = tell;
}

static void ignore(const char *name, bool known)
{
    bool is_new = false;
    if (tell_ignored == NULL)
        return;
    pthread_mutex_lock(&mutex);
    if (n_named < NAMED_MAX) {
        size_t i = 0;
        while (i < n_named && strcmp(named[i], name) != 0)
            i++;
        is_new = i == n_named;
        if (is_new)
            snprintf(named[n_named++], NAME_BYTES, "%s", name);
    }
    pthread_mutex_unlock(&mutex);
    if (is_new)
        tell_ignored(name, known);
}

// ---- judging ----

static bool is_word(const struct plm_json_value *v, const char *word)
{
    const size_t n = strlen(word);
    return v->len == n + 2 && memcmp(v->ptr + 1, word, n) == 0;
}

static bool same_number(const struct plm_json_value *v, const struct plm_json_value *n)
{
    return plm_json_double(v) == (n != NULL && n->type == PLM_JSON_NUMBER ? plm_json_double(n) : 1);
}

static bool is_neutral(const struct plm_json_doc *doc, const struct plm_json_value *v,
                       unsigned neutral)
{
    switch (v->type) {
    case PLM_JSON_NULL: return true;
    case PLM_JSON_BOOL: return (neutral & (plm_json_is_true(v) ? YES : NO)) != 0;
    case PLM_JSON_NUMBER: {
        const double d = plm_json_double(v);
        return ((neutral & ZERO) != 0 && d == 0) || ((neutral & ONE) != 0 && d == 1) ||
               ((neutral & MINUS) != 0 && d == -1) ||
               ((neutral & AS_N) != 0 && same_number(v, plm_json_get(doc, "n")));
    }
    case PLM_JSON_STRING:
        return ((neutral & EMPTY) != 0 && v->len == 2) ||
               ((neutral & NONE) != 0 && is_word(v, "none")) ||
               ((neutral & AUTO) != 0 && is_word(v, "auto"));
    case PLM_JSON_ARRAY:
    case PLM_JSON_OBJECT: return (neutral & EMPTY) != 0 && v->nodes == 1;
    }
    return false;
}

// The line of the table, or NULL.
static const struct field *find(const struct plm_json_member *member, const char *inside,
                                enum plm_fields_format format)
{
    const size_t skip = inside != NULL ? strlen(inside) + 1 : 0;
    for (size_t i = 0; i < FIELDS_N; i++) {
        const char *name = fields[i].name;
        if ((fields[i].formats & (unsigned)format) == 0)
            continue;
        if (inside != NULL && (strncmp(name, inside, skip - 1) != 0 || name[skip - 1] != '.'))
            continue;
        if (plm_json_key_is(member, name + skip))
            return &fields[i];
    }
    return NULL;
}

static void ignore_unknown(const struct plm_json_member *member, const char *inside)
{
    char name[NAME_BYTES];
    const int n = snprintf(name, sizeof(name), "%s%s%.*s", inside != NULL ? inside : "",
                           inside != NULL ? "." : "",
                           (int)(member->key_len < 63 ? member->key_len : 63), member->key);
    // Whatever a client sends, a line of the log stays a line.
    for (int i = 0; i < n && name[i] != '\0'; i++)
        name[i] = name[i] > ' ' && name[i] < 0x7F ? name[i] : '?';
    ignore(name, false);
}

bool plm_fields_judge(const struct plm_json_doc *doc, enum plm_fields_format format,
                      const char *inside, struct plm_api_error *error)
{
    for (size_t i = 0; i < doc->n; i++) {
        const struct plm_json_member *member = &doc->members[i];
        const struct field *field = find(member, inside, format);
        if (member->value.type == PLM_JSON_NULL)
            continue;
        if (field == NULL) {
            ignore_unknown(member, inside);
        } else if (field->kind == HINT_KIND) {
            ignore(field->name, true);
        } else if (field->kind == REFUSED_KIND &&
                   !is_neutral(doc, &member->value, field->neutral)) {
            const bool advice = field->instead[0] != '\0';
            plm_api_error_invalid(error, field->name, "%s is not supported by this server%s%s",
                                  field->name, advice ? ": " : "", field->instead);
            error->code = "unsupported";
            return false;
        }
    }
    return true;
}
