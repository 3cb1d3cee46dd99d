// SPDX-License-Identifier: Apache-2.0
// The plimsoll program: picks the subcommand.
#include <signal.h>
#include <stdio.h>
#include <string.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "core/plimsoll.h"
#include "tools/cmd.h"
#include "tools/files.h"
#include "tools/man.h"
#include "tools/opts.h"

static int cmd_version(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    printf("plimsoll %s\n%s\n", plim_version(), plim_build_info());
    return plm_stdout_finish("version") ? 0 : 1;
}

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary;
} commands[] = {
#ifdef PLM_SERVER
    {"serve", plim_cmd_serve, "serve a model over HTTP (OpenAI-compatible)"},
#endif
    {"run", plim_cmd_run, "answer one prompt, or chat in the terminal"},
    {"plan", plim_cmd_plan, "print what a start would plan, without serving"},
    {"bench", plim_cmd_bench, "measure how fast a model answers"},
    {"inspect", plim_cmd_inspect, "print the keys and tensors of a model file"},
    {"pull", plim_cmd_pull, "get a model from a hub or a URL"},
    {"list", plim_cmd_list, "list the models that were got"},
    {"rm", plim_cmd_rm, "remove a model that was got"},
    {"devices", plim_cmd_devices, "list what a model can run on"},
    {"version", cmd_version, "print the version and what was built in"},
};

#define N_COMMANDS (sizeof(commands) / sizeof(commands[0]))

static void usage(FILE *out)
{
    fprintf(out, "usage: plimsoll COMMAND [options]\n\n");
    for (size_t i = 0; i < N_COMMANDS; i++)
        fprintf(out, "  %-9s %s\n", commands[i].name, commands[i].summary);
    fprintf(out, "  %-9s %s\n\n", "help", "print this, or the options of a command");
    fprintf(out, "plimsoll COMMAND --help lists the options of a command.\n");
}

// Somebody used to a program for each command begins with the model or an option, or with the name
// of that program ("server").
static int no_command(const char *name)
{
    size_t len = strlen(name);
    const char *like = NULL;
    for (size_t i = 0; i < N_COMMANDS; i++) {
        if (len > 2 && strncmp(name, commands[i].name, 3) == 0)
            like = commands[i].name;
    }
    fprintf(stderr, "plimsoll: no command \"%s\"; ", name);
    if (name[0] == '-' || strchr(name, '/') != NULL ||
        (len > 5 && strcmp(name + len - 5, ".gguf") == 0))
        fprintf(stderr, "a command comes first, as in plimsoll run FILE or plimsoll serve FILE\n");
    else if (like != NULL)
        fprintf(stderr, "did you mean plimsoll %s?\n", like);
    else
        fprintf(stderr, "see plimsoll help\n");
    return 2;
}

static int run(const char *name, int argc, char **argv)
{
    for (size_t i = 0; i < N_COMMANDS; i++) {
        if (strcmp(name, commands[i].name) == 0)
            return commands[i].run(argc, argv);
    }
    return no_command(name);
}

// The manual page, from the tables that the commands parse with.
static int print_man(void)
{
    plm_man_begin();
    for (size_t i = 0; i < N_COMMANDS; i++) {
        char *ask[] = {(char *)commands[i].name, (char *)PLM_OPTS_MAN, NULL};
        if (commands[i].run != cmd_version)
            commands[i].run(2, ask);
    }
    plm_man_end();
    return plm_stdout_finish("help") ? 0 : 1;
}

// glibc raises its thresholds with every large block that is freed, and then keeps up to 64 MiB of
// free memory per arena: a burst of large bodies would stay resident beside the budget that they
// were charged to, and break the load line. Fixed thresholds give such blocks back at once.
#define LARGE_BLOCK_BYTES (128 * 1024) // glibc's own first value
#define ARENAS            2            // the engine's thread and the others rarely meet

static void bound_free_memory(void)
{
#ifdef __GLIBC__
    mallopt(M_MMAP_THRESHOLD, LARGE_BLOCK_BYTES);
    mallopt(M_TRIM_THRESHOLD, LARGE_BLOCK_BYTES);
    mallopt(M_ARENA_MAX, ARENAS);
#endif
}

int main(int argc, char **argv)
{
    bound_free_memory();
    // A file at the limit of its size: the write fails, and its command says so.
    signal(SIGXFSZ, SIG_IGN);
    if (argc < 2) {
        usage(stderr);
        return 2;
    }
    const char *name = argv[1];
    bool help = strcmp(name, "help") == 0 || strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0;
    if (help && argc > 2 && strcmp(argv[2], "--man") == 0)
        return print_man();
    if (help && argc > 2) {
        char *ask[] = {argv[2], "--help", NULL};
        return run(argv[2], 2, ask);
    }
    if (help) {
        usage(stdout);
        return plm_stdout_finish("help") ? 0 : 1;
    }
    // Also behind a command, where those look for it who are used to a program for each.
    if (strcmp(name, "--version") == 0 || (argc == 3 && strcmp(argv[2], "--version") == 0))
        name = "version";
    return run(name, argc - 1, argv + 1);
}
