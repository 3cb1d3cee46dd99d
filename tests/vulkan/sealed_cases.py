# SPDX-License-Identifier: Apache-2.0
"""After READY nothing of Vulkan is allocated, created or grown, over a hundred requests of every
shape; and the recorded lists of decode steps are submitted again, not recorded anew."""
from faulty import DISCRETE, FaultyServer, need_vulkan
from faulty_server import Load, a_hundred_requests, complete
from harness import case, check, main, same

# What would be an allocation or a growth. Nothing of it may move, up or down.
STILL = ["instances_created", "devices_created", "memory_allocated", "memory_freed", "live_bytes",
         "buffers_created", "shader_modules_created", "pipelines_created", "pipeline_layouts_created",
         "pipeline_caches_created", "semaphores_created", "fences_created", "query_pools_created",
         "command_pools_created", "command_buffers_allocated", "command_buffers_freed", "maps"]


def nothing_grows(rules):
    # Nobody else's memory moves the KV cache: what is seen is the backend's own.
    with FaultyServer("--neighbours", "hold", rules=rules) as server:
        ready = server.counters()
        a_hundred_requests(server)
        now = server.counters()
        same({k: now[k] - ready[k] for k in STILL}, dict.fromkeys(STILL, 0))
        same(now["high_bytes"], ready["high_bytes"])
        same((now["misuses"], now["faults"], now["bad_rules"]), (0, 0, 0))
        same(server.memory()["counters"]["allocations_in_step"], 0)
        ran = {k: now[k] - ready[k] for k in ("submits", "recordings", "dispatches_run", "barriers_run",
                                              "copies_run", "commands_recorded")}
        check(ran["submits"] > 100, ran)
        print(f"      {ran}")


@case
def nothing_grows_where_the_host_sees_the_memory():
    nothing_grows("")


@case
def nothing_grows_on_a_card_with_rings():
    nothing_grows(DISCRETE)


@case
def a_decode_step_is_recorded_once():
    with FaultyServer("--neighbours", "hold") as server:
        complete(server, "warm", tokens=8)
        before = server.counters()
        tokens = 64
        same(complete(server, "warm", tokens=tokens)[0], 200)
        after = server.counters()
        recorded = after["recordings"] - before["recordings"]
        submits = after["submits"] - before["submits"]
        check(submits >= tokens, f"{submits} submits for {tokens} tokens")
        # The prompt's step, and one list per block or split of the context that is crossed at most.
        check(recorded <= tokens / 8, f"{recorded} lists recorded for {tokens} tokens")
        print(f"      {tokens} tokens: {submits} submits, {recorded} lists recorded")


@case
def equal_texts_on_both_kinds_of_memory():
    texts = []
    for rules in ("", DISCRETE):
        with FaultyServer(rules=rules) as server:
            texts.append(Load(server).texts())
    check(all(isinstance(text, str) and text for text in texts[0]), texts[0])
    same(texts[0], texts[1])


need_vulkan()
main()
