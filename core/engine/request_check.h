// SPDX-License-Identifier: Apache-2.0
// What a caller asks for, field by field (request_check.c).
#ifndef PLM_ENGINE_REQUEST_CHECK_H
#define PLM_ENGINE_REQUEST_CHECK_H

#include "core/plimsoll.h"

// Bytes of a stop string, the longest tail of a text that is held back, and of a bad word.
#define PLM_REQUEST_TEXT_BYTES 1024

// INVALID, naming the field, where options can not be meant.
int plm_request_check(const plim_request_opts *opts, uint32_t n_vocab, plim_error *err);

#endif
