// SPDX-License-Identifier: Apache-2.0
// What a hub answers about a repository, behind a line with a reference. Whatever is taken is safe
// to stand in a path, and a choice holds every part once.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/fuzz.h"
#include "tools/pull/hub.h"

static void demand(bool condition, const char *what)
{
    if (!condition) {
        fprintf(stderr, "broken: %s\n", what);
        abort();
    }
}

static void judge_choice(const struct plm_hub_listing *listing, const char *quant, const char *file)
{
    struct plm_hub_choice choice;
    char message[300] = "";
    if (!plm_hub_choose(listing, quant, file, &choice, message, sizeof(message))) {
        demand(message[0] != '\0', "no reason");
        return;
    }
    unsigned part, parts = 1;
    demand(choice.n > 0, "an empty choice");
    if (plm_hub_split_of(choice.parts[0]->path, &part, &parts))
        demand(choice.n == parts, "a choice that is not whole");
    for (size_t i = 0; i < choice.n; i++) {
        demand(choice.parts[i] >= listing->files && choice.parts[i] < listing->files + listing->n,
               "a part of something else");
        if (parts > 1)
            demand(plm_hub_split_of(choice.parts[i]->path, &part, &parts) && part == i + 1,
                   "parts out of order");
    }
    plm_hub_choice_finish(&choice);
}

static void judge_listing(const struct plm_hub_listing *listing, const char *quant)
{
    const size_t digits = strlen(listing->commit);
    demand(digits >= 40 && strspn(listing->commit, "0123456789abcdef") == digits, "commit");
    for (size_t i = 0; i < listing->n; i++) {
        const struct plm_hub_file *file = &listing->files[i];
        demand(plm_hub_path_is_safe(file->path), "an unsafe path");
        demand(file->bytes >= -1, "a negative size");
        demand(file->hash[0] == '\0' || plm_hub_is_hash(file->hash), "hash");
        demand(i == 0 || strcmp(listing->files[i - 1].path, file->path) <= 0, "order");
        if (i < 4)
            judge_choice(listing, "", file->path);
    }
    judge_choice(listing, "", NULL);
    judge_choice(listing, quant, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    const char *line = size > 0 ? memchr(text, '\n', size) : NULL;
    struct plm_hub_ref ref = {.quant = ""};
    char name[512] = "", message[300] = "";
    if (line != NULL && (size_t)(line - text) < sizeof(name)) {
        memcpy(name, text, (size_t)(line - text));
        if (plm_hub_ref_parse(name, &ref, message, sizeof(message)))
            demand(plm_hub_repo_is_name(ref.repo) && plm_hub_path_is_safe(ref.repo), "repository");
        else
            demand(message[0] != '\0', "no reason");
    }
    const char *json = line != NULL ? line + 1 : text;
    struct plm_hub_listing listing;
    message[0] = '\0';
    if (plm_hub_listing_read(json, size - (size_t)(json - text), &listing, message,
                             sizeof(message))) {
        judge_listing(&listing, ref.quant);
        plm_hub_listing_finish(&listing);
    } else {
        demand(message[0] != '\0', "no reason");
    }
    return 0;
}
