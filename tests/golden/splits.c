// SPDX-License-Identifier: Apache-2.0
// Compares the words into which the pre-tokenizers cut texts with those of an independent regular
// expression engine: splits FILE.jsonl. Exit: 0 all equal, 1 not.
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/model/tok.h"

static const char *const rules[] = {"gpt-2", "smollm", "qwen2", "llama-bpe"};
#define N_RULES (sizeof(rules) / sizeof(*rules))

static struct plm_slice slice_of(struct json_object *string)
{
    return (struct plm_slice){json_object_get_string(string),
                              (size_t)json_object_get_string_len(string)};
}

// Whether the interpreter, which matches where executable memory is forbidden, finds the same word.
static bool interpreter_agrees(const struct plm_tok_pre *pre, struct plm_tok_scratch *scratch,
                               struct plm_slice text, size_t at, size_t n)
{
    int found =
        pcre2_match(pre->code, (PCRE2_SPTR)text.ptr, text.len, at,
                    PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, scratch->match, scratch->match_context);
    return found > 0 && pcre2_get_ovector_pointer(scratch->match)[1] == at + n;
}

// False where a word differs.
static bool run_case(const struct plm_tok_pre *pre, struct plm_tok_scratch *scratch,
                     struct plm_slice text, struct json_object *words)
{
    size_t at = 0;
    for (size_t i = 0; i < json_object_array_length(words); i++) {
        struct plm_slice want = slice_of(json_object_array_get_idx(words, i));
        size_t n = 0;
        if (at >= text.len || plm_tok_pre_next(pre, scratch, text, at, &n, NULL) != PLM_OK ||
            !plm_slice_eq((struct plm_slice){text.ptr + at, n}, want) ||
            !interpreter_agrees(pre, scratch, text, at, n))
            return false;
        at += n;
    }
    return at == text.len;
}

static bool run_line(struct json_object *line, long number, const struct plm_tok_pre *pres,
                     struct plm_tok_scratch *scratch, long *passed)
{
    struct json_object *text;
    bool ok = json_object_object_get_ex(line, "text", &text);
    for (size_t i = 0; i < N_RULES && ok; i++) {
        struct json_object *words;
        ok = json_object_object_get_ex(line, rules[i], &words) &&
             run_case(&pres[i], &scratch[i], slice_of(text), words);
        if (!ok)
            printf("line %ld, %s: %s\n", number, rules[i], json_object_get_string(text));
        *passed += ok;
    }
    return ok;
}

int main(int argc, char **argv)
{
    FILE *file = argc == 2 ? fopen(argv[1], "rb") : NULL;
    struct plm_host *host = plm_host_create(0);
    struct plm_tok_pre pres[N_RULES] = {0};
    struct plm_tok_scratch scratch[N_RULES];
    if (file == NULL) {
        fprintf(stderr, "usage: splits FILE.jsonl (which must exist)\n");
        return 1;
    }
    bool ok = true;
    for (size_t i = 0; i < N_RULES; i++) {
        struct plm_slice name = {rules[i], strlen(rules[i])};
        ok = plm_tok_pre_init(&pres[i], host, name, NULL) == PLM_OK && ok;
        plm_tok_scratch_init(&scratch[i], host);
    }
    long passed = 0;
    long failed = 0;
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    for (long number = 1; ok && (n = getline(&line, &cap, file)) > 0; number++) {
        struct json_tokener *parser = json_tokener_new();
        struct json_object *object = json_tokener_parse_ex(parser, line, (int)n);
        failed += object == NULL || !run_line(object, number, pres, scratch, &passed);
        json_object_put(object);
        json_tokener_free(parser);
    }
    for (size_t i = 0; i < N_RULES; i++) {
        plm_tok_scratch_finish(&scratch[i]);
        plm_tok_pre_finish(&pres[i]);
    }
    free(line);
    fclose(file);
    ok = plm_host_destroy(host) == 0 && ok;
    printf("%ld passed, %ld failed, 0 skipped\n", passed, failed);
    return ok && failed == 0 && passed > 0 ? 0 : 1;
}
