// SPDX-License-Identifier: Apache-2.0
// Compares the words into which the pre-tokenizers cut texts with those of an independent regular
// expression engine: splits FILE.jsonl, or - for standard input (tests/data/splits/README.md).
// Exit: 0 all equal, 1 not.
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/status.h"
#include "core/tokenizer/tok_split.h"

#define RULES_MAX   64
#define SHOWN_LINES 20 // of those that fail

static struct plm_tok_pre pres[RULES_MAX];
static size_t n_rules;

static const struct plm_tok_pre *find(const char *name, size_t n)
{
    for (size_t i = 0; i < n_rules; i++)
        if (plm_slice_eq_str((struct plm_slice){name, n}, pres[i].rule->name))
            return &pres[i];
    return NULL;
}

// Whether the words have these numbers of bytes, and nothing is left.
static bool words_are(const struct plm_tok_pre *pre, struct plm_slice text,
                      struct json_object *lengths)
{
    struct plm_tok_words words;
    struct plm_slice word;
    plm_tok_words_init(&words, pre, text);
    for (size_t i = 0; i < json_object_array_length(lengths); i++) {
        int64_t want = json_object_get_int64(json_object_array_get_idx(lengths, i));
        if (!plm_tok_words_next(&words, &word) || word.len != (uint64_t)want)
            return false;
    }
    return !plm_tok_words_next(&words, &word);
}

struct counts {
    long passed;
    long failed;
};

// The rules that have one expression.
struct expression {
    const struct plm_tok_pre *pres[RULES_MAX];
    size_t n;
};

static struct expression expressions[RULES_MAX];
static size_t n_expressions;

// Each item names the rules of an expression, with commas between them; the rule of files without a
// name is the empty one. False: one is unknown, or one is missing.
static bool read_rules(struct json_object *list)
{
    size_t n = 0;
    n_expressions = json_object_array_length(list);
    if (n_expressions > RULES_MAX)
        return false;
    for (size_t i = 0; i < n_expressions; i++) {
        struct expression *expression = &expressions[i];
        for (const char *at = json_object_get_string(json_object_array_get_idx(list, i));; at++) {
            size_t len = strcspn(at, ",");
            const struct plm_tok_pre *pre = find(at, len);
            if (pre == NULL || expression->n == RULES_MAX)
                return false;
            expression->pres[expression->n++] = pre;
            n++;
            at += len;
            if (*at == '\0')
                break;
        }
    }
    return n == n_rules;
}

static void run_line(struct json_object *line, long number, struct counts *counts)
{
    struct json_object *object = NULL;
    struct json_object *splits = NULL;
    json_object_object_get_ex(line, "text", &object);
    json_object_object_get_ex(line, "splits", &splits);
    if (splits == NULL || json_object_array_length(splits) != n_expressions) {
        printf("line %ld is not of %zu expressions\n", number, n_expressions);
        counts->failed++;
        return;
    }
    const struct plm_slice text = {json_object_get_string(object),
                                   (size_t)json_object_get_string_len(object)};
    for (size_t i = 0; i < n_expressions; i++) {
        struct json_object *lengths = json_object_array_get_idx(splits, i);
        for (size_t j = 0; j < expressions[i].n; j++) {
            bool ok = words_are(expressions[i].pres[j], text, lengths);
            counts->passed += ok;
            counts->failed += !ok;
            if (!ok && counts->failed <= SHOWN_LINES)
                printf("line %ld, %s: %s %s\n", number, expressions[i].pres[j]->rule->name,
                       json_object_get_string(object), json_object_to_json_string(lengths));
        }
    }
}

int main(int argc, char **argv)
{
    FILE *file = argc != 2 ? NULL : strcmp(argv[1], "-") == 0 ? stdin : fopen(argv[1], "rb");
    if (file == NULL) {
        fprintf(stderr, "usage: splits FILE.jsonl (which must exist), or -\n");
        return 1;
    }
    const struct plm_tok_rule *rule;
    for (; n_rules < RULES_MAX && (rule = plm_tok_rule_at(n_rules)) != NULL; n_rules++)
        plm_tok_pre_init(&pres[n_rules], rule);
    struct counts counts = {0, 0};
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    struct json_tokener *parser = json_tokener_new();
    long number = 0;
    while ((n = getline(&line, &cap, file)) > 0) {
        json_tokener_reset(parser);
        struct json_object *object = json_tokener_parse_ex(parser, line, (int)n);
        struct json_object *rules = NULL;
        if (number == 0 &&
            (!json_object_object_get_ex(object, "rules", &rules) || !read_rules(rules))) {
            printf("the first line does not name each of the %zu rules once\n", n_rules);
            counts.failed++;
            json_object_put(object);
            break;
        }
        if (number > 0)
            run_line(object, number, &counts);
        number++;
        json_object_put(object);
    }
    json_tokener_free(parser);
    free(line);
    if (file != stdin)
        fclose(file);
    printf("%ld texts: %ld passed, %ld failed, 0 skipped\n", number > 0 ? number - 1 : 0,
           counts.passed, counts.failed);
    return counts.failed == 0 && counts.passed > 0 ? 0 : 1;
}
