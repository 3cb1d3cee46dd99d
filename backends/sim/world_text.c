// SPDX-License-Identifier: Apache-2.0
#include "backends/sim/world_text.h"

#include <string.h>

#include "core/base/checked.h"

#define SHOWN_MAX 40 // bytes of a word that a message repeats

static int shown(struct plm_slice word)
{
    return word.len < SHOWN_MAX ? (int)word.len : SHOWN_MAX;
}

int plm_world_bad_word(struct plm_world_text *p, struct plm_slice word, const char *why)
{
    return plm_fail(p->err, PLM_ERR_FORMAT, "line %u: '%.*s' %s", p->line, shown(word), word.ptr,
                    why);
}

int plm_world_bad_line(struct plm_world_text *p, const char *why)
{
    return plm_fail(p->err, PLM_ERR_FORMAT, "line %u: %s", p->line, why);
}

int plm_world_too_many(struct plm_world_text *p, const char *what, uint32_t max)
{
    return plm_fail(p->err, PLM_ERR_LIMIT, "line %u: more than %u %s", p->line, max, what);
}

// ---- words ----

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

// Takes one word, quoted or bare, from the rest of the line.
static int take_word(struct plm_world_text *p, const char **at, const char *eol)
{
    if (p->n == PLM_WORLD_WORDS_MAX)
        return plm_world_too_many(p, "words", PLM_WORLD_WORDS_MAX);
    const char *from = *at;
    if (*from != '"') {
        while (*at < eol && !is_blank(**at) && **at != '#' && **at != '"')
            (*at)++;
        if (*at < eol && **at == '"')
            return plm_world_bad_line(p, "a quote stands inside a word");
        p->words[p->n++] = (struct plm_slice){from, (size_t)(*at - from)};
        return PLM_OK;
    }
    const char *quote = memchr(from + 1, '"', (size_t)(eol - from - 1));
    if (quote == NULL)
        return plm_world_bad_line(p, "a quote is not closed");
    p->words[p->n++] = (struct plm_slice){from + 1, (size_t)(quote - from - 1)};
    *at = quote + 1;
    return PLM_OK;
}

bool plm_world_next_line(struct plm_world_text *p, int *ret)
{
    p->n = p->next = 0;
    *ret = PLM_OK;
    if (p->at == p->end)
        return false;
    const char *eol = memchr(p->at, '\n', (size_t)(p->end - p->at));
    const char *at = p->at;
    if (eol == NULL)
        eol = p->end;
    p->at = eol < p->end ? eol + 1 : eol;
    p->line++;
    for (const char *c = at; c < eol; c++) {
        if ((unsigned char)*c < ' ' && !is_blank(*c)) {
            *ret = plm_world_bad_line(p, "holds a control character");
            return true;
        }
    }
    while (*ret == PLM_OK && at < eol && *at != '#') {
        if (is_blank(*at))
            at++;
        else
            *ret = take_word(p, &at, eol);
    }
    return true;
}

int plm_world_take_word(struct plm_world_text *p, const char *what, struct plm_slice *ret)
{
    if (p->next == p->n)
        return plm_fail(p->err, PLM_ERR_FORMAT, "line %u: %s is missing after '%.*s'", p->line,
                        what, shown(p->words[p->n - 1]), p->words[p->n - 1].ptr);
    *ret = p->words[p->next++];
    return PLM_OK;
}

bool plm_world_next_is(const struct plm_world_text *p, const char *text)
{
    return p->next < p->n && plm_slice_eq_str(p->words[p->next], text);
}

int plm_world_copy_text(struct plm_world_text *p, struct plm_slice from, char *ret, size_t cap)
{
    if (from.len >= cap)
        return plm_fail(p->err, PLM_ERR_LIMIT, "line %u: '%.*s' is longer than %zu bytes", p->line,
                        shown(from), from.ptr, cap - 1);
    memcpy(ret, from.ptr, from.len);
    ret[from.len] = '\0';
    return PLM_OK;
}

int plm_world_take_name(struct plm_world_text *p, const char *const *names, const char *what,
                        uint32_t *ret)
{
    struct plm_slice w = {0};
    int r = plm_world_take_word(p, what, &w);
    if (r != PLM_OK)
        return r;
    for (uint32_t i = 0; names[i] != NULL; i++) {
        if (plm_slice_eq_str(w, names[i])) {
            *ret = i;
            return PLM_OK;
        }
    }
    char why[64] = "is no ";
    strncat(why, what, sizeof(why) - strlen(why) - 1);
    return plm_world_bad_word(p, w, why);
}

// ---- numbers ----

bool plm_world_digits(struct plm_slice *rest, uint64_t *ret)
{
    uint64_t value = 0;
    size_t n = 0;
    for (; n < rest->len && rest->ptr[n] >= '0' && rest->ptr[n] <= '9'; n++) {
        if (!plm_mul_u64(value, 10, &value) ||
            !plm_add_u64(value, (uint64_t)(rest->ptr[n] - '0'), &value))
            return false;
    }
    *rest = (struct plm_slice){rest->ptr + n, rest->len - n};
    *ret = value;
    return n > 0;
}

// A number with a unit; a bare one counts where `bare` is above 0.
static int scaled(struct plm_world_text *p, struct plm_slice from,
                  const struct plm_world_unit *units, uint64_t bare, const char *why, uint64_t *ret)
{
    struct plm_slice rest = from;
    uint64_t value, factor = 0;
    if (!plm_world_digits(&rest, &value))
        return plm_world_bad_word(p, from, why);
    if (rest.len == 0)
        factor = value == 0 ? 1 : bare; // nothing is nothing in every unit
    for (uint32_t i = 0; units[i].word != NULL; i++) {
        if (plm_slice_eq_str(rest, units[i].word))
            factor = units[i].factor;
    }
    if (factor == 0)
        return plm_world_bad_word(p, from, why);
    if (!plm_mul_u64(value, factor, &value) || value > INT64_MAX)
        return plm_world_bad_word(p, from, "does not fit into 63 bits");
    *ret = value;
    return PLM_OK;
}

int plm_world_size_from(struct plm_world_text *p, struct plm_slice from, uint64_t *ret)
{
    return scaled(p, from, plm_world_sizes, 1, "is no size (as 512KiB, 3MiB, 24GiB)", ret);
}

int plm_world_time_from(struct plm_world_text *p, struct plm_slice from, uint64_t *ret)
{
    return scaled(p, from, plm_world_times, 0, "is no time (as 5us, 20ms, 1s)", ret);
}

static int number_from(struct plm_world_text *p, struct plm_slice from, uint64_t max, uint64_t *ret)
{
    struct plm_slice rest = from;
    if (!plm_world_digits(&rest, ret) || rest.len > 0 || *ret > max)
        return plm_world_bad_word(p, from, "is no number, or too large a one");
    return PLM_OK;
}

int plm_world_take_number(struct plm_world_text *p, uint64_t max, uint64_t *ret)
{
    struct plm_slice w = {0};
    int r = plm_world_take_word(p, "a number", &w);
    return r == PLM_OK ? number_from(p, w, max, ret) : r;
}

int plm_world_take_size(struct plm_world_text *p, uint64_t *ret)
{
    struct plm_slice w = {0};
    int r = plm_world_take_word(p, "a size", &w);
    return r == PLM_OK ? plm_world_size_from(p, w, ret) : r;
}

// ---- statements by table ----

static int take_type(struct plm_world_text *p, enum plm_type *ret)
{
    uint32_t i = 0;
    int r = plm_world_take_name(p, plm_world_types, "type of a tensor", &i);
    if (r == PLM_OK)
        *ret = plm_world_type_values[i];
    return r;
}

int plm_world_take_value(struct plm_world_text *p, enum plm_world_kind kind, void *member)
{
    static const char *const yes_no[] = {"no", "yes", NULL};
    static const char *const commits[] = {"hard", "soft", NULL};
    struct plm_slice w = {0};
    uint64_t value = 0;
    uint32_t i = 0;
    int r;
    switch (kind) {
    case PLM_WORLD_SIZE: return plm_world_take_size(p, member);
    case PLM_WORLD_TIME:
        r = plm_world_take_word(p, "a time", &w);
        if (r == PLM_OK)
            r = plm_world_time_from(p, w, &value);
        *(int64_t *)member = (int64_t)value;
        return r;
    case PLM_WORLD_U64: return plm_world_take_number(p, UINT64_MAX, member);
    case PLM_WORLD_U32:
        r = plm_world_take_number(p, UINT32_MAX, &value);
        *(uint32_t *)member = (uint32_t)value;
        return r;
    case PLM_WORLD_BOOL:
        r = plm_world_take_name(p, yes_no, "yes or no", &i);
        *(bool *)member = i != 0;
        return r;
    case PLM_WORLD_COMMIT:
        r = plm_world_take_name(p, commits, "kind of commit (hard, soft)", &i);
        *(enum plm_commit *)member = (enum plm_commit)i;
        return r;
    case PLM_WORLD_TYPE: return take_type(p, member);
    }
    return PLM_ERR_INTERNAL;
}

int plm_world_take_field(struct plm_world_text *p, const struct plm_world_field *fields,
                         void *object, bool *ret_taken)
{
    *ret_taken = false;
    for (; p->next < p->n && fields->word != NULL; fields++) {
        if (!plm_world_next_is(p, fields->word))
            continue;
        p->next++;
        *ret_taken = true;
        return plm_world_take_value(p, fields->kind, (char *)object + fields->offset);
    }
    return PLM_OK;
}

void *plm_world_grow(struct plm_world_text *p, void *items, uint32_t n, size_t item_bytes)
{
    if (n > 0 && (n & (n - 1)) != 0)
        return items;
    return plm_realloc(p->host, PLM_HOST_OTHER, items, (n > 0 ? 2 * (size_t)n : 1) * item_bytes);
}

int plm_world_no_memory(struct plm_world_text *p)
{
    return plm_fail(p->err, PLM_ERR_NOMEM_HOST, "line %u: no host memory for the world", p->line);
}
