// SPDX-License-Identifier: Apache-2.0
#include "core/model/types.h"

#include <stddef.h>

#include "core/base/checked.h"
#include "core/base/text.h"

static const struct plm_type_traits traits[] = {
    [PLM_TYPE_F32] = {"F32", 1, 4},         [PLM_TYPE_F16] = {"F16", 1, 2},
    [PLM_TYPE_Q4_0] = {"Q4_0", 32, 18},     [PLM_TYPE_Q4_1] = {"Q4_1", 32, 20},
    [PLM_TYPE_Q5_0] = {"Q5_0", 32, 22},     [PLM_TYPE_Q5_1] = {"Q5_1", 32, 24},
    [PLM_TYPE_Q8_0] = {"Q8_0", 32, 34},     [PLM_TYPE_Q2_K] = {"Q2_K", 256, 84},
    [PLM_TYPE_Q3_K] = {"Q3_K", 256, 110},   [PLM_TYPE_Q4_K] = {"Q4_K", 256, 144},
    [PLM_TYPE_Q5_K] = {"Q5_K", 256, 176},   [PLM_TYPE_Q6_K] = {"Q6_K", 256, 210},
    [PLM_TYPE_IQ4_NL] = {"IQ4_NL", 32, 18}, [PLM_TYPE_I32] = {"I32", 1, 4},
    [PLM_TYPE_BF16] = {"BF16", 1, 2},       [PLM_TYPE_MXFP4] = {"MXFP4", 32, 17},
};

// The ids that real files carry and enum plm_type does not.
static const char *const other_names[] = {
    [4] = "Q4_2",    [5] = "Q4_3",      [9] = "Q8_1",      [15] = "Q8_K",     [16] = "IQ2_XXS",
    [17] = "IQ2_XS", [18] = "IQ3_XXS",  [19] = "IQ1_S",    [21] = "IQ3_S",    [22] = "IQ2_S",
    [23] = "IQ4_XS", [24] = "I8",       [25] = "I16",      [27] = "I64",      [28] = "F64",
    [29] = "IQ1_M",  [31] = "Q4_0_4_4", [32] = "Q4_0_4_8", [33] = "Q4_0_8_8", [34] = "TQ1_0",
    [35] = "TQ2_0",  [40] = "NVFP4",    [41] = "Q1_0",     [42] = "Q2_0",
};

// What there are kernels for; the first N_PLAIN also as vectors.
static const enum plm_type supported[] = {PLM_TYPE_F32,  PLM_TYPE_F16,  PLM_TYPE_BF16,
                                          PLM_TYPE_Q8_0, PLM_TYPE_Q4_0, PLM_TYPE_Q4_1,
                                          PLM_TYPE_Q4_K, PLM_TYPE_Q6_K};
#define N_SUPPORTED (sizeof(supported) / sizeof(supported[0]))
#define N_PLAIN     3

bool plm_type_is_supported(uint32_t id, bool vector)
{
    for (size_t i = 0; i < (vector ? N_PLAIN : N_SUPPORTED); i++) {
        if ((uint32_t)supported[i] == id)
            return true;
    }
    return false;
}

void plm_type_names(bool vector, char ret[PLM_TYPE_NAMES_BYTES])
{
    size_t used = 0;
    ret[0] = '\0';
    for (size_t i = 0; i < (vector ? N_PLAIN : N_SUPPORTED); i++)
        plm_text_list(ret, PLM_TYPE_NAMES_BYTES, &used, traits[supported[i]].name);
}

const struct plm_type_traits *plm_type_traits(uint32_t id)
{
    if (id >= sizeof(traits) / sizeof(traits[0]) || traits[id].name == NULL)
        return NULL;
    return &traits[id];
}

const char *plm_type_name(uint32_t id)
{
    const struct plm_type_traits *known = plm_type_traits(id);
    if (known != NULL)
        return known->name;
    return id < sizeof(other_names) / sizeof(other_names[0]) ? other_names[id] : NULL;
}

bool plm_type_row_bytes(uint32_t id, uint64_t n, uint64_t *ret)
{
    const struct plm_type_traits *type = plm_type_traits(id);
    if (type == NULL || n % type->block_elems != 0)
        return false;
    return plm_mul_u64(n / type->block_elems, type->block_bytes, ret);
}
