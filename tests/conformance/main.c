// SPDX-License-Identifier: Apache-2.0
// conformance TARGET [--cases N] [--seed S] [--quants FOLDER] [--ops NAME,NAME] [--kernels FILE]
//             [--pairs 0|1]
// Runs every op, or those named, on the target against the reference. --kernels: those
// that a library has kernels for, which take the place of the kernels of the same names (simt).
// --pairs 0: cases alone, no checks of ops together. Exit 0, 1, or 77 where the target does not
// exist on this machine.
#include <stdlib.h>
#include <string.h>

#include "tests/conformance/draw.h"

// Ops that a target does not have, and ops that are known to fail, each with its reason. An
// expected failure that passes is a failure: the entry is stale.
struct conf_note {
    const char *target; // what its name begins with
    enum plm_op op;
    const char *reason;
};

static const struct conf_note unsupported[] = {
    {"vulkan", PLM_OP_SAMPLE, "the host samples, from logits that it reads"},
    {NULL, PLM_OPS, NULL},
};
static const struct conf_note expected_failures[] = {{NULL, PLM_OPS, NULL}};

static const char *noted(const struct conf_note *list, const char *target, enum plm_op op)
{
    for (; list->target != NULL; list++)
        if (strncmp(list->target, target, strlen(list->target)) == 0 && list->op == op)
            return list->reason;
    return NULL;
}

// Number of failures of one op.
static int run_op(struct conf_target *t, enum plm_op op, int cases, uint64_t seed)
{
    int failures = 0;
    if (t->own_addresses && (op == PLM_OP_FILL || op == PLM_OP_VERIFY))
        return 0; // conf_fill checks them as a pair
    struct conf_rng rng = {seed * 1000003u + (uint64_t)op};
    for (int i = 0; i < cases && failures < 5; i++) {
        struct conf_case c;
        uint64_t state = rng.state;
        conf_make(&c, op, &rng);
        if (!conf_check(t, &c, &rng)) {
            printf("  case %d of %s, state %#llx\n", i, conf_op_name(op),
                   (unsigned long long)state);
            failures++;
        }
        conf_end(&c);
    }
    return failures;
}

#define BIT(op) (1ull << PLM_OP_##op)

// Checks of ops together; number of failures.
static int run_pairs(struct conf_target *t, uint64_t ops, struct conf_rng *rng)
{
    const uint64_t qkv = BIT(QKV) | BIT(MATMUL) | BIT(ROPE_KV);
    const uint64_t glu = BIT(GLU) | BIT(MATMUL) | BIT(GATE_MUL);
    const uint64_t splits =
        BIT(ATTENTION_SPLIT) | BIT(ATTENTION_MERGE) | BIT(ATTENTION) | BIT(QUANTIZE);
    const uint64_t fill = BIT(FILL) | BIT(VERIFY);
    int failures = 0;
    if (ops & BIT(MATMUL))
        failures += conf_rows(t, PLM_OP_MATMUL, rng);
    if ((ops & fill) == fill)
        failures += conf_fill(t, rng);
    if ((ops & qkv) == qkv)
        failures += conf_fused(t, PLM_OP_QKV, rng);
    if ((ops & glu) == glu)
        failures += conf_fused(t, PLM_OP_GLU, rng);
    if ((ops & splits) == splits)
        failures += conf_fused(t, PLM_OP_ATTENTION_SPLIT, rng);
    if (ops & BIT(MATMUL))
        failures += conf_variants(t, rng);
    if (ops & BIT(ATTENTION))
        failures += conf_rows(t, PLM_OP_ATTENTION, rng);
    return failures;
}

struct options {
    const char *target, *quants;
    int cases;
    uint64_t seed;
    uint64_t ops; // bits
    bool pairs;
};

static int run_all(struct conf_target *t, const struct options *o)
{
    int failed = 0, ran = 0, skipped = 0, expected = 0;
    for (enum plm_op op = 0; op < PLM_OPS; op++) {
        const char *reason = noted(unsupported, t->name, op);
        if ((o->ops >> op & 1) == 0)
            continue;
        if (reason != NULL) {
            printf("unsupported: %s on %s: %s\n", conf_op_name(op), t->name, reason);
            skipped++;
            continue;
        }
        int failures = run_op(t, op, o->cases, o->seed);
        reason = noted(expected_failures, t->name, op);
        if (reason != NULL && failures != 0) {
            printf("expected failure: %s on %s: %s\n", conf_op_name(op), t->name, reason);
            expected++;
        } else if (reason != NULL) {
            printf("FAIL unexpected pass: %s on %s; take it off the list\n", conf_op_name(op),
                   t->name);
            failed++;
        } else {
            failed += failures != 0;
        }
        ran++;
    }
    struct conf_rng rng = {o->seed};
    int more = o->pairs ? run_pairs(t, o->ops, &rng) : 0;
    if (strcmp(t->name, "reference") == 0)
        more += conf_doubles(&rng, o->cases);
    if (o->quants != NULL && (o->ops & BIT(GET_ROWS)))
        more += conf_quants(t, o->quants);
    printf("%s: %d ops run, %d failed, %d unsupported, %d expected failures; %d other failures\n",
           t->name, ran, failed, skipped, expected, more);
    return failed != 0 || more != 0;
}

// The bits of "name,name,..."; 0: one of them is no op.
static uint64_t parse_ops(const char *names)
{
    uint64_t ops = 0;
    for (size_t n; *names != 0; names += n + (names[n] == ',')) {
        enum plm_op op = 0;
        n = strcspn(names, ",");
        while (op < PLM_OPS &&
               (strlen(conf_op_name(op)) != n || memcmp(conf_op_name(op), names, n) != 0))
            op++;
        if (op == PLM_OPS)
            return 0;
        ops |= 1ull << op;
    }
    return ops;
}

static bool parse_option(struct options *o, const char *name, const char *value)
{
    if (strcmp(name, "--cases") == 0)
        o->cases = atoi(value);
    else if (strcmp(name, "--seed") == 0)
        o->seed = strtoull(value, NULL, 10);
    else if (strcmp(name, "--quants") == 0)
        o->quants = value;
    else if (strcmp(name, "--ops") == 0)
        o->ops = parse_ops(value);
    else if (strcmp(name, "--pairs") == 0)
        o->pairs = atoi(value) != 0;
#ifdef CONF_SIMT
    else if (strcmp(name, "--kernels") == 0)
        o->ops = conf_simt_load(value);
#endif
    else
        return false;
    return o->ops != 0;
}

int main(int argc, char **argv)
{
    struct options o = {
        .target = "reference", .cases = 40, .seed = 1, .ops = (1ull << PLM_OPS) - 1, .pairs = true};
    bool named = false, ok = true;
    for (int i = 1; ok && i < argc; i++)
        if (argv[i][0] == '-') {
            ok = i + 1 < argc && parse_option(&o, argv[i], argv[i + 1]);
            i++;
        } else {
            ok = !named;
            named = true;
            o.target = argv[i];
        }
    if (!ok) {
        fprintf(stderr, "usage: conformance TARGET [--cases N] [--seed S] [--quants FOLDER] "
                        "[--ops NAME,NAME] [--kernels FILE] [--pairs 0|1]\n");
        return 2;
    }
    struct conf_target t;
    int rc = conf_target_open(o.target, &t);
    if (rc != 0) {
        printf("%s: not on this machine\n", o.target);
        return rc;
    }
    conf_draw_types(t.types, t.kv_types);
    rc = run_all(&t, &o);
    return conf_target_close(&t) != 0 || rc != 0;
}
