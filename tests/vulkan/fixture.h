// SPDX-License-Identifier: Apache-2.0
// An open Vulkan device under rules of the fault layer, for tests in one process. Each test is a
// process of its own (Check forks): what a rule breaks does not reach the next one.
#ifndef PLM_VK_FIXTURE_H
#define PLM_VK_FIXTURE_H

#include <check.h>

#include "core/device.h"
#include "layer_control.h"

#define MIB UINT64_C(1048576)

// A card with its own memory, host memory, and a small window that both see.
#define DISCRETE                                                                                   \
    "heap 0 size=512MiB device-local=1; heap 1 size=512MiB; heap 2 size=64MiB device-local=1;"     \
    "memtype 2 DVC; memtype 0 D; memtype 1 VC; memtype 1 VCK; identity type=discrete;"

extern struct layer_control layer;
extern struct plm_host *host;
extern struct plm_error error; // of the last call below that failed
extern char log_text[16384];   // all lines so far

void fixture_begin(void); // of every test
void fixture_end(void);   // nothing is left: objects, device memory, host memory

void rules(const char *text);
uint64_t count(const char *counter);

// The device of this id ("vulkan", "vulkan:0,cache=FILE") under these rules.
int open_device(const char *id, const char *rules, struct plm_device **ret);
// The same, which must succeed, with its kernels warmed up.
struct plm_device *ready_device(const char *id, const char *rules);
int warm_up(struct plm_device *device);
// Fills a slab on the device, copies it there, and reads it back: PLM_OK where every word is right.
int work(struct plm_device *device);
// Appends the work without submitting it; the slab must live until it has run.
int append_fill(struct plm_device *device, const struct plm_slab *slab, uint32_t value);
// Runs the tests; returns the exit status.
int fixture_main(TCase *cases);

#endif
