# SPDX-License-Identifier: Apache-2.0
"""A pretended hub: the part of the Hugging Face API that `plimsoll pull` uses, on a socket of this machine. It
keeps what it was asked, and misbehaves by a script: what `script` holds is done for the next requests of
files, one after the other."""
import hashlib
import http.server
import json
import threading
import time
import urllib.parse

REPO, COMMIT = "user/repo-GGUF", "c0ffee" + "0" * 34


def model(n, seed=0):
    """Bytes that could be a model: they begin as one, and no two places are alike."""
    out = bytearray(b"GGUF")
    i = seed
    while len(out) < n:
        out += hashlib.sha256(b"%d" % i).digest()
        i += 1
    return bytes(out[:n])


class Large:
    """A file of many MiB that nobody holds: a block repeated, with its number in front."""

    BLOCK = 1 << 20

    def __init__(self, blocks):
        self.blocks, self.block = blocks, model(self.BLOCK)

    def __len__(self):
        return self.blocks * self.BLOCK

    def __getitem__(self, where):
        out, at = [], where.start or 0
        end = min(where.stop if where.stop is not None else len(self), len(self))
        while at < end:
            i, offset = divmod(at, self.BLOCK)
            block = self.block[:8] + i.to_bytes(8, "big") + self.block[16:]
            piece = block[offset:offset + min(end - at, self.BLOCK - offset)]
            out.append(piece)
            at += len(piece)
        return b"".join(out)

    def sha256(self):
        digest = hashlib.sha256()
        for i in range(self.blocks):
            digest.update(self[i * self.BLOCK:(i + 1) * self.BLOCK])
        return digest.hexdigest()


class Hub:
    """The server; `url` is its address by 127.0.0.1. Files are bytes by their path in the repository."""

    def __init__(self, files=None, tls=None):
        self.files = dict(files or {})
        self.listing = None  # the JSON text, where it is not the truth
        self.script = []
        self.requests = []  # (path, headers with small names)
        self.token = None  # what it insists on
        self.cdn = None  # the address that files are sent on to
        self.etags = True
        hub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                hub.answer(self)

            def log_message(self, *_):
                pass

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_):  # clients that leave
                pass

        self.server = Server(("127.0.0.1", 0), Handler)
        if tls:
            self.server.socket = tls.wrap_socket(self.server.socket, server_side=True)
        self.port = self.server.server_address[1]
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{self.port}"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def asked(self, ending=".gguf"):
        """The requests of files."""
        return [(path, headers) for path, headers in self.requests if path.split("?")[0].endswith(ending)]

    def siblings(self):
        return [{"rfilename": "README.md", "size": 10}] + [
            {"rfilename": path, "size": len(data), "lfs": {"sha256": hash_of(data), "size": len(data)}}
            for path, data in self.files.items()]

    # ---- answers ----

    def answer(self, h):
        self.requests.append((h.path, {k.lower(): v for k, v in h.headers.items()}))
        path = urllib.parse.unquote(urllib.parse.urlsplit(h.path).path)
        if self.token and h.headers.get("Authorization") != f"Bearer {self.token}":
            return self.say(h, 401, {"X-Error-Message": "Access to this \x07 repository is restricted"})
        if path.startswith(f"/api/models/{REPO}/revision/"):
            text = self.listing or json.dumps({"sha": COMMIT, "siblings": self.siblings()})
            return self.say(h, 200, {"Content-Type": "application/json"}, text.encode())
        name = path.removeprefix(f"/{REPO}/resolve/{COMMIT}/").lstrip("/")
        if name not in self.files:
            return self.say(h, 404, {"X-Error-Message": "Entry not found"})
        if self.cdn:
            return self.say(h, 302, {"Location": f"{self.cdn}/{urllib.parse.quote(name)}?signature=secret",
                                     "X-Linked-Etag": f'"{hash_of(self.files[name])}"',
                                     "X-Linked-Size": str(len(self.files[name]))})
        step = self.script.pop(0) if self.script else give()
        return step(self, h, self.files[name])

    @staticmethod
    def say(h, status, headers, body=b""):
        h.send_response(status)
        for key, value in headers.items():
            h.send_header(key, value)
        h.send_header("Content-Length", str(len(body)))
        h.end_headers()
        h.wfile.write(body)


def hash_of(data):
    return data.sha256() if isinstance(data, Large) else hashlib.sha256(data).hexdigest()


# ---- what can stand in a script ----

def give(upto=None, then="close", ranges=True, length=0, chunked=False, headers=(), pause=0, wrong=None):
    """The file, or what of it was asked for: `upto` bytes of it, and then the connection is closed or stalls; with
    a Content-Length that is off, in chunks without one, other headers, slowly, or with other content."""

    def step(hub, h, data):
        data = data if wrong is None else wrong
        asked = h.headers.get("Range")
        begin = int(asked.removeprefix("bytes=").rstrip("-")) if asked and ranges else 0
        etag = '"%s"' % hashlib.md5(data[:1000]).hexdigest()
        if begin and hub.etags and h.headers.get("If-Range") not in (None, etag):
            begin = 0
        if begin >= len(data):
            return hub.say(h, 416, {"Content-Range": f"bytes */{len(data)}"})
        h.send_response(206 if begin else 200)
        if begin:
            h.send_header("Content-Range", f"bytes {begin}-{len(data) - 1}/{len(data)}")
        if hub.etags:
            h.send_header("ETag", etag)
        for key, value in headers:
            h.send_header(key, value)
        if chunked:
            h.send_header("Transfer-Encoding", "chunked")
        else:
            h.send_header("Content-Length", str(len(data) - begin + length))
        h.end_headers()
        at, end = begin, len(data) if upto is None else min(len(data), begin + upto)
        while at < end:
            piece = data[at:min(end, at + 65536)]
            h.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece) if chunked else piece)
            at += len(piece)
            time.sleep(pause)
        if upto is not None:
            if then == "stall":
                time.sleep(20)
            h.close_connection = True
        elif chunked:
            h.wfile.write(b"0\r\n\r\n")
        if length:
            h.close_connection = True
        return None

    return step


def silent(seconds):
    """Not even a head, for so long; then the connection is closed."""

    def step(hub, h, _):
        time.sleep(seconds)
        h.close_connection = True

    return step


def status(code, **headers):
    def step(hub, h, _):
        hub.say(h, code, {key.replace("_", "-"): value for key, value in headers.items()}, b"<html>no</html>")

    return step
