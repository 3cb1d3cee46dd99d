# SPDX-License-Identifier: Apache-2.0
"""`plimsoll run` through a pseudo-terminal, on the pretended engine, whose answers the words in a
question steer (tests/support/fake_engine.c)."""
import os
import pathlib
import signal
import stat
import tempfile

import harness
from harness import case, check, main, same
from terminal import CTRL_C, CTRL_D, Terminal


def chat(*args, **keywords):
    return Terminal(harness.BINARY, "run", "-m", harness.MODEL, *args, **keywords)


def ready(t):
    t.expect(r"/help lists the commands\.\r\n> ")


@case
def answers_turn_after_turn():
    with chat() as t:
        ready(t)
        t.line("one")
        t.expect(r"one\r\nabcde\r\n> ")
        t.line("two @tokens=3")
        t.expect(r"abc\r\n> ")
        t.type(CTRL_D)
        same(t.end(), 0)


@case
def text_comes_as_it_is_made():
    with chat() as t:
        ready(t)
        t.line("@tokens=20 @delay=100")
        t.expect("abc", timeout=2)
        check("t" not in t.seen[t.at:], "the answer came in one piece")
        t.expect(r"qrst\r\n> ")


@case
def ctrl_c_stops_the_answer_and_not_the_program():
    with chat() as t:
        ready(t)
        t.line("@tokens=2000 @delay=20")
        t.expect("abcd")
        t.type(CTRL_C)
        t.expect(r"\r\n> ", timeout=2)
        same(t.rest(0.3), "")
        t.line("again")
        t.expect(r"again\r\nabcde\r\n> ")
        check(t.alive())


@case
def ctrl_c_before_the_first_token():
    with chat() as t:
        ready(t)
        t.line("@hold")
        t.rest(0.3)
        t.type(CTRL_C)
        t.expect(r"\r\n> ", timeout=2)
        t.line("again")
        t.expect(r"abcde\r\n> ")


@case
def ctrl_c_at_the_prompt_empties_the_line():
    with chat() as t:
        ready(t)
        t.type("@never")
        t.expect("@never")
        t.type(CTRL_C)
        t.expect(r"\r\n> ", timeout=2)
        t.line("fine")
        t.expect(r"abcde\r\n> ")


@case
def ctrl_c_while_loading_ends_the_program():
    with Terminal(harness.BINARY, "run", "-m", "slow-30000.gguf") as t:
        t.rest(0.3)
        t.type(CTRL_C)
        same(t.end(timeout=3), -2)


@case
def commands():
    with chat() as t:
        ready(t)
        t.line("/regen")
        t.expect("there is no answer yet")
        t.line("first @tokens=4")
        t.expect(r"abcd\r\n> ")
        t.line("/regen")
        t.expect(r"/regen\r\nabcd\r\n> ")
        t.line("/reset")
        t.expect("forgotten")
        t.line("/regen")
        t.expect("there is no answer yet")
        t.line("/help")
        t.expect(r"Ctrl-C stops an answer\.\r\n> ")
        t.line("/usr/bin is a path")
        t.expect(r"abcde\r\n> ")
        t.line("/exit")
        same(t.end(), 0)


@case
def an_unknown_command_is_named_and_not_sent():
    with chat() as t:
        ready(t)
        t.line("/rest")
        t.expect(r"\r\n\[no command /rest; /help lists them; begin with a space to send it\]\r\n> ")
        t.line("/exti now")
        t.expect(r"\r\n\[no command /exti; [^\r]*\r\n> ")
        for question in (" /rest", "/usr/bin", "/etc2 what is it", "/"):
            t.line(question)
            t.expect(r"\r\nabcde\r\n> ")


@case
def a_line_that_ends_in_a_backslash_goes_on():
    with chat() as t:
        ready(t)
        t.line("@tokens=7 \\")
        t.expect(r"\r\n\. ")
        t.line("more")
        t.expect(r"abcdefg\r\n> ")


UP, DOWN, LEFT, HOME = "\x1b[A", "\x1b[B", "\x1b[D", "\x1bOH"


@case
def a_question_is_edited_and_found_again():
    with chat() as t:
        ready(t)
        t.type("kens=3 x")
        t.type(LEFT * 8 + "@to" + "\x05" + "\x7f" + "é漢")  # home by arrows, Ctrl-E, backspace
        t.expect(r"@tokens=3 é漢")
        t.type("\r")
        t.expect(r"\r\nabc\r\n> ")
        t.line("other")
        t.expect(r"\r\nabcde\r\n> ")
        t.type(UP + UP)
        t.expect("@tokens=3 é漢")
        t.type(HOME + "\x0b" + "@tokens=2\r")  # Ctrl-K
        t.expect(r"\r\nab\r\n> ")
        t.type("draft" + UP + DOWN + "\r")
        t.expect(r"draft\r\nabcde\r\n> ")


@case
def a_paste_is_one_question():
    with chat() as t:
        ready(t)
        check(t.pastes_are_marked())
        t.type("\x1b[200~/exit\r\rthree lines @tokens=3\r\x1b[201~")
        t.expect(r"/exit\r\n\. \r\n\. three lines @tokens=3\r\n\. ")
        same(t.rest(0.3), "")
        t.type("\r")
        t.expect(r"\r\nabc\r\n> ")
        check(t.pastes_are_marked())
        t.type(CTRL_D)
        same(t.end(), 0)
        check(not t.pastes_are_marked())


@case
def the_terminal_is_given_back():
    for word, status in ((signal.SIGTERM, -15), (signal.SIGHUP, -1)):
        with chat() as t:
            ready(t)
            check(not t.echoes())
            os.kill(t.pid, word)
            same(t.end(), status)
            check(t.echoes() and not t.pastes_are_marked())
    with chat() as t:
        ready(t)
        t.line("@hold")  # while an answer comes, keys are the terminal's own
        t.rest(0.3)
        check(t.echoes() and not t.pastes_are_marked())


@case
def a_stop_gives_the_terminal_back_for_a_while():
    with chat() as t:
        ready(t)
        t.type("dra")
        t.expect("dra")
        os.kill(t.pid, signal.SIGTSTP)
        t.rest(0.3)
        check(t.echoes() and not t.pastes_are_marked())
        os.kill(t.pid, signal.SIGCONT)
        t.expect("> dra")
        check(not t.echoes() and t.pastes_are_marked())
        t.line("ft")
        t.expect(r"ft\r\nabcde\r\n> ")


@case
def a_dumb_terminal_gets_plain_lines():
    with chat(env={"TERM": "dumb"}) as t:
        t.expect(r"commands\.\r\n> ")
        check(t.echoes())
        t.line("one")
        t.expect(r"one\r\nabcde\r\n> ")
        check("\x1b" not in t.raw, repr(t.raw))


@case
def an_empty_line_asks_nothing():
    with chat() as t:
        ready(t)
        t.line("")
        same(t.rest(0.3), "\r\n> ")


@case
def a_refusal_is_told_and_the_chat_goes_on():
    with chat() as t:
        ready(t)
        for word, told in (("@never", "needs more memory"), ("@late", "waited too long"), ("@nan", "no numbers")):
            t.line(word)
            t.expect(told + r"[^\r]*\r\n> ")
        t.line("fine")
        t.expect(r"abcde\r\n> ")
        t.type(CTRL_D)
        same(t.end(), 0)


@case
def a_full_context_drops_the_oldest_turns_and_says_so():
    # "@all" makes the pretended engine count the texts of all messages, a byte a token.
    with chat("-c", "100", "-n", "6", "-sys", "@all system") as t:
        ready(t)
        for turn in range(3):  # 20 bytes and an answer of 5 each
            t.line(f"turn {turn} " + "x" * 13)
            t.expect(r"x\r\nabcde\r\n> ")
        # 11 + 75 + 30 + 6 > 100: one turn goes; then 11 + 50 + 35 + 35 + 6: both others.
        t.line("y" * 30)
        t.expect(r"y\r\n\[the oldest turn is dropped: the context is full\]\r\nabcde\r\n> ")
        t.line("z" * 35)
        t.expect(r"z\r\n\[the oldest 2 turns are dropped: the context is full\]\r\nabcde\r\n> ")
        # What is too long alone is refused, and costs no turn.
        t.line("w" * 90)
        t.expect(r"the request is longer\r\n\[this question alone is too long for the context\]\r\n> ")
        t.line("v")
        t.expect(r"v\r\nabcde\r\n> ")
        t.line("/regen")
        t.expect(r"/regen\r\nabcde\r\n> ")


@case
def where_turns_are_dropped_there_is_room_for_an_answer():
    # Without -n one token of room would do; a quarter of the context is made.
    with chat("-c", "100", "-sys", "@all s") as t:
        ready(t)
        for length in (10, 30, 30):
            t.line("x" * length)
            t.expect(r"x\r\nabcde\r\n> ")
        t.line("y" * 15)  # 6 + 15 + 35 + 35 + 15 > 100; 6 + 35 + 35 + 15 + 25, too
        t.expect(r"y\r\n\[the oldest 2 turns are dropped: the context is full\]\r\nabcde\r\n> ")


@case
def a_question_too_long_by_itself_says_so():
    with chat("-c", "100", "-n", "50") as t:
        ready(t)
        t.line("x" * 90)
        t.expect(r"the request is longer\r\n\[this question alone")
        t.line("short")
        t.expect(r"abcde\r\n> ")


@case
def an_answer_that_was_cut_says_so():
    with chat("-n", "3") as t:
        ready(t)
        t.line("long @tokens=10")
        t.expect(r"abc\r\n\[cut: ")


@case
def a_model_can_not_drive_the_terminal():
    with chat() as t:
        ready(t)
        t.line("@escape @tokens=2")
        t.expect("\ufffd\ufffd\r\n> ")
        check("\x1b" not in t.seen[t.seen.index("@escape"):], repr(t.seen))


@case
def one_prompt_ends_the_program():
    with chat("-p", "hi") as t:
        same(t.end(), 0)
        check(t.seen.endswith("abcde\r\n"), repr(t.seen))
        check(">" not in t.seen, repr(t.seen))


@case
def one_prompt_and_ctrl_c():
    with chat("-p", "@tokens=2000 @delay=20") as t:
        t.expect("abc")
        t.type(CTRL_C)
        same(t.end(timeout=3), 130)


@case
def one_prompt_and_then_a_chat():
    with chat("-p", "hi", "-cnv") as t:
        t.expect(r"abcde\r\n> ")
        t.line("more")
        t.expect(r"abcde\r\n> ")


@case
def progress_is_a_bar_that_goes_away():
    with chat("-p", "hi") as t:
        t.expect(r"load +\[#+\.+\]")
        t.end()
        t.expect(r"\r\x1b\[Kabcde")
    with chat("-p", "hi", env={"TERM": "dumb"}) as t:
        t.end()
        check("\x1b" not in t.seen, repr(t.seen))


@case
def a_pipe_in_place_of_the_history_holds_nothing_up():
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(pathlib.Path(folder) / "plimsoll")
        os.mkfifo(pathlib.Path(folder) / "plimsoll/history")
        with chat(env={"XDG_STATE_HOME": folder}) as t:
            ready(t)
            t.line("hi")
            t.expect(r"abcde\r\n> ")
            t.type(CTRL_D)
            same(t.end(), 0)


@case
def questions_are_found_again_in_the_next_chat():
    with tempfile.TemporaryDirectory() as folder:
        kept = pathlib.Path(folder) / "plimsoll/history"
        env = {"XDG_STATE_HOME": folder}
        with chat(env=env) as t:
            ready(t)
            t.line("first \\ one")
            t.expect(r"abcde\r\n> ")
            t.type("two\x1b\rlines\n")  # Alt-Enter
            t.expect(r"abcde\r\n> ")
            for _ in range(5):  # nobody types so much
                t.type("x" * 1000)
                t.rest(0.2)
            t.line("")
            t.expect(r"too long for the context\]\r\n> ")
            t.type(CTRL_D)
            same(t.end(), 0)
        same(kept.read_text(), "first \\\\ one\ntwo\\nlines\n")
        same(stat.S_IMODE(kept.stat().st_mode), 0o600)
        same(stat.S_IMODE(kept.parent.stat().st_mode), 0o700)
        with chat(env=env) as t:
            ready(t)
            t.type(UP + UP + UP)  # through both lines of the last one
            t.expect(r"first \\ one")
            t.type(CTRL_C)
            t.expect(r"\^C\r\n> ")
            t.type(CTRL_D)
            same(t.end(), 0)
        with chat("--no-history", env=env) as t:
            ready(t)
            t.type(UP)
            same(t.rest(0.3).replace("\x07", ""), "")
            t.line("third")
            t.expect(r"abcde\r\n> ")
        check("third" not in kept.read_text(), kept.read_text())
        # Without a terminal nothing is kept, and what lies there is taken as a paste is.
        kept.write_bytes(b"old\n" * 3000 + b"bad \xff\x1b[2Jend\n" + b"no line feed")
        with chat(env=env) as t:
            ready(t)
            same(kept.read_bytes().count(b"\n"), 1000)
            t.type(UP)
            seen = t.expect("end").string[t.at - 40:]
            check("\x1b[2J" not in seen, seen)
        kept.unlink()
        kept.symlink_to(pathlib.Path(folder) / "elsewhere")
        with chat(env=env) as t:
            ready(t)
            t.line("fourth")
            t.expect(r"abcde\r\n> ")
        check(not (pathlib.Path(folder) / "elsewhere").exists(), "a planted link was followed")


main()
