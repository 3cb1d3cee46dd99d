// SPDX-License-Identifier: Apache-2.0
// The listening socket and the descriptors behind it.
#ifndef PLM_SERVE_LISTEN_H
#define PLM_SERVE_LISTEN_H

#include <stddef.h>

// Listens on host (an address, a name, or a path that ends in ".sock") and port (0: any free one).
// Returns a non-blocking descriptor and writes what to connect to ("http://127.0.0.1:8080") to
// url, or returns -1 with one sentence in message.
int plm_listen(const char *host, unsigned port, char *url, size_t url_cap, char *message,
               size_t message_cap);

// Raises the limit of open descriptors as far as it goes and returns how many connections fit
// beside what is open now and `reserve` more; at least 1.
unsigned plm_connections_that_fit(unsigned reserve);

#endif
