// SPDX-License-Identifier: Apache-2.0
// NAME.ref.json files: what an independent implementation computed.
#ifndef PLM_TESTS_REFERENCE_H
#define PLM_TESTS_REFERENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ref_tokens {
    int32_t *ids;
    uint32_t n;
};

struct ref_case {
    struct ref_tokens tokens;
    uint32_t first_row; // of the logits
    float *logits;      // tiny models: [tokens.n - first_row][n_vocab]
    // Real models: the best ids after the last token, and a continuation with the distance of the
    // two best logits at each step.
    uint32_t n_top;
    int32_t *top_ids;
    double *top_logprobs;
    struct ref_tokens greedy;
    double *gap;
};

struct reference {
    char name[256]; // file name without .ref.json, and without real-
    bool real;
    double logits_std;
    uint32_t n_cases;
    struct ref_case *cases;
    struct ref_tokens prompt, greedy; // tiny models
};

bool reference_read(const char *dir, const char *file, struct reference *ret, char *error,
                    size_t error_bytes);
void reference_finish(struct reference *ref);
// Looks under $PLIMSOLL_TEST_MODELS for a file of the same name, letters and digits alone compared.
bool reference_find_model(const struct reference *ref, char *path, size_t path_bytes);

#endif
