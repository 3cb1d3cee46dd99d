// SPDX-License-Identifier: Apache-2.0
#include "core/base/log.h"
#include "core/base/text.h"

#include <stdarg.h>
#include <stdio.h>

void plm_logf(const struct plm_log *log, int level, const char *fmt, ...)
{
    if (log == NULL || log->write == NULL || level > log->level)
        return;
    char line[1024]; // longer lines are cut: a log line is for people
    va_list ap;
    va_start(ap, fmt);
    plm_vsnprintf(line, sizeof(line), fmt, ap);
    va_end(ap);
    log->write(log->ctx, level, line);
}
