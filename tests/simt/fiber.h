// SPDX-License-Identifier: Apache-2.0
// Stacks and the switch between them.
#ifndef PLM_TESTS_SIMT_FIBER_H
#define PLM_TESTS_SIMT_FIBER_H

#include <stddef.h>

// A fiber at rest, or the stack that the launch itself runs on.
struct simt_fiber {
    void *sp;
    void *stack; // its lowest byte; the sanitizer tells for the launch's own
    size_t bytes;
    void *fake; // of the address sanitizer
};

// Gives a fiber its stack, with a guard page below. False: no memory.
bool simt_fiber_init(struct simt_fiber *f);
// Forgets what a fiber that was given up midway had on its stack.
void simt_fiber_clean(struct simt_fiber *f);
// The next switch to it begins `entry`, which never returns.
void simt_fiber_begin(struct simt_fiber *f, void (*entry)(void));
// What `entry` calls first: tells the sanitizer that the switch from `from` is done.
void simt_fiber_arrived(struct simt_fiber *from);
// Leaves `from`, which goes on when somebody switches to it. ended: it never will.
void simt_fiber_switch(struct simt_fiber *from, struct simt_fiber *to, bool ended);

#endif
