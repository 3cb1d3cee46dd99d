// SPDX-License-Identifier: Apache-2.0
// What plans without a device take CUDA and HIP to be (core/plan/dry.c) is what their backends say
// of an open one. test_dry cuda|hip
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "core/backend.h"
#include "core/plan/dry.h"
#include "tests/support/suite.h"

static const struct plm_backend *backend;

START_TEST(a_kind_is_as_its_backend_opens_it)
{
    struct plm_host *host = plm_host_create(0);
    struct plm_device_desc desc;
    struct plm_backend_device *dev;
    struct plm_error err = {0};
    size_t n = 0;
    const void *script = NULL;
    ck_assert_int_eq(backend->enumerate(host, &desc, 1, &n, &err), PLM_OK);
    ck_assert_uint_ge(n, 1);
    ck_assert_int_eq(backend->configure(host, "0", &script, &err), PLM_OK);
    const struct plm_device_opts opts = {
        .host = host, .clock = plm_clock_system(), .max_dispatches = 8, .backend_opts = script};
    ck_assert_msg(backend->open(&opts, &dev, &err) == PLM_OK, "%s", err.msg);
    const struct plm_caps *is = backend->caps(dev);
    struct plm_caps said;
    plm_dry_caps(plm_dry_kind(backend->name), desc.total_bytes, &said);
    ck_assert_int_eq(said.commit, is->commit);
    ck_assert_int_eq(said.unified, is->unified);
    ck_assert_int_eq(said.reports_process_use, is->reports_process_use);
    ck_assert_uint_eq(said.granularity_bytes, is->granularity_bytes);
    ck_assert_uint_eq(said.context_bytes, is->context_bytes);
    ck_assert_uint_eq(said.unavailable_bytes, is->unavailable_bytes);
    ck_assert_uint_eq(said.max_slab_bytes, is->max_slab_bytes);
    ck_assert_uint_eq(said.max_slabs, is->max_slabs);
    ck_assert_uint_eq(said.align_bytes, is->align_bytes);
    ck_assert_uint_eq(said.prefers, is->prefers);
    ck_assert_uint_eq(said.few_rows, is->few_rows);
    ck_assert_uint_eq(said.kv_types, is->kv_types);
    backend->close(dev);
    backend->release(host, script);
    plm_host_destroy(host);
}
END_TEST

int main(int argc, char **argv)
{
    for (size_t i = 0; argc == 2 && plm_backends[i] != NULL; i++)
        if (strcmp(plm_backends[i]->name, argv[1]) == 0)
            backend = plm_backends[i];
    if (backend == NULL)
        return EXIT_FAILURE;
    Suite *s = suite_create("dry");
    TCase *tc = tcase_create("caps");
    tcase_add_test(tc, a_kind_is_as_its_backend_opens_it);
    suite_add_tcase(s, tc);
    return suite_run(s);
}
