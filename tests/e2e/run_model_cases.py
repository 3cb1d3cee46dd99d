# SPDX-License-Identifier: Apache-2.0
"""`plimsoll run` through a pseudo-terminal on a real model: the conversation is kept, forgotten and
resumed; and the other subcommands on the same file. Takes SmolLM2 from $PLIMSOLL_TEST_MODELS, else on a device
the tiny model of tests/data, whose answers have no sense; on the CPU that one is too quick to watch."""
import json
import os
import pathlib
import re
import subprocess

import harness
from harness import case, check, main, same, skip
from terminal import CTRL_C, CTRL_D, Terminal

SMOLLM2 = pathlib.Path(os.environ.get("PLIMSOLL_TEST_MODELS", "")) / "SmolLM2-135M-Instruct.Q4_1.gguf"
SENSE = SMOLLM2.exists()
MODEL = SMOLLM2 if SENSE else pathlib.Path(__file__).parent.parent / "data/models/llama-tied-q4_0.gguf"
CONTEXT = "2048" if SENSE else "1024"
PREDICT = "8" if SENSE else "100"  # tokens: none ends before all users decode
ANSWER = r"\r\n(?P<text>.*?)\r\n(?:\[cut: [^\r]*\r\n)?\[prompt: (\d+) tokens, (\d+) of them cached, .*?answer: (\d+) tokens.*?\]\r\n"

# What must not differ between two starts; free memory of the machine and times may.
PLANNED = ("blocks", "block_bytes", "kv_bytes", "resident", "margin", "line", "max_context",
           "max_sequences")


def chat(*args):
    return Terminal(harness.BINARY, "run", "-m", harness.MODEL, *harness.on_device(), "-c", CONTEXT, "--temp", "0", "-n",
                    "40", "--show-timings", *args)


def ready(t):
    t.expect(r"/help lists the commands\.\r\n> ", timeout=120)


def ask(t, question):
    """(answer, prompt tokens, cached tokens, answer tokens)"""
    t.line(question)
    # With the next "> ": a line sent before it would find it inside the next answer.
    found = t.expect(re.escape(question) + ANSWER + "> ", timeout=60)
    text, *numbers = found.groups()
    return (text, *map(int, numbers))


def run(*args):
    return subprocess.run([harness.BINARY, *args], capture_output=True, text=True, timeout=300)


@case
def a_conversation_is_kept_and_forgotten():
    with chat() as t:
        ready(t)
        first = ask(t, "What is 2+2?")
        check("4" in first[0] or not SENSE, first)
        second = ask(t, "And 3+3?")
        check(second[1] > first[1] + first[3], f"the first turn is missing: {first}, {second}")
        check(second[2] >= 16, f"nothing of the first turn was cached: {second}")
        same(ask(t, "/regen")[:2], second[:2])
        t.line("/reset")
        t.expect(r"forgotten\]\r\n> ")
        same(ask(t, "What is 2+2?")[:2], first[:2])
        t.type(CTRL_D)
        same(t.end(), 0)


@case
def the_system_prompt_survives_a_reset():
    with chat("-sys", "You are a pirate and end each sentence with arr.") as t:
        ready(t)
        first = ask(t, "Hello")
        t.line("/reset")
        t.expect(r"forgotten\]\r\n> ")
        same(ask(t, "Hello")[:2], first[:2])
    with chat() as t:
        ready(t)
        check(ask(t, "Hello")[1] != first[1], "the system prompt changes nothing")


@case
def ctrl_c_stops_the_answer_and_the_chat_goes_on():
    with chat("-n", "-1", "--ignore-eos") as t:
        ready(t)
        t.line("Tell me a long story.")
        t.expect(r"story\.\r\n.{20}", timeout=60)
        t.type(CTRL_C)
        t.expect(r"\r\n> ", timeout=10)
        t.line("/reset")
        t.expect(r"forgotten\]\r\n> ")
        t.line("Count to ten.")
        t.expect(r"ten\.\r\n.{10}", timeout=60)
        t.type(CTRL_C)
        t.expect(r"\r\n> ", timeout=10)
        t.type(CTRL_D)
        same(t.end(), 0)


@case
def one_prompt_from_stdin_and_a_raw_completion():
    base = ["run", "-m", harness.MODEL, *harness.on_device(), "-c", "512", "--temp", "0", "-n", "16"]
    piped = subprocess.run([harness.BINARY, *base], input="What is 2+2?\n",
                           capture_output=True, text=True, timeout=300)
    check(piped.returncode == 0 and ("4" in piped.stdout or not SENSE), piped)
    torn = subprocess.run([harness.BINARY, *base], input=b"a\xffb", capture_output=True, timeout=300)
    check(torn.returncode == 1 and b"user prompt is not valid UTF-8 at byte 1" in torn.stderr, torn)
    raw = run(*base, "-no-cnv", "-p", "The capital of France is")
    check(raw.returncode == 0 and ("Paris" in raw.stdout or not SENSE), raw)
    seeds = [run(*base, "--temp", "1", "-s", seed, "-n", "16", "-p", "Invent a word.").stdout
             for seed in ("1", "1", "2")]
    check(seeds[0] == seeds[1] != seeds[2], seeds)


@case
def the_other_commands():
    where = ["-m", harness.MODEL, *harness.on_device()]
    plans = [run("plan", *where, "-c", "1024", "-np", "2", "--json") for _ in range(2)]
    check(all(plan.returncode == 0 for plan in plans), plans)
    first, second = ({key: json.loads(plan.stdout)["plan"][key] for key in PLANNED} for plan in plans)
    same(second, first)
    bench = run("bench", *where, "-p", "16,32", "-n", PREDICT, "--users", "2,3", "--sampled", "2", "--mixed", "4", "-d", "9",
                "-r", "2", "--json")
    check(bench.returncode == 0, bench)
    report = json.loads(bench.stdout)
    check(0 < report["load_seconds"] <= report["ready_seconds"], report)
    device = report["memory"]["devices"][0]
    same((report["threads"], report["sequences"]), (device.get("workers"), 4))
    check(report["context"] > 0 and report["batch"] > 0, report)
    check(report["memory"]["devices"][0]["used_bytes"] > 0, report)
    cases = report["cases"]
    same([(c["name"], c["prompt_tokens"], c["users"]) for c in cases],
         [("decode", 9, 1), ("users", 9, 2), ("users", 9, 3), ("sampled", 9, 2), ("prompt", 16, 1), ("prompt", 32, 1),
          ("mixed", 9, 4)])
    check(all(len(c["seconds"]) == 2 and c["tokens_per_second"] > 0 for c in cases), cases)
    short = run("bench", *where, "-p", "0", "-n", "100", "--users", "2", "-r", "50", "--seconds", "0.001", "--json")
    same([len(c["seconds"]) for c in json.loads(short.stdout)["cases"]], [1, 1])
    # What was measured before a failure is not lost.
    long = run("bench", *where, "-c", "64", "-p", "100", "-n", "4", "--users", "0", "--json")
    check(long.returncode == 1 and "the context has 64" in long.stderr and "bytes" not in long.stderr, long)
    same([c["name"] for c in json.loads(long.stdout)["cases"]], ["decode"])
    keys = json.loads(run("inspect", "--json", harness.MODEL).stdout)
    check("llama" in json.dumps(keys), keys)
    check("general.architecture" in run("inspect", harness.MODEL).stdout)


if not SENSE and not harness.DEVICE:
    skip(f"{SMOLLM2.name} is not under $PLIMSOLL_TEST_MODELS")
main(model=str(MODEL))
