"""What each examiner of the doctor sees, one planted fault at a time."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest
from torchcomms.doctor import (
    Finding,
    Report,
    Section,
    backends,
    environment,
    libraries,
    machine,
    network,
    rendezvous,
    to_text,
)
from torchcomms.doctor.backends import Backend
from torchcomms.doctor.exchange import Exchanges

GLOO = Backend("gloo", "cpu", lambda: None)


def problems(section: Section) -> str:
    return "\n".join(f"{f.subject}: {f.text}" for f in section.findings if f.level == "problem")


def warnings(section: Section) -> str:
    return "\n".join(f"{f.subject}: {f.text}" for f in section.findings if f.level == "warning")


def fixes(section: Section) -> str:
    return "\n".join(f.fix for f in section.findings)


# --- network -------------------------------------------------------------------------------------


def test_interfaces_have_their_addresses():
    lo = network.interfaces()[0]
    assert (lo.name, lo.up) == ("lo", True)
    assert "127.0.0.1" in lo.addresses
    shown = [row["interface"] for row in network.look().rows]
    assert shown == [each.name for each in network.interfaces()]


def test_a_name_resolves_or_says_why_not():
    assert network.resolve("127.0.0.1") == ("127.0.0.1", "")
    address, error = network.resolve("nowhere.invalid")
    assert address is None
    assert error


def facts_of(section: Section) -> dict[object, object]:
    return {row["what"]: row["value"] for row in section.rows}


@pytest.mark.parametrize(
    ("variables", "why"),
    [
        ({"TORCHCOMM_GLOO_INTERFACE": "lo"}, "TORCHCOMM_GLOO_INTERFACE=lo"),
        ({"GLOO_SOCKET_IFNAME": "lo"}, "GLOO_SOCKET_IFNAME=lo"),
        (
            {"TORCHCOMM_GLOO_HOSTNAME": "127.0.0.1", "TORCHCOMM_GLOO_INTERFACE": "nowhere0"},
            "TORCHCOMM_GLOO_HOSTNAME=127.0.0.1",
        ),
        ({}, "all ranks share this host"),
    ],
)
def test_the_address_is_chosen_by_gloos_rules(monkeypatch, variables, why):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    shown = facts_of(rendezvous.look())
    assert (shown["gloo's address"], shown["because"]) == ("127.0.0.1", why)


@pytest.mark.parametrize("variable", ["TORCHCOMM_GLOO_INTERFACE", "GLOO_SOCKET_IFNAME"])
def test_an_interface_that_is_not_there(monkeypatch, variable):
    monkeypatch.setenv(variable, "lo,nowhere0")
    section = rendezvous.look()
    assert f"{variable}: the interface nowhere0" in problems(section)
    assert "lo" in fixes(section)


def test_a_foreign_address(monkeypatch):
    monkeypatch.setenv("TORCHCOMM_GLOO_HOSTNAME", "203.0.113.7")  # nobody's (RFC 5737)
    assert "resolves to 203.0.113.7" in problems(rendezvous.look())


def test_a_job_over_hosts_uses_the_address_that_routes_to_rank_0(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "8")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    assert "other hosts cannot reach 127.0.0.1" in problems(rendezvous.look())
    monkeypatch.setattr("torchcomms.doctor.rendezvous.route", lambda address: "198.51.100.3")
    shown = facts_of(rendezvous.look())
    assert shown["gloo's address"] == "198.51.100.3"
    assert "rank 0's host" in shown["because"]


def test_a_job_on_one_host_may_use_loopback(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "8")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "8")
    assert problems(rendezvous.look()) == ""


def test_a_host_without_a_route(monkeypatch):
    monkeypatch.setattr("torchcomms.doctor.rendezvous.route", lambda address: None)
    monkeypatch.setenv("MASTER_ADDR", "203.0.113.7")
    assert "no route to 203.0.113.7" in problems(rendezvous.look())


def test_a_rendezvous_that_does_not_resolve(monkeypatch):
    monkeypatch.setenv("MASTER_ADDR", "nowhere.invalid")
    assert "MASTER_ADDR: nowhere.invalid does not resolve" in problems(rendezvous.look())


@pytest.mark.parametrize("server", ["silent", "slow", "quick", "without names"])
def test_a_name_server_that_keeps_every_start_up_waiting(monkeypatch, server):
    released = threading.Event()

    def look_up(address, flags):
        assert address[0] == "::ffff:127.0.0.1"
        if server == "silent":
            released.wait()
        if server == "without names":
            raise socket.gaierror("no such name")
        return "localhost", "0"

    monkeypatch.setattr(socket, "getnameinfo", look_up)
    monkeypatch.setattr(rendezvous, "LOOKUP_TIMEOUT_S", 0.2 if server == "silent" else 20.0)
    monkeypatch.setattr(rendezvous, "SLOW_S", 0.0 if server == "slow" else 10.0)
    try:
        found = [f for f in rendezvous.look().findings if f.subject == "name server"]
    finally:
        released.set()
    if server in ("quick", "without names"):
        assert found == []
        return
    (finding,) = found
    assert finding.level == "warning"
    assert ("no answer within 0.2 s" if server == "silent" else " took ") in finding.text
    assert "RES_OPTIONS" in finding.fix


@pytest.mark.parametrize("port", ["http", "70000"])
def test_a_port_that_is_none(monkeypatch, port):
    monkeypatch.setenv("MASTER_PORT", port)
    assert f"MASTER_PORT: '{port}' is not a port" in problems(rendezvous.look())


def test_a_port_that_somebody_holds(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as holder:
        monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
        monkeypatch.setenv("MASTER_PORT", str(holder.getsockname()[1]))
        monkeypatch.setenv("RANK", "0")
        assert "listen on 127.0.0.1" in problems(rendezvous.look())
        monkeypatch.setenv("RANK", "1")
        assert problems(rendezvous.look()) == ""


# --- environment ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variables", "says"),
    [
        ({"RANK": "2", "WORLD_SIZE": "2"}, "RANK=2 and WORLD_SIZE=2 are not a rank and a size"),
        ({"RANK": "x", "WORLD_SIZE": "2"}, "RANK=x and WORLD_SIZE=2"),
        ({"RANK": "0"}, "torchrun: RANK is set, but WORLD_SIZE is not"),
        ({"OMPI_COMM_WORLD_SIZE": "2"}, "Open MPI: OMPI_COMM_WORLD_SIZE is set, but"),
        ({"TORCHCOMM_ABORT_ON_ERROR": "perhaps"}, "'perhaps' cannot be read"),
        ({"TORCHCOMM_TIMEOUT_SECONDS": "-1"}, "'-1' cannot be read"),
        ({"TORCHCOMM_TIMEOUT_SECONDS": "0"}, "'0' cannot be read"),
        ({"TORCHCOMM_INIT_TIMEOUT_SECONDS": "inf"}, "'inf' cannot be read"),
        ({"TORCHCOMM_EVENTS_CAPACITY": "1"}, "'1' cannot be read"),
        ({"TORCHCOMM_EVENTS_CAPACITY": "1_000"}, "'1_000' cannot be read"),
        ({"TORCHCOMM_LOG_LEVEL": "warn"}, "'warn' cannot be read"),
        ({"TORCHCOMM_FR_BUFFER_SIZE": "-1"}, "'-1' cannot be read"),
        ({"TORCHCOMMS_BACKEND_LIB_PATH_X": "/nowhere/x.so"}, "/nowhere/x.so does not exist"),
        ({"TORCHCOMM_CTRAN_TUNING_FILE": "/nowhere/t"}, "tuning file /nowhere/t cannot be read"),
        ({"TORCHCOMM_CTRAN_TUNING_FILE": "/proc/cpuinfo"}, "line 1"),
    ],
)
def test_variables_that_make_no_sense(monkeypatch, variables, says):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    section = environment.look()
    assert says in problems(section)
    shown = {row["variable"]: row["value"] for row in section.rows}
    assert variables.items() <= shown.items()


def test_a_misspelt_variable_is_recognised(monkeypatch):
    monkeypatch.setenv("TORCHCOMM_TIMEOUT_SECOND", "30")
    section = environment.look()
    assert "TORCHCOMM_TIMEOUT_SECOND: torchcomms reads no variable" in warnings(section)
    assert "did you mean TORCHCOMM_TIMEOUT_SECONDS?" in fixes(section)


def test_variables_with_the_name_of_a_backend_are_known(monkeypatch):
    monkeypatch.setenv("TORCHCOMM_RCCLX_LIBRARY", "/nowhere/x.so")
    monkeypatch.setenv("TORCHCOMM_NCCLX_BOOTSTRAP_UNIQUEID_EXCHANGE_METHOD", "tcpstore")
    assert "reads no variable" not in warnings(environment.look())


def test_the_launcher_is_named_and_a_second_opinion_too(monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert "torchrun: rank 1 of 4" in [f.text for f in environment.look().findings]
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "0")
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "4")
    section = environment.look()
    assert "Open MPI: rank 0 of 4" in [f.text for f in section.findings]
    assert "torchrun says rank 1 of 4, but Open MPI" in warnings(section)


# --- machine -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("files", "level"), [(64, "problem"), (512, "warning"), (4096, "ok")])
def test_few_open_files(monkeypatch, files, level):
    import resource

    real = resource.getrlimit
    monkeypatch.setattr(
        "resource.getrlimit",
        lambda what: (files, files) if what == resource.RLIMIT_NOFILE else real(what),
    )
    assert [f.level for f in machine.look().findings if f.subject == "open files"] == [level]


def test_a_tiny_shared_memory():
    """In a mount namespace of its own, where /dev/shm has 64 KB."""
    script = (
        "from torchcomms.doctor import machine;"
        "[print(f.level, f.subject, f.text) for f in machine.look().findings]"
    )
    inside = 'mount -t tmpfs -o size=64k tmpfs /dev/shm && exec "$0" -c "$1"'
    command = ["unshare", "--mount", "--map-root-user", "sh", "-c"]
    allowed = subprocess.run([*command, "mount -t tmpfs tmpfs /dev/shm"], capture_output=True)
    if allowed.returncode != 0:
        pytest.skip(f"no mount namespace here: {allowed.stderr.decode().strip()}")
    done = subprocess.run(
        [*command, inside, sys.executable, script], capture_output=True, text=True, check=True
    )
    assert "problem /dev/shm only 64K of 64K free" in done.stdout


def test_more_ranks_than_cores(monkeypatch):
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(len(os.sched_getaffinity(0)) + 1))
    assert "oversubscribed" in warnings(machine.look())


# --- libraries -----------------------------------------------------------------------------------


def test_loaded_libraries_are_found_where_they_are():
    rows = libraries.look().rows
    (torch_row,) = [r for r in rows if r["library"] == "torch (with gloo inside)"]
    assert torch_row["state"] == "loaded"
    assert Path(str(torch_row["path"])).is_file()
    for row in rows:
        if row["library"] == "nccl":
            assert str(row["version"]).startswith("2.")


def test_an_empty_library_on_the_path_has_no_version(monkeypatch, tmp_path):
    (tmp_path / "libnccl.so.2").touch()
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    rows = [r for r in libraries.look().rows if str(tmp_path) in str(r["path"])]
    assert [r["version"] for r in rows] == [None]


def test_two_copies_of_one_library_in_the_process():
    section = Section("libraries", "")
    for path in ("/a/libnccl.so.2", "/b/libnccl.so.2"):
        section.rows.append({"library": "nccl", "state": "loaded", "version": None, "path": path})
    libraries._judge_copies(section)
    assert "2 copies of libnccl: /a/libnccl.so.2, /b/libnccl.so.2" in problems(section)


def test_a_folder_of_the_search_path_that_is_not_there(monkeypatch):
    monkeypatch.setenv("LD_LIBRARY_PATH", "/nowhere")
    assert "LD_LIBRARY_PATH: folder /nowhere" in warnings(libraries.look())


# --- backends and the exchange -------------------------------------------------------------------


def test_every_known_backend_is_usable_or_has_a_reason():
    section, usable = backends.look()
    for row in section.rows:
        assert (row["usable"] == "yes") is (row["why not"] is None)
        assert (row["usable"] == "yes") is (row["backend"] in [b.name for b in usable])


def test_a_backend_that_does_not_load_is_a_problem(monkeypatch):
    def broken(name: str) -> None:
        raise ImportError(f"undefined symbol: {name}Init")

    monkeypatch.setattr("torchcomms._load_backend", broken)
    section, usable = backends.look()
    assert "does not load: ImportError: undefined" in problems(section)
    assert "no backend that moves data works here" in problems(section)
    assert usable == []


def test_a_check_that_takes_too_long_is_ended_and_says_where_it_was():
    start = time.monotonic()
    section = Exchanges([GLOO], 0.01).finish()
    assert time.monotonic() - start < 5
    assert problems(section).splitlines() == [
        f"gloo: rank {rank} of the check was still in importing torch and torchcomms after 0.01 s"
        for rank in (0, 1)
    ]
    assert section.rows[0]["correct"] is False


def test_a_check_that_fails_says_why():
    exchanges = Exchanges([Backend("nobody", "cpu", lambda: None)], 60.0)
    text = problems(exchanges.finish())
    assert "nobody: rank 0 of the check failed in connecting" in text
    assert "failed to find backend" in text


@pytest.mark.parametrize("descriptors", [0, 3, 9])
def test_a_check_that_cannot_begin_is_a_finding(descriptors):
    script = textwrap.dedent(f"""
        import os, resource
        from torchcomms.doctor.backends import Backend
        from torchcomms.doctor.exchange import Exchanges

        highest = max(int(name) for name in os.listdir("/proc/self/fd"))
        while os.open(os.devnull, os.O_RDONLY) <= highest:
            pass
        top = os.open(os.devnull, os.O_RDONLY)
        files = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (top + 1 + {descriptors}, files[1]))
        section = Exchanges([Backend("gloo", "cpu", lambda: None)], 60.0).finish()
        print(*[f"{{f.level}} {{f.subject}}: {{f.text}}" for f in section.findings])
    """)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "problem gloo: the check could not start" in done.stdout
    assert "too many open files" in done.stdout.lower()


# --- report --------------------------------------------------------------------------------------


def test_what_would_end_a_line_or_colour_the_terminal_is_escaped():
    section = Section("x", "Environment", rows=[{"what": "home", "value": "a\nok  all is well"}])
    section.warn("b", "\x1b[31mred", "unset\tit")
    lines = to_text(Report((section,), 1.0)).splitlines()
    assert "  home  a\\nok  all is well" in lines
    assert "  WARNING  b: \\x1b[31mred" in lines
    assert "           unset\\tit" in lines


def test_the_text_counts_and_sorts():
    section = Section("x", "Facts", rows=[{"what": "size", "value": None}])
    section.ok("a", "fine")
    section.problem("b", "broken", "mend it")
    section.warn("c", "odd", "look at it")
    report = Report((section,), 1.25)
    assert report.findings[0] == Finding("problem", "b", "broken", "mend it")
    assert not report.ok
    assert to_text(report).splitlines() == [
        "Facts",
        "  size  -",
        "",
        "Findings",
        "  PROBLEM  b: broken",
        "           mend it",
        "  WARNING  c: odd",
        "           look at it",
        "  ok       a: fine",
        "",
        "1 problem and 1 warning, after 1.2 s",
    ]
