// SPDX-License-Identifier: Apache-2.0
// Text to tokens. White space follows Jinja with trim_blocks and lstrip_blocks on, which is how
// chat templates are rendered everywhere.
#include <stdio.h>
#include <string.h>

#include <utf8proc.h>

#include "core/base/utf8.h"
#include "core/template/ast.h"

struct lexer {
    struct plm_tload *p;
    const char *s; // the source
    size_t n;
    size_t at;
    uint32_t line;
    size_t line_at;  // position up to which lines were counted
    bool line_start; // what came before ended in a newline, or nothing came before
    char closers[256];
    size_t n_closers;
};

static uint32_t line_of(struct lexer *x, size_t at)
{
    for (; x->line_at < at; x->line_at++)
        x->line += x->s[x->line_at] == '\n';
    return x->line;
}

static bool fail(struct lexer *x, size_t at, const char *what)
{
    return plm_tload_fail(x->p, PLM_ERR_FORMAT, line_of(x, at), "%s", what);
}

static bool emit(struct lexer *x, enum plm_ttoken_type type, size_t at, struct plm_slice text)
{
    struct plm_tload *p = x->p;
    struct plm_ttoken *grown =
        plm_tarena_more(&p->tmpl->arena, p->tokens, p->n_tokens, &p->cap_tokens, sizeof(*grown));
    if (grown == NULL)
        return plm_tload_nomem(p);
    p->tokens = grown;
    p->tokens[p->n_tokens++] =
        (struct plm_ttoken){.type = type, .line = line_of(x, at), .text = text};
    return true;
}

static bool has(const struct lexer *x, size_t at, const char *text)
{
    size_t n = strlen(text);
    return n <= x->n - at && memcmp(x->s + at, text, n) == 0;
}

// Length of the white space at `at`.
static size_t space_at(const struct lexer *x, size_t at)
{
    size_t from = at;
    while (at < x->n) {
        uint32_t cp;
        size_t n = plm_tstr_next(x->s + at, x->s + x->n, &cp);
        if (!plm_cp_is_space(cp))
            break;
        at += n;
    }
    return at - from;
}

// Length of the end of a tag at `at` (0: none): "+%}", "-%}" with the white space after it, "%}"
// with one newline. `end` is "%}", "#}" or "}}"; the last knows neither + nor the newline.
static size_t tag_end(const struct lexer *x, size_t at, const char *end)
{
    bool var = end[0] == '}';
    if (at >= x->n)
        return 0;
    if (x->s[at] == '-' && has(x, at + 1, end))
        return 3 + space_at(x, at + 3);
    if (x->s[at] == '+' && !var && has(x, at + 1, end))
        return 3;
    if (!has(x, at, end))
        return 0;
    return 2 + (!var && at + 2 < x->n && x->s[at + 2] == '\n');
}

// Emits the text [from, to) that stands before a tag with that sign.
static bool emit_data(struct lexer *x, size_t from, size_t to, char sign, bool var)
{
    size_t end = to;
    if (sign == '-') {
        while (end > from) {
            uint32_t cp;
            size_t n = plm_tstr_prev(x->s + from, x->s + end, &cp);
            if (!plm_cp_is_space(cp))
                break;
            end -= n;
        }
    } else if (sign != '+' && !var) {
        size_t start = to;
        while (start > from && x->s[start - 1] != '\n')
            start--;
        if ((start > from || x->line_start) && space_at(x, start) >= to - start)
            end = start;
    }
    return end == from || emit(x, PLM_TOK_DATA, from, (struct plm_slice){x->s + from, end - from});
}

static bool is_word(uint32_t cp)
{
    if (cp < 0x80)
        return cp == '_' || (cp >= '0' && cp <= '9') || ((cp | 0x20) >= 'a' && (cp | 0x20) <= 'z');
    utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);
    return c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_NO;
}

static size_t digits_at(const struct lexer *x, size_t at)
{
    size_t i = at;
    while (i < x->n && ((x->s[i] >= '0' && x->s[i] <= '9') ||
                        (x->s[i] == '_' && i > at && i + 1 < x->n && x->s[i + 1] >= '0' &&
                         x->s[i + 1] <= '9' && x->s[i - 1] != '_')))
        i++;
    return i - at;
}

static size_t float_at(const struct lexer *x, size_t at)
{
    size_t n = digits_at(x, at);
    if (n == 0 || (at > 0 && x->s[at - 1] == '.'))
        return 0;
    size_t i = at + n;
    bool point = false;
    if (i < x->n && x->s[i] == '.' && digits_at(x, i + 1) > 0) {
        i += 1 + digits_at(x, i + 1);
        point = true;
    }
    if (i < x->n && (x->s[i] | 0x20) == 'e') {
        size_t e = i + 1;
        if (e < x->n && (x->s[e] == '+' || x->s[e] == '-'))
            e++;
        if (digits_at(x, e) > 0)
            return e + digits_at(x, e) - at;
    }
    return point ? i - at : 0;
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

// Decodes the escape after a backslash at s; returns the bytes read (0: malformed) and writes the
// text of it to out.
static size_t unescape(const char *s, size_t n, char out[12], size_t *ret_n)
{
    static const char from[] = "\\'\"abfnrtv";
    static const char to[] = "\\'\"\a\b\f\n\r\t\v";
    const char *hit = memchr(from, s[0], sizeof(from) - 1);
    *ret_n = 1;
    if (hit != NULL) {
        out[0] = to[hit - from];
        return 1;
    }
    if (s[0] == '\n') {
        *ret_n = 0;
        return 1;
    }
    uint32_t cp = 0;
    size_t used = 0;
    if (s[0] >= '0' && s[0] <= '7') {
        while (used < 3 && used < n && s[used] >= '0' && s[used] <= '7')
            cp = cp * 8 + (uint32_t)(s[used++] - '0');
    } else if (s[0] == 'x' || s[0] == 'u' || s[0] == 'U') {
        size_t digits = s[0] == 'x' ? 2 : s[0] == 'u' ? 4 : 8;
        if (n < digits + 1)
            return 0;
        for (used = 1; used <= digits; used++) {
            int h = hex_value(s[used]);
            if (h < 0)
                return 0;
            cp = cp * 16 + (uint32_t)h;
        }
    } else if ((unsigned char)s[0] < 0x80) {
        out[0] = '\\'; // an unknown escape stays as it is
        out[1] = s[0];
        *ret_n = 2;
        return s[0] == 'N' ? 0 : 1;
    } else {
        // Jinja writes what is beyond ASCII as an escape before it reads escapes, so that the
        // backslash before it escapes that one's.
        used = plm_utf8_decode(s, n, &cp);
        *ret_n = (size_t)snprintf(out, 12,
                                  cp <= 0xFF     ? "\\x%02x"
                                  : cp <= 0xFFFF ? "\\u%04x"
                                                 : "\\U%08x",
                                  (unsigned)cp);
        return used;
    }
    if (cp > 0x10FFFF)
        return 0;
    if (cp >= 0xD800 && cp <= 0xDFFF)
        cp = 0xFFFD; // half a surrogate pair has no UTF-8
    *ret_n = plm_utf8_encode(cp, out);
    return used;
}

// Fails at the escape that s begins with. Python knows characters by their names (\N{BULLET}), in a
// table that is larger than all of this.
static bool fail_escape(struct lexer *x, size_t at, struct plm_slice s)
{
    const char *end =
        s.len > 4 && s.ptr[1] == 'N' && s.ptr[2] == '{' ? memchr(s.ptr + 3, '}', s.len - 3) : NULL;
    if (end == NULL || end == s.ptr + 3)
        return fail(x, at, "malformed escape in a string");
    const size_t n = (size_t)(end - s.ptr) + 1;
    return plm_tload_fail(x->p, PLM_ERR_UNSUPPORTED, line_of(x, at),
                          "a character by its name, %.*s, is not supported", (int)(n < 80 ? n : 80),
                          s.ptr);
}

static bool lex_string(struct lexer *x)
{
    size_t begin = x->at;
    char quote = x->s[begin];
    size_t end = begin + 1;
    bool escapes = false;
    while (end < x->n && x->s[end] != quote) {
        escapes |= x->s[end] == '\\';
        end += x->s[end] == '\\' ? 2 : 1;
    }
    if (end >= x->n)
        return fail(x, begin, "string without its closing quote");
    x->at = end + 1;
    struct plm_slice text = {x->s + begin + 1, end - begin - 1};
    if (!escapes)
        return emit(x, PLM_TOK_STRING, begin, text);
    // No escape is twice as long as what it was written with.
    char *out = plm_tload_alloc(x->p, 2 * text.len + 1, 1);
    if (out == NULL)
        return false;
    size_t n = 0;
    for (size_t i = 0; i < text.len;) {
        if (text.ptr[i] != '\\') {
            out[n++] = text.ptr[i++];
            continue;
        }
        char raw[12];
        size_t raw_n;
        size_t used = unescape(text.ptr + i + 1, text.len - i - 1, raw, &raw_n);
        if (used == 0)
            return fail_escape(x, begin, (struct plm_slice){text.ptr + i, text.len - i});
        memcpy(out + n, raw, raw_n);
        n += raw_n;
        i += 1 + used;
    }
    return emit(x, PLM_TOK_STRING, begin, (struct plm_slice){out, n});
}

static bool lex_operator(struct lexer *x)
{
    static const char *const ops[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                      "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                      ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};
    for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
        if (!has(x, x->at, ops[i]))
            continue;
        char c = ops[i][0];
        if (c == '(' || c == '[' || c == '{') {
            if (x->n_closers == sizeof(x->closers))
                return plm_tload_fail(x->p, PLM_ERR_LIMIT, line_of(x, x->at),
                                      "brackets nested too deeply");
            x->closers[x->n_closers++] = c == '(' ? ')' : c == '[' ? ']' : '}';
        } else if (c == ')' || c == ']' || c == '}') {
            if (x->n_closers == 0 || x->closers[--x->n_closers] != c)
                return fail(x, x->at, "closing bracket that does not match");
        }
        size_t at = x->at;
        x->at += strlen(ops[i]);
        return emit(x, PLM_TOK_OP, at, (struct plm_slice){ops[i], strlen(ops[i])});
    }
    uint32_t cp;
    size_t n = plm_tstr_next(x->s + x->at, x->s + x->n, &cp);
    return plm_tload_fail(x->p, PLM_ERR_FORMAT, line_of(x, x->at), "unexpected character '%.*s'",
                          (int)n, x->s + x->at);
}

// One token inside a tag.
static bool lex_token(struct lexer *x)
{
    uint32_t cp;
    size_t at = x->at;
    size_t n = float_at(x, at);
    if (n > 0) {
        x->at += n;
        return emit(x, PLM_TOK_FLOAT, at, (struct plm_slice){x->s + at, n});
    }
    if (x->s[at] >= '0' && x->s[at] <= '9') {
        n = digits_at(x, at);
        const char base = (char)(at + 2 < x->n ? x->s[at + 1] | 0x20 : 0);
        if (x->s[at] == '0' && ((base == 'x' && hex_value(x->s[at + 2]) >= 0) ||
                                ((base == 'o' || base == 'b') && digits_at(x, at + 2) > 0)))
            return plm_tload_fail(x->p, PLM_ERR_UNSUPPORTED, line_of(x, at),
                                  "numbers of base 16, 8 and 2 are not supported");
        if (n > 1 && x->s[at] == '0') // 007, of which Python knows no more than 0
            return fail(x, at, "a number with leading zeros");
        x->at += n;
        return emit(x, PLM_TOK_INT, at, (struct plm_slice){x->s + at, n});
    }
    n = 0;
    while (at + n < x->n) {
        size_t c = plm_tstr_next(x->s + at + n, x->s + x->n, &cp);
        if (!is_word(cp))
            break;
        n += c;
    }
    if (n > 0) {
        x->at += n;
        return emit(x, PLM_TOK_NAME, at, (struct plm_slice){x->s + at, n});
    }
    if (x->s[at] == '\'' || x->s[at] == '"')
        return lex_string(x);
    return lex_operator(x);
}

// The inside of {{ }} or {% %}, up to and with its end.
static bool lex_tag(struct lexer *x, size_t begin, bool var)
{
    const char *end = var ? "}}" : "%}";
    if (!emit(x, var ? PLM_TOK_VAR_BEGIN : PLM_TOK_BLOCK_BEGIN, begin, PLM_SLICE("")))
        return false;
    x->n_closers = 0;
    for (;;) {
        size_t n = x->n_closers == 0 ? tag_end(x, x->at, end) : 0;
        if (n > 0) {
            size_t at = x->at;
            x->at += n;
            x->line_start = x->s[x->at - 1] == '\n';
            return emit(x, var ? PLM_TOK_VAR_END : PLM_TOK_BLOCK_END, at, PLM_SLICE(""));
        }
        x->at += space_at(x, x->at);
        if (x->at >= x->n)
            return fail(x, begin, var ? "'{{' without '}}'" : "'{%' without '%}'");
        n = x->n_closers == 0 ? tag_end(x, x->at, end) : 0;
        if (n == 0 && !lex_token(x))
            return false;
    }
}

static char sign_at(const struct lexer *x, size_t at)
{
    return at < x->n && (x->s[at] == '-' || x->s[at] == '+') ? x->s[at] : '\0';
}

static bool lex_comment(struct lexer *x, size_t begin)
{
    if (x->at == x->n) // opened by the very last bytes: Jinja lets it be
        return true;
    for (size_t at = x->at; at < x->n; at++) {
        size_t n = tag_end(x, at, "#}");
        if (n == 0)
            continue;
        x->at = at + n;
        x->line_start = x->s[x->at - 1] == '\n';
        return true;
    }
    return fail(x, begin, "comment without '#}'");
}

// If a raw tag starts at `at`, returns its length, with the white space that "-%}" takes.
static size_t raw_begin(const struct lexer *x, size_t at)
{
    size_t i = at + 2 + (sign_at(x, at + 2) != '\0');
    i += space_at(x, i);
    if (!has(x, i, "raw"))
        return 0;
    i += 3;
    i += space_at(x, i);
    if (has(x, i, "%}"))
        return i + 2 - at;
    return has(x, i, "-%}") ? i + 3 + space_at(x, i + 3) - at : 0;
}

static bool lex_raw(struct lexer *x, size_t begin)
{
    x->line_start = x->s[x->at - 1] == '\n';
    size_t from = x->at;
    if (from == x->n)
        return true;
    for (size_t at = from; at < x->n; at++) {
        if (!has(x, at, "{%"))
            continue;
        char sign = sign_at(x, at + 2);
        size_t i = at + 2 + (sign != '\0');
        i += space_at(x, i);
        if (!has(x, i, "endraw"))
            continue;
        i += 6;
        i += space_at(x, i);
        size_t n = tag_end(x, i, "%}");
        if (n == 0)
            continue;
        if (!emit_data(x, from, at, sign, false))
            return false;
        x->at = i + n;
        x->line_start = x->s[x->at - 1] == '\n';
        return true;
    }
    return fail(x, begin, "'raw' without 'endraw'");
}

bool plm_tload_lex(struct plm_tload *p)
{
    struct lexer x = {
        .p = p, .s = p->source.ptr, .n = p->source.len, .line = 1, .line_start = true};
    while (x.at < x.n) {
        size_t from = x.at;
        size_t tag = from;
        while (tag < x.n && !(x.s[tag] == '{' && tag + 1 < x.n &&
                              (x.s[tag + 1] == '{' || x.s[tag + 1] == '%' || x.s[tag + 1] == '#')))
            tag++;
        if (tag == x.n) {
            if (!emit(&x, PLM_TOK_DATA, from, (struct plm_slice){x.s + from, tag - from}))
                return false;
            break;
        }
        char type = x.s[tag + 1];
        char sign = sign_at(&x, tag + 2);
        if (!emit_data(&x, from, tag, sign, type == '{'))
            return false;
        x.at = tag + 2 + (sign != '\0');
        bool ok;
        size_t raw = type == '%' ? raw_begin(&x, tag) : 0;
        if (raw > 0) {
            x.at = tag + raw;
            ok = lex_raw(&x, tag);
        } else {
            ok = type == '#' ? lex_comment(&x, tag) : lex_tag(&x, tag, type == '{');
        }
        if (!ok)
            return false;
    }
    return emit(&x, PLM_TOK_EOF, x.n, PLM_SLICE(""));
}
