// SPDX-License-Identifier: Apache-2.0
// The tokens that are found in the text before anything else: control tokens and user-defined ones.
// As in the reference implementation of the models' makers the leftmost match wins, and of those
// the longest.
#include <string.h>

#include "core/base/utf8.h"
#include "core/tokenizer/tok.h"

// A longer one would make finding it quadratic; real ones have some tens of bytes.
#define MAX_SPECIAL_BYTES 1024

// Tokens named [PADn], where n is their id, fill a vocabulary up to a round size and never occur.
static bool is_filler(struct plm_slice text, int32_t id)
{
    if (text.len < 6 || memcmp(text.ptr, "[PAD", 4) != 0 || text.ptr[text.len - 1] != ']')
        return false;
    int64_t n = 0;
    for (size_t i = 4; i + 1 < text.len; i++) {
        if (text.ptr[i] < '0' || text.ptr[i] > '9' || n > INT32_MAX)
            return false;
        n = n * 10 + (text.ptr[i] - '0');
    }
    return n == id;
}

static bool text_is_one_of(struct plm_slice text, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (plm_slice_eq_str(text, list[i]))
            return true;
    return false;
}

bool plm_tok_ends_turn(struct plm_slice text)
{
    static const char *const texts[] = {
        "<|endoftext|>",
        "<|end_of_text|>",
        "<|eot_id|>",
        "<|eom_id|>",
        "<|im_end|>",
        "<|end|>",
        "<end_of_turn>",
        "<turn|>",
        "<|return|>",
        "<|call|>",
        "<|eot|>",
        "<|eom|>",
        "<|endofturn|>",
        "<|END_OF_TURN_TOKEN|>",
        "<EOT>",
        "_<EOT>",
        "<|EOT|>",
        "[EOT]",
        "<end_of_utterance>",
        "<｜end▁of▁sentence｜>",
    };
    return text_is_one_of(text, texts, sizeof(texts) / sizeof(*texts));
}

// Text that is cut at a special token must stay valid UTF-8, so a token that is not never matches.
static bool is_special(const struct plm_tok_vocab *vocab, int32_t id)
{
    uint8_t type = vocab->type[id];
    struct plm_slice text = plm_tok_string(&vocab->text, id);
    return (type == PLM_TOK_TYPE_CONTROL || type == PLM_TOK_TYPE_UNKNOWN ||
            type == PLM_TOK_TYPE_USER_DEFINED) &&
           text.len > 0 && !is_filler(text, id) &&
           plm_utf8_valid_prefix(text.ptr, text.len) == text.len;
}

static int compare(const struct plm_tok_vocab *vocab, int32_t a, int32_t b)
{
    struct plm_slice x = plm_tok_string(&vocab->text, a);
    struct plm_slice y = plm_tok_string(&vocab->text, b);
    int order = memcmp(x.ptr, y.ptr, x.len < y.len ? x.len : y.len);
    if (order != 0)
        return order;
    if (x.len != y.len)
        return x.len < y.len ? -1 : 1;
    return a < b ? -1 : a > b; // of tokens that are spelled alike the first is kept
}

// Heap sort: the comparison needs the vocabulary, which qsort does not pass on, and the order of a
// hostile vocabulary must not make it slow.
static void sift_down(struct plm_tok_special *items, const struct plm_tok_vocab *vocab, uint32_t i,
                      uint32_t n)
{
    for (uint32_t child = 2 * i + 1; child < n; child = 2 * i + 1) {
        if (child + 1 < n && compare(vocab, items[child].id, items[child + 1].id) < 0)
            child++;
        if (compare(vocab, items[i].id, items[child].id) >= 0)
            return;
        struct plm_tok_special item = items[i];
        items[i] = items[child];
        items[child] = item;
        i = child;
    }
}

static void sort_items(struct plm_tok_special *items, const struct plm_tok_vocab *vocab, uint32_t n)
{
    for (uint32_t i = n / 2; i-- > 0;)
        sift_down(items, vocab, i, n);
    for (uint32_t end = n; end > 1; end--) {
        struct plm_tok_special item = items[0];
        items[0] = items[end - 1];
        items[end - 1] = item;
        sift_down(items, vocab, 0, end - 1);
    }
}

int plm_tok_specials_build(struct plm_tok_specials *specials, const struct plm_tok_vocab *vocab,
                           struct plm_host *host, bool rstrip_chat, struct plm_error *err)
{
    // With rstrip_chat all but these swallow the white space behind them.
    static const char *const plain[] = {"<unk>", "<s>", "<|endoftext|>"};
    uint32_t n = 0;
    for (int32_t i = 0; i < vocab->n; i++)
        n += is_special(vocab, i);
    specials->items = plm_calloc(host, PLM_HOST_TOKENIZER, (size_t)n + 1, sizeof(*specials->items));
    if (specials->items == NULL)
        return plm_tok_no_memory(err);
    n = 0;
    for (int32_t i = 0; i < vocab->n; i++) {
        if (!is_special(vocab, i))
            continue;
        struct plm_slice text = plm_tok_string(&vocab->text, i);
        if (text.len > MAX_SPECIAL_BYTES)
            return plm_fail(err, PLM_ERR_LIMIT, "special token %d has %zu bytes; at most %d", i,
                            text.len, MAX_SPECIAL_BYTES);
        specials->items[n++] = (struct plm_tok_special){
            .id = i,
            .control = vocab->type[i] != PLM_TOK_TYPE_USER_DEFINED,
            .rstrip = rstrip_chat && !text_is_one_of(text, plain, sizeof(plain) / sizeof(*plain)),
        };
    }
    sort_items(specials->items, vocab, n);
    for (uint32_t i = 0; i < n; i++) {
        int32_t id = specials->items[i].id;
        if (specials->n > 0 &&
            plm_slice_eq(plm_tok_string(&vocab->text, specials->items[specials->n - 1].id),
                         plm_tok_string(&vocab->text, id)))
            continue;
        specials->items[specials->n++] = specials->items[i];
    }
    uint32_t at = 0;
    for (unsigned byte = 0; byte < 256; byte++) {
        specials->first[byte] = at;
        while (at < specials->n &&
               (unsigned char)plm_tok_string(&vocab->text, specials->items[at].id).ptr[0] == byte)
            at++;
    }
    specials->first[256] = at;
    return PLM_OK;
}

void plm_tok_specials_finish(struct plm_tok_specials *specials, struct plm_host *host)
{
    plm_free(host, specials->items);
}

// The first item in [lo, hi), all of which share their first depth bytes and are longer, whose
// next byte is at least byte.
static uint32_t lower_bound(const struct plm_tok_specials *specials,
                            const struct plm_tok_vocab *vocab, uint32_t lo, uint32_t hi,
                            size_t depth, unsigned byte)
{
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        struct plm_slice text = plm_tok_string(&vocab->text, specials->items[mid].id);
        if ((unsigned char)text.ptr[depth] < byte)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

const struct plm_tok_special *plm_tok_specials_match(const struct plm_tok_specials *specials,
                                                     const struct plm_tok_vocab *vocab,
                                                     struct plm_slice text, size_t control_bytes)
{
    const struct plm_tok_special *best = NULL;
    unsigned char byte = (unsigned char)text.ptr[0];
    uint32_t lo = specials->first[byte];
    uint32_t hi = specials->first[byte + 1];
    for (size_t depth = 1; lo < hi; depth++) {
        const struct plm_tok_special *item = &specials->items[lo];
        if (plm_tok_string(&vocab->text, item->id).len == depth) {
            if (!item->control || depth <= control_bytes)
                best = item;
            lo++;
        }
        if (depth == text.len)
            break;
        byte = (unsigned char)text.ptr[depth];
        lo = lower_bound(specials, vocab, lo, hi, depth, byte);
        hi = lower_bound(specials, vocab, lo, hi, depth, byte + 1u);
    }
    return best;
}
