// SPDX-License-Identifier: Apache-2.0
// What the files of filters share.
#ifndef PLM_TEMPLATE_FILTERS_H
#define PLM_TEMPLATE_FILTERS_H

#include "core/template/run.h"

// Whether an optional argument was given and is not none.
bool plm_tpl_given(const struct plm_tval *v);
const struct plm_tfunc *plm_tpl_sequence_filter(struct plm_slice name);

#endif
