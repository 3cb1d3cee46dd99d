# SPDX-License-Identifier: Apache-2.0
"""Who may call: endpoints by role, keys, hosts, pages of other sites, types of bodies. The endpoints are
those of tools/serve/endpoints.def, so a new one is tested, and must be documented, without a word here.
Runs on the pretended engine."""
import json
import os
import re
import signal
import socket
import subprocess
import tempfile
import time

import harness
from harness import NotHere, Reader, Server, case, check, main, raw_request, read_response, same, wait_until

TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
LINE = re.compile(r"^PLM_ENDPOINT\((\w+), \"([^\"]+)\", (\w+), ([\w |]+), (\w+)\)$", re.M)
USER, ADMIN = "Authorization: Bearer user-key", "x-api-key: admin-key"
KEYS = {"no key": [], "a wrong key": ["x-api-key: other"], "a user's key": [USER], "an admin key": [ADMIN]}


def endpoints():
    """(method, path, role) of every line of the table."""
    with open(os.path.join(TOP, "tools/serve/endpoints.def")) as f:
        text = f.read()
    found = LINE.findall(text)
    same(len(found), len(re.findall(r"^PLM_ENDPOINT", text, re.M)))
    return [(method, path, role) for method, path, role, _, _ in found]


def call(server, method, path, headers=()):
    """Status and error code of a request that asks for as little as it can."""
    where = path + "fake" if path.endswith("/") and path != "/" else path
    body = {} if method == "POST" else None
    status, _, data = server.request(method, where, body, headers)
    error = json.loads(data).get("error", {}) if data[:1] == b"{" else {}
    return status, error.get("code")


# What a caller is answered: None: let in.
NO_KEY, NO_ADMIN = (401, "invalid_api_key"), (403, "admin_key_needed")
SETUPS = {
    "without keys": ([], {"USER": [None] * 4, "ADMIN": [None] * 4}),
    "keys of users": (["--api-key", "user-key"],
                      {"USER": [NO_KEY, NO_KEY, None, NO_KEY], "ADMIN": [NO_ADMIN] * 4}),
    "keys of operators": (["--admin-key", "admin-key"],
                          {"USER": [None] * 4, "ADMIN": [NO_KEY, NO_KEY, NO_KEY, None]}),
    "both": (["--api-key", "user-key", "--admin-key", "admin-key"],
             {"USER": [NO_KEY, NO_KEY, None, None], "ADMIN": [NO_KEY, NO_KEY, NO_ADMIN, None]}),
}


@case
def every_endpoint_answers_its_role_alone():
    seen = 0
    for setup, (flags, want) in SETUPS.items():
        with Server(*flags) as server:
            for method, path, role in endpoints():
                for (who, headers), refused in zip(KEYS.items(), want.get(role, [None] * 4)):
                    got = call(server, method, path, headers)
                    where = f"{setup}, {who}: {method} {path} ({role}) is answered {got}"
                    check(got == refused if refused else got[0] in (200, 400), where)
                    seen += 1
            # Without keys anybody may know what there is not.
            for headers in KEYS.values():
                same(call(server, "GET", "/nothing", headers)[0] in (401, 404), True)
    print(f"      {len(endpoints())} endpoints, {seen} calls")


@case
def documents_name_every_endpoint_with_its_role():
    with open(os.path.join(TOP, "README.md")) as f:
        rows = re.findall(r"^\| `(GET|POST) ([^|]+)\| (\w+) \|", f.read(), re.M)
    told = {(method, path, who.upper()) for method, paths, who in rows
            for path in re.findall(r"/[\w/-]*", paths)}
    same(sorted(told), sorted(endpoints()))
    man = subprocess.run([harness.BINARY, "help", "--man"], capture_output=True, text=True).stdout
    blocks = re.search(r"^\.SH ENDPOINTS\n(.*?)^\.PP", man, re.M | re.S).group(1).split(".TP\n")[1:]
    roles = {"anyb": "PUBLIC", "whoe": "USER", "oper": "ADMIN"}
    told = {(method, path, roles[block.split("\n")[1][:4]]) for block in blocks
            for method, path in re.findall(r"\\fB(\w+)\\fR ([^,\n]+)", block.split("\n")[0])}
    same(sorted(told), sorted(endpoints()))


def own_address():
    """An address of this machine that is not loopback's."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        try:
            s.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            raise NotHere("this machine has no address but loopback's")
        return s.getsockname()[0]


@case
def without_keys_only_this_machine_operates():
    proxies = ["Forwarded: for=1.2.3.4", "X-Forwarded-For: 1.2.3.4", "x-forwarded-proto: http", "Via: 1.1 a",
               "X-Real-IP: 1.2.3.4", "X-Forwarded-Anything:", "CF-Connecting-IP: 1.2.3.4", "True-Client-IP: 1.2.3.4",
               "Client-IP: 1.2.3.4", "X-Client-IP: 1.2.3.4"]
    with Server("--allowed-hosts", "*", "--cors-origins", "*") as server:
        for path in "/v1/wake", "/v1/sleep":
            for header in proxies + ["Host: a.name", "Origin: http://a.name", "Sec-Fetch-Site: cross-site"]:
                same(call(server, "POST", path, [header]), NO_ADMIN)
                same(call(server, "GET", "/v1/memory", [header])[0], 200)
        for host in "localhost", "127.0.0.1", f"localhost:{server.port}", "127.9.8.7:1", "[::1]", "a.localhost":
            same(call(server, "POST", "/v1/wake", [f"Host: {host}"])[0], 200)
        same(server.get("/readyz")[0], 200)
        status, _, body = server.request("POST", "/v1/sleep", headers=[proxies[0]])
        check("--admin-key" in json.loads(body)["error"]["message"], body)
    with Server("--api-key", "user-key") as server:
        status, _, body = server.request("POST", "/v1/sleep", headers=[USER])
        check("--admin-key" in json.loads(body)["error"]["message"], body)
        same(server.get("/readyz")[0], 200)


@case
def another_machine_does_not_operate_without_a_key():
    address = own_address()

    with Server("--host", "0.0.0.0") as server:
        with socket.create_connection((address, server.port), 10) as s:
            s.sendall(raw_request("POST", "/v1/sleep", headers=[f"Host: {address}"]))
            status, _, body = read_response(Reader(s))
        same((status, json.loads(body)["error"]["code"]), NO_ADMIN)
        same(server.get("/readyz")[0], 200)


@case
def keys_of_operators_come_from_a_file_too():
    with tempfile.NamedTemporaryFile("w", suffix=".keys") as file:
        file.write("# operators\nfrom-file\n")
        file.flush()
        with Server("--admin-key-file", file.name, "--admin-key", "a,b") as server:
            for key in "from-file", "a", "b":
                same(call(server, "POST", "/v1/wake", [f"Authorization: Bearer {key}"])[0], 200)
            for key in "a,b", "# operators", "":
                same(call(server, "POST", "/v1/wake", [f"Authorization: Bearer {key}"]), NO_KEY)


@case
def wrong_flags_say_what_is_wrong():
    for flags, words in [
        (["--admin-key", ""], ["--admin-key", "empty"]),
        (["--api-key", "a,b", "--admin-key", "c,b"], ["--admin-key", "also one of --api-key"]),
        (["--admin-key-file", "/nonexistent"], ["--admin-key-file", "No such file"]),
        (["--admin-key-file", "/dev/null"], ["--admin-key-file", "has no key"]),
        (["--allowed-hosts", "a,"], ["--allowed-hosts", "is not a host"]),
        (["--allowed-hosts", "http://a"], ["--allowed-hosts", "http://a", "is not a host"]),
        (["--allowed-hosts", "a:80"], ["--allowed-hosts", "every port"]),
        (["--cors-origins", "a.name"], ["--cors-origins", "is not an origin"]),
        (["--cors-origins", "http://a/"], ["--cors-origins", "is not an origin"]),
    ]:
        got = subprocess.run([harness.BINARY, "serve", "-m", "x", *flags], capture_output=True, text=True, timeout=20)
        same(got.returncode, 2)
        for word in words:
            check(word in got.stderr, f"{flags}: {got.stderr}")


def status_of(server, *headers, method="GET", path="/v1/memory"):
    status, _, body = server.request(method, path, {} if method == "POST" else None, headers)
    return status, (json.loads(body).get("error", {}).get("code") if body[:1] == b"{" else None)


BAD_HOST = (403, "host_not_allowed")
BAD_ORIGIN = (403, "origin_not_allowed")


@case
def hosts_are_the_server_s_own():
    with Server() as server:
        port = server.port
        for host in ("localhost", "LOCALHOST", "localhost.", "localhost:", f"localhost:{port}", "localhost:1",
                     "sub.localhost", f"127.0.0.1:{port}", "127.0.0.1", "127.1.2.3", "[::1]", f"[::1]:{port}",
                     "[::ffff:127.0.0.1]"):
            same((host, *status_of(server, f"Host: {host}")), (host, 200, None))
        for host in ("evil.test", f"evil.test:{port}", "localhost.evil.test", "notlocalhost", "127.0.0.1.evil.test",
                     "10.0.0.1", "8.8.8.8:80", "[fd00::1]", "0.0.0.0", "2130706433", "127.1", "localhost:http",
                     "localhost:99999", "[::1", "::1", "[::1]x", "a@localhost", ".localhost", "localhost/", "\xff"):
            for path in "/v1/memory", "/health", "/nothing":
                same((host, *status_of(server, f"Host: {host}", path=path)), (host, *BAD_HOST))
            for path in "/v1/chat/completions", "/v1/sleep":
                same((host, *status_of(server, f"Host: {host}", method="POST", path=path)), (host, *BAD_HOST))
        _, _, body = server.request("GET", "/health", headers=["Host: evil.test"])
        check("--allowed-hosts" in json.loads(body)["error"]["message"], body)
        same(server.get("/readyz")[0], 200)
        # No browser speaks 1.0, whose probes may have no Host.
        same([r[0] for r in server.raw(b"GET /v1/memory HTTP/1.0\r\n\r\n", timeout=3)], [200])
        # A target in absolute form names a host, too.
        for target, want in ("http://localhost", 200), ("http://evil.test", 400), ("HTTP://evil.test", 400):
            data = f"GET {target}/health HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
            same((target, [r[0] for r in server.raw(data, timeout=3)]), (target, [want]))


@case
def other_hosts_are_named_by_flags():
    with Server("--allowed-hosts", "Llm.Example.Org,.below.test", "--allowed-hosts", "10.1.2.3,fd00::7") as server:
        for host in ("llm.example.org", "LLM.example.org:443", "llm.example.org.", "below.test", "a.below.test",
                     "a.b.below.test:1", "10.1.2.3:80", "[fd00::7]", "localhost"):
            same((host, *status_of(server, f"Host: {host}")), (host, 200, None))
        for host in "example.org", "a.llm.example.org", "xbelow.test", "10.1.2.4", "[fd00::8]":
            same((host, *status_of(server, f"Host: {host}")), (host, *BAD_HOST))
    with Server("--allowed-hosts", "*") as server:
        for host in "anything", "8.8.8.8", "a_b:99", "l\xf6calhost":
            same((host, *status_of(server, f"Host: {host}")), (host, 200, None))


@case
def probes_call_by_the_address_of_the_connection():
    address = own_address()
    with Server("--host", "0.0.0.0") as server:
        def get(host):
            with socket.create_connection((address, server.port), 10) as s:
                s.sendall(raw_request("GET", "/health", headers=[f"Host: {host}"]))
                return read_response(Reader(s))[0]

        for host in address, f"{address}:{server.port}", f"[::ffff:{address}]:80", "localhost", "0.0.0.0":
            same((host, get(host)), (host, 200))
        same(get("10.255.255.254"), 403)
        same(status_of(server, f"Host: {address}"), BAD_HOST)  # that connection has another


@case
def a_unix_socket_takes_any_host():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "p.sock")

        def ask(method, where, *headers):
            with socket.socket(socket.AF_UNIX) as s:
                s.settimeout(10)
                s.connect(path)
                s.sendall(raw_request(method, where, headers=headers))
                return read_response(Reader(s))[0]

        with Server("--host", path, wait=False) as server:
            wait_until(lambda: "READY" in server.text(), "READY")
            for host in "a", path, "evil.test", "":
                same((host, ask("GET", "/health", f"Host: {host}")), (host, 400 if host == "" else 200))
            same(ask("GET", "/health", "Origin: http://evil.test"), 403)
            same(ask("POST", "/v1/wake", "Host: a"), 200)
            same(ask("POST", "/v1/wake", "X-Forwarded-For: 1.2.3.4"), 403)


@case
def pages_of_other_sites_are_refused():
    with Server("--api-key", "user-key") as server:
        port = server.port
        own = f"Host: localhost:{port}"
        for headers in ([], [f"Origin: http://localhost:{port}"], [f"Origin: HTTP://LOCALHOST:{port}"],
                        ["Sec-Fetch-Site: same-origin"], ["Sec-Fetch-Site: none"], ["Sec-Fetch-Site: same-site"]):
            same((headers, *status_of(server, own, USER, *headers)), (headers, 200, None))
        same(status_of(server, "Host: localhost", "Origin: http://localhost:80", USER)[0], 200)
        for headers in (["Origin: null"], ["Origin: http://evil.test"], ["Origin: http://localhost"],
                        [f"Origin: https://localhost:{port}"], [f"Origin: http://127.0.0.1:{port}"],
                        [f"Origin: http://a.localhost:{port}"], ["Origin: http://localhost:3000"], ["Origin: x"],
                        ["Origin:"], ["Origin: file://"], [f"Origin: http://localhost:{port} http://evil.test"],
                        [f"Origin: http://localhost:{port}/"], ["Sec-Fetch-Site: cross-site"],
                        ["Sec-Fetch-Site: Cross-Site"], [f"Origin: http://localhost:{port}", "Sec-Fetch-Site: cross-site"]):
            for method, path in ("GET", "/v1/memory"), ("GET", "/health"), ("POST", "/v1/chat/completions"), \
                    ("POST", "/v1/sleep"), ("OPTIONS", "/v1/chat/completions"), ("GET", "/nothing"):
                got = status_of(server, own, USER, *headers, method=method, path=path)
                same((headers, path, *got), (headers, path, *BAD_ORIGIN))
        for twice in ("Host: localhost",), ("Origin: http://localhost",), ("Content-Type: application/json",), \
                ("x-api-key: user-key",):
            data = raw_request("GET", "/health", headers=[own if twice[0][:4] == "Host" else "A: b", *twice, *twice])
            same((twice, [r[0] for r in server.raw(data, timeout=3)]), (twice, [400]))
        status, head, body = server.request("GET", "/health", headers=["Origin: http://evil.test"])
        check("--cors-origins" in json.loads(body)["error"]["message"], body)
        check("vary" not in head and not any(name.startswith("access-control") for name in head), head)


@case
def pages_that_the_operator_names_may_call():
    flags = "--cors-origins", "https://chat.example.org,HTTP://Localhost:3000/".rstrip("/"), "--cors-origins", "null"
    with Server(*flags, "--api-key", "user-key") as server:
        def ask(method, path, *headers, body=None):
            return server.request(method, path, body, headers)

        for origin in "https://chat.example.org", "http://localhost:3000", "null":
            status, head, _ = ask("GET", "/v1/models", USER, f"Origin: {origin}", "Sec-Fetch-Site: cross-site")
            same((status, head["access-control-allow-origin"], head["vary"]), (200, origin, "Origin"))
            same(head.get("access-control-allow-credentials"), None if origin == "null" else "true")
            # Before a page may send a key or JSON it asks, without a key.
            status, head, body = ask("OPTIONS", "/v1/chat/completions", f"Origin: {origin}",
                                     "Access-Control-Request-Method: POST",
                                     "Access-Control-Request-Headers: authorization,content-type,x-stainless-os")
            same((status, body, head["access-control-allow-origin"]), (204, b"", origin))
            same(head["access-control-allow-headers"], "authorization,content-type,x-stainless-os")
            check("POST" in head["access-control-allow-methods"], head)
            # It may read why it was refused, and streams.
            status, head, _ = ask("GET", "/v1/models", f"Origin: {origin}")
            same((status, head["access-control-allow-origin"]), (401, origin))
            stream = server.stream("/v1/completions", {"prompt": "x", "stream": True}, [USER, f"Origin: {origin}"])
            same((stream.head(), stream.headers["access-control-allow-origin"]), (200, origin))
            check("Retry-After" in stream.headers["access-control-expose-headers"], stream.headers)
            same(stream.text()[1], "stop")
            # A body that is refused in its midst.
            big = b"x" * (1 << 20)
            data = raw_request("POST", "/v1/completions", headers=[USER, f"Origin: {origin}",
                               "Content-Type: application/json", "Transfer-Encoding: chunked"])
            with server.connect() as s:
                s.sendall(data)
                for _ in range(20):
                    s.sendall(b"%x\r\n%s\r\n" % (len(big), big))
                status, head, _ = read_response(Reader(s))
                same((status, head["access-control-allow-origin"]), (413, origin))
        for origin in "http://chat.example.org", "https://chat.example.org:8443", "https://example.org", "http://a.test":
            same((origin, *status_of(server, USER, f"Origin: {origin}")), (origin, *BAD_ORIGIN))
        # A cache must know that the answer to others differs.
        same(ask("GET", "/v1/models", USER)[1]["vary"], "Origin")
        same(status_of(server, USER, "Sec-Fetch-Site: cross-site"), BAD_ORIGIN)
        same(ask("OPTIONS", "/health")[0], 405)
    with Server("--cors-origins", "*") as server:
        for headers in ["Origin: http://evil.test"], ["Sec-Fetch-Site: cross-site"], ["Origin: x"]:
            status, head, _ = server.request("GET", "/v1/models", headers=headers)
            same((status, head["access-control-allow-origin"]), (200, "*"))
            check("access-control-allow-credentials" not in head, head)
            same(call(server, "POST", "/v1/wake", headers), NO_ADMIN)


@case
def bodies_are_json_by_their_type():
    form = "application/x-www-form-urlencoded"
    chat = {"messages": [{"role": "user", "content": "hi"}]}
    with Server() as server:
        def post(path, body, *headers):
            status, head, data = server.request("POST", path, body, headers)
            return status, head, json.loads(data)

        for kind in ("application/json", "Application/JSON", "application/json; charset=utf-8",
                     "application/json;charset=UTF-8", "application/json ; x=y"):
            same(post("/v1/chat/completions", chat, f"Content-Type: {kind}")[0], 200)
        for kind in form, "text/plain", "multipart/form-data; boundary=x", "application/jsonx", "text/json", \
                "application/json-seq", "x, application/json", "":
            for path, body in ("/v1/chat/completions", chat), ("/v1/sleep", {}), ("/tokenize", {"content": "x"}):
                status, head, data = post(path, body, f"Content-Type: {kind}")
                same((kind, status, data["error"]["code"], head["connection"]),
                     (kind, 415, "unsupported_media_type", "close"))
        message = post("/v1/chat/completions", chat, f"Content-Type: {form}")[2]["error"]["message"]
        for word in form, "-H 'Content-Type: application/json'":
            check(word in message, message)
        # A page can send a body without any type.
        data = raw_request("POST", "/v1/sleep", {}).replace(b"Content-Type: application/json\r\n", b"")
        same([r[0] for r in server.raw(data, timeout=3)], [415])
        # What has no body needs no type, whatever curl -d '' says of it.
        for headers in [], ["Content-Length: 0"], ["Content-Length: 0", f"Content-Type: {form}"]:
            same(server.request("POST", "/v1/wake", headers=headers)[0], 200)
        same(server.get("/readyz")[0], 200)


@case
def operators_get_through_when_users_hold_everything():
    with Server("--threads-http", "1", "--host-limit", "64MiB") as server:
        stream = server.stream("/v1/completions", {"prompt": "@hold", "stream": True})
        same(stream.head(), 200)
        with server.connect() as slow, server.connect() as waits:
            # The one worker is busy, and so is the one thread that a sleep takes.
            slow.sendall(raw_request("POST", "/v1/completions", {"prompt": "@submit=3000"}))
            waits.sendall(raw_request("POST", "/v1/sleep", {"timeout_ms": 20000}))
            wait_until(lambda: server.get("/readyz")[0] == 503, "it falls asleep")
            start = time.monotonic()
            same(server.post("/v1/sleep", {})[1]["error"]["code"], "conflict")
            same(server.post("/v1/wake", {})[0], 200)
            check(time.monotonic() - start < 2, "operators waited for a user's request")
        stream.close()
        # A body of theirs is small.
        status, _, data = server.request("POST", "/v1/wake", b"{" + b" " * 4096 + b"}")
        same((status, json.loads(data)["error"]["code"]), (413, "body_too_large"))
        same(server.post("/v1/wake", b"{" + b" " * 4094 + b"}")[0], 200)


@case
def a_sleep_ends_with_its_caller_and_its_deadline():
    with Server() as server:
        for timeout, status in (600000, 200), (600001, 400), (86400000, 400), (-1, 400):
            same((timeout, server.post("/v1/sleep", {"timeout_ms": timeout})[0]), (timeout, status))
        same(server.post("/v1/wake", {})[0], 200)
        stream = server.stream("/v1/completions", {"prompt": "@hold", "stream": True})
        same(stream.head(), 200)

        def sleeping(s):
            s.sendall(raw_request("POST", "/v1/sleep", {"timeout_ms": 600000}))
            wait_until(lambda: server.get("/readyz")[0] == 503, "it waits for the stream")

        for how in "closes", "half-closes", "resets":
            with server.connect() as s:
                sleeping(s)
                if how == "half-closes":
                    s.shutdown(socket.SHUT_WR)
                    same(s.recv(1), b"")
                elif how == "resets":
                    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            wait_until(lambda: server.get("/readyz")[0] == 200, f"awake when the caller {how}")
            same(server.chat("x")[0], 200)
        # Somebody else's wake takes it back, and the caller hears it.
        with server.connect() as s:
            sleeping(s)
            same(server.post("/v1/wake", {})[0], 200)
            status, _, body = read_response(Reader(s))
            same((status, json.loads(body)["error"]["code"]), (409, "conflict"))
        # So does a shutdown, which waits for the stream.
        with server.connect() as s:
            sleeping(s)
            server.process.send_signal(signal.SIGTERM)
            same(read_response(Reader(s))[0], 409)
        stream.close()


@case
def keys_are_wiped_out_of_the_list_of_processes():
    secrets = "user-secret-1", "user-secret-2", "user-secret-3", "admin-secret-1", "admin-secret-2"
    with Server("--api-key", secrets[0], "--api-key", ",".join(secrets[1:3]), f"--admin-key={secrets[3]}",
                "--admin-key", secrets[4], "-a", "name") as server:
        with open(f"/proc/{server.process.pid}/cmdline", "rb") as f:
            line = f.read()
        for secret in secrets:
            same((secret, secret.encode() in line), (secret, False))
        words = line.split(b"\0")
        check(b"name" in words and words.count(b"--api-key") == 2, line)
        for secret in secrets:
            same(server.get("/v1/models", [f"x-api-key: {secret}"])[0], 200)
            check(secret not in server.text(), "a key was logged")
        same(server.get("/v1/models", ["x-api-key: *************"])[0], 401)


if __name__ == "__main__":
    main()
