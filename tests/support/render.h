// SPDX-License-Identifier: Apache-2.0
// What the tests of templates and those of chats share: a host, one render and its error. A program
// includes it once.
#ifndef PLM_TESTS_RENDER_H
#define PLM_TESTS_RENDER_H

#include <check.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/template/template.h"

static struct plm_host *host;
static struct plm_render render;
static struct plm_error err;

static void set_up(void)
{
    host = plm_host_create(0);
    render = (struct plm_render){0};
    err = (struct plm_error){0};
}

static void tear_down(void)
{
    plm_render_finish(&render);
    ck_assert_int_eq(plm_host_destroy(host), 0);
}

static int load(const char *source, struct plm_template **ret)
{
    return plm_template_create(host, (struct plm_slice){source, strlen(source)}, ret, &err);
}

// Whether the byte at `at` of the render is the template's own.
static bool trusted_at(size_t at)
{
    for (size_t i = 0; i < render.n_spans; i++)
        if (at >= render.spans[i].begin && at < render.spans[i].end)
            return render.spans[i].trusted;
    ck_abort_msg("byte %zu is in no span", at);
    return true;
}

#endif
