// SPDX-License-Identifier: Apache-2.0
// The command-line parser: spelling, ranges, and what it says when they are wrong.
#include <check.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/suite.h"
#include "tools/opts.h"

struct target {
    uint32_t parallel;
    uint32_t port;
    uint64_t memory;
    double fraction;
    int64_t predict;
    uint32_t cache;
    uint32_t prove;
    bool verbose;
    const char *model;
    struct plm_opt_list keys;
};

static struct target got;

static const struct plm_opt table[] = {
    PLM_OPT_IN("-np, --parallel, --max-num-seqs", "N", "sequences", PLM_OPT_U32,
               offsetof(struct target, parallel), 1, 4096),
    PLM_OPT_IN("--port", "N", "port", PLM_OPT_U32, offsetof(struct target, port), 0, 65535),
    PLM_OPT_IN("--memory-limit", "BYTES", "limit", PLM_OPT_BYTES, offsetof(struct target, memory),
               1, 9e15),
    PLM_OPT_ABOVE("--memory-fraction", "F", "part", PLM_OPT_DOUBLE,
                  offsetof(struct target, fraction), 0, 1),
    PLM_OPT_IN("-n, --predict", "N", "tokens", PLM_OPT_I64, offsetof(struct target, predict), -1,
               1e9),
    PLM_OPT("--prefix-cache", "on|off", "reuse", PLM_OPT_ONOFF, offsetof(struct target, cache)),
    PLM_OPT_ONE_OF("--prove", "HOW", "how", offsetof(struct target, prove), "quick|full"),
    PLM_OPT("-v, --verbose", NULL, "more", PLM_OPT_FLAG, offsetof(struct target, verbose)),
    PLM_OPT("-m, --model", "FILE", "file", PLM_OPT_STRING, offsetof(struct target, model)),
    PLM_OPT("--api-key", "KEY", "key", PLM_OPT_LIST, offsetof(struct target, keys)),
    PLM_OPT_END,
};

static char said[4096]; // what the last parse wrote to stderr

// Parses a command line of at most 8 words; NULL ends it.
static enum plm_opts_result parse(const char *first, ...)
{
    static const struct plm_opt_group group = {"test", table, &got};
    static const struct plm_opt_command cmd = {"test", "FILE", "a test", &group, 1, 1};
    char *argv[10] = {(char *)"test", (char *)first};
    int argc = 2;
    va_list ap;
    va_start(ap, first);
    while ((argv[argc] = va_arg(ap, char *)) != NULL)
        argc++;
    va_end(ap);
    memset(&got, 0, sizeof(got));
    FILE *file = tmpfile();
    int saved = dup(STDERR_FILENO);
    dup2(fileno(file), STDERR_FILENO);
    const char *operand;
    size_t n;
    enum plm_opts_result r = plm_opts_parse(&cmd, argc, argv, &operand, &n);
    fflush(stderr);
    dup2(saved, STDERR_FILENO);
    close(saved);
    rewind(file);
    said[fread(said, 1, sizeof(said) - 1, file)] = '\0';
    fclose(file);
    return r;
}

START_TEST(every_type_is_set)
{
    ck_assert_int_eq(
        parse("-np", "4", "--port=8081", "--memory-limit", "1.5GiB", "-v", "-n", "-1", NULL),
        PLM_OPTS_OK);
    ck_assert_uint_eq(got.parallel, 4);
    ck_assert_uint_eq(got.port, 8081);
    ck_assert_uint_eq(got.memory, UINT64_C(3) << 29);
    ck_assert_int_eq(got.predict, -1);
    ck_assert(got.verbose);
    ck_assert_int_eq(parse("--max-num-seqs", "7", "--prove", "full", "--prefix-cache", "on", NULL),
                     PLM_OPTS_OK);
    ck_assert_uint_eq(got.parallel, 7);
    ck_assert_uint_eq(got.prove, 1);
    ck_assert_uint_eq(got.cache, 1);
    ck_assert_int_eq(parse("--api-key", "a", "--api-key", "b", "--memory-fraction", "0.5", NULL),
                     PLM_OPTS_OK);
    ck_assert_uint_eq(got.keys.n, 2);
    ck_assert_str_eq(got.keys.items[1], "b");
    ck_assert_double_eq(got.fraction, 0.5);
}
END_TEST

START_TEST(negation_turns_off)
{
    ck_assert_int_eq(parse("--prefix-cache", "1", "--no-prefix-cache", NULL), PLM_OPTS_OK);
    ck_assert_uint_eq(got.cache, 0);
    ck_assert_int_eq(parse("--no-port", NULL), PLM_OPTS_WRONG);
}
END_TEST

START_TEST(wrong_values_name_flag_and_range)
{
    static const struct {
        const char *flag, *value, *says;
    } cases[] = {
        {"--parallel", "0", "--parallel: 0 is out of range (1 to 4096)"},
        {"--parallel", "-3", "--parallel: -3 is out of range (1 to 4096)"},
        {"-np", "99999999999999999999", "-np: 99999999999999999999 is out of range"},
        {"-np", "4294967297", "-np: 4294967297 is out of range"},
        {"-np", "4x", "-np: \"4x\" is not a whole number"},
        {"-np", " 4", "not a whole number"},
        {"-np", "", "not a whole number"},
        {"--port", "99999", "--port: 99999 is out of range (0 to 65535)"},
        {"--memory-fraction", "0", "0 is out of range (more than 0, at most 1)"},
        {"--memory-fraction", "1.5", "1.5 is out of range (more than 0, at most 1)"},
        {"--memory-fraction", "nan", "nan is out of range (more than 0, at most 1)"},
        {"--memory-fraction", "inf", "inf is out of range"},
        {"--memory-fraction", "x", "\"x\" is not a number"},
        {"--memory-limit", "12XB", "is not a size in bytes"},
        {"--memory-limit", "-1", "is not a size in bytes"},
        {"--memory-limit", "0", "--memory-limit: 0 is out of range"},
        {"--memory-limit", "99999999999TiB", "is not a size in bytes"},
        {"--prove", "half", "\"half\" is not one of quick|full"},
        {"--prefix-cache", "maybe", "neither on nor off"},
        {"--par", "4", "--par: unknown option"},
        {"--paralle", "4", "did you mean --parallel?"},
        {"--verbose=1", NULL, "takes no value"},
        {"--port", NULL, "--port: needs a value (N)"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        ck_assert_int_eq(parse(cases[i].flag, cases[i].value, NULL), PLM_OPTS_WRONG);
        if (strstr(said, cases[i].says) == NULL)
            ck_abort_msg("%s %s said: %s", cases[i].flag, cases[i].value, said);
    }
}
END_TEST

START_TEST(operands_are_counted)
{
    ck_assert_int_eq(parse("a.gguf", NULL), PLM_OPTS_OK);
    ck_assert_int_eq(parse("--", "-np", NULL), PLM_OPTS_OK);
    ck_assert_int_eq(parse("a.gguf", "b.gguf", NULL), PLM_OPTS_WRONG);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("opts");
    TCase *tc = tcase_create("opts");
    tcase_add_test(tc, every_type_is_set);
    tcase_add_test(tc, negation_turns_off);
    tcase_add_test(tc, wrong_values_name_flag_and_range);
    tcase_add_test(tc, operands_are_counted);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
