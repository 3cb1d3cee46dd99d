// SPDX-License-Identifier: Apache-2.0
#include "tools/man.h"

#include <stdio.h>
#include <string.h>

#include "core/plimsoll.h"
#include "tools/opts.h"

// No date: the page of a version is the same whenever it is built.
static const char begin[] =
    ".SH NAME\n"
    "plimsoll \\- serve and run language models within a memory plan that was measured\n"
    ".SH SYNOPSIS\n"
    ".B plimsoll\n"
    ".I command\n"
    "[\\fIoptions\\fR]\n"
    ".br\n"
    ".B plimsoll help\n"
    "[\\fIcommand\\fR]\n"
    ".br\n"
    ".B plimsoll \\-\\-version\n"
    ".SH DESCRIPTION\n"
    "Plimsoll loads a language model from a GGUF file, runs its real forwards under the heaviest\n"
    "load that it will ever allow, sizes the KV cache by what it measured, and says READY. From\n"
    "then on it takes no more memory: a request that would cross the limit is refused before it\n"
    "runs, with what would be admitted instead.\n"
    ".SH COMMANDS\n";

static const char end[] =
    ".SH EXIT STATUS\n"
    ".TP\n0\nSuccess; for \\fBserve\\fR, a drain after SIGTERM or SIGINT.\n"
    ".TP\n1\nA failure at run time: the model can not be read, memory does not suffice, the\n"
    "output can not be written.\n"
    ".TP\n2\nA wrong command line; nothing was done.\n"
    ".TP\n128 + N\nSignal N came before \\fBserve\\fR was ready, or stopped a download of "
    "\\fBpull\\fR or\n\\fB\\-hf\\fR, which the same command goes on with. 130 (Ctrl\\-C) also: it "
    "stopped the\nanswer of \\fBrun\\fR with one prompt.\n"
    ".SH SIGNALS\n"
    ".TP\nSIGTERM, SIGINT\n\\fBserve\\fR drains: what runs gets \\fB\\-\\-shutdown\\-timeout\\fR. "
    "The second\nends each stream with an error, the third ends at once.\n"
    ".TP\nSIGHUP\n\\fBserve\\fR drains where a terminal was attached at the start, ignores it "
    "where it was\nignored then (\\fBnohup\\fR), and else says that there is nothing to read "
    "again. It ends\nthe other commands.\n"
    ".TP\nSIGPIPE\n\\fBserve\\fR ignores it; it ends the other commands, as it does in any "
    "pipeline.\n"
    ".TP\nSIGXFSZ\nIgnored: a write beyond a limit of file size fails and is said.\n"
    ".SH ENVIRONMENT\n"
    "Of \\fBpull\\fR, \\fBlist\\fR, \\fBrm\\fR and \\fB\\-hf\\fR, as programs of the Hugging Face "
    "world have "
    "them:\n"
    ".TP\nHF_HUB_CACHE, HF_HOME, XDG_CACHE_HOME\nThe cache of models: the first, or hub in the "
    "second, or huggingface/hub in the\nthird; else ~/.cache/huggingface/hub.\n"
    ".TP\nHF_ENDPOINT\nThe hub (https://huggingface.co).\n"
    ".TP\nHF_TOKEN, HUGGING_FACE_HUB_TOKEN, HF_TOKEN_PATH\nA token for what is not public (the "
    "first of\nthe two that is set), or the file that holds one (token in HF_HOME). It goes to\n"
    "the hub alone, and is never printed.\n"
    ".TP\nHF_HUB_OFFLINE\n1: the hub is not asked; what the cache has will do.\n"
    ".TP\nhttp_proxy, https_proxy, all_proxy, no_proxy\nProxies.\n"
    ".TP\nSSL_CERT_FILE, REQUESTS_CA_BUNDLE, CURL_CA_BUNDLE\nCertificates to trust instead of the "
    "system's.\n"
    ".PP\n\\fBrun\\fR keeps its history under XDG_STATE_HOME, proved plans lie under "
    "XDG_CACHE_HOME.\n"
    ".SH EXAMPLES\n"
    ".nf\n"
    "plimsoll serve \\-m model.gguf \\-\\-port 8080\n"
    "plimsoll pull USER/REPO:Q4_K_M\n"
    "plimsoll serve \\-hf USER/REPO:Q4_K_M\n"
    "plimsoll devices\n"
    "plimsoll serve \\-m model.gguf \\-\\-device vulkan:0,cache=plimsoll.vk\n"
    "plimsoll run \\-m model.gguf \\-sys \"Answer briefly.\"\n"
    "plimsoll run \\-m model.gguf \\-p \"Name three rivers.\" \\-\\-temp 0\n"
    "plimsoll plan \\-m model.gguf \\-\\-memory\\-limit 2GiB \\-np 4\n"
    "plimsoll bench \\-m model.gguf \\-\\-json\n"
    "plimsoll serve \\-m model.gguf \\-\\-device cuda:0\n"
    "plimsoll bench \\-\\-explain \\-m model.gguf \\-\\-device cuda \\-c 8192\n"
    ".fi\n";

#ifdef PLM_SERVER
static const struct {
    const char *method, *path, *role;
} endpoints[] = {
#define PLM_ENDPOINT(method, path, role, flags, handler) {#method, path, #role},
#include "tools/serve/endpoints.def"
#undef PLM_ENDPOINT
};

static const struct {
    const char *role, *who;
} roles[] = {
    {"PUBLIC", "anybody"},
    {"USER",
     "whoever has a key of \\fB\\-\\-api\\-key\\fR or \\fB\\-\\-admin\\-key\\fR; anybody where\n"
     "\\fB\\-\\-api\\-key\\fR is not given"},
    {"ADMIN", "operators, who have a key of \\fB\\-\\-admin\\-key\\fR; where no keys are given, "
              "programs on\n"
              "the server's own machine that call it by localhost or an address and not through a\n"
              "proxy; where only \\fB\\-\\-api\\-key\\fR is given, nobody"},
};

static const char access_text[] =
    ".PP\n"
    "Pages of other sites are refused with 403, on every path: by a Host that is not localhost, "
    "an\n"
    "address of the server's own, the name of \\fB\\-\\-host\\fR or one of "
    "\\fB\\-\\-allowed\\-hosts\\fR; by an\n"
    "Origin other than the server's own, which \\fB\\-\\-cors\\-origins\\fR does not name; by\n"
    "Sec\\-Fetch\\-Site: cross\\-site without such an Origin. Any Host will do on a unix socket, "
    "and\n"
    "HTTP/1.0 may leave it out. A body must be sent as application/json, else it is answered "
    "415.\n";

static void print_endpoints(void)
{
    puts(".SH ENDPOINTS\nWhat \\fBplimsoll serve\\fR answers, and to whom.");
    for (size_t r = 0; r < sizeof(roles) / sizeof(roles[0]); r++) {
        const char *between = ".TP\n";
        for (size_t i = 0; i < sizeof(endpoints) / sizeof(endpoints[0]); i++) {
            if (strcmp(endpoints[i].role, roles[r].role) != 0)
                continue;
            printf("%s\\fB%s\\fR %s", between, endpoints[i].method, endpoints[i].path);
            between = ", ";
        }
        printf("\n%s\n", roles[r].who);
    }
    fputs(access_text, stdout);
}
#endif

void plm_man_begin(void)
{
    printf(".TH PLIMSOLL 1 \"\" \"plimsoll %s\" \"User Commands\"\n%s", plim_version(), begin);
}

void plm_man_end(void)
{
    struct plm_engine_flags flags;
    plm_engine_flags_init(&flags);
    struct plm_opt_group group = plm_engine_flags_group(&flags);
    puts(".SH MODEL AND MEMORY\nOptions of every command that starts an engine. BYTES take KiB, "
         "MiB, GiB and TiB.");
    plm_opts_print_man_group(&group);
    group = plm_noted_flags_group();
    puts(".SH OPTIONS OF OTHER SERVERS\nFlags of other servers' command lines that have no effect "
         "here: "
         "they are taken, and what is\nsaid below is said.");
    plm_opts_print_man_group(&group);
#ifdef PLM_SERVER
    print_endpoints();
#endif
    fputs(end, stdout);
    plm_engine_flags_finish(&flags);
}
