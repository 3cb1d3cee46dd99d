// SPDX-License-Identifier: Apache-2.0
// The options of an engine, and how every start begins (opts.c).
#ifndef PLM_ENGINE_OPTS_H
#define PLM_ENGINE_OPTS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/backend.h"
#include "core/base/status.h"
#include "core/engine/env.h"
#include "core/kv/group.h"
#include "core/plimsoll.h"

// Copies a caller's options over the defaults; INVALID names the field.
int plm_opts_read(const plim_engine_opts *opts, plim_engine_opts *ret, plim_error *err);
// Checks limits against each other that only model and device tell, before the load: INVALID names
// both with their values. main: the model's main KV group.
int plm_opts_check(const plim_engine_opts *opts, bool unified, const struct plm_kv_group *main,
                   struct plm_error *err);
// The type that K and V shall have in the cache, and whether a device has kernels for it:
// UNSUPPORTED names it and kv_type. device: its name for messages.
enum plm_type plm_opts_kv_type(const plim_engine_opts *opts);
int plm_opts_check_kv_type(const plim_engine_opts *opts, const struct plm_caps *caps,
                           const char *device, struct plm_error *err);
// How every start begins: reads the options, whose errors name the field, and makes an environment
// with a host of its own, which the caller destroys. ret: the caller's place for the result.
int plm_start_begin(const plim_engine_opts *opts, const void *ret, plim_engine_opts *ret_opts,
                    struct plm_engine_env *ret_env, plim_error *err);

#endif
