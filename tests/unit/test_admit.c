// SPDX-License-Identifier: Apache-2.0
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/random.h"
#include "core/plan/admit.h"
#include "tests/support/suite.h"

#define MIB (INT64_C(1) << 20)

static struct plm_admit_limits limits(void)
{
    return (struct plm_admit_limits){.max_context = 4096,
                                     .max_sequences = 8,
                                     .choices_max = 8,
                                     .blocks_total = 1000,
                                     .block_bytes = 1000,
                                     .queue_max = 4,
                                     .host_limit = 64 * MIB};
}

static struct plm_admit_state idle(const struct plm_admit_limits *l)
{
    return (struct plm_admit_state){.blocks_total = l->blocks_total,
                                    .blocks_available = l->blocks_total};
}

static struct plm_admit_request ask_of(uint32_t prompt, uint32_t output, uint32_t n, uint32_t hit,
                                       int64_t host)
{
    return (struct plm_admit_request){
        .prompt_tokens = prompt, .max_tokens = output, .n = n, .hit_used = hit, .host_bytes = host};
}

static struct plm_admit_result check(const struct plm_admit_limits *l,
                                     const struct plm_admit_state *s, struct plm_admit_request r)
{
    struct plm_admit_result ret;
    plm_admit_check(l, s, &r, &ret);
    return ret;
}

START_TEST(blocks_of_choices_share_the_prompt)
{
    ck_assert_uint_eq(plm_admit_blocks(0, 1, 1), 1);
    ck_assert_uint_eq(plm_admit_blocks(15, 1, 1), 1);
    ck_assert_uint_eq(plm_admit_blocks(16, 1, 1), 2);
    ck_assert_uint_eq(plm_admit_blocks(32, 16, 4), 2 + 4);
    ck_assert_uint_eq(plm_admit_blocks(33, 16, 4), 2 + 4 * 2);
    ck_assert_uint_eq(plm_admit_blocks(UINT64_MAX, 1, 1), UINT64_MAX);
    ck_assert_uint_eq(plm_admit_blocks(1, UINT64_MAX - 1, 1000), UINT64_MAX);
}
END_TEST

START_TEST(an_idle_engine_admits)
{
    struct plm_admit_limits l = limits();
    struct plm_admit_state s = idle(&l);
    struct plm_admit_result r = check(&l, &s, ask_of(100, 50, 1, 0, 1000));
    ck_assert_int_eq(r.verdict, PLM_ADMIT);
    ck_assert_uint_eq(r.max_tokens, 50);
    ck_assert_uint_eq(r.blocks_now, 7); // alone it needs nothing beside the prompt
    ck_assert_uint_eq(r.blocks_full, 10);
    // An open end goes to the context, or to where memory ends.
    r = check(&l, &s, ask_of(100, 0, 1, 0, 0));
    ck_assert_uint_eq(r.max_tokens, 4096 - 100);
    l.blocks_total = 20;
    s = idle(&l);
    r = check(&l, &s, ask_of(100, 0, 2, 0, 0));
    ck_assert_int_eq(r.verdict, PLM_ADMIT);
    ck_assert_uint_eq(r.max_tokens, (6 + 7) * 16 - 100);
    ck_assert_uint_le(r.blocks_full, 20);
    // A request that ends in its first block needs no second.
    l.blocks_total = 1;
    s = idle(&l);
    ck_assert_int_eq(check(&l, &s, ask_of(10, 6, 1, 0, 0)).verdict, PLM_ADMIT);
    ck_assert_int_eq(check(&l, &s, ask_of(10, 7, 1, 0, 0)).verdict, PLM_REFUSE_NEVER);
}
END_TEST

// A main group with a window: what counts is how many windows the pool holds, whatever the length.
START_TEST(windows_are_counted_not_tokens)
{
    struct plm_admit_limits l = limits();
    l.window_blocks = 30;
    l.blocks_total = 4 * 30 + 8; // of 8 sequences that serving allows, 4 have a window here
    struct plm_admit_state s = idle(&l);
    struct plm_admit_result r = check(&l, &s, ask_of(4000, 96, 1, 0, 0)); // 256 blocks in full
    ck_assert_int_eq(r.verdict, PLM_ADMIT);
    ck_assert_uint_eq(r.blocks_now, 31);
    ck_assert_uint_eq(r.blocks_full, 31);
    r = check(&l, &s, ask_of(100, 0, 8, 0, 0)); // an open end goes to the context
    ck_assert_int_eq(r.verdict, PLM_ADMIT);
    ck_assert_uint_eq(r.max_tokens, 4096 - 100);
    s.sequences = 3;
    s.blocks_available = 0; // what others use does not matter
    ck_assert_int_eq(check(&l, &s, ask_of(4000, 96, 1, 0, 0)).verdict, PLM_ADMIT);
    s.sequences = 4;
    r = check(&l, &s, ask_of(1, 1, 1, 0, 0));
    ck_assert_int_eq(r.verdict, PLM_WAIT);
    ck_assert_int_eq(r.term, PLM_ADMIT_KV);
    l.queue_max = 0;
    r = check(&l, &s, ask_of(1, 1, 1, 0, 0));
    ck_assert_int_eq(r.verdict, PLM_REFUSE_NOW);
    ck_assert_int_eq(r.term, PLM_ADMIT_KV);
    ck_assert_int_eq(r.needed_bytes, (5 * 30 + 1) * 1000);
    ck_assert_int_eq(r.limit_bytes, (4 * 30 + 8) * 1000);
    ck_assert_uint_eq(r.offer.prompt_tokens, 0); // nothing would start
    // A context too long is one still, and its offer is taken.
    s.sequences = 0;
    r = check(&l, &s, ask_of(4000, 500, 1, 0, 0));
    ck_assert_int_eq(r.term, PLM_ADMIT_CONTEXT);
    ck_assert_uint_eq(r.offer.prompt_tokens, 4000);
    ck_assert_uint_eq(r.offer.max_tokens, 96);
    ck_assert_int_eq(check(&l, &s, ask_of(4000, 96, 1, 0, 0)).verdict, PLM_ADMIT);
    // A neighbour left less than one window.
    s.blocks_total = 20;
    r = check(&l, &s, ask_of(10, 10, 1, 0, 0));
    ck_assert_int_eq(r.verdict, PLM_REFUSE_NOW);
    ck_assert_int_eq(r.term, PLM_ADMIT_KV);
    ck_assert_uint_eq(r.offer.prompt_tokens, 0);
}
END_TEST

START_TEST(never_names_its_term)
{
    struct plm_admit_limits l = limits();
    struct plm_admit_state s = idle(&l);
    struct plm_admit_result r = check(&l, &s, ask_of(4096, 1, 1, 0, 0));
    ck_assert_int_eq(r.verdict, PLM_REFUSE_NEVER);
    ck_assert_int_eq(r.term, PLM_ADMIT_CONTEXT);
    ck_assert_int_eq(r.needed_bytes, 4097);
    ck_assert_int_eq(r.limit_bytes, 4096);
    ck_assert_int_eq(r.retry_after_s, 0);
    ck_assert_uint_eq(r.offer.max_tokens, 1);
    ck_assert_uint_eq(r.offer.prompt_tokens, 4095);
    r = check(&l, &s, ask_of(4000, 500, 1, 0, 0));
    ck_assert_uint_eq(r.offer.prompt_tokens, 4000);
    ck_assert_uint_eq(r.offer.max_tokens, 96);
    r = check(&l, &s, ask_of(100, 3000, 8, 0, 0));
    ck_assert_int_eq(r.term, PLM_ADMIT_KV);
    ck_assert_int_eq(r.needed_bytes, (6 + 8 * 188) * 1000);
    ck_assert_int_eq(r.limit_bytes, 1000 * 1000);
    ck_assert_uint_eq(r.offer.n, 8);
    ck_assert_uint_eq(r.offer.max_tokens, (6 + 994 / 8) * 16 - 100);
    r = check(&l, &s, ask_of(100, 10, 9, 0, 0));
    ck_assert_int_eq(r.term, PLM_ADMIT_SEQUENCES);
    ck_assert_uint_eq(r.offer.n, 8);
    r = check(&l, &s, ask_of(100, 10, 1, 0, 65 * MIB));
    ck_assert_int_eq(r.verdict, PLM_REFUSE_NEVER);
    ck_assert_int_eq(r.term, PLM_ADMIT_HOST);
    // n x max_tokens that would overflow.
    l.max_context = UINT32_MAX;
    l.choices_max = UINT32_MAX;
    r = check(&l, &s, ask_of(1, UINT32_MAX - 1, UINT32_MAX, 0, 0));
    ck_assert_int_eq(r.term, PLM_ADMIT_KV);
    ck_assert_int_gt(r.needed_bytes, INT64_C(1) << 60);
}
END_TEST

START_TEST(what_can_not_start_in_time_is_refused_at_once)
{
    struct plm_admit_limits l = limits();
    struct plm_admit_state s = idle(&l);
    const struct plm_admit_request ask = ask_of(100, 50, 1, 0, 0);
    l.queue_max = 100;
    l.queue_max_ms = 60000;
    s.sequences = s.requests = 8;
    s.running_tokens = 8 * 1000;
    ck_assert_int_eq(check(&l, &s, ask).verdict, PLM_WAIT); // no rate yet: nobody can tell
    s.tokens_per_s = 10;
    // The first of eight ends after an eighth of what they have to go: 100 s.
    struct plm_admit_result r = check(&l, &s, ask);
    ck_assert_int_eq(r.verdict, PLM_REFUSE_NOW);
    ck_assert_int_eq(r.term, PLM_ADMIT_QUEUE_TIME);
    ck_assert_str_eq(plm_admit_term_name(r.term), "wait");
    ck_assert_int_eq(r.needed_bytes, 100);
    ck_assert_int_eq(r.limit_bytes, 60);
    ck_assert_int_eq(r.retry_after_s, 40); // then it can start within its minute
    ck_assert_uint_eq(r.offer.prompt_tokens, 0);
    s.tokens_per_s = 20;
    ck_assert_int_eq(check(&l, &s, ask).verdict, PLM_WAIT);
    // Behind others: all that run, and the first of those that wait.
    s.queued = 8;
    s.queued_output = 8 * 100;
    s.tokens_per_s = 200;
    ck_assert_int_eq(check(&l, &s, ask).verdict, PLM_WAIT); // 40 s and 0.5
    s.tokens_per_s = 130;
    r = check(&l, &s, ask);
    ck_assert_int_eq(r.term, PLM_ADMIT_QUEUE_TIME);
    ck_assert_int_eq(r.needed_bytes, 63);
    l.queue_max_ms = 0;
    ck_assert_int_eq(check(&l, &s, ask).verdict, PLM_WAIT);
    // Choices of one request give way, so a second one starts.
    l.queue_max_ms = 60000;
    s.queued = 0;
    s.queued_output = 0;
    s.requests = 1;
    s.tokens_per_s = 1;
    ck_assert_int_eq(check(&l, &s, ask).verdict, PLM_WAIT);
}
END_TEST

START_TEST(an_answer_is_expected_to_be_as_long_as_others_were)
{
    ck_assert_uint_eq(plm_admit_expected(4000, true, 100), 4000);
    ck_assert_uint_eq(plm_admit_expected(4000, false, 100), 100);
    ck_assert_uint_eq(plm_admit_expected(50, false, 100), 50);
    ck_assert_uint_eq(plm_admit_expected(4000, false, 0), 0);
    struct plm_admit_limits l = limits();
    struct plm_admit_state s = idle(&l);
    s.mean_output = 30;
    ck_assert_uint_eq(check(&l, &s, ask_of(10, 500, 3, 0, 0)).expected_tokens, 90);
}
END_TEST

START_TEST(busy_means_wait_and_a_full_queue_means_now)
{
    struct plm_admit_limits l = limits();
    struct plm_admit_state s = idle(&l);
    const struct plm_admit_request ask = ask_of(100, 50, 1, 0, 0);
    s.sequences = 8;
    ck_assert_int_eq(check(&l, &s, ask).verdict, PLM_WAIT);
    s.sequences = 2;
    s.queued = 1; // nobody overtakes
    ck_assert_int_eq(check(&l, &s, ask).verdict, PLM_WAIT);
    s.queued = 4;
    s.tokens_to_blocks = 100;
    s.tokens_per_s = 40;
    struct plm_admit_result r = check(&l, &s, ask);
    ck_assert_int_eq(r.verdict, PLM_REFUSE_NOW);
    ck_assert_int_eq(r.term, PLM_ADMIT_QUEUE);
    ck_assert_int_eq(r.retry_after_s, 3);
    ck_assert_uint_eq(r.offer.prompt_tokens, 0);
    s.queued = 1;
    s.queued_tokens = 450;
    l.queue_tokens_max = 500;
    r = check(&l, &s, ask);
    ck_assert_int_eq(r.term, PLM_ADMIT_QUEUE_TOKENS);
    ck_assert_uint_eq(r.offer.prompt_tokens, 50);
    // No queue at all: what does not start now is refused, with what would start.
    l = limits();
    l.queue_max = 0;
    s = idle(&l);
    s.sequences = 1;
    s.blocks_available = 8;
    r = check(&l, &s, ask);
    ck_assert_int_eq(r.verdict, PLM_REFUSE_NOW);
    ck_assert_int_eq(r.term, PLM_ADMIT_KV);
    ck_assert_int_eq(r.needed_bytes, 9000); // the prompt, one more, one for who runs
    ck_assert_int_eq(r.limit_bytes, 8000);
    ck_assert_uint_eq(r.offer.prompt_tokens, 6 * 16);
    // What others hold already costs nothing.
    ck_assert_int_eq(check(&l, &s, ask_of(100, 50, 1, 2, 0)).verdict, PLM_ADMIT);
    s.host_used = 64 * MIB - 10;
    r = check(&l, &s, ask_of(16, 16, 1, 0, 11));
    ck_assert_int_eq(r.verdict, PLM_REFUSE_NOW);
    ck_assert_int_eq(r.term, PLM_ADMIT_HOST);
}
END_TEST

START_TEST(who_runs_keeps_blocks_to_grow)
{
    struct plm_admit_limits l = limits();
    struct plm_admit_state s = idle(&l);
    const struct plm_admit_request ask = ask_of(100, 50, 1, 0, 0); // 7 blocks for the prompt
    s.blocks_available = 7;
    ck_assert_int_eq(check(&l, &s, ask).verdict, PLM_ADMIT);
    s.sequences = 3;
    s.blocks_available = 7 + 1 + 3;
    ck_assert_int_eq(check(&l, &s, ask).verdict, PLM_ADMIT);
    s.blocks_available--;
    ck_assert_int_eq(check(&l, &s, ask).verdict, PLM_WAIT);
    ck_assert_int_eq(check(&l, &s, ask).term, PLM_ADMIT_KV);
    ck_assert_uint_eq(plm_admit_spare(0, 100), 0);
    ck_assert_uint_eq(plm_admit_spare(3, 1), 8);
    ck_assert_uint_eq(plm_admit_spare(3, 2), 16);
    ck_assert_uint_gt(plm_admit_spare(1, UINT32_MAX), 1u << 20);
    ck_assert_uint_gt(plm_admit_spare(UINT32_MAX, UINT32_MAX), UINT32_MAX);
}
END_TEST

START_TEST(a_smaller_pool_and_sleep_refuse_for_now)
{
    struct plm_admit_limits l = limits();
    struct plm_admit_state s = idle(&l);
    const struct plm_admit_request ask = ask_of(100, 400, 1, 0, 0); // 32 blocks
    s.blocks_total = s.blocks_available = 31; // of 1000: a neighbour has the rest
    struct plm_admit_result r = check(&l, &s, ask);
    ck_assert_int_eq(r.verdict, PLM_REFUSE_NOW);
    ck_assert_int_eq(r.term, PLM_ADMIT_KV);
    ck_assert_int_eq(r.needed_bytes, 32000);
    ck_assert_int_eq(r.limit_bytes, 31000);
    ck_assert_uint_eq(r.offer.prompt_tokens, 100);
    ck_assert_uint_eq(r.offer.max_tokens, 31 * 16 - 100);
    s.asleep = true;
    r = check(&l, &s, ask);
    ck_assert_int_eq(r.verdict, PLM_REFUSE_NOW);
    ck_assert_int_eq(r.term, PLM_ADMIT_ASLEEP);
    ck_assert_int_eq(r.limit_bytes, 0);
    ck_assert_uint_eq(r.offer.prompt_tokens, 0);
    ck_assert_str_eq(plm_admit_term_name(r.term), "asleep");
}
END_TEST

START_TEST(host_bytes_grow_with_the_request)
{
    struct plm_admit_limits l = limits();
    struct plm_admit_state s = idle(&l);
    l.host_limit = 10000;
    l.host_idle = 2000;
    l.host_choice_bytes = 500;
    l.host_token_bytes = 4;
    l.host_event_tokens = 256;
    s.host_used = 5000;
    // 2 x (500 + 4 x (100 + 300)) = 4200, and 648 beside it.
    ck_assert_int_eq(check(&l, &s, ask_of(100, 300, 2, 0, 648)).verdict, PLM_ADMIT);
    struct plm_admit_result r = check(&l, &s, ask_of(100, 300, 2, 0, 801));
    ck_assert_int_eq(r.verdict, PLM_REFUSE_NOW);
    ck_assert_int_eq(r.term, PLM_ADMIT_HOST);
    ck_assert_int_eq(r.needed_bytes, 10001);
    ck_assert_int_eq(r.limit_bytes, 10000);
    ck_assert_uint_eq(r.offer.n, 2);
    ck_assert_uint_eq(r.offer.prompt_tokens, 100);
    ck_assert_uint_eq(r.offer.max_tokens, 299);
    // Events have room for 256 tokens of each choice, what the caller needs is for all of them.
    struct plm_admit_request more = ask_of(100, 300, 2, 0, 0);
    more.host_choice_bytes = 10;
    more.host_event_bytes = 1;
    ck_assert_int_eq(check(&l, &s, more).verdict, PLM_ADMIT); // 268 to go
    more.host_output_bytes = 1;
    r = check(&l, &s, more);
    ck_assert_int_eq(r.term, PLM_ADMIT_HOST);
    ck_assert_int_eq(r.needed_bytes, 10000 - 800 + 2 * (10 + 256 + 300));
    ck_assert_uint_eq(r.offer.max_tokens, 266); // 5 bytes each: 2 x 34 x 5 are enough
    more.max_tokens = 266;
    ck_assert_int_eq(check(&l, &s, more).verdict, PLM_ADMIT);
    // An open end takes a quarter of what requests have, 2000, or half of it for a usual answer.
    more.max_tokens = 0;
    ck_assert_uint_eq(check(&l, &s, more).max_tokens, (4000 - 2 * (510 + 400)) / 2 / 6);
    more.n = 1;
    ck_assert_uint_eq(check(&l, &s, more).max_tokens, 256);
    more.host_event_bytes = 0;
    more.prompt_tokens = 10;
    ck_assert_uint_eq(check(&l, &s, more).max_tokens, (2000 - 510 - 40) / 5);
    struct plm_admit_request held = ask_of(100, 300, 2, 0, 648);
    held.host_held = 3152; // with its body it needs all that an idle engine has
    ck_assert_int_eq(check(&l, &s, held).verdict, PLM_ADMIT);
    held.host_held++;
    r = check(&l, &s, held);
    ck_assert_int_eq(r.verdict, PLM_REFUSE_NEVER);
    ck_assert_int_eq(r.term, PLM_ADMIT_HOST);
    ck_assert_int_eq(r.needed_bytes, 10001);
}
END_TEST

// A random case: limits, what is there, and what is asked.
static void draw_case(uint32_t i, struct plm_admit_limits *l, struct plm_admit_state *s,
                      struct plm_admit_request *ask)
{
    uint32_t r[16], key[2] = {8, 9};
    for (uint32_t j = 0; j < 4; j++) {
        uint32_t counter[4] = {i, j, 0, 0};
        plm_philox4x32(counter, key, r + 4 * j);
    }
    *l = (struct plm_admit_limits){.max_context = 1 + r[0] % 5000,
                                   .max_sequences = 1 + r[1] % 16,
                                   .blocks_total = 1 + r[2] % (1u << (r[3] % 12)),
                                   .block_bytes = 1 + r[3] % 1000,
                                   .queue_max = r[4] % 4,
                                   .queue_tokens_max = r[4] % 3 ? 0 : r[5] % 3000,
                                   .queue_max_ms = r[4] / 16 % 2 * 60000,
                                   .host_limit = r[5] % 2 ? 10000 : 0,
                                   .host_idle = r[6] % 1000,
                                   .host_choice_bytes = r[7] % 500,
                                   .host_token_bytes = r[8] % 5,
                                   .host_event_tokens = r[9] % 300};
    l->choices_max = l->max_sequences + r[1] / 16 % 8;
    *s = (struct plm_admit_state){.sequences = r[8] / 8 % (l->max_sequences + 1),
                                  .queued = r[9] / 512 % 4,
                                  .queued_tokens = r[9] % 2000,
                                  .host_used = r[10] % 10000,
                                  .running_tokens = r[10] / 16384 % 8000,
                                  .queued_output = r[10] / 65536 % 3000,
                                  .tokens_per_s = r[9] / 4096 % 30,
                                  .asleep = r[7] / 512 % 20 == 0};
    s->requests = s->sequences - (r[8] / 1024 % 4 == 0 && s->sequences > 1);
    s->blocks_total = r[6] % 4 ? l->blocks_total : r[6] / 4 % (l->blocks_total + 1);
    s->blocks_available = r[6] / 8192 % (s->blocks_total + 1);
    *ask = (struct plm_admit_request){.prompt_tokens = 1 + r[11] % 6000,
                                      .max_tokens = r[12] % 4 ? r[12] % 6000 : 0,
                                      .n = 1 + r[13] % 20,
                                      .host_bytes = r[14] % 3 ? 0 : r[14] % 1200,
                                      .host_choice_bytes = r[10] / 256 % 3 ? 0 : r[9] % 400,
                                      .host_event_bytes = r[10] / 1024 % 5,
                                      .host_output_bytes = r[10] / 4096 % 3,
                                      .host_held = r[14] % 5 ? 0 : r[14] % 3000};
    ask->hit_used = r[15] % 2 ? r[15] % (ask->prompt_tokens / 16 + 1) : 0;
}

START_TEST(every_offer_is_accepted)
{
    int offers = 0, nothing = 0, terms[PLM_ADMIT_TERMS] = {0};
    for (uint32_t i = 0; i < 300000; i++) {
        struct plm_admit_limits l;
        struct plm_admit_state s;
        struct plm_admit_request ask;
        draw_case(i, &l, &s, &ask);
        struct plm_admit_result a = check(&l, &s, ask);
        if (a.verdict == PLM_ADMIT || a.verdict == PLM_WAIT) {
            ck_assert_uint_eq(a.offer.prompt_tokens, 0);
            ck_assert_uint_ge(a.max_tokens, 1);
            ck_assert_uint_le(a.blocks_full, l.blocks_total);
            ck_assert_uint_le(ask.prompt_tokens + a.max_tokens, l.max_context);
            continue;
        }
        ck_assert_int_gt(a.needed_bytes, a.limit_bytes);
        ck_assert_int_ne(a.term, PLM_ADMIT_NONE);
        ck_assert_int_eq(a.retry_after_s > 0, a.verdict == PLM_REFUSE_NOW);
        if (a.offer.prompt_tokens == 0) {
            nothing++;
            // Then not even one token would be let in.
            struct plm_admit_request one = ask;
            one.prompt_tokens = one.max_tokens = one.n = 1;
            one.hit_used = 0;
            struct plm_admit_result b = check(&l, &s, one);
            ck_assert(b.verdict == PLM_REFUSE_NEVER || b.verdict == PLM_REFUSE_NOW);
            continue;
        }
        offers++;
        struct plm_admit_request offered = ask;
        offered.prompt_tokens = a.offer.prompt_tokens;
        offered.max_tokens = a.offer.max_tokens;
        offered.n = a.offer.n;
        offered.hit_used = 0;
        if (a.offer.prompt_tokens == ask.prompt_tokens)
            offered.hit_used = ask.hit_used;
        struct plm_admit_result b = check(&l, &s, offered);
        ck_assert(b.verdict == PLM_ADMIT || b.verdict == PLM_WAIT);
        ck_assert_uint_ge(a.offer.max_tokens, 1);
        ck_assert_uint_le(a.offer.prompt_tokens, ask.prompt_tokens);
        ck_assert_uint_le(a.offer.n, ask.n);
        terms[a.term]++;
    }
    for (int t = PLM_ADMIT_KV; t <= PLM_ADMIT_SEQUENCES; t++)
        ck_assert_msg(t == PLM_ADMIT_QUEUE || terms[t] > (t == PLM_ADMIT_QUEUE_TIME ? 10 : 50),
                      "%s: %d offers", plm_admit_term_name(t), terms[t]);
    ck_assert_int_gt(offers, 50000);
    ck_assert_int_gt(nothing, 1000);
}
END_TEST

START_TEST(an_overdue_request_hears_why)
{
    struct plm_admit_limits l = limits();
    struct plm_admit_state s = idle(&l);
    struct plm_admit_result r;
    const struct plm_admit_request ask = ask_of(100, 50, 1, 0, 0);
    s.sequences = 2;
    s.blocks_available = 5;
    s.queued = 3;
    s.tokens_to_blocks = 60;
    s.tokens_per_s = 10;
    plm_admit_overdue(&l, &s, &ask, &r);
    ck_assert_int_eq(r.verdict, PLM_REFUSE_NOW);
    ck_assert_int_eq(r.term, PLM_ADMIT_KV);
    ck_assert_int_eq(r.needed_bytes, (7 + 3) * 1000);
    ck_assert_int_eq(r.limit_bytes, 5000);
    ck_assert_int_eq(r.retry_after_s, 6);
    ck_assert_uint_eq(r.offer.prompt_tokens, 100); // it may queue again
    s.sequences = 8;
    plm_admit_overdue(&l, &s, &ask, &r);
    ck_assert_int_eq(r.term, PLM_ADMIT_SEQUENCES);
    ck_assert_int_eq(r.needed_bytes, 9);
    ck_assert_int_eq(r.limit_bytes, 8);
    s.sequences = 2; // only those that were preempted are before it
    s.blocks_available = 500;
    plm_admit_overdue(&l, &s, &ask, &r);
    ck_assert_int_eq(r.verdict, PLM_REFUSE_NOW);
    ck_assert_int_gt(r.needed_bytes, r.limit_bytes);
}
END_TEST

START_TEST(retry_after_is_bounded)
{
    ck_assert_int_eq(plm_admit_retry_after(0, 0), 1);
    ck_assert_int_eq(plm_admit_retry_after(100, 0), 1);
    ck_assert_int_eq(plm_admit_retry_after(100, 30), 4);
    ck_assert_int_eq(plm_admit_retry_after(UINT64_MAX, 0.001), 600);
    ck_assert_str_eq(plm_admit_term_name(PLM_ADMIT_QUEUE_TOKENS), "queue_tokens");
    ck_assert_str_eq(plm_admit_term_name(PLM_ADMIT_LINE), "line");
    ck_assert_str_eq(plm_admit_term_name(PLM_ADMIT_TERMS), "?");
}
END_TEST

// ---- the gate ----

static const struct plm_cost_table table = {
    .n_buffers = 3,
    .buffers = {{.name = "rows", .per_row = 1024},
                {.name = "logits", .per_logits_row = 4096},
                {.name = "tables", .per_seq_block = 8}},
};

static struct plm_gate gate_of(int64_t line_extra)
{
    struct plm_plan plan = {.in = {.limits = {512, 8, 4096, 0, 0, 0}}};
    struct plm_gate gate;
    struct plm_shape worst = plm_limits_shape(&plan.in.limits);
    plan.line = 1000000 + plm_cost(&table, &worst) + line_extra;
    plm_gate_init(&gate, &plan, &table);
    return gate;
}

static struct plm_gate_step worst_step(void)
{
    return (struct plm_gate_step){.shape = {512, 8, 8, 4096},
                                  .prefill_rows = 505,
                                  .live_bytes = 1000000,
                                  .blocks_needed = 10,
                                  .blocks_free = 4,
                                  .blocks_cached = 6};
}

START_TEST(the_worst_planned_step_passes)
{
    struct plm_gate gate = gate_of(0);
    struct plm_gate_step step = worst_step();
    struct plm_gate_result r;
    plm_gate_check(&gate, &step, &r);
    ck_assert_int_eq(r.answer, PLM_GATE_GO);
    step.blocks_needed = 11;
    plm_gate_check(&gate, &step, &r);
    ck_assert_int_eq(r.answer, PLM_GATE_RECLAIM);
    ck_assert_int_eq(r.term, PLM_ADMIT_KV);
    ck_assert_int_eq(r.needed_bytes, 11);
    ck_assert_int_eq(r.limit_bytes, 10);
}
END_TEST

START_TEST(what_crosses_the_line_is_cut_then_refused)
{
    struct plm_gate gate = gate_of(0);
    struct plm_gate_step step = worst_step();
    struct plm_gate_result r;
    step.live_bytes += 1;
    plm_gate_check(&gate, &step, &r);
    ck_assert_int_eq(r.answer, PLM_GATE_CUT);
    ck_assert_int_eq(r.term, PLM_ADMIT_LINE);
    ck_assert_uint_eq(r.rows_max, 511);
    step.live_bytes = 1000000 + 100 * 1024;
    plm_gate_check(&gate, &step, &r);
    ck_assert_uint_eq(r.rows_max, 412);
    step.live_bytes = 1000000 + 473 * 1024; // 7 decode rows and 32 of the chunk are left
    plm_gate_check(&gate, &step, &r);
    ck_assert_int_eq(r.answer, PLM_GATE_CUT);
    ck_assert_uint_eq(r.rows_max, 39);
    step.live_bytes += 1;
    plm_gate_check(&gate, &step, &r);
    ck_assert_int_eq(r.answer, PLM_GATE_REFUSE);
    ck_assert_int_gt(r.needed_bytes, r.limit_bytes);
    // A decode alone can not be cut.
    step = worst_step();
    step.shape.rows = 8;
    step.prefill_rows = 0;
    step.live_bytes = gate.line;
    plm_gate_check(&gate, &step, &r);
    ck_assert_int_eq(r.answer, PLM_GATE_REFUSE);
    step.live_bytes = INT64_MAX;
    plm_gate_check(&gate, &step, &r);
    ck_assert_int_eq(r.answer, PLM_GATE_REFUSE);
}
END_TEST

START_TEST(shapes_beyond_the_caps_do_not_pass)
{
    struct plm_gate gate = gate_of(1 << 30);
    struct plm_gate_step step = worst_step();
    struct plm_gate_result r;
    step.shape.rows = 600;
    step.prefill_rows = 593;
    plm_gate_check(&gate, &step, &r);
    ck_assert_int_eq(r.answer, PLM_GATE_CUT);
    ck_assert_int_eq(r.term, PLM_ADMIT_ROWS);
    ck_assert_uint_eq(r.rows_max, 512);
    step = worst_step();
    step.shape.ctx++;
    plm_gate_check(&gate, &step, &r);
    ck_assert_int_eq(r.answer, PLM_GATE_REFUSE);
    ck_assert_int_eq(r.term, PLM_ADMIT_CONTEXT);
    step = worst_step();
    step.shape.seqs++;
    plm_gate_check(&gate, &step, &r);
    ck_assert_int_eq(r.term, PLM_ADMIT_SEQUENCES);
    step = worst_step();
    step.shape.logits_rows++;
    plm_gate_check(&gate, &step, &r);
    ck_assert_int_eq(r.answer, PLM_GATE_REFUSE);
}
END_TEST

START_TEST(an_excess_raises_the_floor)
{
    struct plm_gate gate = gate_of(1 << 30);
    struct plm_gate_step step = worst_step();
    struct plm_gate_result r;
    int64_t cost = plm_cost(&table, &step.shape);
    ck_assert_int_eq(plm_gate_audit(&gate, &step.shape, cost), 0);
    ck_assert_int_eq(gate.audit_excess, 0);
    ck_assert_int_eq(plm_gate_audit(&gate, &step.shape, cost + 2048), 2048);
    ck_assert_int_eq(gate.audit_excess, 1);
    plm_gate_check(&gate, &step, &r);
    ck_assert_int_eq(r.answer, PLM_GATE_CUT);
    ck_assert_int_eq(r.term, PLM_ADMIT_WORKSPACE);
    ck_assert_uint_eq(r.rows_max, 510);
    // The same excess is not counted again.
    ck_assert_int_eq(plm_gate_audit(&gate, &step.shape, cost + 2048), 0);
}
END_TEST

// What passes the gate is within what was planned: planner(x) = admission(x).
START_TEST(random_steps_stay_below_the_line)
{
    struct plm_gate gate = gate_of(0);
    int answers[4] = {0};
    for (uint32_t i = 0; i < 100000; i++) {
        uint32_t r[8], key[2] = {1, 9};
        for (uint32_t j = 0; j < 2; j++) {
            uint32_t counter[4] = {i, j, 0, 0};
            plm_philox4x32(counter, key, r + 4 * j);
        }
        struct plm_gate_step step = {
            .shape = {1 + r[0] % 700, 1 + r[1] % 9, r[2] % 9, 1 + r[3] % 4200},
            .live_bytes = r[4] % 3 ? 1000000 : 1000000 + r[5] % 600000,
            .blocks_needed = r[6] % 20,
            .blocks_free = r[7] % 10,
            .blocks_cached = r[7] / 16 % 20};
        step.prefill_rows = r[5] % (step.shape.rows + 1);
        struct plm_gate_result a, b;
        plm_gate_check(&gate, &step, &a);
        answers[a.answer]++;
        if (a.answer == PLM_GATE_GO) {
            ck_assert_int_le(plm_cost(&table, &step.shape) + step.live_bytes, gate.line);
            ck_assert_uint_le(step.shape.rows, 512);
        } else if (a.answer == PLM_GATE_CUT) {
            ck_assert_uint_lt(a.rows_max, step.shape.rows);
            step.prefill_rows -= step.shape.rows - a.rows_max;
            step.shape.rows = a.rows_max;
            plm_gate_check(&gate, &step, &b);
            ck_assert(b.answer == PLM_GATE_GO || b.answer == PLM_GATE_RECLAIM);
        }
    }
    for (int i = 0; i < 4; i++)
        ck_assert_int_gt(answers[i], 500);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("admit");
    TCase *tc = tcase_create("all");
    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, blocks_of_choices_share_the_prompt);
    tcase_add_test(tc, an_idle_engine_admits);
    tcase_add_test(tc, windows_are_counted_not_tokens);
    tcase_add_test(tc, never_names_its_term);
    tcase_add_test(tc, what_can_not_start_in_time_is_refused_at_once);
    tcase_add_test(tc, an_answer_is_expected_to_be_as_long_as_others_were);
    tcase_add_test(tc, busy_means_wait_and_a_full_queue_means_now);
    tcase_add_test(tc, who_runs_keeps_blocks_to_grow);
    tcase_add_test(tc, a_smaller_pool_and_sleep_refuse_for_now);
    tcase_add_test(tc, host_bytes_grow_with_the_request);
    tcase_add_test(tc, an_overdue_request_hears_why);
    tcase_add_test(tc, every_offer_is_accepted);
    tcase_add_test(tc, retry_after_is_bounded);
    tcase_add_test(tc, the_worst_planned_step_passes);
    tcase_add_test(tc, what_crosses_the_line_is_cut_then_refused);
    tcase_add_test(tc, shapes_beyond_the_caps_do_not_pass);
    tcase_add_test(tc, an_excess_raises_the_floor);
    tcase_add_test(tc, random_steps_stay_below_the_line);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
