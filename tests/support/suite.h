// SPDX-License-Identifier: Apache-2.0
// How a program of Check ends.
#ifndef PLM_TESTS_SUITE_H
#define PLM_TESTS_SUITE_H

#include <check.h>
#include <stdlib.h>

// Runs the suite, whose output CK_VERBOSITY sets; returns what main() does.
static inline int suite_run(Suite *suite)
{
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

#endif
