# SPDX-License-Identifier: Apache-2.0
"""What the end-to-end tests share: a server that is started and waited for, HTTP by plain sockets,
server-sent events, and a list of cases with a counted line at its end.

A test program is called with the server's command (`plimsoll serve` or the one with the pretended
engine) and runs its cases in order; `NAME...` after the command picks some, `--device NAME` the device
that the server is started on.
"""
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback

# A start in a test proves its plan, whatever an earlier one left in the cache of whoever runs it.
os.environ["XDG_CACHE_HOME"] = "/dev/null/none"
# Nor are its questions anybody's.
os.environ["XDG_STATE_HOME"] = "/dev/null/none"

SKIP = 77  # how meson is told that a test could not run


def option(flag):
    """The value behind a flag of this program, which is taken out of its arguments; None where it is not given."""
    if flag not in sys.argv:
        return None
    at = sys.argv.index(flag)
    value = sys.argv[at + 1]
    del sys.argv[at:at + 2]
    return value


DEVICE = option("--device")


def on_device():
    """Arguments of a subcommand that plans or serves."""
    return ["--device", DEVICE] if DEVICE else []


class Server:
    """A running server; the constructor returns when it says READY (or at once with wait=False)."""

    def __init__(self, *args, model=None, wait=True, prefix=(), env=None, binary=None):
        # The server writes at the end wherever text() reads: both have one position in the file, so it is
        # read by no position at all.
        self.log = tempfile.TemporaryFile("a+")
        where = [] if "--device" in args else on_device()
        command = [*prefix, binary or BINARY, "serve", "-m", model or MODEL, "--port", "0", *where, *args]
        if "--port" in args or "--host" in args:
            del command[command.index("--port"):command.index("--port") + 2]
        self.process = subprocess.Popen(command, stdout=self.log, stderr=subprocess.STDOUT,
                                        env={**os.environ, **(env or {})})
        self.port = None
        if wait:
            self.wait()

    def text(self):
        log = self.log.fileno()
        return os.pread(log, os.fstat(log).st_size, 0).decode(errors="replace")

    def wait(self, timeout=120):
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            found = re.search(r"^READY: .* at http://[^:]+:(\d+)$", self.text(), re.M)
            if found:
                self.port = int(found.group(1))
                return
            if self.process.poll() is not None:
                raise AssertionError(f"the server ended with {self.process.returncode}:\n{self.text()}")
            time.sleep(0.01)
        raise AssertionError(f"the server is not READY after {timeout} s:\n{self.text()}")

    def stop(self, timeout=60):
        """SIGTERM; returns the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError(f"no end within {timeout} s of SIGTERM:\n{self.text()}")

    def __enter__(self):
        return self

    def __exit__(self, kind, *rest):
        try:
            status = self.stop()
            if kind is None:
                check(status == 0, f"exit status {status}:\n{self.text()}")
        finally:
            self.log.close()

    # ---- requests ----

    def connect(self, timeout=30):
        s = socket.create_connection(("127.0.0.1", self.port), timeout)
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return s

    def raw(self, data, timeout=30, half_close=False):
        """Sends bytes on a connection of their own; returns the responses as a list."""
        with self.connect(timeout) as s:
            s.sendall(data)
            if half_close:
                s.shutdown(socket.SHUT_WR)
            return read_all_responses(s)

    def request(self, method, path, body=None, headers=(), timeout=60):
        """One request; returns (status, headers, body bytes)."""
        with self.connect(timeout) as s:
            s.sendall(raw_request(method, path, body, headers))
            return read_response(Reader(s))

    def get(self, path, headers=()):
        status, _, body = self.request("GET", path, headers=headers)
        return status, json.loads(body)

    def post(self, path, body, headers=(), timeout=60):
        status, _, data = self.request("POST", path, body, headers, timeout)
        return status, json.loads(data)

    def chat(self, content, **fields):
        fields["messages"] = [{"role": "user", "content": content}]
        return self.post("/v1/chat/completions", fields)

    def stream(self, path, body, headers=(), timeout=60):
        """An open event stream."""
        return Stream(self, path, body, headers, timeout)

    def memory(self):
        return self.get("/v1/memory")[1]

    def metric(self, name):
        """The sum of a metric's samples."""
        text = self.request("GET", "/metrics")[2].decode()
        found = re.findall(rf"^{re.escape(name)}(?:\{{[^}}]*\}})? (\S+)$", text, re.M)
        check(found, f"no metric {name}")
        return sum(map(float, found))

    def rss(self):
        """Resident bytes of the process."""
        with open(f"/proc/{self.process.pid}/status") as f:
            return int(re.search(r"VmRSS:\s+(\d+)", f.read()).group(1)) * 1024

    def held(self):
        """Bytes of its own that the process has in memory, by the kernel's exact count: no page of a file that
        happened to be touched, and none that VmRSS, which is summed in batches, has not heard of."""
        with open(f"/proc/{self.process.pid}/smaps_rollup") as f:
            return int(re.search(r"^Anonymous:\s+(\d+) kB", f.read(), re.M).group(1)) * 1024

    def cpu_seconds(self):
        with open(f"/proc/{self.process.pid}/stat") as f:
            fields = f.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def raw_request(method, path, body=None, headers=(), length=None):
    """The bytes of a request. Host and the type of a body are filled in where the headers do not name
    them; length is what Content-Length says where that is not the truth."""
    data = b""
    if body is not None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
    fields = {"Host": "localhost"}
    if body is not None:
        fields |= {"Content-Type": "application/json", "Content-Length": len(data) if length is None else length}
    given = {line.split(":", 1)[0].lower() for line in headers}
    lines = [f"{name}: {value}" for name, value in fields.items() if name.lower() not in given]
    return "\r\n".join([f"{method} {path} HTTP/1.1", *lines, *headers]).encode() + b"\r\n\r\n" + data


def raw_post(path, body, length=None):
    return raw_request("POST", path, body, length=length)


class Reader:
    """Reads lines and byte counts from a socket."""

    def __init__(self, s):
        self.s, self.buffer = s, b""

    def more(self):
        data = self.s.recv(65536)
        self.buffer += data
        return bool(data)

    def line(self):
        while b"\n" not in self.buffer:
            if not self.more():
                raise EOFError(f"the connection ended after {self.buffer[:200]!r}")
        line, self.buffer = self.buffer.split(b"\n", 1)
        return line.rstrip(b"\r").decode()

    def take(self, n):
        while len(self.buffer) < n:
            if not self.more():
                raise EOFError("the connection ended in a body")
        data, self.buffer = self.buffer[:n], self.buffer[n:]
        return data


def read_head(reader):
    status = int(reader.line().split()[1])
    headers = {}
    while line := reader.line():
        name, value = line.split(":", 1)
        headers[name.lower()] = value.strip()
    return status, headers


def read_response(reader):
    status, headers = read_head(reader)
    if status == 100:
        status, headers = read_head(reader)
    body = b""
    if "chunked" in headers.get("transfer-encoding", ""):
        while n := int(reader.line(), 16):
            body += reader.take(n)
            reader.line()
        reader.line()
    elif "content-length" in headers:
        body = reader.take(int(headers["content-length"]))
    return status, headers, body


def read_all_responses(s):
    """All responses until the server closes or falls silent for a second."""
    reader, responses = Reader(s), []
    try:
        while True:
            responses.append(read_response(reader))
            s.settimeout(1)
    except (EOFError, OSError):
        return responses


class Stream:
    """A server-sent event stream over a plain socket."""

    def __init__(self, server, path, body, headers=(), timeout=60):
        self.s = server.connect(timeout)
        self.s.sendall(raw_request("POST", path, body, headers))
        self.reader = Reader(self.s)
        self.comments = 0

    def head(self):
        self.status, self.headers = read_head(self.reader)
        return self.status

    def events(self):
        """Yields the JSON of each event, and "[DONE]"; comments are counted. Ends with the body.
        Raises EOFError when the connection is cut."""
        pending = b""
        while n := int(self.reader.line(), 16):
            pending += self.reader.take(n)
            self.reader.line()
            while b"\n\n" in pending:
                event, pending = pending.split(b"\n\n", 1)
                if event.startswith(b":"):
                    self.comments += 1
                    continue
                check(event.startswith(b"data: "), f"a bad event: {event!r}")
                data = event[6:].decode()
                yield data if data == "[DONE]" else json.loads(data)
        check(pending == b"", f"half an event at the end: {pending!r}")

    def text(self):
        """The whole text of choice 0, and the finish reason; the stream must end with [DONE]."""
        text, finish, last = "", None, None
        for event in self.events():
            last = event
            if event == "[DONE]" or not event["choices"]:
                continue
            choice = event["choices"][0]
            text += choice.get("text") or choice.get("delta", {}).get("content") or ""
            finish = choice["finish_reason"] or finish
        check(last == "[DONE]", f"the stream ended with {last}")
        return text, finish

    def close(self):
        self.s.close()


def sanitized():
    """Whether the server is built with a sanitizer, whose shadow memory drowns small figures."""
    with open(BINARY, "rb") as f:
        data = f.read()
    return b"__asan_init" in data or b"__tsan_init" in data


def check(condition, message="wrong"):
    if not condition:
        raise AssertionError(message)


def same(got, want):
    check(got == want, f"got {got!r}, not {want!r}")


def wait_until(condition, what, timeout=20):
    end = time.monotonic() + timeout
    while not condition():
        check(time.monotonic() < end, f"not within {timeout} s: {what}")
        time.sleep(0.01)


def parallel(function, items):
    """Runs function(item) for all items at once; returns the results, raises the first error."""
    results, errors = [None] * len(items), []

    def run(i, item):
        try:
            results[i] = function(item)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=pair) for pair in enumerate(items)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if errors:
        raise errors[0]
    return results


class NotHere(Exception):
    """Raised by a case that can not tell anything in this run; counted as skipped."""


CASES = []


def case(function):
    CASES.append(function)
    return function


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(SKIP)


BINARY = MODEL = None


def main(model=None):
    """Runs the cases; model is the file to serve (default: one that the pretended engine ignores)."""
    global BINARY, MODEL
    BINARY, names = sys.argv[1], sys.argv[2:]
    MODEL = model or "fake.gguf"
    # Programs inherit what is ignored; under nohup that would be SIGHUP, which has a meaning here.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    passed = failed = skipped = 0
    for function in CASES:
        name = function.__name__
        if names and name not in names:
            continue
        start = time.monotonic()
        try:
            function()
            passed += 1
            print(f"ok    {name} ({time.monotonic() - start:.2f} s)", flush=True)
        except NotHere as reason:
            skipped += 1
            print(f"skip  {name}: {reason}", flush=True)
        except Exception:
            failed += 1
            print(f"FAIL  {name}\n{traceback.format_exc()}", flush=True)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    sys.exit(1 if failed or not passed else 0)
