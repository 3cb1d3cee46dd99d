// SPDX-License-Identifier: Apache-2.0
// A script in the place of the device: it says how much memory there is, and when work ends.
#include "fake.h"

static const struct null_script *script;

const struct null_script *fake_script(void)
{
    return script;
}

int fake_script_result(enum null_result result)
{
    switch (result) {
    case NULL_OK: return FAKE_OK;
    case NULL_LOST: return FAKE_ILLEGAL_ADDRESS;
    case NULL_NOT_YET: return FAKE_NOT_READY;
    default: return FAKE_OOM;
    }
}

int fake_script_lost(struct fake_ctx *ctx, enum null_result result)
{
    const struct fault fault = {.result = fake_script_result(result)};
    if (fault.result == FAKE_ILLEGAL_ADDRESS)
        fake_lose(ctx, &fault);
    return fault.result;
}

void plm_fake_gpu_null(const struct null_script *to)
{
    fake_lock();
    for (void *ctx; (ctx = fake_object_next(NULL, FAKE_CTX, NULL)) != NULL;)
        fake_ctx_destroy(ctx);
    fake_front.forget();
    script = to;
    fake_unlock();
}
