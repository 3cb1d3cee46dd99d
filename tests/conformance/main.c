// SPDX-License-Identifier: Apache-2.0
// conformance TARGET [--cases N] [--seed S] [--quants FOLDER]
// Runs every op on the target against the reference. Exit 0, 1, or 77 where the target does not
// exist on this machine.
#include <stdlib.h>
#include <string.h>

#include "tests/conformance/conf.h"

// Ops that a target does not have, and ops that are known to fail, each with its reason. An
// expected failure that passes is a failure: the entry is stale.
struct conf_note {
    const char *target;
    enum plm_op op;
    const char *reason;
};

static const struct conf_note unsupported[] = {{NULL, PLM_OPS, NULL}};
static const struct conf_note expected_failures[] = {{NULL, PLM_OPS, NULL}};

static const char *noted(const struct conf_note *list, const char *target, enum plm_op op)
{
    for (; list->target != NULL; list++)
        if (strcmp(list->target, target) == 0 && list->op == op)
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

static int run_all(struct conf_target *t, int cases, uint64_t seed, const char *quants)
{
    int failed = 0, ran = 0, skipped = 0, expected = 0;
    for (enum plm_op op = 0; op < PLM_OPS; op++) {
        const char *reason = noted(unsupported, t->name, op);
        if (reason != NULL) {
            printf("unsupported: %s on %s: %s\n", conf_op_name(op), t->name, reason);
            skipped++;
            continue;
        }
        int failures = run_op(t, op, cases, seed);
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
    struct conf_rng rng = {seed};
    int more = conf_rows(t, &rng) + conf_fill(t, &rng) + conf_fused(t, &rng);
    more += conf_variants(t, &rng);
    if (strcmp(t->name, "reference") == 0)
        more += conf_doubles(&rng, cases);
    if (quants != NULL)
        more += conf_quants(t, quants);
    printf("%s: %d ops run, %d failed, %d unsupported, %d expected failures; %d other failures\n",
           t->name, ran, failed, skipped, expected, more);
    return failed != 0 || more != 0;
}

int main(int argc, char **argv)
{
    int cases = 40;
    uint64_t seed = 1;
    const char *target = NULL, *quants = NULL;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--cases") == 0 && i + 1 < argc)
            cases = atoi(argv[++i]);
        else if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc)
            seed = strtoull(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--quants") == 0 && i + 1 < argc)
            quants = argv[++i];
        else if (argv[i][0] != '-' && target == NULL)
            target = argv[i];
        else {
            fprintf(stderr, "usage: conformance TARGET [--cases N] [--seed S] [--quants FOLDER]\n");
            return 2;
        }
    }
    struct conf_target t;
    int rc = conf_target_open(target != NULL ? target : "reference", &t);
    if (rc != 0) {
        printf("%s: not on this machine\n", target);
        return rc;
    }
    rc = run_all(&t, cases, seed, quants);
    return conf_target_close(&t) != 0 || rc != 0;
}
