// SPDX-License-Identifier: Apache-2.0
// What renders of hostile templates and values take from malloc, held against their budget.
#include <check.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/json_tree.h"
#include "core/base/work.h"
#include "core/template/template.h"
#include "tests/support/heap.h"
#include "tests/support/suite.h"

#define BUDGET_BYTES (8 << 20)
// What no budget knows of: messages of errors, and a number that is written with many digits.
#define SLACK_BYTES (64 << 10)

// Each grows without an end, by another way; x is a text of a million letters, j one of JSON, l a
// list of 10,000 numbers, d an object of as many members.
static const char *const GROW[] = {
    "{{ j | from_json }}",
    "{% for i in range(1000) %}{{ j | from_json | length }}{% endfor %}",
    "{% set ns = namespace(s='a') %}{% for i in range(100000) %}{% set ns.s = ns.s + ns.s %}"
    "{% endfor %}",
    "{% set ns = namespace(l=[0]) %}{% for i in range(100000) %}{% set ns.l = ns.l + ns.l %}"
    "{% endfor %}",
    "{{ x * 1000000 }}",
    "{{ ([0] * 100000000) | length }}",
    "{{ (l * 100000) | length }}",
    "{{ range(100000000) | list | length }}",
    "{{ range(100000000) | map('string') | join(',') }}",
    "{{ x | list | length }}",
    "{{ x | replace('', 'a few words') }}",
    "{{ x.replace('x', x) }}",
    "{{ x.split('x') | length }}",
    "{{ x | upper | lower | title | capitalize }}{{ x.swapcase() * 3 }}",
    "{{ x.ljust(1000000000) }}",
    "{{ x.center(100000000) }}",
    "{{ '{:>1000000000}'.format(1) }}",
    "{{ '{:.900000000f}'.format(1.5) }}",
    "{% for i in range(100) %}{{ '{0}{0}{0}{0}{0}{0}{0}{0}{0}{0}'.format(x) }}{% endfor %}",
    "{% set ns = namespace(n=9) %}{% for i in range(100) %}{% set ns.n = ns.n * ns.n %}{% endfor %}"
    "{{ ns.n }}",
    "{{ l | tojson(indent=1000000) }}",
    "{{ [x, x, x, x, x, x, x, x, x, x] | tojson }}",
    "{{ d | tojson(indent=1000) }}",
    "{{ d | dictsort | length }}{{ d | dictsort(by='value') | list | length }}"
    "{{ d | items | list | length }}{{ d.items() | list | length }}",
    "{% for i in range(1000) %}{{ l | sort | unique | list | length }}{% endfor %}",
    "{% for i in range(1000) %}{{ l | map('string') | list | sort | length }}{% endfor %}",
    "{% macro m(n) %}{{ m(n + 1) }}{{ x }}{% endmacro %}{{ m(0) }}",
    "{% macro m(n) %}{% if n > 0 %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}x{% endmacro %}"
    "{{ m(100) }}",
    "{% set s %}{{ x }}{{ x }}{% endset %}{% set s %}{{ s }}{{ s }}{{ s }}{{ s }}{% endset %}{{ s "
    "}}",
    "{% for a in l %}{% for b in l %}{% for c in l %}{{ namespace(a=a, b=b, c=c).a }}{% endfor %}"
    "{% endfor %}{% endfor %}",
    "{{ x | indent(1000000) }}{{ (x.replace('x', '\n')) | indent(1000) }}",
    "{{ x | e | e | e | e | e }}{{ ('<' * 1000000) | e }}",
    "{{ x | center(100000000) }}",
    "{% filter replace('x', 'xxxxxxxxxxxxxxxxxxxx') %}{{ x }}{% endfilter %}",
    "{{ x[::-1] * 20 }}{{ l[::-1] | string }}",
    "{{ dict(d, a=1) | length }}{% for i in range(10000) %}{{ dict(d) | length }}{% endfor %}",
    "{{ strftime_now('%Y' * 1000000) }}",
    "{{ l | string }}{{ d | string }}{{ d }}{{ l }}",
};

static char *filled(const char *part, size_t n)
{
    char *text = malloc(n * strlen(part) + 1);
    for (size_t i = 0; i < n; i++)
        memcpy(text + i * strlen(part), part, strlen(part));
    text[n * strlen(part)] = '\0';
    return text;
}

static struct json_object *make_context(void)
{
    struct json_object *context = json_object_new_object();
    struct json_object *list = json_object_new_array(), *dict = json_object_new_object();
    char *x = filled("x", 1000000), *j = filled("{},", 50000);
    j[0] = '[';
    j[1] = '1';
    j[strlen(j) - 1] = ']';
    for (int i = 0; i < 10000; i++) {
        char name[16];
        snprintf(name, sizeof(name), "m%d", i);
        json_object_array_add(list, json_object_new_int(i));
        json_object_object_add(dict, name, json_object_new_int(i));
    }
    json_object_object_add(context, "x", json_object_new_string(x));
    json_object_object_add(context, "j", json_object_new_string(j));
    json_object_object_add(context, "l", list);
    json_object_object_add(context, "d", dict);
    free(x);
    free(j);
    return context;
}

START_TEST(a_render_stays_in_its_budget)
{
    struct plm_host *host = plm_host_create(BUDGET_BYTES);
    struct plm_host_stats stats;
    struct json_object *context = make_context();
    struct plm_template *tmpl = NULL;
    struct plm_render_opts opts;
    struct plm_render render = {0};
    struct plm_error err = {0};
    const char *source = GROW[_i];
    const size_t before = heap_bytes();
    heap_peak();
    plm_render_opts_init(&opts);
    opts.limits.steps = 2000000;
    int r = plm_template_create(host, (struct plm_slice){source, strlen(source)}, &tmpl, &err);
    ck_assert_msg(r == PLM_OK, "%s: %s", source, err.msg);
    r = plm_template_render(tmpl, context, &opts, &render, &err);
    const size_t most = heap_peak() - before;
    plm_host_read(host, &stats);
    ck_assert_msg(most <= (size_t)stats.peak_bytes + SLACK_BYTES,
                  "%s: %zu bytes at most, %lld charged (%s)", source, most,
                  (long long)stats.peak_bytes, err.msg);
    if (r == PLM_OK)
        plm_render_finish(&render);
    plm_template_destroy(tmpl);
    json_object_put(context);
    ck_assert_int_eq(plm_host_destroy(host), 0);
}
END_TEST

// Many small values, which is where malloc's own share counts.
START_TEST(a_long_conversation_is_charged_for)
{
    static const char source[] = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}";
    struct plm_host *host = plm_host_create(0);
    struct plm_host_stats stats;
    struct json_object *context = json_object_new_object(), *list = json_object_new_array();
    for (int i = 0; i < 40000; i++) {
        struct json_object *message = json_object_new_object();
        json_object_object_add(message, "role", json_object_new_string("user"));
        json_object_object_add(message, "content", json_object_new_string("a few words"));
        json_object_array_add(list, message);
    }
    json_object_object_add(context, "messages", list);
    struct plm_template *tmpl;
    struct plm_render_opts opts;
    struct plm_render render;
    const size_t before = heap_bytes();
    heap_peak();
    plm_render_opts_init(&opts);
    ck_assert_int_eq(plm_template_create(host, PLM_SLICE(source), &tmpl, NULL), PLM_OK);
    ck_assert_int_eq(plm_template_render(tmpl, context, &opts, &render, NULL), PLM_OK);
    const size_t most = heap_peak() - before;
    plm_host_read(host, &stats);
    ck_assert_msg(most <= (size_t)stats.peak_bytes + SLACK_BYTES, "%zu bytes at most, %lld charged",
                  most, (long long)stats.peak_bytes);
    plm_render_finish(&render);
    plm_template_destroy(tmpl);
    json_object_put(context);
    ck_assert_int_eq(plm_host_destroy(host), 0);
}
END_TEST

// A render ends soon after nobody wants it any more, and with the steps of its request.
static int asked;

static bool third_time(void *ctx)
{
    *(int *)ctx = 1;
    return ++asked >= 3;
}

START_TEST(a_render_ends_with_its_request)
{
    static const char source[] = "{% for i in range(1000) %}{% for j in range(1000) %}{{ j }}"
                                 "{% endfor %}{% endfor %}";
    struct plm_host *host = plm_host_create(0);
    struct json_object *context = json_object_new_object();
    struct plm_template *tmpl;
    struct plm_render_opts opts;
    struct plm_render render;
    struct plm_work work;
    struct plm_error err;
    int touched = 0;
    plm_render_opts_init(&opts);
    ck_assert_int_eq(plm_template_create(host, PLM_SLICE(source), &tmpl, NULL), PLM_OK);
    plm_work_ask(third_time, &touched);
    plm_work_start(&work, PLM_WORK_STEPS_MAX);
    ck_assert_int_eq(plm_template_render(tmpl, context, &opts, &render, &err), PLM_ERR_CANCELLED);
    ck_assert_str_eq(err.msg, "the caller cancelled");
    ck_assert_int_eq(touched, 1);
    ck_assert_uint_gt(work.steps_left, PLM_WORK_STEPS_MAX - 400000);
    plm_work_stop();
    plm_work_ask(NULL, NULL);
    plm_work_start(&work, 100000);
    ck_assert_int_eq(plm_template_render(tmpl, context, &opts, &render, &err), PLM_ERR_LIMIT);
    ck_assert_ptr_nonnull(strstr(err.msg, "limit of steps of one request reached"));
    plm_work_stop();
    plm_template_destroy(tmpl);
    json_object_put(context);
    ck_assert_int_eq(plm_host_destroy(host), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("template_heap");
    TCase *tc = tcase_create("template_heap");
    tcase_set_timeout(tc, 60);
    tcase_add_loop_test(tc, a_render_stays_in_its_budget, 0, sizeof(GROW) / sizeof(GROW[0]));
    tcase_add_test(tc, a_long_conversation_is_charged_for);
    tcase_add_test(tc, a_render_ends_with_its_request);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
