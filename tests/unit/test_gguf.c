// SPDX-License-Identifier: Apache-2.0
#include <check.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "core/gguf/gguf.h"
#include "core/gguf/name_index.h"
#include "core/gguf/types.h"
#include "tests/support/gguf_cases.h"
#include "tests/support/gguf_walk.h"
#include "tests/support/suite.h"

// ---- the table of good and bad files, from memory and from disk

static char dir[] = "/tmp/plimsoll-gguf-XXXXXX";

static const char *in_dir(const char *name)
{
    static char path[512];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    return path;
}

static void check_status(const struct gguf_case *c, const char *how, int status,
                         const struct plm_error *err)
{
    if (status != c->status)
        ck_abort_msg("%s, %s: status %d (%s); expected %d", c->name, how, status,
                     status == PLM_OK ? "" : err->msg, c->status);
    if (status != PLM_OK && (err->status != status || strstr(err->msg, c->says) == NULL))
        ck_abort_msg("%s, %s: \"%s\" does not say \"%s\"", c->name, how, err->msg, c->says);
}

static void check_case(const struct gguf_case *c, struct gguf_writer *w)
{
    size_t n;
    const unsigned char *bytes = gguf_writer_bytes(w, &n);
    for (int with_err = 0; with_err < 2; with_err++) {
        struct plm_host *host = plm_host_create(0);
        struct plm_gguf *gguf = NULL;
        struct plm_error err = {0};
        struct plm_host_stats stats;
        int status = plm_gguf_open_memory(host, bytes, n, false, &gguf, with_err ? &err : NULL);
        if (with_err)
            check_status(c, "memory", status, &err);
        plm_host_read(host, &stats);
        ck_assert_int_le(stats.peak_bytes, GGUF_MAX_PEAK_BYTES(n));
        if (status == PLM_OK)
            ck_assert_msg(gguf_walk(gguf, host), "%s: contradicts itself", c->name);
        else
            ck_assert_ptr_null(gguf);
        plm_gguf_close(gguf);
        ck_assert_int_eq(plm_host_destroy(host), 0);
    }
}

START_TEST(every_case_from_memory)
{
    const struct gguf_case *c = &gguf_cases[_i];
    struct gguf_writer w;
    gguf_writer_init(&w);
    c->build(&w);
    check_case(c, &w);
    gguf_writer_finish(&w);
}
END_TEST

START_TEST(every_case_from_a_file)
{
    const struct gguf_case *c = &gguf_cases[_i];
    if (strcmp(c->name, "split_in_memory") == 0)
        return;
    struct gguf_writer w;
    struct plm_host *host = plm_host_create(0);
    struct plm_gguf *gguf = NULL;
    struct plm_error err = {0};
    const char *path = in_dir("case.gguf");
    gguf_writer_init(&w);
    c->build(&w);
    ck_assert(gguf_writer_save(&w, path));
    int status = plm_gguf_open(host, path, &gguf, &err);
    check_status(c, "file", status, &err);
    if (status == PLM_OK) {
        ck_assert(gguf_walk(gguf, host));
        ck_assert_uint_eq(plm_gguf_file_bytes(gguf), w.file.len);
    } else {
        ck_assert_msg(strncmp(err.msg, path, strlen(path)) == 0, "no path in \"%s\"", err.msg);
    }
    plm_gguf_close(gguf);
    ck_assert_int_eq(plm_host_destroy(host), 0);
    gguf_writer_finish(&w);
}
END_TEST

// ---- values

static struct plm_gguf *open_sample(struct plm_host *host, struct gguf_writer *w)
{
    struct plm_gguf *gguf = NULL;
    struct plm_error err = {0};
    size_t n;
    gguf_writer_sample(w);
    const unsigned char *bytes = gguf_writer_bytes(w, &n);
    int status = plm_gguf_open_memory(host, bytes, n, false, &gguf, &err);
    ck_assert_msg(status == PLM_OK, "%s", err.msg);
    return gguf;
}

static void close_sample(struct plm_gguf *gguf, struct plm_host *host, struct gguf_writer *w)
{
    plm_gguf_close(gguf);
    ck_assert_int_eq(plm_host_destroy(host), 0);
    gguf_writer_finish(w);
}

START_TEST(typed_getters_convert_what_fits_and_refuse_the_rest)
{
    struct gguf_writer w;
    struct plm_host *host = plm_host_create(0);
    struct plm_gguf *g = open_sample(host, &w);
    struct plm_error err;
    uint32_t u32 = 7;
    uint64_t u64 = 7;
    float f = 7;
    bool flag = false;
    struct plm_slice s = {0};
    struct plm_gguf_array a;
    ck_assert(plm_gguf_u32(g, "k.u8", &u32, &err) == PLM_OK && u32 == 200);
    ck_assert(plm_gguf_u32(g, "k.u16", &u32, &err) == PLM_OK && u32 == 60000);
    ck_assert(plm_gguf_u32(g, "k.u32", &u32, &err) == PLM_OK && u32 == 4000000000u);
    ck_assert(plm_gguf_u64(g, "k.u64", &u64, &err) == PLM_OK && u64 == UINT64_MAX);
    ck_assert(plm_gguf_f32(g, "k.f32", &f, &err) == PLM_OK && f == 0.1f);
    ck_assert(plm_gguf_f32(g, "k.f64", &f, &err) == PLM_OK && f == 0.25f);
    ck_assert(plm_gguf_bool(g, "k.bool", &flag, &err) == PLM_OK && flag);
    ck_assert(plm_gguf_str(g, "general.architecture", &s, &err) == PLM_OK);
    ck_assert(plm_slice_eq_str(s, "llama"));
    u32 = 7, u64 = 7, f = 7;
    const char *const not_u32[] = {"k.i8",  "k.i16",  "k.i32", "k.u64",
                                   "k.i64", "k.bool", "k.f32", "general.architecture"};
    for (int i = 0; i < 8; i++)
        ck_assert_msg(plm_gguf_u32(g, not_u32[i], &u32, &err) == PLM_ERR_FORMAT, "%s", not_u32[i]);
    ck_assert_int_eq(plm_gguf_u64(g, "k.i64", &u64, &err), PLM_ERR_FORMAT);
    ck_assert_int_eq(plm_gguf_f32(g, "k.u32", &f, &err), PLM_ERR_FORMAT);
    ck_assert_ptr_nonnull(strstr(err.msg, "key \"k.u32\""));
    ck_assert_ptr_nonnull(strstr(err.msg, "is of type u32; expected f32"));
    ck_assert_int_eq(plm_gguf_bool(g, "k.u8", &flag, &err), PLM_ERR_FORMAT);
    ck_assert_int_eq(plm_gguf_str(g, "a.str", &s, &err), PLM_ERR_FORMAT);
    ck_assert_int_eq(plm_gguf_array(g, "k.u8", &a, &err), PLM_ERR_FORMAT);
    ck_assert_int_eq(plm_gguf_u32(g, "k.none", &u32, &err), PLM_ERR_NOT_FOUND);
    ck_assert_str_eq(err.msg, "key \"k.none\" is missing");
    ck_assert_int_eq(plm_gguf_u32(g, "", &u32, NULL), PLM_ERR_NOT_FOUND);
    ck_assert(u32 == 7 && u64 == 7 && f == 7); // untouched
    close_sample(g, host, &w);
}
END_TEST

START_TEST(arrays_give_their_elements)
{
    struct gguf_writer w;
    struct plm_host *host = plm_host_create(0);
    struct plm_gguf *g = open_sample(host, &w);
    struct plm_gguf_array a;
    int64_t i = 7;
    float f = 7;
    ck_assert_int_eq(plm_gguf_array(g, "a.str", &a, NULL), PLM_OK);
    ck_assert(a.type == PLM_GGUF_STRING && a.count == 9 && a.data == NULL);
    ck_assert(plm_slice_eq_str(a.strs[0], "a") && plm_slice_eq_str(a.strs[1], ""));
    ck_assert(plm_slice_eq_str(a.strs[4], "two\nlines") && plm_slice_eq_str(a.strs[8], "9"));
    ck_assert(!plm_gguf_array_i64(&a, 0, &i) && !plm_gguf_array_f32(&a, 0, &f));
    ck_assert_int_eq(plm_gguf_array(g, "a.i32", &a, NULL), PLM_OK);
    ck_assert(a.count == 12 && plm_gguf_array_i64(&a, 2, &i) && i == 3);
    ck_assert(plm_gguf_array_i64(&a, 3, &i) && i == -1);
    ck_assert(!plm_gguf_array_f32(&a, 3, &f));
    ck_assert_int_eq(plm_gguf_array(g, "a.f64", &a, NULL), PLM_OK);
    ck_assert(plm_gguf_array_f32(&a, 0, &f) && f == 0.5f);
    ck_assert(!plm_gguf_array_f32(&a, 1, &f) && f == 0.5f); // -1e300 is no float
    ck_assert_int_eq(plm_gguf_array(g, "a.bool", &a, NULL), PLM_OK);
    ck_assert(a.count == 3 && !plm_gguf_array_i64(&a, 0, &i));
    ck_assert_int_eq(plm_gguf_array(g, "a.empty", &a, NULL), PLM_OK);
    ck_assert_uint_eq(a.count, 0);
    close_sample(g, host, &w);
}
END_TEST

START_TEST(keys_have_a_readable_form)
{
    static const char *const want[] = {
        "general.architecture=\"llama\"",
        "k.u8=200",
        "k.i8=-100",
        "k.u16=60000",
        "k.i16=-30000",
        "k.u32=4000000000",
        "k.i32=-2000000000",
        "k.u64=18446744073709551615",
        "k.i64=-9223372036854775808",
        "k.f32=0.1",
        "k.f64=0.25",
        "k.bool=true",
        "a.str=[string x 9]",
        "a.i32=[i32 x 12]",
        "a.f64=[0.5, -1e+300]",
        "a.bool=[true, false, true]",
        "a.empty=[]",
        "a.no_str=[]",
    };
    struct gguf_writer w;
    struct plm_host *host = plm_host_create(0);
    struct plm_gguf *g = open_sample(host, &w);
    struct plm_buf text;
    plm_buf_init(&text, host, PLM_HOST_OTHER);
    ck_assert_uint_eq(plm_gguf_n_keys(g), sizeof(want) / sizeof(want[0]));
    for (uint64_t i = 0; i < plm_gguf_n_keys(g); i++) {
        plm_buf_clear(&text);
        plm_buf_append_slice(&text, plm_gguf_key_name(g, i));
        plm_buf_append_char(&text, '=');
        plm_gguf_key_text(g, i, &text);
        ck_assert_str_eq(text.data, want[i]);
    }
    plm_buf_finish(&text);
    close_sample(g, host, &w);
}
END_TEST

START_TEST(strings_are_escaped_and_bounded_in_text)
{
    char value[400];
    memset(value, 'x', sizeof(value));
    memcpy(value, "\"\\\n\x1b\xFF\xC3\xA9", 7);
    value[399] = '\0';
    struct gguf_writer w;
    struct plm_host *host = plm_host_create(0);
    struct plm_gguf *g = NULL;
    struct plm_buf text;
    size_t n;
    gguf_writer_init(&w);
    gguf_writer_str(&w, "s", value);
    const unsigned char *bytes = gguf_writer_bytes(&w, &n);
    ck_assert_int_eq(plm_gguf_open_memory(host, bytes, n, false, &g, NULL), PLM_OK);
    plm_buf_init(&text, host, PLM_HOST_OTHER);
    plm_gguf_key_text(g, 0, &text);
    ck_assert_msg(strncmp(text.data, "\"\\\"\\\\\\n\\x1b\\xff\xC3\xA9xxx", 19) == 0, "%s",
                  text.data);
    ck_assert_ptr_nonnull(strstr(text.data, "x\"... (399 bytes)"));
    plm_buf_finish(&text);
    close_sample(g, host, &w);
}
END_TEST

// ---- tensors

START_TEST(types_have_the_sizes_of_the_format)
{
    static const struct {
        enum plm_type type;
        const char *name;
        uint64_t bytes_of_256;
    } want[] = {
        {PLM_TYPE_F32, "F32", 1024},      {PLM_TYPE_F16, "F16", 512},
        {PLM_TYPE_BF16, "BF16", 512},     {PLM_TYPE_I32, "I32", 1024},
        {PLM_TYPE_Q4_0, "Q4_0", 144},     {PLM_TYPE_Q4_1, "Q4_1", 160},
        {PLM_TYPE_Q5_0, "Q5_0", 176},     {PLM_TYPE_Q5_1, "Q5_1", 192},
        {PLM_TYPE_Q8_0, "Q8_0", 272},     {PLM_TYPE_Q2_K, "Q2_K", 84},
        {PLM_TYPE_Q3_K, "Q3_K", 110},     {PLM_TYPE_Q4_K, "Q4_K", 144},
        {PLM_TYPE_Q5_K, "Q5_K", 176},     {PLM_TYPE_Q6_K, "Q6_K", 210},
        {PLM_TYPE_IQ4_NL, "IQ4_NL", 144}, {PLM_TYPE_MXFP4, "MXFP4", 136},
        {PLM_TYPE_IQ4_XS, "IQ4_XS", 136},
    };
    uint64_t bytes = 7;
    for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
        ck_assert_str_eq(plm_type_traits(want[i].type)->name, want[i].name);
        ck_assert(plm_type_row_bytes(want[i].type, 256, &bytes));
        ck_assert_uint_eq(bytes, want[i].bytes_of_256);
    }
    ck_assert(!plm_type_row_bytes(PLM_TYPE_Q4_0, 48, &bytes));
    ck_assert(!plm_type_row_bytes(PLM_TYPE_F32, UINT64_MAX, &bytes));
    ck_assert(!plm_type_row_bytes(5, 32, &bytes) && !plm_type_row_bytes(4000, 32, &bytes));
    ck_assert(plm_type_traits(5) == NULL && plm_type_traits(UINT32_MAX) == NULL);
    ck_assert_str_eq(plm_type_name(16), "IQ2_XXS");
    ck_assert_ptr_null(plm_type_name(43));
}
END_TEST

START_TEST(tensors_are_found_and_read)
{
    struct gguf_writer w;
    struct plm_host *host = plm_host_create(0);
    struct plm_gguf *g = open_sample(host, &w);
    struct plm_error err;
    unsigned char got[4096];
    ck_assert_uint_eq(plm_gguf_n_tensors(g), 16);
    ck_assert_ptr_null(plm_gguf_tensor_at(g, 16));
    ck_assert_ptr_null(plm_gguf_tensor_find(g, "blk.16.weight"));
    for (uint64_t i = 0; i < 16; i++) {
        char name[32];
        snprintf(name, sizeof(name), "blk.%d.weight", (int)i);
        const struct plm_gguf_tensor *t = plm_gguf_tensor_find(g, name);
        ck_assert(t != NULL && t == plm_gguf_tensor_at(g, i));
        ck_assert(t->ne[0] == 256 && t->n_dims == 1 + i % 4 && t->bytes <= sizeof(got));
        ck_assert_uint_eq(t->ne[1], t->n_dims > 1 ? 1 + i % 2 : 1);
        ck_assert_uint_eq(t->ne[3], t->n_dims > 3 ? 2 : 1);
        ck_assert_int_eq(plm_gguf_read(g, t, 0, got, t->bytes, &err), PLM_OK);
        for (uint64_t b = 0; b < t->bytes; b++)
            ck_assert_uint_eq(got[b], (b * 7 + i + 1) & 0x7F);
        ck_assert_int_eq(plm_gguf_read(g, t, 5, got, 3, &err), PLM_OK);
        ck_assert_uint_eq(got[0], (5 * 7 + i + 1) & 0x7F);
        ck_assert_int_eq(plm_gguf_read(g, t, t->bytes - 2, got, 3, &err), PLM_ERR_INVALID);
        ck_assert_int_eq(plm_gguf_read(g, t, UINT64_MAX, got, 2, &err), PLM_ERR_INVALID);
        ck_assert_int_eq(plm_gguf_read(g, t, 1, got, UINT64_MAX, &err), PLM_ERR_INVALID);
    }
    close_sample(g, host, &w);
}
END_TEST

START_TEST(a_header_alone_opens_when_asked)
{
    struct gguf_writer w;
    struct plm_host *host = plm_host_create(0);
    struct plm_gguf *g = NULL;
    struct plm_error err;
    unsigned char byte;
    size_t n;
    gguf_writer_sample(&w);
    w.cut = w.data.len;
    const unsigned char *bytes = gguf_writer_bytes(&w, &n);
    ck_assert_int_eq(plm_gguf_open_memory(host, bytes, n, false, &g, &err), PLM_ERR_FORMAT);
    ck_assert_int_eq(plm_gguf_open_memory(host, bytes, n, true, &g, &err), PLM_OK);
    ck_assert_uint_eq(plm_gguf_n_tensors(g), 16);
    ck_assert_int_eq(plm_gguf_read(g, plm_gguf_tensor_at(g, 15), 0, &byte, 1, &err), PLM_ERR_IO);
    close_sample(g, host, &w);
}
END_TEST

// ---- limits

START_TEST(counts_above_the_caps_are_refused)
{
    struct gguf_writer w;
    struct plm_host *host = plm_host_create(0);
    struct plm_gguf *g = NULL;
    struct plm_error err;
    struct plm_host_stats stats;
    size_t n;
    gguf_writer_init(&w);
    w.n_tensors = 1048577;
    for (int i = 0; i < 1048577 * 5; i++)
        gguf_put_uint(&w.infos, 0, 8); // room for all of them
    const unsigned char *bytes = gguf_writer_bytes(&w, &n);
    ck_assert_int_eq(plm_gguf_open_memory(host, bytes, n, false, &g, &err), PLM_ERR_LIMIT);
    ck_assert_ptr_nonnull(strstr(err.msg, "1048577 tensors; at most 1048576"));
    plm_host_read(host, &stats);
    ck_assert_int_le(stats.peak_bytes, 1 << 20);
    close_sample(g, host, &w);
}
END_TEST

START_TEST(a_sparse_file_of_8_gib_costs_nothing)
{
    static const uint32_t types[2] = {PLM_GGUF_STRING, PLM_GGUF_U64};
    for (int i = 0; i < 2; i++) {
        struct gguf_writer w;
        struct plm_host *host = plm_host_create(0);
        struct plm_gguf *g = NULL;
        struct plm_error err;
        struct plm_host_stats stats;
        const char *path = in_dir("sparse.gguf");
        gguf_writer_init(&w);
        gguf_writer_key(&w, PLM_SLICE("a"), PLM_GGUF_ARRAY);
        gguf_put_uint(&w.keys, types[i], 4);
        gguf_put_uint(&w.keys, 1ull << 29, 8);
        ck_assert(gguf_writer_save(&w, path));
        ck_assert_int_eq(truncate(path, 8ll << 30), 0);
        ck_assert_int_eq(plm_gguf_open(host, path, &g, &err), PLM_ERR_LIMIT);
        ck_assert_ptr_nonnull(strstr(err.msg, "key \"a\" makes the header longer than 256 MiB"));
        plm_host_read(host, &stats);
        ck_assert_int_le(stats.peak_bytes, 1 << 18);
        ck_assert_int_eq(unlink(path), 0);
        close_sample(g, host, &w);
    }
}
END_TEST

START_TEST(the_host_budget_holds)
{
    struct gguf_writer w;
    struct plm_host *host = plm_host_create(20000);
    struct plm_gguf *g = NULL;
    struct plm_error err;
    size_t n;
    gguf_writer_init(&w);
    gguf_writer_key(&w, PLM_SLICE("long"), PLM_GGUF_STRING);
    gguf_put_uint(&w.keys, 30000, 8);
    for (int i = 0; i < 3750; i++)
        gguf_put(&w.keys, "01234567", 8);
    const unsigned char *bytes = gguf_writer_bytes(&w, &n);
    ck_assert_int_eq(plm_gguf_open_memory(host, bytes, n, false, &g, &err), PLM_ERR_NOMEM_HOST);
    plm_host_set_limit(host, 0);
    ck_assert_int_eq(plm_gguf_open_memory(host, bytes, n, false, &g, &err), PLM_OK);
    close_sample(g, host, &w);
}
END_TEST

// Names whose hashes start at the same slot: each look-up would walk over all of them.
START_TEST(colliding_names_are_refused)
{
    struct plm_host *host = plm_host_create(0);
    struct plm_name_index index = {0};
    static char text[600][24];
    static struct plm_slice names[600];
    int status = PLM_OK;
    unsigned n = 0;
    for (unsigned i = 0; n < 600 && status == PLM_OK; i++) {
        int len = snprintf(text[n], sizeof(text[n]), "k%u", i);
        if ((XXH3_64bits(text[n], (size_t)len) & 2047) != 0)
            continue;
        names[n] = (struct plm_slice){text[n], (size_t)len};
        status = plm_name_index_add(&index, host, names, sizeof(names[0]), n);
        n++;
    }
    ck_assert_int_eq(status, PLM_ERR_LIMIT);
    ck_assert_uint_eq(n, 513);
    for (unsigned i = 0; i < 512; i++)
        ck_assert_int_eq(plm_name_index_find(&index, names, sizeof(names[0]), names[i]), i);
    ck_assert_int_eq(plm_name_index_find(&index, names, sizeof(names[0]), names[512]), -1);
    plm_name_index_finish(&index, host);
    ck_assert_int_eq(plm_host_destroy(host), 0);
}
END_TEST

START_TEST(a_million_honest_names_are_accepted)
{
    enum { N = 1 << 20 };
    struct plm_host *host = plm_host_create(0);
    struct plm_name_index index = {0};
    struct plm_slice *names = calloc(N, sizeof(*names));
    char(*text)[32] = calloc(N, sizeof(*text));
    for (uint32_t i = 0; i < N; i++) {
        int len = snprintf(text[i], sizeof(text[i]), "blk.%u.attn_q.weight", i);
        names[i] = (struct plm_slice){text[i], (size_t)len};
        if (plm_name_index_add(&index, host, names, sizeof(*names), i) != PLM_OK)
            ck_abort_msg("%s", text[i]);
    }
    for (uint32_t i = 0; i < N; i += 997)
        ck_assert_int_eq(plm_name_index_find(&index, names, sizeof(*names), names[i]), i);
    ck_assert_int_eq(plm_name_index_add(&index, host, names, sizeof(*names), 5), PLM_ERR_INVALID);
    plm_name_index_finish(&index, host);
    free(names);
    free(text);
    ck_assert_int_eq(plm_host_destroy(host), 0);
}
END_TEST

// ---- damage

START_TEST(every_prefix_of_a_good_file_is_refused)
{
    struct gguf_writer w;
    size_t n;
    gguf_writer_sample(&w);
    const unsigned char *bytes = gguf_writer_bytes(&w, &n);
    size_t last = w.data.len % 32; // bytes of padding after the last tensor are not missed
    size_t padding = last == 0 ? 0 : 32 - last;
    for (size_t len = 0; len < n - padding; len++) {
        struct plm_host *host = plm_host_create(0);
        struct plm_gguf *g = NULL;
        unsigned char *exact = malloc(len + 1); // so that a sanitizer sees a read beyond
        memcpy(exact, bytes, len);
        exact = realloc(exact, len > 0 ? len : 1);
        int status = plm_gguf_open_memory(host, exact, len, false, &g, NULL);
        free(exact);
        ck_assert_msg(status == PLM_ERR_FORMAT, "%zu of %zu bytes: %d", len, n, status);
        ck_assert_int_eq(plm_host_destroy(host), 0);
    }
    gguf_writer_finish(&w);
}
END_TEST

// Any status will do; a sanitizer build shows what must not happen.
START_TEST(every_flipped_bit_is_survived)
{
    struct gguf_writer w;
    size_t n;
    unsigned refused = 0;
    gguf_writer_sample(&w);
    const unsigned char *bytes = gguf_writer_bytes(&w, &n);
    ck_assert_uint_ge(n, 4096);
    unsigned char *copy = malloc(n);
    memcpy(copy, bytes, n);
    struct plm_host *host = plm_host_create(0);
    for (size_t bit = 0; bit < 8 * 4096; bit++) {
        struct plm_gguf *g = NULL;
        copy[bit / 8] ^= (unsigned char)(1 << bit % 8);
        if (plm_gguf_open_memory(host, copy, n, bit % 2 == 0, &g, NULL) != PLM_OK)
            refused++;
        else if (!gguf_walk(g, host))
            ck_abort_msg("bit %zu of byte %zu: the object contradicts itself", bit % 8, bit / 8);
        plm_gguf_close(g);
        copy[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
    ck_assert_uint_gt(refused, 1000);
    free(copy);
    ck_assert_int_eq(plm_host_destroy(host), 0);
    gguf_writer_finish(&w);
}
END_TEST

// ---- files

START_TEST(what_is_no_file_is_refused)
{
    struct plm_host *host = plm_host_create(0);
    struct plm_gguf *g = NULL;
    struct plm_error err;
    ck_assert_int_eq(plm_gguf_open(host, in_dir("none.gguf"), &g, &err), PLM_ERR_NOT_FOUND);
    ck_assert_ptr_nonnull(strstr(err.msg, "none.gguf: cannot be opened: No such file"));
    ck_assert_int_eq(plm_gguf_open(host, dir, &g, &err), PLM_ERR_IO);
    ck_assert_int_eq(mkfifo(in_dir("fifo.gguf"), 0600), 0);
    ck_assert_int_eq(plm_gguf_open(host, in_dir("fifo.gguf"), &g, &err), PLM_ERR_IO);
    ck_assert_ptr_nonnull(strstr(err.msg, "is not a regular file"));
    ck_assert_int_eq(unlink(in_dir("fifo.gguf")), 0);
    ck_assert_int_eq(plm_host_destroy(host), 0);
}
END_TEST

// What happens to the file between two reads of a tensor, and what the second one says (NULL: OK).
static const struct {
    const char *what;
    const char *says;
} changes[] = {
    {"nothing", NULL},
    {"truncated", "truncated"},
    {"grown", "changed from"},
    {"written", "was written"},
    {"replaced", "was replaced by another file"},
    {"deleted", NULL}, // what is open stays whole
};

static void change(const char *what, const char *path, struct gguf_writer *w)
{
    if (strcmp(what, "truncated") == 0) {
        ck_assert_int_eq(truncate(path, 100), 0);
    } else if (strcmp(what, "grown") == 0) {
        ck_assert_int_eq(truncate(path, 1 << 20), 0);
    } else if (strcmp(what, "written") == 0) {
        usleep(20000); // kernels stamp files with the time of the last tick
        FILE *f = fopen(path, "r+b");
        ck_assert(f != NULL && fputc('G', f) == 'G');
        ck_assert_int_eq(fclose(f), 0);
    } else if (strcmp(what, "replaced") == 0) {
        char other[600];
        snprintf(other, sizeof(other), "%s.new", path);
        ck_assert(gguf_writer_save(w, other));
        ck_assert_int_eq(rename(other, path), 0);
    } else if (strcmp(what, "deleted") == 0) {
        ck_assert_int_eq(unlink(path), 0);
    }
}

START_TEST(a_file_that_changes_during_the_load_is_noticed)
{
    struct gguf_writer w;
    struct plm_host *host = plm_host_create(0);
    struct plm_gguf *g = NULL;
    struct plm_error err = {0};
    unsigned char got[16];
    const char *path = in_dir("changing.gguf");
    gguf_writer_sample(&w);
    ck_assert(gguf_writer_save(&w, path));
    ck_assert_int_eq(plm_gguf_open(host, path, &g, &err), PLM_OK);
    const struct plm_gguf_tensor *t = plm_gguf_tensor_at(g, 15);
    ck_assert_int_eq(plm_gguf_read(g, t, 0, got, 16, &err), PLM_OK);
    ck_assert_uint_eq(got[0], 16);
    change(changes[_i].what, path, &w);
    int status = plm_gguf_read(g, t, 0, got, 16, &err);
    ck_assert_msg(status == (changes[_i].says == NULL ? PLM_OK : PLM_ERR_IO), "%s: %d",
                  changes[_i].what, status);
    if (changes[_i].says != NULL)
        ck_assert_msg(strstr(err.msg, changes[_i].says) != NULL, "%s", err.msg);
    unlink(path);
    close_sample(g, host, &w);
}
END_TEST

// ---- splits

// One damage of a set of three splits, and what opening it says (NULL: opens).
static const struct split_case {
    const char *name;
    int status;
    const char *says;
} split_cases[] = {
    {"good", PLM_OK, NULL},
    {"second missing", PLM_ERR_NOT_FOUND, "m-00002-of-00003.gguf: cannot be opened"},
    {"second says no 2", PLM_ERR_FORMAT, "says it is split 3 of 3"},
    {"second says count 4", PLM_ERR_FORMAT, "says it is split 2 of 4"},
    {"second without keys", PLM_ERR_FORMAT, "says it is split 1 of 1"},
    {"third says other tensors", PLM_ERR_FORMAT, "with 7 tensors in all; expected"},
    {"tensor twice", PLM_ERR_FORMAT, "m-00003-of-00003.gguf: tensor \"t1\" occurs twice"},
    {"too few tensors", PLM_ERR_FORMAT, "is 4, but the splits hold 3 tensors"},
    {"third truncated", PLM_ERR_FORMAT, "m-00003-of-00003.gguf: tensor \"t2\" ends at byte"},
    {"opened second", PLM_ERR_FORMAT, "is split 2 of 3; give the first one, NAME-00001-of-00003"},
    {"other name", PLM_ERR_FORMAT, "so its name must end with \"-00001-of-00003.gguf\""},
};

static bool is(const struct split_case *c, const char *name, unsigned damaged, unsigned no)
{
    return damaged == no && strcmp(c->name, name) == 0;
}

static void write_split(const struct split_case *c, unsigned no)
{
    struct gguf_writer w;
    char name[64];
    unsigned total = strcmp(c->name, "too few tensors") == 0 ? 4 : 3;
    gguf_writer_init(&w);
    if (!is(c, "second without keys", 1, no)) {
        gguf_writer_int(&w, "split.no", PLM_GGUF_U16, is(c, "second says no 2", 1, no) ? 2 : no);
        gguf_writer_int(&w, "split.count", PLM_GGUF_U16,
                        is(c, "second says count 4", 1, no) ? 4 : 3);
        gguf_writer_int(&w, "split.tensors.count", PLM_GGUF_I32,
                        is(c, "third says other tensors", 2, no) ? 7 : total);
    }
    if (no == 0)
        gguf_writer_str(&w, "general.architecture", "llama");
    snprintf(name, sizeof(name), "t%u", is(c, "tensor twice", 2, no) ? 1 : no);
    gguf_writer_tensor(&w, name, PLM_TYPE_Q8_0, 1, (const uint64_t[4]){64}, NULL);
    memset(w.data.ptr, (int)('0' + no), w.data.len);
    w.cut = is(c, "third truncated", 2, no) ? 32 : 0;
    snprintf(name, sizeof(name), "m-%05u-of-%05u.gguf", no + 1, 3u);
    ck_assert(gguf_writer_save(&w, in_dir(name)));
    gguf_writer_finish(&w);
}

static void write_splits(const struct split_case *c)
{
    for (unsigned no = 0; no < 3; no++)
        write_split(c, no);
    if (strcmp(c->name, "second missing") == 0)
        ck_assert_int_eq(unlink(in_dir("m-00002-of-00003.gguf")), 0);
    char from[512];
    snprintf(from, sizeof(from), "%s", in_dir("m-00001-of-00003.gguf"));
    unlink(in_dir("m.gguf"));
    if (strcmp(c->name, "other name") == 0)
        ck_assert_int_eq(link(from, in_dir("m.gguf")), 0);
}

START_TEST(splits_are_joined_or_refused)
{
    const struct split_case *c = &split_cases[_i];
    struct plm_host *host = plm_host_create(0);
    struct plm_gguf *g = NULL;
    struct plm_error err = {0};
    const char *name = "m-00001-of-00003.gguf";
    write_splits(c);
    if (strcmp(c->name, "opened second") == 0)
        name = "m-00002-of-00003.gguf";
    if (strcmp(c->name, "other name") == 0)
        name = "m.gguf";
    int status = plm_gguf_open(host, in_dir(name), &g, &err);
    ck_assert_msg(status == c->status, "%s: %d %s", c->name, status, err.msg);
    if (c->says != NULL)
        ck_assert_msg(strstr(err.msg, c->says) != NULL, "%s: %s", c->name, err.msg);
    for (unsigned i = 0; g != NULL && i < 3; i++) {
        unsigned char got[68];
        const char tensor[3] = {'t', (char)('0' + i), '\0'};
        const struct plm_gguf_tensor *t = plm_gguf_tensor_find(g, tensor);
        ck_assert(t != NULL && t->file == i && t->bytes == sizeof(got));
        ck_assert_int_eq(plm_gguf_read(g, t, 0, got, sizeof(got), &err), PLM_OK);
        ck_assert(got[0] == '0' + i && got[67] == '0' + i);
    }
    if (g != NULL)
        ck_assert_uint_eq(plm_gguf_n_tensors(g), 3);
    plm_gguf_close(g);
    ck_assert_int_eq(plm_host_destroy(host), 0);
}
END_TEST

// ---- torture: every allocation fails in turn, once and from then on

START_TEST(every_failed_allocation_is_survived)
{
    struct gguf_writer w;
    gguf_writer_sample(&w);
    ck_assert(gguf_writer_save(&w, in_dir("torture.gguf")));
    write_splits(&split_cases[0]);
    const char *const names[2] = {"torture.gguf", "m-00001-of-00003.gguf"};
    uint64_t n = 1;
    for (int status = -1; status != PLM_OK; n++) {
        struct plm_host *host = plm_host_create(0);
        struct plm_gguf *g = NULL;
        struct plm_error err = {0};
        plm_host_fail_nth(host, n, _i / 2);
        status = plm_gguf_open(host, in_dir(names[_i % 2]), &g, &err);
        plm_host_fail_nth(host, 0, 0);
        if (status != PLM_OK) {
            ck_assert_int_eq(status, PLM_ERR_NOMEM_HOST);
            ck_assert(err.status == status && g == NULL);
        }
        plm_gguf_close(g);
        ck_assert_int_eq(plm_host_destroy(host), 0);
    }
    ck_assert_uint_gt(n, 10); // it did fail on the way
    gguf_writer_finish(&w);
}
END_TEST

// ---- real files, where there are any

START_TEST(real_models_open)
{
    const char *folder = getenv("PLIMSOLL_TEST_MODELS");
    DIR *d = opendir(folder);
    ck_assert_msg(d != NULL, "%s cannot be read", folder);
    for (struct dirent *entry; (entry = readdir(d)) != NULL;) {
        size_t len = strlen(entry->d_name);
        char path[1024];
        struct plm_gguf *g = NULL;
        struct plm_error err = {0};
        struct plm_host_stats stats;
        if (len < 5 || strcmp(entry->d_name + len - 5, ".gguf") != 0)
            continue;
        struct plm_host *host = plm_host_create(0);
        snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        ck_assert_msg(plm_gguf_open(host, path, &g, &err) == PLM_OK, "%s", err.msg);
        plm_host_read(host, &stats);
        ck_assert_int_le(stats.peak_bytes, 64 << 20);
        ck_assert(gguf_walk(g, host));
        plm_gguf_close(g);
        ck_assert_int_eq(plm_host_destroy(host), 0);
    }
    closedir(d);
}
END_TEST

static int remove_dir(void)
{
    DIR *d = opendir(dir);
    if (d == NULL)
        return -1;
    for (struct dirent *entry; (entry = readdir(d)) != NULL;) {
        if (entry->d_name[0] != '.')
            unlink(in_dir(entry->d_name));
    }
    closedir(d);
    return rmdir(dir);
}

#define COUNT(array) (int)(sizeof(array) / sizeof((array)[0]))

int main(void)
{
    if (mkdtemp(dir) == NULL)
        return EXIT_FAILURE;
    Suite *suite = suite_create("gguf");
    TCase *tc = tcase_create("gguf");
    tcase_set_timeout(tc, 60);
    tcase_add_loop_test(tc, every_case_from_memory, 0, (int)n_gguf_cases);
    tcase_add_loop_test(tc, every_case_from_a_file, 0, (int)n_gguf_cases);
    tcase_add_test(tc, typed_getters_convert_what_fits_and_refuse_the_rest);
    tcase_add_test(tc, arrays_give_their_elements);
    tcase_add_test(tc, keys_have_a_readable_form);
    tcase_add_test(tc, strings_are_escaped_and_bounded_in_text);
    tcase_add_test(tc, types_have_the_sizes_of_the_format);
    tcase_add_test(tc, tensors_are_found_and_read);
    tcase_add_test(tc, a_header_alone_opens_when_asked);
    tcase_add_test(tc, counts_above_the_caps_are_refused);
    tcase_add_test(tc, a_sparse_file_of_8_gib_costs_nothing);
    tcase_add_test(tc, the_host_budget_holds);
    tcase_add_test(tc, colliding_names_are_refused);
    tcase_add_test(tc, a_million_honest_names_are_accepted);
    tcase_add_test(tc, every_prefix_of_a_good_file_is_refused);
    tcase_add_test(tc, every_flipped_bit_is_survived);
    tcase_add_test(tc, what_is_no_file_is_refused);
    tcase_add_loop_test(tc, a_file_that_changes_during_the_load_is_noticed, 0, COUNT(changes));
    tcase_add_loop_test(tc, splits_are_joined_or_refused, 0, COUNT(split_cases));
    tcase_add_loop_test(tc, every_failed_allocation_is_survived, 0, 4);
    if (getenv("PLIMSOLL_TEST_MODELS") != NULL)
        tcase_add_test(tc, real_models_open);
    suite_add_tcase(suite, tc);
    const int result = suite_run(suite);
    return remove_dir() == 0 ? result : EXIT_FAILURE;
}
