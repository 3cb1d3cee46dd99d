// SPDX-License-Identifier: Apache-2.0
#include "tools/serve/listen.h"

#include <dirent.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "tools/serve/connections.h"

// Connections that wait for accept(): more than one burst of clients, the kernel caps it itself.
#define BACKLOG 1024

static bool is_unix(const char *host)
{
    size_t n = strlen(host);
    return n > 5 && strcmp(host + n - 5, ".sock") == 0;
}

static int listen_unix(const char *path, char *message, size_t cap)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof(addr.sun_path)) {
        snprintf(message, cap, "--host: %s: the path is longer than %zu bytes", path,
                 sizeof(addr.sun_path) - 1);
        return -1;
    }
    strcpy(addr.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    struct stat st;
    // A socket that nobody listens on is left over from a server that was killed.
    if (fd >= 0 && stat(path, &st) == 0 && S_ISSOCK(st.st_mode) &&
        connect(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0 && errno == ECONNREFUSED)
        unlink(path);
    if (fd < 0 || bind(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0 || listen(fd, BACKLOG) < 0) {
        snprintf(message, cap, "cannot listen on %s: %s", path, strerror(errno));
        if (fd >= 0)
            close(fd);
        return -1;
    }
    return fd;
}

static int listen_one(const struct addrinfo *ai)
{
    int fd = socket(ai->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(fd, ai->ai_addr, ai->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0)
        return fd;
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

static unsigned bound_port(int fd)
{
    struct sockaddr_storage addr;
    socklen_t len = sizeof(addr);
    if (getsockname(fd, (struct sockaddr *)&addr, &len) < 0)
        return 0;
    if (addr.ss_family == AF_INET6)
        return ntohs(((struct sockaddr_in6 *)&addr)->sin6_port);
    return ntohs(((struct sockaddr_in *)&addr)->sin_port);
}

int plm_listen(const char *host, unsigned port, char *url, size_t url_cap, char *message,
               size_t message_cap)
{
    if (is_unix(host)) {
        snprintf(url, url_cap, "unix:%s", host);
        return listen_unix(host, message, message_cap);
    }
    char service[16];
    snprintf(service, sizeof(service), "%u", port);
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
    struct addrinfo *list = NULL;
    int r = getaddrinfo(host, service, &hints, &list);
    if (r != 0) {
        snprintf(message, message_cap, "--host: %s: %s", host, gai_strerror(r));
        return -1;
    }
    int fd = -1;
    for (const struct addrinfo *ai = list; ai != NULL && fd < 0; ai = ai->ai_next)
        fd = listen_one(ai);
    int error = errno;
    freeaddrinfo(list);
    if (fd < 0 && error == EADDRINUSE)
        snprintf(message, message_cap,
                 "port %u of %s is in use by another program; choose another with --port", port,
                 host);
    else if (fd < 0)
        snprintf(message, message_cap, "cannot listen on %s port %u: %s", host, port,
                 strerror(error));
    else
        snprintf(url, url_cap, strchr(host, ':') != NULL ? "http://[%s]:%u" : "http://%s:%u", host,
                 bound_port(fd));
    return fd;
}

static unsigned open_now(void)
{
    DIR *dir = opendir("/proc/self/fd");
    if (dir == NULL)
        return 32; // a guess above what a fresh process has
    unsigned n = 0;
    while (readdir(dir) != NULL)
        n++;
    closedir(dir);
    return n;
}

unsigned plm_connections_that_fit(unsigned reserve)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return 1;
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
        getrlimit(RLIMIT_NOFILE, &limit);
    rlim_t used = (rlim_t)open_now() + reserve;
    if (limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur > used + PLM_CONNECTIONS_MAX)
        return PLM_CONNECTIONS_MAX;
    return limit.rlim_cur > used ? (unsigned)(limit.rlim_cur - used) : 1;
}
