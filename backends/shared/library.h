// SPDX-License-Identifier: Apache-2.0
// A driver's library, opened at run time by the first of several names that is there.
#ifndef PLM_SHARED_LIBRARY_H
#define PLM_SHARED_LIBRARY_H

#include <stddef.h>

// The handle of dlopen, which the caller closes, or NULL; names: in their order, ended by NULL.
// *ret_name: the last one that was tried; why: what went wrong with each before it. Drivers leave
// threads and exit handlers behind, so that their code stays where it is when they are closed.
void *plm_library_open(const char *const *names, const char **ret_name, char *why, size_t size);

#endif
