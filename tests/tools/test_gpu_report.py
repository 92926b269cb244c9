"""`tools/gpu_report`, on the CPU with the stand-in: parts, times, what is left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch.distributed as dist
from torchcomms import _comms, bench

from tests.harness.backends import NCCL

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(_comms.__file__).parents[2]  # the module is in stage/torchcomms
SCRIPT = str(ROOT / "tools" / "gpu_report")
sys.path.insert(0, str(ROOT / "tools"))

from gpureport import each_test, write  # noqa: E402
from gpureport.parts import POINTS, Machine, Part, parts  # noqa: E402
from gpureport.processes import LATE, Command, marked  # noqa: E402
from gpureport.run import RESTARTS, Result, Runner  # noqa: E402


def program(code: str, **more: object) -> Part:
    return Part("one", "a program", (sys.executable, "-c", code), **{"share": 1.0, **more})


def test_a_command_over_its_time_ends_with_what_it_started(tmp_path):
    # A child in a session of its own, as torchrun's ranks are, that does not want to go.
    started = tmp_path / "started"
    os.mkfifo(started)
    child = (
        "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"open({str(started)!r}, 'w').write('yes')\nwhile True: signal.pause()"
    )
    code = (
        "import signal, subprocess, sys\n"
        f"subprocess.Popen([sys.executable, '-c', {child!r}], start_new_session=True)\n"
        "signal.pause()"
    )
    log = tmp_path / "log"
    command = Command([sys.executable, "-c", code], {}, log, tmp_path, limit_s=600)
    assert started.read_text() == "yes"
    assert len(marked(command.mark)) == 2
    command.limit_s = 0
    command.wait()
    assert command.status == LATE
    assert marked(command.mark) == []


def test_parts_share_the_gpus_and_none_measures_beside_another(tmp_path):
    runner = Runner(Machine(4), tmp_path, 600, lambda _: None)
    code = "import os; print(os.environ.get('CUDA_VISIBLE_DEVICES'))"
    parts = [Part(f"two{i}", "", (sys.executable, "-c", code), 1.0, gpus=2) for i in range(3)] + [
        Part("all", "", (sys.executable, "-c", code), 1.0, gpus=4, alone=True)
    ]
    runner.run(parts)
    seen = [(tmp_path / f"{part.name}.log").read_text().strip() for part in parts]
    assert seen[:2] == ["0,1", "2,3"]
    assert seen[2] in ("0,1", "2,3")
    assert seen[3] == "0,1,2,3"
    assert [result.outcome for result in runner.results.values()] == ["passed"] * 4


def test_where_parts_may_share_a_gpu_they_run_beside_each_other_there(tmp_path):
    runner = Runner(Machine(2, parts_a_gpu=2), tmp_path, 600, lambda _: None)
    # The first one waits for the second.
    fifo = str(tmp_path / "fifo")
    os.mkfifo(fifo)
    codes = {"reads": f"open({fifo!r}).read()", "writes": f"open({fifo!r}, 'w').write('x')"}
    runner.run(
        [Part(name, "", (sys.executable, "-c", code), 1.0, gpus=2) for name, code in codes.items()]
    )
    assert [result.outcome for result in runner.results.values()] == ["passed"] * 2


def test_a_part_that_is_done_is_not_run_again(tmp_path):
    part = program(f"open({str(tmp_path / 'ran')!r}, 'a').write('x')")
    for _ in range(2):
        Runner(Machine(0), tmp_path, 600, lambda _: None).run([part])
    assert (tmp_path / "ran").read_text() == "x"


def test_soaks_and_the_kernels_own_tests_are_parts_where_they_can_run():
    names = {part.name for part in parts(Machine(2), Path("build"), Path("out"), soak_minutes=3)}
    assert {"kernels", "memcheck", "soak-1", "soak-2", "soak-3"} <= names
    dry = {part.name for part in parts(Machine(0, Path("s")), Path("build"), Path("out"))}
    assert not {"kernels", "memcheck", "soak-1"} & dry


def test_what_nothing_may_run_beside_is_a_part_of_its_own_where_parts_share_gpus():
    shared = Machine(2, parts_a_gpu=4)
    found = {part.name: part for part in parts(shared, Path("build"), Path("out"))}
    alone = found["serial-nccl-cuda-2"]
    assert alone.alone
    assert "serial" in alone.argv
    assert "not serial" in found["graph-nccl-cuda-2"].argv
    usual = {part.name for part in parts(Machine(2), Path("build"), Path("out"))}
    assert "serial-nccl-cuda-2" not in usual


def test_where_no_time_is_left_a_part_says_so(tmp_path):
    runner = Runner(Machine(2), tmp_path, 0, lambda _: None)
    runner.run([program("1"), Part("big", "", ("true",), 1.0, gpus=8)])
    assert runner.results["one"].outcome == "not reached"
    assert runner.results["big"].outcome == "not run: it needs 8 GPUs, here are 2"


def test_tests_have_a_line_each_and_are_not_run_twice(tmp_path):
    (tmp_path / "test_some.py").write_text(
        "import pytest\n"
        "class Row: label = 'row'\n"
        "@pytest.mark.parametrize('world', [(Row, 2), (Row, 3)])\n"
        "def test_good(world): pass\n"
        "@pytest.mark.parametrize('world', [(Row, 2)])\n"
        "def test_bad(world): assert world is None\n"
        "@pytest.mark.parametrize('world', [(Row, 2)])\n"
        "def test_left_out(world): pytest.skip('no reason')\n"
    )
    lines = tmp_path / "lines.jsonl"
    environment = {
        **os.environ, "PYTHONPATH": str(ROOT / "tools"), each_test.VARIABLE: str(lines),
        each_test.WORLD: "row-2",
    }  # fmt: skip
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "gpureport.each_test", "-p", "no:xdist"]
    argv += ["-c", os.devnull, "--rootdir", str(tmp_path), "test_some.py"]

    def run() -> int:
        return subprocess.run(
            argv, cwd=tmp_path, env=environment, capture_output=True, check=False
        ).returncode

    assert run() == 1
    with lines.open("a") as out:
        out.write('{"test": "cut o')  # a run that was killed while it wrote
    rows = each_test.read(lines)
    assert [row["outcome"] for row in rows] == ["passed", "failed", "skipped"]
    assert "assert" in rows[1]["text"]
    assert run() == pytest.ExitCode.NO_TESTS_COLLECTED
    assert write.counted(rows) == "1 passed, 1 failed, 1 skipped"


def test_failures_are_in_the_report(tmp_path):
    row = {"test": "test_it", "outcome": "failed", "seconds": 1.0, "text": "why\nbecause"}
    each_test.lines_of(tmp_path, "one").write_text(json.dumps(row) + "\n")
    about = {"gpus": 2, "stand-ins": None, "cpu": "some"}
    text = write.markdown(about, [Result("one", "some tests", "failed")], tmp_path, [], "title")
    assert "| some tests | failed | 1 failed |" in text
    assert "because" in text


def pytest_of(tmp_path: Path) -> tuple[str, ...]:
    options = ["-q", "-p", "gpureport.each_test", "-p", "no:xdist", "-c", os.devnull]
    file = str(tmp_path / "test_some.py")
    return (sys.executable, "-m", "pytest", *options, "--rootdir", str(tmp_path), file)


CRASHING = """
import os, pytest
class Row: label = "row"
def pytest_generate_tests(metafunc):
    metafunc.parametrize("world", [(Row, 2)], ids=["row-2"])
def test_before(world): pass
def test_that_ends_the_process(world): os.abort()
def test_behind(world): pass
"""


def test_a_test_that_ends_the_process_is_named_and_the_others_run(tmp_path):
    (tmp_path / "test_some.py").write_text(CRASHING)
    noted = []
    runner = Runner(Machine(0), tmp_path, 600, lambda _: None, lambda: noted.append(1))
    argv = pytest_of(tmp_path)
    runner.run([Part("some", "some tests", argv, 1.0, world="row-2")])
    assert runner.results["some"].outcome == "failed"
    rows = {
        row["test"].split("::")[1]: row["outcome"]
        for row in each_test.read(each_test.lines_of(tmp_path, "some"))
    }
    assert rows == {
        "test_before[row-2]": "passed",
        "test_that_ends_the_process[row-2]": each_test.BEGUN,
        "test_behind[row-2]": "passed",
    }
    assert len(noted) == RESTARTS + 1, "what is known is written as soon as a part has ended"
    text = write.markdown({"gpus": 2}, list(runner.results.values()), tmp_path, [], "title")
    assert "test_that_ends_the_process[row-2]` did not end" in text


def test_a_suite_without_tests_of_its_world_is_no_failure(tmp_path):
    (tmp_path / "test_some.py").write_text("def test_it(): pass")
    runner = Runner(Machine(0), tmp_path, 600, lambda _: None)
    argv = pytest_of(tmp_path)
    runner.run([Part("none", "", argv, 1.0, world="row-2")])
    assert runner.results["none"].outcome == "no tests"


def test_a_part_that_fails_is_not_the_end_of_the_others_and_says_its_last_words(tmp_path):
    runner = Runner(Machine(0), tmp_path, 600, lambda _: None)
    bad = Part("bad", "", (sys.executable, "-c", "raise SystemExit('why it failed')"), 1.0)
    runner.run([bad, program("1")])
    outcomes = {name: each.outcome for name, each in runner.results.items()}
    assert outcomes == {"bad": "failed", "one": "passed"}
    text = write.markdown({"gpus": 2}, list(runner.results.values()), tmp_path, [], "title")
    assert "why it failed" in text


def test_two_and_four_gpus_have_all_suites_of_their_sizes(tmp_path):
    def names(gpus):
        return [part.name for part in parts(Machine(gpus), tmp_path, tmp_path)]

    assert names(2)[:4] == ["build", "benchmarks", "bench", "tune"]
    for backend in ("ctran", "ncclx", "nccl", "nccl-lazy"):
        for suite in ("failures", "graph", "parallelism", "spec"):
            assert f"{suite}-{backend}-cuda-2" in names(2)
            assert f"{suite}-{backend}-cuda-4" in set(names(4)) - set(names(2))


def report(tmp_path: Path, *more: str) -> list[str]:
    return [sys.executable, SCRIPT, "--dry-run", "--build-dir", str(BUILD),
            "--work", str(tmp_path / "work"), "--out", str(tmp_path / "out"), *more]  # fmt: skip


@pytest.mark.slow
@pytest.mark.skipif(NCCL.missing() is not None, reason=str(NCCL.missing()))
def test_the_whole_of_it_runs_on_the_cpu(tmp_path):
    # As if the benchmarks had been reached before.
    work = tmp_path / "work"
    work.mkdir()
    plan = bench.Plan(["all_reduce"], ["fake"], [1024, 4096], iterations=1)
    points = bench.run_here(plan, bench.World(0, 1, dist.HashStore()))
    (work / POINTS[0]).write_text("".join(point.to_json() + "\n" for point in points))
    (work / "benchmarks.md").write_text("| line |\n|---|\n| all_reduce of 4K |\n")
    finished = subprocess.run(
        report(tmp_path, "--parts", "build,bench,tune,failures-*,spec-nccl-3",
               "--budget-seconds", "400"),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    (page,) = (tmp_path / "out").glob("gpu-*.md")
    assert str(page) in finished.stdout, finished.stderr
    rows = json.loads(page.with_suffix(".json").read_text())
    by_name = {part["name"]: part for part in rows["parts"]}
    for name in ("build", "bench", "tune"):
        assert by_name[name]["outcome"] == "passed", (work / f"{name}.log").read_text()
    assert by_name["failures-ncclx-2"]["outcome"] == "no tests", "they are for GPUs"
    spec = by_name["spec-nccl-3"]
    assert spec["outcome"] == "passed", (tmp_path / "work" / "spec-nccl-3.log").read_text()
    assert len(spec["tests"]) >= 5
    assert finished.returncode == 0
    pictures = {picture.name for picture in (tmp_path / "out").glob("*.svg")}
    assert {name.split("-")[4] for name in pictures} == {"points", "bench"}
    assert all(f"({name})" in page.read_text() for name in pictures)
    assert "all_reduce of 4K" in page.read_text()
    assert "kernel all_reduce gpu host-memory ranks 2..2" in page.read_text()


@pytest.mark.skipif(NCCL.missing() is not None, reason=str(NCCL.missing()))
def test_whoever_ends_it_ends_its_parts(tmp_path):
    argv = report(tmp_path, "--parts", "spec-nccl-3")
    running = subprocess.Popen(argv, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    assert "begins" in running.stderr.readline()
    running.send_signal(signal.SIGTERM)
    _, said = running.communicate()
    assert running.returncode == 128 + signal.SIGTERM, said
    assert not any(is_of(process, str(tmp_path)) for process in processes())
    assert list((tmp_path / "out").glob("gpu-*.md")), "what there is was not written"


def processes() -> list[Path]:
    return [folder for folder in Path("/proc").iterdir() if folder.name.isdigit()]


def is_of(process: Path, text: str) -> bool:
    try:
        return text.encode() in (process / "environ").read_bytes()
    except OSError:
        return False


def test_without_a_gpu_it_says_so():
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    finished = subprocess.run(
        [sys.executable, SCRIPT], env=environment, capture_output=True, text=True, check=False
    )
    assert finished.returncode == 2
    assert "no GPU" in finished.stderr


def test_an_unknown_part_is_refused_with_the_known_ones():
    finished = subprocess.run(
        [sys.executable, SCRIPT, "--dry-run", "--parts", "nothing"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert finished.returncode == 1
    assert "nothing" in finished.stderr
    assert "benchmarks" in finished.stderr
