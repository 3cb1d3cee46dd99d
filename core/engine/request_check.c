// SPDX-License-Identifier: Apache-2.0
#include "core/engine/request_check.h"

#include <stdio.h>
#include <string.h>

#include "core/base/utf8.h"
#include "core/engine/error.h"

#define BIAS_MAX       4096   // entries of logit_bias
#define SALT_BYTES_MAX 1024   // of cache_salt
#define BIAS_ABS_MAX   100.0f // the OpenAI range

static int check_range(plim_error *err, const char *param, float value, float lo, float hi)
{
    if (value >= lo && value <= hi) // false for NaN
        return PLIM_OK;
    return plm_error_set(err, PLIM_ERR_INVALID, param, "%s is %g; it must be between %g and %g",
                         param, (double)value, (double)lo, (double)hi);
}

static int check_sampling(const plim_request_opts *o, plim_error *err)
{
    const struct {
        const char *param;
        float value, lo, hi;
    } ranges[] = {
        // A penalty of 0 would divide by it; beyond these bounds text is noise anyway.
        {"temperature", o->temperature, 0.0f, 100.0f},
        {"top_p", o->top_p, 0.0f, 1.0f},
        {"min_p", o->min_p, 0.0f, 1.0f},
        {"repeat_penalty", o->repeat_penalty, 0.01f, 100.0f},
        {"frequency_penalty", o->frequency_penalty, -2.0f, 2.0f},
        {"presence_penalty", o->presence_penalty, -2.0f, 2.0f},
    };
    for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++) {
        int r = check_range(err, ranges[i].param, ranges[i].value, ranges[i].lo, ranges[i].hi);
        if (r != PLIM_OK)
            return r;
    }
    if (o->top_logprobs > PLIM_TOP_LOGPROBS_MAX)
        return plm_error_set(err, PLIM_ERR_INVALID, "top_logprobs",
                             "top_logprobs is %u; the largest is %d", o->top_logprobs,
                             PLIM_TOP_LOGPROBS_MAX);
    return PLIM_OK;
}

// A count without its list is a slip of the caller, and no reason to fall.
static int check_present(const plim_request_opts *o, plim_error *err)
{
    const struct {
        const char *param;
        size_t n;
        bool present;
    } lists[] = {
        {"prompt", o->n_tokens, o->tokens != NULL},
        {"logit_bias", o->n_logit_bias, o->logit_bias != NULL},
        {"stop", o->n_stop, o->stop != NULL},
        {"stop_tokens", o->n_stop_tokens, o->stop_tokens != NULL},
        {"bad_words", o->n_bad_words, o->bad_words != NULL},
    };
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        if (lists[i].n > 0 && !lists[i].present)
            return plm_error_set(err, PLIM_ERR_INVALID, lists[i].param,
                                 "%s: %zu entries are announced, but the list is NULL",
                                 lists[i].param, lists[i].n);
    }
    return PLIM_OK;
}

static int check_texts(const char *name, const plim_text *texts, size_t n, size_t most,
                       plim_error *err)
{
    char param[64];
    if (n > most)
        return plm_error_set(err, PLIM_ERR_INVALID, name, "%s has %zu strings; the most are %zu",
                             name, n, most);
    for (size_t i = 0; i < n; i++) {
        snprintf(param, sizeof(param), "%s[%zu]", name, i);
        if (texts[i].ptr == NULL)
            return plm_error_null(err, param);
        if (texts[i].len == 0 || texts[i].len > PLM_REQUEST_TEXT_BYTES)
            return plm_error_set(err, PLIM_ERR_INVALID, param,
                                 "%s must have 1 to %d bytes, this one has %zu", param,
                                 PLM_REQUEST_TEXT_BYTES, texts[i].len);
        if (plm_utf8_valid_prefix(texts[i].ptr, texts[i].len) != texts[i].len)
            return plm_error_set(err, PLIM_ERR_INVALID, param, "%s is not valid UTF-8", param);
    }
    return PLIM_OK;
}

static int check_lists(const plim_request_opts *o, uint32_t n_vocab, plim_error *err)
{
    if (o->n_logit_bias > BIAS_MAX)
        return plm_error_set(err, PLIM_ERR_INVALID, "logit_bias",
                             "logit_bias has %zu entries; the most are %d", o->n_logit_bias,
                             BIAS_MAX);
    for (size_t i = 0; i < o->n_logit_bias; i++) {
        const plim_logit_bias *b = &o->logit_bias[i];
        if (b->token < 0 || (uint32_t)b->token >= n_vocab)
            return plm_error_set(err, PLIM_ERR_INVALID, "logit_bias",
                                 "logit_bias names token %d; the vocabulary has %u", b->token,
                                 n_vocab);
        if (!(b->bias >= -BIAS_ABS_MAX && b->bias <= BIAS_ABS_MAX))
            return plm_error_set(err, PLIM_ERR_INVALID, "logit_bias",
                                 "the bias of token %d is %g; it must be between -100 and 100",
                                 b->token, (double)b->bias);
    }
    int r = check_texts("stop", o->stop, o->n_stop, PLIM_STOP_MAX, err);
    if (r == PLIM_OK)
        r = check_texts("bad_words", o->bad_words, o->n_bad_words, PLIM_BAD_WORDS_MAX, err);
    if (r != PLIM_OK)
        return r;
    if (o->n_stop_tokens > PLIM_STOP_TOKENS_MAX)
        return plm_error_set(err, PLIM_ERR_INVALID, "stop_tokens",
                             "stop_tokens has %zu tokens; the most are %d", o->n_stop_tokens,
                             PLIM_STOP_TOKENS_MAX);
    for (size_t i = 0; i < o->n_stop_tokens; i++) {
        if (o->stop_tokens[i] < 0 || (uint32_t)o->stop_tokens[i] >= n_vocab)
            return plm_error_set(err, PLIM_ERR_INVALID, "stop_tokens",
                                 "stop_tokens names token %d; the vocabulary has %u",
                                 o->stop_tokens[i], n_vocab);
    }
    if (o->cache_salt != NULL && strnlen(o->cache_salt, SALT_BYTES_MAX + 1) > SALT_BYTES_MAX)
        return plm_error_set(err, PLIM_ERR_INVALID, "cache_salt",
                             "cache_salt has more than %d bytes", SALT_BYTES_MAX);
    return PLIM_OK;
}

int plm_request_check(const plim_request_opts *o, uint32_t n_vocab, plim_error *err)
{
    unsigned sources =
        (o->chat_json != NULL) + (o->prompt != NULL) + (o->tokens != NULL || o->n_tokens > 0);
    if (sources != 1)
        return plm_error_set(err, PLIM_ERR_INVALID, "prompt",
                             "exactly one of chat_json, prompt and tokens must be given");
    if (o->n < 1 || o->n > PLIM_N_MAX)
        return plm_error_set(err, PLIM_ERR_INVALID, "n", "n is %u; it must be between 1 and %d",
                             o->n, PLIM_N_MAX);
    if (o->max_tokens != 0 && o->min_tokens > o->max_tokens)
        return plm_error_set(err, PLIM_ERR_INVALID, "min_tokens",
                             "min_tokens is %u, more than max_tokens (%u)", o->min_tokens,
                             o->max_tokens);
    int r = check_sampling(o, err);
    if (r == PLIM_OK)
        r = check_present(o, err);
    return r == PLIM_OK ? check_lists(o, n_vocab, err) : r;
}
