// SPDX-License-Identifier: Apache-2.0
// The folder in which programs of the Hugging Face world keep what they fetched, so that a model is
// fetched once for all of them:
//
//     models--USER--REPO/blobs/HASH            a file by its content; HASH.incomplete: a part of it
//     models--USER--REPO/snapshots/COMMIT/PATH  a link to its blob
//     models--USER--REPO/refs/REVISION          the commit that a branch or tag stood at
//     .locks/models--USER--REPO/HASH.lock       held by who fetches that blob
//
// Names in it are as foreign as names from a server: what hub.h does not call safe is passed over.
// Messages go to stderr and name the command.
#ifndef PLM_TOOLS_PULL_CACHE_H
#define PLM_TOOLS_PULL_CACHE_H

#include <stdbool.h>
#include <stdint.h>

#include "tools/pull/hub.h"

struct plm_cache {
    const char *command; // for messages
    char *root;
};

// By $HF_HUB_CACHE, $HUGGINGFACE_HUB_CACHE, $HF_HOME/hub, $XDG_CACHE_HOME/huggingface/hub or
// ~/.cache/huggingface/hub. Makes nothing yet.
bool plm_cache_open(struct plm_cache *cache, const char *command);
void plm_cache_finish(struct plm_cache *cache);

// Of $HF_HOME, or where it would be by $XDG_CACHE_HOME or $HOME. Freed by the caller; NULL: no
// memory, or none of them is set.
char *plm_cache_hf_home(void);

// The GGUF files that are whole at a revision's commit; none where the revision is not known.
bool plm_cache_listing(const struct plm_cache *cache, const char *repo, const char *revision,
                       struct plm_hub_listing *ret);
// Paths for a blob that is to be fetched, whose folders are made, and of a file of a snapshot.
// Freed by the caller. NULL: a message was printed.
char *plm_cache_blob_path(const struct plm_cache *cache, const char *repo, const char *hash);
char *plm_cache_lock_path(const struct plm_cache *cache, const char *repo, const char *hash);
char *plm_cache_file_path(const struct plm_cache *cache, const char *repo, const char *commit,
                          const char *path);
// Puts a blob that is there into a snapshot, in place of what was there by that name.
bool plm_cache_link(const struct plm_cache *cache, const char *repo, const char *commit,
                    const char *path, const char *hash);
// Notes the commit that a revision stands at.
bool plm_cache_set_ref(const struct plm_cache *cache, const char *repo, const char *revision,
                       const char *commit);

// One GGUF file of one snapshot, or a part that waits to be completed.
struct plm_cache_entry {
    const char *repo;
    const char *commit; // NULL: a part
    const char *path;   // within the snapshot; of a part the name of its blob
    const char *full;   // the whole path
    const char *hash;   // of the blob, where the name says it; else ""
    int64_t bytes;
};
typedef bool plm_cache_visit(void *ctx, const struct plm_cache_entry *entry); // false ends

// Visits the entries of one repository, or with NULL of all, in no order. False: the visitor ended
// it.
bool plm_cache_walk(const struct plm_cache *cache, const char *repo, plm_cache_visit *visit,
                    void *ctx);
// Removes folders of a repository that hold nothing more.
void plm_cache_prune(const struct plm_cache *cache, const char *repo);

#endif
