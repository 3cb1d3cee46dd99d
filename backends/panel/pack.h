// SPDX-License-Identifier: Apache-2.0
// Weights in the layout p16, for the entries weight_layout and weight_pack of struct plm_backend,
// whose contracts they keep (core/backend.h).
#ifndef PLM_PANEL_PACK_H
#define PLM_PANEL_PACK_H

#include <stdint.h>

#include "core/backend.h"

int plm_panel_weight_layout(enum plm_type type, uint32_t n_in, uint32_t n_out,
                            struct plm_weight_layout *ret);
void plm_panel_weight_pack(enum plm_type type, uint32_t n_in, uint32_t n_out, uint32_t first,
                           uint32_t rows, const void *src, void *dst);

#endif
