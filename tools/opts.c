// SPDX-License-Identifier: Apache-2.0
#include "tools/opts.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// One option on the command line, while it is being read.
struct use {
    const struct plm_opt_command *cmd;
    const struct plm_opt *opt;
    char *target;
    const char *spelled; // as the user wrote it, for messages
    int spelled_len;
    bool negated; // --no-x
};

__attribute__((format(printf, 2, 3))) static enum plm_opts_result wrong(const struct use *use,
                                                                        const char *fmt, ...)
{
    fprintf(stderr, "plimsoll %s: ", use->cmd->name);
    if (use->spelled != NULL)
        fprintf(stderr, "%.*s: ", use->spelled_len, use->spelled);
    va_list ap;
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fprintf(stderr, "\n");
    return PLM_OPTS_WRONG;
}

static bool same(const char *a, size_t a_len, const char *b)
{
    return strlen(b) == a_len && memcmp(a, b, a_len) == 0;
}

// The next spelling in a list such as "-c, --ctx-size"; false at its end.
static bool next_name(const char **cursor, const char **ret_name, size_t *ret_len)
{
    const char *s = *cursor + strspn(*cursor, ", ");
    if (*s == '\0')
        return false;
    size_t len = strcspn(s, ", ");
    *ret_name = s;
    *ret_len = len;
    *cursor = s + len;
    return true;
}

static bool has_name(const struct plm_opt *opt, const char *name, size_t len, bool *ret_negated)
{
    const char *cursor = opt->names, *have;
    size_t have_len;
    while (next_name(&cursor, &have, &have_len)) {
        if (have_len == len && memcmp(have, name, len) == 0) {
            *ret_negated = false;
            return true;
        }
        if (opt->type == PLM_OPT_ONOFF && have_len > 2 && len == have_len + 3 &&
            memcmp(name, "--no-", 5) == 0 && memcmp(name + 5, have + 2, have_len - 2) == 0) {
            *ret_negated = true;
            return true;
        }
    }
    return false;
}

static bool find(struct use *use, const char *name, size_t len)
{
    for (size_t g = 0; g < use->cmd->n_groups; g++) {
        const struct plm_opt_group *group = &use->cmd->groups[g];
        for (const struct plm_opt *opt = group->opts; opt->names != NULL; opt++) {
            if (has_name(opt, name, len, &use->negated)) {
                use->opt = opt;
                use->target = group->base != NULL ? (char *)group->base + opt->offset : NULL;
                return true;
            }
        }
    }
    return false;
}

// Options of llama-server that have no place here, and what there is instead.
static const struct {
    const char *names, *why;
} elsewhere[] = {
    {"-mu, --model-url", "plimsoll pull URL gets the file, -m names it"},
    {"-hft, --hf-token", "a token is taken from HF_TOKEN or its file, not from a command line that "
                         "others can read"},
    {"-mm, --mmproj, -mmu, --mmproj-url, --mmproj-auto, --no-mmproj",
     "images are not taken; a model with a projector runs here without it, on text"},
};

static bool is_one_of(const char *names, const char *name, size_t len)
{
    const char *have;
    size_t have_len;
    while (next_name(&names, &have, &have_len)) {
        if (have_len == len && memcmp(have, name, len) == 0)
            return true;
    }
    return false;
}

// Somebody used to abbreviations gets told the whole name.
static enum plm_opts_result unknown(struct use *use, const char *name, size_t len)
{
    for (size_t i = 0; i < sizeof(elsewhere) / sizeof(elsewhere[0]); i++) {
        if (is_one_of(elsewhere[i].names, name, len))
            return wrong(use, "unknown option: %s", elsewhere[i].why);
    }
    for (size_t g = 0; g < use->cmd->n_groups; g++) {
        for (const struct plm_opt *opt = use->cmd->groups[g].opts; opt->names != NULL; opt++) {
            const char *cursor = opt->names, *have;
            size_t have_len;
            while (next_name(&cursor, &have, &have_len)) {
                if (len > 3 && have_len > len && memcmp(have, name, len) == 0)
                    return wrong(use, "unknown option; did you mean %.*s?", (int)have_len, have);
            }
        }
    }
    return wrong(use, "unknown option; see plimsoll %s --help", use->cmd->name);
}

void plm_opts_range_text(const struct plm_opt *opt, char out[96])
{
    out[0] = '\0';
    if (opt->min == 0 && opt->max == 0)
        return;
    if (opt->above_min)
        snprintf(out, 96, "more than %.15g, at most %.15g", opt->min, opt->max);
    else
        snprintf(out, 96, "%.15g to %.15g", opt->min, opt->max);
}

static bool in_range(const struct plm_opt *opt, double value)
{
    if (opt->min == 0 && opt->max == 0)
        return true;
    return value <= opt->max && (opt->above_min ? value > opt->min : value >= opt->min);
}

static enum plm_opts_result out_of_range(const struct use *use, const char *value)
{
    char range[96];
    plm_opts_range_text(use->opt, range);
    return wrong(use, "%s is out of range (%s)", value,
                 range[0] != '\0' ? range : "the number is too large");
}

static enum plm_opts_result set_unsigned(const struct use *use, const char *value)
{
    bool wide = use->opt->type == PLM_OPT_U64;
    errno = 0;
    char *end;
    uint64_t n = strtoull(value, &end, 10);
    // strtoull takes blanks, a sign and nothing at all; we do not.
    bool digits = value[0] != '\0' && value[strspn(value, "0123456789")] == '\0';
    if (!digits) {
        if (value[0] == '-' && value[1] != '\0' &&
            value[1 + strspn(value + 1, "0123456789")] == '\0')
            return out_of_range(use, value);
        return wrong(use, "\"%s\" is not a whole number", value);
    }
    if (errno != 0 || (!wide && n > UINT32_MAX) || !in_range(use->opt, (double)n))
        return out_of_range(use, value);
    if (wide)
        memcpy(use->target, &n, sizeof(n));
    else
        memcpy(use->target, &(uint32_t){(uint32_t)n}, sizeof(uint32_t));
    return PLM_OPTS_OK;
}

static enum plm_opts_result set_signed(const struct use *use, const char *value)
{
    errno = 0;
    char *end;
    long long n = strtoll(value, &end, 10);
    const char *digits = value + (value[0] == '-');
    if (digits[0] == '\0' || digits[strspn(digits, "0123456789")] != '\0')
        return wrong(use, "\"%s\" is not a whole number", value);
    if (errno != 0 || !in_range(use->opt, (double)n))
        return out_of_range(use, value);
    memcpy(use->target, &(int64_t){n}, sizeof(int64_t));
    return PLM_OPTS_OK;
}

static enum plm_opts_result set_double(const struct use *use, const char *value)
{
    char *end;
    double d = strtod(value, &end);
    if (value[0] == '\0' || value[0] == ' ' || *end != '\0')
        return wrong(use, "\"%s\" is not a number", value);
    if (!isfinite(d) || !in_range(use->opt, d))
        return out_of_range(use, value);
    memcpy(use->target, &d, sizeof(d));
    return PLM_OPTS_OK;
}

bool plm_opt_parse_bytes(const char *text, uint64_t *ret)
{
    static const char units[] = "KMGT";
    if (text[0] < '0' || text[0] > '9')
        return false;
    char *end;
    double value = strtod(text, &end);
    if (memchr(text, 'x', (size_t)(end - text)) != NULL)
        return false; // strtod reads hexadecimal
    while (*end == ' ')
        end++;
    double scale = 1;
    const char *unit = *end != '\0' ? strchr(units, *end >= 'a' ? *end - 32 : *end) : NULL;
    if (unit != NULL) {
        scale = (double)(UINT64_C(1) << (10 * (unit - units + 1)));
        end++;
        if (*end == 'i' && (end[1] == 'B' || end[1] == 'b'))
            end += 2;
    } else if (*end == 'B') {
        end++;
    }
    value *= scale;
    // 2^53: beyond it doubles, and any machine, end.
    if (*end != '\0' || !(value < 9007199254740992.0))
        return false;
    *ret = (uint64_t)value;
    return true;
}

static enum plm_opts_result set_bytes(const struct use *use, const char *value)
{
    uint64_t n;
    if (!plm_opt_parse_bytes(value, &n))
        return wrong(use, "\"%s\" is not a size in bytes (write 1073741824, 1024MiB or 1GiB)",
                     value);
    if (!in_range(use->opt, (double)n))
        return out_of_range(use, value);
    memcpy(use->target, &n, sizeof(n));
    return PLM_OPTS_OK;
}

// 1, 0, or -1 where the word is neither.
static int onoff_of(const char *value)
{
    static const char *const yes[] = {"on", "true", "1", "enabled"};
    static const char *const no[] = {"off", "false", "0", "disabled"};
    for (size_t i = 0; i < 4; i++) {
        if (strcmp(value, yes[i]) == 0)
            return 1;
        if (strcmp(value, no[i]) == 0)
            return 0;
    }
    return -1;
}

static enum plm_opts_result set_onoff(const struct use *use, const char *value)
{
    const int on = onoff_of(value);
    if (on < 0)
        return wrong(use, "\"%s\" is neither on nor off", value);
    memcpy(use->target, &(uint32_t){(uint32_t)on}, sizeof(uint32_t));
    return PLM_OPTS_OK;
}

static enum plm_opts_result set_choice(const struct use *use, const char *value)
{
    uint32_t index = 0;
    for (const char *s = use->opt->choices; *s != '\0'; index++) {
        size_t len = strcspn(s, "|");
        if (same(s, len, value)) {
            memcpy(use->target, &index, sizeof(index));
            return PLM_OPTS_OK;
        }
        s += len + (s[len] == '|');
    }
    return wrong(use, "\"%s\" is not one of %s", value, use->opt->choices);
}

static enum plm_opts_result set_list(const struct use *use, const char *value)
{
    struct plm_opt_list *list = (struct plm_opt_list *)(void *)use->target;
    if (list->n == PLM_OPT_LIST_MAX)
        return wrong(use, "given more than %d times", PLM_OPT_LIST_MAX);
    list->items[list->n++] = value;
    return PLM_OPTS_OK;
}

void plm_opt_list_wipe(struct plm_opt_list *list)
{
    for (size_t i = 0; i < list->n; i++)
        memset((char *)list->items[i], '*', strlen(list->items[i]));
    list->n = 0;
}

static enum plm_opts_result set(const struct use *use, const char *value)
{
    switch (use->opt->type) {
    case PLM_OPT_U32:
    case PLM_OPT_U64: return set_unsigned(use, value);
    case PLM_OPT_I64: return set_signed(use, value);
    case PLM_OPT_BYTES: return set_bytes(use, value);
    case PLM_OPT_DOUBLE: return set_double(use, value);
    case PLM_OPT_ONOFF: return set_onoff(use, value);
    case PLM_OPT_CHOICE: return set_choice(use, value);
    case PLM_OPT_LIST: return set_list(use, value);
    case PLM_OPT_STRING: memcpy(use->target, &value, sizeof(value)); return PLM_OPTS_OK;
    case PLM_OPT_FLAG:
    case PLM_OPT_NOTED: break;
    }
    return wrong(use, "takes no value");
}

// An option of other servers: its value is stepped over, and why nothing depends on it is said.
static enum plm_opts_result note(const struct use *use, bool has_value, int argc, char **argv,
                                 int *i)
{
    const char *arg = use->opt->arg;
    if (arg == NULL && has_value)
        return wrong(use, "takes no value");
    if (arg != NULL && !has_value) {
        const char *next = *i + 1 < argc ? argv[*i + 1] : NULL;
        const bool optional = arg[0] == '[';
        if (next == NULL && !optional)
            return wrong(use, "needs a value (%s)", arg);
        *i += !optional || (next != NULL && (strcmp(next, "auto") == 0 || onoff_of(next) >= 0));
    }
    fprintf(stderr, "plimsoll %s: %.*s has no effect: %s\n", use->cmd->name, use->spelled_len,
            use->spelled, use->opt->help);
    return PLM_OPTS_OK;
}

static enum plm_opts_result parse_option(struct use *use, int argc, char **argv, int *i)
{
    const char *arg = argv[*i];
    const char *eq = strchr(arg, '=');
    size_t len = eq != NULL ? (size_t)(eq - arg) : strlen(arg);
    use->spelled = arg;
    use->spelled_len = (int)len;
    if (!find(use, arg, len))
        return unknown(use, arg, len);
    if (use->opt->type == PLM_OPT_NOTED)
        return note(use, eq != NULL, argc, argv, i);
    if (use->opt->type == PLM_OPT_FLAG || use->negated) {
        if (eq != NULL)
            return wrong(use, "takes no value");
        if (use->negated)
            memset(use->target, 0, sizeof(uint32_t));
        else
            *(bool *)(void *)use->target = true;
        return PLM_OPTS_OK;
    }
    if (eq != NULL)
        return set(use, eq + 1);
    if (*i + 1 >= argc)
        return wrong(use, "needs a value (%s)", use->opt->arg);
    *i += 1;
    return set(use, argv[*i]);
}

enum plm_opts_result plm_opts_parse(const struct plm_opt_command *cmd, int argc, char **argv,
                                    const char **operands, size_t *n_operands)
{
    bool only_operands = false;
    size_t n = 0;
    for (int i = 1; i < argc; i++) {
        struct use use = {.cmd = cmd};
        const char *arg = argv[i];
        if (!only_operands && strcmp(arg, "--") == 0) {
            only_operands = true;
        } else if (!only_operands && (strcmp(arg, "--help") == 0 || strcmp(arg, "-h") == 0)) {
            plm_opts_print_help(cmd);
            return PLM_OPTS_EXIT;
        } else if (!only_operands && strcmp(arg, PLM_OPTS_MAN) == 0) {
            plm_opts_print_man(cmd);
            return PLM_OPTS_EXIT;
        } else if (!only_operands && arg[0] == '-' && arg[1] != '\0') {
            enum plm_opts_result r = parse_option(&use, argc, argv, &i);
            if (r != PLM_OPTS_OK)
                return r;
        } else if (n == cmd->max_operands) {
            return wrong(&use, "unexpected argument \"%s\"; see plimsoll %s --help", arg,
                         cmd->name);
        } else {
            operands[n++] = arg;
        }
    }
    if (n_operands != NULL)
        *n_operands = n;
    return PLM_OPTS_OK;
}
