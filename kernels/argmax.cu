// SPDX-License-Identifier: Apache-2.0
// argmax: a block a row, with 32 KiB of it on their way at a time. One processor then reads 128k
// logits in about 7 us (counted, not measured): 0.4 % of a step of an 8B model, and rows of a batch
// lie on processors of their own. More blocks a row would need a counter that somebody zeroes.
#include "kernels/lib/logits.cuh"

PLM_KERNEL(plm_argmax, PLM_LOGITS_THREADS, 1, plm_argmax_args)
{
    PLM_SHARED(plm_best, warps, PLM_LOGITS_THREADS / PLM_WARP);
    plm_release();
    plm_await();
    const plm_logits l = plm_logits_of((const float *)a.x + (uint64_t)blockIdx.x * a.n, a.n);
    const plm_best b = plm_best_of_all(plm_best_own(l), warps);
    plm_best_write((plm_argmax_record *)a.dst + blockIdx.x, b, b.index, a.n);
}
