// SPDX-License-Identifier: Apache-2.0
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "backends/gpudrv/impl.h"

void plm_gpu_uuid_text(const char bytes[16], char ret[40])
{
    static const char digits[] = "0123456789abcdef";
    bool text = true;
    for (int i = 0; i < 16; i++)
        text = text && bytes[i] != '\0' && strchr("0123456789abcdefABCDEF", bytes[i]) != NULL;
    char *at = ret;
    for (int i = 0; i < 16; i++) {
        if (text) {
            *at++ = bytes[i];
            continue;
        }
        if (i == 4 || i == 6 || i == 8 || i == 10)
            *at++ = '-';
        *at++ = digits[(unsigned char)bytes[i] >> 4];
        *at++ = digits[(unsigned char)bytes[i] & 15];
    }
    *at = '\0';
}

int plm_gpu_cards(const struct plm_gpu_driver *driver, struct plm_gpu_library *lib,
                  struct plm_host *host, struct plm_gpu_card **ret, uint32_t *ret_n,
                  struct plm_error *err)
{
    uint32_t n = 0;
    plm_gpu_r r = driver->count(lib, &n);
    if (r != PLM_GPU_OK)
        return plm_fail(err, PLM_ERR_NOT_FOUND, "%s: the driver lists no cards: %s", driver->name,
                        driver->last_error(lib));
    if (n == 0)
        return plm_fail(err, PLM_ERR_NOT_FOUND, "%s: the driver has no card", driver->name);
    n = n < PLM_GPU_CARDS_MAX ? n : PLM_GPU_CARDS_MAX;
    struct plm_gpu_card *cards = plm_calloc(host, PLM_HOST_DEVICE, n, sizeof(*cards));
    if (cards == NULL)
        return plm_fail(err, PLM_ERR_NOMEM_HOST, "%s: no host memory for a list of cards",
                        driver->name);
    for (uint32_t i = 0; i < n; i++) {
        r = driver->describe(lib, i, &cards[i]);
        if (r == PLM_GPU_OK)
            continue;
        // One card that does not answer must not hide the others.
        snprintf(cards[i].name, sizeof(cards[i].name), "card %" PRIu32, i);
        snprintf(cards[i].missing, sizeof(cards[i].missing), "an answer (%s)",
                 driver->last_error(lib));
    }
    *ret = cards;
    *ret_n = n;
    return PLM_OK;
}

int plm_gpu_enumerate(const struct plm_gpu_driver *driver, struct plm_host *host,
                      struct plm_device_desc *out, size_t cap, size_t *ret_n, struct plm_error *err)
{
    struct plm_gpu_library *lib;
    struct plm_gpu_card *cards;
    char unusable[PLM_ERROR_MSG_BYTES] = "";
    size_t used = 0, usable = 0;
    uint32_t n;
    int rc = driver->load(host, &lib, err);
    if (rc != PLM_OK)
        return rc;
    rc = plm_gpu_cards(driver, lib, host, &cards, &n, err);
    driver->unload(host, lib);
    if (rc != PLM_OK)
        return rc;
    for (uint32_t i = 0; i < n; i++) {
        const struct plm_gpu_card *card = &cards[i];
        if (card->missing[0] != '\0') {
            const int len = used < sizeof(unusable)
                                ? snprintf(unusable + used, sizeof(unusable) - used,
                                           "%s%s cannot be used: it lacks %s", used > 0 ? "; " : "",
                                           card->name, card->missing)
                                : 0;
            used += len > 0 ? (size_t)len : 0;
            continue;
        }
        if (usable < cap) {
            snprintf(out[usable].id, sizeof(out[usable].id), "%s:%" PRIu32, driver->name, i);
            snprintf(out[usable].name, sizeof(out[usable].name), "%s", card->name);
            out[usable].total_bytes = card->total_bytes;
        }
        usable++;
    }
    if (used > 0)
        plm_fail(err, PLM_ERR_UNSUPPORTED, "%s: %s", driver->name, unusable);
    *ret_n = usable;
    plm_free(host, cards);
    return PLM_OK;
}
