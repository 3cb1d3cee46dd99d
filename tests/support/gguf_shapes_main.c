// SPDX-License-Identifier: Apache-2.0
// Writes the header of a model of a real shape, to plan from: build/tests/gguf_shapes
// llama-3.1-8b q4_k_m FILE. With "weights" behind it a whole model, to measure speed with.
#include <stdio.h>
#include <string.h>

#include "tests/support/gguf_shapes.h"

static int usage(void)
{
    fprintf(stderr, "usage: gguf_shapes SHAPE MIX FILE [weights]\nshapes:");
    for (size_t i = 0; i < gguf_n_shapes; i++)
        fprintf(stderr, " %s", gguf_shapes[i].name);
    fprintf(stderr, "\nmixes:");
    for (int i = 0; i < GGUF_MIXES; i++)
        fprintf(stderr, " %s", gguf_mix_names[i]);
    fprintf(stderr, "\n");
    return 2;
}

int main(int argc, char **argv)
{
    const bool weights = argc == 5 && strcmp(argv[4], "weights") == 0;
    if (argc != 4 && !weights)
        return usage();
    for (size_t i = 0; i < gguf_n_shapes; i++) {
        for (int m = 0; m < GGUF_MIXES; m++) {
            if (strcmp(argv[1], gguf_shapes[i].name) != 0 ||
                strcmp(argv[2], gguf_mix_names[m]) != 0)
                continue;
            if (weights ? gguf_shape_save_weights(&gguf_shapes[i], (enum gguf_mix)m, argv[3])
                        : gguf_shape_save(&gguf_shapes[i], (enum gguf_mix)m, argv[3]))
                return 0;
            perror(argv[3]);
            return 1;
        }
    }
    return usage();
}
