// SPDX-License-Identifier: Apache-2.0
// What a server's answer says before its body: the few header fields that matter to a fetch, out of
// lines that may hold anything.
#ifndef PLM_TOOLS_PULL_HEAD_H
#define PLM_TOOLS_PULL_HEAD_H

#include <stddef.h>
#include <stdint.h>

#include "tools/pull/hub.h"

struct plm_head {
    long status;           // who reads the lines sets it, and the next
    int64_t bytes;         // of the body that follows; -1: not said
    int64_t from, total;   // of a 206, by its Content-Range; -1: not said
    int64_t retry_after_s; // -1: not said
    // What says that the content is the same as before, for If-Range: a strong ETag or a date.
    char validator[160];
    // By the hub, before it sends elsewhere: what the file really is.
    char linked_hash[PLM_HUB_HASH_DIGITS + 1];
    int64_t linked_bytes; // -1: not said
    char reason[200];     // what the server says went wrong; printable; "" where it does not
    int heads;            // that were begun: one more than there were redirects
};

void plm_head_init(struct plm_head *head);
// Takes one line, with or without its end. A status line begins the next head.
void plm_head_line(struct plm_head *head, const char *line, size_t len);
// Foreign text for a message or a header that is kept: what is not printable becomes '?'.
void plm_copy_printable(char *out, size_t cap, const char *text, size_t len);

#endif
