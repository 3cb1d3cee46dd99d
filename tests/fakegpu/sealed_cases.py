# SPDX-License-Identifier: Apache-2.0
"""After READY nothing of a driver is allocated, created, grown or captured, over a hundred requests of
every shape; and on CUDA decode steps are replays of graphs."""
from faulty import BACKEND, FaultyServer, need_fake
from faulty_server import Load, a_hundred_requests, complete
from harness import case, check, main, same

# What would be an allocation or a growth. Nothing of it may move, up or down.
STILL = ["contexts_created", "memory_allocated", "memory_freed", "live_bytes", "driver_bytes",
         "ranges_reserved", "ranges_freed", "maps", "unmaps", "host_allocated", "host_freed", "host_bytes",
         "modules_loaded", "functions_found", "streams_created", "events_created", "captures",
         "graphs_instantiated", "graphs_destroyed", "graph_uploads"]


@case
def nothing_grows():
    # Nobody else's memory moves the KV cache: what is seen is the backend's own.
    with FaultyServer("--neighbours", "hold") as server:
        ready = server.counters()
        same(ready["graphs_instantiated"], ready["graph_uploads"])
        same(ready["graphs_instantiated"] > 0, BACKEND == "cuda")  # HIP's lists go kernel by kernel
        a_hundred_requests(server)
        now = server.counters()
        same({k: now[k] - ready[k] for k in STILL}, dict.fromkeys(STILL, 0))
        same(now["high_bytes"], ready["high_bytes"])
        same((now["misuses"], now["faults"], now["bad_rules"]), (0, 0, 0))
        same(server.memory()["counters"]["allocations_in_step"], 0)
        ran = {k: now[k] - ready[k] for k in ("launches", "graph_launches", "graph_nodes_set", "kernels_run",
                                              "copies_in", "copies_out", "queries")}
        check(ran["kernels_run"] > 1000, ran)
        print(f"      {ran}")


@case
def a_decode_step_is_a_replay():
    with FaultyServer("--neighbours", "hold") as server:
        complete(server, "warm", tokens=8)
        before = server.counters()
        tokens = 64
        same(complete(server, "warm", tokens=tokens)[0], 200)
        after = server.counters()
        ran = {k: after[k] - before[k] for k in ("launches", "graph_launches", "graph_nodes_set", "kernels_run")}
        print(f"      {tokens} tokens: {ran}")
        if BACKEND == "hip":
            same((ran["graph_launches"], ran["launches"]), (0, ran["kernels_run"]))
            return
        check(ran["graph_launches"] >= tokens - 4, ran)
        # Only the prompt's step goes kernel by kernel.
        check(ran["launches"] <= ran["kernels_run"] / 16, ran)


@case
def equal_texts_however_work_is_ordered():
    texts = []
    for rules in ("", "order eager", "exec cpu threads=2"):
        with FaultyServer(rules=rules) as server:
            texts.append(Load(server).texts())
            same(server.counters()["misuses"], 0)
    check(all(isinstance(text, str) and text for text in texts[0]), texts[0])
    for other in texts[1:]:
        same(texts[0], other)


@case
def the_kernels_own_source_writes_the_same_text():
    # The start is proven by the CPU's kernels: the emulator would take minutes.
    prompt, tokens = "The sea is wide and", 6
    with FaultyServer() as server:
        server.say("exec simt seed=7")
        emulated = complete(server, prompt, tokens=tokens, timeout=300)
        counters = server.counters()
        check(counters["kernels_emulated"] > 0, counters)
        server.say("exec cpu")
        print(f"      {counters['kernels_emulated']} kernels emulated: {emulated[1]!r}")
        same(complete(server, prompt, tokens=tokens), emulated)
        same(server.counters()["misuses"], 0)


need_fake()
main()
