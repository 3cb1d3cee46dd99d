// SPDX-License-Identifier: Apache-2.0
// The Vulkan backend: any GPU with a Vulkan 1.3 driver, and CPU drivers. The loader is opened at
// run time; without one the backend lists no device and reports why.
//
// Its files, from the driver upwards; each has a header of its name:
//   loader.c     libvulkan opened at run time, function tables
//   instance.c   the instance; physical devices, described and checked (what is missing, by name)
//   select.c     which device is meant (its options: backends/shared/card_opts.h)
//   coopmat.c    cooperative matrices: what the driver lists
//   types.c      memory types by role: pure
//   device.c     what all that follow use of an opened device: results, timelines, commands
//   memory.c     buffers with memory of their own
//   readings.c   what is free
//   staging.c    rings for memory that the host does not see
//   slabs.c      slabs; copies into them and out of them
//   kernels.c    from an op's arguments to the kernel that runs it and its grid: pure
//   variants.c   which of several kernels of the same bits an op runs: pure but for the choices
//   split.c      what a dispatch costs, and how a list is cut for a watchdog: pure
//   pipelines.c  the pipelines of a plan, specialised
//   warm.c       warm-up: every kernel is made and run once
//   cache.c      the pipeline cache's file
//   list.c       the open list: appended, recorded, submitted again where it is the same
//   open.c       opens and closes all of it; capabilities
//   backend.c    the table of the contract
#ifndef PLM_VULKAN_H
#define PLM_VULKAN_H

#include "core/backend.h"

extern const struct plm_backend plm_vulkan_backend;

#endif
