// SPDX-License-Identifier: Apache-2.0
// Who may call: which pages of the web, and who stands behind a key or a connection. All of it is
// judged by the headers alone, before a body is read or anything is done.
//
// A browser sends requests for whatever page it shows, so a server on one's own machine is in reach
// of every site. Three things tell such a request from one that a person or a program made: its
// Host names another site whose address was changed to ours (DNS rebinding), its Origin or
// Sec-Fetch-Site names another site, or its body has a type that pages may send without asking.
#ifndef PLM_SERVE_ACCESS_H
#define PLM_SERVE_ACCESS_H

#include <stdbool.h>

#include "tools/serve/auth.h"
#include "tools/serve/errors.h"
#include "tools/serve/origin.h"
#include "tools/serve/peers.h"

// Of an endpoint (endpoints.def).
enum plm_role {
    PLM_ROLE_PUBLIC,
    PLM_ROLE_USER,
    PLM_ROLE_ADMIN,
};

// What the flags say.
struct plm_access {
    struct plm_auth auth;
    struct plm_hosts hosts;          // --allowed-hosts, and the name of --host
    struct plm_origins origins;      // --cors-origins
    const struct plm_peers *proxies; // --trusted-proxies, or NULL
};

// What a request says of its caller. Texts are header values or NULL, and live as long as the
// request.
struct plm_caller {
    const struct plm_peer *peer, *local; // the ends of the connection
    const char *host, *origin, *fetch_site, *content_type, *authorization, *x_api_key;
    const char *proto;    // X-Forwarded-Proto
    const char *repeated; // the name of a field that came twice and must not
    bool forwarded;       // a proxy says that it speaks for somebody
    // What plm_access_page() found.
    bool named; // the server is called by a name that only --allowed-hosts knows
    bool page;  // a page of another origin calls, one that --cors-origins names
};

// The headers that let a page read the answer.
struct plm_cors {
    const char *allow_origin; // NULL: none
    bool credentials;
    bool vary; // the answer depends on Origin, which caches must know
};

// Notes one header field. Called for each, in any order.
void plm_caller_field(struct plm_caller *caller, const char *name, const char *value);
// May the page that sent this, if one did, call at all? error->http is 0 or what to answer; *ret is
// set in any case.
void plm_access_page(const struct plm_access *access, struct plm_caller *caller,
                     struct plm_cors *ret, struct plm_api_error *error);
// After that: may this caller use an endpoint of that role? error->http is 0 or what to answer.
void plm_access_role(const struct plm_access *access, const struct plm_caller *caller,
                     enum plm_role role, struct plm_api_error *error);
// Whether the body has the one type that is taken. error->http is 0 or what to answer.
void plm_access_type(const struct plm_caller *caller, struct plm_api_error *error);

#endif
