// SPDX-License-Identifier: Apache-2.0
#include "tools/incident.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "tools/files.h"
#include "tools/term.h"

#define FILES_MAX 64 // of one process: a storm of incidents must not fill a disk

bool plm_incident_check(const char *command, const char *folder)
{
    struct stat st;
    if (stat(folder, &st) == 0 && S_ISDIR(st.st_mode) && access(folder, W_OK | X_OK) == 0)
        return true;
    plm_term_say("plimsoll %s: --incident-dir: %s is no folder that can be written to", command,
                 folder);
    return false;
}

// What the name of a file may hold, of a reason such as "refusal streak".
static void plain(char *text)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyz0123456789";
    for (; *text != '\0'; text++) {
        if (strchr(allowed, *text) == NULL)
            *text = '-';
    }
}

void plm_incident_write(void *ctx, const char *reason, const char *world, size_t len)
{
    struct plm_incidents *in = ctx;
    char path[4096], what[40], at[32] = "";
    struct tm tm;
    const time_t now = time(NULL);
    if (in->n >= FILES_MAX)
        return;
    snprintf(what, sizeof(what), "%s", reason);
    plain(what);
    if (gmtime_r(&now, &tm) != NULL)
        strftime(at, sizeof(at), "%Y%m%d-%H%M%S", &tm);
    const int n =
        snprintf(path, sizeof(path), "%s/%s-%02u-%s.world", in->folder, at, ++in->n, what);
    if (n > 0 && (size_t)n < sizeof(path) && plm_file_replace("serve", path, world, len))
        plm_term_say("plimsoll: incident (%s): %s", reason, path);
}
