// SPDX-License-Identifier: Apache-2.0
// plimsoll run: one prompt, or a chat in the terminal.
#include "tools/run.h"
#include "tools/plan_cache.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/cmd.h"
#include "tools/files.h"
#include "tools/term.h"

#define IN_RUN(field) offsetof(struct plm_run_flags, field)

// A prompt of this size is beyond every context there is (some 16 million tokens of text).
#define PROMPT_MAX_BYTES (64 * 1024 * 1024)

// What a shell reports for a program that Ctrl-C ended.
#define EXIT_INTERRUPTED 130

static const struct plm_opt run_table[] = {
    PLM_OPT(
        "-p, --prompt", "TEXT",
        "answer this and end (default: chat on a terminal,\nelse the prompt is read from stdin)",
        PLM_OPT_STRING, IN_RUN(prompt)),
    PLM_OPT("-f, --file", "FILE", "the prompt from a file", PLM_OPT_STRING, IN_RUN(prompt_file)),
    PLM_OPT("-sys, --system-prompt", "TEXT", "system prompt", PLM_OPT_STRING, IN_RUN(system)),
    PLM_OPT("-sysf, --system-prompt-file", "FILE", "the same from a file", PLM_OPT_STRING,
            IN_RUN(system_file)),
    PLM_OPT("-cnv, --conversation", NULL, "go on chatting after the first prompt", PLM_OPT_FLAG,
            IN_RUN(conversation)),
    PLM_OPT("-no-cnv, --no-conversation", NULL,
            "complete the prompt as it stands, without a chat template", PLM_OPT_FLAG, IN_RUN(raw)),
    PLM_OPT("--chat-template-kwargs", "JSON", "variables for the chat template", PLM_OPT_STRING,
            IN_RUN(template_kwargs)),
    PLM_OPT_IN("-n, --predict, --n-predict, --max-tokens", "N",
               "tokens of an answer; -1: to the end of the context (default -1)", PLM_OPT_I64,
               IN_RUN(predict), -1, 1e9),
    PLM_OPT("--stop, -r, --reverse-prompt", "TEXT", "end an answer before TEXT; may be repeated",
            PLM_OPT_LIST, IN_RUN(stop)),
    PLM_OPT("--ignore-eos", NULL, "go on where the model would end", PLM_OPT_FLAG,
            IN_RUN(ignore_eos)),
    PLM_OPT("--no-history", NULL,
            "neither keep the questions of a chat in the terminal nor find\nearlier ones "
            "(~/.local/state/plimsoll/history)",
            PLM_OPT_FLAG, IN_RUN(no_history)),
    PLM_OPT("--show-timings", NULL, "tokens and rates after each answer", PLM_OPT_FLAG,
            IN_RUN(timings)),
    PLM_OPT_END,
};

void plm_run_flags_init(struct plm_run_flags *flags)
{
    *flags = (struct plm_run_flags){
        .predict = -1,
    };
    plm_sampling_init(&flags->sampling);
}

struct plm_opt_group plm_run_flags_group(struct plm_run_flags *flags)
{
    return (struct plm_opt_group){"prompt and answer", run_table, flags};
}

static bool both(const char *a, const char *b, const char *names)
{
    if (a == NULL || b == NULL)
        return false;
    fprintf(stderr, "plimsoll run: give %s, not both\n", names);
    return true;
}

static bool flags_are_sound(const struct plm_run_flags *flags)
{
    if (both(flags->prompt, flags->prompt_file, "-p or -f") ||
        both(flags->system, flags->system_file, "-sys or -sysf"))
        return false;
    if (flags->conversation && flags->raw) {
        fprintf(stderr, "plimsoll run: give -cnv or -no-cnv, not both\n");
        return false;
    }
    if (flags->stop.n > PLIM_STOP_MAX) {
        fprintf(stderr, "plimsoll run: --stop: given more than %d times\n", PLIM_STOP_MAX);
        return false;
    }
    for (size_t i = 0; i < flags->stop.n; i++) {
        if (flags->stop.items[i][0] == '\0') {
            fprintf(stderr, "plimsoll run: --stop: the text is empty\n");
            return false;
        }
    }
    return true;
}

static int exit_status(enum plm_answer answer)
{
    switch (answer) {
    case PLM_ANSWER_DONE: return 0;
    case PLM_ANSWER_STOPPED: return EXIT_INTERRUPTED;
    case PLM_ANSWER_OUTPUT: plm_stdout_finish("run"); return 1;
    case PLM_ANSWER_REFUSED:
    case PLM_ANSWER_FAILED: break;
    }
    return 1;
}

static enum plm_answer ask(struct plm_run *run, const char *text, size_t len)
{
    if (run->chat != NULL && !plm_run_chat_add(run->chat, "user", text, len))
        return PLM_ANSWER_FAILED;
    return plm_run_answer(run, text, len);
}

static void print_commands(void)
{
    fputs("/reset   forget the conversation (the system prompt stays)\n"
          "/regen   answer the last question anew\n"
          "/help    this\n"
          "/exit    end, as Ctrl-D does\n"
          "When the context is full, the oldest turns are dropped.\n"
          "A line that ends in \\ goes on in the next one, as after Alt-Enter.\n"
          "Up finds earlier questions; keys are those of a shell. A paste is one question.\n"
          "Ctrl-C stops an answer.\n",
          stderr);
}

enum command { COMMAND_NONE, COMMAND_DONE, COMMAND_EXIT, COMMAND_REGEN };

// A slash and a word of nothing but letters, and maybe more words: meant as a command. What has
// other characters in its first word, like a path, is a question.
static bool looks_like_command(const char *text)
{
    size_t n = 0;
    while ((text[1 + n] >= 'a' && text[1 + n] <= 'z') || (text[1 + n] >= 'A' && text[1 + n] <= 'Z'))
        n++;
    return text[0] == '/' && n > 0 && (text[1 + n] == '\0' || text[1 + n] == ' ');
}

// Acts on a question that is a command; a misspelt one is not sent to the model.
static enum command command(struct plm_run *run, const char *text)
{
    if (strcmp(text, "/exit") == 0 || strcmp(text, "/quit") == 0 || strcmp(text, "/bye") == 0)
        return COMMAND_EXIT;
    if (strcmp(text, "/reset") == 0 || strcmp(text, "/clear") == 0) {
        if (run->chat != NULL)
            plm_run_chat_reset(run->chat);
        fprintf(stderr, "[forgotten]\n");
        return COMMAND_DONE;
    }
    if (strcmp(text, "/help") == 0 || strcmp(text, "/?") == 0) {
        print_commands();
        return COMMAND_DONE;
    }
    if (strcmp(text, "/regen") != 0) {
        if (!looks_like_command(text))
            return COMMAND_NONE;
        fprintf(stderr, "[no command %.*s; /help lists them; begin with a space to send it]\n",
                (int)strcspn(text, " "), text);
        return COMMAND_DONE;
    }
    if (run->chat == NULL || plm_run_chat_length(run->chat) < 2) {
        fprintf(stderr, "[there is no answer yet]\n");
        return COMMAND_DONE;
    }
    return COMMAND_REGEN;
}

static int chat(struct plm_run *run)
{
    bool terminal = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
    char *text;
    size_t len;
    while (plm_run_read_question(terminal, &text, &len)) {
        enum command what = len == 0 ? COMMAND_DONE : command(run, text);
        enum plm_answer answer = PLM_ANSWER_DONE;
        if (what == COMMAND_REGEN) {
            plm_run_chat_drop_last(run->chat);
            answer = plm_run_answer(run, NULL, 0);
        } else if (what == COMMAND_NONE) {
            answer = ask(run, text, len);
        }
        free(text);
        if (answer == PLM_ANSWER_OUTPUT)
            return exit_status(answer);
        if (what == COMMAND_EXIT)
            break;
    }
    return 0;
}

static void print_banner(const struct plm_run *run)
{
    plim_model_info model = PLIM_INIT(plim_model_info);
    plim_engine_model(run->engine, &model);
    char text[256];
    plm_sampling_text(&run->flags->sampling, text, sizeof(text));
    fprintf(stderr, "%s\n", text);
    fprintf(stderr, "%s (%s, %s), %u tokens of context. /help lists the commands.\n", model.name,
            model.arch, model.type, model.n_ctx);
}

// What to say and how: the prompt (NULL: chat) and the system prompt, read before the model is, so
// that a mistake costs no waiting. They are freed by the caller.
static bool read_texts(const struct plm_run_flags *flags, char **ret_prompt, char **ret_system)
{
    size_t len;
    if (flags->system_file != NULL) {
        *ret_system = plm_file_read("run", flags->system_file, NULL, PROMPT_MAX_BYTES, &len);
        if (*ret_system == NULL)
            return false;
    }
    bool from_stdin = flags->prompt == NULL && flags->prompt_file == NULL && !flags->conversation &&
                      !isatty(STDIN_FILENO);
    if (!from_stdin && flags->prompt_file == NULL)
        return true;
    *ret_prompt = plm_file_read("run", from_stdin ? "stdin" : flags->prompt_file,
                                from_stdin ? stdin : NULL, PROMPT_MAX_BYTES, &len);
    if (*ret_prompt == NULL)
        return false;
    // The line feed that ends a file is no part of the question.
    if (len > 0 && (*ret_prompt)[len - 1] == '\n')
        (*ret_prompt)[len - 1] = '\0';
    if ((*ret_prompt)[0] != '\0')
        return true;
    fprintf(stderr, "plimsoll run: the prompt from %s is empty\n",
            from_stdin ? "stdin" : flags->prompt_file);
    return false;
}

static int converse(struct plm_run *run, const char *prompt, const char *system)
{
    const struct plm_run_flags *flags = run->flags;
    plim_model_info model = PLIM_INIT(plim_model_info);
    plim_engine_model(run->engine, &model);
    bool raw = flags->raw;
    if (!raw && !model.has_chat_template) {
        fprintf(stderr, "plimsoll run: the model has no chat template: completing text as it "
                        "stands (--chat-template gives one)\n");
        raw = true;
    }
    if (!plm_run_catch_interrupt())
        return 1;
    if (!raw) {
        run->chat = plm_run_chat_create(system, flags->template_kwargs);
        if (run->chat == NULL)
            return 1;
    }
    run->out_terminal = isatty(STDOUT_FILENO);
    run->chatting = prompt == NULL || flags->conversation;
    if (run->chatting)
        print_banner(run);
    plm_run_input_history(!flags->no_history);
    enum plm_answer first = PLM_ANSWER_DONE;
    if (prompt != NULL)
        first = ask(run, prompt, strlen(prompt));
    int status = run->chatting && first != PLM_ANSWER_OUTPUT ? chat(run) : exit_status(first);
    plm_run_input_finish();
    plm_run_chat_destroy(run->chat);
    return status;
}

// What the start chose, so that nobody wonders at the memory that it takes.
static void say_defaults(const plim_engine *engine)
{
    char text[256];
    size_t need = 0;
    if (plim_engine_defaults(engine, text, sizeof(text), &need) == PLIM_OK && need > 0)
        fprintf(stderr, "plimsoll run: %s", text);
}

static void settle_sampling(const plim_engine *engine, struct plm_sampling *sampling)
{
    plim_model_info model = PLIM_INIT(plim_model_info);
    plim_engine_model(engine, &model);
    plm_sampling_settle(sampling, &model);
}

static int run_with(struct plm_engine_flags *engine_flags, struct plm_run_flags *flags,
                    struct plm_plan_cache *cache)
{
    char *prompt = NULL, *system = NULL;
    int status = 1;
    struct plm_run run = {.flags = flags};
    plim_error err = PLIM_INIT(plim_error);
    plm_term_attach(&engine_flags->opts, engine_flags->verbose);
    if (read_texts(flags, &prompt, &system)) {
        plm_plan_cache_load(cache, &engine_flags->opts);
        int r = plim_engine_create(&engine_flags->opts, &run.engine, &err);
        plm_term_progress_end();
        if (r != PLIM_OK)
            plm_term_error("run", r, &err);
        else {
            say_defaults(run.engine);
            settle_sampling(run.engine, &flags->sampling);
            plm_plan_cache_store(cache, run.engine, "run");
        }
        plm_plan_cache_finish(cache);
    }
    if (run.engine != NULL) {
        status = converse(&run, prompt != NULL ? prompt : flags->prompt,
                          system != NULL ? system : flags->system);
        plim_engine_free(run.engine);
    }
    free(prompt);
    free(system);
    return status;
}

int plim_cmd_run(int argc, char **argv)
{
    struct plm_engine_flags engine_flags;
    struct plm_run_flags flags;
    plm_engine_flags_init(&engine_flags);
    plm_run_flags_init(&flags);
    engine_flags.opts.max_sequences = 1; // one person, one answer at a time
    struct plm_plan_cache cache = {.dir = NULL};
    const char *file = NULL;
    struct plm_opt_group groups[] = {plm_run_flags_group(&flags),
                                     plm_sampling_group(&flags.sampling),
                                     plm_engine_flags_group(&engine_flags), plm_noted_flags_group(),
                                     plm_plan_cache_group(&cache)};
    const struct plm_opt_command cmd = {
        .name = "run",
        .operands = "[FILE]",
        .max_operands = 1,
        .summary = "Answers one prompt, or chats in the terminal. -np is 1 unless given.",
        .groups = groups,
        .n_groups = 5,
    };
    enum plm_opts_result parsed = plm_opts_parse(&cmd, argc, argv, &file, NULL);
    if (parsed != PLM_OPTS_OK)
        return parsed == PLM_OPTS_EXIT ? 0 : 2;
    int status;
    if (flags_are_sound(&flags) && plm_engine_flags_operand(&engine_flags, "run", file) &&
        plm_engine_flags_apply(&engine_flags, "run"))
        status = plm_engine_flags_fetch(&engine_flags, "run");
    else
        status = 2;
    if (status == 0)
        status = run_with(&engine_flags, &flags, &cache);
    plm_engine_flags_finish(&engine_flags);
    return status;
}
