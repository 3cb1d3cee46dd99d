// SPDX-License-Identifier: Apache-2.0
// A program that was built without libcurl: what the cache has can be used, and it is said why
// nothing is fetched.
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/suite.h"
#include "tools/files.h"
#include "tools/pull/cache.h"
#include "tools/pull/models.h"
#include "tools/term.h"

#define COMMIT "c0ffee00000000000000000000000000000000ff"
#define HASH   "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

static char said[PLM_TERM_LINE_BYTES];

static void keep_line(const char *text)
{
    snprintf(said, sizeof(said), "%s", text);
}

static void no_bar(const char *text, size_t len)
{
    (void)text;
    (void)len;
}

START_TEST(nothing_is_fetched_and_it_is_said_why)
{
    struct plm_model_source source = {.command = "pull", .what = "u/r:Q4_0", .timeout_s = 1};
    char *path = NULL;
    ck_assert_int_eq(plm_model_of_hub(&source, &path), 1);
    ck_assert_ptr_null(path);
    ck_assert_ptr_nonnull(strstr(said, "built without libcurl"));
    ck_assert_ptr_nonnull(strstr(said, "libcurl4-openssl-dev"));
    said[0] = '\0';
    source.what = "https://127.0.0.1:9/x.gguf";
    ck_assert_int_eq(plm_model_of_url(&source, &path), 1);
    ck_assert_ptr_nonnull(strstr(said, "built without libcurl"));
}
END_TEST

START_TEST(what_the_cache_has_is_found)
{
    const struct plm_model_source source = {.command = "run", .what = "u/r:q4_0"};
    struct plm_cache cache;
    char *path = NULL;
    ck_assert(plm_cache_open(&cache, "run"));
    char *blob = plm_cache_blob_path(&cache, "u/r", HASH);
    ck_assert_ptr_nonnull(blob);
    ck_assert(plm_file_replace("run", blob, "GGUF", 4));
    ck_assert(plm_cache_link(&cache, "u/r", COMMIT, "d/m-Q4_0.gguf", HASH));
    ck_assert(plm_cache_link(&cache, "u/r", COMMIT, "d/m-Q4_0.gguf", HASH)); // again
    ck_assert(plm_cache_set_ref(&cache, "u/r", "main", COMMIT));
    ck_assert_int_eq(plm_model_of_hub(&source, &path), 0);
    ck_assert_ptr_nonnull(strstr(path, "/models--u--r/snapshots/" COMMIT "/d/m-Q4_0.gguf"));
    ck_assert_int_eq(access(path, R_OK), 0);
    free(path);
    free(blob);
    plm_cache_finish(&cache);
}
END_TEST

int main(void)
{
    char folder[] = "/tmp/plimsoll-pull-XXXXXX", command[64];
    if (mkdtemp(folder) == NULL)
        return EXIT_FAILURE;
    setenv("HF_HUB_CACHE", folder, 1);
    unsetenv("HF_HUB_OFFLINE");
    plm_term_redirect(&(struct plm_term_sink){keep_line, no_bar});
    Suite *suite = suite_create("pull_none");
    TCase *tc = tcase_create("pull_none");
    tcase_add_test(tc, nothing_is_fetched_and_it_is_said_why);
    tcase_add_test(tc, what_the_cache_has_is_found);
    suite_add_tcase(suite, tc);
    const int result = suite_run(suite);
    snprintf(command, sizeof(command), "rm -r %s", folder);
    return system(command) == 0 ? result : EXIT_FAILURE;
}
