"""How ranks find each other: every store, every launcher, and what is said when they do not."""

from __future__ import annotations

import os
import re
import tempfile
import time
from datetime import timedelta

import pytest
import torch
import torchcomms
from torch.distributed import FileStore, HashStore, PrefixStore, TCPStore
from torchcomms import ReduceOp

from tests.harness.cases import Failures, check_context, refused
from tests.harness.environment import environment
from tests.harness.ports import free_port as another_free_port

LIMIT_S = 2.0
# For ranks that have to be told by a store who came: four of them, on a machine with other work.
AMPLE_S = 4.0
# Limits plus the slack of a loaded machine; the default limit is minutes.
SOON_S = 20.0


def create(context, name, **options):
    options.setdefault("timeout", timedelta(seconds=60))
    return torchcomms.new_comm(context.backend, context.device, name, **options)


def works(comm):
    """One sum over the ranks; then the communicator is finalized."""
    tensor = torch.tensor([float(comm.get_rank())])
    comm.all_reduce(tensor, ReduceOp.SUM, False)
    want = sum(range(comm.get_size()))
    assert tensor.item() == want, f"{tensor.item()} instead of {want}"
    comm.finalize()


def with_file_store(context, folder):
    works(create(context, "filed", store=FileStore(os.path.join(folder, "store"), context.size)))
    return []


def test_a_file_store(world, tmp_path):
    check_context(world, with_file_store, str(tmp_path))


def with_tcp_store(context, port):
    store = TCPStore(
        "127.0.0.1",
        port,
        is_master=context.rank == 0,
        wait_for_workers=False,
        timeout=timedelta(seconds=60),
    )
    works(create(context, "tcp", store=store))
    works(create(context, "tcp_again", store=store))
    works(create(context, "prefixed", store=PrefixStore("a", PrefixStore("b", store))))
    context.meet("tcp_end")  # the server leaves last
    return []


def test_a_tcp_store_with_and_without_prefixes(world, free_port):
    check_context(world, with_tcp_store, free_port)


def with_hash_store(context):
    works(create(context, "hashed", store=HashStore()))
    works(create(context, "hashed_prefix", store=PrefixStore("p", HashStore())))
    return []


@pytest.mark.worlds(sizes=(1,))
def test_a_hash_store_serves_one_rank(world):
    check_context(world, with_hash_store)


def by_address(context, port, names):
    with environment(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port)):
        for name in names:
            works(create(context, name))
    return []


def test_several_communicators_in_a_row_meet_at_one_master_port(world, free_port):
    check_context(world, by_address, free_port, [f"in_a_row_{i}" for i in range(5)])


def test_the_same_name_may_come_again_at_one_master_port(world, free_port):
    check_context(world, by_address, free_port, ["again"] * 4)


def port_is_free_afterwards(context, port):
    with environment(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port)):
        comm = create(context, "leaves_the_port")
        comm.barrier(False)
        if context.rank == 0:  # served by nobody now, so that somebody else can
            TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False)
        works(comm)
    return []


def test_the_master_port_is_free_once_the_communicator_is_connected(world, free_port):
    check_context(world, port_is_free_afterwards, free_port)


def any_port(context):
    with environment(MASTER_ADDR="127.0.0.1", MASTER_PORT="0"):
        works(create(context, "any_port"))
    return []


@pytest.mark.worlds(sizes=(1,))
def test_one_rank_may_leave_the_port_open(world):
    check_context(world, any_port)


LAUNCHERS = {
    "torchrun": {"RANK": "{rank}", "WORLD_SIZE": "{size}", "LOCAL_RANK": "{rank}"},
    "openmpi": {"OMPI_COMM_WORLD_RANK": "{rank}", "OMPI_COMM_WORLD_SIZE": "{size}"},
    "pmi": {"PMI_RANK": "{rank}", "PMI_SIZE": "{size}"},
    "pals": {"PALS_RANKID": "{rank}", "PALS_SIZE": "{size}"},
    "slurm": {"SLURM_PROCID": "{rank}", "SLURM_NTASKS": "{size}", "SLURM_JOB_ID": "77"},
}


def launched(context, variables, port):
    filled = {
        key: value.format(rank=context.rank, size=context.size) for key, value in variables.items()
    }
    with environment(
        TORCHCOMM_RANK=None,
        TORCHCOMM_SIZE=None,
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
        **filled,
    ):
        comm = create(context, "launched")
    assert (comm.get_rank(), comm.get_size()) == (context.rank, context.size)
    works(comm)  # the variables are gone: they are read inside of new_comm only
    return []


@pytest.mark.worlds(sizes=(1, 3))
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_ranks_of_a_launcher_find_each_other(world, launcher, free_port):
    check_context(world, launched, LAUNCHERS[launcher], free_port)


def without_address(context, launcher):
    """The launcher sets no MASTER_ADDR; the address comes from the job itself."""
    extra = {
        "openmpi": {
            "PMIX_SERVER_URI2": "prterun-h-1@0.0;tcp4://127.0.0.1:5000",
            "OMPI_MCA_orte_hnp_uri": "1.0;tcp://127.0.0.1:5000",
            "PMIX_NAMESPACE": f"job-{context.spec.prefix}",
        },
        "slurm": {
            "SLURM_JOB_NODELIST": "localhost",
            "SLURM_STEP_NODELIST": "localhost",
            "SLURM_STEP_ID": "0",
            "SLURM_JOB_ID": str(30000 + os.getppid() % 5000),
        },
    }[launcher]
    filled = {
        key: value.format(rank=context.rank, size=context.size)
        for key, value in LAUNCHERS[launcher].items()
    }
    with environment(
        TORCHCOMM_RANK=None,
        TORCHCOMM_SIZE=None,
        MASTER_ADDR=None,
        MASTER_PORT=None,
        **{**filled, **extra},
    ):
        works(create(context, "without_address"))
    return []


@pytest.mark.worlds(sizes=(2,))
@pytest.mark.parametrize("launcher", ["openmpi", "slurm"])
def test_the_address_is_found_from_the_job(world, launcher):
    check_context(world, without_address, launcher)


def nowhere(context):
    failures = Failures()
    for address, port, *fragments in (
        (None, None, "MASTER_ADDR"),
        ("127.0.0.1", None, "MASTER_PORT"),
        *(("127.0.0.1", port, "MASTER_PORT", port) for port in ("text", "70000", "-1", "12x")),
        *(
            (host, "29500", f"MASTER_ADDR='{host}'", "host name", "without brackets")
            for host in ("[::1]", "tcp://127.0.0.1", "127.0.0.1:29500")
        ),
    ):
        with (
            failures.case(address, port),
            refused(torchcomms.InvalidArgument, *fragments),
            environment(MASTER_ADDR=address, MASTER_PORT=port),
        ):
            create(context, "nowhere")
    return failures.texts


# A single rank needs no address.
@pytest.mark.worlds(sizes=(2,))
def test_a_missing_or_bad_address_is_refused_naming_the_variable(world):
    check_context(world, nowhere)


def nobody(context):
    with environment(TORCHCOMM_RANK=None, TORCHCOMM_SIZE=None), refused(RuntimeError, "rank"):
        create(context, "nobody", store=context.store("nobody"))
    return []


@pytest.mark.worlds(sizes=(1, 2))
def test_a_store_alone_does_not_tell_the_rank(world):
    check_context(world, nobody)


def within_limit(action, *patterns):
    began = time.monotonic()
    with pytest.raises(RuntimeError) as caught:
        action()
    took = time.monotonic() - began
    for pattern in patterns:
        assert re.search(pattern, str(caught.value), re.IGNORECASE | re.DOTALL), (
            f"nothing like {pattern!r} in: {caught.value}"
        )
    assert took < LIMIT_S + SOON_S, f"took {took:.1f} s"
    return took


def missing_rank(context, absent):
    """One rank never comes: each of the others names it and says how to raise the limit."""
    store = context.store(f"missing_{absent}")
    if context.rank == absent:
        return []
    # The limit of the first one counts for all: they begin together.
    store.set(f"begins/{context.rank}", "")
    store.wait([f"begins/{rank}" for rank in range(context.size) if rank != absent])
    took = within_limit(
        lambda: create(context, "missing", store=store, timeout=timedelta(seconds=AMPLE_S)),
        rf"rank\w* [^.;]*\b{absent}\b",
        "timeout|TORCHCOMM_\\w*SECONDS",
        r"\b4 ?s|4000 ?ms",
    )
    assert took >= AMPLE_S * 0.9
    return []


@pytest.mark.worlds(sizes=(2, 4))
@pytest.mark.parametrize("absent", ["first", "last"])
def test_a_missing_rank_is_named_within_the_limit(world, absent):
    check_context(world, missing_rank, 0 if absent == "first" else world.size - 1)


def missing_without_store(context, port):
    """Rank 0, who would serve the store, never comes."""
    if context.rank == 0:
        return []
    with environment(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port)):
        within_limit(
            lambda: create(context, "unserved", timeout=timedelta(seconds=LIMIT_S)),
            rf"127\.0\.0\.1\W+{port}",
        )
    return []


@pytest.mark.worlds(sizes=(2, 3))
def test_an_unserved_address_is_named_within_the_limit(world, free_port):
    check_context(world, missing_without_store, free_port)


def missing_behind_address(context, port):
    """Rank 0 serves the store, but the last rank never comes to it."""
    last = context.size - 1
    if context.rank == last:
        return []
    with environment(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port)):
        within_limit(
            lambda: create(context, "incomplete", timeout=timedelta(seconds=LIMIT_S)),
            rf"rank\w* [^.;]*\b{last}\b",
        )
    return []


@pytest.mark.worlds(sizes=(2, 3))
def test_a_rank_missing_at_the_master_port_is_named_within_the_limit(world, free_port):
    check_context(world, missing_behind_address, free_port)


def dead_store(context):
    """The store's server is gone before new_comm begins."""
    port = another_free_port()
    server = TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False)
    client = TCPStore("127.0.0.1", port, is_master=False)
    client.set("alive", "yes")
    del server
    within_limit(
        lambda: create(context, "dead_store", store=client, timeout=timedelta(seconds=LIMIT_S)),
        rf"127\.0\.0\.1\W+{port}",
    )
    within_limit(
        lambda: create(
            context,
            "dead_store",
            store=PrefixStore("p", client),
            timeout=timedelta(seconds=LIMIT_S),
        ),
        rf"127\.0\.0\.1\W+{port}",
    )
    return []


@pytest.mark.worlds(sizes=(2,))
def test_a_dead_store_is_named_within_the_limit(world):
    check_context(world, dead_store)


def occupied_port(context, port):
    """Something that is no store listens at the port of rank 0."""
    import socket

    if context.rank != 0:
        return []
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", port))
        stranger.listen()
        with environment(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port)):
            within_limit(
                lambda: create(context, "occupied", timeout=timedelta(seconds=LIMIT_S)),
                rf"127\.0\.0\.1\W+{port}|port\W+{port}",
            )
    return []


@pytest.mark.worlds(sizes=(2,))
def test_an_occupied_port_is_named_within_the_limit(world, free_port):
    check_context(world, occupied_port, free_port)


def separate_limits(context):
    """The start-up may have another limit than operations."""
    if context.rank == 0:
        with environment(TORCHCOMM_INIT_TIMEOUT_SECONDS="1.5"):
            within_limit(
                lambda: create(context, "limited", store=context.store("limited")),
                "TORCHCOMM_INIT_TIMEOUT_SECONDS",
                r"1\.5 ?s|1500 ?ms",
            )
    return []


@pytest.mark.worlds(sizes=(2,))
def test_the_start_up_has_its_own_limit(world):
    check_context(world, separate_limits)


def after_failure(context):
    """What failed leaves nothing behind that a second try on the same store meets."""
    store, last = context.store("second_try"), context.size - 1
    if context.rank != last:
        within_limit(
            lambda: create(context, "second_try", store=store, timeout=timedelta(seconds=LIMIT_S)),
            "rank",
        )
    context.meet("second_try")
    works(create(context, "second_try_again", store=store))
    return []


@pytest.mark.worlds(sizes=(2, 3))
def test_a_second_try_after_a_missing_rank_succeeds(world):
    check_context(world, after_failure)


def duplicate(context):
    """Two communicators of one name, alive together on one store: allowed, or refused at once."""
    store = context.store("duplicate")
    first = create(context, "twin", store=store)
    began, refusal, start_up = time.monotonic(), None, None
    try:
        twin = create(context, "twin", store=store, timeout=timedelta(seconds=60))
        start_up = twin.describe()["init"]
        works(twin)
    except RuntimeError as error:
        refusal = str(error)
    took = time.monotonic() - began
    assert took < 50.0, f"it waited for its limit of 60 s: {took:.1f} s, of them {start_up}"
    assert refusal is None or "twin" in refusal, f"the message does not name it: {refusal}"
    works(first)
    return []


def test_a_duplicate_name_works_or_fails_at_once(world):
    check_context(world, duplicate)


def another_backend(context):
    other = OTHER_BACKEND[context.backend]
    backend = context.backend if context.rank else other
    others = "ranks 1-3 of 4" if context.size == 4 else "rank 1 of 2"
    options = {"timeout": timedelta(seconds=60), "store": context.store("two_backends")}
    before = time.monotonic()
    with refused(
        torchcomms.Mismatch,
        "new_comm",
        f"rank 0 of {context.size} for '{other}'",
        f"{others} for '{context.backend}'",
    ):
        torchcomms.new_comm(backend, context.device, "two_backends", **options)
    assert time.monotonic() - before < SOON_S
    works(create(context, "two_backends", **options))
    return []


OTHER_BACKEND = {"gloo": "ctran", "ctran": "gloo"}


@pytest.mark.worlds(backends=("gloo", "ctran"), sizes=(2, 4))
def test_ranks_that_ask_for_different_backends_are_told_at_once(world):
    check_context(world, another_backend)


def persistent(context):
    store = context.store("persistent")
    hints = {"persistent_store": "true"}
    first = create(context, "first", store=store, hints=hints)
    second = create(context, "second", store=store, hints=hints)
    works(first)
    works(second)
    for _ in range(2):  # destroyed and made again, as torch does on the launcher's store
        works(create(context, "first", store=store, hints=hints))
    return []


@pytest.mark.worlds(backends=("gloo",))
def test_several_communicators_may_keep_one_store(world):
    check_context(world, persistent)


def store_released(context):
    """The store's server may go once everybody is connected."""
    port = None
    announcements = context.store("store_released")
    if context.rank == 0:
        port = another_free_port()
        server = TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False)
        announcements.set("port", str(port))
    client = TCPStore("127.0.0.1", int(announcements.get("port")), is_master=False)
    comm = create(context, "released", store=client)
    comm.barrier(False)
    del client
    if context.rank == 0:
        del server
    comm.barrier(False)
    works(comm)
    return []


def test_the_store_is_not_needed_after_connecting(world):
    check_context(world, store_released)


def under_launcher(context, port):
    """As under torchrun: the launcher serves the port, everybody is a client."""
    announcements = context.store("under_launcher")
    server = None
    if context.rank == 0:
        server = TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False)
        announcements.set("served", "yes")
    announcements.wait(["served"])
    with environment(
        TORCHCOMM_RANK=None,
        TORCHCOMM_SIZE=None,
        RANK=str(context.rank),
        WORLD_SIZE=str(context.size),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
        TORCHELASTIC_USE_AGENT_STORE="True",
    ):
        for name in ("agent_1", "agent_2", "agent_2"):
            works(create(context, name))
    context.meet("under_launcher")
    del server
    return []


def test_the_launchers_store_is_used_where_it_serves(world, free_port):
    check_context(world, under_launcher, free_port)


def with_user_keys(context):
    """The user's own keys on the store stay what they were."""
    store = context.store("user_keys")
    names = ("port", "rank0", "0", "init", "rank", "store_based_barrier_key:0")
    if context.rank == 0:
        for name in names:
            store.set(name, f"mine {name}")
        store.set("ready", "yes")
    store.wait(["ready"])
    works(create(context, "user_keys", store=store))
    return [name for name in names if store.get(name) != f"mine {name}".encode()]


def test_keys_of_the_user_are_left_alone(world):
    check_context(world, with_user_keys)


def garbage_at_the_port(context, port):
    """A stranger talks to the rendezvous port while ranks meet there."""
    import socket
    import threading

    stop = threading.Event()

    def talk():
        while not stop.is_set():
            try:
                with socket.create_connection(("127.0.0.1", port), timeout=1) as stranger:
                    stranger.sendall(b"GET / HTTP/1.0\r\n\r\n")
                    stranger.recv(1)  # until the server hangs up
            except OSError:
                stop.wait(0.01)

    talker = threading.Thread(target=talk)
    if context.rank == context.size - 1:
        talker.start()
    try:
        with environment(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port)):
            works(create(context, "noisy"))
    finally:
        stop.set()
        if talker.ident:
            talker.join()
    return []


@pytest.mark.worlds(sizes=(2,))
def test_a_stranger_at_the_port_does_not_disturb(world, free_port):
    check_context(world, garbage_at_the_port, free_port)


def what_is_left(context, folder):
    """With a temporary folder of the ranks' own: other programs use the common one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", folder)
        patch.setattr(tempfile, "tempdir", folder)  # what Python found out before
        works(create(context, "tidy", store=context.store("tidy")))
    return os.listdir(folder)


def test_nothing_is_left_in_the_temporary_folder(world, tmp_path):
    check_context(world, what_is_left, str(tmp_path))
