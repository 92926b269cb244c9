"""`torchcomms sim`: arguments, outputs, exit statuses, and figures worked out by hand."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest
from torchcomms.sim import algorithms
from torchcomms_cli.app import app
from typer.testing import CliRunner, Result


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["sim", *arguments])


def lines(*arguments: str) -> list[dict[str, object]]:
    done = run(*arguments, "--json", "-")
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


LOGGP = ("--latency-us", "2", "--overhead-us", "0.5", "--gap-us", "0.25", "--bandwidth", "8")


def test_a_barrier_takes_its_rounds():
    for line in lines("barrier", "--algorithm", "dissemination", "--ranks", "2,1000,128K", *LOGGP):
        rounds = (line["ranks"] - 1).bit_length()
        assert line["messages_max"] == rounds
        assert line["time_us"] == pytest.approx(rounds * 3)


def test_a_ring_takes_its_hops():
    (line,) = lines("all_reduce", "--algorithm", "ring", "--ranks", "256", "--bytes", "1M", *LOGGP)
    hop = 3 + (4096 - 1) * 0.125 / 1000
    # Each block is added up in 255 of the 510 hops.
    added = 255 * 4096 * 0.01 / 1000
    assert line["time_us"] == pytest.approx(510 * hop + added)
    assert line["bytes_max"] == 510 * 4096


def test_every_message_is_in_the_formula_of_its_algorithm():
    for line in lines("all_reduce", "--ranks", "64", "--bytes", "64K", "--local-size", "8"):
        if line["algorithm"] == "rings":  # its formula is a bound
            assert line["messages_max"] <= line["details"]["cost_messages"]
        else:
            assert line["messages_max"] == line["details"]["cost_messages"], line["algorithm"]
            assert line["bytes_max"] == line["details"]["cost_bytes"], line["algorithm"]


def test_bootstrap_takes_log_messages_and_a_constant_number_at_the_store():
    for line in lines("bootstrap", "--ranks", "2,1000,16K"):
        rounds = (line["ranks"] - 1).bit_length()
        assert line["messages_max"] == 4 * rounds
        assert line["details"]["store_requests"]["max"] == 2
        assert line["details"]["done"] == line["ranks"]
        assert line["memory_per_rank_bytes"] < 2048


def test_lost_messages_are_sent_again_and_nobody_fails():
    clean, lossy = (
        lines("bootstrap", "--ranks", "1000", "--drop", drop)[0] for drop in ("0", "0.02")
    )
    assert lossy["details"]["failed"] == 0
    assert lossy["time_us"] > clean["time_us"] + 200_000  # at least one retransmission


def test_a_killed_rank_is_named():
    (line,) = lines("bootstrap", "--ranks", "1000", "--kill", "500:25")
    details = line["details"]
    assert details["killed"] == 1
    assert details["failed"] > 0
    assert details["naming"] == details["failed"]
    assert details["noticed_us"] < 5e6


def test_the_same_command_gives_the_same_figures():
    arguments = ("bootstrap", "--ranks", "500", "--drop", "0.05", "--seed", "7")
    once, again = lines(*arguments)[0], lines(*arguments)[0]
    del once["wall_s"], again["wall_s"]
    assert once == again
    assert lines(*arguments[:-1], "8")[0]["time_us"] != once["time_us"]


@pytest.fixture(scope="module")
def outputs(tmp_path_factory) -> tuple[Result, list[dict[str, object]], bytes]:
    """One run with all outputs: what it printed, its lines, its picture."""
    folder = tmp_path_factory.mktemp("sim")
    json_path, picture = folder / "points.jsonl", folder / "points.png"
    done = run(
        "all_reduce", "--algorithm", "ring,two_level", "--ranks", "1K:2K", "--bytes", "1M",
        "--local-size", "8", "--json", str(json_path), "--plot", str(picture),
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    written = [json.loads(line) for line in json_path.read_text().splitlines()]
    return done, written, picture.read_bytes()


def test_a_table_lines_and_a_picture(outputs):
    table, written, picture = outputs
    assert len(table.stdout.splitlines()) == 2 + 4 + 1
    assert [(line["algorithm"], line["ranks"]) for line in written] == [
        ("ring", 1024), ("two_level", 1024), ("ring", 2048), ("two_level", 2048),
    ]  # fmt: skip
    assert picture.startswith(b"\x89PNG")


def test_it_says_which_ranks_ran(outputs):
    table, written, _ = outputs
    assert [line["enumerated"] for line in written] == [8, 1024, 8, 2048]
    assert "each represents" in table.stdout


def test_nothing_but_results_goes_to_stdout_and_no_bar_to_a_pipe(outputs):
    assert outputs[0].stderr == ""


def test_what_cannot_be_simulated_is_said_and_the_rest_is_done():
    done = run(
        "all_reduce", "--algorithm", "two_level,doubling", "--ranks", "12", "--local-size", "8"
    )
    assert done.exit_code == 0
    assert "two_level: needs the same number of ranks on each host" in done.stderr
    assert "doubling" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("all_reduse",), "unknown operation 'all_reduse'; allowed: bootstrap, all_reduce"),
        (("--algorithm", "rong"), "unknown algorithm 'rong' of all_reduce; allowed: one_shot"),
        (("bootstrap", "--algorithm", "ring"), "omit --algorithm"),
        (("--ranks", "1Q"), "ranks: '1Q' is not a size"),
        (("--ranks", "2M"), "ranks: 2097152 is above"),
        (("bootstrap", "--kill", "4"), "kill: '4' is not RANK:MS"),
        (("bootstrap", "--kill", "4:nan"), "kill: '4:nan' is not RANK:MS"),
        (("--latency-us", "nan"), "--latency-us: nan is not a finite number"),
        (("--kill", "4:1"), "--kill is only for bootstrap"),
        (("--stagger-us", "4"), "--stagger-us is only for bootstrap"),
        (("--drop", "1.5"), "drop: 1.5 is not in [0, 1)"),
        (("--bandwidth", "0"), "bandwidth: 0.0 GB/s is not above 0"),
        (("--seed", "-1"), "seed: -1 is not from 0 to 18446744073709551615"),
        (("--seed", "1" + 22 * "0"), f"seed: 1{22 * '0'} is not from 0 to"),
        (("--bytes", "1" + 21 * "0"), f"bytes: '1{21 * '0'}' is over 1024G"),
        (("--bytes", 5000 * "9"), "is not a size"),
        (("--local-size", 14 * "9"), "local_size: 99999999999999 is not from 1 to 1000000"),
        (("--rails", 14 * "9"), "rails: 99999999999999 is not from 0 to 1000000"),
        (("--hosts-per-leaf", "-1"), "hosts_per_leaf: -1 is not from 0 to 1000000"),
        (("--chunk", "-5"), "chunk: -5 is not from 1 to 1099511627776"),
        (("--chunk", "0"), "chunk: 0 is not from 1 to"),
        (("--chunk", 20 * "9"), f"chunk: {20 * '9'} is not from 1 to"),
        (("bootstrap", "--blob-bytes", 20 * "9"), f"blob_bytes: {20 * '9'} is not from 0 to"),
        (("bootstrap", "--kill", "-1:1"), "kill: -1 is not from 0 to 999999"),
        (("--plot", "points.doc"), "must end in one of .png"),
        (("--json", "/dev/null/x.json"), "/dev/null is not a folder"),
    ],
)
def test_a_bad_request_is_one_sentence_and_status_2(arguments, says):
    done = run(*arguments)
    assert done.exit_code == 2
    assert done.stderr.startswith("torchcomms sim: ")
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ("all_reduce", "--algorithm", "ring", "--ranks", "64", "--latency-us", "1e300"),
        ("all_reduce", "--algorithm", "ring", "--ranks", "64", "--bandwidth", "1e-300"),
        ("all_reduce", "--algorithm", "one_shot", "--ranks", "64", "--gap-us", "1e300"),
        ("bootstrap", "--ranks", "64", "--stagger-us", "1e300"),
        ("bootstrap", "--ranks", "1K", "--kill", "3:1e300"),
    ],
)
def test_what_takes_longer_than_the_clock_goes_has_no_figure(arguments):
    done = run(*arguments)
    assert done.exit_code == 2
    assert "takes over 13 days of simulated time" in done.stderr
    assert done.stdout == ""


def test_when_nothing_can_be_simulated_the_status_is_2():
    done = run("bootstrap", "--ranks", "4", "--kill", "9:1")
    assert done.exit_code == 2
    assert "rank 9 cannot be killed" in done.stderr


def test_the_help_has_examples():
    done = run("--help")
    assert done.exit_code == 0
    assert "torchcomms sim bootstrap --ranks 1K:128K" in done.stdout


def test_all_operations_have_algorithms():
    assert {"all_reduce", "all_gather", "barrier", "broadcast"} <= algorithms().keys()
    assert "ring" in algorithms()["all_reduce"]


def test_control_c_ends_a_long_run():
    program = (
        "import signal; from torchcomms import _comms;"
        # Who started the tests may have told all below to ignore it.
        "signal.signal(signal.SIGINT, signal.default_int_handler); print('go', flush=True);"
        "_comms._simulate_collective('reduce', 'chain', dict(ranks=14000, bytes=4))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "go\n"
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=60)
    assert process.returncode != 0
    assert "KeyboardInterrupt" in error
