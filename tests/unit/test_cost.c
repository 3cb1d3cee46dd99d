// SPDX-License-Identifier: Apache-2.0
#include <check.h>
#include <stdlib.h>

#include "core/base/random.h"
#include "core/plan/cost.h"
#include "tests/support/suite.h"

static void draw(uint32_t i, uint32_t j, uint32_t r[4])
{
    uint32_t counter[4] = {i, j, 0, 0}, key[2] = {31, 32};
    plm_philox4x32(counter, key, r);
}

static void random_table(uint32_t i, struct plm_cost_table *table)
{
    uint32_t r[4], s[4];
    draw(i, 0, r);
    *table = (struct plm_cost_table){.n_buffers = r[0] % (PLM_COST_BUFFERS_MAX + 1)};
    for (uint32_t b = 0; b < table->n_buffers; b++) {
        draw(i, 100 + b, r);
        draw(i, 200 + b, s);
        table->buffers[b] =
            (struct plm_cost_buffer){.fixed = r[0] % 3 ? 0 : r[0] >> (r[1] % 32),
                                     .per_row = r[1] % 3 ? 0 : r[1] >> (r[2] % 32),
                                     .per_seq = r[2] % 3 ? 0 : r[2] >> (r[3] % 32),
                                     .per_logits_row = r[3] % 3 ? 0 : r[3] >> (s[0] % 32),
                                     .per_seq_block = s[1] % 3 ? 0 : s[1] >> (s[2] % 32)};
    }
}

START_TEST(monotone_in_every_field)
{
    for (uint32_t i = 0; i < 5000; i++) {
        struct plm_cost_table table;
        uint32_t r[4], d[4];
        random_table(i, &table);
        draw(i, 1, r);
        draw(i, 2, d);
        // Up to the largest values: saturation must keep the order, too.
        unsigned down = d[0] % 32;
        struct plm_shape a = {r[0] >> down, r[1] >> down, r[2] >> down, r[3] >> down};
        int64_t base = plm_cost(&table, &a);
        ck_assert_int_ge(base, 0);
        for (int field = 0; field < 4; field++) {
            struct plm_shape b = a;
            uint32_t *value = field == 0   ? &b.rows
                              : field == 1 ? &b.seqs
                              : field == 2 ? &b.logits_rows
                                           : &b.ctx;
            uint32_t more = d[1] >> (d[2] % 32);
            *value = *value > UINT32_MAX - more ? UINT32_MAX : *value + more;
            ck_assert_int_ge(plm_cost(&table, &b), base);
        }
    }
}
END_TEST

START_TEST(the_layout_is_the_cost)
{
    for (uint32_t i = 0; i < 2000; i++) {
        struct plm_cost_table table;
        uint32_t r[4];
        uint64_t at[PLM_COST_BUFFERS_MAX];
        random_table(i, &table);
        draw(i, 1, r);
        struct plm_shape shape = {r[0] % 4096, r[1] % 64, r[2] % 64, r[3] % 100000};
        int64_t cost = plm_cost(&table, &shape);
        ck_assert_int_eq(plm_cost_layout(&table, &shape, at), cost);
        for (uint32_t b = 0; b < table.n_buffers; b++) {
            const struct plm_cost_buffer *x = &table.buffers[b];
            uint64_t bytes = x->fixed + shape.rows * x->per_row + shape.seqs * x->per_seq +
                             shape.logits_rows * x->per_logits_row +
                             shape.seqs * (uint64_t)((shape.ctx + 15) / 16) * x->per_seq_block;
            uint64_t end = b + 1 < table.n_buffers ? at[b + 1] : (uint64_t)cost;
            ck_assert_uint_eq(at[b] % PLM_COST_ALIGN, 0);
            ck_assert_uint_ge(end - at[b], bytes);
            ck_assert_uint_lt(end - at[b], bytes + PLM_COST_ALIGN);
        }
    }
}
END_TEST

START_TEST(it_saturates)
{
    struct plm_cost_table table = {.n_buffers = 2,
                                   .buffers = {{.per_row = UINT64_MAX}, {.per_row = 1}}};
    ck_assert_int_eq(plm_cost(&table, &(struct plm_shape){.rows = 2}), INT64_MAX);
    ck_assert_int_eq(plm_cost(&table, &(struct plm_shape){.rows = 0}), 0);
    table.buffers[0].per_row = INT64_MAX / 2;
    ck_assert_int_eq(plm_cost(&table, &(struct plm_shape){.rows = UINT32_MAX}), INT64_MAX);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cost");
    TCase *tc = tcase_create("all");
    tcase_add_test(tc, monotone_in_every_field);
    tcase_add_test(tc, the_layout_is_the_cost);
    tcase_add_test(tc, it_saturates);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
