# SPDX-License-Identifier: Apache-2.0
"""HTTP itself, with plain sockets: requests that two parties may read differently, bodies, keys,
connection and descriptor limits, start and end. Runs on the pretended engine."""
import json
import os
import re
import resource
import select
import signal
import socket
import subprocess
import tempfile
import time

import harness
from harness import (Server, case, check, main, parallel, read_head, read_response, Reader, same,
                     wait_until)

CHAT = b'{"messages":[{"role":"user","content":"hi"}]}'
POST = b"POST /v1/chat/completions HTTP/1.1\r\nContent-Type: application/json\r\n"
GET = b"GET /health HTTP/1.1\r\n"


def post(headers, body=CHAT):
    return POST + headers + b"\r\n" + body


def length(body=CHAT):
    return b"Content-Length: %d\r\n" % len(body)


# What is answered 400 (or the status named) and ends the connection: a second request behind it must
# never be answered.
SMUGGLED = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
TRAPS = [
    ("length_and_encoding", post(b"Host: localhost\r\n" + length() + b"Transfer-Encoding: chunked\r\n",
                                 b"0\r\n\r\n"), 400, "Transfer-Encoding"),
    ("two_lengths", post(b"Host: localhost\r\n" + length() + b"Content-Length: 3\r\n"), 400, "Content-Length"),
    ("two_equal_lengths", post(b"Host: localhost\r\n" + length() * 2), 400, "Content-Length"),
    ("length_list", post(b"Host: localhost\r\nContent-Length: 45, 45\r\n"), 400, None),
    ("signed_length", post(b"Host: localhost\r\nContent-Length: +45\r\n"), 400, None),
    ("negative_length", post(b"Host: localhost\r\nContent-Length: -1\r\n"), 400, None),
    ("length_is_no_number", post(b"Host: localhost\r\nContent-Length: x\r\n"), 400, None),
    ("length_overflows", post(b"Host: localhost\r\nContent-Length: 99999999999999999999\r\n"), (400, 413), None),
    ("length_is_a_tebibyte", post(b"Host: localhost\r\nContent-Length: 1099511627776\r\n", b""), 413, "taken"),
    ("unknown_encoding", post(b"Host: localhost\r\nTransfer-Encoding: gzip\r\n"), 400, "chunked"),
    ("encoding_list", post(b"Host: localhost\r\nTransfer-Encoding: gzip, chunked\r\n", b"0\r\n\r\n"), 400, "chunked"),
    ("two_encodings", post(b"Host: localhost\r\n" + b"Transfer-Encoding: chunked\r\n" * 2, b"0\r\n\r\n"), 400, None),
    ("encoding_in_1_0", b"POST /tokenize HTTP/1.0\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
     400, None),
    ("blank_before_colon", post(b"Host: localhost\r\nContent-Length : 45\r\n"), 400, "field name"),
    ("no_host", GET + b"\r\n", 400, None),
    ("two_hosts", GET + b"Host: localhost\r\nHost: b\r\n\r\n", 400, "Host"),
    ("host_with_blank", GET + b"Host: a b\r\n\r\n", 400, "Host"),
    ("101_fields", GET + b"Host: localhost\r\n" + b"X-A: b\r\n" * 100 + b"\r\n", 431, "100"),
    ("1000_fields", GET + b"Host: localhost\r\n" + b"X-A: b\r\n" * 1000 + b"\r\n", 431, None),
    ("field_of_64_kib", GET + b"Host: localhost\r\nX-A: " + b"b" * 65536 + b"\r\n\r\n", (400, 431, 413, 414), None),
    ("target_of_64_kib", b"GET /" + b"a" * 65536 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", (400, 413, 414, 431), None),
    ("name_with_bracket", GET + b"Host: localhost\r\nX(A): b\r\n\r\n", 400, "field name"),
    ("version_2", b"GET /health HTTP/2.0\r\nHost: localhost\r\n\r\n", 505, None),
    ("folded_encoding", post(b"Host: localhost\r\n" + length() + b"Transfer-Encoding:\r\n chunked\r\n"), 400, "folded"),
    ("bare_line_feed", b"GET /health HTTP/1.1\nHost: localhost\n\n", 400, None),
    ("bare_line_feed_in_fields", GET + b"Host: localhost\nX: b\r\n\r\n", 400, "line feed"),
    ("bare_line_feed_in_chunks", post(b"Host: localhost\r\nTransfer-Encoding: chunked\r\n", b"2\n{}\r\n0\r\n\r\n"),
     400, "chunk"),
    ("chunk_without_its_end", post(b"Host: localhost\r\nTransfer-Encoding: chunked\r\n", b"2\r\n{}zz0\r\n\r\n"), 400, None),
    ("nul_in_a_value", GET + b"Host: localhost\r\nX: a\0b\r\n\r\n", 400, "control"),
    ("two_authorizations", GET + b"Host: localhost\r\nAuthorization: Bearer a\r\nAuthorization: Bearer b\r\n\r\n", 400,
     "Authorization"),
    ("unknown_expectation", post(b"Host: localhost\r\nExpect: tea\r\n" + length()), 417, "100-continue"),
    ("escaped_slash", b"GET /v1%2Fmodels HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, "slash"),
    ("escaped_nul", b"GET /health%00 HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, None),
    ("another_host_in_the_target", b"GET http://b/health HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, "another host"),
    ("length_in_a_trailer", post(b"Host: localhost\r\nTransfer-Encoding: chunked\r\n", b"0\r\nContent-Length: 9\r\n\r\n"),
     400, "trailer"),
]


@case
def traps_are_refused_and_the_connection_ends():
    with Server() as server:
        for name, data, status, word in TRAPS:
            responses = server.raw(data + SMUGGLED + SMUGGLED, timeout=3)
            want = status if isinstance(status, tuple) else (status,)
            check(len(responses) == 1, f"{name}: {len(responses)} responses: {responses}")
            got, headers, body = responses[0]
            check(got in want, f"{name}: {got} {body}")
            if word:
                check(word in json.loads(body)["error"]["message"], f"{name}: {body}")
            check(headers.get("connection") == "close", f"{name}: {headers}")
        same(server.get("/health"), (200, {"status": "ok"}))


# No request at all: no second answer, and the server lives.
GARBAGE = [
    b"\x00" * 100,
    b"GET\r\n\r\n",
    b"GET /health\r\n\r\n",
    b"\r\n\r\n\r\n",
    b"GET /health HTTP/1.1\r\nHost a\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + os.urandom(64),
    post(b"Host: localhost\r\nTransfer-Encoding: chunked\r\n", b"zz\r\n{}\r\n0\r\n\r\n"),
    post(b"Host: localhost\r\nTransfer-Encoding: chunked\r\n", b"-1\r\n{}\r\n0\r\n\r\n"),
    post(b"Host: localhost\r\nTransfer-Encoding: chunked\r\n", b"fffffffffffffffff\r\n{}\r\n0\r\n\r\n"),
    post(b"Host: localhost\r\nTransfer-Encoding: chunked\r\n", b"2\r\n{}zz0\r\n\r\n"),
]


@case
def garbage_gets_no_answer_that_is_not_an_error():
    with Server() as server:
        for data in GARBAGE:
            responses = server.raw(data, timeout=1)
            check(all(status >= 400 for status, _, _ in responses), f"{data[:40]!r}: {responses}")
        same(server.get("/health"), (200, {"status": "ok"}))


@case
def forms_that_must_work():
    with Server() as server:
        ok = [
            b"GET http://localhost/health HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"GET /health?x=1 HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"HEAD /health HTTP/1.0\r\n\r\n",
            GET + b"Host: localhost\r\n" + b"X-A: b\r\n" * 99 + b"\r\n",
            post(b"Host: localhost\r\n" + length()),
            post(b"Host: localhost\r\nTransfer-Encoding: chunked\r\n", b"%x\r\n%s\r\n0\r\n\r\n" % (len(CHAT), CHAT)),
            post(b"host: localhost\r\nEXPECT: 100-continue\r\n" + length()),
        ]
        for data in ok:
            if data.startswith(b"HEAD"):
                with server.connect() as s:
                    s.sendall(data)
                    same(read_head(Reader(s))[0], 200)
                continue
            responses = server.raw(data, timeout=3)
            check([r[0] for r in responses] == [200], f"{data[:60]!r}: {responses}")
        # Two requests in one piece are answered in order.
        both = server.raw(GET + b"Host: localhost\r\n\r\n" + post(b"Host: localhost\r\n" + length()))
        same([r[0] for r in both], [200, 200])


@case
def a_get_may_half_close():
    with Server() as server:
        same([r[0] for r in server.raw(GET + b"Host: localhost\r\n\r\n", half_close=True)], [200])


@case
def unknown_paths_and_methods():
    with Server() as server:
        same(server.get("/nothing")[0], 404)
        same(server.get("/v1/models/other")[0], 404)
        same(server.get("/v1/models/fake")[0], 200)
        status, headers, body = server.request("GET", "/v1/chat/completions")
        same((status, headers["allow"]), (405, "POST"))
        status, headers, body = server.request("POST", "/health", {})
        same((status, headers["allow"]), (405, "GET, HEAD"))
        same(server.request("BREW", "/health")[0], 405)


@case
def keys_are_asked_for_everywhere_but_at_the_health_paths():
    with tempfile.NamedTemporaryFile("w", suffix=".keys") as file:
        file.write("# keys\nfrom-file\n\n")
        file.flush()
        with Server("--api-key", "one,two", "--api-key-file", file.name) as server:
            for path in "/health", "/livez", "/readyz":
                same(server.get(path)[0], 200)
            status, headers, body = server.request("GET", "/")
            same((status, headers["content-type"], body.count(b"\n")), (200, "text/plain; charset=utf-8", 1))
            for path in "/v1/models", "/metrics", "/v1/memory", "/tokenize", "/nothing", "//":
                status, headers, body = server.request("GET", path)
                same((status, headers["www-authenticate"]), (401, "Bearer"))
                same(json.loads(body)["error"]["type"], "authentication_error")
            for key in "one", "two", "from-file":
                same(server.get("/v1/models", [f"Authorization: Bearer {key}"])[0], 200)
                same(server.get("/v1/models", [f"x-api-key: {key}"])[0], 200)
            for key in "", "o", "onee", "on", "oneone", "# keys", "one,two":
                same(server.get("/v1/models", [f"Authorization: Bearer {key}"])[0], 401)
            same(server.get("/v1/models", ["Authorization: Basic one"])[0], 401)
            same(server.request("POST", "/v1/completions", {"prompt": "x"})[0], 401)
            for key in "one", "two", "from-file":
                check(key not in server.text(), "a key was logged")


@case
def a_body_of_20_mb_is_refused_before_it_is_read():
    big = json.dumps({"messages": [{"role": "user", "content": "x" * (20 << 20)}]}).encode()
    with Server() as server:
        before = server.rss()
        with server.connect() as s:
            s.sendall(post(b"Host: localhost\r\n" + length(big), b""))
            status, headers = read_head(Reader(s))
            same((status, headers["connection"]), (413, "close"))
        # Chunked: nobody can know before, but nothing is kept.
        with server.connect() as s:
            s.sendall(post(b"Host: localhost\r\nTransfer-Encoding: chunked\r\n", b""))
            for at in range(0, len(big), 1 << 20):
                part = big[at:at + (1 << 20)]
                s.sendall(b"%x\r\n%s\r\n" % (len(part), part))
            s.sendall(b"0\r\n\r\n")
            status, headers = read_head(Reader(s))
            same((status, headers["connection"]), (413, "close"))
        check(harness.sanitized() or server.rss() - before < 12 << 20, f"{server.rss() - before} bytes more")
        host = server.memory()["host"]
        check(host["peak_bytes"] < host["limit_bytes"], host)
        same(host["used_bytes"], 0)


@case
def a_chunked_body_without_end_is_answered_and_cut():
    part = b"100000\r\n" + b"x" * (1 << 20) + b"\r\n"
    head = post(b"Host: localhost\r\nTransfer-Encoding: chunked\r\n", b"")

    def send(s, parts, listen):
        s.sendall(head)
        for sent in range(parts):
            if listen and select.select([s], [], [], 0)[0]:
                return sent
            try:
                s.sendall(part)
            except (BrokenPipeError, ConnectionResetError):
                return sent
        return parts

    with Server() as server:
        for listen in True, False:
            with server.connect() as s:
                sent = send(s, 200, listen)
                check(sent < (40 if listen else 120), f"{sent} MiB were taken")
                reader = Reader(s)
                status, headers = read_head(reader)
                same((status, headers["connection"]), (413, "close"))
                while len(reader.buffer) < int(headers["content-length"]):
                    check(reader.more(), "the answer is cut")
                same(json.loads(reader.buffer)["error"]["code"], "body_too_large")
        same(server.memory()["host"]["used_bytes"], 0)
        same(server.get("/health")[0], 200)


@case
def large_bodies_stay_within_the_host_budget():
    """The largest body that is taken, 8 at once: some may be told to come back, none breaks it."""
    with Server("--host-limit", "64MiB") as server:
        limit = 8 << 20
        text = "x" * (limit - 200)

        def one(i):
            return server.request("POST", "/v1/chat/completions",
                                  {"messages": [{"role": "user", "content": text}]})

        results = parallel(one, range(8))
        for status, headers, body in results:
            error = json.loads(body)["error"]
            check((status, error["code"]) in [(400, "context_length_exceeded"), (503, "insufficient_memory")],
                  f"{status} {error}")
            check(status != 503 or int(headers["retry-after"]) >= 1, headers)
        check(any(status == 400 for status, _, _ in results), "none was read")
        host = server.memory()["host"]
        check(host["peak_bytes"] <= 64 << 20, host)
        same(host["used_bytes"], 0)


@case
def bodies_without_end_leave_a_running_request_what_it_needs():
    """Each takes what it can of the largest body; the stream's own events must find room beside them."""
    with Server("--host-limit", "64MiB") as server:
        limit = server.memory()["host"]["limit_bytes"]
        stream = server.stream("/v1/chat/completions", {
            "messages": [{"role": "user", "content": "@tokens=400 @delay=5"}], "stream": True, "logprobs": True,
            "top_logprobs": 20})
        same(stream.head(), 200)
        part, told, held = b" " * (1 << 20), 0, []
        for _ in range(43):
            s = server.connect()
            s.sendall(post(b"Host: localhost\r\nContent-Length: 8388608\r\n", b""))
            held.append(s)
            for _ in range(7):
                try:
                    s.sendall(part)
                except OSError:
                    break
        for s in held:
            if select.select([s], [], [], 0.05)[0]:
                status, headers = read_head(Reader(s))
                same((status, headers["connection"]), (503, "close"))
                check(int(headers["retry-after"]) >= 1, headers)
                told += 1
        host = server.memory()["host"]
        print(f"      43 bodies without end: {told} were told; {host['peak_bytes'] >> 20} of {limit >> 20} MiB at most")
        check(told >= 43 - 6, f"{told} were told")
        check(host["peak_bytes"] <= limit * 5 // 8, host)
        same(server.chat("@tokens=2")[0], 200)  # what is small finds room as well
        text, finish = stream.text()
        same((len(text), finish), (400, "stop"))
        for s in held:
            s.close()
        wait_until(lambda: server.memory()["host"]["used_bytes"] == 0, "all is given back")


@case
def a_slow_body_is_answered_and_cut():
    with Server("--timeout", "1") as server:
        silent, dribbles = server.connect(), server.connect()
        for s in silent, dribbles:
            s.sendall(post(b"Host: localhost\r\nContent-Length: 100000\r\n", b"{"))
        start = time.monotonic()
        while not select.select([dribbles], [], [], 0.2)[0]:
            dribbles.sendall(b" ")  # each byte renews no more than the pause
            check(time.monotonic() - start < 6, "a dribbled body is not cut")
        for s in dribbles, silent:
            status, headers = read_head(Reader(s))
            same((status, headers["connection"]), (408, "close"))


@case
def a_client_that_takes_its_answer_byte_by_byte_is_cut():
    """What the kernel holds for it goes, too. That no pause is too long does not help it: test_http.c."""
    body = json.dumps({"prompt": "@tokens=4000 @big", "max_tokens": 4000, "stream": True}).encode()
    with Server("--timeout", "2") as server, socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.connect(("127.0.0.1", server.port))
        s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" +
                  length(body) + b"\r\n" + body)
        start, taken = time.monotonic(), 0
        try:
            while data := s.recv(60):
                taken += len(data)
                check(time.monotonic() - start < 20, "the slow reader still holds its answer")
                time.sleep(0.1)
            check(False, f"the answer ended after {taken} bytes as if it were whole")
        except ConnectionResetError:
            pass
        print(f"      {taken} bytes of 4 MB were taken")
        wait_until(lambda: server.memory()["host"]["used_bytes"] == 0, "all is given back")


@case
def the_method_in_the_log_is_one_word():
    with Server("-v") as server:
        for data in b"GET\x1b[31m /health HTTP/1.1\r\nHost: localhost\r\n\r\n", b"BREW /health HTTP/1.1\r\nHost: localhost\r\n\r\n":
            server.raw(data, timeout=2)
        wait_until(lambda: "BREW /health 405" in server.text() and "- - 400" in server.text(), "both are logged")
        check("\x1b" not in server.text(), server.text())


@case
def a_body_may_wait_to_be_let_in():
    with Server() as server:
        with server.connect() as s:
            s.sendall(post(b"Host: localhost\r\nExpect: 100-continue\r\n" + length(), b""))
            reader = Reader(s)
            same(read_head(reader)[0], 100)
            s.sendall(CHAT)
            same(read_response(reader)[0], 200)
            # What is refused is not let in.
            s.sendall(b"POST /nothing HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n" + length() + b"\r\n")
            same(read_response(reader)[0], 404)


@case
def slow_headers_do_not_stop_others_and_are_cut():
    with Server("--timeout", "2") as server:
        slow = [server.connect() for _ in range(64)]
        for s in slow:
            s.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-A: ")
        end = time.monotonic() + 6
        cut = set()
        while time.monotonic() < end and len(cut) < 64:
            start = time.monotonic()
            same(server.get("/health")[0], 200)
            check(time.monotonic() - start < 2, "/health took longer than 2 s")
            for s in slow:
                try:
                    s.send(b"x")  # keeps the library's own timeout from ending it
                    s.setblocking(False)
                    if s.recv(1000) == b"":
                        cut.add(s)
                except BlockingIOError:
                    pass
                except OSError:
                    cut.add(s)
            time.sleep(0.2)
        same(len(cut), 64)


@case
def at_the_descriptor_limit_new_clients_are_told():
    def limit():
        resource.setrlimit(resource.RLIMIT_NOFILE, (90, 90))

    server = Server.__new__(Server)
    # A child with few descriptors: the limit must be set between fork and exec.
    real = subprocess.Popen
    try:
        subprocess.Popen = lambda *a, **k: real(*a, preexec_fn=limit, **k)
        server.__init__()
    finally:
        subprocess.Popen = real
    with server:
        open_ones = [server.connect() for _ in range(100)]
        told = 0
        for s in open_ones:
            s.settimeout(2)
            try:
                s.sendall(b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n")
                status, headers = read_head(Reader(s))
            except (OSError, EOFError):
                continue
            if status == 503:
                told += 1
                same(headers["retry-after"], "1")
            else:
                same(status, 200)
        check(told >= 30, f"only {told} were told")
        for s in open_ones:
            s.close()
        wait_until(lambda: server.get("/health")[0] == 200, "room again")


@case
def more_connections_than_allowed_are_told():
    with Server("--max-connections", "4") as server:
        held = [server.stream("/v1/completions", {"prompt": "@hold", "stream": True}) for _ in range(4)]
        for s in held:
            same(s.head(), 200)
        status, headers, body = server.request("GET", "/v1/models")
        same((status, json.loads(body)["error"]["code"]), (503, "too_many_connections"))
        same((headers["retry-after"], headers["connection"]), ("1", "close"))
        # Probes have places of their own.
        for path in "/health", "/livez", "/readyz":
            status, headers, body = server.request("GET", path)
            same((status, headers["connection"]), (200, "close"))
        for s in held:
            s.close()
        wait_until(lambda: server.request("GET", "/v1/models")[0] == 200, "room again")


@case
def an_idle_connection_gives_its_place_to_a_newcomer():
    with Server("--max-connections", "4") as server:
        held = []
        for _ in range(4):
            held.append(server.connect())
            held[-1].sendall(b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n")
            same(read_response(Reader(held[-1]))[0], 200)
        same(server.request("GET", "/v1/models")[0], 200)
        same(held[0].recv(1), b"")  # the one that was idle for longest
        held[1].sendall(GET + b"Host: localhost\r\n\r\n")
        same(read_head(Reader(held[1]))[0], 200)


@case
def a_peer_has_a_limit_of_unfinished_requests():
    head, body = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nX: ", post(b"Host: localhost\r\nContent-Length: 9\r\n", b"{")
    with Server("--max-connections", "8", "--max-connections-per-peer", "3") as server:
        # One that is kept alive counts from the first byte of its next request.
        kept = server.connect()
        kept.sendall(GET + b"Host: localhost\r\n\r\n")
        same(read_response(Reader(kept))[0], 200)
        held = [server.connect() for _ in range(3)]
        for s, data in zip(held, (head, body, body)):
            s.sendall(data)
        wait_until(lambda: server.request("GET", "/v1/models")[0] == 503, "the peer is full")
        same(server.get("/health")[0], 200)
        kept.sendall(head)
        same(read_response(Reader(kept))[0], 503)
        kept.close()  # until then it may send on, and counts
        # Another peer has room, and so has this one when a request is complete.
        other = socket.create_connection(("127.0.0.1", server.port), 10, source_address=("127.0.0.2", 0))
        other.sendall(b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n")
        same(read_head(Reader(other))[0], 200)
        held[0].sendall(b"y\r\n\r\n")
        same(read_head(Reader(held[0]))[0], 200)
        same(server.request("GET", "/v1/models")[0], 200)


@case
def a_trusted_proxy_has_no_limit_of_its_own():
    with Server("--max-connections", "8", "--max-connections-per-peer", "2", "--trusted-proxies",
                "10.0.0.1,127.0.0.0/8") as server:
        held = [server.connect() for _ in range(5)]
        for s in held:
            s.sendall(b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nX: ")
        for s in held:
            s.sendall(b"y\r\n\r\n")
            same(read_head(Reader(s))[0], 200)


@case
def a_thousand_unfinished_headers_leave_probes_their_places():
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    with Server() as server:
        before, held, slowest = server.rss(), [], 0
        for i in range(1000):
            s = server.connect()
            s.sendall(b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nX-A: ")
            held.append(s)
            if i % 10 == 9:
                start = time.monotonic()
                for path in "/health", "/livez", "/readyz":
                    same(server.get(path)[0], 200)
                slowest = max(slowest, (time.monotonic() - start) / 3)
        more = server.rss() - before
        told = 0
        for s in held:
            if select.select([s], [], [], 0)[0]:
                same(s.recv(12), b"HTTP/1.1 503")
                told += 1
        print(f"      1000 unfinished headers: {more >> 10} KiB more, {told} were told, a probe took "
              f"{slowest * 1000:.1f} ms at most")
        check(harness.sanitized() or slowest < 0.05, f"a probe took {slowest * 1000:.0f} ms")
        places = int(re.search(r"(\d+) from the same address", server.text()).group(1))
        check(told >= 1000 - places - 32, f"{told} were told, {places} have places")
        check(harness.sanitized() or more < 12 << 20, f"{more} bytes more")
        for s in held:
            s.close()
        wait_until(lambda: server.get("/v1/models")[0] == 200, "room again")
        check(server.metric("plimsoll:http_turned_away_total") >= told)


@case
def while_the_model_loads():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    with Server("--port", str(port), model="slow-1500.gguf", wait=False) as server:
        server.port = port

        def health():
            try:
                return server.request("GET", "/health")
            except OSError:
                return None

        wait_until(health, "the port is open")
        status, headers, body = health()
        same((status, json.loads(body)["error"]["message"]), (503, "Loading model"))
        check(int(headers["retry-after"]) >= 1)
        same(server.get("/livez")[0], 200)
        same(server.get("/readyz")[0], 503)
        same(server.get("/v1/models")[0], 503)
        same(server.chat("x")[0], 503)
        server.wait()
        same(server.get("/health"), (200, {"status": "ok"}))
        same(server.get("/readyz")[0], 200)


def run(*args):
    return subprocess.run([harness.BINARY, *args], capture_output=True, text=True, timeout=20)


@case
def wrong_starts_say_what_is_wrong():
    with Server() as server:
        for args, status, words in [
            (["serve", "-m", "x.gguf", "--port", str(server.port)], 1, ["port", str(server.port), "in use"]),
            (["serve", "-m", "missing.gguf", "--port", "0"], 1, ["no such model file"]),
            (["serve"], 2, ["no model; name its file"]),
            (["serve", "-m", "x", "--port", "99999"], 2, ["--port", "0 to 65535"]),
            (["serve", "-m", "x", "--parallel", "0"], 2, ["--parallel", "1 to 4096"]),
            (["serve", "-m", "x", "--parallel", "-3"], 2, ["--parallel", "1 to 4096"]),
            (["serve", "-m", "x", "--memory-fraction", "0"], 2, ["--memory-fraction", "more than 0"]),
            (["serve", "-m", "x", "--memory-fraction", "1.5"], 2, ["--memory-fraction", "at most 1"]),
            (["serve", "-m", "x", "--memory-fraction", "nan"], 2, ["--memory-fraction"]),
            (["serve", "-m", "x", "--memory-limit", "12X"], 2, ["--memory-limit", "bytes"]),
            (["serve", "-m", "x", "--ctx", "4"], 2, ["--ctx", "--ctx-size"]),
            (["serve", "-m", "x", "--api-key", ""], 2, ["--api-key", "empty"]),
            (["serve", "-m", "x", "--api-key-file", "/nonexistent"], 2, ["--api-key-file", "No such file"]),
            (["serve", "-m", "x", "--host", "999.1.1.1"], 1, ["999.1.1.1"]),
            (["serve", "-m", "x", "--trusted-proxies", "10.0.0.0/33"], 2, ["--trusted-proxies", "10.0.0.0/33"]),
            (["serve", "-m", "x", "--max-connections-per-peer", "0"], 2, ["--max-connections-per-peer"]),
            (["sing"], 2, ["no command"]),
        ]:
            got = run(*args)
            same(got.returncode, status)
            for word in words:
                check(word in got.stderr, f"{args}: {got.stderr}")
    got = run("serve", "--help")
    same(got.returncode, 0)
    for word in "--max-num-seqs", "--host-limit", "[1 to 4096]", "--shutdown-timeout":
        check(word in got.stdout, f"{word} is not in --help")
    same(run("version").returncode, 0)


@case
def a_unix_socket_serves_and_goes():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "p.sock")
        with Server("--host", path, wait=False) as server:
            def ask():
                try:
                    with socket.socket(socket.AF_UNIX) as s:
                        s.connect(path)
                        s.sendall(GET + b"Host: localhost\r\n\r\n")
                        return read_head(Reader(s))[0] == 200
                except OSError:
                    return False

            wait_until(ask, "an answer over the unix socket")
        check(not os.path.exists(path), "the socket file is left")


@case
def the_plan_is_printed_and_written():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "plan.json")
        with Server("--plan-out", path) as server:
            check("plan" in server.text(), server.text())
            check("plan" in json.load(open(path)))


@case
def a_plan_that_can_not_be_written_is_told_before_the_load():
    with tempfile.TemporaryDirectory() as folder:
        for path in (os.path.join(folder, "none", "plan.json"), folder):
            result = run("serve", "-m", "slow-5000.gguf", "--plan-out", path)
            same(result.returncode, 1)
            check(path in result.stderr, result.stderr)
            check("READY" not in result.stdout, result.stdout)


@case
def ctrl_c_while_loading_is_no_success():
    for number in signal.SIGINT, signal.SIGTERM:
        server = Server("--port", "0", model="slow-5000.gguf", wait=False)
        time.sleep(0.5)
        server.process.send_signal(number)
        same(server.process.wait(3), 128 + number)


@case
def a_second_signal_ends_at_once():
    server = Server("--shutdown-timeout", "30")
    stream = server.stream("/v1/completions", {"prompt": "@hold", "stream": True})
    same(stream.head(), 200)
    server.process.send_signal(signal.SIGTERM)
    time.sleep(0.2)
    check(server.process.poll() is None, "it did not wait for the stream")
    start = time.monotonic()
    server.process.send_signal(signal.SIGINT)
    server.process.wait(5)
    check(time.monotonic() - start < 3, "the second signal took longer than 3 s")
    stream.close()


if __name__ == "__main__":
    main()
