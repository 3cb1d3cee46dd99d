// SPDX-License-Identifier: Apache-2.0
// What the engine is charged for a field that the server holds as a tree, held against malloc.
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/heap.h"
#include "tests/support/suite.h"
#include "tools/json.h"

static const struct shape {
    const char *head, *part, *tail;
} SHAPES[] = {
    {"{\"x\":[1", ",{}", "]}"},
    {"{\"x\":[1", ",[]", "]}"},
    {"{\"x\":[1", ",null", "]}"},
    {"{\"x\":[1", ",1.5", "]}"},
    {"{\"x\":[1", ",17", "]}"},
    {"{\"x\":[1", ",\"\"", "]}"},
    {"{\"x\":[1", ",\"a few words that are not short\"", "]}"},
    {"{\"x\":[1", ",\"\\ud83d\\ude00\"", "]}"},
    {"{\"x\":[1", ",{\"type\":\"function\",\"function\":{\"name\":\"f\"}}", "]}"},
    {"{\"x\":{\"a\":1", ",\"#\":1", "}}"},
    {"{\"x\":{\"a\":1", ",\"a longer name #\":{\"#\":[{}]}", "}}"},
    {"{\"x\":\"", "y", "\"}"},
    {"{\"x\":\"", "\\n", "\"}"},
};

static char *build(const struct shape *s, size_t n)
{
    char *text = malloc(strlen(s->head) + strlen(s->tail) + n * (strlen(s->part) + 16) + 1);
    char *at = text + sprintf(text, "%s", s->head);
    for (size_t i = 0; i < n; i++)
        for (const char *p = s->part; *p != '\0'; p++)
            *p == '#' ? (void)(at += sprintf(at, "%zu", i)) : (void)(*at++ = *p);
    sprintf(at, "%s", s->tail);
    return text;
}

START_TEST(charge_covers_the_tree)
{
    static const size_t counts[] = {0, 1, 10, 30, 31, 100, 1000, 20000};
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        struct plm_json_doc doc;
        char message[256] = "";
        int64_t charged = 0;
        char *text = build(&SHAPES[_i], counts[i]);
        ck_assert_msg(plm_json_scan(text, strlen(text), NULL, &doc, message, sizeof(message)) ==
                          PLIM_OK,
                      "%s", message);
        const size_t before = heap_bytes();
        heap_peak();
        struct json_object *tree = plm_json_tree(plm_json_get(&doc, "x"), NULL, &charged);
        const size_t most = heap_peak() - before;
        ck_assert_ptr_nonnull(tree);
        ck_assert_msg(most <= (size_t)charged, "%.40s, %zu times: %zu bytes, %lld charged", text,
                      counts[i], most, (long long)charged);
        plm_json_release(tree, NULL, charged);
        free(text);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("serve_json");
    TCase *tc = tcase_create("serve_json");
    tcase_set_timeout(tc, 60);
    tcase_add_loop_test(tc, charge_covers_the_tree, 0, sizeof(SHAPES) / sizeof(SHAPES[0]));
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
