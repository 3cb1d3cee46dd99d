// SPDX-License-Identifier: Apache-2.0
// Linked into programs that open Vulkan devices. Where leaks are looked for, Mesa's driver for the
// CPU stays loaded to the end: what it keeps in globals counts as leaked once the loader has closed
// it.
#include <dlfcn.h>

#if defined(__has_feature)
#define LOOKS_FOR_LEAKS __has_feature(address_sanitizer)
#elif defined(__SANITIZE_ADDRESS__)
#define LOOKS_FOR_LEAKS 1
#else
#define LOOKS_FOR_LEAKS 0
#endif

#if LOOKS_FOR_LEAKS
__attribute__((constructor)) static void keep_driver(void)
{
    dlopen("libvulkan_lvp.so", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
}
#endif
