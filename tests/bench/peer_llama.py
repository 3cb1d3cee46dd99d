# SPDX-License-Identifier: Apache-2.0
"""The peer's side of tests/bench/peer: llama-cpp-python by its low-level batch interface, which adds
no Python work per token but the argmax. Prints JSON shaped as `plimsoll bench --json`."""
import argparse
import ctypes
import json
import random
import time

import llama_cpp
import numpy


def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("-t", "--threads", type=int, required=True)
    parser.add_argument("-p", "--n-prompt", type=int, default=512)
    parser.add_argument("-n", "--n-gen", type=int, default=128)
    parser.add_argument("--users", type=int, default=8)
    return parser.parse_args()


class Context:
    """One context for sequences of at most n_ctx tokens each; prompts in one batch, as ours."""

    def __init__(self, model, n_seq, n_ctx, batch, threads):
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = n_seq * n_ctx
        params.n_batch = params.n_ubatch = batch
        params.n_seq_max = n_seq
        params.n_threads = params.n_threads_batch = threads
        params.no_perf = True
        self.ctx = llama_cpp.llama_init_from_model(model, params)
        assert self.ctx, "no context"
        self.vocab = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
        self.batch = llama_cpp.llama_batch_init(batch, 0, 1)

    def clear(self):
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self.ctx), True)

    def decode(self, rows):
        """rows: (token, position, sequence, wants logits)."""
        batch = self.batch
        batch.n_tokens = len(rows)
        for i, (token, position, sequence, logits) in enumerate(rows):
            batch.token[i], batch.pos[i] = token, position
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, sequence
            batch.logits[i] = logits
        assert llama_cpp.llama_decode(self.ctx, batch) == 0, "llama_decode failed"
        llama_cpp.llama_synchronize(self.ctx)

    def best(self, row):
        logits = llama_cpp.llama_get_logits_ith(self.ctx, row)
        return int(numpy.ctypeslib.as_array(logits, (self.vocab,)).argmax())

    def close(self):
        llama_cpp.llama_batch_free(self.batch)
        llama_cpp.llama_free(self.ctx)


def prompt(context, n, rng):
    context.clear()
    tokens = [rng.randrange(context.vocab) for _ in range(n)]
    rows = [(token, i, 0, i == n - 1) for i, token in enumerate(tokens)]
    start = time.perf_counter()
    context.decode(rows)
    context.best(n - 1)
    return n / (time.perf_counter() - start)


def decode(context, n, users, rng):
    """After one token of each sequence: n steps with a row of each."""
    context.clear()
    context.decode([(rng.randrange(context.vocab), 0, s, True) for s in range(users)])
    tokens = [context.best(s) for s in range(users)]
    start = time.perf_counter()
    for step in range(n):
        context.decode([(tokens[s], step + 1, s, True) for s in range(users)])
        tokens = [context.best(s) for s in range(users)]
    return n * users / (time.perf_counter() - start)


def main():
    args = options()
    # llama.cpp logs to stderr; only the result may go to stdout.
    quiet = llama_cpp.llama_log_callback(lambda level, text, data: None)
    llama_cpp.llama_log_set(quiet, ctypes.c_void_p(0))
    llama_cpp.llama_backend_init()
    params = llama_cpp.llama_model_default_params()
    params.n_gpu_layers = 0
    model = llama_cpp.llama_model_load_from_file(args.model.encode(), params)
    assert model, f"{args.model} can not be loaded"
    rng = random.Random(1)
    cases = []

    def add(name, users, n_ctx, batch, run):
        context = Context(model, users, n_ctx, batch, args.threads)
        run(context)  # warms up
        cases.append({"name": name, "users": users, "tokens_per_second": run(context)})
        context.close()

    if args.n_prompt:
        add("prompt", 1, args.n_prompt + 1, args.n_prompt,
            lambda context: prompt(context, args.n_prompt, rng))
    if args.n_gen:
        add("decode", 1, args.n_gen + 2, 512, lambda context: decode(context, args.n_gen, 1, rng))
    if args.n_gen and args.users:
        add("users", args.users, args.n_gen + 2, 512,
            lambda context: decode(context, args.n_gen, args.users, rng))
    print(json.dumps({"version": f"llama-cpp-python {llama_cpp.__version__}",
                      "build": llama_cpp.llama_print_system_info().decode(), "cases": cases}))


main()
