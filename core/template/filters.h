// SPDX-License-Identifier: Apache-2.0
// What the files of filters share.
#ifndef PLM_TEMPLATE_FILTERS_H
#define PLM_TEMPLATE_FILTERS_H

#include "core/template/run.h"

const struct plm_tfunc *plm_tpl_sequence_filter(struct plm_slice name);
// What a line is indented by: a string, or a number of spaces.
bool plm_tpl_indent_of(struct plm_trun *r, const struct plm_tval *v, int64_t fallback,
                       struct plm_tstr **ret);

#endif
