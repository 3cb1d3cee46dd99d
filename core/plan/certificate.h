// SPDX-License-Identifier: Apache-2.0
// A proved plan as text, for a later start under the same key: model, build, device and the options
// that the plan depends on. JSON with the plan's fields by their names, the evidence of the stress,
// and a checksum at its end. Read back it is foreign bytes: bounded, checked field by field, and
// the plan is computed again from its own snapshot.
#ifndef PLM_PLAN_CERTIFICATE_H
#define PLM_PLAN_CERTIFICATE_H

#include "core/base/buf.h"
#include "core/base/status.h"
#include "core/plan/profile.h"

#define PLM_CERT_KEYS_MAX  40
#define PLM_CERT_VALUE_MAX 200
#define PLM_CERT_BYTES_MAX (256u << 10) // a real one has some 6 KiB

struct plm_cert_key {
    uint32_t n;
    struct {
        const char *name; // static text
        char value[PLM_CERT_VALUE_MAX];
    } items[PLM_CERT_KEYS_MAX];
};

// Adds an item; a longer text is cut.
void plm_cert_key_text(struct plm_cert_key *key, const char *name, const char *value);
void plm_cert_key_number(struct plm_cert_key *key, const char *name, int64_t value);

void plm_cert_write(struct plm_buf *buf, const struct plm_cert_key *key,
                    const struct plm_profile *profile);
// PLM_OK; UNSUPPORTED: it is of another key, and err says which item differs; FORMAT, LIMIT: it is
// damaged or no certificate; NOMEM_HOST. *ret is left alone on failure.
int plm_cert_read(struct plm_host *host, struct plm_slice text, const struct plm_cert_key *key,
                  struct plm_profile *ret, struct plm_error *err);

#endif
