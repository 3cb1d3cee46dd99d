// SPDX-License-Identifier: Apache-2.0
// Normalization to NFC. utf8proc decomposes and composes characters; the ordering of marks is our
// own, since utf8proc's takes quadratic time on long runs of them.
#include <string.h>
#include <utf8proc.h>

#include "core/base/utf8.h"
#include "core/tokenizer/tok.h"

// Lead byte of U+0300. Every character below that is in NFC, whatever stands around it, except that
// marks may follow it.
#define FIRST_MARK_LEAD 0xCC
// A canonical decomposition has at most 4 code points (UAX 15, Unicode 15).
#define MAX_DECOMPOSED 4

static int combining_class(int32_t cp)
{
    return utf8proc_get_property(cp)->combining_class;
}

// Sorts a run of marks by class and keeps the order within a class; temp holds n code points.
static void order_run(int32_t *cps, size_t n, int32_t *temp)
{
    if (n < 16) {
        for (size_t i = 1; i < n; i++) {
            int32_t cp = cps[i];
            size_t j = i;
            for (; j > 0 && combining_class(cps[j - 1]) > combining_class(cp); j--)
                cps[j] = cps[j - 1];
            cps[j] = cp;
        }
        return;
    }
    size_t at[257] = {0};
    for (size_t i = 0; i < n; i++)
        at[combining_class(cps[i]) + 1]++;
    for (int i = 0; i < 256; i++)
        at[i + 1] += at[i];
    for (size_t i = 0; i < n; i++)
        temp[at[combining_class(cps[i])]++] = cps[i];
    memcpy(cps, temp, n * sizeof(*cps));
}

static void order_marks(int32_t *cps, size_t n, int32_t *temp)
{
    for (size_t i = 0; i < n;) {
        size_t end = i;
        while (end < n && combining_class(cps[end]) != 0)
            end++;
        if (end - i > 1)
            order_run(cps + i, end - i, temp);
        i = end > i ? end : i + 1;
    }
}

static bool reserve(struct plm_tok_scratch *scratch, size_t n)
{
    if (n <= scratch->cps_cap)
        return true;
    int32_t *cps = plm_realloc(scratch->host, PLM_HOST_TOKENIZER, scratch->cps, n * sizeof(*cps));
    if (cps == NULL)
        return false;
    scratch->cps = cps;
    scratch->cps_cap = n;
    return true;
}

// Appends the NFC form of part, whose neighbours on both sides do not interact with it.
static bool append_normalized(struct plm_tok_scratch *scratch, struct plm_slice part)
{
    size_t n = 0;
    for (size_t at = 0; at < part.len;) {
        uint32_t cp = 0;
        at += plm_utf8_decode(part.ptr + at, part.len - at, &cp);
        if (n + MAX_DECOMPOSED > scratch->cps_cap &&
            !reserve(scratch, n + n / 2 + 64 * MAX_DECOMPOSED))
            return false;
        int boundclass = 0;
        utf8proc_ssize_t got =
            utf8proc_decompose_char((int32_t)cp, scratch->cps + n, MAX_DECOMPOSED,
                                    UTF8PROC_DECOMPOSE | UTF8PROC_STABLE, &boundclass);
        if (got < 0 || got > MAX_DECOMPOSED)
            scratch->cps[n++] = (int32_t)cp;
        else
            n += (size_t)got;
    }
    if (!reserve(scratch, 2 * n))
        return false;
    order_marks(scratch->cps, n, scratch->cps + n);
    utf8proc_ssize_t composed = utf8proc_normalize_utf32(scratch->cps, (utf8proc_ssize_t)n,
                                                         UTF8PROC_COMPOSE | UTF8PROC_STABLE);
    for (utf8proc_ssize_t i = 0; i < composed; i++) {
        char bytes[4];
        plm_buf_append(&scratch->text, bytes, plm_utf8_encode((uint32_t)scratch->cps[i], bytes));
    }
    return !scratch->text.failed;
}

static bool has_marks(struct plm_slice part)
{
    for (size_t i = 0; i < part.len; i++)
        if ((unsigned char)part.ptr[i] >= FIRST_MARK_LEAD)
            return true;
    return false;
}

int plm_tok_nfc(struct plm_tok_scratch *scratch, struct plm_slice *text, struct plm_error *err)
{
    if (!has_marks(*text))
        return PLM_OK;
    plm_buf_clear(&scratch->text);
    for (size_t at = 0; at < text->len;) {
        // ASCII never composes with what stands before it, so parts begin at each ASCII character.
        size_t end = at;
        while (end < text->len && (unsigned char)text->ptr[end] < 0x80)
            end++;
        size_t plain = end < text->len && end > at ? end - 1 - at : end - at;
        if (!plm_buf_append(&scratch->text, text->ptr + at, plain))
            return plm_tok_no_memory(err);
        at += plain;
        while (end < text->len && (unsigned char)text->ptr[end] >= 0x80)
            end++;
        struct plm_slice part = {text->ptr + at, end - at};
        if (!(has_marks(part) ? append_normalized(scratch, part)
                              : plm_buf_append_slice(&scratch->text, part)))
            return plm_tok_no_memory(err);
        at = end;
    }
    *text = (struct plm_slice){scratch->text.data, scratch->text.len};
    return PLM_OK;
}
