"""Programs in forked processes begin and end as they do in interpreters of their own."""

from __future__ import annotations

import signal

import pytest

from tests.harness.ports import free_port
from tests.harness.programs import forked, launched, module, python, ranks

AT_ITS_END = """
    import atexit, sys, threading, torch
    print(sys.argv[1:], sys.stdin.read(), "buffered")
    atexit.register(lambda: print("handler"))
    threading.Thread(target=lambda: print("thread")).start()
    class Kept:
        def __del__(self):
            print("destructor")
    kept = Kept()
    {last}
"""


@pytest.mark.parametrize("last", ["pass", "sys.exit(7)", "sys.exit('words')", "1 / 0"])
def test_the_end_is_that_of_an_interpreter(last):
    source = AT_ITS_END.format(last=last)
    there, here = (run(source, "one", "two") for run in (python, forked))
    assert (here.code, here.out) == (there.code, there.out)
    assert here.err.splitlines()[-1:] == there.err.splitlines()[-1:]


@pytest.mark.parametrize(("call", "by"), [("abort()", 6), ("kill(os.getpid(), 9)", 9)])
def test_a_signal_is_its_exit_code(call, by):
    assert forked(f"import os; os.{call}").code == -signal.Signals(by)


def test_it_finds_what_it_is_given(tmp_path):
    source = "import os, sys; print(os.getcwd(), os.environ['MINE'], sys.stdin.read())"
    told = forked(source, stdin="words", folder=tmp_path, MINE="set").expect_success()
    assert told.out == f"{tmp_path} set words\n"
    assert not forked("import os; print(os.environ.get('MINE', ''))").out.strip()


def test_a_module_runs_as_the_main_program(tmp_path):
    (tmp_path / "mine.py").write_text("import sys; print(__name__, sys.argv[1:])")
    assert module("mine", "a", folder=tmp_path).expect_success().out == "__main__ ['a']\n"


def test_who_does_not_end_is_killed_with_what_it_said():
    source = "import threading; print('here', flush=True); threading.Event().wait()"
    with pytest.raises(AssertionError, match="the first that was late\nhere"):
        ranks(source, 2, free_port(), deadline=1.0)


def test_a_rank_that_fails_ends_those_it_was_launched_with(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import os, sys, threading\n"
        "sys.exit(3) if os.environ['RANK'] == '1' else threading.Event().wait()\n"
    )
    codes = [ended.code for ended in launched(program, 3, folder=tmp_path)]
    assert codes == [-signal.SIGKILL, 3, -signal.SIGKILL]


def test_what_imports_read_is_there_when_they_do():
    source = """
        import torch, torchcomms
        torchcomms.new_comm("fake", torch.device("cpu"), "first")
        print(hasattr(torchcomms.TorchComm, "_traceable"))
    """
    for switch in ("0", "1"):
        there, here = (run(source, TORCHCOMMS_PATCH_FOR_COMPILE=switch) for run in (python, forked))
        assert here.expect_success().out == there.expect_success().out
