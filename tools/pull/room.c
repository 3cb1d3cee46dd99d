// SPDX-License-Identifier: Apache-2.0
// What a fetch needs of the file system before it begins: a lock, and room.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "tools/pull/fetch.h"
#include "tools/term.h"

#define LOOK_S 0.2 // between looks at a lock that another process holds

// Whether the locked file is still the one of this name: the one who held it may have renamed it.
static bool is_named(int fd, const char *path)
{
    struct stat mine, named;
    return fstat(fd, &mine) == 0 && stat(path, &named) == 0 && mine.st_ino == named.st_ino &&
           mine.st_dev == named.st_dev;
}

int plm_fetch_lock(const char *command, const char *path, const char *name)
{
    bool said = false;
    for (;;) {
        const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
        if (fd < 0) {
            plm_term_say("plimsoll %s: %s: %s", command, path, strerror(errno));
            return -1;
        }
        const bool held = flock(fd, LOCK_EX | LOCK_NB) == 0;
        const int why = errno;
        if (held && is_named(fd, path))
            return fd;
        close(fd);
        if (held)
            continue;
        if (why != EWOULDBLOCK && why != EINTR) {
            plm_term_say("plimsoll %s: %s: no lock: %s", command, path, strerror(why));
            return -1;
        }
        if (!said)
            plm_term_say("plimsoll %s: %s: another process fetches it; waiting", command, name);
        said = true;
        if (!plm_stop_sleep(LOOK_S)) {
            plm_term_say("plimsoll %s: %s: stopped", command, name);
            return -1;
        }
    }
}

bool plm_fetch_has_room(const char *command, const char *folder, int64_t bytes)
{
    struct statvfs fs;
    if (bytes <= 0 || statvfs(folder, &fs) != 0)
        return true; // what can not be asked shows when it is written
    const uint64_t free_bytes = (uint64_t)fs.f_bavail * fs.f_frsize;
    if ((uint64_t)bytes <= free_bytes)
        return true;
    char need[PLM_BYTES_TEXT], have[PLM_BYTES_TEXT];
    plm_bytes_text(need, bytes);
    plm_bytes_text(have, (int64_t)free_bytes);
    plm_term_progress_end();
    plm_term_say("plimsoll %s: %s: no room: %s are needed, %s are free", command, folder, need,
                 have);
    return false;
}
