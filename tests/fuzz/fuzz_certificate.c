// SPDX-License-Identifier: Apache-2.0
// Any bytes as a certificate: as they are, and under a checksum that holds, which is what lets the
// parser behind it be reached. What is accepted must be a plan that adds up and is written again as
// a text that reads the same; the host budget must be where it was.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "core/plan/certificate.h"
#include "tests/fuzz/fuzz.h"

static void demand(bool condition, const char *what)
{
    if (!condition) {
        fprintf(stderr, "broken: %s\n", what);
        abort();
    }
}

static void write_again(struct plm_host *host, const struct plm_cert_key *key,
                        const struct plm_profile *profile)
{
    struct plm_buf buf;
    struct plm_profile back;
    struct plm_error err = {0};
    plm_buf_init(&buf, host, PLM_HOST_OTHER);
    plm_cert_write(&buf, key, profile);
    demand(!buf.failed, "no memory");
    demand(plm_cert_read(host, (struct plm_slice){buf.data, buf.len}, key, &back, &err) == PLM_OK,
           "what was written is not read");
    demand(back.plan.line == profile->plan.line && back.plan.blocks == profile->plan.blocks,
           "another plan is read");
    plm_buf_finish(&buf);
}

static void judge(struct plm_host *host, const char *text, size_t n)
{
    struct plm_cert_key key = {.n = 0};
    struct plm_profile profile;
    struct plm_error err = {0};
    plm_cert_key_text(&key, "build", "b");
    int r = plm_cert_read(host, (struct plm_slice){text, n}, &key, &profile, &err);
    if (r != PLM_OK) {
        demand(err.status == r && err.msg[0] != '\0', "a refusal without a reason");
        return;
    }
    const struct plm_plan *p = &profile.plan;
    demand(p->blocks >= p->in.limits.max_sequences && plm_plan_one_finishes(p), "a pool too small");
    demand(p->line == p->resident + p->kv_bytes && p->kv_bytes >= 0, "the line");
    demand(profile.n_passes <= PLM_PROFILE_PASSES, "passes");
    write_again(host, &key, &profile);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct plm_host *host = plm_host_create(0);
    char *text = malloc(n + 40);
    demand(host != NULL && text != NULL, "no memory");
    memcpy(text, bytes, n);
    judge(host, text, n);
    int more =
        snprintf(text + n, 40, ",\"checksum\":\"%016" PRIx64 "\"}", (uint64_t)XXH3_64bits(text, n));
    judge(host, text, n + (size_t)more);
    free(text);
    demand(plm_host_destroy(host) == 0, "host bytes are missing");
    return 0;
}
