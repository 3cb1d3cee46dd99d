// SPDX-License-Identifier: Apache-2.0
// The switch saves what a called function must keep, by the calling conventions of System V on
// x86-64 and of AArch64. (swapcontext also saves the signal mask, by a system call each time.)
#include "tests/simt/fiber.h"

#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#define SIMT_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SIMT_ASAN 1
#endif
#endif
#ifdef SIMT_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#define STACK_BYTES (512u << 10) // redzones around every variable
#else
#define STACK_BYTES (128u << 10)
#endif

// Stores the stack pointer to *from and goes on at `to`.
extern "C" void simt_switch(void **from, void *to);

#if defined(__x86_64__)
#define SAVED_WORDS 8 // six registers, the return address, and a word for the alignment
#define ENTRY_WORD  6
asm(R"(
.text
.globl simt_switch
.hidden simt_switch
.type simt_switch, @function
simt_switch:
    push %rbp
    push %rbx
    push %r12
    push %r13
    push %r14
    push %r15
    mov %rsp, (%rdi)
    mov %rsi, %rsp
    pop %r15
    pop %r14
    pop %r13
    pop %r12
    pop %rbx
    pop %rbp
    ret
.size simt_switch, .-simt_switch
)");
#elif defined(__aarch64__)
#define SAVED_WORDS 20 // x19 to x30, d8 to d15
#define ENTRY_WORD  11
asm(R"(
.text
.globl simt_switch
.hidden simt_switch
.type simt_switch, %function
simt_switch:
    sub sp, sp, #160
    stp x19, x20, [sp, #0]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x9, sp
    str x9, [x0]
    mov sp, x1
    ldp x19, x20, [sp, #0]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    add sp, sp, #160
    ret
.size simt_switch, .-simt_switch
)");
#else
#error "the switch of fibers is not written for this processor"
#endif

bool simt_fiber_init(struct simt_fiber *f)
{
    const size_t guard = (size_t)sysconf(_SC_PAGESIZE);
    char *p = (char *)mmap(nullptr, guard + STACK_BYTES, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return false;
    *f = {nullptr, p + guard, STACK_BYTES, nullptr};
    return mprotect(p, guard, PROT_NONE) == 0;
}

void simt_fiber_clean(struct simt_fiber *f)
{
#ifdef SIMT_ASAN
    __asan_unpoison_memory_region(f->stack, f->bytes);
#else
    (void)f;
#endif
}

void simt_fiber_begin(struct simt_fiber *f, void (*entry)(void))
{
    void **sp = (void **)((char *)f->stack + f->bytes) - SAVED_WORDS;
    memset(sp, 0, SAVED_WORDS * sizeof *sp);
    const uintptr_t at = (uintptr_t)entry;
    memcpy(&sp[ENTRY_WORD], &at, sizeof at);
    f->sp = sp;
    f->fake = nullptr;
}

void simt_fiber_arrived(struct simt_fiber *from)
{
#ifdef SIMT_ASAN
    const void *stack;
    __sanitizer_finish_switch_fiber(nullptr, &stack, &from->bytes);
    from->stack = const_cast<void *>(stack);
#else
    (void)from;
#endif
}

void simt_fiber_switch(struct simt_fiber *from, struct simt_fiber *to, bool ended)
{
#ifdef SIMT_ASAN
    __sanitizer_start_switch_fiber(ended ? nullptr : &from->fake, to->stack, to->bytes);
    simt_switch(&from->sp, to->sp);
    __sanitizer_finish_switch_fiber(from->fake, nullptr, nullptr);
#else
    (void)ended;
    simt_switch(&from->sp, to->sp);
#endif
}
