// SPDX-License-Identifier: Apache-2.0
// What a model is called on a hub and which of its files is meant.
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/suite.h"
#include "tools/pull/head.h"
#include "tools/pull/hub.h"

static const struct {
    const char *text, *repo, *quant; // repo NULL: refused
} refs[] = {
    {"hf:user/repo", "user/repo", ""},
    {"user/repo:Q4_K_M", "user/repo", "Q4_K_M"},
    {"u/Qwen3-4B-GGUF:UD-Q4_K_XL", "u/Qwen3-4B-GGUF", "UD-Q4_K_XL"},
    {"u/a.b_c-d", "u/a.b_c-d", ""},
    {"", NULL, NULL},
    {"user", NULL, NULL},
    {"/repo", NULL, NULL},
    {"user/", NULL, NULL},
    {"a/b/c", NULL, NULL},
    {"../repo", NULL, NULL},
    {"user/..", NULL, NULL},
    {"user/a--b", NULL, NULL},
    {"-user/repo", NULL, NULL},
    {"user/repo:", NULL, NULL},
    {"user/repo:Q4/K", NULL, NULL},
    {"user/repo:123456789012345678901234567890123", NULL, NULL},
    {"us er/repo", NULL, NULL},
    {"user/re\npo", NULL, NULL},
};

START_TEST(references_are_taken_apart)
{
    struct plm_hub_ref ref;
    char message[256] = "";
    const bool ok = plm_hub_ref_parse(refs[_i].text, &ref, message, sizeof(message));
    ck_assert_int_eq(ok, refs[_i].repo != NULL);
    if (ok) {
        ck_assert_str_eq(ref.repo, refs[_i].repo);
        ck_assert_str_eq(ref.quant, refs[_i].quant);
        ck_assert_str_eq(ref.revision, "main");
    } else {
        ck_assert_str_ne(message, "");
    }
}
END_TEST

START_TEST(names_have_an_exact_limit)
{
    char repo[2 * PLM_HUB_NAME_MAX + 8];
    memset(repo, 'a', sizeof(repo));
    repo[1] = '/';
    repo[2 + PLM_HUB_NAME_MAX] = '\0';
    ck_assert(plm_hub_repo_is_name(repo));
    repo[2 + PLM_HUB_NAME_MAX] = 'a';
    repo[3 + PLM_HUB_NAME_MAX] = '\0';
    ck_assert(!plm_hub_repo_is_name(repo));
    char path[PLM_HUB_PATH_MAX + 8];
    for (size_t i = 0; i < sizeof(path); i++)
        path[i] = i % 200 == 199 ? '/' : 'b';
    path[PLM_HUB_PATH_MAX] = '\0';
    ck_assert(plm_hub_path_is_safe(path));
    path[PLM_HUB_PATH_MAX] = 'b';
    path[PLM_HUB_PATH_MAX + 1] = '\0';
    ck_assert(!plm_hub_path_is_safe(path));
}
END_TEST

START_TEST(paths_stay_below)
{
    static const char *const good[] = {"a.gguf", "d/a.gguf", "a..b", "..a", "a b/(c)+~@.gguf"};
    static const char *const bad[] = {"",     "/a",    "a/",   "a//b",  ".",    "..",      "../a",
                                      "a/..", "a/./b", "a\\b", "a\x1f", "\x7f", "\xc3\xa9"};
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        ck_assert_msg(plm_hub_path_is_safe(good[i]), "%s", good[i]);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        ck_assert_msg(!plm_hub_path_is_safe(bad[i]), "%s", bad[i]);
    ck_assert(plm_hub_revision_is_name("refs/pr/1"));
    ck_assert(!plm_hub_revision_is_name("a?b"));
}
END_TEST

static const struct {
    const char *path, *quant;
    bool has;
} quants[] = {
    {"m-Q4_K_M.gguf", "Q4_K_M", true},
    {"m-Q4_K_M.gguf", "q4_k_m", true},
    {"m.Q4_K_M.gguf", "Q4_K_M", true},
    {"Q4_K_M/m-00001-of-00002.gguf", "Q4_K_M", true},
    {"m_q4_0.gguf", "Q4_0", true},
    {"m-Q4_K_M.gguf", "Q4_K", false},
    {"m-IQ4_XS.gguf", "Q4_XS", false},
    {"m-Q4_0_4_4.gguf", "Q4_0", false},
    {"m-UD-Q4_K_XL.gguf", "Q4_K_XL", true},
    {"m-bf16.gguf", "F16", false},
    {"m-F16.gguf", "", false},
    {"Q8_0", "Q8_0", true},
};

START_TEST(quantisations_are_whole_words)
{
    ck_assert_int_eq(plm_hub_has_quant(quants[_i].path, quants[_i].quant), quants[_i].has);
}
END_TEST

START_TEST(splits_are_named_by_their_parts)
{
    unsigned part = 0, parts = 0;
    char name[PLM_HUB_PATH_MAX + 1];
    ck_assert(plm_hub_split_of("d/m-00002-of-00015.gguf", &part, &parts));
    ck_assert_uint_eq(part, 2);
    ck_assert_uint_eq(parts, 15);
    plm_hub_split_name("d/m-00002-of-00015.gguf", 14, name);
    ck_assert_str_eq(name, "d/m-00014-of-00015.gguf");
    static const char *const others[] = {"-00001-of-00001.gguf",   "m-00000-of-00002.gguf",
                                         "m-00003-of-00002.gguf",  "m-0001-of-0002.gguf",
                                         "m-00001-of-00002.ggufx", "m-0000a-of-00002.gguf"};
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        ck_assert_msg(!plm_hub_split_of(others[i], &part, &parts), "%s", others[i]);
}
END_TEST

#define COMMIT "c0ffee00000000000000000000000000000000ff"

START_TEST(a_listing_gives_files_and_a_choice)
{
    static const char json[] = "{\"sha\":\"" COMMIT "\",\"siblings\":["
                               "{\"rfilename\":\"b-00002-of-00002.gguf\",\"size\":5},"
                               "{\"rfilename\":\"b-00001-of-00002.gguf\",\"size\":7},"
                               "{\"rfilename\":\"b-00001-of-00003.gguf\"},"
                               "{\"rfilename\":\"../x.gguf\"},{\"rfilename\":\"README.md\"},"
                               "{\"rfilename\":\"mmproj-Q4_K_M.gguf\"}]}";
    struct plm_hub_listing listing;
    struct plm_hub_choice choice;
    char message[256] = "";
    ck_assert_msg(plm_hub_listing_read(json, strlen(json), &listing, message, sizeof(message)),
                  "%s", message);
    ck_assert_str_eq(listing.commit, COMMIT);
    ck_assert_uint_eq(listing.n, 4);
    ck_assert(plm_hub_choose(&listing, "", NULL, &choice, message, sizeof(message)));
    ck_assert(!choice.preferred);
    ck_assert_uint_eq(choice.n, 2);
    ck_assert_int_eq(choice.parts[0]->bytes, 7);
    ck_assert_int_eq(choice.parts[1]->bytes, 5);
    plm_hub_choice_finish(&choice);
    ck_assert(
        !plm_hub_choose(&listing, "", "b-00001-of-00003.gguf", &choice, message, sizeof(message)));
    ck_assert_str_eq(message, "b-00002-of-00003.gguf, one of 3 parts, is missing there");
    ck_assert(!plm_hub_choose(&listing, "Q9", NULL, &choice, message, sizeof(message)));
    ck_assert_str_eq(message, "there is no Q9 model; there are b-00001-of-00002.gguf, "
                              "b-00001-of-00003.gguf");
    plm_hub_listing_finish(&listing);
}
END_TEST

#define HASH "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

static void take(struct plm_head *a, const char *line)
{
    plm_head_line(a, line, strlen(line));
}

START_TEST(heads_are_read_of_the_right_answer)
{
    struct plm_head a;
    plm_head_init(&a);
    take(&a, "HTTP/1.1 302 Found\r\n");
    take(&a, "X-Linked-ETag: \"" HASH "\"\r\n");
    take(&a, "x-linked-size:  123 \r\n");
    take(&a, "ETag: \"of the redirect\"\r\n");
    take(&a, "HTTP/1.1 206 Partial Content\r\n");
    take(&a, "Content-Range: bytes 100-122/123\r\n");
    // What another host says of the file is not the hub's word.
    take(&a,
         "X-Linked-Etag: \"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"\r\n");
    take(&a, "X-Linked-Size: 5\r\n");
    ck_assert_str_eq(a.linked_hash, HASH);
    ck_assert_int_eq(a.linked_bytes, 123);
    ck_assert_int_eq(a.from, 100);
    ck_assert_int_eq(a.total, 123);
    ck_assert_str_eq(a.validator, "");
    take(&a, "Last-Modified: yesterday\r\n");
    ck_assert_str_eq(a.validator, "yesterday");
    take(&a, "ETag: W/\"weak\"\r\n");
    ck_assert_str_eq(a.validator, "yesterday");
    take(&a, "ETag: \"strong\"\r\n");
    ck_assert_str_eq(a.validator, "\"strong\"");
    take(&a, "Last-Modified: today\r\n");
    ck_assert_str_eq(a.validator, "\"strong\"");
    take(&a, "Retry-After: 1234567890123456789");
    ck_assert_int_eq(a.retry_after_s, -1);
    take(&a, "Retry-After: 17");
    ck_assert_int_eq(a.retry_after_s, 17);
    take(&a, "Content-Range: bytes */77");
    ck_assert_int_eq(a.total, 77);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("hub");
    TCase *tc = tcase_create("hub");
    tcase_add_loop_test(tc, references_are_taken_apart, 0, sizeof(refs) / sizeof(refs[0]));
    tcase_add_test(tc, names_have_an_exact_limit);
    tcase_add_test(tc, paths_stay_below);
    tcase_add_loop_test(tc, quantisations_are_whole_words, 0, sizeof(quants) / sizeof(quants[0]));
    tcase_add_test(tc, splits_are_named_by_their_parts);
    tcase_add_test(tc, a_listing_gives_files_and_a_choice);
    tcase_add_test(tc, heads_are_read_of_the_right_answer);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
