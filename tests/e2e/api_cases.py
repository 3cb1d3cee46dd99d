# SPDX-License-Identifier: Apache-2.0
"""The OpenAI API: fields, refusals, streams, clients that leave, shutdown. Runs on the pretended
engine, which is steered by words in the prompt (tests/support/fake_engine.c)."""
import json
import re
import resource
import signal
import socket
import threading
import time

import harness
from harness import (Reader, Server, case, check, main, parallel, raw_post, read_head, read_response, same,
                     wait_until)

HI = [{"role": "user", "content": "hi"}]


def nested(depth):
    return "[" * depth + "]" * depth


# Bodies that are refused with 400 before anything else happens: (body, word in the message).
BAD_JSON = [
    (b"", "too early"),
    (b"null", "not an object"),
    (b"[]", "not an object"),
    (b'"x"', "not an object"),
    (b"{", "key"),
    (b"{'a':1}", "double quotes"),
    (b'{"a":1,}', "double quotes"),
    (b'{"a":[1,]}', "value is missing"),
    (b'{"a":NaN}', "value is missing"),
    (b'{"a":Infinity}', "value is missing"),
    (b'{"a":-Infinity}', "number"),
    (b'{"a":01}', "number"),
    (b'{"a":1.}', "number"),
    (b'{"a":.5}', "value is missing"),
    (b'{"a":+1}', "value is missing"),
    (b'{"a":1e}', "number"),
    (b'{"a":0x10}', "comma"),
    (b'{"a":tru}', "unknown word"),
    (b'{"a":1}{"b":2}', "follows"),
    (b'{"a":1} x', "follows"),
    (b'\xef\xbb\xbf{"a":1}', "value is missing"),
    (b'{"a":"\xff"}', "UTF-8"),
    (b'{"a":"\xc0\x80"}', "UTF-8"),
    (b'{"a":"\xed\xa0\x80"}', "UTF-8"),
    (b'{"a":"\\ud800"}', "surrogate"),
    (b'{"a":"\\udc00"}', "surrogate"),
    (b'{"a":"\\ud800\\u0041"}', "surrogate"),
    (b'{"a":"\\x41"}', "escape"),
    (b'{"a":"\n"}', "control character"),
    (b'{"a":"\x00"}', "control character"),
    (b'{"a":1,"a":2}', "twice"),
    (b'{"a":1,"\\u0061":2}', "twice"),
    (b'{"x":{"b":1,"c":2,"b":3}}', "twice"),
    (b'{"logit_bias":{"5\\u0000x":1}}', "NUL"),
    (b'{"a":' + nested(64).encode() + b"}", "deep"),
    (b'{"a":' + nested(100000).encode() + b"}", "deep"),
    (b'{"a":[' + b"1," * 300000 + b"1]}", "values"),
    (b"{" + b",".join(b'"k%d":1' % i for i in range(300)) + b"}", "fields"),
]


@case
def bad_json_is_400():
    with Server() as server:
        for path in "/v1/chat/completions", "/v1/completions", "/tokenize", "/detokenize", "/apply-template":
            for body, word in BAD_JSON:
                status, answer = server.post(path, body)
                check(status == 400 and answer["error"]["type"] == "invalid_request_error",
                      f"{path} {body[:60]}: {status} {answer}")
                check(word in answer["error"]["message"], f"{body[:60]}: {answer}")


@case
def json_that_is_deep_or_odd_but_right():
    with Server() as server:
        for extra in [b'"x":' + nested(63).encode(), b'"x":"\\ud83d\\ude00\\u0000\\/"', b'"x":-0.0e-10',
                      b'"x":[{"a":1},{"a":1}]', b'"":{"":{}}', b' "x" : [ ] \r\n\t']:
            body = b'{"messages":[{"role":"user","content":"hi"}],' + extra + b"}"
            status, answer = server.post("/v1/chat/completions", body)
            check(status == 200, f"{extra}: {answer}")


# (fields, the param that the error must name)
BAD_FIELDS = [
    ({"messages": None}, "messages"),
    ({"messages": []}, "messages"),
    ({"messages": "hi"}, "messages"),
    ({"messages": {}}, "messages"),
    ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
    ({"model": 5}, "model"),
    ({"temperature": -1}, "temperature"),
    ({"temperature": 2.1}, "temperature"),
    ({"temperature": "1"}, "temperature"),
    ({"temperature": 1e999}, None),
    ({"top_p": 2}, "top_p"),
    ({"top_p": -0.1}, "top_p"),
    ({"min_p": 1.5}, "min_p"),
    ({"top_k": -2}, "top_k"),
    ({"top_k": 1.5}, "top_k"),
    ({"repeat_penalty": 0}, "repeat_penalty"),
    ({"frequency_penalty": 3}, "frequency_penalty"),
    ({"presence_penalty": [1]}, "presence_penalty"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": -2}, "max_tokens"),
    ({"max_tokens": 2 ** 31}, "max_tokens"),
    ({"max_tokens": 2 ** 64}, "max_tokens"),
    ({"max_tokens": True}, "max_tokens"),
    ({"max_completion_tokens": "5"}, "max_completion_tokens"),
    ({"min_tokens": 6, "max_tokens": 5}, "min_tokens"),
    ({"n": 0}, "n"),
    ({"n": 129}, "n"),
    ({"n": 10 ** 30}, "n"),
    ({"n": 1.5}, "n"),
    ({"seed": 1.5}, "seed"),
    ({"seed": "x"}, "seed"),
    ({"seed": 2 ** 64}, "seed"),
    ({"stream": 1}, "stream"),
    ({"stream": "true"}, "stream"),
    ({"stream_options": {"include_usage": True}}, "stream_options"),
    ({"stream": True, "stream_options": 5}, "stream_options"),
    ({"stream": True, "stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
    ({"stop": ""}, "stop"),
    ({"stop": [""]}, "stop"),
    ({"stop": 5}, "stop"),
    ({"stop": ["a", 5]}, "stop[1]"),
    ({"stop": ["a"] * 17}, "stop"),
    ({"bad_words": 5}, "bad_words"),
    ({"bad_words": [""]}, "bad_words"),
    ({"bad_words": ["a", None]}, "bad_words[1]"),
    ({"bad_words": ["a"] * 65}, "bad_words"),
    ({"logit_bias": []}, "logit_bias"),
    ({"logit_bias": {"x": 1}}, "logit_bias"),
    ({"logit_bias": {"-1": 1}}, "logit_bias"),
    ({"logit_bias": {"300": 1}}, "logit_bias"),
    ({"logit_bias": {"99999999999999999999": 1}}, "logit_bias"),
    ({"logit_bias": {"5": "x"}}, "logit_bias"),
    ({"logit_bias": {"5": 101}}, "logit_bias"),
    ({"logprobs": 5}, "logprobs"),
    ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    ({"top_logprobs": 2}, "top_logprobs"),
    ({"ignore_eos": "no"}, "ignore_eos"),
    ({"cache_prompt": 1}, "cache_prompt"),
    ({"cache_salt": 1}, "cache_salt"),
    ({"cache_salt": "x" * 500}, "cache_salt"),
    ({"chat_template": "{{ messages }}"}, "chat_template"),
    ({"chat_template_kwargs": []}, "chat_template_kwargs"),
    ({"response_format": "text"}, "response_format"),
    ({"response_format": {"type": "xml"}}, "response_format.type"),
    ({"response_format": {"type": "json_object"}}, "response_format"),
    ({"response_format": {"type": "json_schema", "json_schema": {}}}, "response_format"),
    ({"tools": {}}, "tools"),
    ({"tools": ["x"]}, "tools[0]"),
    ({"tools": [{"function": {"name": "f"}}]}, "tools[0].type"),
    ({"tools": [{"type": "function"}]}, "tools[0].function"),
    ({"tools": [{"type": "function", "function": {"name": 5}}]}, "tools[0].function.name"),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"tool_choice": "sometimes"}, "tool_choice"),
    ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, "tool_choice"),
    ({"tool_choice": 5}, "tool_choice"),
    ({"functions": [{"name": "f"}]}, "functions"),
    ({"function_call": "auto"}, "function_call"),
    ({"grammar": "root ::= [a-z]"}, "grammar"),
    ({"guided_json": {}}, "guided_json"),
    ({"modalities": ["text", "audio"]}, "modalities"),
    ({"audio": {"voice": "x"}}, "audio"),
    ({"parallel_tool_calls": "yes"}, "parallel_tool_calls"),
    ({"echo": True}, "echo"),
]


@case
def wrong_fields_are_400_and_named():
    with Server() as server:
        for fields, param in BAD_FIELDS:
            body = json.dumps({"messages": HI, **fields}).replace("Infinity", "1e999").encode()
            status, answer = server.post("/v1/chat/completions", body)
            check(status == 400, f"{fields}: {status} {answer}")
            check(param is None or answer["error"]["param"] == param, f"{fields}: {answer}")
        status, answer = server.chat("hi", model="gpt-4")
        same((status, answer["error"]["code"], answer["error"]["param"]), (404, "model_not_found", "model"))


@case
def wrong_completion_fields_are_400_and_named():
    with Server() as server:
        for fields, param in [
            ({}, "prompt"),
            ({"prompt": 5}, "prompt"),
            ({"prompt": []}, "prompt"),
            ({"prompt": [[]]}, "prompt"),
            ({"prompt": ["a", "b"]}, "prompt"),
            ({"prompt": [1, "a"]}, "prompt[1]"),
            ({"prompt": [1, -1]}, "prompt[1]"),
            ({"prompt": [300]}, "prompt[0]"),
            ({"prompt": [1.5]}, "prompt"),
            ({"prompt": "a", "logprobs": True}, "logprobs"),
            ({"prompt": "a", "logprobs": 21}, "logprobs"),
            ({"prompt": "a", "echo": True, "logprobs": 1}, "echo"),
            ({"prompt": "a", "best_of": 3}, "best_of"),
            ({"prompt": "a", "suffix": "b"}, "suffix"),
        ]:
            status, answer = server.post("/v1/completions", fields)
            check(status == 400 and answer["error"]["param"] == param, f"{fields}: {status} {answer}")


@case
def harmless_fields_are_taken():
    with Server() as server:
        for fields in [
            {"user": "me", "store": False, "metadata": {"a": "b"}, "service_tier": "auto", "prediction": None},
            {"temperature": None, "stop": None, "logit_bias": None, "tools": None, "tool_choice": None},
            {"unknown": {"deep": [1, 2]}, "timings_per_token": True},
            {"tools": [], "tool_choice": "auto"},
            {"tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": "none"},
            {"response_format": {"type": "text"}, "modalities": ["text"], "function_call": "none"},
            {"seed": -1, "top_k": -1, "n": 1.0, "max_tokens": 1e1, "temperature": 0},
            {"seed": 2 ** 64 - 1, "logit_bias": {"5": -100, "299": 100}},
            {"stop": "x"}, {"stop": ["x"] * 16}, {"cache_salt": "s", "cache_prompt": False},
            {"chat_template_kwargs": {"enable_thinking": False}, "add_generation_prompt": True},
            {"model": "Fake model"}, {"model": "fake.gguf"}, {"model": "fake"},
        ]:
            status, answer = server.chat("hi", **fields)
            check(status == 200, f"{fields}: {answer}")


@case
def names_of_the_model():
    with Server("-a", "one", "--alias", "two") as server:
        same([m["id"] for m in server.get("/v1/models")[1]["data"]], ["one", "two"])
        same([server.get(f"/v1/models/{name}")[1]["id"] for name in ("one", "two", "fake")], ["one", "two", "fake"])
        for name in "one", "two", "Fake model", "fake":
            status, answer = server.chat("hi", model=name)
            same((status, answer["model"]), (200, "one"))
        model = server.get("/v1/models")[1]["data"][0]
        same((model["max_model_len"], model["meta"]["n_ctx"]), (4096, 4096))


@case
def refusals_by_the_table():
    with Server() as server:
        for word, status, kind, code, retry in [
            ("@never", 400, "invalid_request_error", "memory_budget_exceeded", None),
            ("@now", 503, "overloaded_error", "insufficient_memory", "7"),
            ("@queue", 503, "overloaded_error", "queue_full", "7"),
            ("@host", 503, "overloaded_error", "insufficient_memory", "7"),
            ("@closed", 503, "unavailable_error", "draining", "7"),
            ("@late @wait=50", 503, "overloaded_error", "insufficient_memory", "3"),
        ]:
            for stream in False, True:
                got, headers, body = server.request(
                    "POST", "/v1/chat/completions",
                    {"messages": [{"role": "user", "content": word}], "stream": stream})
                error = json.loads(body)["error"]
                same((got, error["type"], error["code"]), (status, kind, code))
                same(headers.get("retry-after"), retry)
                same(headers.get("x-should-retry"), "false" if word == "@never" else None)
                if word in ("@never", "@now"):
                    same((error["needed_bytes"], error["limit_bytes"]), (2000, 1000))
                    same(error["offer"], {"prompt_tokens": 10, "max_tokens": 20, "n": 1})
                if word == "@queue":  # counted in requests, not in bytes
                    same((error["needed"], error["limit"], error["term"]), (2000, 1000, "kv"))
                    same(error["offer"], {"prompt_tokens": 10, "max_tokens": 20, "n": 1})
                    check("needed_bytes" not in error, error)
    with Server("--overload-status", "429") as server:
        same(server.chat("@queue")[0], 429)
        same(server.chat("@now")[0], 429)


@case
def a_prompt_beyond_the_context_says_both_counts():
    with Server("-c", "64") as server:
        status, answer = server.chat("x" * 65)
        error = answer["error"]
        same((status, error["code"], error["n_prompt_tokens"], error["n_ctx"]),
             (400, "context_length_exceeded", 65, 64))
        check("maximum context length" in error["message"], error)
        same(server.chat("x" * 60, max_tokens=10)[0], 400)
        same(server.chat("x" * 60, max_tokens=2 ** 31 - 1, n=128)[0], 400)
        same(server.chat("x" * 60, max_tokens=4)[0], 200)


@case
def failures_before_and_after_the_headers():
    with Server() as server:
        for word in "@nan", "@lost":
            status, answer = server.chat(word)
            same((status, answer["error"]["type"], answer["error"]["code"]), (500, "server_error", "backend_error"))
            stream = server.stream("/v1/chat/completions",
                                   {"messages": [{"role": "user", "content": word}], "stream": True})
            same(stream.head(), 200)
            events = list(stream.events())
            check("[DONE]" not in events, events)
            same(events[-1]["error"]["code"], "backend_error")
            check(all(c["finish_reason"] is None for e in events[:-1] for c in e["choices"]), events)
        same(server.chat("hi")[0], 200)


@case
def a_stream_has_the_shape_that_clients_expect():
    with Server() as server:
        body = {"messages": HI, "stream": True, "stream_options": {"include_usage": True}, "n": 2}
        stream = server.stream("/v1/chat/completions", body)
        same(stream.head(), 200)
        same(stream.headers["content-type"], "text/event-stream")
        same(stream.headers["cache-control"], "no-cache, no-transform")
        same(stream.headers["x-accel-buffering"], "no")
        events = list(stream.events())
        same(events[-1], "[DONE]")
        usage = events[-2]
        same(usage["choices"], [])
        same(usage["usage"]["completion_tokens"], 10)
        same(usage["usage"]["total_tokens"], 12)
        same(usage["usage"]["prompt_tokens_details"]["cached_tokens"], 1)
        check(usage["timings"]["predicted_n"] == 10, usage)
        for i in range(2):
            mine = [e["choices"][0] for e in events[:-2] if e["choices"][0]["index"] == i]
            same(mine[0]["delta"], {"role": "assistant", "content": ""})
            same([m["finish_reason"] for m in mine], [None] * (len(mine) - 1) + ["stop"])
            same(mine[-1]["delta"], {})
            same("".join(m["delta"].get("content", "") for m in mine), "abcde" if i == 0 else "bcdef")
        same(len({e["id"] for e in events[:-1]}), 1)
        check(all("usage" in e and e["usage"] is None for e in events[:-2]))
        plain = server.stream("/v1/completions", {"prompt": "x", "stream": True, "echo": True})
        same(plain.head(), 200)
        same(plain.text(), ("xabcde", "stop"))


@case
def whole_answers():
    with Server() as server:
        status, a = server.chat("hi", n=3, max_tokens=3)
        same([c["message"] for c in a["choices"]],
             [{"role": "assistant", "content": t, "refusal": None} for t in ("abc", "bcd", "cde")])
        same([c["finish_reason"] for c in a["choices"]], ["length"] * 3)
        same(a["usage"], {"prompt_tokens": 2, "completion_tokens": 9, "total_tokens": 11,
                          "prompt_tokens_details": {"cached_tokens": 1}})
        status, a = server.post("/v1/completions", {"prompt": [72, 105], "echo": True})
        same(a["choices"][0]["text"], "Hiabcde")
        same(a["object"], "text_completion")
        for prompt in ["Hi"], [[72, 105]], "Hi":
            same(server.post("/v1/completions", {"prompt": prompt})[1]["usage"]["prompt_tokens"], 2)


@case
def logprobs_in_both_formats():
    with Server() as server:
        status, a = server.chat("hi", logprobs=True, top_logprobs=2, max_tokens=2)
        content = a["choices"][0]["logprobs"]["content"]
        same(len(content), 2)
        same(content[0]["token"], "a")
        same((content[0]["logprob"], content[0]["bytes"]), (-0.5, [97]))
        same([(t["token"], t["logprob"]) for t in content[0]["top_logprobs"]], [("A", -1), ("B", -2)])
        status, a = server.post("/v1/completions", {"prompt": "hi", "logprobs": 2, "max_tokens": 3})
        lp = a["choices"][0]["logprobs"]
        same(lp["tokens"], ["a", "b", "c"])
        same(lp["token_logprobs"], [-0.5] * 3)
        same(lp["top_logprobs"], [{"A": -1, "B": -2}] * 3)
        same(lp["text_offset"], [0, 1, 2])
        status, a = server.post("/v1/completions", {"prompt": "hi", "logprobs": 0, "max_tokens": 1})
        same(a["choices"][0]["logprobs"]["top_logprobs"], None)
        stream = server.stream("/v1/chat/completions",
                               {"messages": HI, "stream": True, "logprobs": True, "max_tokens": 2})
        stream.head()
        tokens = [e["choices"][0]["logprobs"]["content"][0]["token"] for e in stream.events()
                  if e != "[DONE]" and e["choices"][0]["logprobs"]]
        same(tokens, ["a", "b"])


@case
def text_and_tokens():
    with Server() as server:
        same(server.post("/tokenize", {"content": "AB"})[1]["tokens"], [65, 66])
        same(server.post("/tokenize", {"content": "AB", "add_special": True})[1]["tokens"], [256, 65, 66])
        same(server.post("/tokenize", {"prompt": "AB"})[1],
             {"tokens": [256, 65, 66], "count": 3, "max_model_len": 4096})
        same(server.post("/tokenize", {"content": "A", "with_pieces": True})[1]["tokens"],
             [{"id": 65, "piece": "A"}])
        same(server.post("/tokenize", {"content": ""})[1]["tokens"], [])
        same(len(server.post("/tokenize", {"content": "x" * 100000})[1]["tokens"]), 100000)
        same(server.post("/detokenize", {"tokens": [72, 105]})[1], {"content": "Hi", "prompt": "Hi"})
        same(server.post("/detokenize", {"tokens": []})[1]["content"], "")
        # Half a character: what JSON can not say as text it says as numbers.
        same(server.post("/detokenize", {"tokens": [72, 226, 130]})[1],
             {"content": "H\ufffd\ufffd", "prompt": "H\ufffd\ufffd", "bytes": [72, 226, 130]})
        same(server.post("/tokenize", {"content": "é", "with_pieces": True})[1]["tokens"],
             [{"id": 195, "piece": [195]}, {"id": 169, "piece": [169]}])
        same(server.post("/apply-template", {"messages": HI})[1], {"prompt": "hi"})
        for path, body, param in [
            ("/tokenize", {}, "content"), ("/tokenize", {"content": 5}, "content"),
            ("/tokenize", {"content": "a", "add_special": 1}, "add_special"),
            ("/detokenize", {}, "tokens"), ("/detokenize", {"tokens": "x"}, "tokens"),
            ("/detokenize", {"tokens": [300]}, "tokens"), ("/detokenize", {"tokens": [-1]}, "tokens"),
            ("/detokenize", {"tokens": [1.5]}, "tokens"), ("/apply-template", {}, "messages"),
        ]:
            status, answer = server.post(path, body)
            same((status, answer["error"]["param"]), (400, param))


@case
def silence_is_filled_with_comments_between_events():
    with Server("--sse-ping-interval", "0.5") as server:
        stream = server.stream("/v1/completions", {"prompt": "@delay=2600 @tokens=1", "stream": True})
        same(stream.head(), 200)
        same(stream.text(), ("a", "stop"))
        check(2 <= stream.comments <= 6, f"{stream.comments} comments")
    # None before admission: a refusal must stay an HTTP status.
    with Server("--sse-ping-interval", "0.2") as server:
        status, answer = server.post("/v1/completions", {"prompt": "@wait=1500 @late", "stream": True})
        same(status, 503)


def running(server):
    return server.memory()["requests"]["running"]


@case
def a_client_that_leaves_is_noticed_in_every_state():
    with Server() as server:
        def leave(prompt, stream, read_bytes, before):
            s = server.connect()
            body = json.dumps({"prompt": prompt, "stream": stream}).encode()
            s.sendall(raw_post("/v1/completions", body))
            before()
            if read_bytes:
                s.recv(read_bytes)
            s.close()

        def admitted():
            wait_until(lambda: running(server) == 1, "running")

        def nothing():
            time.sleep(0.05)

        for prompt, stream, read_bytes, before in [
            ("@hold", True, 1000, admitted),               # silent stream
            ("@hold", False, 0, admitted),                 # no byte was ever sent
            ("@delay=10 @tokens=4000", True, 1000, admitted),  # in the middle of tokens
            ("@delay=10 @tokens=4000", False, 0, admitted),
            ("@wait=600000", True, 0, nothing),            # still queued
            ("@submit=300 @hold", True, 0, nothing),       # still with a worker
        ]:
            leave(prompt, stream, read_bytes, before)
            start = time.monotonic()
            ended = {"@wait=600000": 0.05, "@submit=300 @hold": 0.5}.get(prompt, 0)
            time.sleep(ended)
            wait_until(lambda: running(server) == 0, f"the end of {prompt}", 2)
            check(time.monotonic() - start < 1 + ended, f"{prompt}: {time.monotonic() - start:.2f} s")
        # A half-closing client that waits for tokens counts as gone.
        s = server.connect()
        body = b'{"prompt":"@hold","stream":true}'
        s.sendall(raw_post("/v1/completions", body))
        wait_until(lambda: running(server) == 1, "running")
        s.shutdown(socket.SHUT_WR)
        wait_until(lambda: running(server) == 0, "the end", 2)
        # In the middle of a body.
        s = server.connect()
        s.sendall(raw_post("/v1/completions", b"x" * 50000, length=100000))
        time.sleep(0.05)
        s.close()
        wait_until(lambda: server.memory()["host"]["used_bytes"] == 0, "the body's bytes are back", 2)


@case
def two_hundred_clients_leave_at_random_points():
    with Server() as server:
        def client(i):
            s = server.connect()
            body = json.dumps({"prompt": f"@delay={i % 7} @wait={i % 11} @tokens=4000", "stream": i % 3 > 0}).encode()
            data = raw_post("/v1/completions", body)
            s.sendall(data[:len(data) - i % 40] if i % 5 == 0 else data)
            time.sleep(i % 13 / 100)
            s.close()

        parallel(client, range(200))
        wait_until(lambda: running(server) == 0, "no request runs", 5)
        wait_until(lambda: server.memory()["host"]["used_bytes"] == 0, "host bytes are back", 5)
        wait_until(lambda: server.metric("plimsoll:http_connections") <= 1, "connections are gone", 5)
        same(server.chat("hi")[0], 200)


@case
def a_client_that_does_not_read_holds_little_and_gets_all():
    with Server("-c", "9000") as server:
        s = server.connect()
        # More than the kernel's socket buffers take.
        body = json.dumps({"prompt": "@big @tokens=8000", "stream": True}).encode()
        s.sendall(raw_post("/v1/completions", body))
        time.sleep(0.5)
        used = server.memory()["host"]["used_bytes"]
        check(used < 200 << 10, f"{used} bytes are held for one that does not read")
        same(server.chat("hi")[0], 200)
        reader = Reader(s)
        same(read_head(reader)[0], 200)
        total = 0
        while n := int(reader.line(), 16):
            total += reader.take(n).count(b"x" * 1024)
            reader.line()
        check(total > 7000, f"{total} whole tokens")


@case
def a_client_that_never_reads_is_cut():
    with Server("--timeout", "2") as server:
        s = server.connect()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        body = json.dumps({"prompt": "@big @tokens=4000 @delay=1", "stream": True}).encode()
        s.sendall(raw_post("/v1/completions", body))
        wait_until(lambda: running(server) == 1, "running")
        wait_until(lambda: server.metric("plimsoll:http_connections") <= 1, "the end of one that stalls", 15)
        same(server.memory()["host"]["used_bytes"], 0)


@case
def sixty_four_idle_streams_cost_little():
    with Server() as server:
        def hold(n):
            held = [server.stream("/v1/completions", {"prompt": "@hold", "stream": True}) for _ in range(n)]
            for s in held:
                same(s.head(), 200)
            return held
        first = hold(2)  # what the first ones touch is the server's, not a stream's
        before = server.held()
        streams = first + hold(64)
        each = (server.held() - before) / 64
        # Bytes are in memory by pages, so that a stream may come to one more than it asked for.
        check(harness.sanitized() or each <= (64 << 10) + resource.getpagesize(), f"{each:.0f} bytes each")
        cpu, start = server.cpu_seconds(), time.monotonic()
        time.sleep(5)
        part = (server.cpu_seconds() - cpu) / (time.monotonic() - start)
        check(part <= 0.01, f"{part * 100:.1f} % of a core")
        same(server.get("/health")[0], 200)
        print(f"      64 idle streams: {each / 1024:.1f} KiB each, {part * 100:.2f} % of a core")
        for s in streams:
            s.close()


@case
def an_answer_needs_nothing_of_the_rest_of_the_budget():
    """Once a request is admitted others take the host budget to its last byte; all its forms end whole."""
    forms = [{"stream": stream, "n": 4, "max_tokens": 200, **more} for stream in (False, True)
             for more in ({}, {"logprobs": True, "top_logprobs": 20})]
    prompt = "@eat @tokens=200 @delay=1"
    with Server() as server:
        def collect(path, body):
            """Texts by choice, and the numbers of tokens with logprobs."""
            if not body["stream"]:
                status, answer = server.post(path, body)
                same(status, 200)
                choices, last = answer["choices"], "[DONE]"
            else:
                s = server.stream(path, body)
                same(s.head(), 200)
                events = list(s.events())
                choices, last = [c for e in events[:-1] for c in e["choices"]], events[-1]
                s.close()
            same(last, "[DONE]")
            texts, lists = ["", "", "", ""], [0, 0, 0, 0]
            for c in choices:
                texts[c["index"]] += c.get("text") or (c.get("message") or c.get("delta") or {}).get("content") or ""
                logprobs = c["logprobs"] or {}
                lists[c["index"]] += len(logprobs.get("content") or logprobs.get("tokens") or ())
            return [len(text) for text in texts], lists

        for body in forms:
            chat = {**body, "messages": [{"role": "user", "content": prompt}]}
            text = {k: v for k, v in body.items() if k != "top_logprobs"} | {"prompt": prompt}
            if "logprobs" in body:
                text["logprobs"] = 20
            for path, ask in (("/v1/chat/completions", chat), ("/v1/completions", text)):
                same(collect(path, ask), ([200] * 4, [200 if "logprobs" in body else 0] * 4))
                wait_until(lambda: server.memory()["host"]["used_bytes"] == 0, "nothing stays charged")
        # What can not be reserved is refused before it begins.
        status, answer = server.chat("@tokens=5", n=128, max_tokens=3000, logprobs=True, top_logprobs=20)
        same((status, answer["error"]["term"]), (503, "host"))


@case
def health_answers_under_load():
    with Server() as server:
        streams = [server.stream("/v1/completions", {"prompt": "@delay=1 @tokens=2000", "stream": True})
                   for _ in range(32)]
        worst = 0
        for _ in range(100):
            start = time.monotonic()
            same(server.get("/health")[0], 200)
            worst = max(worst, time.monotonic() - start)
        check(worst < 1, f"/health took {worst:.2f} s")
        for s in streams:
            s.close()


@case
def keys_do_not_share_prefixes_and_salts_pass():
    with Server("--api-key", "a,b") as server:
        for key in "a", "b":
            same(server.post("/v1/completions", {"prompt": "x", "cache_salt": "s"}, [f"Authorization: Bearer {key}"])[0],
                 200)


@case
def shutdown_loses_no_stream():
    server = Server()
    streams = [server.stream("/v1/completions", {"prompt": "@delay=50 @tokens=20", "stream": True}) for _ in range(8)]
    for s in streams:
        same(s.head(), 200)
    kept = server.connect()
    kept.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
    reader = Reader(kept)
    same(read_response(reader)[0], 200)
    server.process.send_signal(signal.SIGTERM)
    time.sleep(0.2)
    # An open connection is told, and so is a new one, and a balancer that asks.
    kept.sendall(raw_post("/v1/completions", b'{"prompt":"x"}'))
    status, headers, body = read_response(reader)
    same((status, headers["connection"]), (503, "close"))
    check(int(headers["retry-after"]) > 0)
    status, headers, body = server.request("POST", "/v1/completions", b'{"prompt":"x"}')
    same((status, json.loads(body)["error"]["code"]), (503, "draining"))
    check(int(headers["retry-after"]) > 0)
    status, body = server.get("/readyz")
    same((status, body["error"]["code"]), (503, "draining"))
    same(server.get("/livez")[0], 200)
    for s in streams:
        same(s.text(), ("abcdefghijklmnopqrst", "stop"))
    same(server.process.wait(5), 0)


@case
def shutdown_cancels_what_takes_too_long_with_an_error():
    server = Server("--shutdown-timeout", "0.5")
    stream = server.stream("/v1/completions", {"prompt": "@hold", "stream": True})
    same(stream.head(), 200)
    waiting = server.connect()
    waiting.sendall(raw_post("/v1/completions", b'{"prompt":"@hold"}'))
    wait_until(lambda: running(server) == 2, "both run")
    start = time.monotonic()
    server.process.send_signal(signal.SIGTERM)
    events = list(stream.events())
    same(events[-1]["error"]["type"], "unavailable_error")
    same(read_response(Reader(waiting))[0], 503)
    same(server.process.wait(5), 0)
    check(time.monotonic() - start < 4, "it took longer than 4 s")


@case
def a_second_signal_tells_every_client():
    server = Server("--shutdown-timeout", "30")
    stream = server.stream("/v1/completions", {"prompt": "@hold", "stream": True})
    same(stream.head(), 200)
    server.process.send_signal(signal.SIGTERM)
    time.sleep(0.2)
    check(server.process.poll() is None, "it did not wait for the stream")
    server.process.send_signal(signal.SIGTERM)
    events = list(stream.events())
    same(events[-1]["error"]["type"], "unavailable_error")
    same(server.process.wait(5), 0)


@case
def sleep_and_wake():
    with Server("--api-key", "user", "--admin-key", "k") as server:
        key = ["Authorization: Bearer k"]

        def post(path, body=b"", headers=key):
            status, head, text = server.request("POST", path, body, headers)
            return status, head, json.loads(text)

        same(post("/v1/sleep", headers=())[0], 401)
        same(post("/v1/sleep", b'{"timeout_ms":-1}')[2]["error"]["param"], "timeout_ms")
        same(post("/v1/sleep", b'{"timeout_ms":"x"}')[0], 400)
        # Running requests are waited for, and not longer than was said.
        stream = server.stream("/v1/completions", {"prompt": "@delay=300 @tokens=3", "stream": True}, key)
        same(stream.head(), 200)
        status, head, body = post("/v1/sleep", b'{"timeout_ms":50}')
        same((status, body["error"]["code"]), (503, "busy"))
        check(int(head["retry-after"]) >= 1)
        first = threading.Thread(target=post, args=("/v1/sleep",))
        first.start()
        time.sleep(0.1)
        status, head, body = post("/v1/sleep")
        same((status, body["error"]["code"]), (409, "conflict"))
        # It waits for the stream and takes nothing new: a balancer should know.
        same(server.get("/readyz")[1]["error"]["code"], "asleep")
        metrics = server.request("GET", "/metrics", headers=key)[2].decode()
        same(re.findall(r"^plimsoll:ready\{.*\} (\d)$", metrics, re.M), ["0"])
        same(stream.text()[1], "stop")
        first.join()
        status, body = server.get("/readyz")
        same((status, body["error"]["code"]), (503, "asleep"))
        same(server.get("/health"), (200, {"status": "ok"}))
        status, head, body = post("/v1/completions", b'{"prompt":"x"}')
        same((status, body["error"]["term"]), (503, "asleep"))
        check(int(head["retry-after"]) >= 1)
        status, head, body = post("/v1/sleep")  # again
        same((status, body["object"], body["asleep"], body["released_bytes"]), (200, "sleep", True, 0))
        status, head, body = post("/v1/wake", b"{}")
        seconds = body.pop("seconds")
        check(0 <= seconds < 5, seconds)
        same((status, body), (200, {"object": "wake", "asleep": False, "taken_bytes": 100000, "taken_blocks": 100}))
        same(server.get("/readyz")[0], 200)
        status, head, body = post("/v1/sleep")
        same((status, body["released_blocks"], body["released_bytes"]), (200, 100, 100000))
        check(body["seconds"] >= 0.19, body)


@case
def metrics_have_the_names_that_dashboards_know():
    with Server("--metrics-alias", "vllm") as server:
        server.chat("hi")
        status, headers, body = server.request("GET", "/metrics")
        text = body.decode()
        check(headers["content-type"].startswith("text/plain; version=0.0.4"), headers)
        for prefix in "plimsoll", "vllm":
            for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc",
                         "prefix_cache_queries_total", "prefix_cache_hits_total", "prompt_tokens_total",
                         "generation_tokens_total", "request_success_total", "time_to_first_token_seconds_bucket",
                         "inter_token_latency_seconds_sum", "e2e_request_latency_seconds_count",
                         "request_queue_time_seconds_count", "request_prefill_time_seconds_count",
                         "request_decode_time_seconds_count"):
                check(f'\n{prefix}:{name}{{model_name="fake"' in "\n" + text, f"{prefix}:{name}")
        for name in ("requests_processing", "requests_deferred", "kv_cache_usage_ratio", "kv_cache_tokens",
                     "device_memory_bytes", "admission_rejected_total", "plan_shrinks_total",
                     "canary_last_result", "scheduler_last_step_timestamp_seconds", "device_losses_total",
                     "step_replays_total", "requests_poisoned_total", "step_resubmits_total", "stalls_total",
                     "incidents_total", "asleep", "last_sleep_seconds", "num_requests_preempted",
                     "kv_slabs_released_total", "device_memory_foreign_bytes", "slowdowns_total", "slow"):
            check(f"\nplimsoll:{name}{{" in text, name)
        for kind in "weights", "kv", "workspace", "encoder", "ballast", "free":
            check(f'kind="{kind}"' in text, kind)
        for reason in "never", "now", "queue", "context":
            check(f'reason="{reason}"' in text, reason)
        age = time.time() - server.metric("plimsoll:scheduler_last_step_timestamp_seconds")
        check(-1 < age < 30, age)
        same(server.metric('vllm:e2e_request_latency_seconds_count'), 3)
        same(text.count("# TYPE plimsoll:num_requests_running gauge"), 1)


if __name__ == "__main__":
    main()
