// SPDX-License-Identifier: Apache-2.0
#include "core/gguf/types.h"

#include <stddef.h>

#include "core/base/checked.h"
#include "core/base/text.h"

static const struct plm_type_traits traits[] = {
#define PLM_TENSOR_TYPE(NAME, name, id, block, bytes, CODES, VALUES, zero, SCALES, BACKENDS)       \
    [id] = {#NAME, block, bytes},
#include "kernels/types.def"
};

// The ids that real files carry and enum plm_type does not.
static const char *const other_names[] = {
#define PLM_TENSOR_TYPE(NAME, name, id, block, bytes, CODES, VALUES, zero, SCALES, BACKENDS)
#define PLM_NAMED_TYPE(NAME, id) [id] = #NAME,
#include "kernels/types.def"
};

// What there are kernels for, and whether also as vectors.
static const struct {
    enum plm_type type;
    bool vector;
} supported[] = {
#define PLM_TENSOR_TYPE(NAME, name, id, block, bytes, CODES, VALUES, zero, SCALES, BACKENDS)       \
    PLM_WITH_KERNELS_##BACKENDS({PLM_TYPE_##NAME, PLM_CODES_##CODES == PLM_CODES_ELEMENTS}, )
#include "kernels/types.def"
};
#define N_SUPPORTED (sizeof(supported) / sizeof(supported[0]))

bool plm_type_is_supported(uint32_t id, bool vector)
{
    for (size_t i = 0; i < N_SUPPORTED; i++) {
        if ((uint32_t)supported[i].type == id)
            return supported[i].vector || !vector;
    }
    return false;
}

void plm_type_names(bool vector, char ret[PLM_TYPE_NAMES_BYTES])
{
    size_t used = 0;
    ret[0] = '\0';
    for (size_t i = 0; i < N_SUPPORTED; i++) {
        if (supported[i].vector || !vector)
            plm_text_list(ret, PLM_TYPE_NAMES_BYTES, &used, traits[supported[i].type].name);
    }
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
