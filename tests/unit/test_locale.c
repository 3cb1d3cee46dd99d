// SPDX-License-Identifier: Apache-2.0
// A program that embeds us sets its user's locale. Under a decimal comma every text for machines
// has the bytes that it has under C, and texts are read as under C. The locale is made here:
// without one the test fails, since nobody would notice that it was left out.
#include <check.h>
#include <json-c/json.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/json.h"
#include "core/base/text.h"
#include "core/engine/recorder.h"
#include "core/plimsoll.h"
#include "tests/support/suite.h"

#ifdef __SANITIZE_ADDRESS__
// setlocale() of glibc keeps the parts of LOCPATH that it took apart, and nobody can free them.
__attribute__((visibility("default"))) const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:argz_add_sep\n";
}
#endif

#define MODEL  TEST_MODELS "/llama-tied-q4_0.gguf"
#define LOCALE "de_DE.UTF-8"
#define TEMPLATE                                                                                   \
    "{{ 1.5 }} {{ 0.25 * 3 }} {{ 1e21 }} {{ '2.5' | float }} {{ 'INF' | float }} {{ 7 / 2 }} "     \
    "{{ '{:.2f}'.format(0.125) }} {{ 1234.5 | round(0) }} {{ x | tojson }} {{ tools | tojson }} "  \
    "{% if 0.5 < 0.75 %}less{% endif %} {{ messages[0].content }}"
#define CHAT                                                                                       \
    "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"tools\":[{\"type\":\"function\","     \
    "\"function\":{\"name\":\"f\",\"parameters\":{\"minimum\":0.125,\"maximum\":1e-7,"             \
    "\"multipleOf\":2.5}}}],\"chat_template_kwargs\":{\"x\":3.75}}"

static char folder[] = "/tmp/plimsoll-locale.XXXXXX";

static void make_locale(void)
{
    char path[64], command[256];
    ck_assert_ptr_nonnull(mkdtemp(folder));
    plm_snprintf(path, sizeof(path), "%s/" LOCALE, folder);
    plm_snprintf(command, sizeof(command), "localedef -i de_DE -f UTF-8 %s >%s/said 2>&1", path,
                 folder);
    // Warnings of the locale's source end it with status 1.
    const int status = system(command);
    if (!WIFEXITED(status) || WEXITSTATUS(status) > 1 || access(path, R_OK) != 0)
        ck_abort_msg("localedef makes no " LOCALE "; install Debian's locales");
    ck_assert_int_eq(setenv("LOCPATH", folder, 1), 0);
}

static void remove_locale(void)
{
    char command[64];
    plm_snprintf(command, sizeof(command), "rm -r %s", folder);
    ck_assert_int_eq(system(command), 0);
}

static void to_locale(const char *name)
{
    char probe[16];
    ck_assert_ptr_nonnull(setlocale(LC_ALL, name));
    snprintf(probe, sizeof(probe), "%.1f", 0.5);
    ck_assert_str_eq(probe, strcmp(name, "C") == 0 ? "0.5" : "0,5");
}

// ---- the texts ----

enum {
    PLAN,
    TABLE,
    CERTIFICATE,
    TUNING,
    MEMORY,
    RENDER,
    ANSWER,
    INSPECT,
    EXPLAIN,
    EXPLAIN_TABLE,
    DRY,
    DRY_TABLE,
    DIFF,
    WRONG_FRACTION,
    WRONG_TEMPERATURE,
    WORLD,
    N_TEXTS
};

static const char *const names[N_TEXTS] = {
    "plan",   "table",          "certificate",       "tuning",        "memory", "render",
    "answer", "inspect",        "explain",           "explain_table", "dry",    "dry_table",
    "diff",   "wrong_fraction", "wrong_temperature", "world"};

// Those whose numbers are a clock's or the system's: there only the kinds of values are the same.
static const bool varies[N_TEXTS] = {[PLAN] = true,   [CERTIFICATE] = true, [TUNING] = true,
                                     [MEMORY] = true, [WORLD] = true,       [TABLE] = true};
static const bool is_json[N_TEXTS] = {
    [PLAN] = true,    [CERTIFICATE] = true, [TUNING] = true, [MEMORY] = true,
    [INSPECT] = true, [EXPLAIN] = true,     [DRY] = true};

static char *of_engine(int (*text)(const plim_engine *, char *, size_t, size_t *),
                       const plim_engine *engine)
{
    size_t need = 0;
    text(engine, NULL, 0, &need);
    char *out = calloc(1, need + 1);
    ck_assert_int_eq(text(engine, out, need + 1, &need), PLIM_OK);
    return out;
}

static void on_incident(void *ctx, const char *reason, const char *world, size_t len)
{
    (void)reason;
    char **ret = ctx;
    if (*ret == NULL)
        *ret = strndup(world, len);
}

static void options(plim_engine_opts *o)
{
    plim_engine_opts_init(o);
    o->model_path = MODEL;
    o->ctx_size = 256;
    o->memory_limit_bytes = 1u << 30;
    o->memory_fraction = 0.5;
    o->threads = 1;
    o->max_total_tokens = 4096;
    o->manual_step = 1;
    o->chat_template = TEMPLATE;
}

static char *answer(plim_engine *engine)
{
    plim_request_opts q;
    plim_request *request;
    plim_event event = PLIM_INIT(plim_event);
    char *out = calloc(1, 4096);
    plim_request_opts_init(&q);
    q.prompt = "the quick";
    q.prompt_len = 9;
    q.max_tokens = 12;
    q.temperature = 0.8f;
    q.top_p = 0.9f;
    q.has_seed = 1;
    q.seed = 5;
    q.ignore_eos = 1;
    ck_assert_int_eq(plim_request_submit(engine, &q, &request, NULL), PLIM_OK);
    while (plim_request_next(request, 0, &event) != PLIM_OK || event.type != PLIM_EVENT_DONE) {
        if (event.type == PLIM_EVENT_TOKEN || event.type == PLIM_EVENT_FINISH)
            strncat(out, event.text != NULL ? event.text : "", event.text_len);
        event = (plim_event)PLIM_INIT(plim_event);
        ck_assert_int_eq(plim_engine_step(engine, NULL), PLIM_OK);
    }
    plim_request_free(request);
    return out;
}

static char *render(plim_engine *engine)
{
    plim_error err = PLIM_INIT(plim_error);
    size_t need = 0;
    char *out = calloc(1, 4096);
    if (plim_chat_render(engine, CHAT, strlen(CHAT), out, 4096, &need, &err) != PLIM_OK)
        ck_abort_msg("%s", err.message);
    return out;
}

static char *wrong_temperature(plim_engine *engine)
{
    plim_request_opts q;
    plim_request *request;
    plim_error err = PLIM_INIT(plim_error);
    plim_request_opts_init(&q);
    q.prompt = "x";
    q.prompt_len = 1;
    q.temperature = -0.5f;
    ck_assert_int_eq(plim_request_submit(engine, &q, &request, &err), PLIM_ERR_INVALID);
    return strdup(err.message);
}

static void of_files(char *texts[N_TEXTS])
{
    plim_engine_opts o;
    plim_error err = PLIM_INIT(plim_error);
    plim_plan *plan;
    size_t need = 0;
    options(&o);
    o.memory_fraction = 1.5;
    plim_engine *engine;
    ck_assert_int_eq(plim_engine_create(&o, &engine, &err), PLIM_ERR_INVALID);
    texts[WRONG_FRACTION] = strdup(err.message);
    options(&o);
    for (int json = 0; json < 2; json++) {
        char *out = calloc(1, 1 << 16);
        ck_assert_int_eq(plim_explain(&o, 123456789.5, json, out, 1 << 16, &need, &err), PLIM_OK);
        texts[json ? EXPLAIN : EXPLAIN_TABLE] = out;
    }
    texts[INSPECT] = calloc(1, 1 << 20);
    ck_assert_int_eq(plim_inspect(MODEL, true, texts[INSPECT], 1 << 20, &need, &err), PLIM_OK);
    ck_assert_int_eq(plim_plan_dry(&o, UINT64_C(3) << 30, &plan, &err), PLIM_OK);
    texts[DRY] = calloc(1, 1 << 16);
    texts[DRY_TABLE] = calloc(1, 1 << 16);
    ck_assert_int_eq(plim_plan_json(plan, texts[DRY], 1 << 16, &need), PLIM_OK);
    ck_assert_int_eq(plim_plan_table(plan, texts[DRY_TABLE], 1 << 16, &need), PLIM_OK);
    plim_plan_free(plan);
    o.memory_fraction = 0.75;
    ck_assert_int_eq(plim_plan_dry(&o, UINT64_C(3) << 30, &plan, &err), PLIM_OK);
    char *other = calloc(1, 1 << 16);
    texts[DIFF] = calloc(1, 1 << 16);
    ck_assert_int_eq(plim_plan_json(plan, other, 1 << 16, &need), PLIM_OK);
    ck_assert_int_eq(plim_plan_diff(texts[DRY], strlen(texts[DRY]), other, strlen(other),
                                    texts[DIFF], 1 << 16, &need, &err),
                     PLIM_OK);
    free(other);
    plim_plan_free(plan);
}

// All that is said under the locale in force. The certificate of an earlier start may come along;
// whether it held is what the plan says then.
static void say_all(char *texts[N_TEXTS], const char *certificate)
{
    plim_engine_opts o;
    plim_engine *engine;
    plim_error err = PLIM_INIT(plim_error);
    options(&o);
    o.incident = on_incident;
    o.incident_ctx = &texts[WORLD];
    o.certificate = certificate;
    o.certificate_len = certificate != NULL ? strlen(certificate) : 0;
    if (plim_engine_create(&o, &engine, &err) != PLIM_OK)
        ck_abort_msg("%s", err.message);
    texts[RENDER] = render(engine);
    texts[ANSWER] = answer(engine);
    texts[PLAN] = of_engine(plim_engine_plan_json, engine);
    texts[TABLE] = of_engine(plim_engine_plan_table, engine);
    texts[CERTIFICATE] = of_engine(plim_engine_certificate, engine);
    texts[TUNING] = of_engine(plim_engine_tuning, engine);
    texts[MEMORY] = of_engine(plim_engine_memory_json, engine);
    texts[WRONG_TEMPERATURE] = wrong_temperature(engine);
    plm_incident(engine, "a test");
    ck_assert_int_eq(plim_engine_step(engine, NULL), PLIM_OK); // which tells of it
    plim_engine_free(engine);
    of_files(texts);
}

// ---- comparing ----

static int kinds(void *ctx, const char *path, const struct plm_json_value *value)
{
    char *out = ctx;
    const size_t at = strlen(out);
    // Whether a measured value is whole is chance.
    const int kind = value->kind == PLM_JSON_INTEGER ? PLM_JSON_NUMBER : (int)value->kind;
    if (strchr(path, '[') == NULL) // how many a list has may be chance
        plm_snprintf(out + at, (1 << 16) - at, "%s %d\n", path, kind);
    return PLM_OK;
}

static void same_kinds(const char *name, const char *c, const char *other)
{
    struct plm_error err = {0};
    char *a = calloc(1, 1 << 16), *b = calloc(1, 1 << 16);
    ck_assert_int_eq(plm_json_walk(c, strlen(c), kinds, a, &err), PLM_OK);
    if (plm_json_walk(other, strlen(other), kinds, b, &err) != PLM_OK)
        ck_abort_msg("%s is no JSON under a decimal comma: %s", name, err.msg);
    if (strcmp(a, b) != 0)
        ck_abort_msg("%s has other fields under a decimal comma:\n%s\n%s", name, a, b);
    free(a);
    free(b);
}

// A digit, a comma and a digit, where C writes no such thing.
static bool has_decimal_comma(const char *text)
{
    for (const char *p = strchr(text, ','); p != NULL; p = strchr(p + 1, ',')) {
        if (p > text && p[-1] >= '0' && p[-1] <= '9' && p[1] >= '0' && p[1] <= '9')
            return true;
    }
    return false;
}

START_TEST(texts_are_those_of_c)
{
    char *c[N_TEXTS] = {0}, *comma[N_TEXTS] = {0};
    make_locale();
    to_locale("C");
    say_all(c, NULL);
    to_locale(LOCALE);
    say_all(comma, NULL);
    for (int i = 0; i < N_TEXTS; i++) {
        if (c[i] == NULL || comma[i] == NULL)
            ck_abort_msg("there is no %s", names[i]);
        if (is_json[i])
            same_kinds(names[i], c[i], comma[i]);
        if (!varies[i] && strcmp(c[i], comma[i]) != 0)
            ck_abort_msg("%s under a decimal comma: %s\nunder C: %s", names[i], comma[i], c[i]);
        if (!is_json[i] && has_decimal_comma(comma[i]) != has_decimal_comma(c[i]))
            ck_abort_msg("%s has a decimal comma: %s", names[i], comma[i]);
    }
    ck_assert_ptr_nonnull(strstr(c[RENDER], "1.5 0.75 1e+21 2.5 inf 3.5 0.12 1234.0 3.75"));
    // The locale is the program's: nobody changed it.
    ck_assert_str_eq(setlocale(LC_ALL, NULL), LOCALE);
    for (int i = 0; i < N_TEXTS; i++) {
        free(c[i]);
        free(comma[i]);
    }
    remove_locale();
}
END_TEST

START_TEST(a_certificate_of_c_holds_under_a_comma)
{
    char *c[N_TEXTS] = {0}, *comma[N_TEXTS] = {0};
    make_locale();
    to_locale("C");
    say_all(c, NULL);
    to_locale(LOCALE);
    say_all(comma, c[CERTIFICATE]);
    ck_assert_ptr_nonnull(strstr(c[PLAN], "\"certified\":false"));
    if (strstr(comma[PLAN], "\"certified\":true") == NULL)
        ck_abort_msg("the certificate did not hold: %s", comma[PLAN]);
    for (int i = 0; i < N_TEXTS; i++) {
        free(c[i]);
        free(comma[i]);
    }
    remove_locale();
}
END_TEST

START_TEST(numbers_are_read_and_written_as_in_c)
{
    char text[32], *end;
    make_locale();
    to_locale(LOCALE);
    plm_snprintf(text, sizeof(text), "%.3f %g %d", 1234.5, 0.5, 7);
    ck_assert_str_eq(text, "1234.500 0.5 7");
    ck_assert(plm_strtod("0.5,", &end) == 0.5);
    ck_assert_str_eq(end, ",");
    ck_assert(plm_ascii_same("InF", "iNf", SIZE_MAX) && !plm_ascii_same("inf", "info", SIZE_MAX));
    ck_assert(plm_ascii_same("info", "INF", 3) && !plm_ascii_same("a", "", SIZE_MAX));
    to_locale(LOCALE);
    remove_locale();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("locale");
    TCase *tcase = tcase_create("locale");
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, numbers_are_read_and_written_as_in_c);
    tcase_add_test(tcase, texts_are_those_of_c);
    tcase_add_test(tcase, a_certificate_of_c_holds_under_a_comma);
    suite_add_tcase(suite, tcase);
    return suite_run(suite);
}
