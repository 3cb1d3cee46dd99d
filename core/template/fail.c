// SPDX-License-Identifier: Apache-2.0
// How a render fails, where the first failure counts and names the line, and how it counts its
// work, which may end it.
#include <stdarg.h>
#include <string.h>

#include "core/base/text.h"
#include "core/base/utf8.h"
#include "core/base/work.h"
#include "core/template/run.h"

#define STEPS_PER_TELLING 1024 // a render's own count is the cheap one

bool plm_tpl_fail(struct plm_trun *r, const char *fmt, ...)
{
    char what[300];
    if (r->status != PLM_OK)
        return false;
    va_list ap;
    va_start(ap, fmt);
    plm_vsnprintf(what, sizeof(what), fmt, ap);
    va_end(ap);
    // Text of the conversation may have been cut in the middle of a character.
    what[plm_utf8_valid_prefix(what, strlen(what))] = '\0';
    r->status =
        plm_fail(r->err, PLM_ERR_INVALID, "chat template, line %u: %s", (unsigned)r->line, what);
    return false;
}

bool plm_tpl_fail_as(struct plm_trun *r, const char *msg)
{
    if (r->status == PLM_OK)
        r->status = plm_fail(r->err, PLM_ERR_INVALID, "%s", msg);
    return false;
}

bool plm_tpl_fail_memory(struct plm_trun *r)
{
    if (r->status == PLM_OK && !r->arena.over_limit)
        r->status = plm_fail(r->err, PLM_ERR_NOMEM_HOST, "no host memory to render the template");
    return plm_tpl_fail_limit(r, "memory bytes");
}

bool plm_tpl_fail_limit(struct plm_trun *r, const char *what)
{
    if (r->status == PLM_OK)
        r->status = plm_fail(r->err, PLM_ERR_LIMIT, "chat template, line %u: limit of %s reached",
                             (unsigned)r->line, what);
    return false;
}

bool plm_tpl_step(struct plm_trun *r, uint64_t n)
{
    r->steps += n;
    if (r->steps > r->limits.steps)
        return plm_tpl_fail_limit(r, "steps");
    return r->steps - r->told_steps < STEPS_PER_TELLING || plm_tpl_tell_steps(r);
}

bool plm_tpl_tell_steps(struct plm_trun *r)
{
    const int status = plm_work_step(r->steps - r->told_steps);
    r->told_steps = r->steps;
    if (status == PLM_ERR_LIMIT)
        return plm_tpl_fail_limit(r, "steps of one request");
    if (status != PLM_OK && r->status == PLM_OK)
        r->status = plm_fail(r->err, status, "the caller cancelled");
    return status == PLM_OK;
}

bool plm_tpl_work(struct plm_trun *r, size_t bytes)
{
    return plm_tpl_step(r, bytes / PLM_WORK_BYTES_PER_STEP);
}

bool plm_tpl_enter(struct plm_trun *r)
{
    if (++r->depth > r->limits.depth)
        return plm_tpl_fail_limit(r, "depth");
    return plm_tpl_step(r, 1);
}

bool plm_tpl_fail_undef(struct plm_trun *r, const struct plm_tval *v)
{
    if (v->name == NULL)
        return plm_tpl_fail(r, "a value is undefined");
    int n = (int)(v->name->len < 100 ? v->name->len : 100);
    return plm_tpl_fail(r, "'%.*s' is undefined", n, v->name->ptr);
}
