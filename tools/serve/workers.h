// SPDX-License-Identifier: Apache-2.0
// Threads for what may take long: parsing large bodies, templates, tokenizing. Finished jobs come
// back to the I/O thread through a list and an eventfd.
//
// Jobs run in the order in which they came, but nobody's many or long ones keep the others waiting:
// of several owners, one whose job no thread took last comes first, and one of the threads takes no
// large job, where there are two or more.
#ifndef PLM_SERVE_WORKERS_H
#define PLM_SERVE_WORKERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Bytes of a body from which on its job is large. Tokenizing takes up to 2 us a byte, so that
// others run within a few tenths of a second; a conversation of 10,000 tokens is smaller.
#define PLM_JOB_LARGE_BYTES (64 * 1024)

struct plm_job {
    uint64_t owner; // whose it is: whatever tells clients apart
    bool large;
    void (*run)(struct plm_job *job); // on a worker
    struct plm_job *next;
};

struct plm_workers;

// jobs_max: how many may wait.
// NULL: no memory, no descriptor, or, where *ret_no_thread says so, no thread.
struct plm_workers *plm_workers_create(unsigned threads, size_t jobs_max, bool *ret_no_thread);
// Finishes what is queued and ends the threads; the finished list may still be read before.
void plm_workers_destroy(struct plm_workers *workers);
int plm_workers_fd(const struct plm_workers *workers); // readable: jobs have finished
// False when too many wait.
bool plm_workers_push(struct plm_workers *workers, struct plm_job *job);
// Takes the list of finished jobs, oldest first, and clears the descriptor.
struct plm_job *plm_workers_finished(struct plm_workers *workers);
// Lets all queued jobs finish; none may be pushed after it.
void plm_workers_join(struct plm_workers *workers);

#endif
