// SPDX-License-Identifier: Apache-2.0
// What led to an incident, as the engine tells it, in files of a folder: docs/worlds.md says how to
// replay one.
#ifndef PLM_TOOLS_INCIDENT_H
#define PLM_TOOLS_INCIDENT_H

#include <stdbool.h>
#include <stddef.h>

struct plm_incidents {
    const char *folder;
    unsigned n; // files written
};

// Whether the folder takes files. False: a message was printed.
bool plm_incident_check(const char *command, const char *folder);
// plim_engine_opts.incident; ctx is a struct plm_incidents.
void plm_incident_write(void *ctx, const char *reason, const char *world, size_t len);

#endif
