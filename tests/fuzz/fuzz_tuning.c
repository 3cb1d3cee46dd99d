// SPDX-License-Identifier: Apache-2.0
// Any bytes as the results of an earlier autotune: what is accepted is within its bounds, and
// written it reads to the same.
#include <stdlib.h>
#include <string.h>

#include "core/plan/tuning.h"
#include "tests/fuzz/fuzz.h"

static struct plm_tuning first, second;

static bool is_sound(const char *text, size_t cap)
{
    const char *end = memchr(text, '\0', cap);
    return end != NULL && end > text;
}

static void check(const struct plm_tuning *t)
{
    if (t->n > PLM_TUNING_ENTRIES_MAX || !is_sound(t->key.build, sizeof(t->key.build)) ||
        !is_sound(t->key.device_uuid, sizeof(t->key.device_uuid)) ||
        !is_sound(t->key.isa, sizeof(t->key.isa)))
        abort();
    for (uint32_t i = 0; i < t->n; i++) {
        if (!is_sound(t->entries[i].name, sizeof(t->entries[i].name)) ||
            !is_sound(t->entries[i].variant, sizeof(t->entries[i].variant)) ||
            plm_tuning_find(t, t->entries[i].name) == NULL)
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct plm_error err = {0};
    struct plm_buf text;
    if (plm_tuning_read((const char *)bytes, n, &first, &err) != PLM_OK) {
        if (err.msg[0] == '\0')
            abort(); // refused without a word
        return 0;
    }
    check(&first);
    struct plm_host *host = plm_host_create(0);
    plm_buf_init(&text, host, PLM_HOST_OTHER);
    plm_tuning_write(&first, &text);
    if (plm_tuning_read(text.data, text.len, &second, NULL) != PLM_OK || second.n != first.n ||
        plm_tuning_differs(&first.key, &second.key) != NULL)
        abort();
    for (uint32_t i = 0; i < first.n; i++) {
        if (strcmp(first.entries[i].name, second.entries[i].name) != 0 ||
            strcmp(first.entries[i].variant, second.entries[i].variant) != 0)
            abort();
    }
    plm_buf_finish(&text);
    plm_host_destroy(host);
    return 0;
}
