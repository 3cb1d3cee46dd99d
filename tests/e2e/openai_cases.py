# SPDX-License-Identifier: Apache-2.0
"""The official `openai` client against the server: what people's programs do. Runs on the pretended
engine and, with a model, on the real one: SmolLM2 by its name in $PLIMSOLL_TEST_MODELS, or a file whose
text has no sense."""
import json
import os
import sys
import time

import harness
from harness import NotHere, Server, case, check, main, parallel, same, skip

try:
    import openai
except ImportError:
    python = os.environ.get("PLIMSOLL_E2E_PYTHON", sys.executable)
    if python != sys.executable:
        os.execv(python, [python, *sys.orig_argv[1:]])
    skip("no openai client; tools/check installs it")

REAL = len(sys.argv) > 2 and sys.argv[2].endswith(".gguf")
MODEL = os.path.join(os.environ.get("PLIMSOLL_TEST_MODELS", ""), sys.argv.pop(2)) if REAL else None
if REAL and not os.path.exists(MODEL):
    skip(f"{MODEL} is not there; tools/check fetches it")
SENSE = REAL and "SmolLM2" in MODEL
ARGS = ("-c", "1024", "-np", "4") if REAL else ()


def client(server, key="none"):
    return openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key=key, max_retries=0)


def name(api):
    return api.models.list().data[0].id


QUESTION = [{"role": "user", "content": "What is the capital of France? One sentence."}]


@case
def models():
    with Server(*ARGS) as server:
        api = client(server)
        model = api.models.list().data[0]
        same(model.object, "model")
        same(api.models.retrieve(model.id).id, model.id)
        try:
            api.chat.completions.create(model="no-such-model", messages=QUESTION)
            raise AssertionError("no error")
        except openai.NotFoundError as error:
            same(error.code, "model_not_found")


@case
def chat():
    with Server(*ARGS) as server:
        api = client(server)
        a = api.chat.completions.create(model=name(api), messages=QUESTION, temperature=0, max_tokens=32)
        same(a.choices[0].message.role, "assistant")
        check(a.choices[0].message.content, a)
        if SENSE:
            check("Paris" in a.choices[0].message.content, a.choices[0].message.content)
        check(a.choices[0].finish_reason in ("stop", "length"), a)
        same(a.usage.total_tokens, a.usage.prompt_tokens + a.usage.completion_tokens)
        check(a.usage.prompt_tokens_details.cached_tokens >= 0, a.usage)


@case
def stream_equals_whole():
    with Server(*ARGS) as server:
        api = client(server)
        options = dict(model=name(api), messages=QUESTION, temperature=0, max_tokens=32)
        whole = api.chat.completions.create(**options)
        text, usage, finish = "", None, None
        for chunk in api.chat.completions.create(stream=True, stream_options={"include_usage": True}, **options):
            if chunk.choices:
                text += chunk.choices[0].delta.content or ""
                finish = chunk.choices[0].finish_reason or finish
            usage = chunk.usage or usage
        same(text, whole.choices[0].message.content)
        same(finish, whole.choices[0].finish_reason)
        same(usage.completion_tokens, whole.usage.completion_tokens)


@case
def completions_and_token_ids():
    with Server(*ARGS) as server:
        api = client(server)
        prompt = "Once upon a time"
        ids = server.post("/tokenize", {"content": prompt})[1]["tokens"]
        by_text = api.completions.create(model=name(api), prompt=prompt, temperature=0, max_tokens=12)
        by_ids = api.completions.create(model=name(api), prompt=ids, temperature=0, max_tokens=12, echo=True)
        same(by_ids.choices[0].text, prompt + by_text.choices[0].text)
        chunks = api.completions.create(model=name(api), prompt=prompt, temperature=0, max_tokens=12, stream=True)
        same("".join(c.choices[0].text for c in chunks), by_text.choices[0].text)


@case
def logprobs():
    with Server(*ARGS) as server:
        api = client(server)
        a = api.chat.completions.create(model=name(api), messages=QUESTION, temperature=0, max_tokens=5,
                                        logprobs=True, top_logprobs=3)
        content = a.choices[0].logprobs.content
        same(len(content), a.usage.completion_tokens)
        for token in content:
            check(token.logprob <= 0 and len(token.top_logprobs) == 3, token)
            if REAL:
                same(token.token, token.top_logprobs[0].token)  # greedy takes the best
                same(token.logprob, token.top_logprobs[0].logprob)
        same(b"".join(bytes(t.bytes) for t in content).decode(errors="ignore")[:3], a.choices[0].message.content[:3])
        b = api.completions.create(model=name(api), prompt="Once upon", temperature=0, max_tokens=5, logprobs=2)
        lp = b.choices[0].logprobs
        same(len(lp.tokens), 5)
        if SENSE or not REAL:  # bytes that are no text are spelled out
            same("".join(lp.tokens), b.choices[0].text)
        same(lp.text_offset[0], 0)


@case
def several_choices():
    with Server(*ARGS) as server:
        api = client(server)
        a = api.chat.completions.create(model=name(api), messages=QUESTION, n=2, seed=7, temperature=1.0, max_tokens=16)
        same([c.index for c in a.choices], [0, 1])
        check(a.choices[0].message.content != a.choices[1].message.content, "both choices are equal")
        b = api.chat.completions.create(model=name(api), messages=QUESTION, n=2, seed=7, temperature=1.0, max_tokens=16)
        same([c.message.content for c in b.choices], [c.message.content for c in a.choices])


@case
def stop_strings():
    if not REAL:
        raise NotHere("the pretended engine does not look at text")
    with Server(*ARGS) as server:
        api = client(server)
        options = dict(model=name(api), prompt="1, 2, 3, 4, 5,", temperature=0, max_tokens=24)
        free = api.completions.create(**options).choices[0].text
        word = free[5:7]
        a = api.completions.create(stop=word, **options)
        same(a.choices[0].text, free[:free.index(word)])
        same(a.choices[0].finish_reason, "stop")
        chunks = list(api.completions.create(stop=[word], stream=True, **options))
        same("".join(c.choices[0].text for c in chunks), a.choices[0].text)


@case
def errors_are_the_exceptions_that_programs_catch():
    with Server(*ARGS, "--api-key", "secret") as server:
        try:
            client(server, "wrong").models.list()
            raise AssertionError("no error")
        except openai.AuthenticationError as error:
            same(error.code, "invalid_api_key")
        api = client(server, "secret")
        for fields, param in [({"temperature": -1}, "temperature"), ({"top_p": 2}, "top_p"), ({"n": 0}, "n"),
                              ({"messages": []}, "messages"), ({"tool_choice": "required"}, "tool_choice"),
                              ({"response_format": {"type": "json_object"}}, "response_format")]:
            try:
                api.chat.completions.create(**{"model": name(api), "messages": QUESTION, **fields})
                raise AssertionError(f"{fields}: no error")
            except openai.BadRequestError as error:
                same(error.param, param)
        try:
            api.completions.create(model=name(api), prompt="word " * 5000)
            raise AssertionError("no error")
        except openai.BadRequestError as error:
            same(error.code, "context_length_exceeded")
            check(error.body["n_prompt_tokens"] > error.body["n_ctx"], error.body)
            check("maximum context length" in error.message, error.message)


@case
def a_failure_in_a_stream_is_an_exception():
    if REAL:
        raise NotHere("needs the pretended engine")
    with Server() as server:
        api = client(server)
        try:
            for _ in api.chat.completions.create(model=name(api), stream=True,
                                                 messages=[{"role": "user", "content": "@nan"}]):
                pass
            raise AssertionError("no error")
        except openai.APIError as error:
            same(error.code, "backend_error")


@case
def a_shutdown_in_a_stream_is_an_exception_behind_events_with_types():
    """Each event fits its type to the letter, which the client does not ask for and others do."""
    if REAL:
        raise NotHere("needs the pretended engine")
    for chat in True, False:
        server = Server("--shutdown-timeout", "0.3")
        api, seen = client(server), 0
        try:
            if chat:
                events = api.chat.completions.create(model="fake", stream=True, n=2, messages=[
                    {"role": "user", "content": "@tokens=500 @delay=20"}])
            else:
                events = api.completions.create(model="fake", stream=True, prompt="@tokens=500 @delay=20")
            for event in events:
                if chat:
                    type(event).model_validate(event.to_dict(exclude_unset=False), strict=True)
                # Null is OpenAI's own where the type of completions knows none.
                check(all(c.finish_reason in (None, "stop", "length") for c in event.choices), event)
                seen += 1
                if seen == 5:
                    server.process.terminate()
            raise AssertionError("no error")
        except openai.APIError as error:
            check(seen >= 5, seen)
            same((error.code, error.type), ("cancelled", "unavailable_error"))
        same(server.stop(), 0)


@case
def what_can_never_fit_is_not_tried_again():
    if REAL:
        raise NotHere("needs the pretended engine")
    with Server() as server:
        api = openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="x", max_retries=2)
        before = server.metric("plimsoll:http_responses_total")
        try:
            api.completions.create(model="fake", prompt="@never")
            raise AssertionError("no error")
        except openai.BadRequestError as error:
            same(error.code, "memory_budget_exceeded")
            same(error.body["offer"]["max_tokens"], 20)
        same(server.metric("plimsoll:http_responses_total") - before, 2)  # it, and the metrics


if __name__ == "__main__":
    main(MODEL)
