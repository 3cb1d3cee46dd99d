// SPDX-License-Identifier: Apache-2.0
// Command lines. One table per group of options generates the parsing and --help; a subcommand
// chains the groups it takes (the engine's, shared by all, and its own).
//
// Spelling is llama-server's where it has the option: one dash and several letters (-np 4) is a
// name like any other. Names match exactly: there are no abbreviations, and "-c4096" is not "-c
// 4096". A value is the next argument or follows "=".
#ifndef PLM_TOOLS_OPTS_H
#define PLM_TOOLS_OPTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/plimsoll.h"
#include "tools/incident.h"

// The type of the target that an option sets.
enum plm_opt_type {
    PLM_OPT_FLAG,   // bool; takes no value, sets true
    PLM_OPT_ONOFF,  // uint32_t 0 or 1; on, true, 1, enabled / off, false, 0, disabled; also --no-x
    PLM_OPT_U32,    // uint32_t
    PLM_OPT_I64,    // int64_t
    PLM_OPT_U64,    // uint64_t
    PLM_OPT_BYTES,  // uint64_t; a number, also with KiB, MiB, GiB, TiB (or K, M, G, T)
    PLM_OPT_DOUBLE, // double; finite
    PLM_OPT_STRING, // const char *, points into argv
    PLM_OPT_LIST,   // struct plm_opt_list; may be repeated
    PLM_OPT_CHOICE, // uint32_t; index of the value in choices
    // Taken and of no effect: what other servers' command lines have and nothing here depends on.
    // With arg a value follows, which is not looked at; where arg begins with "[" only one of the
    // words of ONOFF or "auto" is one. Its help is what is said when it is used.
    PLM_OPT_NOTED,
};

#define PLM_OPT_LIST_MAX 64 // repetitions of one option; more is a mistake

struct plm_opt_list {
    const char *items[PLM_OPT_LIST_MAX];
    size_t n;
};

struct plm_opt {
    const char *names; // every spelling, as --help prints them: "-np, --parallel, --max-num-seqs"
    const char *arg;   // what the value is called in --help: "N"; NULL for a flag
    const char *help;  // one or more lines, without the range, which is added
    enum plm_opt_type type;
    size_t offset; // of the target in the group's struct
    // Numbers: the inclusive range; both 0: everything the type can hold.
    double min, max;
    bool above_min;      // the range is open at min: "more than min"
    const char *choices; // CHOICE: "quick|full"
};

// The entries of a table: without a range, with one, with one open below, with a list of words.
#define PLM_OPT(n, a, h, t, o)                                                                     \
    {                                                                                              \
        .names = (n), .arg = (a), .help = (h), .type = (t), .offset = (o)                          \
    }
#define PLM_OPT_IN(n, a, h, t, o, lo, hi)                                                          \
    {                                                                                              \
        .names = (n), .arg = (a), .help = (h), .type = (t), .offset = (o), .min = (lo),            \
        .max = (hi)                                                                                \
    }
#define PLM_OPT_ABOVE(n, a, h, t, o, lo, hi)                                                       \
    {                                                                                              \
        .names = (n), .arg = (a), .help = (h), .type = (t), .offset = (o), .min = (lo),            \
        .max = (hi), .above_min = true                                                             \
    }
#define PLM_OPT_ONE_OF(n, a, h, o, words)                                                          \
    {                                                                                              \
        .names = (n), .arg = (a), .help = (h), .type = PLM_OPT_CHOICE, .offset = (o),              \
        .choices = (words)                                                                         \
    }
#define PLM_OPT_NOTE(n, a, why)                                                                    \
    {                                                                                              \
        .names = (n), .arg = (a), .help = (why), .type = PLM_OPT_NOTED                             \
    }
#define PLM_OPT_END                                                                                \
    {                                                                                              \
        .names = NULL                                                                              \
    }

struct plm_opt_group {
    const char *title;          // heading in --help
    const struct plm_opt *opts; // ends with names == NULL
    void *base;                 // the struct that the offsets belong to; defaults already set
};

struct plm_opt_command {
    const char *name;     // "serve"
    const char *operands; // "FILE", or NULL when the command takes none
    const char *summary;  // one sentence for --help
    const struct plm_opt_group *groups;
    size_t n_groups;
    size_t max_operands;
};

enum plm_opts_result {
    PLM_OPTS_OK,
    PLM_OPTS_EXIT,  // --help was asked for and printed: exit 0
    PLM_OPTS_WRONG, // a message was printed: exit 2
};

// Parses argv[1..]. Operands (what is no option, and all after "--") go to operands, whose
// room is cmd->max_operands. Prints help to stdout and errors, which name the option and its range,
// to stderr.
enum plm_opts_result plm_opts_parse(const struct plm_opt_command *cmd, int argc, char **argv,
                                    const char **operands, size_t *n_operands);

// Overwrites values of a command line that others should not see, such as in the list of processes,
// and empties the list. They lie in argv, as main() got it.
void plm_opt_list_wipe(struct plm_opt_list *list);

// What --help prints, and the command's part of the manual page, which plm_opts_parse() prints when
// it meets PLM_OPTS_MAN. Both go to stdout.
#define PLM_OPTS_MAN "--help-man"
void plm_opts_print_help(const struct plm_opt_command *cmd);
void plm_opts_print_man(const struct plm_opt_command *cmd);
void plm_opts_print_man_group(const struct plm_opt_group *group);
// "1 to 4096", or "" for an option without a range.
void plm_opts_range_text(const struct plm_opt *opt, char out[96]);

// The options that every command which starts an engine takes, and what they set.
struct plm_engine_flags {
    plim_engine_opts opts;          // as plim_engine_opts_init() left them, then the options
    const char *chat_template_file; // --chat-template-file
    uint32_t prove;                 // --prove: 0 quick, 1 full
    double queue_timeout_s;         // --queue-timeout
    bool verbose;                   // -v
    struct plm_incidents incidents; // --incident-dir
    char *template_text;            // what plm_engine_flags_apply() read
    const char *hf_repo, *hf_file;  // -hf, -hff
    uint32_t kv_type, kv_type_k, kv_type_v; // --kv-type, -ctk, -ctv; PLM_KV_TYPE_NOT_SAID
    char *model_path;                       // what plm_engine_flags_fetch() found
};

// Titles of groups that the manual describes once, apart from the commands.
#define PLM_ENGINE_FLAGS_TITLE "model and memory"
#define PLM_NOTED_FLAGS_TITLE  "of other servers' command lines, without effect here"

#define PLM_KV_TYPE_NOT_SAID UINT32_MAX

void plm_engine_flags_init(struct plm_engine_flags *flags);
// The group for plm_opt_command.groups.
struct plm_opt_group plm_engine_flags_group(struct plm_engine_flags *flags);
// Flags that people bring from other servers, which are taken and said to have no effect.
struct plm_opt_group plm_noted_flags_group(void);
// The model named without -m: FILE as an operand (none: NULL). False, and a message, where both are
// given.
bool plm_engine_flags_operand(struct plm_engine_flags *flags, const char *command,
                              const char *file);
// After parsing: checks that a model was named, reads the template file, fills opts. command is for
// messages, which go to stderr. Returns false when something was wrong.
bool plm_engine_flags_apply(struct plm_engine_flags *flags, const char *command);
// Behind it, before anything else is started: gives opts the path of the model that -hf names, from
// the cache or the hub. Returns 0, or the exit status of the command, and a message was printed.
int plm_engine_flags_fetch(struct plm_engine_flags *flags, const char *command);
void plm_engine_flags_finish(struct plm_engine_flags *flags);

// "1.5 GiB", "64MiB", "4096": parses a BYTES value. False when it is none or does not fit.
bool plm_opt_parse_bytes(const char *text, uint64_t *ret);

#endif
