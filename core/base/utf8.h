// SPDX-License-Identifier: Apache-2.0
// UTF-8, strictly: no surrogates, no overlong forms, nothing above U+10FFFF.
#ifndef PLM_BASE_UTF8_H
#define PLM_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Decodes the character at s (n > 0 bytes are there). Returns its length (1 to 4) and stores the
// code point; returns 0 where no valid character starts.
size_t plm_utf8_decode(const char *s, size_t n, uint32_t *ret_cp);
// Writes cp (a valid scalar value) to out and returns the bytes written, 1 to 4.
size_t plm_utf8_encode(uint32_t cp, char out[4]);
// Offset of the first byte that is not part of a valid character, or n when all is valid.
size_t plm_utf8_valid_prefix(const char *s, size_t n);

#endif
