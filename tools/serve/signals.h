// SPDX-License-Identifier: Apache-2.0
// What signals of the system mean for the server. SIGTERM and SIGINT drain. SIGHUP drains where a
// terminal was attached at the start, since it says that the terminal is gone; it stays ignored
// where it was so from the start (nohup); else it is left for reading files again, and only said so
// far. SIGPIPE and SIGXFSZ are ignored: the write that they are about fails, and whoever wrote sees
// why.
#ifndef PLM_SERVE_SIGNALS_H
#define PLM_SERVE_SIGNALS_H

#include <stdbool.h>

// Before any thread exists, so that all inherit it. *ret_hangup_drains: what SIGHUP means. A
// descriptor that signals are read from (signalfd), or -1.
int plm_signals_start(bool *ret_hangup_drains);

#endif
