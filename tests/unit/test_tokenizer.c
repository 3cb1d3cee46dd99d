// SPDX-License-Identifier: Apache-2.0
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/random.h"
#include "core/base/utf8.h"
#include "core/tokenizer/tok.h"
#include "tests/support/suite.h"
#include "tests/support/vocab.h"

#define N(array) (sizeof(array) / sizeof(*(array)))

static struct plm_host *host;
static struct plm_tokenizer *tokenizer;
static int32_t special; // id of the first special token

static void setup(void)
{
    host = plm_host_create(0);
    tokenizer = NULL;
}

static void teardown(void)
{
    plm_tokenizer_destroy(tokenizer);
    ck_assert_int_eq(plm_host_destroy(host), 0);
}

// Creates the tokenizer of what was written and frees the writer.
static int create(struct gguf_writer *w, struct plm_error *err)
{
    size_t n;
    const void *bytes = gguf_writer_bytes(w, &n);
    struct plm_gguf *gguf = NULL;
    ck_assert_int_eq(plm_gguf_open_memory(host, bytes, n, true, &gguf, err), PLM_OK);
    int status = plm_tokenizer_create(host, gguf, &tokenizer, err);
    plm_gguf_close(gguf);
    gguf_writer_finish(w);
    return status;
}

static const struct vocab_merge merges[] = {
    {"h", "e"}, {"l", "l"},     {"he", "ll"}, {"hell", "o"}, {" ", "w"}, {"o", "r"}, {" w", "or"},
    {"l", "d"}, {" wor", "ld"}, {"a", "b"},   {"i", "m"},    {"<", "|"}, {"e", "l"}, {"el", "l"},
};
enum { LL = 256 + 1, HELLO = 256 + 3, WORLD = 256 + 8, AB, IM, OPEN, EL, ELL };

static void create_bpe(const char *pre, int missing_byte)
{
    struct gguf_writer w;
    struct vocab_bpe vocab = {pre, merges, N(merges), missing_byte};
    struct plm_error err = {0};
    gguf_writer_init(&w);
    special = vocab_bpe_write(&w, &vocab);
    ck_assert_msg(create(&w, &err) == PLM_OK, "%s", err.msg);
}

static const struct vocab_piece pieces[] = {
    {"\xE2\x96\x81", -1},
    {"h", -2},
    {"e", -3},
    {"l", -4},
    {"o", -5},
    {"ll", -10},
    {"he", -11},
    {"hell", -20},
    {"lo", -9},
    {"\xE2\x96\x81he", -12},
    {"\xE2\x96\x81\xE2\x96\x81", -8},
};
enum {
    P_SPACE = VOCAB_SPM_PIECES,
    P_H,
    P_E,
    P_L,
    P_O,
    P_LL,
    P_HE,
    P_HELL,
    P_LO,
    P_SPACE_HE,
    P_TWO
};

static void create_spm(const char *architecture, bool no_bytes)
{
    struct gguf_writer w;
    struct vocab_spm vocab = {.architecture = architecture,
                              .pieces = pieces,
                              .n_pieces = N(pieces),
                              .no_bytes = no_bytes};
    struct plm_error err = {0};
    gguf_writer_init(&w);
    special = vocab_spm_write(&w, &vocab);
    ck_assert_msg(create(&w, &err) == PLM_OK, "%s", err.msg);
}

static void expect_spans(const char *text, const struct plm_span *spans, size_t n_spans,
                         const int32_t *want, size_t n)
{
    struct plm_tokens got;
    struct plm_error err = {0};
    plm_tokens_init(&got, host);
    ck_assert_int_eq(plm_tokenizer_encode_spans(tokenizer, (struct plm_slice){text, strlen(text)},
                                                spans, n_spans, 0, &got, &err),
                     PLM_OK);
    ck_assert_msg(got.n == n, "%s: %zu ids, not %zu", text, got.n, n);
    for (size_t i = 0; i < n; i++)
        ck_assert_msg(got.ids[i] == want[i], "%s: id %zu is %d, not %d", text, i, got.ids[i],
                      want[i]);
    plm_tokens_finish(&got);
}

static void expect(const char *text, bool trusted, const int32_t *want, size_t n)
{
    struct plm_span span = {0, strlen(text), trusted};
    expect_spans(text, &span, 1, want, n);
}

#define EXPECT(text, trusted, ...)                                                                 \
    do {                                                                                           \
        const int32_t want[] = {__VA_ARGS__};                                                      \
        expect(text, trusted, want, N(want));                                                      \
    } while (0)

START_TEST(merges_by_rank)
{
    create_bpe("gpt-2", -1);
    EXPECT("hello world", false, HELLO, WORLD);
    EXPECT("hello  world", false, HELLO, ' ', WORLD); // the last space goes with the word
    EXPECT("helo", false, 256, 'l', 'o');
    EXPECT("lll", false, 256 + 1, 'l'); // the leftmost of equals
    EXPECT("\xE9\x9D\x9E", false, 0xE9, 0x9D, 0x9E);
}
END_TEST

START_TEST(a_byte_without_token_is_dropped)
{
    create_bpe("gpt-2", 0xC3); // of U+00E9, C3 A9, only A9 is left
    EXPECT("l\xC3\xA9l", false, 'l', 0xA9, 'l');
    EXPECT("\xC3\xA9", false, 0xA9);
    plm_tokenizer_destroy(tokenizer);
    create_bpe("gpt-2", '_');
    struct plm_tokens got;
    plm_tokens_init(&got, host);
    ck_assert_int_eq(plm_tokenizer_encode(tokenizer, PLM_SLICE("___"), 0, &got, NULL), PLM_OK);
    ck_assert_uint_eq(got.n, 0);
    plm_tokens_finish(&got);
    EXPECT("<_|", false, OPEN); // its neighbours become adjacent before merging
}
END_TEST

START_TEST(some_models_take_whole_words)
{
    create_bpe("gpt-2", -1);
    EXPECT("ell", false, 'e', LL); // "l l" comes first, so "el l" is never reached
    plm_tokenizer_destroy(tokenizer);
    create_bpe("llama-bpe", -1);
    EXPECT("ell", false, ELL);
    EXPECT("ella", false, 'e', LL, 'a');
}
END_TEST

START_TEST(special_tokens_only_where_trusted)
{
    create_bpe("gpt-2", -1);
    int32_t start = special + VOCAB_BPE_START;
    int32_t end = special + VOCAB_BPE_END;
    EXPECT("<|im_start|>ab<|im_end|>", true, start, AB, end);
    struct plm_tokens got;
    plm_tokens_init(&got, host);
    ck_assert_int_eq(
        plm_tokenizer_encode(tokenizer, PLM_SLICE("x<|im_end|>y<|im_start|>"), 0, &got, NULL),
        PLM_OK);
    for (size_t i = 0; i < got.n; i++)
        ck_assert(!plm_tokenizer_is_control(tokenizer, got.ids[i]));
    plm_tokens_finish(&got);
    EXPECT("<tool>", false, special + VOCAB_BPE_TOOL); // user-defined: in both
    EXPECT("<tool>", true, special + VOCAB_BPE_TOOL);
    EXPECT("<|im_end|><|x|>", true, special + VOCAB_BPE_END_2); // the longest
    EXPECT("a     b", false, 'a', special + VOCAB_BPE_SPACES, ' ', 'b');
    char filler[32];
    snprintf(filler, sizeof(filler), "[PAD%d]", special + VOCAB_BPE_FILLER);
    plm_tokens_init(&got, host);
    ck_assert_int_eq(plm_tokenizer_encode(tokenizer, (struct plm_slice){filler, strlen(filler)},
                                          PLM_ENCODE_PARSE_SPECIAL, &got, NULL),
                     PLM_OK);
    ck_assert_int_gt((int)got.n, 1);
    plm_tokens_finish(&got);
}
END_TEST

START_TEST(spans_taint_the_text)
{
    create_bpe("gpt-2", -1);
    int32_t start = special + VOCAB_BPE_START;
    int32_t end = special + VOCAB_BPE_END;
    // "<|im_start|>" "<|im_end|>" "<|im_end|>": the middle one came from a user.
    const char *text = "<|im_start|><|im_end|><|im_end|>";
    const struct plm_span spans[] = {{0, 12, true}, {12, 22, false}, {22, 32, true}};
    const int32_t want[] = {start, OPEN, IM, '_', 'e', 'n', 'd', '|', '>', end};
    expect_spans(text, spans, N(spans), want, N(want));
    // A control token must not straddle a border, even between two trusted spans; merges may.
    const struct plm_span cut[] = {{0, 5, true}, {5, 10, false}};
    const int32_t plain[] = {OPEN, IM, '_', 'e', 'n', 'd', '|', '>'};
    expect_spans("<|im_end|>", cut, N(cut), plain, N(plain));
    const struct plm_span both[] = {{0, 5, true}, {5, 10, true}};
    expect_spans("<|im_end|>", both, N(both), plain, N(plain));
    const struct plm_span word[] = {{0, 1, true}, {1, 1, false}, {1, 2, false}};
    const int32_t ab[] = {AB};
    expect_spans("ab", word, N(word), ab, 1);
}
END_TEST

START_TEST(bad_arguments)
{
    create_bpe("gpt-2", -1);
    struct plm_tokens got;
    struct plm_error err = {0};
    plm_tokens_init(&got, host);
    const struct plm_span gap[] = {{0, 1, true}, {2, 3, true}};
    const struct plm_span short_of_end[] = {{0, 2, true}};
    struct plm_slice text = PLM_SLICE("abc");
    ck_assert_int_eq(plm_tokenizer_encode_spans(tokenizer, text, gap, 2, 0, &got, &err),
                     PLM_ERR_INVALID);
    ck_assert_int_eq(plm_tokenizer_encode_spans(tokenizer, text, short_of_end, 1, 0, &got, &err),
                     PLM_ERR_INVALID);
    ck_assert_int_eq(plm_tokenizer_encode(tokenizer, PLM_SLICE("ab\xFF"), 0, &got, &err),
                     PLM_ERR_FORMAT);
    ck_assert_ptr_nonnull(strstr(err.msg, "byte 2"));
    ck_assert_int_eq(plm_tokenizer_encode(tokenizer, (struct plm_slice){NULL, 0}, 0, &got, &err),
                     PLM_OK);
    ck_assert_int_eq((int)got.n, 0);
    ck_assert_int_eq((int)plm_tokenizer_piece(tokenizer, -1).len, 0);
    ck_assert_int_eq((int)plm_tokenizer_piece(tokenizer, 100000).len, 0);
    ck_assert(!plm_tokenizer_is_eog(tokenizer, -1));
    plm_tokens_finish(&got);
}
END_TEST

START_TEST(ends_of_generation)
{
    create_bpe("gpt-2", -1);
    ck_assert(plm_tokenizer_is_eog(tokenizer, special + VOCAB_BPE_START)); // the file's eos
    ck_assert(plm_tokenizer_is_eog(tokenizer, special + VOCAB_BPE_END));   // known by its text
    ck_assert(!plm_tokenizer_is_eog(tokenizer, special + VOCAB_BPE_TOOL));
    ck_assert(!plm_tokenizer_is_eog(tokenizer, 'a'));
    ck_assert_int_eq(plm_tokenizer_bos(tokenizer), -1);
    ck_assert(!plm_tokenizer_adds_bos(tokenizer));
}
END_TEST

START_TEST(merges_by_score)
{
    create_spm("llama", false);
    EXPECT("hello", false, P_SPACE_HE, P_L, P_LO); // "lo" scores above "ll", "▁he" uses "he"
    EXPECT("hell", false, P_SPACE_HE, P_LL);
    EXPECT(" hell", false, P_TWO, P_HELL); // "▁▁" scores above "▁he"
    EXPECT("\n", false, P_SPACE, VOCAB_SPM_BYTES + '\n');
    EXPECT("\xC3\xA9", false, P_SPACE, VOCAB_SPM_BYTES + 0xC3, VOCAB_SPM_BYTES + 0xA9);
    EXPECT("<|user|>he</s>  he", true, special, P_SPACE_HE, 2, P_TWO, P_SPACE_HE);
    EXPECT("<tool>", false, special + 1);
    struct plm_tokens got;
    plm_tokens_init(&got, host);
    ck_assert_int_eq(
        plm_tokenizer_encode(tokenizer, PLM_SLICE(""), PLM_ENCODE_ADD_SPECIAL, &got, NULL), PLM_OK);
    ck_assert_int_eq((int)got.n, 1);
    ck_assert_int_eq(got.ids[0], 1); // <s>, the default of the kind
    plm_tokens_finish(&got);
}
END_TEST

// "e▁h" holds a space inside, so words can not be merged one by one.
START_TEST(scores_of_any_sign_and_inner_spaces)
{
    static const struct vocab_piece signs[] = {
        {"\xE2\x96\x81", 0},
        {"h", 0},
        {"e", 0},
        {"\xE2\x96\x81h", 2},
        {"he", 3},
        {"eh", -1},
        {"e\xE2\x96\x81h", 2.5f},
        {"e\xE2\x96\x81", 2.25f},
    };
    struct gguf_writer w;
    struct vocab_spm vocab = {.architecture = "llama", .pieces = signs, .n_pieces = N(signs)};
    struct plm_error err = {0};
    gguf_writer_init(&w);
    special = vocab_spm_write(&w, &vocab);
    ck_assert_msg(create(&w, &err) == PLM_OK, "%s", err.msg);
    int32_t p = VOCAB_SPM_PIECES;
    EXPECT("he", false, p, p + 4); // "he" (3) before "▁h" (2)
    EXPECT("hh", false, p + 3, p + 1);
    EXPECT("ehe", false, p, p + 2, p + 4); // 3 before -1
    EXPECT("e h", false, p, p + 6);        // "e▁" first, then "e▁h"
}
END_TEST

START_TEST(unknown_characters_without_byte_tokens)
{
    create_spm("llama", true);
    EXPECT("h\xC3\xA9h", false, P_SPACE, P_H, 0, P_H);
}
END_TEST

static void expect_text(const char *text, const int32_t *ids, size_t n)
{
    struct plm_buf out;
    plm_buf_init(&out, host, PLM_HOST_OTHER);
    ck_assert_int_eq(plm_tokenizer_decode(tokenizer, ids, n, false, &out), PLM_OK);
    ck_assert_str_eq(out.data, text);
    plm_buf_finish(&out);
}

// As Gemma has it: nothing goes before a text, and runs of spaces and lines are added tokens, which
// are found before anything merges. Files spell their spaces in two ways.
START_TEST(added_tokens_of_spaces_come_first)
{
    static const char *const spaces[] = {"  ", "   ", "\n\n", "<a b>"};
    static const char *const escaped[] = {"\xE2\x96\x81\xE2\x96\x81",
                                          "\xE2\x96\x81\xE2\x96\x81\xE2\x96\x81", "\n\n",
                                          "<a\xE2\x96\x81\x62>"}; // b, which no escape ends before
    for (int way = 0; way < 2; way++) {
        struct gguf_writer w;
        struct vocab_spm vocab = {.architecture = "gemma3",
                                  .pieces = pieces,
                                  .n_pieces = P_TWO - P_SPACE, // without "▁▁"
                                  .no_prefix = true,
                                  .added = way == 0 ? spaces : escaped,
                                  .n_added = N(spaces)};
        struct plm_error err = {0};
        gguf_writer_init(&w);
        special = vocab_spm_write(&w, &vocab);
        ck_assert_msg(create(&w, &err) == PLM_OK, "%s", err.msg);
        const int32_t two = special + 2, three = special + 3, lines = special + 4, ab = special + 5;
        EXPECT("hell", false, P_HELL);
        EXPECT(" he", false, P_SPACE_HE);
        EXPECT("  he", false, two, P_HE);           // not " " and " he"
        EXPECT("     he", false, three, two, P_HE); // the longest at each place
        EXPECT("he\n\n\nhe", false, P_HE, lines, VOCAB_SPM_BYTES + '\n', P_HE);
        EXPECT("l<a b>l", false, P_L, ab, P_L);
        EXPECT("\xE2\x82\xAC", false, VOCAB_SPM_BYTES + 0xE2, VOCAB_SPM_BYTES + 0x82,
               VOCAB_SPM_BYTES + 0xAC);
        const int32_t ids[] = {two, P_HE, ab, P_SPACE_HE, three, lines};
        expect_text("  he<a b> he   \n\n", ids, N(ids));
        const int32_t first[] = {P_SPACE_HE}; // nothing was put before it
        expect_text(" he", first, 1);
        plm_tokenizer_destroy(tokenizer);
        tokenizer = NULL;
    }
}
END_TEST

// Files give these the type of user-defined tokens, which any text could spell.
START_TEST(control_tokens_are_known_by_their_spelling)
{
    static const char *const added[] = {"<|EOT|>", "<｜fim▁begin｜>", "<｜fim▁x｜>"};
    struct gguf_writer w;
    struct vocab_spm vocab = {.architecture = "llama",
                              .pieces = pieces,
                              .n_pieces = N(pieces),
                              .no_prefix = true,
                              .added = added,
                              .n_added = N(added)};
    struct plm_error err = {0};
    gguf_writer_init(&w);
    special = vocab_spm_write(&w, &vocab);
    ck_assert_msg(create(&w, &err) == PLM_OK, "%s", err.msg);
    ck_assert(plm_tokenizer_is_control(tokenizer, special + 2));
    ck_assert(plm_tokenizer_is_control(tokenizer, special + 3));
    ck_assert(!plm_tokenizer_is_control(tokenizer, special + 4));
    ck_assert(plm_tokenizer_is_eog(tokenizer, special + 2));
    ck_assert(!plm_tokenizer_is_eog(tokenizer, special + 3));
    EXPECT("<｜fim▁begin｜>", true, special + 3);
    EXPECT("<|EOT|>", false, VOCAB_SPM_BYTES + '<', VOCAB_SPM_BYTES + '|', VOCAB_SPM_BYTES + 'E',
           VOCAB_SPM_BYTES + 'O', VOCAB_SPM_BYTES + 'T', VOCAB_SPM_BYTES + '|',
           VOCAB_SPM_BYTES + '>');
}
END_TEST

START_TEST(chat_tokens_of_phi3_swallow_white_space)
{
    create_spm("phi3", false);
    EXPECT("<|user|> \n\xC2\xA0 he", true, special, P_SPACE_HE);
    EXPECT("<|user|> \n", true, special);
    EXPECT("<s> he", true, 1, P_TWO, P_HE); // this one does not
    plm_tokenizer_destroy(tokenizer);
    create_spm("llama", false);
    EXPECT("<|user|> he", true, special, P_TWO, P_HE);
}
END_TEST

// Merging done in the most literal way.
static size_t merge_naively(const char *s, int32_t *ids, size_t *ends, size_t n,
                            plm_tok_pair_fn *pair)
{
    for (;;) {
        size_t best = n;
        uint32_t best_key = 0;
        int32_t best_id = 0;
        for (size_t i = 0; i + 1 < n; i++) {
            size_t begin = i == 0 ? 0 : ends[i - 1];
            uint32_t key;
            int32_t id;
            if (pair(tokenizer, s + begin, ends[i + 1] - begin, ids[i], ids[i + 1], &key, &id) &&
                (best == n || key < best_key)) {
                best = i;
                best_key = key;
                best_id = id;
            }
        }
        if (best == n)
            return n;
        ids[best] = best_id;
        ends[best] = ends[best + 1];
        for (size_t i = best + 1; i + 1 < n; i++) {
            ids[i] = ids[i + 1];
            ends[i] = ends[i + 1];
        }
        n--;
    }
}

static uint32_t scramble; // another order of the merges each round

// Any two strings of up to 4 letters a and b merge, in an order that is a hash of them, which makes
// far more overlaps than a trained vocabulary has.
static bool scrambled_pair(const struct plm_tokenizer *unused, const char *s, size_t n,
                           int32_t left, int32_t right, uint32_t *ret_key, int32_t *ret_id)
{
    (void)unused;
    (void)left;
    (void)right;
    uint32_t hash = (uint32_t)n + scramble;
    for (size_t i = 0; i < n; i++)
        hash = hash * 31 + (uint32_t)s[i];
    hash *= 2654435761u;
    *ret_key = (hash ^ hash >> 15) % 7; // with equals
    *ret_id = (int32_t)(hash >> 1);
    return n <= 4;
}

START_TEST(both_engines_merge_as_the_literal_one)
{
    struct plm_tok_scratch scratch;
    plm_tok_scratch_init(&scratch, host);
    for (uint32_t round = 0; round < 400; round++) {
        char s[200];
        int32_t ids[200];
        size_t ends[200];
        scramble = round * 7919;
        size_t n = 1 + (size_t)(plm_random_uniform(7, 0, round, 0) * (round % 2 ? 24 : 199));
        ck_assert(plm_tok_scratch_symbols(&scratch, n));
        for (size_t i = 0; i < n; i++) {
            s[i] = plm_random_uniform(7, 1, round * 1000 + i, 0) < 0.5f ? 'a' : 'b';
            ids[i] = scratch.symbols.id[i] = s[i];
            scratch.symbols.len[i] = 1;
            ends[i] = i + 1;
        }
        size_t want = merge_naively(s, ids, ends, n, scrambled_pair);
        ck_assert_int_eq(plm_tok_merge(NULL, &scratch, s, (uint32_t)n, scrambled_pair), PLM_OK);
        size_t at = 0;
        for (size_t i = 0; i < want; i++) {
            ck_assert_int_eq(scratch.symbols.id[at], ids[i]);
            at += scratch.symbols.len[at];
            ck_assert_uint_eq(at, ends[i]);
        }
        ck_assert_uint_eq(at, n);
    }
    plm_tok_scratch_finish(&scratch);
}
END_TEST

// Quadratic time would take hours for these; the test's timeout fails then.
START_TEST(long_runs_take_linear_time)
{
    static const char *const runs[] = {"a", "l", " ", "\n", "ab", "he", "1", "!",
                                       // marks of falling class, so that ordering has to work
                                       "\xCC\x81\xCC\xA3"};
    size_t n = 1 << 20;
    char *text = malloc(n);
    ck_assert_ptr_nonnull(text);
    for (int kind = 0; kind < 3; kind++) {
        if (kind == 2)
            create_spm("llama", false);
        else
            create_bpe(kind == 0 ? "qwen2" : "smollm", -1);
        for (size_t i = 0; i < N(runs); i++) {
            size_t len = strlen(runs[i]);
            for (size_t at = 0; at + len <= n; at += len)
                memcpy(text + at, runs[i], len);
            struct plm_tokens got;
            plm_tokens_init(&got, host);
            ck_assert_int_eq(
                plm_tokenizer_encode(tokenizer, (struct plm_slice){text, n}, 0, &got, NULL),
                PLM_OK);
            ck_assert_uint_gt(got.n, n / 8);
            plm_tokens_finish(&got);
        }
        plm_tokenizer_destroy(tokenizer);
        tokenizer = NULL;
    }
    free(text);
}
END_TEST

// What a rule would look at again and again, if it could.
START_TEST(every_rule_takes_linear_time)
{
    static const char *const runs[] = {
        "a",
        "A",
        "aA",
        " ",
        "\n",
        " \n",
        "1",
        "!",
        "'",
        "'l",
        "\xCC\x81",
        "A\xCC\x81",
        "\xE4\xB8\xAD",
        "\xE3\x80\x80",
        "\xC2\x85",
        "\xC2\xAD",
        "\xD8\x80",
        " 1",
        "\xE3\x82\xAB\xE6\xBC\xA2",
    };
    static const char *const ends[] = {"", "x", "1"};
    const size_t n = 1 << 17;
    char *text = malloc(n + 2);
    ck_assert_ptr_nonnull(text);
    const struct plm_tok_rule *rule;
    for (size_t r = 0; (rule = plm_tok_rule_at(r)) != NULL; r++) {
        if (r > 0 &&
            memcmp(rule->stages, plm_tok_rule_at(r - 1)->stages, sizeof(rule->stages)) == 0)
            continue; // another name of it
        struct plm_tok_pre pre;
        plm_tok_pre_init(&pre, rule);
        for (size_t i = 0; i < N(runs) * N(ends); i++) {
            const char *run = runs[i / N(ends)];
            const char *end = ends[i % N(ends)];
            size_t len = 0;
            for (; len + strlen(run) <= n; len += strlen(run))
                memcpy(text + len, run, strlen(run));
            memcpy(text + len, end, strlen(end));
            len += strlen(end);
            struct plm_tok_words words;
            struct plm_slice word;
            size_t at = 0;
            plm_tok_words_init(&words, &pre, (struct plm_slice){text, len});
            while (plm_tok_words_next(&words, &word) && word.len > 0 && word.ptr == text + at)
                at += word.len;
            ck_assert_uint_eq(at, len);
        }
    }
    free(text);
}
END_TEST

// Each name is one of a kind, and what files leave open depends on it.
START_TEST(rules_have_names_and_flags)
{
    const struct plm_tok_rule *rule, *found;
    for (size_t i = 0; (rule = plm_tok_rule_at(i)) != NULL; i++) {
        ck_assert_int_eq(
            plm_tok_rule_find((struct plm_slice){rule->name, strlen(rule->name)}, &found, NULL),
            PLM_OK);
        ck_assert_msg(found == rule, "\"%s\" is there twice", rule->name);
    }
    ck_assert_int_eq(plm_tok_rule_find(PLM_SLICE("tekken"), &found, NULL), PLM_OK);
    ck_assert_uint_eq(found->flags, PLM_TOK_RULE_IGNORE_MERGES | PLM_TOK_RULE_ADD_BOS);
    ck_assert_int_eq(plm_tok_rule_find(PLM_SLICE("mpt"), &found, NULL), PLM_OK);
    ck_assert_uint_eq(found->flags, PLM_TOK_RULE_NFC);
    ck_assert_int_eq(plm_tok_rule_find(PLM_SLICE("falcon"), &found, NULL), PLM_OK);
    ck_assert_uint_eq(found->flags, 0);
    struct plm_error err = {0};
    ck_assert_int_eq(plm_tok_rule_find(PLM_SLICE("mpt2"), &found, &err), PLM_ERR_UNSUPPORTED);
    ck_assert_str_eq(found->name, "falcon"); // untouched
    // From the first name to the last.
    ck_assert_ptr_nonnull(strstr(err.msg, "\"mpt2\" is not supported (there are: gpt-2, mpt, "));
    ck_assert_ptr_nonnull(strstr(err.msg, ", deepseek-v3)"));
}
END_TEST

static void expect_nfc(const char *text, const char *want)
{
    struct plm_tok_scratch scratch;
    plm_tok_scratch_init(&scratch, host);
    struct plm_slice slice = {text, strlen(text)};
    ck_assert_int_eq(plm_tok_nfc(&scratch, &slice, NULL), PLM_OK);
    ck_assert_msg(plm_slice_eq_str(slice, want), "%s: not %s", text, want);
    plm_tok_scratch_finish(&scratch);
}

// From the chart of UAX 15 and its test file.
START_TEST(normal_form_c)
{
    expect_nfc("plain", "plain");
    expect_nfc("\xC3\xA9", "\xC3\xA9");
    expect_nfc("xe\xCC\x81x", "x\xC3\xA9x");
    expect_nfc("e\xCC\x81\xCC\x81", "\xC3\xA9\xCC\x81");
    expect_nfc("s\xCC\x87\xCC\xA3", "\xE1\xB9\xA9");                    // dot above, dot below
    expect_nfc("\xE2\x84\xAB", "\xC3\x85");                             // ANGSTROM SIGN
    expect_nfc("\xE1\x84\x80\xE1\x85\xA1\xE1\x86\xA8", "\xEA\xB0\x81"); // Hangul L V T
    expect_nfc("\xE0\xA5\x98", "\xE0\xA4\x95\xE0\xA4\xBC");             // never composed
    expect_nfc("\xF0\x9D\x85\x9E", "\xF0\x9D\x85\x97\xF0\x9D\x85\xA5"); // outside the BMP
    expect_nfc("\xEF\xAD\x80", "\xD7\xA0\xD6\xBC");
    // More marks than the insertion sort takes: classes 230 and 220 in turn.
    char text[200] = "x";
    char want[200] = "x";
    for (int i = 0; i < 20; i++)
        strcat(text, "\xCC\x85\xCC\x96");
    for (int i = 0; i < 40; i++)
        strcat(want, i < 20 ? "\xCC\x96" : "\xCC\x85");
    expect_nfc(text, want);
}
END_TEST

START_TEST(decoding)
{
    create_spm("llama", false);
    struct plm_buf out;
    plm_buf_init(&out, host, PLM_HOST_OTHER);
    const int32_t ids[] = {1, P_SPACE_HE, P_L, P_LO, special, P_SPACE_HE};
    ck_assert_int_eq(plm_tokenizer_decode(tokenizer, ids, N(ids), true, &out), PLM_OK);
    ck_assert_str_eq(out.data, "hello he");
    plm_buf_clear(&out);
    ck_assert_int_eq(plm_tokenizer_decode(tokenizer, ids + 1, N(ids) - 1, false, &out), PLM_OK);
    ck_assert_str_eq(out.data, "hello<|user|> he");
    plm_buf_clear(&out);
    struct plm_detok detok;
    plm_detok_init(&detok, tokenizer, true, false); // in the middle of a text
    plm_detok_push(&detok, P_SPACE_HE, &out);
    ck_assert_str_eq(out.data, " he");
    plm_buf_finish(&out);
}
END_TEST

static void push_bytes(struct plm_detok *detok, const char *bytes, struct plm_buf *out)
{
    for (; *bytes != '\0'; bytes++)
        plm_detok_push(detok, (unsigned char)*bytes, out);
}

START_TEST(streaming_holds_back_half_characters)
{
    create_bpe("gpt-2", -1);
    static const struct {
        const char *bytes;
        const char *text; // after the flush
    } cases[] = {
        {"\xF0\x9F\x99\x82!", "\xF0\x9F\x99\x82!"},
        {"\xE4\xB8\xAD\xE6\x96\x87", "\xE4\xB8\xAD\xE6\x96\x87"},
        {"a\x80z", "a\xEF\xBF\xBDz"},                             // alone
        {"\xF0\x9F\x99z", "\xEF\xBF\xBDz"},                       // cut short
        {"\xF0\x9F\x99", "\xEF\xBF\xBD"},                         // at the end
        {"\xE4\xE4\xB8\xAD", "\xEF\xBF\xBD\xE4\xB8\xAD"},         // a new one starts
        {"\xC0\x80", "\xEF\xBF\xBD\xEF\xBF\xBD"},                 // overlong
        {"\xE0\x80\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"}, // overlong
        {"\xED\xA0\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"}, // a surrogate
        {"\xF4\x90z", "\xEF\xBF\xBD\xEF\xBF\xBDz"},               // above U+10FFFF
    };
    for (size_t i = 0; i < N(cases); i++) {
        struct plm_buf out;
        struct plm_detok detok;
        plm_buf_init(&out, host, PLM_HOST_OTHER);
        plm_detok_init(&detok, tokenizer, true, true);
        for (const char *byte = cases[i].bytes; *byte != '\0'; byte++) {
            push_bytes(&detok, (const char[]){*byte, '\0'}, &out);
            ck_assert_uint_eq(plm_utf8_valid_prefix(out.data, out.len), out.len);
        }
        plm_detok_flush(&detok, &out);
        plm_detok_flush(&detok, &out); // nothing is left
        ck_assert_str_eq(out.data, cases[i].text);
        plm_buf_finish(&out);
    }
}
END_TEST

START_TEST(random_streams_stay_valid)
{
    create_bpe("gpt-2", -1);
    static const unsigned char interesting[] = {0x00, 'a',  0x80, 0x9F, 0xA0, 0xBF,
                                                0xC1, 0xC3, 0xE0, 0xE4, 0xED, 0xEF,
                                                0xF0, 0xF4, 0xF5, 0xFF, 0x90, 0x8F};
    struct plm_buf out;
    struct plm_detok detok;
    plm_buf_init(&out, host, PLM_HOST_OTHER);
    plm_detok_init(&detok, tokenizer, true, true);
    for (uint32_t i = 0; i < 20000; i++) {
        size_t before = out.len;
        size_t pick = (size_t)(plm_random_uniform(3, 0, i, 0) * (float)N(interesting));
        plm_detok_push(&detok, interesting[pick], &out);
        ck_assert_uint_eq(plm_utf8_valid_prefix(out.data + before, out.len - before),
                          out.len - before);
        ck_assert_uint_lt(detok.n_held, 4);
    }
    plm_buf_finish(&out);
}
END_TEST

static void expect_error(struct gguf_writer *w, int status, const char *says)
{
    struct plm_error err = {0};
    ck_assert_int_eq(create(w, &err), status);
    ck_assert_ptr_null(tokenizer);
    ck_assert_msg(strstr(err.msg, says) != NULL, "\"%s\" does not say \"%s\"", err.msg, says);
}

// A vocabulary of two tokens and one more key each.
static void bad_vocab(struct gguf_writer *w, const char *model, const char *pre)
{
    static const char *const tokens[] = {"a", "b"};
    gguf_writer_init(w);
    gguf_writer_str(w, "tokenizer.ggml.model", model);
    if (pre != NULL)
        gguf_writer_str(w, "tokenizer.ggml.pre", pre);
    gguf_writer_strs(w, "tokenizer.ggml.tokens", tokens, 2);
}

// Those that nothing here uses: the file is good without them.
START_TEST(unused_ids_beyond_the_vocabulary_are_found)
{
    const float scores[] = {0, 0};
    struct gguf_writer w;
    struct plm_gguf *gguf = NULL;
    struct plm_error err = {0};
    bad_vocab(&w, "llama", NULL);
    gguf_writer_array(&w, "tokenizer.ggml.scores", PLM_GGUF_F32, scores, 2);
    gguf_writer_u32(&w, "tokenizer.ggml.eos_token_id", 1);
    gguf_writer_u32(&w, "tokenizer.ggml.padding_token_id", 2);
    gguf_writer_u32(&w, "tokenizer.ggml.mask_token_id", 0);
    gguf_writer_u32(&w, "tokenizer.ggml.fim_pre_token_id", UINT32_MAX);
    gguf_writer_u32(&w, "tokenizer.ggml.token_type_count", 7);
    gguf_writer_u32(&w, "other.padding_token_id", 7);
    size_t n;
    const void *bytes = gguf_writer_bytes(&w, &n);
    ck_assert_int_eq(plm_gguf_open_memory(host, bytes, n, true, &gguf, &err), PLM_OK);
    ck_assert_int_eq(plm_tokenizer_create(host, gguf, &tokenizer, &err), PLM_OK);
    char name[PLM_TOKENIZER_KEY_MAX];
    uint64_t at = 0;
    uint32_t id;
    ck_assert(plm_tokenizer_stray_id(tokenizer, gguf, &at, name, &id));
    ck_assert_str_eq(name, "tokenizer.ggml.padding_token_id");
    ck_assert_uint_eq(id, 2);
    ck_assert(plm_tokenizer_stray_id(tokenizer, gguf, &at, name, &id));
    ck_assert_str_eq(name, "tokenizer.ggml.fim_pre_token_id");
    ck_assert_uint_eq(id, UINT32_MAX);
    ck_assert(!plm_tokenizer_stray_id(tokenizer, gguf, &at, name, &id));
    plm_gguf_close(gguf);
    gguf_writer_finish(&w);
}
END_TEST

START_TEST(bad_vocabularies_are_named)
{
    static const char *const stranger[] = {"a c"};
    static const char *const no_pair[] = {"ab"};
    const int32_t types[] = {1, 1, 1};
    const int32_t no_type[] = {1, 9};
    const float scores[] = {0, 0};
    struct gguf_writer w;
    bad_vocab(&w, "bert", NULL);
    expect_error(&w, PLM_ERR_UNSUPPORTED, "bert");
    bad_vocab(&w, "gpt2", "viking");
    expect_error(&w, PLM_ERR_UNSUPPORTED, "tokenizer.ggml.pre \"viking\" is not supported");
    bad_vocab(&w, "gpt2", "gpt-2");
    expect_error(&w, PLM_ERR_FORMAT, "tokenizer.ggml.merges");
    bad_vocab(&w, "gpt2", "gpt-2");
    gguf_writer_strs(&w, "tokenizer.ggml.merges", stranger, 1);
    expect_error(&w, PLM_ERR_FORMAT, "a c");
    bad_vocab(&w, "gpt2", "gpt-2");
    gguf_writer_strs(&w, "tokenizer.ggml.merges", no_pair, 1);
    expect_error(&w, PLM_ERR_FORMAT, "not a pair");
    bad_vocab(&w, "gpt2", "gpt-2");
    gguf_writer_array(&w, "tokenizer.ggml.token_type", PLM_GGUF_I32, types, 3);
    expect_error(&w, PLM_ERR_FORMAT, "3 entries for 2 tokens");
    bad_vocab(&w, "gpt2", "gpt-2");
    gguf_writer_array(&w, "tokenizer.ggml.token_type", PLM_GGUF_I32, no_type, 2);
    expect_error(&w, PLM_ERR_FORMAT, "entry 1");
    bad_vocab(&w, "llama", NULL);
    expect_error(&w, PLM_ERR_FORMAT, "scores");
    bad_vocab(&w, "llama", NULL);
    gguf_writer_array(&w, "tokenizer.ggml.scores", PLM_GGUF_F32, scores, 2);
    gguf_writer_u32(&w, "tokenizer.ggml.eos_token_id", 2);
    expect_error(&w, PLM_ERR_FORMAT, "eos_token_id is 2");
    bad_vocab(&w, "llama", NULL);
    gguf_writer_array(&w, "tokenizer.ggml.scores", PLM_GGUF_F32, scores, 2);
    gguf_writer_u32(&w, "tokenizer.ggml.eot_token_id", UINT32_MAX);
    expect_error(&w, PLM_ERR_FORMAT, "eot_token_id is 4294967295");
    gguf_writer_init(&w);
    expect_error(&w, PLM_ERR_FORMAT, "tokenizer.ggml.model");
    gguf_writer_init(&w);
    gguf_writer_str(&w, "tokenizer.ggml.model", "llama");
    expect_error(&w, PLM_ERR_FORMAT, "tokenizer.ggml.tokens");
}
END_TEST

// Creates and encodes with the n-th allocation failing; returns how many allocations there were.
static uint64_t torture_once(const struct plm_gguf *gguf, struct plm_slice text, uint64_t n,
                             int sticky)
{
    struct plm_host *tortured = plm_host_create(0);
    struct plm_tokenizer *made = NULL;
    struct plm_tokens out;
    struct plm_error err = {0};
    plm_tokens_init(&out, tortured);
    plm_host_fail_nth(tortured, n, sticky);
    int status = plm_tokenizer_create(tortured, gguf, &made, &err);
    if (status == PLM_OK)
        status = plm_tokenizer_encode(made, text, PLM_ENCODE_PARSE_SPECIAL | PLM_ENCODE_ADD_SPECIAL,
                                      &out, &err);
    ck_assert_int_eq(status, n == 0 ? PLM_OK : PLM_ERR_NOMEM_HOST);
    if (status != PLM_OK) {
        ck_assert_uint_eq(out.n, 0);
        ck_assert_int_eq(err.status, PLM_ERR_NOMEM_HOST);
    }
    struct plm_host_stats stats;
    plm_host_fail_nth(tortured, 0, 0);
    plm_host_read(tortured, &stats);
    plm_tokens_finish(&out);
    plm_tokenizer_destroy(made);
    ck_assert_int_eq(plm_host_destroy(tortured), 0);
    return stats.allocations;
}

START_TEST(every_allocation_may_fail)
{
    // Long enough for the heap, with marks for the normalization and special tokens.
    static const char text[] =
        "<|im_start|>hello world hehehehehehehehehehehehehehehehehehehehehehe"
        "lllllllllllllllllllllllllllllllllllllllllllllllllllllllllll"
        "e\xCC\x81\xCC\xA3 <tool> ab ab ab ab ab ab ab ab ab ab ab ab ab ab";
    for (int kind = 0; kind < 2; kind++) {
        struct gguf_writer w;
        gguf_writer_init(&w);
        struct vocab_bpe bpe = {"qwen2", merges, N(merges), -1};
        struct vocab_spm spm = {.architecture = "phi3", .pieces = pieces, .n_pieces = N(pieces)};
        if (kind == 0)
            vocab_bpe_write(&w, &bpe);
        else
            vocab_spm_write(&w, &spm);
        size_t n;
        const void *bytes = gguf_writer_bytes(&w, &n);
        struct plm_gguf *gguf = NULL;
        ck_assert_int_eq(plm_gguf_open_memory(host, bytes, n, true, &gguf, NULL), PLM_OK);
        uint64_t all = torture_once(gguf, PLM_SLICE(text), 0, 0);
        ck_assert_uint_gt(all, 10);
        for (uint64_t nth = 1; nth <= all; nth++) {
            torture_once(gguf, PLM_SLICE(text), nth, 0);
            torture_once(gguf, PLM_SLICE(text), nth, 1);
        }
        plm_gguf_close(gguf);
        gguf_writer_finish(&w);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tokenizer");
    TCase *tcase = tcase_create("tokenizer");
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, merges_by_rank);
    tcase_add_test(tcase, a_byte_without_token_is_dropped);
    tcase_add_test(tcase, special_tokens_only_where_trusted);
    tcase_add_test(tcase, spans_taint_the_text);
    tcase_add_test(tcase, bad_arguments);
    tcase_add_test(tcase, ends_of_generation);
    tcase_add_test(tcase, merges_by_score);
    tcase_add_test(tcase, scores_of_any_sign_and_inner_spaces);
    tcase_add_test(tcase, some_models_take_whole_words);
    tcase_add_test(tcase, unknown_characters_without_byte_tokens);
    tcase_add_test(tcase, chat_tokens_of_phi3_swallow_white_space);
    tcase_add_test(tcase, both_engines_merge_as_the_literal_one);
    tcase_add_test(tcase, added_tokens_of_spaces_come_first);
    tcase_add_test(tcase, control_tokens_are_known_by_their_spelling);
    tcase_add_test(tcase, long_runs_take_linear_time);
    tcase_add_test(tcase, every_rule_takes_linear_time);
    tcase_add_test(tcase, rules_have_names_and_flags);
    tcase_add_test(tcase, normal_form_c);
    tcase_add_test(tcase, decoding);
    tcase_add_test(tcase, streaming_holds_back_half_characters);
    tcase_add_test(tcase, random_streams_stay_valid);
    tcase_add_test(tcase, bad_vocabularies_are_named);
    tcase_add_test(tcase, unused_ids_beyond_the_vocabulary_are_found);
    tcase_add_test(tcase, every_allocation_may_fail);
    suite_add_tcase(suite, tcase);
    return suite_run(suite);
}
