# SPDX-License-Identifier: Apache-2.0
"""What the server says, to whom it says it, and what signals do: readers that stop, are gone or have a full disk never
hold a request up, and what they missed is counted."""
import fcntl
import json
import os
import pty
import re
import resource
import select
import signal
import subprocess
import tempfile
import time

import harness
from harness import Server, case, check, main, parallel, same, wait_until

TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"


class Piped(Server):
    """A server whose output goes where the test wants it: its port is chosen beforehand, as nothing may be read."""

    def __init__(self, out, *args, **options):
        self.log = tempfile.TemporaryFile("a+")
        self.port = free_port()
        command = [harness.BINARY, "serve", "-m", harness.MODEL, "--port", str(self.port), *args]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, **options)

    def text(self):
        return "(its output is the test's)"

    def ready(self):
        def asked():
            try:
                return self.get("/readyz")[0] == 200
            except OSError:
                return False
        wait_until(asked, "READY")
        return self


def free_port():
    import socket
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def fill(fd):
    """Until a pipe takes no byte more, through a description of our own: the server's stays as it is."""
    own = os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK)
    for size in 4096, 1:
        try:
            while os.write(own, b"x" * size):
                pass
        except BlockingIOError:
            pass
    os.close(own)


def asks_and_ends(server, n=60):
    """Many requests are answered, probes too, and SIGTERM ends it in time with status 0."""
    slowest = 0
    for i in range(n):
        began = time.monotonic()
        same(server.chat(f"hi {i}")[0], 200)
        slowest = max(slowest, time.monotonic() - began)
    same(server.get("/health")[0], 200)
    check(slowest < 5, f"a request took {slowest} s")
    dropped = server.metric("plimsoll:log_lines_dropped_total")
    same(server.stop(10), 0)
    return dropped


@case
def each_line_has_a_time_and_each_request_a_line():
    with Server("--api-key", "secret-key") as server:
        key = ["Authorization: Bearer secret-key"]
        for probe in "/health", "/livez", "/readyz", "/metrics":  # these are no news, unless they fail
            same(server.request("GET", probe, headers=key)[0], 200)
        same(server.request("GET", "/metrics")[0], 401)
        server.request("POST", "/v1/completions", b'{"prompt":"private words"}', [*key, "Content-Type: application/json"])
        server.request("GET", "/a%0Ab\x7f", headers=key)
        server.request("POST", "/v1/completions", b'{"prompt":"@never"}', [*key, "Content-Type: application/json"])
        server.raw(b"G\x1b[2JT / HTTP/1.1\r\nHost: localhost\r\n\r\n")

        def lines():
            return [line for line in server.text().splitlines() if " ms=" in line]

        wait_until(lambda: len(lines()) >= 4, "four lines")
        start = f"{TIME} plimsoll serve: "
        check(re.fullmatch(start + r"GET /metrics 401 ms=\d+", lines()[0]), lines())
        check(re.fullmatch(start + r"POST /v1/completions 200 prompt=13 output=5 ms=\d+", lines()[1]), lines())
        check(re.search(r" 40[0-4] ms=\d+$", lines()[2]), lines())
        check(re.search(r" 400 ms=\d+$", lines()[3]), lines())
        for line in lines():
            check(line.isprintable() and "private" not in line and "secret-key" not in line, line)
    text = server_text_after(["-v"], lambda s: s.get("/health"))
    check(re.search(TIME + r" plimsoll serve: GET /health 200 ms=\d+$", text, re.M), text)
    text = server_text_after(["-v"], lambda s: s.chat("hi"))
    check(re.search(TIME + r" plimsoll serve: POST /v1/chat/completions 200 prompt=\d+ cached=\d+ output=5 "
                    r"queue_ms=\d+ prefill_ms=\d+ decode_ms=\d+ ms=\d+$", text, re.M), text)
    text = server_text_after(["--quiet"], lambda s: s.chat("hi"))
    check(" ms=" not in text and "shutting down" in text, text)
    stderr = [line for line in text.splitlines() if "plimsoll serve:" in line]
    check(all(re.match(TIME + " ", line) for line in stderr), stderr)


def server_text_after(args, act):
    log = tempfile.TemporaryFile("a+")
    server = Piped(log, *args).ready()
    act(server)
    same(server.stop(), 0)
    log.seek(0)
    return log.read()


@case
def a_pipe_that_nobody_reads_holds_nothing_up():
    for args in [], ["-v"]:
        r, w = os.pipe()
        server = Piped(w, *args).ready()
        fill(w)
        os.close(w)
        dropped = asks_and_ends(server)
        same(dropped, 0)  # sixty lines wait in the ring
        os.close(r)


@case
def what_finds_no_room_is_counted_and_said_when_there_is_some():
    r, w = os.pipe()
    server = Piped(w).ready()
    fill(w)

    def ask(_):
        for _ in range(60):
            path = "/" + "x" * 180
            server.request("GET", path)
    while server.metric("plimsoll:log_lines_dropped_total") == 0:
        parallel(ask, range(8))
    dropped = server.metric("plimsoll:log_lines_dropped_total")
    check(dropped > 0, dropped)
    # The reader is back.
    text = b""
    end = time.monotonic() + 20
    while b" lines of the log were dropped" not in text and time.monotonic() < end:
        if select.select([r], [], [], 0.1)[0]:
            text += os.read(r, 65536)
        else:
            server.chat("hi")
    said = re.findall(TIME.encode() + rb" plimsoll serve: (\d+) lines of the log were dropped\n", text)
    check(said and int(said[0]) >= dropped, (said, dropped))
    os.close(w)
    # Read on while it ends.
    server.process.send_signal(signal.SIGTERM)
    while os.read(r, 65536):
        pass
    os.close(r)
    same(server.process.wait(10), 0)


@case
def a_reader_that_is_gone_and_a_full_disk_fail_nothing():
    r, w = os.pipe()
    server = Piped(w).ready()
    os.close(w)
    os.close(r)
    check(asks_and_ends(server) >= 60, "what could not be written is counted")
    with open("/dev/full", "wb", buffering=0) as full:
        check(asks_and_ends(Piped(full).ready()) >= 60, "what could not be written is counted")


@case
def a_non_blocking_descriptor_loses_no_line():
    """Somebody else who shares it may have made it so."""
    r, w = os.pipe()
    fcntl.fcntl(w, fcntl.F_SETFL, fcntl.fcntl(w, fcntl.F_GETFL) | os.O_NONBLOCK)
    server = Piped(w).ready()
    fill(w)
    os.close(w)
    for i in range(20):
        same(server.chat(f"hi {i}")[0], 200)
    same(server.metric("plimsoll:log_lines_dropped_total"), 0)
    text = b""
    while text.count(b"/v1/chat/completions") < 20:
        text += os.read(r, 65536)
    same(server.stop(10), 0)
    os.close(r)


@case
def a_terminal_on_hold_holds_nothing_up():
    master, slave = pty.openpty()
    server = Piped(slave, start_new_session=True).ready()
    # As Ctrl-S does: what is written fills the terminal's buffer and then waits.
    asks_and_ends(server, 400)
    text = b""
    while select.select([master], [], [], 0)[0]:
        text += os.read(master, 65536)
    # The bar is taken away before a line.
    check(b"READY" in text, text[:500])
    os.close(slave)
    os.close(master)


@case
def a_limit_of_file_size_is_no_end():
    with tempfile.NamedTemporaryFile() as log:
        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))
        server = Piped(open(log.name, "ab"), preexec_fn=limit).ready()
        dropped = asks_and_ends(server, 300)
        check(dropped > 0 and os.path.getsize(log.name) <= 8192, (dropped, os.path.getsize(log.name)))


@case
def a_hangup_means_what_the_start_says():
    # Without a terminal: it goes on, and says so.
    log = tempfile.TemporaryFile("a+")

    def text():
        return os.pread(log.fileno(), 1 << 20, 0).decode()
    server = Piped(log, start_new_session=True).ready()
    server.process.send_signal(signal.SIGHUP)
    wait_until(lambda: "SIGHUP: there is nothing to read again" in text(), "a line about it")
    same(server.chat("hi")[0], 200)
    same(server.stop(10), 0)
    # Ignored from the start, as under nohup: also with a terminal, and nothing is said.
    master, slave = pty.openpty()

    def ignore():
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    server = Piped(slave, start_new_session=True, preexec_fn=ignore).ready()
    server.process.send_signal(signal.SIGHUP)
    time.sleep(0.3)
    same(server.chat("hi")[0], 200)
    same(server.stop(10), 0)
    # With a terminal: what runs ends first.
    server = Piped(slave, start_new_session=True).ready()
    stream = server.stream("/v1/completions", {"prompt": "@tokens=20 @delay=50", "stream": True},
                           ["Content-Type: application/json"])
    same(stream.head(), 200)
    server.process.send_signal(signal.SIGHUP)
    same(len(stream.text()[0]), 20)
    same(server.process.wait(10), 0)
    os.close(slave)
    os.close(master)


if __name__ == "__main__":
    main()
