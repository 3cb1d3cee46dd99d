// SPDX-License-Identifier: Apache-2.0
// Log lines go to a callback of the embedder; without one they are dropped.
#ifndef PLM_BASE_LOG_H
#define PLM_BASE_LOG_H

enum plm_log_level { PLM_LOG_ERROR, PLM_LOG_WARN, PLM_LOG_INFO, PLM_LOG_DEBUG };

struct plm_log {
    void (*write)(void *ctx, int level, const char *line); // may be NULL; any thread
    void *ctx;
    int level; // lines above it are not formatted
};

void plm_logf(const struct plm_log *log, int level, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#endif
