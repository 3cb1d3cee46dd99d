// SPDX-License-Identifier: Apache-2.0
// A folder in which commands keep what a start proved and tuned, so that the next one under the
// same key is fast (plim_engine_opts.certificate and .tuning). The engine judges what is in a file;
// here it is only found by name and read within bounds. Files that no start took for 90 days go,
// and the oldest beyond 128. Without a folder, or where it can not be written, every start proves
// its plan anew.
#ifndef PLM_TOOLS_PLAN_CACHE_H
#define PLM_TOOLS_PLAN_CACHE_H

#include "tools/opts.h"

#define PLM_PLAN_CACHE_KINDS 2 // certificate and tuning results

struct plm_plan_cache {
    const char *dir; // --plan-cache; NULL: plimsoll/plans under the user's cache folder
    bool off;        // --no-plan-cache
    // Of each kind of file: its path and what was in it, or NULL.
    struct {
        char *path;
        char *text;
        size_t len;
    } files[PLM_PLAN_CACHE_KINDS];
};

// The group for plm_opt_command.groups.
struct plm_opt_group plm_plan_cache_group(struct plm_plan_cache *cache);
// Before the start: reads what is there for these options and hands it to them; it stays the
// cache's until plm_plan_cache_finish().
void plm_plan_cache_load(struct plm_plan_cache *cache, plim_engine_opts *opts);
// After it: writes what the engine says now, where that is not what was read. command is for
// messages, which go to stderr.
void plm_plan_cache_store(const struct plm_plan_cache *cache, const plim_engine *engine,
                          const char *command);
void plm_plan_cache_finish(struct plm_plan_cache *cache);

#endif
