// SPDX-License-Identifier: Apache-2.0
// The plimsoll program: picks the subcommand.
#include <stdio.h>
#include <string.h>

#include "core/plimsoll.h"
#include "tools/cmd.h"

static int cmd_version(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    printf("plimsoll %s\n%s\n", plim_version(), plim_build_info());
    return 0;
}

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary;
} commands[] = {
    {"serve", plim_cmd_serve, "serve a model over HTTP (OpenAI-compatible)"},
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

static int run(const char *name, int argc, char **argv)
{
    for (size_t i = 0; i < N_COMMANDS; i++) {
        if (strcmp(name, commands[i].name) == 0)
            return commands[i].run(argc, argv);
    }
    fprintf(stderr, "plimsoll: no command \"%s\"; see plimsoll help\n", name);
    return 2;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        usage(stderr);
        return 2;
    }
    const char *name = argv[1];
    bool help = strcmp(name, "help") == 0 || strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0;
    if (help && argc > 2) {
        char *ask[] = {argv[2], "--help", NULL};
        return run(argv[2], 2, ask);
    }
    if (help) {
        usage(stdout);
        return 0;
    }
    if (strcmp(name, "--version") == 0)
        name = "version";
    return run(name, argc - 1, argv + 1);
}
