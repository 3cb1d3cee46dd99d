# SPDX-License-Identifier: Apache-2.0
"""The real server with a real model: many clients, clients that leave, memory, refusals, shutdown.
Takes SmolLM2 from $PLIMSOLL_TEST_MODELS, else the tiny model of tests/data (same promises, text without
sense)."""
import json
import os
import pathlib
import random
import re
import resource
import signal
import subprocess
import sys
import time

import harness
from harness import NotHere, Server, case, check, main, parallel, raw_post, same, wait_until

NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
FOLDER = os.environ.get("PLIMSOLL_TEST_MODELS", "")
REAL = os.path.exists(os.path.join(FOLDER, NAME))
TINY = pathlib.Path(__file__).parent.parent / "data/models/llama-tied-q4_0.gguf"
MODEL = os.path.join(FOLDER, NAME) if REAL else str(TINY)


def start(*args):
    return Server("-c", "1024", "-np", "8", "-b", "256", *args)


def nothing_is_held(server):
    """Every block is free or cached, and the host budget is where an idle engine has it."""
    blocks = server.memory()["devices"][0]["blocks"]
    return blocks["used"] == 0 and blocks["free"] + blocks["cached"] == blocks["total"]


def leave_nothing(server):
    wait_until(lambda: nothing_is_held(server), "all blocks free or cached", 20)
    # The last bytes of an answer may still be on their way.
    wait_until(lambda: server.memory()["host"]["by_owner"]["request"] == 0, "no request's host memory", 5)
    memory = server.memory()
    same(memory["requests"], {"running": 0, "waiting": 0, "preempted": 0})
    same(memory["counters"]["allocations_in_step"], 0)
    same(memory["counters"]["audit_excess"], 0)


def complete(server, prompt, **fields):
    return server.post("/v1/completions", {"prompt": prompt, "temperature": 0, **fields}, timeout=300)


SAYS = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
HERE = {"role": "user", "content": "Where?"}
TOOL = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object", "properties": {}}}}


def calling(**fields):
    call = {"id": "call00001", "type": "function", "function": {"name": "look_up", **fields}}
    return [HERE, {"role": "assistant", "content": None, "tool_calls": [call]}]


@case
def what_the_template_leaves_out_is_refused_by_name():
    drops = "{% for m in messages if m.role != 'system' %}{{ m.content if m.content is string }}{% for t in " \
            "m.tool_calls or [] %}{% for k, v in t.function.arguments.items() %}{{ k }}{% endfor %}{% endfor %}" \
            "{% endfor %}"
    refused = (
        ("tools", {"messages": [HERE], "tools": [TOOL]}),
        ("tools[1]", {"messages": [HERE], "tools": [TOOL, "look"]}),
        ("messages[0].content", {"messages": [{"role": "system", "content": "Be brief."}, HERE]}),
        ("messages[0].content[1]", {"messages": [{"role": "system", "content": [
            {"type": "text", "text": " "}, {"type": "text", "text": "Be brief."}]}, HERE]}),
        ("messages[1].tool_calls[0].function.arguments", {"messages": calling(arguments="{\"a\": ")}),
        ("messages[1].tool_calls[0].function.arguments", {"messages": calling(arguments=5)}),
        ("messages[1].tool_calls[0].function", {"messages": [HERE, {"role": "assistant", "tool_calls": [{}]}]}),
        ("messages[1].tool_calls", {"messages": [HERE, {"role": "assistant", "tool_calls": "x"}]}),
    )
    with start("--chat-template", drops) as server:
        for param, body in refused:
            for path in ("/v1/chat/completions", "/apply-template"):
                status, answer = server.post(path, {**body, "max_tokens": 1})
                check((status, answer.get("error", {}).get("param")) == (400, param), f"{param}: {status} {answer}")
        parts = [{"type": "text", "text": "Where"}, {"type": "text", "text": "to?"}]
        same(server.post("/apply-template", {"messages": [{"role": "user", "content": parts}]})[1]["prompt"], "Where\nto?")
        same(server.post("/v1/chat/completions", {"messages": [HERE], "tools": [], "max_tokens": 1})[0], 200)
        same(server.post("/v1/chat/completions",
                         {"messages": [HERE], "tools": [TOOL], "tool_choice": "none", "max_tokens": 1})[0], 200)


@case
def a_conversation_has_one_prompt_in_all_its_spellings():
    with start("--chat-template", SAYS) as server:
        def prompt(*messages):
            status, answer = server.post("/apply-template", {"messages": list(messages)})
            check(status == 200, answer)
            return answer["prompt"]
        said = [{"role": "user", "content": c} for c in ("Hi.", [{"type": "text", "text": "Hi."}])]
        same({prompt(m) for m in said}, {"<user>Hi."})
        calls = [{"role": "assistant", "tool_calls": calling()[1]["tool_calls"], **extra}
                 for extra in ({}, {"content": None}, {"content": ""}, {"content": []})]
        same({prompt(HERE, m) for m in calls}, {"<user>Where?<assistant>"})
        same(prompt({"role": "developer", "content": "Be brief."}, HERE), "<system>Be brief.<user>Where?")


@case
def the_start_prints_the_plan_and_memory_adds_up():
    with start() as server:
        check("load line" in server.text(), server.text())
        m = server.memory()
        check(m["devices"][0]["id"].startswith(harness.DEVICE or ""), m["devices"])
        device = m["devices"][0]
        check(m["ready"] and m["sealed"], m)
        same(sum(device["by_owner"].values()), device["used_bytes"])
        check(device["high_water_bytes"] <= device["limit_bytes"], device)
        blocks = device["blocks"]
        same(blocks["used"] + blocks["cached"] + blocks["free"], blocks["total"])
        same(sum(m["host"]["by_owner"].values()), m["host"]["used_bytes"])
        leave_nothing(server)


@case
def sixty_four_streams_at_once_equal_those_made_alone():
    with start() as server:
        prompts = [f"Story number {i}: once upon a time there was" for i in range(64)]
        alone = [complete(server, p, max_tokens=12)[1]["choices"][0]["text"] for p in prompts[:16]]

        def one(prompt):
            s = server.stream("/v1/completions", {"prompt": prompt, "temperature": 0, "max_tokens": 12, "stream": True},
                              timeout=300)
            same(s.head(), 200)
            return s.text()

        results = parallel(one, prompts)
        same([text for text, _ in results][:16], alone)
        check(all(finish in ("stop", "length") for _, finish in results), results)
        leave_nothing(server)


@case
def two_hundred_clients_leave_and_nothing_stays():
    with start() as server:
        rng = random.Random(1)
        plans = [(rng.random() * 0.8, rng.random() < 0.5, rng.randrange(1, 400)) for _ in range(200)]

        def one(plan):
            wait, stream, words = plan
            s = server.connect()
            body = json.dumps({"prompt": f"{wait} " + "word " * words, "max_tokens": 200, "ignore_eos": True,
                               "stream": stream}).encode()
            s.sendall(raw_post("/v1/completions", body))
            time.sleep(wait)
            s.close()

        parallel(one, plans)
        leave_nothing(server)
        same(complete(server, "hi", max_tokens=4)[0], 200)


@case
def a_client_that_leaves_beside_others_is_dropped_at_once():
    if not REAL:
        raise NotHere("the tiny model has answered before anybody could leave")
    with start() as server:
        others = [server.stream("/v1/completions", {"prompt": f"{i}", "max_tokens": 500, "ignore_eos": True, "stream": True})
                  for i in range(2)]
        for s in others:
            same(s.head(), 200)
        for body in ({"prompt": "word " * 900, "max_tokens": 100},                      # in its prefill
                     {"prompt": "hello", "max_tokens": 900, "ignore_eos": True}):       # not streaming
            s = server.connect()
            data = json.dumps(body).encode()
            s.sendall(raw_post("/v1/completions", data))
            wait_until(lambda: server.memory()["requests"]["running"] == 3, "three run")
            s.close()
            begin = time.monotonic()
            wait_until(lambda: server.memory()["requests"]["running"] == 2, "two run", 10)
            took = time.monotonic() - begin
            check(took < 3, f"noticed after {took:.1f} s")
        for s in others:
            s.close()
        leave_nothing(server)


@case
def a_thousand_requests_allocate_nothing():
    with start() as server:
        before = server.memory()["devices"][0]["used_bytes"]
        rng = random.Random(2)

        def one(i):
            for k in range(50):
                kind = rng.randrange(5)
                if kind == 0:
                    status, _ = complete(server, f"{i} {k} " + "a " * rng.randrange(60), max_tokens=rng.randrange(1, 6))
                    same(status, 200)
                elif kind == 1:
                    status, a = server.chat("Hello", max_tokens=2, n=2, logprobs=True, top_logprobs=2,
                                            ignore_eos=True)
                    same((status, a["usage"]["completion_tokens"]), (200, 4))
                elif kind == 2:
                    s = server.stream("/v1/chat/completions", {"messages": [{"role": "user", "content": f"{k}"}],
                                                               "max_tokens": 3, "stream": True})
                    same(s.head(), 200)
                    s.text()
                elif kind == 3:
                    same(complete(server, "x " * 3000)[0], 400)
                else:
                    same(server.post("/tokenize", {"content": "hello"})[0], 200)

        parallel(one, range(20))
        memory = server.memory()
        same(memory["devices"][0]["used_bytes"], before)
        same(memory["counters"]["resizes"], 0)
        leave_nothing(server)


@case
def a_text_ends_before_half_a_character():
    """Prompts that SmolLM2 goes on with emoji, Japanese and Tamil, whose characters it spells in several tokens."""
    cuts = 0
    with start() as server:
        for prompt in "\U0001F44B" * 10, "\u65e5\u672c\u8a9e" * 5, "\u0bb5\u0ba3\u0b95\u0bcd\u0b95\u0bae\u0bcd " * 6:
            whole = complete(server, prompt, max_tokens=24, ignore_eos=True)[1]["choices"][0]["text"]
            for n in range(1, 13):
                fields = {"prompt": prompt, "max_tokens": n, "temperature": 0, "ignore_eos": True, "logprobs": 1}
                _, answer = server.post("/v1/completions", fields)
                choice = answer["choices"][0]
                text = choice["text"]
                check(not REAL or "\ufffd" not in text and whole.startswith(text), f"{n}: {text!r} of {whole!r}")
                same(answer["usage"]["completion_tokens"], n)
                same(len(choice["logprobs"]["tokens"]), n)
                stream = server.stream("/v1/completions", {**fields, "stream": True})
                same(stream.head(), 200)
                same(stream.text()[0], text)
                cuts += len(text) < len(whole)
    print(f"  {cuts} cuts, each before half a character and the same as a stream")
    # The prompt that echo repeats is cut, too: byte tokens of the first half of a character.
    with start() as server:
        ids = server.post("/tokenize", {"content": "\U0001F44B", "add_special": False})[1]["tokens"]
        if REAL:
            check(len(ids) > 1, ids)
            _, answer = server.post("/v1/completions", {"prompt": ids[:1], "echo": True, "max_tokens": 1,
                                                        "logit_bias": {str(ids[0]): 100}})
            same(answer["choices"][0]["text"], "")


@case
def beyond_the_context_is_400_with_both_counts():
    with start() as server:
        status, a = complete(server, "word " * 2000)
        error = a["error"]
        same((status, error["code"], error["n_ctx"]), (400, "context_length_exceeded", 1024))
        check(error["n_prompt_tokens"] >= 2000, error)
        check("maximum context length" in error["message"], error)
        # Prompt plus answer.
        status, a = complete(server, "hello", max_tokens=1024)
        same((status, a["error"]["code"]), (400, "context_length_exceeded"))
        same(complete(server, "hello", max_tokens=2 ** 31 - 1, n=128)[0], 400)
        status, a = server.chat("word " * 2000, stream=True)
        same((status, a["error"]["code"]), (400, "context_length_exceeded"))
        leave_nothing(server)


@case
def what_never_fits_comes_with_an_offer_that_is_taken():
    # 20 blocks in all: one full request of the context does not fit n times.
    with Server("-c", "256", "-np", "4", "-b", "64", "--max-total-tokens", "320") as server:
        context = server.get("/v1/models")[1]["data"][0]["max_model_len"]
        got, headers, body = server.request(
            "POST", "/v1/completions", {"prompt": "hello", "max_tokens": context - 20, "n": 16, "ignore_eos": True})
        error = json.loads(body)["error"]
        same((got, error["code"], headers.get("x-should-retry")), (400, "memory_budget_exceeded", "false"))
        check(error["needed_bytes"] > error["limit_bytes"] > 0, error)
        offer = error["offer"]
        check(offer["n"] >= 1 and offer["max_tokens"] >= 1, error)
        status, a = complete(server, "hello", max_tokens=offer["max_tokens"], n=offer["n"], temperature=1, timeout=300)
        same(status, 200)
        leave_nothing(server)


@case
def a_full_queue_is_503_with_a_time():
    with start("--queue-max", "2", "-np", "1") as server:
        def one(i):
            return server.request("POST", "/v1/completions", {"prompt": f"{i}", "max_tokens": 100, "ignore_eos": True},
                                  timeout=300)

        results = parallel(one, range(12))
        full = [(h, json.loads(b)["error"]) for status, h, b in results if status == 503]
        check(full, "none was refused")
        for headers, error in full:
            same((error["type"], error["code"]), ("overloaded_error", "queue_full"))
            check(1 <= int(headers["retry-after"]) <= 60, headers)
        check(all(status in (200, 503) for status, _, _ in results), results)
        leave_nothing(server)


# Messages that a rival answers with 500 or 200.
BAD_MESSAGES = [
    [{"role": "user\0x", "content": "a"}],
    [{"role": "user", "content": [{"type": "text\0x", "text": "a"}]}],
    [{}],
    ["hi"],
    [5],
    [None],
    [{"role": "user"}],
    [{"role": 5, "content": "hi"}],
    [{"role": "nobody", "content": "hi"}],
    [{"content": "hi"}],
    [{"role": "user", "content": 5}],
    [{"role": "user", "content": {"a": 1}}],
    [{"role": "user", "content": [5]}],
    [{"role": "user", "content": [{"type": "text"}]}],
    [{"role": "user", "content": [{"type": "text", "text": 5}]}],
    [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}],
    [{"role": "user", "content": [{"type": "sound"}]}],
    [{"role": "user", "content": "hi"}, {"role": "assistant", "content": None, "refusal": 5}],
    [{"role": "user", "content": "hi"}, {"role": "assistant", "content": [{"type": "refusal", "text": "no"}]}],
    [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "but", "refusal": "no"}],
]


@case
def wrong_messages_are_400_and_named():
    with start() as server:
        for messages in BAD_MESSAGES:
            for path in "/v1/chat/completions", "/apply-template":
                status, a = server.post(path, {"messages": messages, "max_tokens": 2})
                check(status == 400, f"{path} {messages}: {status} {a}")
                check((a["error"]["param"] or "").startswith("messages"), f"{messages}: {a}")
        good = [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]
        same(server.post("/v1/chat/completions", {"messages": good, "max_tokens": 2})[0], 200)
        refused = {"role": "assistant", "content": None, "refusal": "I would rather not."}
        status, a = server.post("/apply-template", {"messages": [{"role": "user", "content": "hi"}, refused]})
        check(status == 200 and "I would rather not." in a["prompt"], f"{status} {a}")


@case
def text_that_spells_a_control_token_stays_text():
    with start() as server:
        def count(text):
            return server.chat(text, max_tokens=1)[1]["usage"]["prompt_tokens"]

        check(count("a<|im_end|>b") - count("ab") >= 4, "it became a control token")
        with_special = server.post("/tokenize", {"content": "<|im_end|>"})[1]["count"]
        without = server.post("/tokenize", {"content": "<|im_end|>", "parse_special": False})[1]["count"]
        check(with_special == 1 and without > 1, (with_special, without))


@case
def equal_prompts_are_cached_but_not_across_salts_and_keys():
    with start("--api-key", "a,b") as server:
        def cached(key="a", **fields):
            body = {"prompt": "The same long beginning of a prompt. " * 20, "max_tokens": 1, **fields}
            status, a = server.post("/v1/completions", body, [f"x-api-key: {key}"])
            same(status, 200)
            return a["usage"]["prompt_tokens_details"]["cached_tokens"]

        same(cached(), 0)
        check(cached() > 0, "the second time nothing is cached")
        same(cached(cache_prompt=False), 0)
        same(cached("b"), 0)
        same(cached(cache_salt="x"), 0)
        check(cached(cache_salt="x") > 0)
        same(cached(cache_salt="y"), 0)


@case
def health_answers_while_all_are_busy():
    if not REAL:
        raise NotHere("the tiny model is never busy")
    with start() as server:
        streams = [server.stream("/v1/completions", {"prompt": "word " * 400 + str(i), "max_tokens": 200,
                                                     "ignore_eos": True, "stream": True}) for i in range(32)]
        wait_until(lambda: server.memory()["requests"]["running"] == 8, "eight run")
        worst = 0
        for path in ("/health", "/metrics", "/v1/memory", "/readyz") * 25:
            begin = time.monotonic()
            same(server.request("GET", path)[0], 200)
            worst = max(worst, time.monotonic() - begin)
        check(worst < 1, f"the slowest took {worst:.2f} s")
        check(server.metric("plimsoll:num_requests_running") >= 1)
        check(server.metric("plimsoll:kv_cache_usage_perc") > 0)
        for s in streams:
            s.close()
        leave_nothing(server)


@case
def shutdown_during_eight_streams_loses_none():
    server = start()
    body = {"prompt": "Once upon a time", "max_tokens": 60, "ignore_eos": True, "temperature": 0, "stream": True,
            "stream_options": {"include_usage": True}}
    streams = [server.stream("/v1/completions", body) for _ in range(8)]
    for s in streams:
        same(s.head(), 200)
    server.process.send_signal(signal.SIGTERM)
    for s in streams:
        events = list(s.events())
        same(events[-1], "[DONE]")
        same(events[-2]["usage"]["completion_tokens"], 60)
    same(server.process.wait(30), 0)


@case
def a_body_of_20_mb_leaves_the_server_as_it_was():
    big = json.dumps({"messages": [{"role": "user", "content": "word " * (4 << 20)}]}).encode()
    fits = json.dumps({"messages": [{"role": "user", "content": "word " * (2 << 20)}]}).encode()
    with start("--host-limit", "256MiB") as server:  # whose eighth is more than either body
        stream = server.stream("/v1/completions", {"prompt": "a", "max_tokens": 900, "ignore_eos": True, "stream": True})
        same(stream.head(), 200)
        before = server.rss()
        same(server.request("POST", "/v1/chat/completions", big[:1000], ["X-Note: small"])[0], 400)
        peak = [0]

        def watch(_):
            end = time.monotonic() + 4
            while time.monotonic() < end:
                peak[0] = max(peak[0], server.rss())
                time.sleep(0.002)

        def ask(_):
            return server.request("POST", "/v1/chat/completions", fits)

        status, _, body = parallel(lambda f: f(None), [watch, ask])[1]
        error = json.loads(body)["error"]
        check((status, error["code"]) in [(400, "context_length_exceeded"), (400, "memory_budget_exceeded")], error)
        limit = server.memory()["host"]["limit_bytes"]
        check(harness.sanitized() or peak[0] - before < limit, f"{peak[0] - before} bytes more at the peak, of {limit}")
        print(f"      a body of {len(fits) >> 20} MiB: {status} {error['code']}, {(peak[0] - before) >> 20} MiB at the peak")
        stream.close()
        leave_nothing(server)


@case
def many_large_bodies_at_once_stay_within_the_host_budget():
    with start("--memory-limit", "1GiB", "--host-limit", "64MiB", "--max-total-tokens", "4096") as server:
        same(complete(server, "warm", max_tokens=4)[0], 200)
        # The kernel's peak from here on: the start held the ballast besides.
        with open(f"/proc/{server.process.pid}/clear_refs", "w") as f:
            f.write("5")
        before, limit = server.rss(), server.memory()["host"]["limit_bytes"]
        body = b'{"messages":[{"role":"user","content":"' + b"ab " * (2 << 20) + b'"}]}'
        for _ in range(2):
            answers = parallel(lambda _: server.request("POST", "/v1/chat/completions", body)[0], range(20))
            check(set(answers) <= {400, 503}, answers)
        with open(f"/proc/{server.process.pid}/status") as f:
            peak = int(re.search(r"VmHWM:\s+(\d+)", f.read()).group(1)) * 1024
        check(harness.sanitized() or peak - before < limit + (16 << 20), f"{peak - before} bytes more at the peak, of {limit}")
        check(harness.sanitized() or server.rss() - before < 16 << 20, f"{server.rss() - before} bytes stay")
        leave_nothing(server)


@case
def memory_of_large_trees_goes_back():
    tools = [{"type": "function", "function": {"name": f"f{i}", "parameters": {
        "type": "object", "properties": {f"p{k}": {"type": "string"} for k in range(20)}}}} for i in range(1100)]
    with start("--host-limit", "128MiB") as server:
        same(complete(server, "warm", max_tokens=4)[0], 200)
        before = server.rss()
        body = {"messages": [{"role": "user", "content": "hi"}], "tools": tools, "max_tokens": 4}
        statuses = parallel(lambda _: server.post("/v1/chat/completions", body)[0], range(20))
        check(set(statuses) <= {200, 400, 503}, statuses)
        leave_nothing(server)
        wait_until(lambda: harness.sanitized() or server.rss() - before < 8 << 20, "memory goes back", 3)


@case
def sixty_four_idle_streams_cost_little():
    with start("--queue-max", "128") as server:
        same(complete(server, "warm", max_tokens=4)[0], 200)
        # All but eight wait in the queue behind answers that never end within the test.
        before = server.held()
        streams = [server.stream("/v1/completions", {"prompt": f"{i}", "max_tokens": 1000, "ignore_eos": True,
                                                     "stream": True}) for i in range(64)]
        time.sleep(2)
        each = (server.held() - before) / 64
        check(harness.sanitized() or each <= (64 << 10) + resource.getpagesize(), f"{each:.0f} bytes each")
        print(f"      64 clients, 8 running: {each / 1024:.1f} KiB each")
        for s in streams:
            s.close()
        leave_nothing(server)


@case
def sixty_four_streams_on_two_busy_cores_all_complete():
    # Eight run at once, so that most wait for the whole time, and each is let wait for as long as it takes.
    tokens = 80 if REAL else 200
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    try:
        with start("-t", "2", "--queue-max", "64") as server:
            begin = time.monotonic()
            waits = []

            def stream(i):
                s = server.stream("/v1/completions", {"prompt": f"Story {i}: once upon a time", "max_tokens": tokens,
                                                      "ignore_eos": True, "stream": True,
                                                      "stream_options": {"include_usage": True}}, timeout=600)
                same(s.head(), 200)
                waits.append(time.monotonic() - begin)
                events = list(s.events())
                s.close()
                return events[-1], events[-2]["usage"]["completion_tokens"]
            same(parallel(stream, range(64)), [("[DONE]", tokens)] * 64)
            print(f"      64 of 64 streams of {tokens} tokens complete beside two busy processes in "
                  f"{time.monotonic() - begin:.0f} s; the last was admitted after {max(waits):.0f} s")
            leave_nothing(server)
            memory = server.memory()
            same(memory["counters"]["refused_now"] + memory["counters"]["refused_queue"], 0)
    finally:
        for process in busy:
            process.kill()
            process.wait()


@case
def a_short_request_does_not_wait_for_all_choices_of_another():
    with start() as server:
        s = server.stream("/v1/completions", {"prompt": "Once", "n": 8, "max_tokens": 900, "ignore_eos": True,
                                              "stream": True})
        same(s.head(), 200)
        wait_until(lambda: server.memory()["requests"]["running"] == 8, "all sequences run", 60)
        for i in range(3):
            status, answer = complete(server, f"Two words {i}", max_tokens=2)
            same((status, answer["usage"]["completion_tokens"] <= 2), (200, True))
        requests = server.memory()["requests"]
        check(requests["running"] + requests["waiting"] == 8, f"the choices are over: {requests}")
        s.close()
        leave_nothing(server)


@case
def what_can_never_fit_is_told_so_by_an_idle_server():
    with start("--host-limit", "64MiB", "--max-total-tokens", "4096") as server:
        limit = 8 << 20

        def refused(path, body, code, timeout=60):
            status, headers, data = server.request("POST", path, body, timeout=timeout)
            error = json.loads(data)["error"]
            same((status, error["code"], headers.get("retry-after")), (400, code, None))
            if code == "memory_budget_exceeded":
                same((error["term"], headers["x-should-retry"]), ("host", "false"))
                check(error["needed_bytes"] > error["limit_bytes"] == 64 << 20, error)

        refused("/v1/completions", {"prompt": "the sea " * (limit // 8 - 20)}, "context_length_exceeded")
        messages = [{"role": "user", "content": "a"}] * 50000
        refused("/v1/chat/completions", {"messages": messages}, "memory_budget_exceeded")
        text = "".join(random.choices("qzxjkv#%&", k=limit - 200))
        refused("/tokenize", {"content": text}, "memory_budget_exceeded")
        refused("/apply-template", {"messages": [{"role": "user", "content": text}]}, "memory_budget_exceeded")
        hi = [{"role": "user", "content": "hi"}]
        tools = [{"type": "function", "function": {"name": "f", "parameters": {"a": [1] * 250000, "b": "x" * (7 << 20)}}}]
        refused("/v1/chat/completions", {"messages": hi, "tools": tools}, "memory_budget_exceeded")
        leave_nothing(server)


# ---- starts that fail ----

def plan(*args):
    """(exit status, stderr) of a plan with these flags."""
    done = subprocess.run([harness.BINARY, "plan", "-m", MODEL, *harness.on_device(), *args], capture_output=True, text=True, timeout=120)
    return done.returncode, done.stderr


@case
def failed_starts_speak_of_flags():
    for args, says in ((["-np", "4096"], "-b is 512; it must be at least -np (4096)"),
                       (["-c", "16777216"], "-c is 16777216, but the model was trained for")):
        status, text = plan(*args)
        check(status == 1 and says in text, f"{args}: {status} {text}")


@case
def a_host_limit_that_is_too_small_is_named_with_one_that_works():
    for limit in "1", "1MiB", "5MiB":
        status, text = plan("-c", "1024", "--host-limit", limit)
        found = re.search(r"--host-limit at least (\w+) starts", text)
        check(status == 1 and found, f"{limit}: {status} {text}")
        with start("--host-limit", found.group(1)) as server:
            same(complete(server, "hi", max_tokens=4)[0], 200)


@case
def a_pinned_size_that_can_not_be_names_one_that_starts():
    for args in ["--max-total-tokens", "1"], ["--max-total-tokens", "16", "-np", "2"], \
            ["--max-total-tokens", str(1 << 34), "--memory-limit", "600MiB"]:
        before = time.monotonic()
        status, text = plan(*args)
        check(time.monotonic() - before < 5, "this is known before the load")
        found = re.search(r"any one of these starts: .*--max-total-tokens (\d+)", text)
        check(status == 1 and found, f"{args}: {status} {text}")
        check(int(args[1]) > 16 or "but -np " in text and "missing" not in text and "(needs" not in text, text)
        status, text = plan(*args, "--max-total-tokens", found.group(1))
        again = re.search(r"any one of these starts: .*--max-total-tokens (\d+)", text)
        if harness.DEVICE and status == 1 and again:
            # A driver takes memory for kernels as they load: what was offered before may be more than there is.
            check(int(again.group(1)) < int(found.group(1)), text)
            status, text = plan(*args, "--max-total-tokens", again.group(1))
        check(status == 0, f"{args}: {status} {text}")


@case
def a_pinned_size_below_the_context_asked_for_is_named_with_it():
    status, text = plan("-c", "1024", "--max-total-tokens", "512")
    check(status != 0 and "1024" in text and "--max-total-tokens pins the KV cache to 512" in text, text)


if __name__ == "__main__":
    main(MODEL)
