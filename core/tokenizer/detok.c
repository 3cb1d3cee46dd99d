// SPDX-License-Identifier: Apache-2.0
// Ids to text, at once and as a stream.
#include <string.h>

#include "core/base/utf8.h"
#include "core/tokenizer/tok.h"

#define REPLACEMENT "\xEF\xBF\xBD" // U+FFFD

// The bytes that id adds; *at_start says, before and after, whether nothing was written yet.
static struct plm_slice next_piece(const struct plm_tokenizer *tokenizer, int32_t id,
                                   bool skip_control, bool *at_start)
{
    struct plm_slice piece = plm_tokenizer_piece(tokenizer, id);
    if (piece.len == 0 || (skip_control && plm_tokenizer_is_control(tokenizer, id)))
        return (struct plm_slice){piece.ptr, 0};
    if (*at_start && tokenizer->kind == PLM_TOK_SPM && tokenizer->space_prefix &&
        piece.ptr[0] == ' ') {
        piece.ptr++;
        piece.len--;
    }
    *at_start = false;
    return piece;
}

int plm_tokenizer_decode(const struct plm_tokenizer *tokenizer, const int32_t *ids, size_t n,
                         bool skip_control, struct plm_buf *out)
{
    bool at_start = true;
    for (size_t i = 0; i < n; i++)
        plm_buf_append_slice(out, next_piece(tokenizer, ids[i], skip_control, &at_start));
    return out->failed ? PLM_ERR_NOMEM_HOST : PLM_OK;
}

void plm_detok_init(struct plm_detok *detok, const struct plm_tokenizer *tokenizer,
                    bool skip_control, bool at_start)
{
    *detok = (struct plm_detok){
        .tokenizer = tokenizer, .skip_control = skip_control, .at_start = at_start};
}

// Whether n bytes at s (1 to 3) may still become a character. The second byte decides about
// overlong forms, surrogates and the end of Unicode.
static bool is_unfinished(const char *s, size_t n)
{
    unsigned char lead = (unsigned char)s[0];
    size_t len = lead < 0xC2 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF5 ? 4 : 0;
    if (n >= len)
        return false;
    char filled[4] = {0};
    memcpy(filled, s, n);
    // The rest can be chosen freely; only after the lead byte alone does the choice matter.
    static const char rest[] = {'\x80', '\xA0', '\x90'};
    for (size_t i = 0; i < sizeof(rest); i++) {
        uint32_t cp;
        memset(filled + n, rest[i], len - n);
        if (plm_utf8_decode(filled, len, &cp) == len)
            return true;
    }
    return false;
}

static void push_byte(struct plm_detok *detok, char byte, struct plm_buf *out)
{
    if (detok->n_held > 0) {
        uint32_t cp;
        detok->held[detok->n_held] = byte;
        size_t n = detok->n_held + 1u;
        if (plm_utf8_decode(detok->held, n, &cp) == n) {
            plm_buf_append(out, detok->held, n);
            detok->n_held = 0;
            return;
        }
        if (n < sizeof(detok->held) && is_unfinished(detok->held, n)) {
            detok->n_held = (uint8_t)n;
            return;
        }
        // What was held can not go on with this byte, which may start something new.
        plm_buf_append_str(out, REPLACEMENT);
        detok->n_held = 0;
    }
    if ((unsigned char)byte < 0x80) {
        plm_buf_append_char(out, byte);
    } else if (is_unfinished(&byte, 1)) {
        detok->held[0] = byte;
        detok->n_held = 1;
    } else {
        plm_buf_append_str(out, REPLACEMENT);
    }
}

void plm_detok_push(struct plm_detok *detok, int32_t id, struct plm_buf *out)
{
    struct plm_slice piece =
        next_piece(detok->tokenizer, id, detok->skip_control, &detok->at_start);
    if (detok->n_held == 0) {
        size_t valid = plm_utf8_valid_prefix(piece.ptr, piece.len);
        plm_buf_append(out, piece.ptr, valid);
        piece.ptr += valid;
        piece.len -= valid;
    }
    for (size_t i = 0; i < piece.len; i++)
        push_byte(detok, piece.ptr[i], out);
}

void plm_detok_flush(struct plm_detok *detok, struct plm_buf *out)
{
    if (detok->n_held > 0)
        plm_buf_append_str(out, REPLACEMENT);
    detok->n_held = 0;
}
