# SPDX-License-Identifier: Apache-2.0
"""The command line without a terminal: exit statuses, what goes to stdout and what to stderr, bad
flags. Runs on the pretended engine."""
import json
import os
import subprocess
import tempfile

import harness
from harness import case, check, main, same

COMMANDS = ("serve", "run", "plan", "bench", "inspect", "pull", "list", "rm", "devices")


def run(*args, stdin="", timeout=30, **keywords):
    keywords.setdefault("stdout", subprocess.PIPE)
    return subprocess.run([harness.BINARY, *args], input=stdin, stderr=subprocess.PIPE, text=True,
                          timeout=timeout, **keywords)


def wrong(*args, says):
    """A wrong command line: status 2, one line on stderr, nothing on stdout."""
    done = run(*args)
    check(done.returncode == 2, f"{args}: {done}")
    same(done.stdout, "")
    check(says in done.stderr, f"{args}: {done.stderr!r} lacks {says!r}")
    same(done.stderr.count("\n"), 1)


@case
def bad_flags_name_the_flag():
    wrong("frob", says='no command "frob"; see plimsoll help')
    wrong("benchmark", says='no command "benchmark"; did you mean plimsoll bench?')
    for first in ("model.gguf", "./model", "-m"):
        wrong(first, says=f'no command "{first}"; a command comes first, as in plimsoll run FILE')
    for command in ("serve", "run", "plan", "bench"):
        wrong(command, says=f"plimsoll {command}: no model; name its file")
        for flag, value, says in (
                ("--parallel", "0", "--parallel: 0 is out of range (1 to"),
                ("-np", "-1", "-np: -1 is out of range"),
                ("--memory-fraction", "0", "out of range (more than 0, at most 1)"),
                ("--memory-fraction", "1.5", "out of range"),
                ("--memory-fraction", "nan", "out of range"),
                ("--memory-limit", "lots", "is not a size in bytes"),
                ("-c", "4k", '"4k" is not a whole number'),
                ("--prove", "half", "is not one of quick|full"),
                ("--modell", "x", "--modell: unknown option"),
                ("-hf", "ggml-org/x", "two models: x and -hf ggml-org/x"),
                ("--model-url", "https://x", "--model-url: unknown option: plimsoll pull URL gets the file"),
                ("-hft", "secret", "-hft: unknown option: a token is taken from HF_TOKEN"),
                ("--kv-type", "q4_0", '--kv-type: "q4_0" is not one of f16|q8_0'),
                ("--kv-cache-dtype", "fp8", '--kv-cache-dtype: "fp8" is not one of f16|q8_0'),
                ("-ctk", "q8_0", "K in q8_0 (-ctk) and V in f16 (-ctv): the KV cache has one type"),
                ("--cache-type-v", "q8_0", "K in f16 (-ctk) and V in q8_0 (-ctv): the KV cache has one type"),
                ("--mmproj", "x", "--mmproj: unknown option: images are not taken"),
                ("--chat-template-file", "/nonexistent", "/nonexistent: No such file")):
            wrong(command, "-m", "x", flag, value, says=says)
        wrong(command, "-m", "x", "--kv-type", "f16", "-ctk", "q8_0", "-ctv", "q8_0",
              says="with --kv-type f16: the KV cache has one type")
        wrong(command, "-m", "x", "-c", says="-c: needs a value (N)")
        wrong(command, "-m", "x", "stray", says='unexpected argument "stray"')
    wrong("run", "-m", "x", "-p", "a", "-f", "b", says="-p or -f")
    wrong("run", "-m", "x", "--stop", "", says="--stop: the text is empty")
    wrong("run", "-m", "x", "--temp", "-1", says="--temp: -1 is out of range (0 to 2)")
    wrong("bench", "-m", "x", "-p", "0", "-n", "0", says="nothing to measure")
    for users in ("8,", ",8", "8;9", "4097", "1,2,3,4,5,6,7,8,9", "-1", ""):
        wrong("bench", "-m", "x", "--users", users, says="--users")
    wrong("bench", "-m", "x", "--explain", "--bandwidth", "0", says="--bandwidth: 0 is out of range")
    wrong("plan", "--diff", "a", says="--diff compares two files")
    wrong("plan", "--diff", "a", "b", "c", says='unexpected argument "c"')
    wrong("inspect", says="name one file")
    wrong("inspect", "a", "b", says='unexpected argument "b"')


@case
def help_goes_to_stdout():
    done = run()
    same((done.returncode, done.stdout), (2, ""))
    check("plimsoll COMMAND" in done.stderr, done.stderr)
    done = run("--version")
    same((done.returncode, done.stderr), (0, ""))
    check(done.stdout.startswith("plimsoll "), done.stdout)
    listed = run("help").stdout
    for command in COMMANDS:
        check(f"\n  {command} " in listed, listed)
        done = run("help", command)
        same((done.returncode, done.stderr), (0, ""))
        same(done.stdout, run(command, "--help").stdout)
        check(done.stdout.startswith(f"usage: plimsoll {command} "), done.stdout)


@case
def other_servers_flags_are_taken_and_noted():
    for flags, notes in ((["-ngl", "99"], ["-ngl"]), (["--mlock", "--no-mmap"], ["--mlock", "--no-mmap"]),
                         (["-fa"], ["-fa"]), (["-fa", "on"], ["-fa"]), (["--flash-attn=auto"], ["--flash-attn"]),
                         (["-ub", "512", "--jinja"], ["-ub", "--jinja"])):
        done = run("run", *flags, "x", "-p", "hi")
        same((done.returncode, done.stdout), (0, "abcde\n"))
        lines = done.stderr.splitlines()
        same(len(lines), len(notes))
        for line, flag in zip(lines, notes):
            check(line.startswith(f"plimsoll run: {flag} has no effect: "), line)
    wrong("run", "-m", "x", "-ngl", says="-ngl: needs a value")
    wrong("run", "-m", "x", "--mlock=on", says="--mlock: takes no value")
    # Only a word that can be the value is one.
    check('unexpected argument "x"' in run("run", "-m", "x", "-fa", "x").stderr, "x was taken for a value")


@case
def a_version_is_told_behind_a_command_too():
    same(run("serve", "--version").stdout, run("--version").stdout)


@case
def sampling_is_the_flags_then_the_files_then_ours():
    # The pretended file advises a temperature of 0.6.
    for flags, want in (([], "temp=0.6 top_k=40 top_p=0.95 min_p=0.05 seed=0"),
                        (["--temp", "0", "--top-k", "7", "--top-p", "0.5", "--min-p", "0.1", "--seed", "9"],
                         "temp=0 top_k=7 top_p=0.5 min_p=0.1 seed=9")):
        check(want in run("run", *flags, "x", "-p", "@sampling").stderr, want)
        with harness.Server(*flags) as server:
            check("sampling: temperature " in server.text(), server.text())
            said = lambda **fields: server.post("/v1/completions", {"prompt": "@sampling", **fields})[1]["error"]
            same(said()["message"], want)
            same(said(temperature=1, top_k=-1, top_p=1, min_p=0, seed=3)["message"],
                 "temp=1 top_k=0 top_p=1 min_p=0 seed=3")


@case
def the_manual_holds_every_option():
    page = run("help", "--man").stdout
    for command in COMMANDS:
        for line in run(command, "--help").stdout.split("\n"):
            if line.startswith("  -"):
                name = line.split()[0].rstrip(",").replace("-", "\\-")
                check(f"\n\\fB{name}" in page, f"{command}: {name} is not in the manual")


@case
def a_full_disk_is_a_failure():
    for args in (["--version"], ["help"], ["devices"], ["inspect", "x"], ["plan", "-m", "x"],
                 ["run", "-m", "x", "-p", "hi"]):
        with open("/dev/full", "w") as full:
            done = run(*args, stdout=full)
        check(done.returncode == 1 and "cannot write" in done.stderr, f"{args}: {done}")


@case
def run_answers_a_prompt():
    done = run("run", "-m", "x", "-p", "hi")
    same((done.returncode, done.stdout, done.stderr), (0, "abcde\n", ""))
    done = run("run", "-m", "x", stdin="@tokens=3\n")
    same((done.returncode, done.stdout, done.stderr), (0, "abc\n", ""))
    done = run("run", "-m", "x", stdin="\n")
    same((done.returncode, done.stdout), (1, ""))
    with tempfile.NamedTemporaryFile("w") as file:
        file.write("@tokens=4\n")
        file.flush()
        same(run("run", "-m", "x", "-f", file.name).stdout, "abcd\n")
    done = run("run", "-m", "x", "-p", "hi", "--show-timings")
    same(done.stdout, "abcde\n")
    check("answer: 5 tokens" in done.stderr, done.stderr)


@case
def run_takes_a_script_of_questions():
    done = run("run", "-m", "x", "-cnv", stdin="one\ntwo @tokens=2\r\n/reset\nthree @tokens=3")
    same((done.returncode, done.stdout), (0, "abcde\nab\nabc\n"))


@case
def failures_are_status_1():
    for args, says in ((["run", "-m", "missing", "-p", "a"], "no such model file"),
                       (["run", "-m", "x", "-p", "@never"], "more memory than there is"),
                       (["run", "-m", "x", "-p", "@nan"], "no numbers"),
                       (["run", "-m", "x", "-f", "/nonexistent"], "/nonexistent: No such file"),
                       (["bench", "-m", "missing"], "no such model file"),
                       (["bench", "-m", "missing", "--explain", "--bandwidth", "9"], "no such file"),
                       (["plan", "-m", "missing"], "no such file"),
                       (["plan", "-m", "missing", "--device", "cuda"], "--device-memory BYTES plans"),
                       (["plan", "--diff", "/nonexistent", "b"], "/nonexistent: No such"),
                       (["plan", "-m", "small"], "-np 1 works"),
                       (["inspect", "missing"], "no such file"),
                       (["plan", "-m", "x", "--plan-out", "/nonexistent/p"], "/nonexistent/p: No such")):
        done = run(*args)
        check(done.returncode == 1 and says in done.stderr, f"{args}: {done}")


@case
def results_as_json():
    same(json.loads(run("plan", "-m", "x", "--json").stdout), {"object": "plan"})
    same(json.loads(run("devices", "--json").stdout)[0]["id"], "cpu")
    same(run("devices").stderr, "abacus: no beads\n")
    same(run("bench", "-m", "x", "--explain", "--device", "cuda:0").stdout, "3197000000000 bytes/s\n")
    for device in ("cpu", "vulkan", "hip", "cudas"):  # nobody knows what they read
        wrong("bench", "-m", "x", "--explain", "--device", device,
              says=f"--device {device} needs --bandwidth GB/S")
    same(json.loads(run("bench", "-m", "x", "--explain", "--bandwidth", "0.5", "--json").stdout),
         {"bytes_per_second": 500000000})
    same(json.loads(run("inspect", "--json", "x").stdout), {"keys": {}})
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "plan.json")
        done = run("plan", "-m", "x", "--plan-out", path)
        check(done.returncode == 0 and done.stdout.startswith("room"), done)
        with open(path) as file:
            same(json.load(file), {"object": "plan"})
        same(os.listdir(folder), ["plan.json"])


main()
