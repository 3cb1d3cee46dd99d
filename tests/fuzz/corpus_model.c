// SPDX-License-Identifier: Apache-2.0
// Writes the headers of the golden models as a corpus: corpus_model FOLDER.
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/gguf/gguf.h"
#include "tests/fuzz/corpus.h"

// Bytes before the first tensor's data; 0: not a model.
static uint64_t header_bytes(const char *path)
{
    struct plm_host *host = plm_host_create(0);
    struct plm_gguf *gguf = NULL;
    struct plm_error err = {0};
    uint64_t least = 0;
    if (plm_gguf_open(host, path, &gguf, &err) == PLM_OK) {
        least = plm_gguf_file_bytes(gguf);
        for (uint64_t i = 0; i < plm_gguf_n_tensors(gguf); i++) {
            const uint64_t offset = plm_gguf_tensor_at(gguf, i)->offset;
            least = offset < least ? offset : least;
        }
    }
    plm_gguf_close(gguf);
    plm_host_destroy(host);
    return least;
}

static bool copy_head(const char *from, const char *to, uint64_t n)
{
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    char *bytes = malloc(n);
    bool ok = in != NULL && out != NULL && bytes != NULL && fread(bytes, 1, n, in) == n &&
              fwrite(bytes, 1, n, out) == n;
    free(bytes);
    if (in != NULL)
        fclose(in);
    if (out != NULL)
        ok = fclose(out) == 0 && ok;
    return ok;
}

int main(int argc, char **argv)
{
    DIR *dir = argc == 2 && make_folder(argv[1]) ? opendir(TEST_MODELS) : NULL;
    if (dir == NULL)
        return EXIT_FAILURE;
    for (const struct dirent *e; (e = readdir(dir)) != NULL;) {
        char from[4096], to[4096];
        const char *end = strstr(e->d_name, ".gguf");
        if (end == NULL || end[5] != '\0')
            continue;
        snprintf(from, sizeof(from), "%s/%s", TEST_MODELS, e->d_name);
        snprintf(to, sizeof(to), "%s/%s", argv[1], e->d_name);
        const uint64_t n = header_bytes(from);
        if (n == 0 || !copy_head(from, to, n))
            return EXIT_FAILURE;
    }
    closedir(dir);
    return EXIT_SUCCESS;
}
