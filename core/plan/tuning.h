// SPDX-License-Identifier: Apache-2.0
// What autotune found, as a text that a later start takes: which variant of each op was the
// fastest. It holds for one device, its driver or instruction set, and one build; the entries name
// the shapes themselves. Foreign bytes when they come back.
#ifndef PLM_PLAN_TUNING_H
#define PLM_PLAN_TUNING_H

#include <stdint.h>

#include "core/backend.h"
#include "core/base/buf.h"
#include "core/base/status.h"

#define PLM_TUNING_ENTRIES_MAX   256 // of one text: models have far fewer
#define PLM_TUNING_VARIANT_BYTES 40

struct plm_tuning_key {
    char build[128];
    char device_uuid[40];
    char isa[32];
};

struct plm_tuning_entry {
    char name[PLM_TUNING_NAME_BYTES];       // what it holds for (plm_device_variants)
    char variant[PLM_TUNING_VARIANT_BYTES]; // plm_device_variant_name
};

struct plm_tuning {
    struct plm_tuning_key key;
    uint32_t n;
    struct plm_tuning_entry entries[PLM_TUNING_ENTRIES_MAX];
};

// PLM_OK and all of *ret; FORMAT, LIMIT or NOMEM_HOST with what is wrong, and *ret is undefined.
int plm_tuning_read(const char *text, size_t len, struct plm_tuning *ret, struct plm_error *err);
// The text that reads to the same.
void plm_tuning_write(const struct plm_tuning *tuning, struct plm_buf *buf);
// The variant that is known for a name; NULL: none.
const char *plm_tuning_find(const struct plm_tuning *tuning, const char *name);
// The field in which two keys differ ("build"); NULL: none.
const char *plm_tuning_differs(const struct plm_tuning_key *a, const struct plm_tuning_key *b);

#endif
