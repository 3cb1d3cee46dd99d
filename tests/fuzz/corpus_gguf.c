// SPDX-License-Identifier: Apache-2.0
// Writes the good and bad GGUF files of the unit test as a corpus: corpus_gguf FOLDER.
#include <stdio.h>
#include <stdlib.h>

#include "tests/fuzz/corpus.h"
#include "tests/support/gguf_cases.h"

#define MAX_BYTES 65536u // larger cases slow a fuzzer down more than they teach it

int main(int argc, char **argv)
{
    if (argc != 2 || !make_folder(argv[1]))
        return EXIT_FAILURE;
    for (size_t i = 0; i < n_gguf_cases; i++) {
        struct gguf_writer w;
        char path[4096];
        size_t n;
        gguf_writer_init(&w);
        gguf_cases[i].build(&w);
        gguf_writer_bytes(&w, &n);
        snprintf(path, sizeof(path), "%s/%s.gguf", argv[1], gguf_cases[i].name);
        if (n <= MAX_BYTES && !gguf_writer_save(&w, path))
            return EXIT_FAILURE;
        gguf_writer_finish(&w);
    }
    return EXIT_SUCCESS;
}
