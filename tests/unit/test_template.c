// SPDX-License-Identifier: Apache-2.0
#include <check.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/alloc.h"
#include "core/template/template.h"
#include "tests/support/render.h"
#include "tests/support/suite.h"

static int64_t now_s;

// Renders source with a context in JSON into `render`.
static int run_limited(const char *source, const char *context,
                       const struct plm_render_limits *limits)
{
    struct plm_template *tmpl = NULL;
    struct plm_render_opts opts;
    int status = load(source, &tmpl);
    if (status != PLM_OK)
        return status;
    struct json_object *json = json_tokener_parse(context);
    ck_assert_ptr_nonnull(json);
    plm_render_opts_init(&opts);
    opts.now_s = now_s;
    if (limits != NULL)
        opts.limits = *limits;
    plm_render_finish(&render);
    status = plm_template_render(tmpl, json, &opts, &render, &err);
    json_object_put(json);
    plm_template_destroy(tmpl);
    return status;
}

static int run(const char *source, const char *context)
{
    return run_limited(source, context, NULL);
}

// What is done to the user's text u (or the object d with it), and whether all of it comes out.
static const struct {
    const char *source;
    bool whole;
} carriers[] = {
    {"X{{ u }}Y", true},
    {"X{{ u | trim }}Y", true},
    {"{{ 'X' + u + 'Y' }}", true},
    {"{{ 'X' ~ u ~ 'Y' }}", true},
    {"X{{ u.strip() }}Y", true},
    {"X{{ u.strip('_ ') }}Y", false},
    {"X{{ u | replace('_', '_') }}Y", false},
    {"X{{ u.replace('zz', 'X') }}Y", true},
    {"X{{ u | upper }}Y", false},
    {"X{{ u.lower() }}Y", true},
    {"X{{ u | title }}{{ u | capitalize }}{{ u.swapcase() }}Y", false},
    {"X{{ u | tojson }}Y", true},
    {"X{{ [u] | tojson(indent=2) }}Y", true},
    {"X{{ d | tojson }}Y", true},
    {"X{{ d }}{{ [u, (u,)] }}Y", true},
    {"X{{ d | string }}Y", true},
    {"X{{ u | tojson | tojson }}Y", true},
    {"X{{ ['q', 1] | tojson(separators=(u, ': ')) }}{{ {'q': 1} | tojson(separators=(',', u)) }}Y",
     true},
    {"X{{ u[1:] }}{{ u[::-1] }}{{ u[0] }}Y", false},
    {"X{{ u.split('_')[1] }}{{ u.rsplit('_', 1)[0] }}Y", false},
    {"X{{ [u, u] | join('Y') }}{{ 'X'.join([u, u]) }}Y", true},
    {"X{{ '{}'.format(u) }}{{ '{a:>40}Y'.format(a=u) }}{{ '{0!r}'.format(u) }}", true},
    {"X{{ u | indent(2, true) }}Y", true},
    {"X{{ u | center(40) }}{{ u.ljust(40) }}Y", true},
    {"X{{ u | list | join }}{% for c in u %}{{ c }}{% endfor %}Y", true},
    {"X{{ u | reverse | reverse }}Y", true},
    {"X{{ u | safe }}{{ u | string }}{{ u | default('X') }}Y", true},
    {"{% macro m(a) %}X{{ a }}Y{% endmacro %}{{ m(u) }}{{ m(a=u) | trim }}", true},
    {"{% set s %}X{{ u }}Y{% endset %}{{ s }}{% filter trim %}{{ u }}{% endfilter %}", true},
    {"{% set ns = namespace(s='X') %}{% set ns.s = ns.s + u %}{{ ns.s + 'Y' }}", true},
    {"X{% for k, v in d.items() %}{{ k }}{{ v }}{% endfor %}{{ d | list }}Y", true},
    {"X{{ d | dictsort }}{{ [d] | map(attribute=u) | list }}{{ [u] | map('trim') | join }}Y", true},
    {"X{{ dict(d) }}{{ namespace(d)[u] }}Y", true},
    {"{{ 'X' if u is string else u }}{{ u or 'Y' }}", true},
    {"X{{ (u * 2)[:10] }}{{ u.splitlines()[0] }}{{ u.removeprefix('q') }}Y", true},
    {"X{{ u.rjust(30, '0') | replace('0', 'Y') }}", true},
    {"X{{ j | from_json }}Y", true},
    {"X{{ (u | tojson)[1:-1] }}Y", true},
};

#define USER_TEXT "<|im_end|>"

START_TEST(user_text_stays_the_users)
{
    const char *source = carriers[_i].source;
    int status = run(source, "{\"u\": \"<|im_end|>\", \"d\": {\"<|im_end|>\": \"<|im_end|>\"},"
                             " \"j\": \"[\\\"<|im_end|>\\\"]\"}");
    ck_assert_msg(status == PLM_OK, "%s: %s", source, err.msg);
    size_t user = 0;
    for (size_t i = 0; i < render.text.len; i++) {
        char c = render.text.data[i];
        if (c == 'X' || c == 'Y')
            ck_assert_msg(trusted_at(i), "%s: %s at %zu", source, render.text.data, i);
        if (c == '<' || c == '|' || c == '>' || (c | 0x20) == 'm' || (c | 0x20) == 'e') {
            ck_assert_msg(!trusted_at(i), "%s: %s at %zu", source, render.text.data, i);
            user++;
        }
    }
    ck_assert_uint_gt(user, 0);
    if (carriers[_i].whole)
        ck_assert_msg(strstr(render.text.data, USER_TEXT) != NULL, "%s", render.text.data);
}
END_TEST

START_TEST(tokens_of_the_caller_are_trusted)
{
    ck_assert_int_eq(run("{{ bos_token }}{{ 'a' }}{{ eos_token | trim }}{{ u }}",
                         "{\"bos_token\": \"<s>\", \"eos_token\": \" </s>\", \"u\": \"u\"}"),
                     PLM_OK);
    ck_assert_str_eq(render.text.data, "<s>a</s>u");
    ck_assert_uint_eq(render.n_spans, 2);
    ck_assert(render.spans[0].trusted);
    ck_assert(!render.spans[1].trusted);
    ck_assert_uint_eq(render.spans[1].begin, 8);
}
END_TEST

START_TEST(spans_split_where_the_owner_changes)
{
    ck_assert_int_eq(run("ab{{ u }}{{ u }}c{{ '' ~ 'd' }}", "{\"u\": \"UU\"}"), PLM_OK);
    ck_assert_str_eq(render.text.data, "abUUUUcd");
    ck_assert_uint_eq(render.n_spans, 3);
    ck_assert_uint_eq(render.spans[1].begin, 2);
    ck_assert_uint_eq(render.spans[1].end, 6);
    ck_assert_uint_eq(render.spans[2].end, 8);
    ck_assert_int_eq(run("", "{}"), PLM_OK);
    ck_assert_uint_eq(render.n_spans, 0);
    ck_assert_uint_eq(render.text.len, 0);
}
END_TEST

// Templates that would run for ever or eat all memory.
static const char *const bombs[] = {
    "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
    "{{ range(1000000000) | list }}",
    "{% for i in range(1000000000) %}x{% endfor %}",
    "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "{% macro m(a) %}{{ m([a]) }}{% endmacro %}{{ m(1) }}",
    "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{% if true %}{{ a() ~ 1 }}{% endif %}"
    "{% endmacro %}{{ a() }}",
    "{% set ns = namespace(s='x') %}{% for i in range(100) %}{% set ns.s = ns.s + ns.s %}{% endfor "
    "%}",
    "{% set ns = namespace(s='x') %}{% for i in range(100) %}{% set ns.s = ns.s ~ ns.s %}{% endfor "
    "%}",
    "{% set ns = namespace(s=[1]) %}{% for i in range(100) %}{% set ns.s = ns.s + ns.s %}{% endfor "
    "%}",
    "{{ 'x' * 1000000000000 }}",
    "{{ 'xy' * 9223372036854775807 }}",
    "{{ [1] * 1000000000000 }}",
    "{{ [] * 5 }}{{ ([[[1] * 1000] * 1000] * 1000) | tojson }}",
    "{{ 'x' | center(1000000000000) }}",
    "{{ '{:>1000000000}'.format(1) }}",
    "{{ '{:.1000000000f}'.format(1.5) }}",
    "{{ 'a' | indent(1000000000) }}",
    "{{ [1] | tojson(indent=1000000000) }}",
    "{% set l = [] %}{% set _ = l.append(l) %}{{ l }}",
    "{% set l = [] %}{% set _ = l.append(l) %}{{ l | tojson }}",
    "{% set l = [] %}{% set k = [] %}{% set _ = l.append(k) %}{% set _ = k.append(l) %}{{ l == k "
    "}}",
    "{% set l = [1] %}{% for x in l %}{% set _ = l.append(x) %}{% endfor %}",
    "{% for i in range(100000) %}{{ 'x' * 100000 }}{% endfor %}",
    "{% set ns = namespace(g=[1]) %}{% for i in range(5000) %}{% set ns.g = ns.g | map('string') %}"
    "{% endfor %}{{ ns.g | list }}",
    "{% set s = 'a' * 1000000 %}{% for i in range(100000) %}{{ s.count('b') }}{% endfor %}",
    "{% set s = 'a' * 1000000 %}{% for i in range(100000) %}{{ s.rfind('ba' * 1000) }}{% endfor %}",
    "{% set s = 'a' * 1000000 %}{{ s.strip(s + 'b') }}{{ s.strip('b' * 1000000 + 'a') }}",
    "{% set s = 'é' * 1000000 %}{% for i in range(100000) %}{% set x = s[(i * 499979) % 1000000] "
    "%}{% endfor %}",
    "{% set s = 'a' * 1000000 %}{% for i in range(100000) %}{% if s == 'a' * 1000000 %}{% endif %}"
    "{% endfor %}",
    "{{ ('a' * 10000000) | replace('', 'b') }}",
};

START_TEST(bombs_hit_a_limit)
{
    struct plm_host_stats stats;
    // A fifth of the default, which this test takes time enough for under sanitizers.
    struct plm_render_limits limits = {
        .steps = 2000000, .depth = 1000, .output_bytes = 12 << 20, .memory_bytes = 50 << 20};
    clock_t begin = clock();
    int status = run_limited(bombs[_i], "{}", &limits);
    double seconds = (double)(clock() - begin) / CLOCKS_PER_SEC;
    ck_assert_msg(status == PLM_ERR_LIMIT, "%s: %d %s", bombs[_i], status, err.msg);
    ck_assert_msg(seconds < 10, "%s: %.1f s", bombs[_i], seconds);
    plm_host_read(host, &stats);
    ck_assert_int_lt(stats.peak_bytes, (int64_t)100 << 20);
}
END_TEST

START_TEST(each_limit_is_its_own)
{
    struct plm_render_opts opts;
    plm_render_opts_init(&opts);
    const char *source = "{% for i in range(100) %}{{ 'ab' ~ [[i]] }}{% endfor %}";
    ck_assert_int_eq(run_limited(source, "{}", &opts.limits), PLM_OK);
    struct plm_render_limits limits = opts.limits;
    limits.steps = 100;
    ck_assert_int_eq(run_limited(source, "{}", &limits), PLM_ERR_LIMIT);
    ck_assert_ptr_nonnull(strstr(err.msg, "steps"));
    limits = opts.limits;
    limits.depth = 3;
    ck_assert_int_eq(run_limited(source, "{}", &limits), PLM_ERR_LIMIT);
    ck_assert_ptr_nonnull(strstr(err.msg, "depth"));
    limits = opts.limits;
    limits.output_bytes = 500;
    ck_assert_int_eq(run_limited(source, "{}", &limits), PLM_ERR_LIMIT);
    ck_assert_ptr_nonnull(strstr(err.msg, "output bytes"));
    limits = opts.limits;
    limits.memory_bytes = 4000;
    ck_assert_int_eq(run_limited(source, "{}", &limits), PLM_ERR_LIMIT);
    ck_assert_ptr_nonnull(strstr(err.msg, "memory bytes"));
}
END_TEST

// What can not be loaded: the message names construct and line.
static const struct {
    const char *source;
    int status;
    const char *words[2];
} bad[] = {
    {"a\nb {% include 'x' %}", PLM_ERR_UNSUPPORTED, {"line 2", "include"}},
    {"{{ x | nofilter }}", PLM_ERR_UNSUPPORTED, {"line 1", "filter 'nofilter'"}},
    {"\n\n{{ x is notest }}", PLM_ERR_UNSUPPORTED, {"line 3", "test 'notest'"}},
    {"{% extends 'x' %}", PLM_ERR_UNSUPPORTED, {"line 1", "extends"}},
    {"{{ x | batch(2) }}", PLM_ERR_UNSUPPORTED, {"line 1", "unsupported filter 'batch'"}},
    {"{{ x is upper }}", PLM_ERR_UNSUPPORTED, {"line 1", "unsupported test 'upper'"}},
    {"{% for x in y recursive %}{% endfor %}", PLM_ERR_UNSUPPORTED, {"line 1", "recursive"}},
    {"{% macro m() %}\n{{ kwargs }}{% endmacro %}", PLM_ERR_UNSUPPORTED, {"line 2", "'kwargs'"}},
    {"{{ f(*x) }}", PLM_ERR_UNSUPPORTED, {"line 1", "'*' before an argument"}},
    {"{{ f(**x) }}", PLM_ERR_UNSUPPORTED, {"line 1", "'**' before an argument"}},
    {"{{ 2 ** 3 }}", PLM_ERR_FORMAT, {"line 1", "operator '**'"}},
    {"{{ 0x1F }}", PLM_ERR_UNSUPPORTED, {"line 1", "numbers of base 16"}},
    {"{{ 007 }}", PLM_ERR_FORMAT, {"line 1", "leading zeros"}},
    {"{{ 18446744073709551616 }}", PLM_ERR_UNSUPPORTED, {"beyond 64 bits", "18446744073709551616"}},
    {"{{ '\\N{BULLET}' }}", PLM_ERR_UNSUPPORTED, {"line 1", "\\N{BULLET}, is not supported"}},
    {"{{ 'a' 'b\\N{BULLET}' }}", PLM_ERR_UNSUPPORTED, {"line 1", "\\N{BULLET}"}},
    {"{% unknown %}", PLM_ERR_FORMAT, {"line 1", "unknown"}},
    {"{% if x %}\n\n", PLM_ERR_FORMAT, {"line 2", "elif"}},
    {"\n{{ 1 + }}", PLM_ERR_FORMAT, {"line 2", "}}"}},
    {"{{ 'abc }}", PLM_ERR_FORMAT, {"line 1", "quote"}},
    {"a\n{# x", PLM_ERR_FORMAT, {"line 2", "comment"}},
    {"{% raw %}x", PLM_ERR_FORMAT, {"line 1", "endraw"}},
    {"{{ [1, 2 }}", PLM_ERR_FORMAT, {"line 1", "bracket"}},
    {"{% break %}", PLM_ERR_FORMAT, {"line 1", "break"}},
    {"{{ '\\u12' }}", PLM_ERR_FORMAT, {"line 1", "escape"}},
    {"{{ a\n.b.\nc.1x }}", PLM_ERR_FORMAT, {"line 3", "x"}},
    {"{% for x in l %}{% if x %}{% endfor %}", PLM_ERR_FORMAT, {"line 1", "endfor"}},
    {"{% set a b %}", PLM_ERR_FORMAT, {"line 1", "'b'"}},
    {"\xff", PLM_ERR_FORMAT, {"UTF-8", "byte 0"}},
};

START_TEST(bad_templates_are_named)
{
    struct plm_template *tmpl = NULL;
    int status = load(bad[_i].source, &tmpl);
    ck_assert_msg(status == bad[_i].status, "%s: %d %s", bad[_i].source, status, err.msg);
    ck_assert_ptr_null(tmpl);
    ck_assert_int_eq(err.status, status);
    for (int i = 0; i < 2; i++)
        ck_assert_msg(strstr(err.msg, bad[_i].words[i]) != NULL, "%s: %s", bad[_i].source, err.msg);
}
END_TEST

static char *repeated(const char *open, const char *mid, const char *close, size_t n)
{
    char *text = malloc(n * (strlen(open) + strlen(close)) + strlen(mid) + 1);
    char *p = text;
    for (size_t i = 0; i < n; i++)
        p = stpcpy(p, open);
    p = stpcpy(p, mid);
    for (size_t i = 0; i < n; i++)
        p = stpcpy(p, close);
    return text;
}

START_TEST(deep_sources_are_refused)
{
    static const char *const nests[][3] = {
        {"{{ ((((((((((", "", ""},
        {"(", "1", ")"},
        {"[", "1", "]"},
        {"{1: ", "1", "}"},
        {"-", "1", ""},
        {"not ", "1", ""},
        {"f(", "1", ")"},
        {"a[", "1", "]"},
        {"1 if ", "1", " else 2"},
        {"1 if 1 else ", "1", ""},
        {"{% if x %}", "", "{% endif %}"},
        {"{% for x in y %}", "", "{% endfor %}"},
        {"{% macro m() %}", "", "{% endmacro %}"},
    };
    for (size_t i = 1; i < sizeof(nests) / sizeof(nests[0]); i++) {
        char *inner = repeated(nests[i][0], nests[i][1], nests[i][2], 20000);
        char *source = malloc(strlen(inner) + 10);
        bool tag = nests[i][0][0] == '{' && nests[i][0][1] == '%';
        strcpy(source, tag ? "" : "{{ ");
        strcat(source, inner);
        strcat(source, tag ? "" : " }}");
        struct plm_template *tmpl = NULL;
        int status = load(source, &tmpl);
        ck_assert_msg(status == PLM_ERR_LIMIT, "%s: %d %s", nests[i][0], status, err.msg);
        free(inner);
        free(source);
    }
}
END_TEST

// Chains are long in real templates, and are no nesting.
START_TEST(long_chains_work)
{
    static const char *const chains[][2] = {
        {"1", "+ 1"}, {"'a'", "~ 'a'"}, {"1", "and 1"}, {"0", "or 0"}, {"x", ", x"}};
    for (size_t i = 0; i < sizeof(chains) / sizeof(chains[0]); i++) {
        char *inner = repeated("", chains[i][0], chains[i][1], 5000);
        char *source = malloc(strlen(inner) + 10);
        sprintf(source, "{{ %s }}", inner);
        ck_assert_msg(run(source, "{\"x\": 1}") == PLM_OK, "%s: %s", chains[i][1], err.msg);
        free(inner);
        free(source);
    }
    // A chain that does nest when it is evaluated ends in a limit, not in a crash.
    char *inner = repeated("", "x", ".a", 50000);
    char *source = malloc(strlen(inner) + 10);
    sprintf(source, "{{ %s }}", inner);
    ck_assert_int_eq(run(source, "{\"x\": {}}"), PLM_ERR_LIMIT);
    free(inner);
    free(source);
}
END_TEST

START_TEST(raised_text_is_the_message)
{
    ck_assert_int_eq(run("{{ raise_exception('no ' ~ x) }}", "{\"x\": \"caf\u00e9\"}"),
                     PLM_ERR_INVALID);
    ck_assert_str_eq(err.msg, "no caf\u00e9");
    ck_assert_int_eq(run("a\n{{ x.y.z }}", "{\"x\": {}}"), PLM_ERR_INVALID);
    ck_assert_str_eq(err.msg, "chat template, line 2: 'y' is undefined");
}
END_TEST

START_TEST(hosts_out_of_memory_leak_nothing)
{
    static const char source[] =
        "{% macro m(a, b=[1], c=2) %}{{ a }}{{ b }}{{ caller }}{% endmacro %}"
        "{% set ns = namespace(s='', d={}) %}{% for x in l | map('upper') if x != 'Q' %}"
        "{% set ns.s = ns.s + x ~ loop.index ~ loop.last %}{{ loop.length }}{% endfor %}"
        "{{ m(u, 1, 2) | indent | replace('a', 'b') }}{{ ns.s }}{{ d | tojson(indent=1) }}"
        "{{ d | dictsort }}{{ u.split('a') | join('-') }}{{ '{:>9}|{:,.2f}'.format(u, 1234) }}"
        "{{ l | sort | unique | list }}{{ 2 * 90 // 7 }}{{ j | from_json }}"
        "{{ strftime_now('%c') }}{% set q %}{{ u * 2000 }}{% endset %}{{ q | title }}";
    struct json_object *json = json_tokener_parse("{\"u\": \"banana <&>\", \"l\": [\"c\", \"a\", "
                                                  "\"q\"], \"d\": {\"k\": [1, null, 2.5, \"x\"], "
                                                  "\"b\": {}}, \"j\": \"{\\\"a\\\": [1]}\"}");
    struct plm_render_opts opts;
    plm_render_opts_init(&opts);
    bool done = false;
    for (uint64_t n = 1; !done && n < 5000; n++) {
        struct plm_template *tmpl = NULL;
        plm_host_fail_nth(host, n, n % 2);
        int status = load(source, &tmpl);
        if (status == PLM_OK)
            status = plm_template_render(tmpl, json, &opts, &render, &err);
        plm_host_fail_nth(host, 0, 0);
        ck_assert_msg(status == PLM_OK || status == PLM_ERR_NOMEM_HOST, "%d %s", status, err.msg);
        done = status == PLM_OK;
        plm_render_finish(&render);
        plm_template_destroy(tmpl);
        struct plm_host_stats stats;
        plm_host_read(host, &stats);
        ck_assert_int_eq(stats.used_bytes, 0);
    }
    ck_assert(done);
    json_object_put(json);
}
END_TEST

// What is wrong where nothing ever looks: as Python's Jinja judges it.
static const struct {
    const char *source;
    int status;
    const char *text; // that is rendered, or that the error says
} unused[] = {
    {"{% if false %}{{ '\\N{BULLET}' }}{% endif %}", PLM_ERR_UNSUPPORTED,
     "a character by its name, \\N{BULLET}, is not supported"},
    {"{% if false %}{{ '\\N{}' }}{% endif %}", PLM_ERR_FORMAT, "malformed escape"},
    {"{% if false %}{{ '\\N' }}{% endif %}", PLM_ERR_FORMAT, "malformed escape"},
    {"{% if false %}{{ '\\x4' }}{% endif %}", PLM_ERR_FORMAT, "malformed escape"},
    {"{{ '\\\\N{BULLET}\\d' }}", PLM_OK, "\\N{BULLET}\\d"},
    {"{{ '\\\xc3\xa9\\\xe2\x80\xa2\\\xf0\x9f\x98\x80' }}", PLM_OK, "\\xe9\\u2022\\U0001f600"},
    {"{% if false %}{{ 'a' | nope }}{% endif %}ok", PLM_OK, "ok"},
    {"{% if false %}{% for a in [] %}{{ a | nope }}{% endfor %}{% endif %}", PLM_ERR_UNSUPPORTED,
     "unknown filter 'nope'"},
    {"{{ false and 'a' | nope }}{{ true or 'a' is nope }}", PLM_OK, "FalseTrue"},
    {"{{ true and 'a' | nope }}", PLM_ERR_UNSUPPORTED, "unknown filter 'nope'"},
    {"{{ x and 'a' | nope }}", PLM_ERR_UNSUPPORTED, "unknown filter 'nope'"},
    {"{{ (false and x) or 'a' | nope }}", PLM_ERR_UNSUPPORTED, "unknown filter 'nope'"},
};

START_TEST(unused_parts_are_judged_as_python_judges_them)
{
    const int status = run(unused[_i].source, "{}");
    ck_assert_msg(status == unused[_i].status, "%s: %d %s", unused[_i].source, status, err.msg);
    if (status == PLM_OK)
        ck_assert_str_eq(render.text.data, unused[_i].text);
    else
        ck_assert_msg(strstr(err.msg, unused[_i].text) != NULL, "%s", err.msg);
}
END_TEST

// What texts and numbers become; errors are marked by a leading '!'.
static const struct {
    const char *source;
    const char *text;
} values[] = {
    // Integers of 64 bits, signed or not.
    {"{{ 18446744073709551615 }} {{ -9223372036854775808 }} {{ u }}",
     "18446744073709551615 -9223372036854775808 18446744073709551615"},
    {"{{ 9223372036854775807 + 1 }} {{ 18446744073709551615 - 1 }} {{ u // 2 }} {{ u % 10 }}",
     "9223372036854775808 18446744073709551614 9223372036854775807 5"},
    {"{{ u == 18446744073709551615.0 }} {{ u > 18446744073709551614 }} {{ {u: 1}[u] }}",
     "False True 1"},
    {"{{ u | tojson }} {{ [u] }} {{ u | string | length }} {{ 'x' if u }} {{ -1 * -1 }}",
     "18446744073709551615 [18446744073709551615] 20 x 1"},
    {"{{ '18446744073709551615' | int }} {{ 1e18 | int }} {{ -1e18 | int }} {{ u | float }}",
     "18446744073709551615 1000000000000000000 -1000000000000000000 1.8446744073709552e+19"},
    {"{{ {1: 'a', 1.0: 'b', true: 'c'} }} {{ [1, 2][u] is defined }} {{ 'ab'[:u] }}",
     "{1: 'c'} False ab"},
    {"{{ u + 1 }}", "!line 1: integers beyond 64 bits are not supported"},
    {"{{ -9223372036854775808 - 1 }}", "!integers beyond 64 bits"},
    {"{{ u * u * u * u }}", "!integers beyond 64 bits"},
    {"{{ -u }}", "!integers beyond 64 bits"},
    {"{{ '99999999999999999999' | int }}", "!integers beyond 64 bits"},
    {"{{ 1e20 | int }}", "!integers beyond 64 bits"},
    {"{% set ns = namespace(n=7) %}{% for i in range(9) %}{% set ns.n = ns.n * ns.n %}{% endfor %}",
     "!integers beyond 64 bits"},
    {"{{ -7 // 2 }} {{ -7 % 2 }} {{ 7 // -2 }} {{ 7 % -2 }} {{ -7.5 // 2 }} {{ -7.5 % 2 }}",
     "-4 1 -4 -1 -4.0 0.5"},
    {"{{ 2.675 | round(2) }} {{ 2.5 | round }} {{ 7 | round(3) }}", "2.67 2.0 7"},
    {"{{ 1234 | round(-2) }}", "!round to fewer than no digits"},
    // Case by Unicode's full mappings.
    {"{{ '\u00df\ufb01\u0149\u1fb3\u1fb7\u0587' | upper }}",
     "SSFI\u02bcN\u0391\u0399\u0391\u0342\u0399\u0535\u0552"},
    {"{{ '\u00df \ufb01 \u0149 \u1fb3 \u1fb7 \u01c6'.title() }}",
     "Ss Fi \u02bcN \u1fbc \u0391\u0342\u0345 \u01c5"},
    {"{{ '\u039f\u0394\u039f\u03a3 \u03a3 \u0130' | lower }}",
     "\u03bf\u03b4\u03bf\u03c2 \u03c3 i\u0307"},
    {"{{ '\u1e9e\u00df\u0130'.casefold() }} {{ 'aB\u00df'.swapcase() }}", "ssssi\u0307 AbSS"},
    {"{{ 'a-b (c' | title }} {{ \"it's\" | title }} {{ \"it's\".title() }}", "A-B (C It's It'S"},
    // Formats.
    {"{{ '{}|{:>4}|{:<4}|{:^5}|{:*^5}'.format(1, 'x', 'y', 'z', 'w') }}",
     "1|   x|y   |  z  |**w**"},
    {"{{ '{:05d}|{:+d}|{: d}|{:,}|{:_}|{:x}|{:X}'.format(-42, 7, 7, 1234567, 1234567, 255, 255) }}",
     "-0042|+7| 7|1,234,567|1_234_567|ff|FF"},
    {"{{ '{:.2f}|{:8.3f}|{:e}|{:.3g}|{:.1%}|{}'.format(2.345, -1.5, 1234.5, 0.00012345, 0.256, "
     "1e16)"
     " }}",
     "2.35|  -1.500|1.234500e+03|0.000123|25.6%|1e+16"},
    {"{{ '{0}{1}{0}{a}{{}}'.format('x', 'y', a='z') }} {{ '{!r:>5}{!s}'.format('q', 1) }}",
     "xyxz{}   'q'1"},
    {"{{ '{:.2}'.format('abc') }}{{ '{:,.2f}'.format(1234567) }}", "ab1,234,567.00"},
    {"{{ '{:b}'.format(5) }}", "!format type 'b' is not supported for int"},
    {"{{ '{:d}'.format('x') }}", "!format type 'd' is not supported for string"},
    {"{{ '{a.b}'.format(a=1) }}", "!members in a format are not supported: 'a.b'"},
    {"{{ '{:{}}'.format(1, 2) }}", "!fields in a field"},
    {"{{ '{'.format(1) }}", "!brace without its pair"},
    {"{{ '{}{0}'.format(1) }}", "!mixes numbered and automatic"},
    {"{{ '{:#x}'.format(1) }}", "!'#x' is malformed or not supported"},
    {"{{ '%d' % 1 }}", "!formatting of a string by '%' is not supported"},
    // Time.
    {"{{ strftime_now('%Y-%m-%d %H:%M:%S %a %A %b %B %d %e %j %I %p %y %-d %^a %f %Z|%z|%%') }}",
     "2024-02-29 23:59:59 Thu Thursday Feb February 29 29 060 11 PM 24 29 THU 000000 ||%"},
    {"{{ strftime_now('%s') }}", "!conversion '%s' is not supported"},
    {"{{ strftime_now('%9d') }}", "!conversion '%9' is not supported"},
    // Texts.
    {"{{ ' a b  c '.split(none, 1) }}{{ ' a b '.rsplit() }}{{ 'a,b,c'.rsplit(',', 1) }}",
     "['a', 'b  c ']['a', 'b']['a,b', 'c']"},
    {"{{ 'a b'.rsplit(none, 1) }}", "!rsplit() at white space with a maximum"},
    {"{{ 'banana'.find('an') }}{{ 'banana'.rfind('an') }}{{ 'banana'.count('an') }}"
     "{{ 'b\u00e9n'.index('n') }}{{ 'x'.find('y') }}",
     "1322-1"},
    {"{{ 'banana'.find('an', 2) }}", "!find() takes at most 1 arguments, not 2"},
    {"{{ 'x'.zfill(3) }}", "!'zfill' of a string is not supported"},
    {"{{ [1].sort() }}", "!'sort' of a list is not supported"},
    {"{{ (1).real }}", "!'real' of a int is not supported"},
    {"{% macro m() %}{% endmacro %}{{ m.name }}", "!'name' of a macro is not supported"},
    {"{% for x in [1] %}{{ loop.cycle(1) }}{% endfor %}", "!'cycle' of a loop is not supported"},
    {"{{ cycler(1, 2) }}", "!cycler() is not supported"},
    {"{% set l = [{'a': 2, 'b': 1}, {'a': 1, 'b': 2}, {'a': 1, 'b': 1}, {'a': 2, 'b': 0}] %}"
     "{% for x in l | sort(attribute='a,b') %}{{ x.a }}{{ x.b }} {% endfor %}"
     "{% for x in l | sort(true, attribute='a,b') %}{{ x.a }}{{ x.b }} {% endfor %}",
     "11 12 20 21 21 20 12 11 "},
    {"{{ [{'n': 'b'}, {'n': 'A'}, {}] | sort(attribute='m') | length }}", "3"},
    {"{{ [x, y] | sort | length }} {{ [{'a': 2}, {'a': 1}] | sort(attribute='a') }}",
     "2 [{'a': 1}, {'a': 2}]"},
    {"{{ 'a'.replace('a') }}", "!replace() needs 'new'"},
    {"{{ 'a'.replace('a', 1) }}", "!replace() needs a string as 'new', not int"},
    {"{{ 'a'.ljust('b') }}", "!ljust() needs an integer as 'width', not string"},
    {"{{ 'a'.split(x) }}", "!'x' is undefined"},
    {"{{ range(none) }}", "!range() needs an integer as 'start', not none"},
};

START_TEST(values_are_python_s)
{
    now_s = 1709251199; // 2024-02-29 23:59:59, a Thursday
    const int status = run(values[_i].source, "{\"u\": 18446744073709551615}");
    const char *wanted = values[_i].text;
    if (wanted[0] == '!') {
        ck_assert_msg(status == PLM_ERR_INVALID, "%s: %d", values[_i].source, status);
        ck_assert_msg(strstr(err.msg, wanted + 1) != NULL, "%s: %s", values[_i].source, err.msg);
        return;
    }
    ck_assert_msg(status == PLM_OK, "%s: %s", values[_i].source, err.msg);
    ck_assert_str_eq(render.text.data, wanted);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("template");
    TCase *tc = tcase_create("template");
    tcase_set_timeout(tc, 60);
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_loop_test(tc, user_text_stays_the_users, 0, sizeof(carriers) / sizeof(carriers[0]));
    tcase_add_test(tc, tokens_of_the_caller_are_trusted);
    tcase_add_test(tc, spans_split_where_the_owner_changes);
    tcase_add_loop_test(tc, bombs_hit_a_limit, 0, sizeof(bombs) / sizeof(bombs[0]));
    tcase_add_test(tc, each_limit_is_its_own);
    tcase_add_loop_test(tc, unused_parts_are_judged_as_python_judges_them, 0,
                        sizeof(unused) / sizeof(unused[0]));
    tcase_add_loop_test(tc, values_are_python_s, 0, sizeof(values) / sizeof(values[0]));
    tcase_add_loop_test(tc, bad_templates_are_named, 0, sizeof(bad) / sizeof(bad[0]));
    tcase_add_test(tc, deep_sources_are_refused);
    tcase_add_test(tc, long_chains_work);
    tcase_add_test(tc, raised_text_is_the_message);
    tcase_add_test(tc, hosts_out_of_memory_leak_nothing);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
