// SPDX-License-Identifier: Apache-2.0
#include "tests/support/gguf_cases.h"

#include <string.h>

#define W struct gguf_writer *w

static const uint64_t ne1[4] = {32};
static const uint64_t big[4] = {1ull << 62, 1, 1, 1};

// ---- the head of the file

static void good_v3(W)
{
    gguf_writer_u32(w, "n", 1);
}

static void good_v2(W)
{
    w->version = 2;
    gguf_writer_tensor(w, "t", PLM_TYPE_Q8_0, 1, ne1, NULL);
}

static void good_nothing(W)
{
    (void)w;
}

static void good_last_not_padded(W)
{
    w->pad_last = false;
    gguf_writer_tensor(w, "a", PLM_TYPE_Q4_0, 1, ne1, NULL);
    gguf_writer_tensor(w, "b", PLM_TYPE_Q4_0, 1, ne1, NULL);
}

static void good_alignment_64(W)
{
    w->alignment = 64;
    gguf_writer_u32(w, "general.alignment", 64);
    gguf_writer_tensor(w, "a", PLM_TYPE_F32, 1, (const uint64_t[4]){3}, NULL);
    gguf_writer_tensor(w, "b", PLM_TYPE_F32, 1, (const uint64_t[4]){3}, NULL);
}

static void empty_file(W)
{
    w->cut = 24;
}

static void cut_magic(W)
{
    w->cut = 21;
}

static void wrong_magic(W)
{
    memcpy(w->magic, "GGML", 4);
}

static void no_version(W)
{
    w->cut = 20;
}

static void version_0(W)
{
    w->version = 0;
}

static void version_1(W)
{
    w->version = 1;
}

static void version_4(W)
{
    w->version = 4;
}

static void big_endian(W)
{
    w->version = 0x03000000;
}

static void cut_tensor_count(W)
{
    w->cut = 15;
}

static void cut_key_count(W)
{
    w->cut = 1;
}

static void tensor_count_2_63(W)
{
    w->n_tensors = 1ull << 63;
}

static void tensor_count_one_too_many(W)
{
    gguf_writer_tensor(w, "t", PLM_TYPE_F32, 1, ne1, NULL);
    w->n_tensors = 2;
}

static void key_count_minus_1(W)
{
    w->n_keys = UINT64_MAX;
}

static void key_count_one_too_many(W)
{
    gguf_writer_u32(w, "n", 1);
    w->n_keys = 2;
}

// One key less than there are: what follows is read as a tensor.
static void key_count_one_too_few(W)
{
    gguf_writer_u32(w, "a", 1);
    gguf_writer_u32(w, "b", 1);
    gguf_writer_tensor(w, "t", PLM_TYPE_F32, 1, ne1, NULL);
    w->n_keys = 1;
}

static void too_many_keys(W)
{
    for (int i = 0; i < 65537; i++)
        gguf_writer_int(w, "k", PLM_GGUF_U8, 0);
}

// ---- keys

static void key_empty(W)
{
    gguf_writer_key(w, PLM_SLICE(""), PLM_GGUF_U32);
    gguf_put_uint(&w->keys, 1, 4);
}

static void key_too_long(W)
{
    static char name[65536];
    memset(name, 'k', sizeof(name));
    gguf_writer_key(w, (struct plm_slice){name, sizeof(name)}, PLM_GGUF_U8);
    gguf_put_uint(&w->keys, 1, 1);
}

static void key_not_utf8(W)
{
    gguf_writer_int(w, "general.\xFFname", PLM_GGUF_U8, 1);
}

static void key_with_nul(W)
{
    gguf_writer_key(w, PLM_SLICE("ge\0ral"), PLM_GGUF_U8);
    gguf_put_uint(&w->keys, 1, 1);
}

static void key_length_2_64(W)
{
    gguf_put_uint(&w->keys, UINT64_MAX, 8);
    gguf_put(&w->keys, "general.name\0\0\0\0", 16);
    w->n_keys = 1;
}

static void key_twice(W)
{
    gguf_writer_u32(w, "general.name", 1);
    gguf_writer_u32(w, "other", 1);
    gguf_writer_str(w, "general.name", "x");
}

static void value_type_13(W)
{
    gguf_writer_key(w, PLM_SLICE("k"), 13);
    gguf_put_uint(&w->keys, 0, 8);
}

static void value_type_max(W)
{
    gguf_writer_key(w, PLM_SLICE("k"), UINT32_MAX);
    gguf_put_uint(&w->keys, 0, 8);
}

static void value_missing(W)
{
    gguf_writer_int(w, "some.key", PLM_GGUF_U64, 1);
    w->cut = 3;
}

static void bool_2(W)
{
    gguf_writer_int(w, "flag", PLM_GGUF_BOOL, 2);
}

static void bool_in_array_2(W)
{
    gguf_writer_array(w, "flags", PLM_GGUF_BOOL, "\1\0\2", 3);
}

static void str_2_63(W)
{
    gguf_writer_key(w, PLM_SLICE("general.name"), PLM_GGUF_STRING);
    gguf_put_uint(&w->keys, 1ull << 63, 8);
}

static void str_one_too_long(W)
{
    gguf_writer_str(w, "general.name", "llama");
    w->cut = 1;
}

// LC#27188: a file of 51 bytes that promises 2^63 elements.
static void array_2_63(W)
{
    gguf_writer_key(w, PLM_SLICE("abc"), PLM_GGUF_ARRAY);
    gguf_put_uint(&w->keys, PLM_GGUF_U8, 4);
    gguf_put_uint(&w->keys, 1ull << 63, 8);
}

// count * 8 wraps to 8.
static void array_size_wraps(W)
{
    gguf_writer_key(w, PLM_SLICE("a"), PLM_GGUF_ARRAY);
    gguf_put_uint(&w->keys, PLM_GGUF_U64, 4);
    gguf_put_uint(&w->keys, (1ull << 61) + 1, 8);
    gguf_put_uint(&w->keys, 0, 8);
}

// GHSA-7rxv-5jhh-j6xx: a count that is 1 when narrowed to 32 bits.
static void array_count_narrows(W)
{
    gguf_writer_key(w, PLM_SLICE("tokenizer.ggml.tokens"), PLM_GGUF_ARRAY);
    gguf_put_uint(&w->keys, PLM_GGUF_STRING, 4);
    gguf_put_uint(&w->keys, (1ull << 32) + 1, 8);
    gguf_put_str(&w->keys, PLM_SLICE("a"));
}

static void array_one_too_long(W)
{
    gguf_writer_array(w, "a", PLM_GGUF_U32, "\1\0\0\0", 1);
    w->cut = 1;
}

static void array_of_strings_cut(W)
{
    gguf_writer_strs(w, "tokenizer.ggml.tokens", (const char *const[]){"one", "two", "three"}, 3);
    w->cut = 3;
}

static void array_of_strings_2_61(W)
{
    gguf_writer_key(w, PLM_SLICE("a"), PLM_GGUF_ARRAY);
    gguf_put_uint(&w->keys, PLM_GGUF_STRING, 4);
    gguf_put_uint(&w->keys, 1ull << 61, 8);
    gguf_put_str(&w->keys, PLM_SLICE("x"));
}

static void array_of_arrays(W)
{
    gguf_writer_key(w, PLM_SLICE("a"), PLM_GGUF_ARRAY);
    gguf_put_uint(&w->keys, PLM_GGUF_ARRAY, 4);
    gguf_put_uint(&w->keys, 1, 8);
    gguf_put_uint(&w->keys, PLM_GGUF_U8, 4);
    gguf_put_uint(&w->keys, 0, 8);
}

static void array_of_type_99(W)
{
    gguf_writer_key(w, PLM_SLICE("a"), PLM_GGUF_ARRAY);
    gguf_put_uint(&w->keys, 99, 4);
    gguf_put_uint(&w->keys, 1, 8);
    gguf_put_uint(&w->keys, 0, 8);
}

static void alignment(W, enum plm_gguf_type type, uint32_t value)
{
    gguf_writer_int(w, "general.alignment", type, value);
    gguf_writer_tensor(w, "t", PLM_TYPE_F32, 1, ne1, NULL);
}

static void alignment_0(W)
{
    alignment(w, PLM_GGUF_U32, 0);
}

static void alignment_4(W)
{
    alignment(w, PLM_GGUF_U32, 4);
}

static void alignment_33(W)
{
    alignment(w, PLM_GGUF_U32, 33);
}

static void alignment_i32(W)
{
    alignment(w, PLM_GGUF_I32, 32);
}

static void alignment_str(W)
{
    gguf_writer_str(w, "general.alignment", "32");
}

// The data was padded for 32 and the key says 64.
static void alignment_inconsistent(W)
{
    gguf_writer_u32(w, "general.alignment", 64);
    gguf_writer_tensor(w, "a", PLM_TYPE_F32, 1, (const uint64_t[4]){3}, NULL);
    gguf_writer_tensor(w, "b", PLM_TYPE_F32, 1, (const uint64_t[4]){3}, NULL);
}

// ---- tensors

static void name_empty(W)
{
    gguf_writer_tensor(w, "", PLM_TYPE_F32, 1, ne1, NULL);
}

static void name_64(W)
{
    gguf_writer_tensor(w, "0123456789012345678901234567890123456789012345678901234567890123",
                       PLM_TYPE_F32, 1, ne1, NULL);
}

static void good_name_63(W)
{
    gguf_writer_tensor(w, "012345678901234567890123456789012345678901234567890123456789012",
                       PLM_TYPE_F32, 1, ne1, NULL);
}

static void name_not_utf8(W)
{
    gguf_writer_tensor(w, "blk.\xC0\x80", PLM_TYPE_F32, 1, ne1, NULL);
}

static void name_with_newline(W)
{
    gguf_writer_tensor(w, "blk\n", PLM_TYPE_F32, 1, ne1, NULL);
}

static void name_twice(W)
{
    gguf_writer_tensor(w, "blk.0.w", PLM_TYPE_F32, 1, ne1, NULL);
    gguf_writer_tensor(w, "blk.1.w", PLM_TYPE_F32, 1, ne1, NULL);
    gguf_writer_tensor(w, "blk.0.w", PLM_TYPE_F32, 1, ne1, NULL);
}

static void info(W, uint32_t n_dims, const uint64_t *ne, uint32_t type, uint64_t offset)
{
    gguf_writer_info(w, PLM_SLICE("blk.0.w"), n_dims, ne, n_dims <= 4 ? n_dims : 4, type, offset);
    gguf_put_uint(&w->data, 0, 8);
}

static void dims_0(W)
{
    info(w, 0, ne1, PLM_TYPE_F32, 0);
    gguf_put_uint(&w->infos, 0, 8); // so that the entry is long enough
}

static void dims_5(W)
{
    info(w, 5, (const uint64_t[4]){1, 1, 1, 1}, PLM_TYPE_F32, 0);
}

static void dims_2_32(W)
{
    info(w, UINT32_MAX, (const uint64_t[4]){1, 1, 1, 1}, PLM_TYPE_F32, 0);
}

// LC#18586, #24263: a dimension of 0 divided by zero elsewhere.
static void dim_of_0(W)
{
    info(w, 2, (const uint64_t[4]){32, 0}, PLM_TYPE_F32, 0);
}

static void first_dim_of_0(W)
{
    info(w, 1, (const uint64_t[4]){0}, PLM_TYPE_Q4_K, 0);
}

static void dim_of_minus_1(W)
{
    info(w, 2, (const uint64_t[4]){32, UINT64_MAX}, PLM_TYPE_F32, 0);
}

// LC#27203: the product of the dimensions wraps to 0.
static void elements_wrap_to_0(W)
{
    info(w, 4, (const uint64_t[4]){1ull << 32, 1ull << 32, 1, 1}, PLM_TYPE_F32, 0);
}

// The product wraps to 32.
static void elements_wrap_to_32(W)
{
    info(w, 3, (const uint64_t[4]){32, (1ull << 59) + 1, 1ull << 62}, PLM_TYPE_F32, 0);
}

// CVE-2026-33298: the elements can be counted and their bytes wrap to 0.
static void bytes_wrap(W)
{
    info(w, 1, big, PLM_TYPE_F32, 0);
}

// CVE-2025-53630, CVE-2026-27940: each size fits and their sum does not.
static void sum_of_sizes_wraps(W)
{
    static const uint64_t ne[4] = {1ull << 60};
    gguf_writer_info(w, PLM_SLICE("a"), 1, ne, 1, PLM_TYPE_F32, 0);
    gguf_writer_info(w, PLM_SLICE("b"), 1, ne, 1, PLM_TYPE_F32, 1ull << 62);
    gguf_writer_info(w, PLM_SLICE("c"), 1, ne, 1, PLM_TYPE_F32, 1ull << 63);
    gguf_put_uint(&w->data, 0, 8);
}

// LC#26318: rounding up to the alignment wraps.
static void padding_wraps(W)
{
    gguf_writer_info(w, PLM_SLICE("a"), 1, (const uint64_t[4]){(1ull << 61) - 1}, 1, PLM_TYPE_F32,
                     0);
    gguf_writer_info(w, PLM_SLICE("b"), 1, (const uint64_t[4]){(1ull << 61) - 1}, 1, PLM_TYPE_F32,
                     (1ull << 63) - 4);
    gguf_put_uint(&w->data, 0, 8);
}

// CVE-2026-7482: a shape that is larger than the bytes.
static void shape_beyond_file(W)
{
    info(w, 2, (const uint64_t[4]){4096, 4096}, PLM_TYPE_F16, 0);
}

static void type_999(W)
{
    info(w, 1, ne1, 999, 0);
}

static void type_nvfp4(W)
{
    info(w, 1, (const uint64_t[4]){64}, 40, 0);
}

static void row_not_of_blocks(W)
{
    info(w, 1, (const uint64_t[4]){255}, PLM_TYPE_Q4_K, 0);
}

// The elements are a multiple of the block and the row is not.
static void row_not_of_blocks_2d(W)
{
    info(w, 2, (const uint64_t[4]){16, 2}, PLM_TYPE_Q8_0, 0);
}

static void offset_of_hole(W)
{
    gguf_writer_tensor(w, "a", PLM_TYPE_F32, 1, ne1, NULL);
    w->next_offset += 32;
    gguf_writer_tensor(w, "b", PLM_TYPE_F32, 1, ne1, NULL);
    gguf_put(&w->data, w->data.ptr, 64);
}

static void offset_of_overlap(W)
{
    gguf_writer_tensor(w, "a", PLM_TYPE_F32, 1, ne1, NULL);
    w->next_offset = 0;
    gguf_writer_tensor(w, "b", PLM_TYPE_F32, 1, ne1, NULL);
}

static void offset_not_aligned(W)
{
    gguf_writer_tensor(w, "a", PLM_TYPE_Q4_0, 1, ne1, NULL);
    w->next_offset = 18;
    gguf_writer_tensor(w, "b", PLM_TYPE_Q4_0, 1, ne1, NULL);
}

static void offset_2_64(W)
{
    info(w, 1, ne1, PLM_TYPE_F32, UINT64_MAX - 31);
}

static void data_cut(W)
{
    gguf_writer_tensor(w, "a", PLM_TYPE_F32, 1, ne1, NULL);
    gguf_writer_tensor(w, "b", PLM_TYPE_F32, 1, ne1, NULL);
    w->cut = 1;
}

static void data_missing(W)
{
    gguf_writer_tensor(w, "a", PLM_TYPE_F32, 1, ne1, NULL);
    w->cut = 128;
}

static void infos_cut(W)
{
    gguf_writer_info(w, PLM_SLICE("blk.0.w"), 1, ne1, 1, PLM_TYPE_F32, 0);
    w->cut = 1;
}

// ---- splits

static void split(W, uint64_t no, uint64_t count)
{
    gguf_writer_int(w, "split.no", PLM_GGUF_U16, no);
    gguf_writer_int(w, "split.count", PLM_GGUF_U16, count);
    gguf_writer_int(w, "split.tensors.count", PLM_GGUF_I32, 0);
}

static void good_split_of_1(W)
{
    split(w, 0, 1);
}

static void split_in_memory(W)
{
    split(w, 0, 2);
}

static void split_no_beyond_count(W)
{
    split(w, 2, 2);
}

static void split_count_too_large(W)
{
    split(w, 0, 65535);
}

static void split_count_negative(W)
{
    gguf_writer_int(w, "split.count", PLM_GGUF_I32, (uint64_t)-1);
}

static void split_count_string(W)
{
    gguf_writer_str(w, "split.count", "2");
}

static void split_without_no(W)
{
    gguf_writer_int(w, "split.count", PLM_GGUF_U16, 2);
}

static void split_without_tensor_count(W)
{
    gguf_writer_int(w, "split.no", PLM_GGUF_U16, 0);
    gguf_writer_int(w, "split.count", PLM_GGUF_U16, 2);
}

#define GOOD(build)              #build, PLM_OK, NULL, build
#define FORMAT(build, says)      #build, PLM_ERR_FORMAT, says, build
#define UNSUPPORTED(build, says) #build, PLM_ERR_UNSUPPORTED, says, build
#define OVER_LIMIT(build, says)  #build, PLM_ERR_LIMIT, says, build

const struct gguf_case gguf_cases[] = {
    {GOOD(gguf_writer_sample)},
    {GOOD(good_v3)},
    {GOOD(good_v2)},
    {GOOD(good_nothing)},
    {GOOD(good_last_not_padded)},
    {GOOD(good_alignment_64)},
    {GOOD(good_name_63)},
    {GOOD(good_split_of_1)},
    {FORMAT(empty_file, "is empty")},
    {FORMAT(cut_magic, "the 3 bytes that are left")},
    {FORMAT(wrong_magic, "not a GGUF file: it starts with 47 47 4d 4c")},
    {FORMAT(no_version, "bytes of the version")},
    {FORMAT(version_0, "version 0")},
    {UNSUPPORTED(version_1, "GGUF version 1; 2 and 3 are read")},
    {UNSUPPORTED(version_4, "GGUF version 4; 2 and 3 are read")},
    {UNSUPPORTED(big_endian, "big-endian")},
    {FORMAT(cut_tensor_count, "bytes of a count")},
    {FORMAT(cut_key_count, "bytes of a count")},
    {FORMAT(tensor_count_2_63, "9223372036854775808 tensors")},
    {FORMAT(tensor_count_one_too_many, "tensor number 1")},
    {FORMAT(key_count_minus_1, "18446744073709551615 keys")},
    {FORMAT(key_count_one_too_many, "is truncated")},
    {FORMAT(key_count_one_too_few, "tensor \"b\" ")},
    {OVER_LIMIT(too_many_keys, "65537 keys; at most 65536")},
    {FORMAT(key_empty, "key number 0 has an empty name (at byte 32)")},
    {FORMAT(key_too_long, "has a name of 65536 bytes")},
    {FORMAT(key_not_utf8, "key \"general.?name\" has a name that is not UTF-8")},
    {FORMAT(key_with_nul, "key \"ge?ral\" has a control character")},
    {FORMAT(key_length_2_64, "18446744073709551615 bytes of its name")},
    {FORMAT(key_twice, "key \"general.name\" occurs twice")},
    {FORMAT(value_type_13, "key \"k\" has the unknown value type 13")},
    {FORMAT(value_type_max, "unknown value type 4294967295")},
    {FORMAT(value_missing, "key \"some.key\" is truncated")},
    {FORMAT(bool_2, "key \"flag\" has a bool of value 2")},
    {FORMAT(bool_in_array_2, "key \"flags\" has a bool of value 2")},
    {FORMAT(str_2_63, "key \"general.name\" is truncated: 9223372036854775808 bytes")},
    {FORMAT(str_one_too_long, "5 bytes of a string cannot lie in the 4 bytes")},
    {FORMAT(array_2_63, "key \"abc\" is truncated: 9223372036854775808 array elements")},
    {FORMAT(array_size_wraps, "2305843009213693953 array elements")},
    {FORMAT(array_count_narrows, "4294967297 strings")},
    {FORMAT(array_one_too_long, "1 array elements cannot lie in the 3 bytes")},
    {FORMAT(array_of_strings_cut, "key \"tokenizer.ggml.tokens\" is truncated: 5 bytes")},
    {FORMAT(array_of_strings_2_61, "2305843009213693952 strings")},
    {UNSUPPORTED(array_of_arrays, "key \"a\" is an array of arrays")},
    {FORMAT(array_of_type_99, "array of the unknown type 99")},
    {FORMAT(alignment_0, "\"general.alignment\" is 0; expected a power of two")},
    {FORMAT(alignment_4, "\"general.alignment\" is 4; expected a power of two from 8")},
    {FORMAT(alignment_33, "\"general.alignment\" is 33; expected a power of two")},
    {FORMAT(alignment_i32, "\"general.alignment\" is of type i32; expected u32")},
    {FORMAT(alignment_str, "\"general.alignment\" is of type string; expected u32")},
    {FORMAT(alignment_inconsistent, "tensor \"b\" has the data offset 32; expected 64")},
    {FORMAT(name_empty, "tensor number 0 has an empty name")},
    {FORMAT(name_64, "has a name of 64 bytes; the format allows 63")},
    {FORMAT(name_not_utf8, "tensor \"blk.??\" has a name that is not UTF-8")},
    {FORMAT(name_with_newline, "tensor \"blk?\" has a control character")},
    {FORMAT(name_twice, "tensor \"blk.0.w\" occurs twice")},
    {FORMAT(dims_0, "tensor \"blk.0.w\" has 0 dimensions")},
    {FORMAT(dims_5, "has 5 dimensions; expected 1 to 4")},
    {FORMAT(dims_2_32, "has 4294967295 dimensions")},
    {FORMAT(dim_of_0, "tensor \"blk.0.w\" has a dimension of 0")},
    {FORMAT(first_dim_of_0, "has a dimension of 0")},
    {FORMAT(dim_of_minus_1, "more than 2^63 elements")},
    {FORMAT(elements_wrap_to_0, "more than 2^63 elements")},
    {FORMAT(elements_wrap_to_32, "more than 2^63 elements")},
    {FORMAT(bytes_wrap, "more than 2^63 bytes")},
    {FORMAT(sum_of_sizes_wraps, "tensor \"b\" makes the data longer than 2^63")},
    {FORMAT(padding_wraps, "tensor \"a\" makes the data longer than 2^63")},
    {FORMAT(shape_beyond_file, "tensor \"blk.0.w\" ends at byte 33554528 of a file of 128 bytes")},
    {UNSUPPORTED(type_999, "tensor \"blk.0.w\" has type id 999, which is unknown")},
    {UNSUPPORTED(type_nvfp4, "tensor \"blk.0.w\" has type NVFP4 (id 40)")},
    {FORMAT(row_not_of_blocks, "rows of 255 elements, not a multiple of the 256 of Q4_K")},
    {FORMAT(row_not_of_blocks_2d, "rows of 16 elements, not a multiple of the 32 of Q8_0")},
    {FORMAT(offset_of_hole, "tensor \"b\" has the data offset 160; expected 128")},
    {FORMAT(offset_of_overlap, "tensor \"b\" has the data offset 0; expected 128")},
    {FORMAT(offset_not_aligned, "tensor \"b\" has the data offset 18; expected 32")},
    {FORMAT(offset_2_64, "has the data offset 18446744073709551584; expected 0")},
    {FORMAT(data_cut, "tensor \"b\" ends at byte 352 of a file of 351 bytes")},
    {FORMAT(data_missing, "tensor \"a\" ends at byte")},
    {FORMAT(infos_cut, "tensor \"blk.0.w\" is truncated")},
    {UNSUPPORTED(split_in_memory, "one of 2 splits, which cannot be read from memory")},
    {FORMAT(split_no_beyond_count, "\"split.no\" is 2 of only 2")},
    {OVER_LIMIT(split_count_too_large, "\"split.count\" is 65535; at most 1024")},
    {FORMAT(split_count_negative, "\"split.count\"")},
    {FORMAT(split_count_string, "key \"split.count\" at byte 47 is of type string")},
    {FORMAT(split_without_no, "\"split.no\" is missing")},
    {FORMAT(split_without_tensor_count, "\"split.tensors.count\" is missing")},
};

const size_t n_gguf_cases = sizeof(gguf_cases) / sizeof(gguf_cases[0]);
