// SPDX-License-Identifier: Apache-2.0
// What the option tables say to people: --help, and the manual page.
#include <stdio.h>
#include <string.h>

#include "tools/opts.h"

// Prints text with its lines indented to the help column.
static void print_help_text(const char *text)
{
    for (;;) {
        size_t len = strcspn(text, "\n");
        printf("%28s%.*s", "", (int)len, text);
        text += len;
        if (*text == '\0')
            return;
        text++;
        printf("\n");
    }
}

static bool takes_bytes(const struct plm_opt_command *cmd)
{
    for (size_t g = 0; g < cmd->n_groups; g++) {
        for (const struct plm_opt *opt = cmd->groups[g].opts; opt->names != NULL; opt++) {
            if (opt->type == PLM_OPT_BYTES)
                return true;
        }
    }
    return false;
}

void plm_opts_print_help(const struct plm_opt_command *cmd)
{
    printf("usage: plimsoll %s [options]%s%s\n\n%s\n", cmd->name, cmd->operands != NULL ? " " : "",
           cmd->operands != NULL ? cmd->operands : "", cmd->summary);
    for (size_t g = 0; g < cmd->n_groups; g++) {
        printf("\n%s:\n", cmd->groups[g].title);
        for (const struct plm_opt *opt = cmd->groups[g].opts; opt->names != NULL; opt++) {
            printf("  %s%s%s\n", opt->names, opt->arg != NULL ? " " : "",
                   opt->arg != NULL ? opt->arg : "");
            print_help_text(opt->help);
            char range[96];
            plm_opts_range_text(opt, range);
            if (opt->choices != NULL)
                printf(" [%s]", opt->choices);
            else if (range[0] != '\0' && opt->type != PLM_OPT_BYTES)
                printf(" [%s]", range);
            printf("\n");
        }
    }
    if (takes_bytes(cmd))
        printf("\nBYTES take KiB, MiB, GiB and TiB.\n");
}

// Text for man: a hyphen that can be copied, no backslash and no line that begins as a request.
static void man_text(const char *text)
{
    bool line_begins = true;
    for (; *text != '\0'; text++) {
        if (line_begins && (*text == '.' || *text == '\''))
            fputs("\\&", stdout);
        if (*text == '-')
            fputs("\\-", stdout);
        else if (*text == '\\')
            fputs("\\e", stdout);
        else
            putchar(*text);
        line_begins = *text == '\n';
    }
}

void plm_opts_print_man_group(const struct plm_opt_group *group)
{
    for (const struct plm_opt *opt = group->opts; opt->names != NULL; opt++) {
        fputs(".TP\n\\fB", stdout);
        man_text(opt->names);
        fputs("\\fR", stdout);
        if (opt->arg != NULL) {
            fputs(" \\fI", stdout);
            man_text(opt->arg);
            fputs("\\fR", stdout);
        }
        putchar('\n');
        man_text(opt->help);
        char range[96];
        plm_opts_range_text(opt, range);
        if (opt->choices != NULL || (range[0] != '\0' && opt->type != PLM_OPT_BYTES)) {
            fputs(" [", stdout);
            man_text(opt->choices != NULL ? opt->choices : range);
            putchar(']');
        }
        putchar('\n');
    }
}

// Groups that the manual describes once, apart from the commands.
static bool shared(const struct plm_opt_group *group)
{
    return strcmp(group->title, PLM_ENGINE_FLAGS_TITLE) == 0 ||
           strcmp(group->title, PLM_NOTED_FLAGS_TITLE) == 0;
}

void plm_opts_print_man(const struct plm_opt_command *cmd)
{
    printf(".SS plimsoll %s [\\fIoptions\\fR]", cmd->name);
    if (cmd->operands != NULL)
        printf(" \\fI%s\\fR", cmd->operands);
    putchar('\n');
    man_text(cmd->summary);
    putchar('\n');
    for (size_t g = 0; g < cmd->n_groups; g++) {
        if (!shared(&cmd->groups[g]))
            plm_opts_print_man_group(&cmd->groups[g]);
    }
    for (size_t g = 0; g < cmd->n_groups; g++) {
        if (shared(&cmd->groups[g]))
            printf(".PP\nIt also takes the options under \\(lq%s\\(rq, below.\n",
                   cmd->groups[g].title);
    }
}
