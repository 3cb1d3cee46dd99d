// SPDX-License-Identifier: Apache-2.0
// Certificates: written and read back, refused with the reason, damaged in every way, and what a
// start makes of them, against a device of numbers and with a real engine.
#include <check.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "core/plan/certificate.h"
#include "core/plimsoll.h"
#include "tests/support/suite.h"
#include "tests/unit/profile_world.h"

static struct plm_host *host;

static void set_up(void)
{
    host = plm_host_create(0);
}

static void tear_down(void)
{
    ck_assert_int_eq(plm_host_destroy(host), 0);
}

static struct plm_cert_key a_key(void)
{
    struct plm_cert_key key = {.n = 0};
    plm_cert_key_text(&key, "build", "0.1.0 \"gcc\"");
    plm_cert_key_text(&key, "device_uuid", "GPU-1");
    plm_cert_key_number(&key, "ctx_size", 4096);
    return key;
}

static struct plm_profile proved(void)
{
    struct world w = world_plain();
    struct plm_profile p;
    struct plm_error err;
    w.transient = 40 * MIB;
    ck_assert_int_eq(world_start(&w, world_options(), &p, &err), PLM_OK);
    return p;
}

static struct plm_buf written(const struct plm_cert_key *key, const struct plm_profile *p)
{
    struct plm_buf buf;
    plm_buf_init(&buf, host, PLM_HOST_OTHER);
    plm_cert_write(&buf, key, p);
    ck_assert(!buf.failed);
    return buf;
}

static int read_text(const char *text, size_t len, const struct plm_cert_key *key,
                     struct plm_profile *ret, struct plm_error *err)
{
    *err = (struct plm_error){.msg = ""};
    int r = plm_cert_read(host, (struct plm_slice){text, len}, key, ret, err);
    if (r != PLM_OK)
        ck_assert_msg(err->status == r && err->msg[0] != '\0', "no reason");
    return r;
}

START_TEST(what_is_written_is_read)
{
    const struct plm_cert_key key = a_key();
    const struct plm_profile p = proved();
    struct plm_profile back;
    struct plm_error err;
    struct plm_buf buf = written(&key, &p);
    int r = read_text(buf.data, buf.len, &key, &back, &err);
    ck_assert_msg(r == PLM_OK, "%s", err.msg);
    ck_assert_int_eq(back.plan.blocks, p.plan.blocks);
    ck_assert_int_eq(back.plan.line, p.plan.line);
    ck_assert_int_eq(back.plan.growth, 40 * MIB);
    ck_assert_uint_eq(back.n_passes, p.n_passes);
    // Every field: what is written of it is the same text.
    struct plm_buf again = written(&key, &back);
    ck_assert_str_eq(again.data, buf.data);
    plm_buf_append_char(&buf, '\n'); // as a file may end
    ck_assert_int_eq(read_text(buf.data, buf.len, &key, &back, &err), PLM_OK);
    plm_buf_finish(&again);
    plm_buf_finish(&buf);
}
END_TEST

START_TEST(another_key_is_named)
{
    const struct plm_cert_key key = a_key();
    const struct plm_profile p = proved();
    struct plm_profile back;
    struct plm_error err;
    struct plm_buf buf = written(&key, &p);
    for (uint32_t i = 0; i < key.n; i++) {
        struct plm_cert_key other = key;
        snprintf(other.items[i].value, sizeof(other.items[i].value), "different");
        ck_assert_int_eq(read_text(buf.data, buf.len, &other, &back, &err), PLM_ERR_UNSUPPORTED);
        ck_assert_ptr_nonnull(strstr(err.msg, key.items[i].name));
        ck_assert_ptr_nonnull(strstr(err.msg, key.items[i].value));
        ck_assert_ptr_nonnull(strstr(err.msg, "different"));
    }
    struct plm_cert_key other = key;
    other.n--;
    ck_assert_int_eq(read_text(buf.data, buf.len, &other, &back, &err), PLM_ERR_FORMAT);
    other = key;
    plm_cert_key_text(&other, "driver", "1");
    ck_assert_int_eq(read_text(buf.data, buf.len, &other, &back, &err), PLM_ERR_FORMAT);
    ck_assert_ptr_nonnull(strstr(err.msg, "driver is missing"));
    plm_buf_finish(&buf);
}
END_TEST

START_TEST(damage_anywhere_is_found)
{
    const struct plm_cert_key key = a_key();
    const struct plm_profile p = proved();
    struct plm_profile back;
    struct plm_error err;
    struct plm_buf buf = written(&key, &p);
    for (size_t i = 0; i < buf.len; i++) {
        buf.data[i] ^= 1;
        ck_assert_int_eq(read_text(buf.data, buf.len, &key, &back, &err), PLM_ERR_FORMAT);
        buf.data[i] ^= 1;
        ck_assert_int_eq(read_text(buf.data, i, &key, &back, &err), PLM_ERR_FORMAT);
    }
    static char large[PLM_CERT_BYTES_MAX + 1];
    memset(large, ' ', sizeof(large));
    ck_assert_int_eq(read_text(large, sizeof(large), &key, &back, &err), PLM_ERR_LIMIT);
    // A budget that does not hold it: said so, and nothing stays charged.
    plm_host_set_limit(host, (int64_t)buf.len + 1000);
    ck_assert_int_eq(read_text(buf.data, buf.len, &key, &back, &err), PLM_ERR_NOMEM_HOST);
    plm_buf_finish(&buf);
}
END_TEST

// Puts a right checksum under a wrong text.
static int read_forged(const char *text, size_t len, const struct plm_cert_key *key,
                       struct plm_error *err)
{
    struct plm_profile back;
    char *copy = malloc(len + 40);
    memcpy(copy, text, len);
    int n =
        sprintf(copy + len, ",\"checksum\":\"%016" PRIx64 "\"}", (uint64_t)XXH3_64bits(text, len));
    int r = read_text(copy, len + (size_t)n, key, &back, err);
    free(copy);
    return r;
}

// Replaces the value of a member by another.
static int read_with(const struct plm_buf *buf, const char *name, const char *value,
                     const struct plm_cert_key *key, struct plm_error *err)
{
    char quoted[48], text[1 << 14];
    snprintf(quoted, sizeof(quoted), "\"%s\":", name);
    const char *at = strstr(buf->data, quoted);
    ck_assert_msg(at != NULL, "no %s", name);
    at += strlen(quoted);
    int n = snprintf(text, sizeof(text), "%.*s%s%s", (int)(at - buf->data), buf->data, value,
                     at + strcspn(at, ",}]"));
    const char *end = strstr(text, ",\"checksum\"");
    ck_assert(n < (int)sizeof(text) && end != NULL);
    return read_forged(text, (size_t)(end - text), key, err);
}

START_TEST(nonsense_with_a_right_checksum_is_refused)
{
    static const char *const cases[][2] = {
        {"object", "\"plan\""},
        {"version", "1"},
        {"version", "\"3\""},
        {"stressed", "{\"max_sequences\":1"},
        {"g", "0"},
        {"g", "-5"},
        {"T", "null"},
        {"T", "99999999999999999999"},
        {"O", "1"},
        {"process_use", "\"x\""},
        {"memory_fraction", "2"},
        {"memory_fraction", "{}"},
        {"cgroups", "[1"},
        {"cached_windows", "-1"},
        {"windows", "{"},
        {"windows", "[[]"},
        {"window", "-1"},
        {"unified", "0"},
        {"max_sequences", "0"},
        {"max_sequences", "4294967296"},
        {"max_context", "0"},
        {"max_blocks", "-1"},
        {"max_blocks", "4294967297"},
        {"block_bytes", "0"},
        {"slab_blocks", "0"},
        {"slab_blocks", "7"},
        {"slab_bytes", "12345"},
        {"blocks", "0"},
        {"blocks", "1000000000"},
        {"blocks_bind", "\"x\""},
        {"kv_bytes", "1"},
        {"line", "1"},
        {"margin", "0"},
        {"probe_blocks", "-1"},
        {"settled", "1"},
        {"passes", "[[]"},
        {"passes", "{"},
        {"kind", "\"y\""},
        {"rows", "1.5"},
        {"cold", "null"},
        {"not_returned", "[]"},
        {"slow_bytes", "{}"},
        {"graph_bytes", "true"},
        {"budget", ","},
    };
    const struct plm_cert_key key = a_key();
    const struct plm_profile p = proved();
    struct plm_error err;
    struct plm_buf buf = written(&key, &p);
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        int r = read_with(&buf, cases[i][0], cases[i][1], &key, &err);
        ck_assert_msg(r == PLM_ERR_FORMAT || r == PLM_ERR_UNSUPPORTED, "%s %s: %d", cases[i][0],
                      cases[i][1], r);
    }
    static const char *const texts[] = {"",    "{",         "[", "{\"object\":\"certificate\"",
                                        "nul", "[[[[[[[[[["};
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
        ck_assert_int_eq(read_forged(texts[i], strlen(texts[i]), &key, &err), PLM_ERR_FORMAT);
    plm_buf_finish(&buf);
}
END_TEST

// ---- the loop ----

static int start_with(struct world *w, const struct plm_profile *certified, struct plm_profile *ret)
{
    struct plm_profile_opts o = world_options();
    struct plm_error err;
    o.certified = certified;
    int r = world_start(w, o, ret, &err);
    ck_assert_msg(r == PLM_OK || err.msg[0] != '\0', "no reason");
    return r;
}

START_TEST(a_certified_plan_is_validated_once)
{
    struct world w = world_plain();
    struct plm_profile first, again;
    w.lazy = 30 * MIB;
    ck_assert_int_eq(start_with(&w, NULL, &first), PLM_OK);
    ck_assert(!first.certified);
    w = world_plain();
    w.lazy = 30 * MIB;
    ck_assert_int_eq(start_with(&w, &first, &again), PLM_OK);
    ck_assert(again.certified);
    ck_assert_uint_eq(w.validations, 1);
    ck_assert_uint_eq(again.n_passes, 3);
    ck_assert_uint_eq(w.runs[PLM_STRESS_MANY_SHORT], 0); // no stress
    ck_assert_uint_eq(w.calls[CALL_RESIZE], 2);          // no probe
    ck_assert_int_eq(again.plan.blocks, first.plan.blocks);
    ck_assert_int_eq(again.plan.line, first.plan.line);
    ck_assert_int_eq(again.plan.margin, first.plan.margin);
    ck_assert_int_eq(again.plan.blocks_bind, first.plan.blocks_bind);
    ck_assert_int_eq(again.plan.own_drv, (300 + 3 * 30) * MIB); // as it is after the forwards
}
END_TEST

// What a plan says, but for the reading itself, in which one has its probe and the other its pool.
static void same_plan(const struct plm_plan *a, const struct plm_plan *b, bool lazy,
                      const char *what)
{
#define SAME(field)                                                                                \
    ck_assert_msg(a->field == b->field, "%s: " #field " is %lld, without a certificate %lld",      \
                  what, (long long)a->field, (long long)b->field)
    SAME(in.limits.max_context);
    SAME(in.limits.max_sequences);
    SAME(in.limits.batch_max_tokens);
    SAME(blocks);
    SAME(blocks_bind);
    SAME(room_binds);
    SAME(line);
    SAME(kv_bytes);
    SAME(slabs.slab_blocks);
    SAME(slabs.slab_bytes);
    SAME(growth);
    SAME(margin);
    SAME(ballast);
    SAME(resident);
    SAME(prefix_cache_blocks);
    // Fewer kinds of forwards ran: what the others make the driver take is planned, not there yet.
    if (lazy)
        return;
    SAME(own_drv);
    SAME(foreign);
    SAME(room);
    SAME(host);
    SAME(budget);
#undef SAME
}

// An hour on the machine: what the neighbours, the limits and the device's own habits are then.
struct hour {
    const char *name;
    int64_t foreign, limit, pinned, prefix_blocks;
    double fraction;
};

static struct plm_profile_opts hour_options(const struct hour *hour)
{
    struct plm_profile_opts o = world_options();
    o.in.operator_limit = hour->limit;
    o.in.pinned_tokens = hour->pinned;
    o.in.memory_fraction = hour->fraction > 0 ? hour->fraction : 1;
    if (hour->prefix_blocks > 0)
        o.in.prefix_cache_blocks = hour->prefix_blocks;
    return o;
}

static struct world hour_world(const struct hour *hour, int kind)
{
    struct world w = world_plain();
    w.foreign += hour->foreign;
    w.process_use = kind % 2 == 0;
    w.lazy = kind / 2 % 2 * 30 * MIB;
    w.transient = kind / 4 % 2 * 60 * MIB;
    w.graphs = kind / 8 % 2 != 0;
    w.graph_bytes = w.graphs ? 20 * MIB : 0;
    return w;
}

// Starts under `kept` and without it; both plans must be the same. Returns what is kept after it,
// through its text, as a file would hold it.
static struct plm_profile start_in(const struct hour *hour, int kind,
                                   const struct plm_profile *kept, bool *ret_certified)
{
    const struct plm_cert_key key = a_key();
    struct world w = hour_world(hour, kind), other = w;
    struct plm_profile_opts o = hour_options(hour);
    struct plm_profile cold, warm, back;
    struct plm_error err;
    char what[80];
    ck_assert_int_eq(world_start(&other, o, &cold, &err), PLM_OK);
    o.certified = kept;
    int r = world_start(&w, o, &warm, &err);
    ck_assert_msg(r == PLM_OK, "%s: %s", hour->name, err.msg);
    snprintf(what, sizeof(what), "%s, kind %d%s", hour->name, kind,
             warm.certified ? ", certified" : "");
    same_plan(&warm.plan, &cold.plan, w.lazy > 0, what);
    if (warm.certified)
        ck_assert_uint_eq(w.runs[PLM_STRESS_MANY_SHORT], 0); // no stress
    *ret_certified = warm.certified;
    struct plm_buf buf = written(&key, warm.certified ? kept : &warm);
    r = read_text(buf.data, buf.len, &key, &back, &err);
    ck_assert_msg(r == PLM_OK, "%s: %s", what, err.msg);
    plm_buf_finish(&buf);
    return back;
}

static const struct hour roomy = {.name = "roomy"};
static const struct hour tight_hours[] = {
    {.name = "a neighbour", .foreign = 3 * GIB},
    {.name = "a limit", .limit = 9 * GIB},
    {.name = "a fraction", .fraction = 0.5},
    {.name = "a small prefix cache", .prefix_blocks = 10},
};

START_TEST(tight_roomy_and_tight_hours_get_the_plans_of_cold_starts)
{
    bool certified;
    for (int kind = 0; kind < 16; kind++) {
        // What a driver takes at the first run of each forward beside what it takes in each: which
        // size passes then hangs on the forwards that ran before, and fewer do under a certificate.
        if (hour_world(&roomy, kind).lazy > 0 && hour_world(&roomy, kind).transient > 0)
            continue;
        for (size_t i = 0; i < sizeof(tight_hours) / sizeof(*tight_hours); i++) {
            const char *name = tight_hours[i].name;
            // What forwards take beside a full device shows at some sizes only, and is then
            // measured.
            const bool must = hour_world(&roomy, kind).transient == 0;
            struct plm_profile kept = start_in(&tight_hours[i], kind, NULL, &certified);
            kept = start_in(&roomy, kind, &kept, &certified);
            ck_assert_msg(certified || !must, "%s, kind %d: measured anew", name, kind);
            kept = start_in(&tight_hours[i], kind, &kept, &certified);
            ck_assert_msg(certified || !must, "%s, kind %d: measured anew", name, kind);
        }
    }
}
END_TEST

// So tight that the context is lowered: that stress says nothing of the whole context.
START_TEST(a_lowered_context_comes_back)
{
    const struct hour tight = {.name = "very tight", .foreign = 8400 * MIB};
    bool certified;
    for (int kind = 0; kind < 16; kind++) {
        if (hour_world(&tight, kind).transient > 0)
            continue; // the size then hangs on which forwards ran before
        struct plm_profile first = start_in(&tight, kind, NULL, &certified);
        ck_assert(first.context_lowered);
        ck_assert_uint_lt(first.stressed.max_context, world_options().in.limits.max_context);
        struct plm_profile again = start_in(&tight, kind, &first, &certified);
        ck_assert_msg(certified, "kind %d: measured anew", kind);
        struct plm_profile wide = start_in(&roomy, kind, &again, &certified);
        ck_assert(!certified);
        ck_assert_uint_eq(wide.stressed.max_context, world_options().in.limits.max_context);
        again = start_in(&tight, kind, &wide, &certified);
        ck_assert_msg(certified, "kind %d: measured anew", kind);
        start_in(&roomy, kind, &again, &certified);
        ck_assert_msg(certified, "kind %d: measured anew", kind);
    }
}
END_TEST

START_TEST(another_pinned_size_needs_no_new_stress)
{
    const struct hour small = {.name = "pinned small", .pinned = 16 * 4096};
    const struct hour large = {.name = "pinned large", .pinned = 16 * 8192};
    bool certified;
    struct plm_profile kept = start_in(&small, 0, NULL, &certified);
    kept = start_in(&large, 0, &kept, &certified);
    ck_assert(certified);
    start_in(&small, 0, &kept, &certified);
    ck_assert(certified);
}
END_TEST

START_TEST(what_does_not_hold_is_planned_anew)
{
    struct world w = world_plain();
    struct plm_profile first, whole, again;
    ck_assert_int_eq(start_with(&w, NULL, &first), PLM_OK);
    for (int variant = 1; variant < 4; variant++) {
        struct world other = world_plain();
        if (variant == 1)
            other.fail_validations = 1;
        if (variant == 2)
            other.late_foreign = GIB; // comes with the ballast
        if (variant == 3) {
            other.fail_call_kind = CALL_RUN;
            other.fail_nth = 1;
            other.fail_status = PLM_ERR_LOST;
        }
        struct world copy = other;
        if (variant == 1 || variant == 3)
            copy = world_plain(); // it happens to the certified try
        if (variant == 2) {
            copy.late_foreign = 0; // and this is there when the whole loop begins
            copy.foreign += GIB;
        }
        ck_assert_int_eq(start_with(&copy, NULL, &whole), PLM_OK);
        ck_assert_int_eq(start_with(&other, &first, &again), PLM_OK);
        ck_assert(!again.certified);
        ck_assert_msg(again.plan.blocks == whole.plan.blocks, "variant %d: %lld and %lld", variant,
                      (long long)again.plan.blocks, (long long)whole.plan.blocks);
        ck_assert_int_eq(again.n_passes, whole.n_passes);
    }
}
END_TEST

START_TEST(every_call_under_a_certificate_may_fail)
{
    static const int codes[] = {PLM_ERR_OUT_OF_DEVICE, PLM_ERR_LOST, PLM_ERR_NOMEM_HOST};
    struct world w = world_plain();
    struct plm_profile first, again;
    ck_assert_int_eq(start_with(&w, NULL, &first), PLM_OK);
    for (int call = 0; call < CALLS; call++) {
        for (size_t c = 0; c < 3; c++) {
            for (uint32_t nth = 1; nth < 60; nth++) {
                w = world_plain();
                w.fail_call_kind = call;
                w.fail_nth = nth;
                w.fail_status = codes[c];
                start_with(&w, &first, &again);
                if (w.calls[call] < nth)
                    break;
            }
        }
    }
}
END_TEST

// ---- an engine ----

static char said[1 << 14];

static void listen(void *ctx, int level, const char *line)
{
    (void)ctx;
    (void)level;
    size_t at = strlen(said);
    snprintf(said + at, sizeof(said) - at, "%s\n", line);
}

// Starts the tiny model under a certificate; returns the new one, to be freed.
static char *start_engine(const char *certificate, uint32_t ctx_size, uint32_t kv_type,
                          int64_t *ret_blocks)
{
    plim_engine_opts o;
    plim_engine *engine;
    plim_error err = PLIM_INIT(plim_error);
    plim_metrics m = PLIM_INIT(plim_metrics);
    size_t need;
    plim_engine_opts_init(&o);
    o.model_path = TEST_MODELS "/llama-k256-q4_k_m.gguf";
    o.kv_type = kv_type;
    o.manual_step = 1;
    o.autotune = 0;
    o.ctx_size = ctx_size;
    o.log = listen;
    o.certificate = certificate;
    o.certificate_len = certificate != NULL ? strlen(certificate) : 0;
    said[0] = '\0';
    int r = plim_engine_create(&o, &engine, &err);
    ck_assert_msg(r == PLIM_OK, "%s", err.message);
    plim_engine_metrics(engine, &m);
    *ret_blocks = (int64_t)m.blocks_total;
    ck_assert_int_eq(plim_engine_certificate(NULL, NULL, 0, &need), PLIM_ERR_INVALID);
    ck_assert_int_eq(plim_engine_certificate(engine, NULL, 0, &need), PLIM_ERR_LIMIT);
    char *text = malloc(need + 1);
    ck_assert_int_eq(plim_engine_certificate(engine, text, need + 1, &need), PLIM_OK);
    // A start under a certificate has validated only.
    char *plan = malloc(1 << 16);
    ck_assert_int_eq(plim_engine_plan_json(engine, plan, 1 << 16, &need), PLIM_OK);
    if (strstr(plan, "\"certified\":true") != NULL)
        snprintf(said + strlen(said), sizeof(said) - strlen(said), "certified\n");
    free(plan);
    plim_engine_free(engine);
    return text;
}

START_TEST(an_engine_starts_from_its_certificate)
{
    int64_t blocks, again;
    char *first = start_engine(NULL, 256, PLIM_KV_F16, &blocks);
    ck_assert_ptr_null(strstr(said, "certif"));
    char *second = start_engine(first, 256, PLIM_KV_F16, &again);
    ck_assert_ptr_nonnull(strstr(said, "certified\n"));
    ck_assert_str_eq(second, first); // the proof is handed on
    ck_assert_int_eq(again, blocks);
    free(second);
    // Other options.
    second = start_engine(first, 128, PLIM_KV_F16, &again);
    ck_assert_ptr_null(strstr(said, "certified\n"));
    ck_assert_ptr_nonnull(
        strstr(said, "another ctx_size wrote it: \"256\", and here it is \"128\""));
    free(second);
    second = start_engine(first, 256, PLIM_KV_Q8_0, &again);
    ck_assert_ptr_null(strstr(said, "certified\n"));
    ck_assert_ptr_nonnull(
        strstr(said, "another kv_type wrote it: \"f16\", and here it is \"q8_0\""));
    free(second);
    // Another build: any change of it is damage first, so it is forged.
    char *at = strstr(first, "\"version\":\"");
    at[strlen("\"version\":\"")] = '9';
    char *end = strstr(first, ",\"checksum\"");
    sprintf(end, ",\"checksum\":\"%016" PRIx64 "\"}",
            (uint64_t)XXH3_64bits(first, (size_t)(end - first)));
    second = start_engine(first, 256, PLIM_KV_F16, &again);
    ck_assert_ptr_nonnull(strstr(said, "another version wrote it"));
    ck_assert_int_eq(again, blocks);
    free(second);
    first[40] ^= 1;
    second = start_engine(first, 256, PLIM_KV_F16, &again);
    ck_assert_ptr_nonnull(strstr(said, "its checksum does not hold"));
    free(second);
    free(first);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("certificate");
    TCase *tc = tcase_create("all");
    tcase_set_timeout(tc, 60);
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_test(tc, what_is_written_is_read);
    tcase_add_test(tc, another_key_is_named);
    tcase_add_test(tc, damage_anywhere_is_found);
    tcase_add_test(tc, nonsense_with_a_right_checksum_is_refused);
    tcase_add_test(tc, a_certified_plan_is_validated_once);
    tcase_add_test(tc, tight_roomy_and_tight_hours_get_the_plans_of_cold_starts);
    tcase_add_test(tc, a_lowered_context_comes_back);
    tcase_add_test(tc, another_pinned_size_needs_no_new_stress);
    tcase_add_test(tc, what_does_not_hold_is_planned_anew);
    tcase_add_test(tc, every_call_under_a_certificate_may_fail);
    tcase_add_test(tc, an_engine_starts_from_its_certificate);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
