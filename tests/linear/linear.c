// SPDX-License-Identifier: Apache-2.0
// Work on requests of doubling sizes, for a tool that counts instructions: run.py runs one case
// after the other under callgrind, and judges how much more the doubled size takes.
//   linear --list        names of the cases
//   linear MODEL CASE..  each once with its size to warm up, then with its size, then its double
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/plimsoll.h"
#include "core/template/template.h"
#include "core/tokenizer/tok_split.h"
#include "tools/json.h"
#include "tools/serve/openai_request.h"

#ifndef TEST_MODELS
#error "the build names the folder of the tiny models"
#endif

// Called once per size: the counting tool knows it by its name.
void linear_measured(void (*work)(void *), void *ctx);

__attribute__((noinline)) void linear_measured(void (*work)(void *), void *ctx)
{
    work(ctx);
}

enum kind {
    CHAT,       // a body of /v1/chat/completions: scan, fields, render, tokens
    COMPLETION, // a body of /v1/completions: scan, fields, and the request to its end
    TEXT,       // a text to tokens and back
    TEMPLATE, // a template, with x: the text, l: the text's words, d: an object of as many members
    WORDS,    // a text is split by every pre-tokenizer
};

// A text of n times `part`, with `sep` between, then n times `close`; a '#' is the number of its
// repetition, a '@' is n.
struct linear_case {
    const char *name;
    enum kind kind;
    size_t n;
    const char *head, *part, *sep, *close, *tail;
    const char *source; // TEMPLATE
};

// Reads all that a conversation may bring.
static const char CHAT_TEMPLATE[] =
    "{% if tools %}{{ tools | tojson }}{% for t in tools %}{{ t.function.name }}{% endfor %}"
    "{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.reasoning_content %}{{ m.reasoning_content }}{% endif %}"
    "{% if m.content is string %}{{ m.content }}{% elif m.content %}"
    "{% for p in m.content %}{{ p.text }}{% endfor %}{% endif %}"
    "{% for c in m.tool_calls or [] %}{{ c.function.name }}{{ c.function.arguments | tojson }}"
    "{% endfor %}{% if not loop.last or add_generation_prompt %}<|im_end|>{% endif %}"
    "{% endfor %}{{ k }}";

#define USER "{\"role\":\"user\",\"content\":"
#define CALL(arguments)                                                                            \
    "{\"id\":\"c#\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":" arguments   \
    "}}"
#define GENERATE                                                                                   \
    ",\"temperature\":0,\"ignore_eos\":true,\"repeat_penalty\":1.1,\"presence_penalty\":0.5,"      \
    "\"frequency_penalty\":0.5"

// clang-format off
static const struct linear_case CASES[] = {
    // Parts of a chat.
    {"members", CHAT, 2000, "{\"messages\":[" USER "\"x\"", ",\"m#\":1", "", "", "}]}", ""},
    {"long members", CHAT, 500, "{\"messages\":[" USER "\"x\"",
     ",\"members whose names begin alike, and that for a good while, so that comparing costs #\":1",
     "", "", "}]}", ""},
    {"nulls", CHAT, 2000, "{\"messages\":[" USER "\"x\"", ",\"m#\":null", "", "", "}]}", ""},
    {"messages", CHAT, 1000, "{\"messages\":[", USER "\"word #\"}", ",", "", "]}", ""},
    {"null messages", CHAT, 1000, "{\"messages\":[", USER "\"a\",\"name\":null,\"x\":null}", ",",
     "", "]}", ""},
    {"turns", CHAT, 500, "{\"messages\":[",
     USER "\"word #\"},{\"role\":\"assistant\",\"content\":\"so\",\"reasoning_content\":\"hm\"}",
     ",", "", "]}", ""},
    {"parts", CHAT, 1000, "{\"messages\":[" USER "[", "{\"type\":\"text\",\"text\":\"word #\"}",
     ",", "", "]}]}", ""},
    {"continued parts", CHAT, 1000,
     "{\"continue_final_message\":true,\"messages\":[{\"role\":\"assistant\",\"content\":[",
     "{\"type\":\"text\",\"text\":\"word #\"}", ",", "", "]}]}", ""},
    {"continued marks", CHAT, 1000,
     "{\"continue_final_message\":true,\"messages\":[{\"role\":\"assistant\",\"content\":\"",
     "CONTINUE_FINAL_MESSAGE_TAG ", "", "", "\"}]}", ""},
    {"tools", CHAT, 200, "{\"messages\":[" USER "\"x\"}],\"tools\":[",
     "{\"type\":\"function\",\"function\":{\"name\":\"f#\",\"parameters\":{\"type\":\"object\","
     "\"properties\":{\"a\":{\"type\":\"string\"}}}}}", ",", "", "]}", ""},
    {"properties", CHAT, 500, "{\"messages\":[" USER "\"x\"}],\"tools\":[{\"type\":\"function\","
     "\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\",\"properties\":{",
     "\"p#\":{\"type\":\"string\"}", ",", "", "}}}}]}", ""},
    {"calls", CHAT, 300, "{\"messages\":[" USER "\"x\"},{\"role\":\"assistant\",\"tool_calls\":[",
     CALL("\"{\\\"a\\\":#}\""), ",", "", "]}]}", ""},
    {"call objects", CHAT, 300, "{\"messages\":[" USER "\"x\"},{\"role\":\"assistant\","
     "\"tool_calls\":[", CALL("{\"a\":#}"), ",", "", "]}]}", ""},
    {"arguments", CHAT, 1000, "{\"messages\":[" USER "\"x\"},{\"role\":\"assistant\","
     "\"tool_calls\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{",
     "\\\"a#\\\":{}", ",", "", "}\"}}]}]}", ""},
    {"kwargs", CHAT, 1000, "{\"messages\":[" USER "\"x\"}],\"chat_template_kwargs\":{", "\"k#\":#",
     ",", "", "}}", ""},
    {"fields", CHAT, 100, "{\"messages\":[" USER "\"x\"}]", ",\"field_#\":1", "", "", "}", ""},
    {"deep", CHAT, 25, "{\"messages\":[" USER "\"x\"}],\"chat_template_kwargs\":{\"k\":", "[", "",
     "]", "}}", ""},
    {"letters", CHAT, 20000, "{\"messages\":[" USER "\"", "x", "", "", "\"}]}", ""},
    {"escapes", CHAT, 5000, "{\"messages\":[" USER "\"", "\\u00e9\\n", "", "", "\"}]}", ""},
    {"pairs", CHAT, 2000, "{\"messages\":[" USER "\"", "\\ud83d\\ude00", "", "", "\"}]}", ""},
    // Parts of a request.
    {"tokens", COMPLETION, 5000, "{\"prompt\":[", "7", ",", "", "]}", ""},
    {"prompt", COMPLETION, 10, "{\"max_tokens\":1,\"cache_prompt\":false,\"prompt\":\"", "word ", "", "", "\"}", ""},
    {"stops", COMPLETION, 8, "{\"prompt\":\"a\",\"max_tokens\":16" GENERATE ",\"stop\":[",
     "\"a stop that does not come #\"", ",", "", "]}", ""},
    {"long stop", COMPLETION, 250, "{\"prompt\":\"a\",\"max_tokens\":16" GENERATE ",\"stop\":[\"",
     "aa", "", "", "b\"]}", ""},
    {"biases", COMPLETION, 100, "{\"prompt\":\"a\",\"max_tokens\":4" GENERATE ",\"logit_bias\":{",
     "\"#\":1", ",", "", "}}", ""},
    {"choices", COMPLETION, 4, "{\"prompt\":\"a\",\"max_tokens\":8" GENERATE ",\"n\":@", "", "", "",
     "}", ""},
    {"output", COMPLETION, 32, "{\"prompt\":\"a\",\"max_tokens\":@" GENERATE
     ",\"stop\":[\"aaaaaaaab\",\"0000001\"]", "", "", "", "}", ""},
    {"penalized prompt", COMPLETION, 60,
     "{\"max_tokens\":2,\"cache_prompt\":false" GENERATE ",\"prompt\":[", "7", ",", "",
     "]}", ""},
    // Texts.
    {"text of one word", TEXT, 20000, "", "x", "", "", "", ""},
    {"text of words", TEXT, 3000, "", "word# ", "", "", "", ""},
    {"text of spaces", TEXT, 20000, "", " ", "", "", "", ""},
    {"text of lines", TEXT, 20000, "", "\n", "", "", "", ""},
    {"text of spaces and lines", TEXT, 5000, "", "   \n", "", "", "", ""},
    {"text of digits", TEXT, 20000, "", "7", "", "", "", ""},
    {"text of signs", TEXT, 20000, "", "<", "", "", "", ""},
    {"text of specials", TEXT, 2000, "", "<|im_start|>", "", "", "", ""},
    {"text of almost specials", TEXT, 2000, "", "<|im_start|", "", "", "", ""},
    {"text of marks", TEXT, 5000, "a", "\xcc\x81", "", "", "", ""},
    {"text of mixed marks", TEXT, 3000, "a", "\xcc\x81\xcc\xa3", "", "", "", ""},
    {"text of Hangul", TEXT, 3000, "", "\xe1\x84\x80\xe1\x85\xa1\xe1\x86\xa8", "", "", "", ""},
    {"text of emoji", TEXT, 3000, "", "\xf0\x9f\x98\x80", "", "", "", ""},
    {"words of blanks", WORDS, 5000, "", " ", "", "", "x", ""},
    {"words of wide blanks", WORDS, 5000, "", "\xe3\x80\x80", "", "", "1", ""},
    {"words of capitals", WORDS, 5000, "", "A", "", "", "", ""},
    {"words of both cases", WORDS, 3000, "", "Aa'", "", "", "", ""},
    {"words of marks", WORDS, 5000, "", "\xcc\x81", "", "", "A", ""},
    {"words of ideographs", WORDS, 3000, "", "\xe4\xb8\xad\xe3\x82\xab", "", "", "", ""},
    {"words of format characters", WORDS, 5000, "", "\xc2\xad", "", "", "", ""},
    // What templates do with what a request brought.
    {"print", TEMPLATE, 2000, "", "word# ", "", "", "", "{{ l }}{{ d }}{{ x }}"},
    {"tojson", TEMPLATE, 1000, "", "word# ", "", "", "", "{{ l | tojson }}{{ d | tojson(indent=2) }}"},
    {"from_json", TEMPLATE, 1000, "[1", ",{\"a\":#}", "", "", "]", "{{ x | from_json | length }}"},
    {"sort", TEMPLATE, 1000, "", "word# ", "", "", "",
     "{{ l | sort | length }}{{ d | dictsort | length }}{{ l | sort(reverse=true) | length }}"},
    {"unique", TEMPLATE, 1000, "", "word# ", "", "", "", "{{ l | unique | list | length }}"},
    {"lists", TEMPLATE, 1000, "", "word# ", "", "", "",
     "{{ l | map('upper') | select | reject('none') | list | reverse | list | length }}"
     "{{ l[::-1] | length }}{{ l[1:] | first }}{{ l | max }}{{ 'x' in l }}"},
    {"join", TEMPLATE, 2000, "", "word# ", "", "", "", "{{ l | join(', ') }}{{ ''.join(l) }}"},
    {"texts", TEMPLATE, 2000, "", "word# ", "", "", "",
     "{{ x | upper }}{{ x | title }}{{ x | trim }}{{ x.strip() }}{{ x | replace('word', 'w') }}"
     "{{ x.split('d') | length }}{{ x.rsplit('d') | length }}{{ x.split() | length }}"
     "{{ x.find('zz') }}{{ x.rfind('zz') }}{{ x.count('w') }}{{ x.splitlines() | length }}"
     "{{ x | e }}{{ x | indent }}{{ x[::-1] }}{{ x.startswith('w') }}"},
    {"growing text", TEMPLATE, 1000, "", "word# ", "", "", "",
     "{% set ns = namespace(s='') %}{% for w in l %}{% set ns.s = ns.s + w %}{% endfor %}{{ ns.s }}"},
    {"letters of a text", TEMPLATE, 2000, "", "\xc3\xa9", "", "", "",
     "{% for i in range(x | length) %}{{ x[i] }}{% endfor %}"},
    {"letters from behind", TEMPLATE, 2000, "", "\xc3\xa9", "", "", "",
     "{% for i in range(x | length) %}{{ x[-i] }}{{ x[-3:] }}{{ x[:3] }}{% endfor %}"},
    {"look-ups", TEMPLATE, 500, "", "word# ", "", "", "",
     "{% for w in l %}{{ l[loop.index0] }}{{ d[w] }}{{ loop.length }}{{ loop.last }}"
     "{{ loop.nextitem }}{{ l[-1] }}{{ l | length }}{% endfor %}"},
    {"loops", TEMPLATE, 1000, "", "word# ", "", "", "",
     "{% for k, v in d.items() %}{% if v is string %}{{ k }}{% endif %}{% endfor %}"
     "{% macro m(w) %}[{{ w }}]{% endmacro %}{% for w in l if w %}{{ m(w) }}{% endfor %}"},
    {"format", TEMPLATE, 1000, "", "word# ", "", "", "",
     "{{ '{}'.format(x) }}{{ '{:>9}'.format(x) }}{{ x.ljust(9) }}{{ x ~ x }}"},
};
// clang-format on

#define N_CASES (sizeof(CASES) / sizeof(CASES[0]))

struct run {
    const struct linear_case *c;
    char *text;
    plim_engine *engine;
    struct plm_openai_rules rules;
    plim_request_opts defaults;
    // TEMPLATE
    struct plm_template *tmpl;
    struct json_object *context;
};

static void die(const struct run *run, const char *what, const char *why)
{
    fprintf(stderr, "%s: %s: %s\n", run->c->name, what, why);
    exit(1);
}

static char *put(char *at, const char *part, size_t i, size_t n)
{
    for (; *part != '\0'; part++) {
        if (*part == '#' || *part == '@')
            at += sprintf(at, "%zu", *part == '#' ? i : n);
        else
            *at++ = *part;
    }
    *at = '\0';
    return at;
}

static char *build(const struct linear_case *c, size_t n)
{
    const size_t each = strlen(c->part) + strlen(c->sep) + strlen(c->close) + 32;
    char *text = malloc(strlen(c->head) + strlen(c->tail) + n * each + 64);
    char *at = put(text, c->head, 0, n);
    for (size_t i = 0; i < n; i++)
        at = put(put(at, i > 0 ? c->sep : "", i, n), c->part, i, n);
    for (size_t i = 0; i < n; i++)
        at = put(at, c->close, i, n);
    put(at, c->tail, 0, n);
    return text;
}

// ---- what is measured ----

static void read_body(struct run *run, bool chat, struct plm_openai_request *ret)
{
    struct plm_json_doc doc;
    struct plm_api_error error = {0};
    char message[256];
    if (plm_json_scan(run->text, strlen(run->text), run->engine, &doc, message, sizeof(message)) !=
        PLIM_OK)
        die(run, "scan", message);
    if (!plm_openai_parse(ret, &doc, chat, &run->rules, &error))
        die(run, "fields", error.message);
}

static void to_tokens(struct run *run, const char *text, size_t len)
{
    plim_error error = PLIM_INIT(plim_error);
    size_t n = 0, need = 0;
    int32_t *ids = malloc((len + 16) * sizeof(*ids));
    char *back = malloc(4 * len + 64);
    if (plim_tokenize(run->engine, text, len, true, true, ids, len + 16, &n, &error) != PLIM_OK)
        die(run, "tokenize", error.message);
    if (plim_detokenize(run->engine, ids, n, back, 4 * len + 64, &need, &error) != PLIM_OK)
        die(run, "detokenize", error.message);
    free(ids);
    free(back);
}

static void chat(void *ctx)
{
    struct run *run = ctx;
    struct plm_openai_request request;
    plim_error error = PLIM_INIT(plim_error);
    read_body(run, true, &request);
    const size_t cap = 4 * request.opts.chat_json_len + 65536;
    size_t need = 0;
    char *prompt = malloc(cap);
    if (plim_chat_render(run->engine, request.opts.chat_json, request.opts.chat_json_len, prompt,
                         cap, &need, &error) != PLIM_OK)
        die(run, "render", error.message);
    to_tokens(run, prompt, need);
    free(prompt);
    plm_openai_finish(&request);
}

static void completion(void *ctx)
{
    struct run *run = ctx;
    struct plm_openai_request parsed;
    plim_request *request = NULL;
    plim_error error = PLIM_INIT(plim_error);
    plim_event event = PLIM_INIT(plim_event);
    read_body(run, false, &parsed);
    // A prompt beyond the context is refused in the end, which is work as well.
    const int r = plim_request_submit(run->engine, &parsed.opts, &request, &error);
    plm_openai_finish(&parsed);
    if (r != PLIM_OK && r != PLIM_ERR_CONTEXT)
        die(run, "submit", error.message);
    while (request != NULL && event.type != PLIM_EVENT_DONE) {
        plim_engine_step(run->engine, NULL);
        while (plim_request_next(request, 0, &event) == PLIM_OK && event.type != PLIM_EVENT_DONE)
            ;
    }
    if (request != NULL && event.status != PLIM_OK)
        die(run, "request", event.error->message);
    plim_request_free(request);
}

static void text(void *ctx)
{
    struct run *run = ctx;
    to_tokens(run, run->text, strlen(run->text));
}

static void words(void *ctx)
{
    struct run *run = ctx;
    const struct plm_tok_rule *rule;
    for (size_t i = 0; (rule = plm_tok_rule_at(i)) != NULL; i++) {
        struct plm_tok_pre pre;
        struct plm_tok_words walk;
        struct plm_slice word;
        plm_tok_pre_init(&pre, rule);
        plm_tok_words_init(&walk, &pre, (struct plm_slice){run->text, strlen(run->text)});
        while (plm_tok_words_next(&walk, &word))
            ;
    }
}

static void template(void *ctx)
{
    struct run *run = ctx;
    struct plm_render_opts opts;
    struct plm_render render;
    struct plm_error error;
    plm_render_opts_init(&opts);
    if (plm_template_render(run->tmpl, run->context, &opts, &render, &error) != PLM_OK)
        die(run, "render", error.msg);
    plm_render_finish(&render);
}

// ---- preparations ----

static struct json_object *make_context(const char *text)
{
    struct json_object *context = json_object_new_object();
    struct json_object *list = json_object_new_array(), *dict = json_object_new_object();
    json_object_object_add(context, "x", json_object_new_string(text));
    for (const char *p = text; *p != '\0';) {
        const size_t n = strcspn(p, " ");
        char word[64];
        snprintf(word, sizeof(word), "%.*s", (int)(n < 60 ? n : 60), p);
        json_object_array_add(list, json_object_new_string(word));
        json_object_object_add(dict, word, json_object_new_string(word));
        p += n + (p[n] == ' ');
    }
    json_object_object_add(context, "l", list);
    json_object_object_add(context, "d", dict);
    return context;
}

static void open_engine(struct run *run, const char *model)
{
    static const char *const names[] = {"m"};
    char path[512];
    plim_engine_opts o;
    plim_error error = PLIM_INIT(plim_error);
    plim_model_info info = PLIM_INIT(plim_model_info);
    snprintf(path, sizeof(path), "%s/%s", TEST_MODELS, model);
    plim_engine_opts_init(&o);
    o.model_path = path;
    o.chat_template = CHAT_TEMPLATE;
    o.threads = 1;
    o.ctx_size = 512;
    o.batch_max_tokens = 64;
    o.max_sequences = 8;
    o.manual_step = 1;
    o.memory_limit_bytes = UINT64_C(512) << 20;
    if (plim_engine_create(&o, &run->engine, &error) != PLIM_OK)
        die(run, "engine", error.message);
    plim_engine_model(run->engine, &info);
    plim_request_opts_init(&run->defaults);
    run->rules = (struct plm_openai_rules){.engine = run->engine,
                                           .defaults = &run->defaults,
                                           .model_names = names,
                                           .n_model_names = 1,
                                           .n_vocab = info.n_vocab};
}

static void run_case(struct run *run, const struct linear_case *c, const char *model)
{
    static void (*const works[])(void *) = {chat, completion, text, template, words};
    struct plm_host *host = plm_host_create(0);
    struct plm_error error;
    run->c = c;
    if (c->kind != TEMPLATE && c->kind != WORDS && run->engine == NULL)
        open_engine(run, model);
    if (c->kind == TEMPLATE &&
        plm_template_create(host, (struct plm_slice){c->source, strlen(c->source)}, &run->tmpl,
                            &error) != PLM_OK)
        die(run, "template", error.msg);
    for (int turn = 0; turn < 3; turn++) {
        run->text = build(c, turn < 2 ? c->n : 2 * c->n);
        if (c->kind == TEMPLATE)
            run->context = make_context(run->text);
        linear_measured(works[c->kind], run);
        json_object_put(run->context);
        run->context = NULL;
        free(run->text);
    }
    plm_template_destroy(run->tmpl);
    run->tmpl = NULL;
    if (plm_host_destroy(host) != 0)
        die(run, "template", "a leak");
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--list") == 0) {
        for (size_t i = 0; i < N_CASES; i++)
            printf("%s\n", CASES[i].name);
        return 0;
    }
    if (argc < 3) {
        fprintf(stderr, "usage: linear --list | linear MODEL CASE...\n");
        return 2;
    }
    struct run run = {0};
    for (int a = 2; a < argc; a++) {
        size_t i = 0;
        while (i < N_CASES && strcmp(argv[a], CASES[i].name) != 0)
            i++;
        if (i == N_CASES) {
            fprintf(stderr, "there is no case %s\n", argv[a]);
            return 2;
        }
        run_case(&run, &CASES[i], argv[1]);
    }
    plim_engine_free(run.engine);
    return 0;
}
