// SPDX-License-Identifier: Apache-2.0
// From conversations to prompts (core/model/chat.h).
#include <check.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/model/chat.h"
#include "core/model/template.h"

static struct plm_host *host;
static struct plm_render render;
static struct plm_error err;

static void set_up(void)
{
    host = plm_host_create(0);
    render = (struct plm_render){0};
    err = (struct plm_error){0};
}

static void tear_down(void)
{
    plm_render_finish(&render);
    ck_assert_int_eq(plm_host_destroy(host), 0);
}

static int load(const char *source, struct plm_template **ret)
{
    return plm_template_create(host, (struct plm_slice){source, strlen(source)}, ret, &err);
}

static bool trusted_at(size_t at)
{
    for (size_t i = 0; i < render.n_spans; i++)
        if (at >= render.spans[i].begin && at < render.spans[i].end)
            return render.spans[i].trusted;
    ck_abort_msg("byte %zu is in no span", at);
    return true;
}

static const char *chat(const char *source, const char *messages, const char *tools,
                        const char *kwargs, struct plm_chat_opts *opts)
{
    struct plm_template *tmpl = NULL;
    ck_assert_msg(load(source, &tmpl) == PLM_OK, "%s", err.msg);
    opts->messages = json_tokener_parse(messages);
    opts->tools = tools == NULL ? NULL : json_tokener_parse(tools);
    opts->kwargs = kwargs == NULL ? NULL : json_tokener_parse(kwargs);
    char *before = strdup(json_object_to_json_string(opts->messages));
    plm_render_finish(&render);
    int status = plm_chat_render(tmpl, opts, &render, &err);
    ck_assert_str_eq(json_object_to_json_string(opts->messages), before); // left as it was
    free(before);
    json_object_put(opts->messages);
    json_object_put(opts->tools);
    json_object_put(opts->kwargs);
    plm_template_destroy(tmpl);
    return status != PLM_OK ? err.msg : render.text.len > 0 ? render.text.data : "";
}

#define EACH "{% for m in messages %}{{ '<' + m.role + '>' + m.content }}{% endfor %}"

START_TEST(parts_become_text_where_needed)
{
    static const char parts[] =
        "[{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"a\"}, {\"type\": "
        "\"text\", \"text\": \"b\"}]}]";
    struct plm_chat_opts opts;
    plm_chat_opts_init(&opts);
    ck_assert_str_eq(chat(EACH, parts, NULL, NULL, &opts), "<user>a\nb");
    // A template that prints the list does not know parts either.
    ck_assert_str_eq(chat("{{ messages[0].content | trim }}", parts, NULL, NULL, &opts), "a\nb");
    ck_assert_str_eq(chat("{{ messages[0].content | tojson }}", parts, NULL, NULL, &opts),
                     "\"a\\nb\"");
    ck_assert(!trusted_at(1));
    // One that knows them gets them.
    ck_assert_str_eq(chat("{{ messages[0].content | map(attribute='text') | join('+') }}", parts,
                          NULL, NULL, &opts),
                     "a+b");
    opts.strict = true;
    ck_assert_ptr_nonnull(strstr(chat(EACH, parts, NULL, NULL, &opts), "'+' does not take"));
    // Images can not be joined away.
    opts.strict = false;
    ck_assert_ptr_nonnull(strstr(
        chat(EACH, "[{\"role\": \"u\", \"content\": [{\"type\": \"image\"}]}]", NULL, NULL, &opts),
        "'+' does not take"));
}
END_TEST

START_TEST(tools_and_arguments_take_the_form_that_works)
{
    static const char call[] =
        "[{\"role\": \"assistant\", \"tool_calls\": [{\"function\": {\"name\": \"f\", "
        "\"arguments\": \"{\\\"a\\\": 1}\"}}]}]";
    struct plm_chat_opts opts;
    plm_chat_opts_init(&opts);
    ck_assert_str_eq(
        chat("{% for t in tools %}t{% endfor %}ok{{ tools }}", "[]", NULL, NULL, &opts), "ok[]");
    ck_assert_str_eq(chat("{{ tools is none }}{{ documents is none }}", "[]", NULL, NULL, &opts),
                     "TrueTrue");
    ck_assert_str_eq(chat("{{ messages[0].tool_calls[0].function.arguments | tojson }}", call, NULL,
                          NULL, &opts),
                     "{\"a\": 1}");
    ck_assert_str_eq(
        chat("{{ '!' + messages[0].tool_calls[0].function.arguments }}", call, NULL, NULL, &opts),
        "!{\"a\": 1}");
    ck_assert_str_eq(chat("{{ raise_exception('never') }}", call, NULL, NULL, &opts), "never");
    ck_assert_str_eq(chat("{{ '!' + messages[0].tool_calls[0].arguments }}",
                          "[{\"tool_calls\": [{\"name\": \"f\", \"arguments\": {\"a\": 1}}]}]",
                          NULL, NULL, &opts),
                     "!{\"a\": 1}");
}
END_TEST

START_TEST(variables_can_not_replace_ours)
{
    struct plm_chat_opts opts;
    plm_chat_opts_init(&opts);
    opts.bos_token = PLM_SLICE("<s>");
    opts.add_generation_prompt = true;
    const char *text = chat("{{ bos_token }}{{ eos_token }}{{ messages | length }}{{ x }}"
                            "{{ add_generation_prompt }}{{ tools }}",
                            "[]", NULL,
                            "{\"bos_token\": \"evil\", \"eos_token\": \"evil\", \"messages\": [1], "
                            "\"x\": \"X\", \"add_generation_prompt\": false, \"tools\": 5}",
                            &opts);
    ck_assert_str_eq(text, "<s>0XTrueNone");
    ck_assert(trusted_at(0));
    ck_assert(!trusted_at(4));
}
END_TEST

START_TEST(the_last_message_can_stay_open)
{
    struct plm_chat_opts opts;
    plm_chat_opts_init(&opts);
    opts.continue_final_message = true;
    static const char two[] =
        "[{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", "
        "\"content\": \"It is \"}]";
    ck_assert_str_eq(chat(EACH "<end>", two, NULL, NULL, &opts), "<user>q<assistant>It is ");
    ck_assert(!trusted_at(render.text.len - 1));
    ck_assert_uint_eq(render.spans[render.n_spans - 1].end, render.text.len);
    ck_assert_str_eq(chat("{% for m in messages %}{{ m.content | trim }}{% endfor %}<end>", two,
                          NULL, NULL, &opts),
                     "qIt is");
    static const char parts[] =
        "[{\"role\": \"u\", \"content\": [{\"type\": \"text\", \"text\": \"a\"}, {\"type\": "
        "\"text\", \"text\": \"b\"}, {\"type\": \"image\"}]}]";
    ck_assert_str_eq(chat("{% for p in messages[0].content %}[{{ p.text }}]{% endfor %}", parts,
                          NULL, NULL, &opts),
                     "[a][b");
    ck_assert_ptr_nonnull(strstr(chat("nothing", two, NULL, NULL, &opts), "can not be continued"));
    ck_assert_ptr_nonnull(strstr(chat(EACH, "[]", NULL, NULL, &opts), "no message to continue"));
    ck_assert_ptr_nonnull(
        strstr(chat(EACH, "[{\"role\": \"u\", \"content\": null}]", NULL, NULL, &opts), "no text"));
    // Joined and continued at once.
    static const char joined[] =
        "[{\"role\": \"u\", \"content\": [{\"type\": \"text\", \"text\": \"a\"}, {\"type\": "
        "\"text\", \"text\": \"b\"}]}]";
    ck_assert_str_eq(chat(EACH "<end>", joined, NULL, NULL, &opts), "<u>a\nb");
}
END_TEST

START_TEST(messages_can_be_normalized)
{
    struct plm_chat_opts opts;
    plm_chat_opts_init(&opts);
    static const char source[] = "{% set m = messages[0] %}{{ m }}";
    static const char message[] = "[{\"a\": null, \"reasoning\": \"R\", \"b\": 1}]";
    ck_assert_str_eq(chat(source, message, NULL, NULL, &opts),
                     "{'a': None, 'reasoning': 'R', 'b': 1}");
    opts.normalize = true;
    ck_assert_str_eq(chat(source, message, NULL, NULL, &opts),
                     "{'reasoning': 'R', 'b': 1, 'reasoning_content': 'R', 'thinking': 'R'}");
}
END_TEST

START_TEST(chats_out_of_memory_leak_nothing)
{
    struct plm_template *tmpl = NULL;
    struct plm_chat_opts opts;
    plm_chat_opts_init(&opts);
    ck_assert_int_eq(load(EACH, &tmpl), PLM_OK);
    opts.messages = json_tokener_parse(
        "[{\"role\": \"u\", \"content\": [{\"type\": \"text\", \"text\": \"a\"}, {\"type\": "
        "\"text\", \"text\": \"b\"}]}]");
    opts.continue_final_message = true;
    struct plm_host_stats stats;
    plm_host_read(host, &stats);
    int64_t before = stats.used_bytes;
    bool done = false;
    for (uint64_t n = 1; !done && n < 1000; n++) {
        plm_host_fail_nth(host, n, 1);
        int status = plm_chat_render(tmpl, &opts, &render, &err);
        plm_host_fail_nth(host, 0, 0);
        ck_assert(status == PLM_OK || status == PLM_ERR_NOMEM_HOST || status == PLM_ERR_INVALID);
        done = status == PLM_OK;
        plm_render_finish(&render);
        plm_host_read(host, &stats);
        ck_assert_int_eq(stats.used_bytes, before);
    }
    ck_assert(done);
    json_object_put(opts.messages);
    plm_template_destroy(tmpl);
}
END_TEST

START_TEST(many_nulls_cost_no_more_than_many_members)
{
    enum { NULLS = 200000 }; // behind as many members: minutes, where each restarts the scan
    struct plm_chat_opts opts;
    plm_chat_opts_init(&opts);
    opts.normalize = true;
    struct plm_template *tmpl = NULL;
    ck_assert_int_eq(load("{{ messages[0] | length }}{{ messages[0].n200000 is defined }}", &tmpl),
                     0);
    struct json_object *message = json_object_new_object();
    for (int i = 0; i < 2 * NULLS; i++) {
        char name[32];
        snprintf(name, sizeof(name), "n%d", i);
        json_object_object_add(message, name, i < NULLS ? json_object_new_boolean(1) : NULL);
    }
    opts.messages = json_object_new_array();
    json_object_array_add(opts.messages, message);
    ck_assert_msg(plm_chat_render(tmpl, &opts, &render, &err) == PLM_OK, "%s", err.msg);
    ck_assert_str_eq(render.text.data, "200000False");
    json_object_put(opts.messages);
    plm_template_destroy(tmpl);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("chat");
    TCase *tc = tcase_create("chat");
    tcase_set_timeout(tc, 60);
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_test(tc, parts_become_text_where_needed);
    tcase_add_test(tc, tools_and_arguments_take_the_form_that_works);
    tcase_add_test(tc, variables_can_not_replace_ours);
    tcase_add_test(tc, the_last_message_can_stay_open);
    tcase_add_test(tc, messages_can_be_normalized);
    tcase_add_test(tc, chats_out_of_memory_leak_nothing);
    tcase_add_test(tc, many_nulls_cost_no_more_than_many_members);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
