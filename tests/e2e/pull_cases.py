# SPDX-License-Identifier: Apache-2.0
"""`plimsoll pull`, `list`, `rm` and -hf, in front of a pretended hub that misbehaves. Nothing leaves this machine."""
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import time

import harness
from harness import NotHere, case, check, main, same, wait_until
from terminal import CTRL_C, Terminal
from hub import COMMIT, REPO, Hub, Large, give, hash_of, model, silent, status

NAME = "tiny-Q4_K_M.gguf"
DATA = model(300_000)
TOKEN = "hf_verySecretToken"
# What the surroundings say of hubs, caches and proxies is not this test's.
CLEAN = {k: v for k, v in os.environ.items()
         if not k.startswith(("HF_", "HUGGING")) and not k.lower().endswith("_proxy")}


class Place:
    """A cache of its own, and pulls into it."""

    def __init__(self, hub, **env):
        self.folder = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.folder.name)
        self.hub_folder = self.path / "hub"
        self.env = {**CLEAN, "HF_HOME": str(self.path), "HF_ENDPOINT": hub.url if hub else "http://127.0.0.1:9", **env}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.folder.cleanup()

    def start(self, *args, **keywords):
        return subprocess.Popen([harness.BINARY, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                env=self.env, cwd=self.path, **keywords)

    def run(self, *args, **keywords):
        process = self.start(*args, **keywords)
        out, err = process.communicate(timeout=120)
        check(TOKEN not in out + err, "the token was printed")
        check(all(c.isprintable() or c == "\n" for c in out + err), repr(err))
        return subprocess.CompletedProcess(args, process.returncode, out, err)

    def pull(self, what=REPO, *args, **keywords):
        return self.run("pull", what, "--timeout", "1", *args, **keywords)

    def repo(self):
        return self.hub_folder / ("models--" + REPO.replace("/", "--"))

    def blob(self, data=DATA):
        return self.repo() / "blobs" / hash_of(data)

    def part(self, data=DATA):
        return self.repo() / "blobs" / (hash_of(data) + ".incomplete")

    def files(self):
        """What there is, without the locks."""
        return sorted(str(p.relative_to(self.path)) for p in self.path.rglob("*")
                      if (p.is_file() or p.is_symlink()) and ".locks" not in p.parts)


def good(done, place, data=DATA, name=NAME):
    """The model came: whole, by the cache's layout, and its path was printed."""
    check(done.returncode == 0, done)
    path = place.repo() / "snapshots" / COMMIT / name
    same(done.stdout, f"{path}\n")
    check(path.is_symlink() and path.read_bytes() == data, "the snapshot's file is not the hub's")
    same(path.resolve(), place.blob(data).resolve())
    same((place.repo() / "refs/main").read_text(), COMMIT)
    check(not place.part(data).exists(), "the part stayed")


def bad(done, *says, code=1):
    check(done.returncode == code, done)
    same(done.stdout, "")
    for text in says:
        check(text in done.stderr, f"{done.stderr!r} lacks {text!r}")


@case
def a_model_comes_into_the_cache():
    with Hub({NAME: DATA}) as hub, Place(hub) as place:
        good(place.pull("hf:" + REPO + ":q4_k_m"), place)
        same(len(hub.asked()), 1)
        again = place.pull()
        good(again, place)
        check("it is there" in again.stderr, again.stderr)
        same(len(hub.asked()), 1)
        same(place.files(), [f"hub/models--user--repo-GGUF/{p}" for p in (
            f"blobs/{hash_of(DATA)}", "refs/main", f"snapshots/{COMMIT}/{NAME}")])


@case
def caches_are_found_as_others_find_them():
    with Hub({NAME: DATA}) as hub:
        for env, where in (({"HF_HUB_CACHE": "a"}, "a"), ({"HUGGINGFACE_HUB_CACHE": "b"}, "b"),
                           ({"HF_HOME": "c"}, "c/hub"), ({"XDG_CACHE_HOME": "d"}, "d/huggingface/hub"),
                           ({"HOME": "e"}, "e/.cache/huggingface/hub"),
                           ({"HOME": "f", "HF_HUB_CACHE": "~/g"}, "f/g")):
            with Place(hub) as place:
                for name in ("HF_HOME", "XDG_CACHE_HOME"):
                    place.env.pop(name, None)
                place.env |= {k: v if v.startswith("~") else str(place.path / v) for k, v in env.items()}
                place.hub_folder = place.path / where
                good(place.pull(), place)
    with Place(None) as place:
        for name in ("HF_HOME", "XDG_CACHE_HOME", "HOME"):
            place.env.pop(name, None)
        bad(place.pull(), "no folder for models")


@case
def the_quantisation_is_chosen_by_a_rule():
    names = {n: model(1000 + i) for i, n in enumerate((
        "m-Q8_0.gguf", "m-Q4_K_S.gguf", "m-UD-Q4_K_M.gguf", "m-Q4_K_M.gguf", "sub/m-BF16.gguf", "mmproj-Q4_K_M.gguf"))}
    for asked, got in ((":Q8_0", "m-Q8_0.gguf"), (":bf16", "sub/m-BF16.gguf"), ("", "m-Q4_K_M.gguf"),
                       (":UD-Q4_K_M", "m-UD-Q4_K_M.gguf")):
        with Hub(names) as hub, Place(hub) as place:
            done = place.pull(REPO + asked)
            good(done, place, names[got], got)
            same("none was named: Q4_K_M, else Q8_0" in done.stderr, asked == "")
    with Hub(names) as hub, Place(hub) as place:
        bad(place.pull(REPO + ":Q4_K"), "there is no Q4_K model; there are m-Q4_K_M.gguf, m-Q4_K_S.gguf")
        bad(place.pull(REPO, "-hff", "x.gguf"), "there is no x.gguf")
        good(place.pull(REPO, "--hf-file", "m-Q4_K_S.gguf"), place, names["m-Q4_K_S.gguf"], "m-Q4_K_S.gguf")
    del names["m-Q4_K_M.gguf"], names["m-UD-Q4_K_M.gguf"]
    with Hub(names) as hub, Place(hub) as place:
        good(place.pull(), place, names["m-Q8_0.gguf"], "m-Q8_0.gguf")
    with Hub({}) as hub, Place(hub) as place:
        bad(place.pull(), "there is no GGUF model at all")


@case
def a_split_model_comes_whole():
    parts = {f"big-Q4_0-{i:05}-of-00003.gguf": model(50_000 + i, i * 1000) for i in (1, 2, 3)}
    with Hub(parts) as hub, Place(hub) as place:
        hub.script = [give(), give(upto=100), give()]
        done = place.pull(REPO + ":Q4_0")
        for name, data in parts.items():
            same((place.repo() / "snapshots" / COMMIT / name).read_bytes(), data)
        check(done.stdout.endswith("big-Q4_0-00001-of-00003.gguf\n"), done)
        del hub.files["big-Q4_0-00002-of-00003.gguf"]
        bad(place.pull(REPO + ":Q4_0"), "big-Q4_0-00002-of-00003.gguf, one of 3 parts, is missing")


@case
def a_cut_or_stalled_line_goes_on_where_it_ended():
    with Hub({NAME: DATA}) as hub, Place(hub) as place:
        hub.script = [give(upto=100_000), give(upto=50_000, then="stall"), give(upto=0), silent(4), give()]
        done = place.pull()
        good(done, place)
        same([h.get("range") for _, h in hub.asked()], [None, "bytes=100000-"] + ["bytes=150000-"] * 3)


@case
def a_server_that_can_not_go_on_gives_all_anew():
    with Hub({NAME: DATA}) as hub, Place(hub) as place:
        hub.script = [give(upto=100_000), give(ranges=False)]
        done = place.pull()
        good(done, place)
        check("from the start" in done.stderr, done.stderr)
    with Hub({NAME: DATA}) as hub, Place(hub) as place:
        hub.script = [give(upto=100_000), status(416), give()]
        good(place.pull(), place)
        same(hub.asked()[-1][1].get("range"), None)
    with Hub({NAME: DATA}) as hub, Place(hub) as place:
        # Not the part that was asked for.
        hub.script = [give(upto=1000), give(headers=[("Content-Range", "bytes 5-299999/300000")])]
        bad(place.pull(), "another part than was asked for")


@case
def a_busy_server_is_asked_again():
    with Hub({NAME: DATA}) as hub, Place(hub) as place:
        hub.script = [status(503), status(429, Retry_After="1")]
        start = time.monotonic()
        good(place.pull(), place)
        check(time.monotonic() - start > 2, "it did not wait")
        same(len(hub.asked()), 3)
    with Hub({NAME: DATA}) as hub, Place(hub) as place:
        hub.script = [status(429, Retry_After="3600")]
        bad(place.pull(), "HTTP 429; it asks to wait for 3600 s")


@case
def refusals_say_why():
    with Hub({NAME: DATA}) as hub, Place(hub) as place:
        hub.script = [status(404), status(401), status(403, X_Error_Message="accept \x1b[2J the terms"), status(410)]
        bad(place.pull(), "HTTP 404")
        bad(place.pull(), "HTTP 401; there is no such thing, or a token is needed (HF_TOKEN)")
        bad(place.pull(), "HTTP 403: accept ?[2J the terms")
        bad(place.pull(), "HTTP 410")
        bad(place.pull("user/none"), "user/none: HTTP 404")
        hub.token = "other"
        bad(place.pull(), "HTTP 401: Access to this ? repository")
        hub.token, hub.cdn = None, hub.url  # a redirect to itself
        bad(place.pull(), "edirect")
        check(len(hub.asked()) < 20, "it went round and round")
    with Place(None) as place:
        bad(place.pull(), "user/repo-GGUF: ")


@case
def a_server_that_brings_nothing_is_given_up():
    if "PLIMSOLL_PULL_MIB" not in os.environ:
        raise NotHere("half a minute; the whole check has it")
    with Hub({NAME: DATA}) as hub, Place(hub) as place:
        hub.script = [give(upto=1000)] + [status(503, X_Error_Message="maintenance")] * 100
        bad(place.pull(), "HTTP 503: maintenance; trying again", f"{NAME}: HTTP 503: maintenance\n")
        same(len(hub.asked()), 7)
        same(place.part().stat().st_size, 1000)


@case
def wrong_content_is_never_taken():
    wrong = DATA[:-1] + b"x"
    with Hub({NAME: DATA}) as hub, Place(hub) as place:
        hub.script = [give(wrong=wrong)]
        bad(place.pull(), "the content is wrong: its SHA-256 is " + hash_of(wrong), "removed")
        same(place.files(), [])
        hub.script = [give(wrong=b"<html>" + DATA[6:])]
        bad(place.pull(), "no GGUF file")
        same(place.files(), [])
        hub.script = [give(length=5)]
        bad(place.pull(), "gives 300005 bytes, but the file has 300000")
        hub.script = [give(wrong=DATA + b"more", chunked=True)]
        bad(place.pull(), "more than the 300000 bytes")
        hub.script = [give(headers=[("X-Linked-Etag", '"' + "a" * 64 + '"')])]
        bad(place.pull(), "the server has another file")
        hub.script = [give(wrong=DATA[:1000], chunked=True), give()]  # ends early, without a length
        good(place.pull(), place)


@case
def a_part_of_something_else_is_found_out():
    with Hub({NAME: DATA}) as hub, Place(hub) as place:
        place.part().parent.mkdir(parents=True)
        place.part().write_bytes(b"x" * 1000)
        bad(place.pull(), "the content is wrong")
        good(place.pull(), place)
    with Hub({NAME: DATA}) as hub, Place(hub) as place:
        place.part().parent.mkdir(parents=True)
        place.part().write_bytes(DATA + b"too much")
        good(place.pull(), place)
    with Hub({NAME: DATA}) as hub, Place(hub) as place:
        place.part().parent.mkdir(parents=True)
        place.part().write_bytes(DATA)  # whole, but not renamed: nothing is asked for
        good(place.pull(), place)
        same(hub.asked(), [])
    with Hub({NAME: DATA}) as hub, Place(hub) as place:
        place.part().parent.mkdir(parents=True)
        place.part().symlink_to(place.path / "target")
        bad(place.pull(), "incomplete")
        check(not (place.path / "target").exists(), "a planted link was followed")


@case
def hostile_names_go_nowhere():
    evil = ["../../../evil.gguf", "/etc/evil.gguf", "a/../../evil.gguf", "a//b.gguf", "./evil.gguf", "bell\x07.gguf",
            "back\\slash.gguf", "nul\0.gguf", "x" * 300 + ".gguf", "é.gguf", ".gguf"]
    sibling = lambda name: {"rfilename": name, "size": len(DATA), "lfs": {"sha256": hash_of(DATA)}}
    with Hub({NAME: DATA}) as hub, Place(hub) as place:
        listing = lambda **other: json.dumps({"sha": COMMIT, "siblings": [sibling(n) for n in evil] + [sibling(NAME)],
                                              **other})
        hub.listing = listing()
        good(place.pull(), place)
        for name in evil[:6]:
            bad(place.pull(REPO, "-hff", name), "is not the path of a file in a repository", code=2)
        hub.listing = json.dumps({"sha": COMMIT, "siblings": [sibling(n) for n in evil]})
        bad(place.pull(REPO), "there is no GGUF model at all")
        for commit in ("../../..", "C" * 40, "c0ffee", 5, None, COMMIT + "\0"):
            hub.listing = listing(sha=commit)
            bad(place.pull(REPO), "names no commit")
    with Hub({NAME: DATA}) as hub, Place(hub) as place:
        for hash_ in ("../../x", "A" * 64, hash_of(DATA)[:-1], 7, None):
            hub.listing = json.dumps({"sha": COMMIT, "siblings": [{**sibling(NAME), "lfs": {"sha256": hash_}}]})
            bad(place.pull(REPO), "the hub knows no SHA-256 of it")
        good(place.pull(REPO, "--sha256", hash_of(DATA).upper()), place)
    with Place(None) as place:
        for name in ("..", "a", "a/b/c", "../a", "a/..", "a/-b", "a--b/c", "a/b:", "a/b:x y", "/a", "a/" + "b" * 97, "ä/b"):
            bad(place.pull(name), code=2)
        for rev in ("../x", "a b", "", "/x", "x" * 200):
            bad(place.pull(REPO, "--revision", rev), "is not a revision", code=2)


@case
def what_the_hub_says_is_bounded():
    with Hub({NAME: DATA}) as hub, Place(hub) as place:
        for text, says in (("[" * 100_000, "nested more than 64 deep"), ("{}", "names no commit or no files"),
                           ("no json", "not acceptable JSON"), ('{"x":"' + "x" * (5 << 20) + '"}', "larger than 4096 KiB"),
                           (json.dumps({"sha": COMMIT, "siblings": {}}), "no files"),
                           (json.dumps({"sha": COMMIT, "siblings": [0] * 300_000}), "more than 262144"),
                           (json.dumps({"sha": COMMIT, "siblings": [1, None, [], {}, {"rfilename": 5}]}), "no GGUF model"),
                           (json.dumps({"sha": COMMIT, "siblings": [{"rfilename": f"{i}.gguf"} for i in range(9000)]}),
                            "more than 8192 GGUF files")):
            hub.listing = text
            bad(place.pull(), says)
        for size in (-5, 2**62, 1e300, "x"):
            hub.listing = json.dumps({"sha": COMMIT, "siblings": [
                {"rfilename": NAME, "size": size, "lfs": {"sha256": hash_of(DATA)}}]})
            done = place.pull()
            check(("no room" in done.stderr) == (size == 2**62), done)


@case
def a_full_disk_leaves_what_was_there():
    def small():
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    with Hub({NAME: DATA}) as hub, Place(hub) as place:
        bad(place.pull(preexec_fn=small), "File too large", "are kept, and the same command goes on from there")
        same(place.part().stat().st_size, 100_000)
        same(place.part().read_bytes(), DATA[:100_000])
        good(place.pull(), place)
        same(hub.asked()[-1][1].get("range"), "bytes=100000-")


@case
def ctrl_c_keeps_the_part():
    for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
        with Hub({NAME: DATA}) as hub, Place(hub) as place:
            hub.script = [give(upto=100_000, then="stall")]
            process = place.start("pull", REPO)
            wait_until(lambda: place.part().exists() and place.part().stat().st_size == 100_000, "the part grows")
            process.send_signal(number)
            out, err = process.communicate(timeout=10)
            same((process.returncode, out), (code, ""))
            check("stopped; 98 KiB are kept, and the same command goes on from there" in err, err)
            good(place.pull(), place)
            same(hub.asked()[-1][1].get("range"), "bytes=100000-")


@case
def a_terminal_has_a_bar_with_rate_and_time_left():
    data = model(4 << 20)
    with Hub({NAME: data}) as hub, Place(hub) as place:
        hub.script = [give(pause=0.06)]  # some 4 s
        with Terminal(harness.BINARY, "pull", REPO, env=place.env, columns=80) as t:
            bar = t.expect(r"\r\x1b\[K(fetch +\[#+\.+\] \d of 4 MiB  \d\.\d MiB/s  0:0\d left)")
            check(len(bar.group(1)) < 80, bar.group(1))
            t.type(CTRL_C)
            t.expect("stopped; .* are kept")
            same(t.end(), 130)
        with Terminal(harness.BINARY, "pull", REPO, env=place.env) as t:
            t.expect(NAME + r": 4\.00 MiB in .* SHA-256 as it should be")
            same(t.end(), 0)
        check(place.blob(data).read_bytes() == data)


@case
def two_at_once_fetch_it_once():
    with Hub({NAME: DATA}) as hub, Place(hub) as place:
        hub.script = [give(pause=0.2)]
        first = place.start("pull", REPO)
        wait_until(hub.asked, "the first asks")
        second = place.pull()
        first.communicate(timeout=30)
        same(first.returncode, 0)
        good(second, place)
        check("another process fetches it; waiting" in second.stderr, second.stderr)
        same(len(hub.asked()), 1)


@case
def a_token_goes_to_the_hub_alone():
    with Hub({NAME: DATA}) as hub, Hub({NAME: DATA}) as cdn, Place(hub, HF_TOKEN=TOKEN) as place:
        hub.token = TOKEN
        for host in ("localhost", "127.0.0.1"):
            shutil.rmtree(place.hub_folder, ignore_errors=True)
            hub.cdn = f"http://{host}:{cdn.port}"
            hub.requests, cdn.requests = [], []
            done = place.pull()
            good(done, place)
            check("signature" not in done.stderr, done.stderr)
            same([h.get("authorization") for _, h in hub.requests], [f"Bearer {TOKEN}"] * 2)
            same([h.get("authorization") for _, h in cdn.requests], [None])
    with Hub({NAME: DATA}) as hub, Place(hub) as place:
        hub.token = TOKEN
        (place.path / "token").write_text(f"\n {TOKEN}\n")
        good(place.pull(), place)
        place.env["HF_HUB_DISABLE_IMPLICIT_TOKEN"] = "1"
        bad(place.pull(), "HTTP 401")
        for wrong in (f"{TOKEN}\r\nX-Evil: 1", "x" * 300, "a b"):
            place.env["HF_TOKEN"] = wrong
            bad(place.pull(), "the token")
    with Hub({NAME: DATA}) as hub, Hub({NAME: DATA}) as other, Place(hub, HF_TOKEN=TOKEN) as place:
        # An address elsewhere is not the hub's, even where it begins so.
        for url in (f"{other.url}/{NAME}", f"{hub.url}@127.0.0.1:{other.port}/{NAME}"):
            check(place.pull(url, "--sha256", hash_of(DATA)).returncode == 0)
        same([h.get("authorization") for _, h in other.requests if not h.get("authorization", "Basic").startswith("Basic")], [])
    with Hub({NAME: DATA}) as proxy, Place(None, HF_TOKEN=TOKEN, http_proxy=proxy.url) as place:
        place.env["HF_ENDPOINT"] = "http://hub.example"
        place.pull()
        check("the token is not sent" in place.pull().stderr)
        same([h.get("authorization") for _, h in proxy.requests], [None] * len(proxy.requests))


@case
def a_proxy_of_the_environment_is_used():
    with Hub({NAME: DATA}) as proxy, Place(None, http_proxy=proxy.url) as place:
        place.env["HF_ENDPOINT"] = "http://hub.example"
        good(place.pull(), place)
        check(all(path.startswith("http://hub.example/") or path.startswith("/") for path, _ in proxy.requests))
        same({h["host"] for _, h in proxy.requests}, {"hub.example"})


@case
def certificates_are_checked():
    if shutil.which("openssl") is None:
        raise NotHere("no openssl to make a certificate with")
    with tempfile.TemporaryDirectory() as folder:
        cert, key = os.path.join(folder, "cert.pem"), os.path.join(folder, "key.pem")
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                        "-keyout", key, "-out", cert, "-days", "2", "-subj", "/CN=x", "-addext",
                        "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(cert, key)
        with Hub({NAME: DATA}, tls=tls) as hub, Hub({NAME: DATA}) as clear, Place(hub, HF_TOKEN=TOKEN) as place:
            bad(place.pull(), "certificate")
            place.env["SSL_CERT_FILE"] = cert
            hub.token = TOKEN
            good(place.pull(), place)
            # What began with TLS does not go on without.
            shutil.rmtree(place.hub_folder)
            hub.cdn = clear.url
            bad(place.pull(), "rotocol")
            same(clear.requests, [])


@case
def a_url_goes_into_a_folder():
    with Hub({NAME: DATA, "sp ace.gguf": DATA}) as hub, Place(None) as place:
        url = f"{hub.url}/{NAME}"
        done = place.pull(url)
        same((done.returncode, done.stdout), (0, NAME + "\n"))
        check("no SHA-256 known" in done.stderr, done.stderr)
        same((place.path / NAME).read_bytes(), DATA)
        bad(place.pull(url), f"{NAME} is there; remove it")
        same(place.pull(url, "--sha256", hash_of(DATA)).returncode, 0)
        bad(place.pull(url, "--sha256", "0" * 64), "is there with the SHA-256")
        (place.path / "dir").mkdir()
        same(place.pull(url + "?x=1", "-o", "dir", "--sha256", hash_of(DATA)).stdout, f"dir/{NAME}\n")
        same(place.pull(f"{hub.url}/sp%20ace.gguf", "-o", "dir/").stdout, "dir/sp ace.gguf\n")
        same(place.pull(url, "-o", "other.gguf").stdout, "other.gguf\n")
        bad(place.pull(url, "-o", "nowhere/x.gguf"), "nowhere/x.gguf.part: No such file")
        bad(place.pull(url, "-o", "wrong.gguf", "--sha256", "0" * 64), "the content is wrong")
        for end in ("", "/", "/..", "/%2e%2e", "/a%2fb", "/a%00b", "/%07", "/a%"):
            bad(place.pull(hub.url + end), "does not end in the name of a file", code=2)
        for scheme in ("file:///etc/passwd", "ftp://127.0.0.1/x.gguf", "gopher://127.0.0.1/x.gguf"):
            check(place.pull(scheme).returncode != 0, scheme)
        same(place.files(), ["dir/sp ace.gguf", f"dir/{NAME}", "other.gguf", NAME])
        parts = {f"s-{i:05}-of-00002.gguf": model(1000 + i) for i in (1, 2)}
        hub.files |= parts
        same(place.pull(f"{hub.url}/s-00001-of-00002.gguf").stdout, "s-00001-of-00002.gguf\n")
        same((place.path / "s-00002-of-00002.gguf").read_bytes(), parts["s-00002-of-00002.gguf"])
        bad(place.pull(f"{hub.url}/s-00002-of-00002.gguf"), "is part 2 of 2; name the first", code=2)
        bad(place.pull(f"{hub.url}/s-00001-of-00002.gguf", "--sha256", "0" * 64), "has 2 parts", code=2)


@case
def a_url_goes_on_only_with_what_it_was():
    def cut(place, hub):
        hub.script = [give(upto=100_000, then="stall")]
        process = place.start("pull", f"{hub.url}/{NAME}")
        part = place.path / f"{NAME}.part"
        wait_until(lambda: part.exists() and part.stat().st_size == 100_000, "the part grows")
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=10)

    for change in (False, True):
        with Hub({NAME: DATA}) as hub, Place(None) as place:
            cut(place, hub)
            data = model(200_000, 7) if change else DATA
            hub.files[NAME] = data
            done = place.pull(f"{hub.url}/{NAME}")
            same(done.returncode, 0)
            same((place.path / NAME).read_bytes(), data)
            same(hub.asked()[-1][1].get("range"), "bytes=100000-")
            check("if-range" in hub.asked()[-1][1], "it did not ask whether it is the same")
            same("from the start" in done.stderr, change)
            same(place.files(), [NAME])
    with Hub({NAME: DATA}) as hub, Place(None) as place:
        hub.etags = False  # nobody can tell what the part is of
        cut(place, hub)
        same(place.pull(f"{hub.url}/{NAME}").returncode, 0)
        same(hub.asked()[-1][1].get("range"), None)
        same((place.path / NAME).read_bytes(), DATA)


@case
def commands_take_hf():
    with Hub({NAME: DATA}) as hub, Place(hub) as place:
        done = place.run("run", "-hf", REPO, "-p", "hi")
        same((done.returncode, done.stdout), (0, "abcde\n"))
        check("taking tiny-Q4_K_M.gguf (none was named" in done.stderr, done.stderr)
        asked = len(hub.requests)
        for args in (["run", "-hf", f"{REPO}:Q4_K_M", "-p", "hi"], ["plan", "--hf-repo", REPO],
                     ["bench", "-hfr", REPO, "-hff", NAME, "--explain", "--bandwidth", "9"]):
            done = place.run(*args)
            check(done.returncode == 0 and done.stderr == "", done)
        same(len(hub.requests), asked)  # the cache has it
        server = place.start("serve", "-hf", REPO, "--port", "0")
        line = ""
        while "READY" not in line:
            line = server.stdout.readline()
            check(line != "", "the server ended")
        server.send_signal(signal.SIGTERM)
        server.communicate(timeout=30)
        same(server.returncode, 0)
        for command in ("run", "plan", "bench", "serve"):
            bad(place.run(command, "-hf", REPO, "-m", "x"), "two models: x and -hf", code=2)
            bad(place.run(command, "-hff", "x"), "-hff names a file", code=2)
            bad(place.run(command, "-hf", "nonsense"), "is not USER/REPO", code=2)
            bad(place.run(command, "-hf", f"{REPO}:Q9"), "there is no Q9 model")


@case
def without_the_hub_the_cache_serves():
    with Hub({"m-Q6_K.gguf": DATA}) as hub, Place(hub) as place:
        good(place.pull(), place, DATA, "m-Q6_K.gguf")
        hub.requests = []
        same(place.run("run", "-hf", REPO, "-p", "hi").returncode, 0)
        same(len(hub.requests), 1)  # nothing was named, so the hub may have what comes first
        place.env["HF_HUB_OFFLINE"] = "1"
        same(place.run("run", "-hf", REPO, "-p", "hi").stderr, "")
        bad(place.run("run", "-hf", f"{REPO}:Q8_0", "-p", "hi"), "HF_HUB_OFFLINE forbids")
        same(len(hub.requests), 1)
        del place.env["HF_HUB_OFFLINE"]
        place.env["HF_ENDPOINT"] = "http://127.0.0.1:9"
        done = place.run("run", "-hf", REPO, "-p", "hi")
        same((done.returncode, done.stdout), (0, "abcde\n"))
        check("taking what the cache has" in done.stderr, done.stderr)


@case
def list_and_rm_keep_the_books():
    files = {"m-Q8_0.gguf": model(5000, 1), "m-Q4_0.gguf": model(6000, 2)}
    with Hub(files) as hub, Place(hub) as place:
        same(place.run("list").stdout, "")
        for quant in ("Q8_0", "Q4_0"):
            same(place.pull(f"{REPO}:{quant}").returncode, 0)
        (place.repo() / "snapshots" / COMMIT / "config.json").write_text("{}")
        (place.hub_folder / "models--no" / "snapshots").mkdir(parents=True)
        (place.hub_folder / "datasets--a--b").mkdir()
        place.part(b"x").write_bytes(b"GGUF" * 512)
        lines = place.run("list").stdout.splitlines()
        same(lines, [f"{REPO}  2 KiB of a file, which a pull goes on from", f"{REPO}  m-Q4_0.gguf  6 KiB",
                     f"{REPO}  m-Q8_0.gguf  5 KiB"])
        listed = json.loads(place.run("list", "--json").stdout)
        same([e.get("file") for e in listed], ["m-Q4_0.gguf", "m-Q8_0.gguf", None])
        same(listed[0]["bytes"], 6000)
        same(pathlib.Path(listed[0]["path"]).read_bytes(), files["m-Q4_0.gguf"])
        done = place.run("rm", f"{REPO}:q8_0")
        same((done.returncode, done.stdout), (0, f"removed {REPO} m-Q8_0.gguf\n5 KiB are free again\n"))
        bad(place.run("rm", f"{REPO}:Q8_0"), f"the cache has no {REPO}:Q8_0")
        bad(place.run("rm", "x"), "is not USER/REPO", code=2)
        bad(place.run("rm"), "name a model", code=2)
        same(place.run("rm", REPO).returncode, 0)
        same(place.files(), [f"hub/models--user--repo-GGUF/{p}" for p in ("refs/main", f"snapshots/{COMMIT}/config.json")])
        (place.repo() / "snapshots" / COMMIT / "config.json").unlink()
        same(place.pull(f"{REPO}:Q8_0").returncode, 0)
        same(place.run("rm", REPO).returncode, 0)
        check(not place.repo().exists(), place.files())


@case
def a_blob_with_two_names_goes_with_the_last():
    with Hub({"a-Q8_0.gguf": DATA, "b-Q4_0.gguf": DATA}) as hub, Place(hub) as place:
        for quant in ("Q8_0", "Q4_0"):
            same(place.pull(f"{REPO}:{quant}").returncode, 0)
        same(len(hub.asked()), 1)
        same(place.run("rm", f"{REPO}:Q8_0").stdout.splitlines()[-1], "0 bytes are free again")
        check(place.blob().exists())
        same(place.run("rm", f"{REPO}:Q4_0").stdout.splitlines()[-1], "293 KiB are free again")


@case
def wrong_command_lines_are_2():
    with Place(None) as place:
        bad(place.pull("https://127.0.0.1:9/x.gguf", "--sha256", "abc"), "is not 64 hexadecimal digits", code=2)
        bad(place.pull(REPO, "-o", "x"), "-o is for a URL", code=2)
        bad(place.pull("https://127.0.0.1:9/x.gguf", "-hff", "x"), "--hf-file is for a repository", code=2)
        bad(place.run("pull"), "name a model", code=2)
        for endpoint in ("hub.example", "ftp://x", "http://a b", "http://user@x", "x" * 600):
            bad(place.pull(REPO, "--endpoint", endpoint), "is not one such as https://huggingface.co")


@case
def a_large_file_is_cut_ten_times():
    blocks = int(os.environ.get("PLIMSOLL_PULL_MIB", "24"))
    data = Large(blocks)
    with Hub({NAME: data}) as hub, Place(hub) as place:
        step = len(data) // 11 + 1
        hub.script = [give(upto=step)] * 10
        process = place.start("pull", REPO)
        most = 0
        while process.poll() is None:
            with open(f"/proc/{process.pid}/status") as file:
                found = re.search(r"VmHWM:\s+(\d+) kB", file.read())  # none once it has ended
            most = max(most, int(found.group(1)) if found else 0)
            time.sleep(0.01)
        out, err = process.communicate()
        same((process.returncode, out), (0, f"{place.repo()}/snapshots/{COMMIT}/{NAME}\n"))
        same(len(hub.asked()), 11)
        same(place.blob(data).stat().st_size, len(data))
        check("SHA-256 as it should be" in err, err)
        if not harness.sanitized():
            check(0 < most < 32 * 1024, f"it took {most} KiB")
        print(f"      {blocks} MiB in 11 pieces, at most {most / 1024:.0f} MiB resident")


sys.argv[1] = os.path.abspath(sys.argv[1])  # pulls run in folders of their own
harness.BINARY = sys.argv[1]
with Place(None) as nowhere:
    if "built without libcurl" in nowhere.pull().stderr:
        harness.skip("this program was built without libcurl")
main()
