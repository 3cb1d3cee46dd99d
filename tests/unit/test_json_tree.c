// SPDX-License-Identifier: Apache-2.0
// What trees of json-c are charged, held against what malloc gives out for them.
#include <check.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/json_tree.h"
#include "tests/support/heap.h"
#include "tests/support/suite.h"

// A text of n times `part`, with `sep` between, in `head` and `tail`. A '#' in the part becomes a
// number, so that names differ.
static char *repeat(const char *head, const char *part, const char *sep, const char *tail, size_t n)
{
    const size_t each = strlen(part) + strlen(sep) + 16;
    char *text = malloc(strlen(head) + strlen(tail) + n * each + 1), *at = text;
    at += sprintf(at, "%s", head);
    for (size_t i = 0; i < n; i++) {
        at += sprintf(at, "%s", i > 0 ? sep : "");
        for (const char *p = part; *p != '\0'; p++) {
            if (*p == '#')
                at += sprintf(at, "%zu", i);
            else
                *at++ = *p;
        }
    }
    sprintf(at, "%s", tail);
    return text;
}

static const struct shape {
    const char *head, *part, *sep, *tail;
} SHAPES[] = {
    {"[", "1", ",", "]"},
    {"[", "1.5", ",", "]"},
    {"[", "-1e-300", ",", "]"},
    {"[", "true", ",", "]"},
    {"[", "null", ",", "]"},
    {"[", "\"\"", ",", "]"},
    {"[", "\"a few words that are no short string\"", ",", "]"},
    {"[", "\"\\u00e9\\ud83d\\ude00\\n\"", ",", "]"},
    {"[", "[]", ",", "]"},
    {"[", "{}", ",", "]"},
    {"[", "[[[[1]]]]", ",", "]"},
    {"[", "{\"a\":{\"b\":{\"c\":null}}}", ",", "]"},
    {"{", "\"#\":null", ",", "}"},
    {"{", "\"a name of some length #\":\"#\"", ",", "}"},
    {"{", "\"#\":[{}]", ",", "}"},
    {"{", "\"same\":1", ",", "}"},
    {"[", "{\"role\":\"user\",\"content\":\"word #\"}", ",", "]"},
    {"\"", "x", "", "\""},
    {"[\"", "\\\\", "", "\"]"},
    {"1.", "1", "", ""},
    {"", "[", "", ""},
    // What ends in an error was made up to there.
    {"[", "{\"a\":1}", ",", ",]"},
    {"[", "{\"a\":1,", "\"b\":", "nul]"},
    {"{", "\"#\":{}", ",", ",'\":{}}"},
    {"", "]", "", "{}"},
};

// Parses a text; the most that was held must be within what was charged.
static void hold(struct plm_host *host, const char *text)
{
    struct plm_json_tree tree;
    struct plm_host_stats stats;
    struct plm_json_cost cost = {0};
    const struct plm_slice slice = {text, strlen(text)};
    plm_json_tree_init(&tree, host, PLM_HOST_REQUEST);
    const bool measured = plm_json_measure(slice, UINT32_MAX, &cost, NULL) == PLM_OK;
    const size_t before = heap_bytes();
    heap_peak();
    const int r = plm_json_tree_parse(&tree, slice, &tree.root, NULL);
    const size_t most = heap_peak() - before, kept = heap_bytes() - before;
    plm_host_read(host, &stats);
    ck_assert_int_eq(stats.used_bytes, tree.bytes);
    if (r != PLM_OK)
        ck_assert_int_eq(tree.bytes, 0);
    ck_assert_msg(kept <= (size_t)tree.bytes, "%.40s: %zu bytes kept, %lld charged", text, kept,
                  (long long)tree.bytes);
    // The copy of a text with pairs is charged by its own allocation.
    const size_t copy = strstr(text, "\\ud") != NULL ? slice.len + PLM_HOST_HEAD_BYTES + 16 : 0;
    if (measured)
        ck_assert_msg(most <= (size_t)(cost.tree_bytes + cost.parse_bytes) + copy,
                      "%.40s: %zu bytes at most, %lld charged", text, most,
                      (long long)(cost.tree_bytes + cost.parse_bytes));
    plm_json_tree_finish(&tree);
    plm_host_read(host, &stats);
    ck_assert_int_eq(stats.used_bytes, 0);
    ck_assert_uint_eq(heap_bytes(), before);
}

START_TEST(charge_covers_what_a_text_becomes)
{
    static const size_t counts[] = {0,  1,  2,  10,  11,  12,  21,   22,   31,  32,
                                    33, 42, 43, 100, 170, 338, 1000, 1353, 5000};
    struct plm_host *host = plm_host_create(0);
    const struct shape *s = &SHAPES[_i];
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        char *text = repeat(s->head, s->part, s->sep, s->tail, counts[i]);
        hold(host, text);
        free(text);
    }
    ck_assert_int_eq(plm_host_destroy(host), 0);
}
END_TEST

// The same, of texts cut anywhere.
START_TEST(charge_covers_texts_that_end_early)
{
    struct plm_host *host = plm_host_create(0);
    const struct shape *s = &SHAPES[_i];
    char *text = repeat(s->head, s->part, s->sep, s->tail, 12);
    for (size_t len = strlen(text); len-- > 0;) {
        text[len] = '\0';
        hold(host, text);
    }
    free(text);
    ck_assert_int_eq(plm_host_destroy(host), 0);
}
END_TEST

START_TEST(charge_is_not_wanton)
{
    // A conversation is charged at most one and a half times what it takes.
    struct plm_host *host = plm_host_create(0);
    struct plm_json_tree tree;
    char *text = repeat("[", "{\"role\":\"user\",\"content\":\"some words\"}", ",", "]", 1000);
    const size_t before = heap_bytes();
    plm_json_tree_init(&tree, host, PLM_HOST_REQUEST);
    ck_assert_int_eq(
        plm_json_tree_parse(&tree, (struct plm_slice){text, strlen(text)}, &tree.root, NULL),
        PLM_OK);
    ck_assert_int_le(tree.bytes * 2, (int64_t)(heap_bytes() - before) * 3);
    plm_json_tree_finish(&tree);
    free(text);
    ck_assert_int_eq(plm_host_destroy(host), 0);
}
END_TEST

// A budget that is too small for the charge gets no tree at all, at no byte of it.
START_TEST(budget_holds)
{
    struct plm_json_tree tree;
    struct plm_host *host = plm_host_create(4 << 20);
    char *text = repeat("[", "{}", ",", "]", 100000); // 80 MB as a tree
    struct plm_error err;
    plm_json_tree_init(&tree, host, PLM_HOST_REQUEST);
    const size_t before = heap_bytes();
    heap_peak();
    ck_assert_int_eq(
        plm_json_tree_parse(&tree, (struct plm_slice){text, strlen(text)}, &tree.root, &err),
        PLM_ERR_NOMEM_HOST);
    ck_assert_uint_le(heap_peak(), before + 4096); // of the message
    plm_json_tree_finish(&tree);
    free(text);
    ck_assert_int_eq(plm_host_destroy(host), 0);
}
END_TEST

static int parse(const char *text, struct plm_error *err)
{
    struct plm_json_tree tree;
    struct plm_host *host = plm_host_create(0);
    plm_json_tree_init(&tree, host, PLM_HOST_REQUEST);
    int r = plm_json_tree_parse(&tree, (struct plm_slice){text, strlen(text)}, &tree.root, err);
    plm_json_tree_finish(&tree);
    ck_assert_int_eq(plm_host_destroy(host), 0);
    return r;
}

START_TEST(limits_are_named)
{
    struct plm_error err;
    char deep[2 * PLM_JSON_TREE_DEPTH_MAX + 8] = "";
    for (size_t n = PLM_JSON_TREE_DEPTH_MAX; n <= PLM_JSON_TREE_DEPTH_MAX + 1; n++) {
        memset(deep, '[', n);
        deep[n] = '1';
        memset(deep + n + 1, ']', n);
        deep[2 * n + 1] = '\0';
        ck_assert_int_eq(parse(deep, &err), n > PLM_JSON_TREE_DEPTH_MAX ? PLM_ERR_LIMIT : PLM_OK);
    }
    ck_assert_str_eq(err.msg, "JSON at byte 64: more than 64 levels");
    // The nodes of all texts of one tree count together.
    struct plm_json_tree tree;
    struct plm_host *host = plm_host_create(0);
    plm_json_tree_init(&tree, host, PLM_HOST_REQUEST);
    char *text = repeat("[", "1", ",", "]", PLM_JSON_TREE_NODES_MAX / 2 - 1);
    for (int i = 0; i < 3; i++) {
        struct json_object *value = NULL;
        int r = plm_json_tree_parse(&tree, (struct plm_slice){text, strlen(text)}, &value, &err);
        ck_assert_int_eq(r, i < 2 ? PLM_OK : PLM_ERR_LIMIT);
        json_object_put(value);
    }
    ck_assert_ptr_nonnull(strstr(err.msg, "more than 0 values"));
    free(text);
    plm_json_tree_finish(&tree);
    ck_assert_int_eq(plm_host_destroy(host), 0);
}
END_TEST

START_TEST(foreign_text_is_judged)
{
    static const struct {
        const char *text;
        int status;
    } cases[] = {
        {"null", PLM_OK},
        {" 12 ", PLM_OK},
        {"1.5e3", PLM_OK},
        {"\"\\\"{[\"", PLM_OK},
        {"", PLM_ERR_FORMAT},
        {"{", PLM_ERR_FORMAT},
        {"[1,]", PLM_ERR_FORMAT},
        {"1 2", PLM_ERR_FORMAT},
        {"{'\"':[[[]]]}", PLM_ERR_FORMAT}, // json-c takes single quotes around names
        {"/* */ 1", PLM_ERR_FORMAT},
        {"\"\xff\"", PLM_ERR_FORMAT},
        {"\"open", PLM_ERR_FORMAT},
        {"\"\\", PLM_ERR_FORMAT},
        {"nul", PLM_ERR_FORMAT},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        ck_assert_msg(parse(cases[i].text, NULL) == cases[i].status, "%s", cases[i].text);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("json_tree");
    TCase *tc = tcase_create("json_tree");
    const int shapes = sizeof(SHAPES) / sizeof(SHAPES[0]);
    tcase_set_timeout(tc, 60);
    tcase_add_loop_test(tc, charge_covers_what_a_text_becomes, 0, shapes);
    tcase_add_loop_test(tc, charge_covers_texts_that_end_early, 0, shapes);
    tcase_add_test(tc, charge_is_not_wanton);
    tcase_add_test(tc, budget_holds);
    tcase_add_test(tc, limits_are_named);
    tcase_add_test(tc, foreign_text_is_judged);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
