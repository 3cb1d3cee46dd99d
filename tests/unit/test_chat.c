// SPDX-License-Identifier: Apache-2.0
// From conversations to prompts (core/chat/chat.h).
#include <check.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/chat/chat.h"
#include "core/template/template.h"
#include "tests/support/render.h"
#include "tests/support/suite.h"

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

// A conversation with all that a request may bring, through what the template was found to read.
static const char *probed(const char *source, const char *messages, const char *tools)
{
    static char param[PLM_CHAT_PARAM_BYTES];
    static char text[4096];
    struct plm_template *tmpl = NULL;
    struct plm_chat_form form;
    struct plm_chat_opts opts;
    plm_chat_opts_init(&opts);
    ck_assert_msg(load(source, &tmpl) == PLM_OK, "%s", err.msg);
    ck_assert_int_eq(plm_chat_probe(tmpl, &opts, &form, &err), PLM_OK);
    opts.normalize = true;
    opts.form = &form;
    opts.param = param;
    opts.messages = json_tokener_parse(messages);
    opts.tools = tools == NULL ? NULL : json_tokener_parse(tools);
    ck_assert_ptr_nonnull(opts.messages);
    plm_render_finish(&render);
    if (plm_chat_render(tmpl, &opts, &render, &err) == PLM_OK)
        snprintf(text, sizeof(text), "%s", render.text.len > 0 ? render.text.data : "");
    else
        snprintf(text, sizeof(text), "! %s", param);
    json_object_put(opts.messages);
    json_object_put(opts.tools);
    plm_template_destroy(tmpl);
    return text;
}

#define TURN "{% for m in messages %}<{{ m.role }}>"
#define SAYS TURN "{{ m.content }}{% endfor %}"
#define CALLS                                                                                      \
    "{% for t in m.tool_calls or [] %}[{{ t.function.name }} {{ t.function.arguments | tojson "    \
    "}}]{% endfor %}"
#define CALL(arguments)                                                                            \
    "{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", \"tool_calls\": "         \
    "[{\"id\": \"call00001\", \"function\": {\"name\": \"f\"" arguments "}}]}"

// Origin, not equality: a text stands in for no other one.
START_TEST(what_vanishes_is_named_although_its_like_is_there)
{
    static const char twice[] = "[{\"role\": \"user\", \"content\": \"same\"}, {\"role\": "
                                "\"assistant\", \"content\": \"same\"}, {\"role\": \"user\", "
                                "\"content\": \"same\"}]";
    ck_assert_str_eq(probed(SAYS, twice, NULL), "<user>same<assistant>same<user>same");
    ck_assert_str_eq(
        probed("{% for m in messages %}{{ m.content if m.role == 'user' }}{% endfor %}", twice,
               NULL),
        "! messages[1].content");
    ck_assert_str_eq(probed("{{ messages[-1].content }}", twice, NULL), "! messages[0].content");
    // The template's own word is no text of the user's either.
    ck_assert_str_eq(probed("same {{ messages[0].content }}", twice, NULL),
                     "! messages[1].content");
    // Of several parts each counts, blank ones aside.
    static const char parts[] =
        "[{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"a\"}, {\"type\": "
        "\"text\", \"text\": \" \\n\"}, {\"type\": \"text\", \"text\": \"b\"}]}]";
    ck_assert_str_eq(probed("{{ messages[0].content if messages[0].content is string else "
                            "messages[0].content[0].text }}",
                            parts, NULL),
                     "a\n \n\nb");
    ck_assert_str_eq(probed("{{ messages[0].content[0].text }}", parts, NULL),
                     "! messages[0].content[2]");
}
END_TEST

// What templates do with a content c; each brings some of it into the prompt.
static const char *const ways[] = {
    "{{ c }}",
    "{{ c | trim }}",
    "{{ '' + c }}",
    "{{ 'a' ~ c }}",
    "{{ c | upper }}",
    "{{ c | title }}{{ c[0:0] }}",
    "{{ c | tojson }}",
    "{{ [c] | tojson(indent=2) }}",
    "{{ {'role': c} }}",
    "{{ c | tojson | tojson }}",
    "{{ c.split('?')[0] }}",
    "{{ c.split('</think>')[-1].lstrip() }}",
    "{{ c | replace('W', 'w') }}",
    "{{ '{0!r}'.format(c) }}",
    "{{ c | list | join('.') }}",
    "{% for x in c %}{{ x }}{% endfor %}",
    "{{ [c, 'b'] | join }}",
    "{{ c | e }}",
    "{{ c | indent(2) }}",
    "{{ c[1:] }}",
    "{{ c[::-1] }}",
    "{{ ('[\"' ~ c ~ '\"]') | from_json | first }}",
    "{{ messages | map(attribute='content') | join }}",
    "{{ messages[0] }}",
    "{{ messages | tojson }}",
    "{% set ns = namespace(s='') %}{% set ns.s = ns.s + c %}{{ ns.s }}",
    "{% macro w(x) %}{{ x }}{% endmacro %}{{ w(c) | trim }}",
    "{% set s %}{{ c }}{% endset %}{{ s }}",
    "{% filter upper %}{{ c }}{% endfilter %}",
};

START_TEST(what_is_written_in_any_way_is_seen)
{
    char source[1024];
    snprintf(source, sizeof(source), "{%% set c = messages[0].content %%}%s", ways[_i]);
    const char *text = probed(source, "[{\"role\": \"user\", \"content\": \"Where to?\"}]", NULL);
    ck_assert_msg(text[0] != '!', "%s: %s", ways[_i], text);
    ck_assert_str_eq(probed("{{ messages[0].content | length }}",
                            "[{\"role\": \"user\", \"content\": \"Where to?\"}]", NULL),
                     "! messages[0].content");
}
END_TEST

START_TEST(tools_are_in_the_prompt_or_refused)
{
    static const char ask[] = "[{\"role\": \"user\", \"content\": \"q\"}]";
    static const char tools[] = "[{\"type\": \"function\", \"function\": {\"name\": \"one\"}}, "
                                "{\"type\": \"function\", \"function\": {\"name\": \"two\"}}]";
    ck_assert_str_eq(probed(SAYS, ask, tools), "! tools");
    ck_assert_str_eq(probed("{{ tools | length }}" SAYS, ask, tools), "! tools");
    ck_assert_str_eq(probed("{% if tools %}{{ tools[0] | tojson }}{% endif %}" SAYS, ask, tools),
                     "! tools[1]");
    ck_assert_str_eq(
        probed("{% for t in tools %}{{ t.function.name }} {% endfor %}" SAYS, ask, tools),
        "one two <user>q");
    ck_assert_str_eq(
        probed("{% for t in tools %}{{ t.function.name }} {% endfor %}" SAYS, ask, NULL),
        "<user>q");
    // Calls count, too, where any is read; elsewhere they are what an agent brings along.
    static const char calls[] =
        "[{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", "
        "\"tool_calls\": [{\"function\": {\"name\": \"f\"}}, "
        "{\"function\": {\"name\": \"g\"}}]}]";
    ck_assert_str_eq(probed(TURN "{{ m.content }}{{ m.tool_calls[0].function.name if m.tool_calls "
                                 "}}{% endfor %}",
                            calls, NULL),
                     "! messages[1].tool_calls[1]");
    ck_assert_str_eq(probed(SAYS, calls, NULL), "<user>q<assistant>");
    ck_assert_str_eq(probed("{{ tools }}" SAYS, ask, "[]"), probed("{{ tools }}" SAYS, ask, NULL));
}
END_TEST

START_TEST(a_developer_is_the_system_where_none_is_known)
{
    static const char developer[] = "[{\"role\": \"developer\", \"content\": \"d\"}, {\"role\": "
                                    "\"user\", \"content\": \"q\"}]";
    ck_assert_str_eq(probed(SAYS, developer, NULL), "<system>d<user>q");
    ck_assert_str_eq(probed("{% for m in messages %}<{{ 'dev' if m.role == 'developer' else m.role "
                            "}}>{{ m.content }}{% endfor %}",
                            developer, NULL),
                     "<dev>d<user>q");
    ck_assert_str_eq(
        probed("{% if messages[0].role == 'system' %}{{ raise_exception('no') }}{% endif "
               "%}{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}",
               developer, NULL),
        "! messages[0].role");
    ck_assert_str_eq(err.msg, "no");
}
END_TEST

START_TEST(reasoning_may_go_and_nothing_else_of_a_reply)
{
    static const char source[] = TURN "{{ m.content.split('</think>')[-1] if m.role == 'assistant' "
                                      "else m.content }}{% endfor %}";
    static const char dropped[] = TURN "{{ m.content if m.role != 'assistant' }}{% endfor %}";
    static const char messages[] = "[{\"role\": \"user\", \"content\": \"q\"}, {\"role\": "
                                   "\"assistant\", \"content\": \"<think>so</think>\"}]";
    ck_assert_str_eq(probed(source, messages, NULL), "<user>q<assistant>");
    ck_assert_str_eq(probed(dropped, messages, NULL), "! messages[1].content");
}
END_TEST

#define REPLY(members)                                                                             \
    "[{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", " members "}]"

START_TEST(a_refusal_is_what_the_assistant_said)
{
    static const char *const same[] = {
        REPLY("\"content\": null, \"refusal\": \"no\""),
        REPLY("\"refusal\": \"no\""),
        REPLY("\"content\": \"\", \"refusal\": \"no\""),
        REPLY("\"content\": [], \"refusal\": \"no\""),
        REPLY("\"content\": [{\"type\": \"refusal\", \"refusal\": \"no\"}]"),
        REPLY("\"content\": \"no\", \"refusal\": null"),
        REPLY("\"content\": \"no\", \"refusal\": \" \""),
    };
    for (size_t i = 0; i < sizeof(same) / sizeof(same[0]); i++)
        ck_assert_str_eq(probed(SAYS, same[i], NULL), "<user>q<assistant>no");
    ck_assert_str_eq(
        probed(TURN "{{ m.content if m.role != 'assistant' }}{% endfor %}", same[0], NULL),
        "! messages[1].content");
    // Beside a content it counts for itself.
    static const char both[] = REPLY("\"content\": \"but\", \"refusal\": \"no\"");
    ck_assert_str_eq(probed(SAYS, both, NULL), "! messages[1].refusal");
    ck_assert_str_eq(probed(TURN "{{ m.content }}{{ m.refusal }}{% endfor %}", both, NULL),
                     "<user>q<assistant>butno");
    // Parts of both kinds are one list of texts.
    ck_assert_str_eq(probed(SAYS,
                            REPLY("\"content\": [{\"type\": \"text\", \"text\": \"but\"}, "
                                  "{\"type\": \"refusal\", \"refusal\": \"no\"}]"),
                            NULL),
                     "<user>q<assistant>but\nno");
}
END_TEST

START_TEST(text_beside_calls_gets_a_message_of_its_own_where_needed)
{
    static const char source[] =
        TURN "{% if m.tool_calls %}" CALLS "{% else %}{{ m.content }}{% endif %}{% endfor %}";
    static const char both[] =
        "[{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", \"content\": \"t\", "
        "\"tool_calls\": [{\"id\": \"call00001\", \"function\": {\"name\": \"f\", \"arguments\": "
        "\"{}\"}}]}]";
    ck_assert_str_eq(probed(source, both, NULL), "<user>q<assistant>t<assistant>[f {}]");
    ck_assert_str_eq(probed(TURN "{{ m.content }}" CALLS "{% endfor %}", both, NULL),
                     "<user>q<assistant>t[f {}]");
}
END_TEST

START_TEST(arguments_that_are_none_are_kept_or_named)
{
    static const char prints[] = TURN "{{ m.content }}" CALLS "{% endfor %}";
    static const char walks[] =
        TURN "{{ m.content }}{% for t in m.tool_calls or [] %}{{ t.function.name }}{% for k, v in "
             "t.function.arguments.items() %} {{ k }}={{ v }}{% endfor %}{% endfor %}{% endfor %}";
    static const char cut[] = "[" CALL(", \"arguments\": \"{\\\"a\\\": \"") "]";
    static const char *const none[] = {"[" CALL("") "]",
                                       "[" CALL(", \"arguments\": null") "]",
                                       "[" CALL(", \"arguments\": \"\"") "]",
                                       "[" CALL(", \"arguments\": \" \"") "]",
                                       "[" CALL(", \"arguments\": {}") "]",
                                       "[" CALL(", \"arguments\": \"{}\"") "]"};
    ck_assert_str_eq(probed(prints, cut, NULL), "<user>q<assistant>[f \"{\\\"a\\\": \"]");
    ck_assert_str_eq(probed(walks, cut, NULL), "! messages[1].tool_calls[0].function.arguments");
    ck_assert_ptr_nonnull(strstr(err.msg, "JSON at byte 6"));
    for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++) {
        ck_assert_str_eq(probed(prints, none[i], NULL), "<user>q<assistant>[f {}]");
        ck_assert_str_eq(probed(walks, none[i], NULL), "<user>q<assistant>f");
    }
    // What the template says of itself is no fault of the arguments.
    ck_assert_str_eq(probed(SAYS "{% if messages | length == 2 %}{{ raise_exception('two') }}"
                                 "{% endif %}",
                            cut, NULL),
                     "! messages");
    ck_assert_str_eq(err.msg, "two");
}
END_TEST

// Origins are numbers of their own; spans are of one owner all the same.
START_TEST(spans_of_texts_that_meet_are_one)
{
    ck_assert_str_eq(probed("{{ messages[0].content ~ messages[1].content }}",
                            "[{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", "
                            "\"content\": \"b\"}]",
                            NULL),
                     "ab");
    ck_assert_uint_eq(render.n_spans, 1);
    ck_assert(!render.spans[0].trusted);
}
END_TEST

// All attempts of a request share one limit, so that a hostile one costs no more than a large one.
START_TEST(attempts_share_the_limit_of_steps)
{
    struct plm_template *tmpl = NULL;
    struct plm_chat_opts opts;
    plm_chat_opts_init(&opts);
    ck_assert_int_eq(load("{% for i in range(1000) %}{% set x = i %}{% endfor %}nothing", &tmpl),
                     0);
    opts.messages = json_tokener_parse("[{\"role\": \"user\", \"content\": \"a\"}]");
    uint64_t once = 0;
    for (uint64_t steps = 1000; once == 0; steps += 500) {
        opts.strict = true;
        opts.render.limits.steps = steps;
        if (plm_chat_render(tmpl, &opts, &render, &err) == PLM_OK)
            once = steps;
        plm_render_finish(&render);
    }
    opts.strict = false;
    opts.render.limits.steps = once + 500; // the first attempt fits, no other does
    ck_assert_int_eq(plm_chat_render(tmpl, &opts, &render, &err), PLM_ERR_INVALID);
    ck_assert_ptr_nonnull(strstr(err.msg, "messages[0].content"));
    json_object_put(opts.messages);
    plm_template_destroy(tmpl);
}
END_TEST

START_TEST(probes_out_of_memory_leak_nothing)
{
    struct plm_template *tmpl = NULL;
    struct plm_chat_opts opts;
    struct plm_chat_form form;
    plm_chat_opts_init(&opts);
    ck_assert_int_eq(load(SAYS, &tmpl), PLM_OK);
    struct plm_host_stats stats;
    plm_host_read(host, &stats);
    const int64_t before = stats.used_bytes;
    int status = PLM_ERR_NOMEM_HOST;
    for (uint64_t n = 1; status != PLM_OK; n++) {
        ck_assert_uint_lt(n, 20000);
        plm_host_fail_nth(host, n, 0);
        status = plm_chat_probe(tmpl, &opts, &form, &err);
        plm_host_fail_nth(host, 0, 0);
        ck_assert(status == PLM_OK || status == PLM_ERR_NOMEM_HOST);
        plm_host_read(host, &stats);
        ck_assert_int_eq(stats.used_bytes, before);
    }
    plm_template_destroy(tmpl);
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
    tcase_add_test(tc, what_vanishes_is_named_although_its_like_is_there);
    tcase_add_loop_test(tc, what_is_written_in_any_way_is_seen, 0, sizeof(ways) / sizeof(ways[0]));
    tcase_add_test(tc, tools_are_in_the_prompt_or_refused);
    tcase_add_test(tc, a_developer_is_the_system_where_none_is_known);
    tcase_add_test(tc, reasoning_may_go_and_nothing_else_of_a_reply);
    tcase_add_test(tc, a_refusal_is_what_the_assistant_said);
    tcase_add_test(tc, text_beside_calls_gets_a_message_of_its_own_where_needed);
    tcase_add_test(tc, arguments_that_are_none_are_kept_or_named);
    tcase_add_test(tc, spans_of_texts_that_meet_are_one);
    tcase_add_test(tc, attempts_share_the_limit_of_steps);
    tcase_add_test(tc, probes_out_of_memory_leak_nothing);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
