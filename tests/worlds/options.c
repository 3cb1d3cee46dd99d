// SPDX-License-Identifier: Apache-2.0
// "engine KEY VALUE" of a world: fields of plim_engine_opts by their names, and the player's own.
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "tests/worlds/play.h"

enum kind { U32, U64, REAL, NEIGHBOURS };

#define FIELD(kind, name)                                                                          \
    {                                                                                              \
#name, kind, offsetof(plim_engine_opts, name)                                              \
    }

static const struct {
    const char *name;
    enum kind kind;
    size_t offset;
} fields[] = {
    FIELD(U32, threads),          FIELD(U32, ctx_size),          FIELD(U32, batch_max_tokens),
    FIELD(U32, max_sequences),    FIELD(U32, prove_full),        FIELD(U64, memory_limit_bytes),
    FIELD(U64, host_limit_bytes), FIELD(U64, max_total_tokens),  FIELD(REAL, memory_fraction),
    FIELD(U32, queue_max),        FIELD(U32, queue_timeout_ms),  FIELD(U64, queue_max_tokens),
    FIELD(U32, prefix_cache),     FIELD(U32, prefill_chunk),     FIELD(NEIGHBOURS, neighbours),
    FIELD(U64, kv_min_bytes),     FIELD(U32, monitor_ms),        FIELD(U32, watchdog_ms),
    FIELD(U32, autotune),         FIELD(U64, host_caller_bytes), FIELD(U32, kv_type),
};

bool number_read(const char *text, double *ret)
{
    static const struct {
        const char *suffix;
        double unit;
    } units[] = {
        {"", 1},   {"B", 1},    {"KiB", 1024}, {"MiB", 1048576}, {"GiB", 1073741824},
        {"ns", 1}, {"us", 1e3}, {"ms", 1e6},   {"s", 1e9},
    };
    char *end;
    const double n = strtod(text, &end);
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]) && end != text; i++) {
        if (strcmp(end, units[i].suffix) == 0) {
            *ret = n * units[i].unit;
            return true;
        }
    }
    return strcmp(text, "yes") == 0 ? (*ret = 1, true) : strcmp(text, "no") == 0 && !(*ret = 0);
}

static bool set_field(plim_engine_opts *o, enum kind kind, size_t offset, const char *text)
{
    static const char *const neighbours[] = {"auto", "hold", "yield"};
    char *at = (char *)o + offset;
    double real = 0;
    for (uint32_t i = 0; kind == NEIGHBOURS && i < 3; i++) {
        if (strcmp(text, neighbours[i]) == 0) {
            memcpy(at, &i, sizeof(i));
            return true;
        }
    }
    if (!number_read(text, &real))
        return false;
    if (kind == REAL) {
        memcpy(at, &real, sizeof(real));
        return true;
    }
    if (!(real >= 0) || real > (kind == U64 ? (double)INT64_MAX / 2 : (double)UINT32_MAX))
        return false;
    const uint64_t n = (uint64_t)real;
    const uint32_t small = (uint32_t)n;
    memcpy(at, kind == U64 ? (const void *)&n : &small, kind == U64 ? sizeof(n) : sizeof(small));
    return true;
}

// Words of the player: what clients do that the engine's options do not say.
static bool set_player(struct run *run, const char *key, const char *value, bool *ret_known)
{
    const bool yes = strcmp(value, "yes") == 0;
    *ret_known = strcmp(key, "player.offers") == 0;
    if (!*ret_known || (!yes && strcmp(value, "no") != 0))
        return false;
    run->offers = yes;
    return true;
}

bool options_read(const struct plm_world *world, struct run *run, char why[256])
{
    plim_engine_opts_init(&run->opts);
    run->offers = true;
    for (uint32_t i = 0; i < world->n_options; i++) {
        const struct plm_world_option *option = &world->options[i];
        bool known = false, good = set_player(run, option->key, option->value, &known);
        for (size_t f = 0; f < sizeof(fields) / sizeof(fields[0]) && !known; f++) {
            known = strcmp(option->key, fields[f].name) == 0;
            good = known && set_field(&run->opts, fields[f].kind, fields[f].offset, option->value);
        }
        if (!good) {
            snprintf(why, 256,
                     known ? "engine %s: \"%s\" is no value for it"
                           : "engine %s: there is no such option (its value: %s)",
                     option->key, option->value);
            return false;
        }
    }
    return true;
}
