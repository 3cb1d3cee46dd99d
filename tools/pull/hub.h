// SPDX-License-Identifier: Apache-2.0
// What a model is called on a hub (huggingface.co, or a server of the same API), what its files are
// and which of them is meant. Every text here comes from a command line, a server or a folder that
// other programs write, so each is checked before it becomes part of a path or an address. Nothing
// here reads a file or a socket.
#ifndef PLM_TOOLS_PULL_HUB_H
#define PLM_TOOLS_PULL_HUB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PLM_HUB_NAME_MAX     96  // of a user's or repository's name: the hub's own limit
#define PLM_HUB_REVISION_MAX 128 // a branch, a tag or a commit
#define PLM_HUB_QUANT_MAX    32
#define PLM_HUB_PATH_MAX     512
#define PLM_HUB_HASH_DIGITS  64 // of a SHA-256 in hexadecimal
// Files of one repository. Those with every quantisation of a large model in parts have hundreds.
#define PLM_HUB_FILES_MAX 8192
// The text that lists them: some 300 bytes for each file, and a model card's keys.
#define PLM_HUB_LISTING_MAX_BYTES (4 * 1024 * 1024)

// "user/repo:quant", taken apart.
struct plm_hub_ref {
    char repo[2 * PLM_HUB_NAME_MAX + 2]; // "user/repo"
    char revision[PLM_HUB_REVISION_MAX + 1];
    char quant[PLM_HUB_QUANT_MAX + 1]; // "": none was named
};

// Takes [hf:]user/repo[:quant]; the revision becomes "main". False: what is wrong is in message.
bool plm_hub_ref_parse(const char *text, struct plm_hub_ref *ret, char *message, size_t cap);
// "user/repo", of letters, digits, '.', '_' and '-', as the hub has them.
bool plm_hub_repo_is_name(const char *text);
// A branch, a tag or a commit that can stand in a path and an address.
bool plm_hub_revision_is_name(const char *text);
// A relative path that stays below its folder: printable ASCII without '\', no empty part, none
// that is "." or "..".
bool plm_hub_path_is_safe(const char *path);
// The digits of a SHA-256, in small letters.
bool plm_hub_is_hash(const char *text);

struct plm_hub_file {
    char *path;                         // within the repository
    int64_t bytes;                      // -1: not said
    char hash[PLM_HUB_HASH_DIGITS + 1]; // SHA-256; "": not said
};

// The GGUF files of a repository at one commit, in the order of their paths.
struct plm_hub_listing {
    char commit[PLM_HUB_HASH_DIGITS + 1];
    struct plm_hub_file *files;
    size_t n;
};

// Reads the hub's answer about a repository. Files that are no GGUF, or whose paths are not safe,
// are left out. False: what is wrong is in message.
bool plm_hub_listing_read(const char *json, size_t len, struct plm_hub_listing *ret, char *message,
                          size_t cap);
// For listings that are made file by file; the path is copied. False: out of memory, or too many.
bool plm_hub_listing_add(struct plm_hub_listing *listing, const char *path, int64_t bytes,
                         const char *hash);
void plm_hub_listing_sort(struct plm_hub_listing *listing);
void plm_hub_listing_finish(struct plm_hub_listing *listing);

// One model of a listing: a file, or all parts of a split one, in order. Points into the listing.
struct plm_hub_choice {
    const struct plm_hub_file **parts;
    size_t n;
    bool preferred; // nothing was named, and it is of the kind that comes first
};

// Which quantisation is taken where none is named, in one line for people.
#define PLM_HUB_RULE "Q4_K_M, else Q8_0, else the first by name"

// The file that `file` names; else one whose name has `quant` between characters that are no part
// of such a name; else, with neither, what PLM_HUB_RULE says. Projectors of images and
// importance matrices are no models. False: what is wrong, and what there is, is in message.
bool plm_hub_choose(const struct plm_hub_listing *listing, const char *quant, const char *file,
                    struct plm_hub_choice *ret, char *message, size_t cap);
void plm_hub_choice_finish(struct plm_hub_choice *choice);
// Whether a file's name says this quantisation, in capitals or not.
bool plm_hub_has_quant(const char *path, const char *quant);

// NAME-00002-of-00005.gguf: its part and how many there are; false: another name.
bool plm_hub_split_of(const char *path, unsigned *ret_part, unsigned *ret_parts);
// The path of another part of the same split. out has room for PLM_HUB_PATH_MAX + 1 bytes.
void plm_hub_split_name(const char *path, unsigned part, char *out);

#endif
