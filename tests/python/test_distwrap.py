"""torchcomms.distwrap: torch.distributed's programs, on communicators and on torch's own groups."""

from __future__ import annotations

from datetime import timedelta

import pytest
import torch
import torch.distributed as torch_dist
import torchcomms
from torchcomms import distwrap
from torchcomms.distwrap import pginfo, utils

from tests.harness.cases import refused
from tests.harness.environment import environment
from tests.harness.programs import ranks

LAUNCHERS = {
    name: None
    for pair in (
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("RANK", "WORLD_SIZE"),
        ("SLURM_PROCID", "SLURM_NTASKS"), ("PMI_RANK", "PMI_SIZE"),
    )
    for name in pair
}  # fmt: skip


class TestNames:
    @pytest.mark.parametrize(
        "name",
        ["get_rank", "get_world_size", "is_initialized", "is_available", "get_process_group_ranks",
         "ProcessGroup", "ProcessGroupGloo", "GroupMember", "group", "ReduceOp", "Store",
         "HashStore", "Work"],
    )  # fmt: skip
    def test_what_is_forwarded_is_torchs_own_object(self, name):
        assert getattr(distwrap, name) is getattr(torch_dist, name)

    def test_everything_listed_is_there(self):
        assert all(hasattr(distwrap, name) for name in distwrap.__all__)
        assert len(set(distwrap.__all__)) == len(distwrap.__all__)

    def test_an_unknown_attribute_is_named(self):
        with pytest.raises(AttributeError, match="has no attribute 'all_reduze'"):
            _ = distwrap.all_reduze


class TestBackendTexts:
    @pytest.mark.parametrize(
        ("text", "parsed"),
        [
            ("nccl", {"cuda": "nccl"}),
            ("NCCLX", {"cuda": "ncclx"}),
            ("gloo", {"cpu": "gloo"}),
            ("hccl", {"mtia": "hccl"}),
            ("cpu:gloo,cuda:nccl", {"cpu": "gloo", "cuda": "nccl"}),
            ("cpu:gloo", {"cpu": "gloo"}),
        ],
    )
    def test_parsed(self, text, parsed):
        assert utils.parse_backend_string(text) == parsed
        assert utils.parse_backend_string(utils.format_backend_string(parsed)) == parsed

    @pytest.mark.parametrize(
        "text", ["", "mpi", "cpu:", ":gloo", "cpu:gloo,", "cpu:gloo,cpu:gloo", "a:b:c", "cpu:mpi"]
    )
    def test_refused(self, text):
        with pytest.raises(ValueError, match="backend") as caught:
            utils.parse_backend_string(text)
        assert "allowed is one of nccl, ncclx, rccl, rcclx, gloo, ctran, or" in str(caught.value)
        assert "hccl" not in str(caught.value)


class TestSwitches:
    @pytest.mark.parametrize("switch", ["torchcomms", "eager_init"])
    def test_each_is_off_until_it_is_set(self, switch):
        is_enabled = getattr(utils, f"{switch}_is_enabled")
        assert is_enabled() is False
        for wanted in (True, False):
            getattr(utils, f"set_{switch}_enabled")(wanted)
            assert is_enabled() is wanted


class TestRankDiscovery:
    def test_the_first_launcher_that_set_both_counts(self):
        with environment(**{**LAUNCHERS, "RANK": "1", "WORLD_SIZE": "3", "PMI_RANK": "2",
                            "PMI_SIZE": "4", "OMPI_COMM_WORLD_RANK": "7"}):  # fmt: skip
            assert utils.get_rank_and_world_size() == (1, 3)
            assert utils.get_rank_and_world_size(rank=0) == (0, 3)
            assert utils.get_rank_and_world_size(2, 5) == (2, 5)
        with environment(**{**LAUNCHERS, "SLURM_PROCID": "4", "SLURM_NTASKS": "8"}):
            assert utils.get_rank_and_world_size() == (4, 8)

    def test_without_a_launcher_it_is_an_assertion(self):
        with environment(**LAUNCHERS), pytest.raises(AssertionError, match="RANK/WORLD_SIZE"):
            utils.get_rank_and_world_size()


class TestReduceOps:
    @pytest.mark.parametrize("name", ["SUM", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "AVG"])
    def test_torchs_op_becomes_ours(self, name):
        from torchcomms.distwrap._ranks import reduce_op

        torchs = getattr(torch_dist.ReduceOp, name)
        assert reduce_op(torchs) == getattr(torchcomms.ReduceOp, name)
        assert reduce_op(torch_dist.ReduceOp(torchs)) == getattr(torchcomms.ReduceOp, name)

    def test_others_are_refused(self):
        from torchcomms.distwrap._ranks import reduce_op

        for op in (torch_dist.ReduceOp.PREMUL_SUM, "sum", None, 0, 3, 1.0, True):
            with pytest.raises(ValueError, match="reduce op"):
                reduce_op(op)


class TestBeforeTheStart:
    def test_every_function_says_so(self):
        one = torch.ones(1)
        with pytest.raises(AssertionError, match="init_process_group"):
            distwrap.destroy_process_group()
        with pytest.raises(AssertionError, match="init_process_group"):
            distwrap.new_group([0], backend="gloo")
        with pytest.raises(AssertionError, match="init_process_group"):
            distwrap.split_group()
        with pytest.raises(AssertionError, match="init_process_group"):
            distwrap.broadcast(one, 0)

    def test_the_backend_must_be_given(self):
        with pytest.raises(ValueError, match="backend must be specified"):
            distwrap.init_process_group()
        with pytest.raises(ValueError, match="backend must be specified"):
            distwrap.new_group([0])

    def test_what_needs_communicators_says_so(self):
        with pytest.raises(AssertionError, match="use_torchcomms"):
            distwrap.new_window()
        with pytest.raises(AssertionError, match="ncclx"):
            distwrap.reduce_scatter_quantized(torch.ones(1), torch.ones(1), None, None)


_made = 0


def run_program(context, body, use_torchcomms):
    """`body(dist, rank, size)` between init and destroy."""
    global _made
    _made += 1
    before = torch_dist.all_reduce
    distwrap.init_process_group(
        context.backend,
        store=context.store(f"distwrap/{_made}"),
        rank=context.rank,
        world_size=context.size,
        use_torchcomms=use_torchcomms,
    )
    if not use_torchcomms:  # torch's gloo: a rank that leaves early fails those that still connect
        torch_dist.barrier()
    try:
        body(distwrap, context.rank, context.size)
    finally:
        distwrap.destroy_process_group()
    assert torch_dist.all_reduce is before
    assert not torch_dist.is_initialized()
    assert not utils.torchcomms_is_enabled()


def finish(work, async_op):
    """Sync gives None; async something to wait for."""
    if async_op:
        work.wait()
    else:
        assert work is None


def ramp(rank, count=4):
    return torch.arange(count, dtype=torch.float32) + 10 * rank


def collectives(dist, rank, size):
    everyone = list(range(size))
    total = sum(everyone)
    for async_op in (False, True):
        t = ramp(rank)
        finish(dist.all_reduce(t, async_op=async_op), async_op)
        assert t.tolist() == [size * i + 10 * total for i in range(4)]
        t = ramp(rank)
        finish(dist.all_reduce(t, dist.ReduceOp.MAX, None, async_op), async_op)
        assert torch.equal(t, ramp(size - 1))
        for root in everyone:
            t = ramp(rank)
            finish(dist.broadcast(t, root, None, async_op), async_op)
            assert torch.equal(t, ramp(root))
            t = ramp(rank)
            finish(dist.reduce(t, group_dst=root, async_op=async_op), async_op)
            assert rank != root or t[0] == 10 * total
            parts = [ramp(r) for r in everyone]
            got = torch.zeros(4)
            given = parts if rank == root else None
            finish(dist.scatter(got, given, root, async_op=async_op), async_op)
            assert torch.equal(got, ramp(rank))
            slots = [torch.zeros(4) for _ in everyone] if rank == root else None
            finish(dist.gather(ramp(rank), slots, root, async_op=async_op), async_op)
            assert slots is None or all(torch.equal(s, ramp(r)) for r, s in enumerate(slots))
        slots = [torch.zeros(4) for _ in everyone]
        finish(dist.all_gather(slots, ramp(rank), async_op=async_op), async_op)
        assert all(torch.equal(s, ramp(r)) for r, s in enumerate(slots))
        slots = [torch.zeros(r + 1) for r in everyone]
        finish(dist.all_gather(slots, ramp(rank, rank + 1), async_op=async_op), async_op)
        assert all(torch.equal(s, ramp(r, r + 1)) for r, s in enumerate(slots))
        out = torch.zeros(4 * size)
        finish(dist.all_gather_into_tensor(out, ramp(rank), async_op=async_op), async_op)
        assert torch.equal(out, torch.cat([ramp(r) for r in everyone]))
        out = torch.zeros(4)
        finish(dist.reduce_scatter(out, [ramp(r) for r in everyone], async_op=async_op), async_op)
        assert torch.equal(out, ramp(rank) * size)
        out = torch.zeros(rank + 1)
        slots = [ramp(r, r + 1) for r in everyone]
        finish(dist.reduce_scatter(out, slots, async_op=async_op), async_op)
        assert torch.equal(out, ramp(rank, rank + 1) * size)
        assert all(torch.equal(s, ramp(r, r + 1)) for r, s in enumerate(slots)), "inputs changed"
        out = torch.zeros(4)
        whole = torch.cat([ramp(r) for r in everyone])
        finish(dist.reduce_scatter_tensor(out, whole, async_op=async_op), async_op)
        assert torch.equal(out, ramp(rank) * size)
        slots = [torch.zeros(r + 1) for r in everyone]
        finish(dist.all_to_all(slots, [ramp(rank, rank + 1)] * size, async_op=async_op), async_op)
        assert all(torch.equal(s, ramp(r, r + 1)) for r, s in enumerate(slots))
        out = torch.zeros(size)
        finish(
            dist.all_to_all_single(out, torch.full((size,), float(rank)), async_op=async_op),
            async_op,
        )
        assert out.tolist() == [float(r) for r in everyone]
        out = torch.zeros(sum(r + 1 for r in everyone))
        sizes = [r + 1 for r in everyone]
        given = torch.full((size * (rank + 1),), float(rank))
        work = dist.all_to_all_single(out, given, sizes, [rank + 1] * size, async_op=async_op)
        finish(work, async_op)
        assert out.tolist() == [float(r) for r in everyone for _ in range(r + 1)]
        finish(dist.barrier(async_op=async_op), async_op)


def messages(dist, rank, size):
    if size == 1:
        assert dist.batch_isend_irecv([]) == []
        return
    right, left = (rank + 1) % size, (rank - 1) % size
    got = torch.zeros(4)
    if rank == 0:
        assert dist.send(ramp(0), right) is None
        assert dist.recv(got, left) == left
    else:
        assert dist.recv(got, group_src=left) == left
        dist.send(ramp(rank), group_dst=right)
    assert torch.equal(got, ramp(left))
    got.zero_()
    works = [dist.irecv(got, left), dist.isend(ramp(rank), right)]
    for work in works:
        work.wait()
    assert torch.equal(got, ramp(left))
    got.zero_()
    op = dist.P2POp(dist.isend, ramp(rank), right)
    assert (op.peer, op.group_peer, op.tag, op.tensor.tolist()) == (
        right,
        right,
        0,
        ramp(rank).tolist(),
    )
    assert isinstance(op._p2p_op, torch_dist.P2POp)
    assert op.group is dist.group.WORLD
    works = dist.batch_isend_irecv([op, dist.P2POp(dist.irecv, got, left)])
    for work in works:
        work.wait()
    assert torch.equal(got, ramp(left))
    assert dist.batch_isend_irecv([]) == []
    first, second = torch.zeros(4), torch.zeros(4)
    works = [
        dist.irecv(first, left, tag=1),
        dist.irecv(second, left, tag=2),
        dist.isend(ramp(rank) + 2, right, tag=2),
        dist.isend(ramp(rank) + 1, right, tag=1),
    ]
    for work in works:
        work.wait()
    assert torch.equal(first, ramp(left) + 1)
    assert torch.equal(second, ramp(left) + 2)
    if rank == 0:
        dist.send(ramp(0), right, tag=3)
        assert dist.recv(got, left, tag=3) == left
    else:
        assert dist.recv(got, left, tag=3) == left
        dist.send(ramp(rank), right, tag=3)
    assert torch.equal(got, ramp(left))


def kinds_of_works(dist, rank, size):
    """Whoever asks a message for more than wait() need not know whether it has a tag."""
    other = 1 - rank
    for tag in (0, 5):
        works = [dist.isend(ramp(rank), other, tag=tag), dist.irecv(torch.zeros(4), other, tag=tag)]
        for work in works:
            assert type(work) is torchcomms.TorchWork
            work.wait()
            assert work.is_completed()
    with refused(ValueError, "recv", "contiguous"):
        dist.irecv(torch.zeros(2, 2).T, other, tag=5)


@pytest.mark.worlds(backends=("gloo", "ctran"), sizes=(2,))
def test_messages_with_tags_and_without_have_works_of_one_kind(world):
    world.run_context(run_program, kinds_of_works, True)


def objects(dist, rank, size):
    out = [None] * size
    dist.all_gather_object(out, {"rank": rank})
    assert out == [{"rank": r} for r in range(size)]
    for root in range(size):
        out = [None] * size if rank == root else None
        dist.gather_object((rank,), out, root)
        assert out is None or out == [(r,) for r in range(size)]
        mine = [None]
        dist.scatter_object_list(mine, list(range(size)) if rank == root else None, root)
        assert mine == [rank]
        several = ["a", root] if rank == root else [None, None]
        dist.broadcast_object_list(several, group_src=root)
        assert several == ["a", root]


def splits(dist, rank, size):
    halves = [list(range(0, size, 2)), list(range(1, size, 2))]
    own = halves[rank % 2]
    half = dist.split_group(split_ranks=[h for h in halves if h], group_desc="half")
    assert dist.get_process_group_ranks(half) == own
    assert dist.get_rank(half) == own.index(rank)
    t = torch.tensor([float(rank)])
    dist.all_reduce(t, group=half)
    assert t.item() == sum(own)
    t = torch.tensor([float(rank)])
    dist.broadcast(t, src=own[-1], group=half)  # a global rank
    assert t.item() == own[-1]
    foreign = (own[0] + 1) % size
    if foreign not in own:
        with refused(ValueError, f"rank {foreign}"):
            dist.broadcast(t, src=foreign, group=half)
    whole = dist.split_group(half)
    assert pginfo.pg_info_get_global_ranks(whole) == own
    assert pginfo.pg_info_get_group_desc(half) == "half"
    assert pginfo.pg_info_get_rank_map(half) == {g: i for i, g in enumerate(own)}
    with refused(ValueError, "in none of"):
        dist.split_group(split_ranks=[[]])
    dist.destroy_process_group(half)
    with refused(AssertionError, "not created"):
        dist.destroy_process_group(half)
    dist.barrier()


def errors_of(dist, rank, size):
    one = torch.ones(1)
    for wrong in ({}, {"src": 0, "group_src": 0}):
        with refused(ValueError, "exactly one of src and group_src"):
            dist.broadcast(one, **wrong)
    with refused(ValueError, f"rank {size}"):
        dist.reduce(one, dst=size)
    with refused(ValueError, "not in the group"):
        dist.broadcast(one, 0, dist.GroupMember.NON_GROUP_MEMBER)


BODIES = (collectives, messages, objects, splits, errors_of)


@pytest.mark.worlds(backends=("gloo", "ctran"), sizes=(1, 2, 4))
@pytest.mark.parametrize("body", BODIES)
def test_a_program_on_communicators(world, body):
    world.run_context(run_program, body, True)


@pytest.mark.worlds(backends=("gloo",), sizes=(1, 3))
@pytest.mark.parametrize("body", BODIES)
def test_the_same_program_on_torchs_own_groups(world, body):
    world.run_context(run_program, body, False)


def sum_over(dist, group, rank):
    t = torch.tensor([float(rank)])
    dist.all_reduce(t, group=group)
    return t.item()


def splits_of_some(dist, rank, size):
    """Who is left out, or has split a group of its own, still makes groups with the others."""
    if rank < 2:
        assert sum_over(dist, dist.split_group(split_ranks=[[0, 1]]), rank) == 1
    else:
        with refused(ValueError, f"rank {rank} is in none of"):
            dist.split_group(split_ranks=[[0, 1]])
    assert sum_over(dist, dist.split_group(), rank) == 6
    half = dist.split_group(split_ranks=[[3, 2], [0, 1]])
    if rank < 2:
        assert sum_over(dist, dist.split_group(half), rank) == 1
    assert sum_over(dist, dist.split_group(), rank) == 6
    again = dist.split_group(half)
    assert sum_over(dist, again, rank) == (1 if rank < 2 else 5)
    for wrong in ([[0, 1], [1, 2, 3]], [[0, 1, 2, 3, 1]]):
        with refused(ValueError, "rank 1 is listed"):
            dist.split_group(split_ranks=wrong)
    for outside in (4, -1):
        with refused(ValueError, f"rank {outside}", "outside [0, 4)"):
            dist.split_group(split_ranks=[[0, 1], [2, 3, outside]])
    for nonsense in ([0, 1], [["0"]], "01", 3):
        with refused(TypeError, "split_group", "split_ranks"):
            dist.split_group(split_ranks=nonsense)
    assert sum_over(dist, dist.split_group(), rank) == 6
    dist.barrier()


@pytest.mark.worlds(backends=("gloo", "ctran"), sizes=(4,))
@pytest.mark.parametrize("use_torchcomms", [True, False])
def test_splits_that_only_some_ranks_make(world, use_torchcomms):
    world.run_context(run_program, splits_of_some, use_torchcomms)


class Compared(int):
    """A rank that counts how often it is held against another."""

    times = 0

    def __eq__(self, other):
        Compared.times += 1
        return int(self) == other

    __hash__ = int.__hash__


def a_split_of_many(dist, rank, size):
    many = 2000
    others = [Compared(r) for r in range(1, many)]
    with refused(ValueError, f"rank {many - 1} is listed"):
        dist.split_group(split_ranks=[[0], [*others, many - 1]])
    assert Compared.times < 10 * many, "a look at every other rank for every rank"


@pytest.mark.worlds(backends=("gloo",), sizes=(1,))
def test_a_split_looks_at_each_rank_a_few_times(world):
    world.run_context(run_program, a_split_of_many, True)


def knows_its_communicators(dist, rank, size):
    comm = utils.get_torchcomms_instance(utils.get_group(None))
    assert comm.get_name() == f"default_torchcomm_{comm.get_backend()}"
    assert (comm.get_rank(), comm.get_size()) == (rank, size)
    assert utils.get_torchcomms_instance(dist.group.WORLD, tensor=torch.ones(1)) is comm
    assert utils.get_backend_for_device(dist.group.WORLD, "cpu") == comm.get_backend()
    assert utils.get_group_rank(dist.group.WORLD, rank) == rank
    with refused(ValueError, f"rank {size} is not in the group"):
        utils.get_group_rank(dist.group.WORLD, size)
    with refused(ValueError, "cuda"):
        utils.get_torchcomms_instance(dist.group.WORLD, "cuda")
    with refused(ValueError, "meta"):
        dist.all_reduce(torch.empty(1, device="meta"))
    with refused(AssertionError, "new_group is not supported with torchcomms"):
        dist.new_group([0], backend="gloo")
    with refused(ValueError, "exactly one"):
        dist.recv(torch.ones(1))  # from anybody
    with refused(AssertionError, "ncclx"):
        dist.reduce_scatter_quantized(torch.ones(1), torch.ones(1), dist.ReduceOp.SUM, None)
    with refused(torchcomms.Unsupported):
        dist.new_window()
    dist.register_mem_pool(dist.group.WORLD, torch.device("cpu"), None)
    premul = dist._make_nccl_premul_sum(2.0)
    t = torch.ones(1)
    dist.all_reduce(t, premul)
    assert t.item() == 2.0 * size


def turns_torchs_own_functions_off(dist, rank, size):
    from torchcomms.distwrap._groups import _REPLACED

    assert len(_REPLACED) == 21
    for name in _REPLACED:
        with refused(NotImplementedError, f"torchcomms.distwrap.{name}"):
            getattr(torch_dist, name)()


def knows_messages_by_torchs_functions(dist, rank, size):
    """Also while these are off, and in torch's own class."""
    other = 1 - rank
    for kind in (dist.P2POp, torch_dist.P2POp):
        got = torch.zeros(4)
        receive = kind(torch_dist.irecv, got, other)
        send = kind(torch_dist.isend, ramp(rank), other)
        assert "isend" in repr(getattr(send, "_p2p_op", send))
        for work in dist.batch_isend_irecv([receive, send]):
            work.wait()
        assert torch.equal(got, ramp(other))
        for wrong in (torch_dist.send, dist.recv):
            with refused(ValueError, "isend"):
                kind(wrong, got, other)


@pytest.mark.worlds(backends=("gloo",), sizes=(2,))
@pytest.mark.parametrize("use_torchcomms", [True, False])
def test_messages_may_be_named_by_torchs_functions(world, use_torchcomms):
    world.run_context(run_program, knows_messages_by_torchs_functions, use_torchcomms)


@pytest.mark.worlds(backends=("gloo",), sizes=(2,))
@pytest.mark.parametrize("body", [knows_its_communicators, turns_torchs_own_functions_off])
def test_with_communicators(world, body):
    world.run_context(run_program, body, True)


def makes_groups_of_torch(dist, rank, size):
    made = dist.new_group([0, 1], backend="gloo", group_desc="pair")
    if rank < 2:
        t = torch.ones(1)
        dist.all_reduce(t, group=made)
        assert t.item() == 2
        assert pginfo.pg_info_get_group_desc(made) == "pair"
    else:
        assert made is dist.GroupMember.NON_GROUP_MEMBER
    with refused(AssertionError, "use_torchcomms"):
        dist.new_window()


@pytest.mark.worlds(backends=("gloo",), sizes=(3,))
def test_new_group_without_communicators(world):
    world.run_context(run_program, makes_groups_of_torch, False)


def starts_again(context, use_torchcomms):
    """On one store, as a launcher's is: what an earlier start left there is not this one's."""
    store = context.store(f"starts again {use_torchcomms}")
    for nth in range(4):
        distwrap.init_process_group(
            "gloo", store=store, rank=context.rank, world_size=context.size,
            use_torchcomms=use_torchcomms, timeout=timedelta(seconds=20),
        )  # fmt: skip
        t = torch.ones(1)
        distwrap.all_reduce(t)
        assert t.item() == context.size
        half = distwrap.split_group(split_ranks=[[0, 1]])
        distwrap.barrier(half)
        context.meet(f"connected {use_torchcomms} {nth}")
        distwrap.destroy_process_group()


@pytest.mark.worlds(backends=("gloo",), sizes=(2,))
@pytest.mark.parametrize("use_torchcomms", [True, False])
def test_a_program_may_start_again_on_the_same_store(world, use_torchcomms):
    world.run_context(starts_again, use_torchcomms)


def ends_although_one_does_not(context):
    distwrap.init_process_group(
        "gloo", store=context.store("ends"), rank=context.rank, world_size=context.size,
        use_torchcomms=True,
    )  # fmt: skip
    groups = [utils.get_group()] + [distwrap.split_group(group_desc=name) for name in "abc"]
    comms = [pginfo.pg_info_get_data(group, pginfo.COMMS)["cpu"] for group in groups]
    for comm in comms[1:3]:
        comm.finalize()  # what a second one raises names the communicator
    with refused(RuntimeError, "finalize", "b_"):
        distwrap.destroy_process_group()
    for comm in comms:
        with refused(RuntimeError, "finalize"):
            comm.barrier(False)
    assert not torch_dist.is_initialized()
    assert not utils.torchcomms_is_enabled()


@pytest.mark.worlds(backends=("gloo",), sizes=(2,))
def test_the_end_goes_on_where_one_communicator_fails(world):
    world.run_context(ends_although_one_does_not)


def test_a_program_started_by_a_launcher(free_port):
    """Rank, size and store from the environment."""
    for finished in ranks(
        """
        import torch
        import torchcomms.distwrap as dist
        dist.init_process_group("gloo", use_torchcomms=True)
        t = torch.full((3,), float(dist.get_rank() + 1))
        dist.all_reduce(t)
        assert t.tolist() == [3.0] * 3, t
        dist.barrier()
        dist.destroy_process_group()
        """,
        2,
        free_port,
    ):
        finished.expect_success()
