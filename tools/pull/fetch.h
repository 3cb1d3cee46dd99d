// SPDX-License-Identifier: Apache-2.0
// Getting one file, or one text, whatever the line and the server do: a connection that is cut or
// stalls is made anew and goes on where it ended, a server that is busy is asked again, and nothing
// counts as got whose length or SHA-256 is another than was said. What came so far stays in a part
// that a later call goes on from. Messages go to stderr and name the command.
#ifndef PLM_TOOLS_PULL_FETCH_H
#define PLM_TOOLS_PULL_FETCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/pull/client.h"

#define PLM_FETCH_TIMEOUT_S 30 // without a byte, unless told otherwise

enum plm_fetch_result {
    PLM_FETCH_DONE,
    PLM_FETCH_FAILED,      // a message was printed
    PLM_FETCH_UNREACHABLE, // likewise: nobody answered
    PLM_FETCH_STOPPED,     // by a signal; a message was printed
};

struct plm_fetch {
    const char *command;
    struct plm_client *client;
    const char *url;
    const char *name;  // for messages
    const char *token; // or NULL
    double timeout_s;

    // ---- of a file ----
    const char *part; // path of what is there so far; whole and proved when it is DONE
    // Path of a note of what the part is a part of, for files without a known hash; NULL where the
    // hash is known.
    const char *note;
    int64_t bytes;                      // -1: as the server says
    char hash[PLM_HUB_HASH_DIGITS + 1]; // SHA-256; "": as the server says, or not proved
    // For the bar: of all files that belong together, what was got before this one, and in all (0:
    // this file alone).
    int64_t before_bytes, all_bytes;
};

// Nobody else may work on the part meanwhile: plm_fetch_lock().
enum plm_fetch_result plm_fetch_file(struct plm_fetch *fetch);
// A text of at most max_bytes, with a NUL behind it; freed by the caller.
enum plm_fetch_result plm_fetch_text(const struct plm_fetch *fetch, size_t max_bytes, char **ret,
                                     size_t *ret_len);

// Holds a file's lock until it is closed, so that one process at a time fetches what belongs to it.
// Waits for others, and says so. -1: stopped, or a message was printed.
int plm_fetch_lock(const char *command, const char *path, const char *name);
// Whether a folder has room for so much more. False: a message was printed.
bool plm_fetch_has_room(const char *command, const char *folder, int64_t bytes);

#define PLM_BYTES_TEXT 24
// "4.58 GiB", for people.
void plm_bytes_text(char out[PLM_BYTES_TEXT], int64_t bytes);

#endif
