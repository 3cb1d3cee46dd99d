# SPDX-License-Identifier: Apache-2.0
"""A fault table: the real server on a driver that fails on purpose, a fault at each place, and what
became of it. Each row has an outcome that is checked: the start fails with words that name what is
wrong, or every request is answered with the text of an undisturbed run."""
import re
import time

from faulty_server import PROMPTS, Load, complete
from harness import check, same, wait_until


class FaultTable:
    """server: a subclass of FaultyServer. undisturbed: its options for the run that all texts must equal.
    kinds: of objects, which a start that fails must have destroyed: counters KIND_created, KIND_destroyed."""

    def __init__(self, server, undisturbed=None, kinds=()):
        self.server, self.undisturbed, self.kinds = server, undisturbed or {}, kinds
        self.rows = []
        self.texts = []

    def row(self, fault, place, outcome):
        self.rows.append((fault, place, outcome))

    def want(self):
        """The texts that every run must give."""
        if not self.texts:
            with self.server(**self.undisturbed) as server:
                self.texts = Load(server).texts()
            check(all(isinstance(text, str) and text for text in self.texts), self.texts)
        return self.texts

    def answered(self, server, load):
        """All streams have the undisturbed text, and the server goes on."""
        same(load.texts(), self.want())
        same(complete(server, PROMPTS[0]), (200, self.want()[0]))
        same(server.get("/health")[0], 200)
        same(server.counters()["misuses"], 0)

    def refused(self, server, words):
        """The start failed: returns its last line, which has all the words, and nothing was left behind."""
        same(server.process.wait(30), 1)
        last = server.text().strip().split("\n")[-1]
        said = re.fullmatch(r"(?:\S+Z )?plimsoll serve: (.*)", last)  # a line of the log begins with its time
        check(said, server.text())
        for word in words:
            check(word in last, f"no '{word}' in: {last}")
        counters = server.counters()
        same((counters["live_bytes"], counters["memory_leaked"], counters["misuses"]), (0, 0, 0))
        for kind in self.kinds:
            same((kind, counters[kind + "_destroyed"]), (kind, counters[kind + "_created"]))
        return said.group(1)

    def start(self, fault, place, rules, *words, either=False, args=(), **options):
        """A start under rules: with words it must fail and say them, else serve the undisturbed texts.
        either: it may do both; options: of the server; returns whether a rule struck."""
        server = self.server(*args, rules=rules, wait=False, **options)
        try:
            wait_until(lambda: server.process.poll() is not None or "READY: " in server.text(), "an outcome",
                       240)
            starts = "READY: " in server.text()
            check(either or starts != bool(words), f"{rules}: {server.text()}")
            struck = server.counters()["faults"] > 0
            if not starts:
                self.row(fault, place, "fails: " + self.refused(server, words))
                return struck
            server.wait()
            check(either or struck, f"{rules}: nothing was struck")
            self.answered(server, Load(server))
            same(server.stop(), 0)
            if struck:
                self.row(fault, place, "starts; same texts")
            return struck
        finally:
            server.stop()
            server.close()

    def serve(self, fault, place, rules, *metrics, view="", args=()):
        """A fault under four streams. Each metric must have risen; every text is the undisturbed one."""
        with self.server(*args, rules=view) as server:
            before = [server.metric("plimsoll:" + name) for name in metrics]
            struck = server.counters()["faults"]
            load = Load(server)
            server.say(rules)
            self.answered(server, load)
            check(server.counters()["faults"] > struck, f"{rules}: nothing was struck")
            check(server.counters()["bad_rules"] == 0, server.text())
            said = []
            for name, old in zip(metrics, before):
                new = server.metric("plimsoll:" + name) - old
                check(new > 0, f"{rules}: {name} did not rise:\n{server.text()}")
                said.append(f"{name.removesuffix('_total')} {new:.0f}")
            self.row(fault, place, "all answered, same texts" + (": " + ", ".join(said) if said else ""))

    def never_back(self, place, rules):
        """A loss after which no device answers, and a shutdown meanwhile."""
        with self.server() as server:
            load = Load(server)
            server.say(rules)
            wait_until(lambda: server.metric("plimsoll:device_losses_total") > 0, "a loss")
            time.sleep(1)
            same(server.get("/health")[0], 200)  # it is there, and tries
            check("does not come back yet" in server.text(), server.text())
            server.process.terminate()
            results = load.texts()
            check(all(isinstance(r, (dict, str)) for r in results), results)
            self.row("lost, and gone for ever", place, "tries for 2 minutes; a shutdown meanwhile ends it")

    def three_losses(self, fault, place, rule):
        """Three losses in a row, by a rule that gets a tag of its own each time."""
        with self.server() as server:
            loads = [Load(server, tokens=450)]

            def struck(i):
                # A request that was in two losses has ended: others go on in its place.
                idle = not any(thread.is_alive() for thread in loads[-1].threads)
                if server.metric("plimsoll:device_losses_total") > i:
                    return True
                if idle:
                    loads.append(Load(server, tokens=450))
                return False

            for i in range(3):
                server.say(f"{rule} tag=loss{i}")
                wait_until(lambda: struck(i), f"loss {i + 1}", 60)
                if i < 2:
                    wait_until(lambda: server.metric("plimsoll:device_reopened_total") > i, f"return {i + 1}", 60)
            for result in (result for load in loads for result in load.texts()):
                # Of those that came last some may have been lost before they began, or come too late.
                late = any(status in str(result) for status in ("status 500", "status 503"))
                check(late or isinstance(result, dict) and result["code"] == "backend_error", repr(result))
            status, error = complete(server, PROMPTS[0])
            same(status, 503)
            check("three times in a row" in server.text(), server.text())
            self.row(fault, place,
                     f"every request ends with backend_error, later ones with {error['code']}; it stops as told")

    def neighbour(self, view, taken):
        """Under the rules `taken` another process holds 440 of 512 MiB, and then leaves."""
        # Room for so many that the KV cache has some slabs to give.
        with self.server("-np", "64", "--neighbours", "yield", "--monitor-ms", "50", rules=view) as server:
            def blocks():
                return server.memory()["devices"][0]["blocks"]["total"]
            whole = blocks()
            load = Load(server)
            server.say(taken)
            self.answered(server, load)
            wait_until(lambda: blocks() < whole, "blocks given back")
            fewer = blocks()
            server.say("")
            wait_until(lambda: blocks() == whole, "all blocks again", 60)
            self.answered(server, Load(server))
            self.row("a neighbour takes 440 of 512 MiB, then leaves", "serving",
                     f"KV blocks {whole} -> {fewer} -> {whole}; all answered, same texts")

    def lies(self, what, view, rule):
        """Readings that are wrong in every way that the rule knows."""
        for lie in ("zero", "max", "double", "stale"):
            with self.server("--monitor-ms", "50", rules=view) as server:
                load = Load(server)
                server.say(f"{rule} {lie}")
                self.answered(server, load)
                time.sleep(0.3)
                self.answered(server, Load(server))
                self.row(f"{what} lies: {lie}", "serving", "all answered, same texts")

    def show(self):
        if not self.rows:
            return
        widths = [max(len(row[i]) for row in self.rows) for i in range(2)]
        print("\n| fault | place | outcome |\n|---|---|---|")
        for fault, place, outcome in self.rows:
            print(f"| {fault:{widths[0]}} | {place:{widths[1]}} | {outcome} |")
