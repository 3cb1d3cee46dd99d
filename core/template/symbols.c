// SPDX-License-Identifier: Apache-2.0
// What all of a load needs: how it fails, its memory, and the names that a template uses.
#include <stdarg.h>
#include <string.h>

#include "core/base/text.h"
#include "core/template/ast.h"
#include "core/template/run.h"

bool plm_tload_fail(struct plm_tload *p, int status, uint32_t line, const char *fmt, ...)
{
    char what[300];
    if (p->status != PLM_OK)
        return false;
    va_list ap;
    va_start(ap, fmt);
    plm_vsnprintf(what, sizeof(what), fmt, ap);
    va_end(ap);
    p->status = plm_fail(p->err, status, "chat template, line %u: %s", (unsigned)line, what);
    return false;
}

bool plm_tload_nomem(struct plm_tload *p)
{
    if (p->status == PLM_OK)
        p->status =
            p->tmpl->arena.over_limit
                ? plm_fail(p->err, PLM_ERR_LIMIT, "chat template: too large")
                : plm_fail(p->err, PLM_ERR_NOMEM_HOST, "no host memory to load the chat template");
    return false;
}

void *plm_tload_alloc(struct plm_tload *p, size_t n, size_t size)
{
    void *block = plm_tarena_array(&p->tmpl->arena, n, size);
    if (block == NULL)
        plm_tload_nomem(p);
    return block;
}

static bool grow_syms(struct plm_tload *p)
{
    struct plm_template *t = p->tmpl;
    uint32_t cap = t->cap_syms < 32 ? 32 : t->cap_syms * 2;
    struct plm_slice *syms = plm_tload_alloc(p, cap, sizeof(*syms));
    uint32_t *index = plm_tload_alloc(p, (size_t)cap * 2, sizeof(*index));
    if (syms == NULL || index == NULL)
        return false;
    if (t->n_syms > 0)
        memcpy(syms, t->syms, t->n_syms * sizeof(*syms));
    t->syms = syms;
    t->cap_syms = cap;
    t->sym_index = index;
    t->sym_index_cap = cap * 2;
    for (uint32_t i = 0; i < t->n_syms; i++) {
        uint32_t at = (uint32_t)plm_tstr_hash(syms[i]) & (t->sym_index_cap - 1);
        while (index[at] != 0)
            at = (at + 1) & (t->sym_index_cap - 1);
        index[at] = i + 1;
    }
    return true;
}

bool plm_tload_sym(struct plm_tload *p, struct plm_slice name, uint32_t *ret)
{
    struct plm_template *t = p->tmpl;
    if (t->n_syms == t->cap_syms && !grow_syms(p))
        return false;
    uint32_t at = (uint32_t)plm_tstr_hash(name) & (t->sym_index_cap - 1);
    for (; t->sym_index[at] != 0; at = (at + 1) & (t->sym_index_cap - 1)) {
        uint32_t sym = t->sym_index[at] - 1;
        if (plm_slice_eq(t->syms[sym], name)) {
            *ret = sym;
            return true;
        }
    }
    t->syms[t->n_syms] = name;
    t->sym_index[at] = ++t->n_syms;
    *ret = t->n_syms - 1;
    return true;
}
