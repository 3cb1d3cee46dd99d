// SPDX-License-Identifier: Apache-2.0
// How many connections a server takes, and what they are in the memory plan.
#ifndef PLM_SERVE_CONNECTIONS_H
#define PLM_SERVE_CONNECTIONS_H

#include <stdint.h>

#include "core/plimsoll.h"

#define PLM_CONNECTIONS_MAX 16384 // a server of more is limited by other things first

// The maximum where none is asked for. Connections take half as much as the requests on them at
// most: as much of the host budget as is sure on every machine, or of the one that is asked for.
unsigned plm_connections_by_budget(uint64_t host_limit_bytes);
// Leaves the bytes of n connections, and of those for probes, out of what the plan gives away.
void plm_connections_plan(plim_engine_opts *opts, unsigned n);

#endif
