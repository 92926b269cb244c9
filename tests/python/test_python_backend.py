"""Backends written in Python: what they override, what they get, what they return."""

from __future__ import annotations

import gc
import itertools
import threading
from datetime import timedelta

import pytest
import torch
import torchcomms
from torchcomms import (
    CommOptions,
    ReduceOp,
    TorchCommBackend,
    TorchWork,
    WorkStatus,
    _comms,
    register_backend,
)

from tests.harness.cases import refused
from tests.harness.operations import OPERATIONS, arguments, call

_names = itertools.count()


class Later:
    """An object with wait(), as an override may return."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.waits = 0
        self._error = error

    def wait(self) -> None:
        self.waits += 1
        if self._error:
            raise self._error


class Recorder(TorchCommBackend):
    """Overrides everything, records what it got, and answers with `answer`."""

    rank, size = 1, 3
    answer: object = None

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, tuple[object, ...]]] = []

    def init(self, device, name, options):
        self.calls.append(("init", (device, name, options)))
        self.name = name

    def finalize(self):
        self.calls.append(("finalize", ()))

    def get_rank(self):
        return self.rank

    def get_size(self):
        return self.size

    def get_backend_name(self):
        return "recorder"

    def get_comm_name(self):
        return self.name

    def split(self, ranks, name, options):
        self.calls.append(("split", (ranks, name, options)))
        return self.answer

    def set_timeout(self, timeout):
        self.calls.append(("set_timeout", (timeout,)))


def _recording(name):
    def override(self, *args):
        self.calls.append((name, args))
        return self.answer

    return override


for _name in OPERATIONS:
    if _name != "gather_single":
        setattr(Recorder, _name, _recording(_name))


def make(backend_class, **options):
    """A communicator of `backend_class`, and the instance behind it."""
    name = f"python_backend_{next(_names)}"
    register_backend(name, backend_class)
    comm = torchcomms.new_comm(name, torch.device("cpu"), "in_python", **options)
    return comm, comm.get_backend_impl()


def with_answer(answer):
    return type("Answering", (Recorder,), {"answer": answer})


def test_registering_makes_the_name_known_and_the_first_one_stays():
    name = f"python_backend_{next(_names)}"
    assert _comms._is_backend_registered(name) is False
    register_backend(name, Recorder)
    register_backend(name, with_answer(Later()))
    assert _comms._is_backend_registered(name) is True
    comm = torchcomms.new_comm(name, torch.device("cpu"), "first")
    assert type(comm.get_backend_impl()) is Recorder
    register_backend(name=f"{name}_by_keyword", backend_class=Recorder)


@pytest.mark.parametrize("wrong", [3, None, "Recorder", []], ids=repr)
def test_what_makes_no_instance_is_a_type_error_at_registration(wrong):
    name = f"python_backend_{next(_names)}"
    with refused(TypeError, "register_backend", "backend_class", "TorchCommBackend"):
        register_backend(name, wrong)
    assert not _comms._is_backend_registered(name)
    with refused(TypeError, "register_backend", "name", "str"):
        register_backend(wrong if wrong != "Recorder" else 7, Recorder)


def test_a_class_that_is_no_backend_is_refused_when_it_is_used():
    class Stranger:
        pass

    name = f"python_backend_{next(_names)}"
    register_backend(name, Stranger)
    with pytest.raises((RuntimeError, TypeError), match="TorchCommBackend"):
        torchcomms.new_comm(name, torch.device("cpu"), "stranger")


def test_a_forgotten_super_init_is_a_type_error():
    class Forgetful(TorchCommBackend):
        def __init__(self):
            pass

    with pytest.raises(TypeError, match="__init__"):
        make(Forgetful)


def test_init_gets_device_name_and_options():
    comm, backend = make(Recorder, timeout=timedelta(seconds=9), hints={"k": "v"})
    ((what, (device, name, options)),) = backend.calls
    assert what == "init"
    assert device == torch.device("cpu")
    assert name == "in_python"
    assert isinstance(options, CommOptions)
    assert options.timeout == timedelta(seconds=9)
    assert options.hints == {"k": "v"}
    assert comm.get_backend_impl() is backend


def test_an_instance_is_made_for_each_communicator():
    name = f"python_backend_{next(_names)}"
    register_backend(name, Recorder)
    first, second = (torchcomms.new_comm(name, torch.device("cpu"), n) for n in "ab")
    assert first.get_backend_impl() is not second.get_backend_impl()
    assert (first.get_name(), second.get_name()) == ("a", "b")


def test_properties_come_from_overrides_or_are_remembered():
    comm, _ = make(Recorder, hints={"k": "v"})
    assert (comm.get_rank(), comm.get_size(), comm.get_name()) == (1, 3, "in_python")
    assert comm.get_device() == torch.device("cpu")
    assert comm.get_options().hints == {"k": "v"}
    assert comm.get_backend().startswith("python_backend_")


@pytest.mark.parametrize("async_op", [False, True])
@pytest.mark.parametrize("name", [n for n in OPERATIONS if n != "gather_single"])
def test_an_override_gets_its_arguments_by_position(name, async_op):
    """No hints and no timeout, whatever the caller gave."""
    comm, backend = make(Recorder)
    given = arguments(name, 1, 3)
    getattr(comm, name)(*given.values(), async_op, {"some": "hint"}, timedelta(seconds=1))
    called, args = backend.calls[-1]
    assert called == name
    assert len(args) == len(given) + 1
    assert args[-1] is async_op
    for got, sent in zip(args, given.values(), strict=False):
        if isinstance(sent, torch.Tensor):
            assert got.data_ptr() == sent.data_ptr()
        elif isinstance(sent, list) and isinstance(sent[0], torch.Tensor):
            assert [t.data_ptr() for t in got] == [t.data_ptr() for t in sent]
        elif isinstance(sent, ReduceOp):
            assert got == sent
        else:
            assert got == sent


def test_an_override_moves_the_callers_data():
    class Doubler(Recorder):
        def all_reduce(self, tensor, op, async_op):
            tensor.mul_(2)

    comm, _ = make(Doubler)
    tensor = torch.ones(3)
    comm.all_reduce(tensor, ReduceOp.SUM, False)
    assert tensor.tolist() == [2.0] * 3


@pytest.mark.parametrize("name", OPERATIONS)
def test_none_is_a_completed_work(name):
    comm, _ = make(Recorder)
    work = call(comm, name, True)
    assert isinstance(work, TorchWork)
    assert work.is_completed()
    work.wait()
    work.wait()


def test_an_object_with_wait_is_wrapped_and_waited_for_once():
    later = Later()
    comm, _ = make(with_answer(later))
    work = comm.all_reduce(torch.ones(1), ReduceOp.SUM, True)
    assert isinstance(work, TorchWork)
    assert (work.is_completed(), later.waits) == (False, 0)
    work.wait()
    assert (work.is_completed(), later.waits) == (True, 1)
    work.wait()
    assert later.waits == 1


def test_a_work_of_ours_may_be_returned():
    inner = torchcomms.new_comm("fake", torch.device("cpu"), "inner")
    comm, _ = make(with_answer(inner.barrier(False)))
    comm.barrier(True).wait()


def test_a_failing_wait_keeps_its_type_and_stays_failed():
    later = Later(KeyError("inside"))
    comm, _ = make(with_answer(later))
    work = comm.barrier(True)
    for _ in range(2):
        with pytest.raises(KeyError, match="inside"):
            work.wait()
    assert work.is_completed() is False
    assert later.waits == 1


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_a_wait_that_is_interrupted_can_be_repeated(interrupt):
    later = Later(interrupt())
    comm, _ = make(with_answer(later))
    work = comm.barrier(True)
    for waits in (1, 2):
        with pytest.raises(interrupt):
            work.wait()
        assert later.waits == waits
        assert not work.is_completed()
    later._error = None
    for _ in range(2):
        work.wait()
        assert work.is_completed()
    assert later.waits == 3


def test_who_waits_too_takes_over_from_a_wait_that_is_interrupted():
    entered, interrupted, done = (threading.Event() for _ in range(3))

    class First(Later):
        def wait(self) -> None:
            self.waits += 1
            if self.waits == 1:
                entered.set()
                interrupted.wait()
                raise KeyboardInterrupt

    later = First()
    comm, _ = make(with_answer(later))
    work = comm.barrier(True)

    def other():
        entered.wait()
        interrupted.set()
        work.wait()
        done.set()

    thread = threading.Thread(target=other)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        work.wait()
    assert done.wait(60)
    thread.join()
    assert later.waits == 2


def test_a_work_that_is_dropped_is_not_waited_for():
    later = Later()
    comm, _ = make(with_answer(later))
    comm.barrier(True)
    gc.collect()
    assert later.waits == 0


def test_what_has_no_wait_is_a_type_error():
    comm, _ = make(with_answer(5))
    with refused(TypeError, "barrier", "returned 5", "wait()"):
        comm.barrier(True)


def test_the_status_of_its_works_can_be_set():
    comm, _ = make(with_answer(Later()))
    work = comm.barrier(True)
    work.wait()
    assert work.is_completed() is True
    work._set_status(WorkStatus.ERROR)
    assert work.is_completed() is False
    work._set_status(WorkStatus.COMPLETED)
    assert work.is_completed() is True
    with pytest.raises(TypeError):
        work._set_status(2)


def test_the_host_cannot_block_for_its_works():
    comm, _ = make(with_answer(Later()))
    work = comm.barrier(True)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="waitBlocking not implemented"):
            work.wait_blocking()
        work.wait()


def test_an_exception_of_an_override_keeps_its_type():
    class Own(Exception):
        pass

    class Failing(Recorder):
        def all_reduce(self, tensor, op, async_op):
            raise Own("mine")

    comm, _ = make(Failing)
    with pytest.raises(Own, match="mine"):
        comm.all_reduce(torch.ones(1), ReduceOp.SUM, False)


def test_an_exception_of_init_reaches_new_comm():
    class Unwilling(Recorder):
        def init(self, device, name, options):
            raise PermissionError("not today")

    with pytest.raises(PermissionError, match="not today"):
        make(Unwilling)


class Minimal(TorchCommBackend):
    """What a communicator needs, and no operation."""

    def __init__(self) -> None:
        super().__init__()

    def init(self, device, name, options):
        pass

    def finalize(self):
        pass

    def get_rank(self):
        return 0

    def get_size(self):
        return 1

    def get_backend_name(self):
        return "minimal"

    def get_comm_name(self):
        return "minimal"


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_missing_override_is_a_runtime_error_that_names_it(name):
    comm, _ = make(Minimal)
    with pytest.raises(RuntimeError, match=name.replace("gather_single", "gather")):
        call(comm, name, False)


def test_one_that_overrides_nothing_says_what_it_lacks():
    comm, _ = make(type("Bare", (TorchCommBackend,), {}))
    for ask in (comm.get_rank, comm.get_size):
        with refused(torchcomms.Unsupported, f"{ask.__name__} not implemented"):
            ask()
    with refused(torchcomms.Unsupported, "get_rank not implemented"):
        comm.barrier(False)
    with refused(torchcomms.Unsupported, "get_rank not implemented"):
        comm.split([0], "child")


def test_gather_single_falls_back_to_gather():
    class Gatherer(Recorder):
        rank = 0

        def gather(self, output_list, tensor, root, async_op):
            for i, output in enumerate(output_list):
                output.copy_(tensor + i)

    comm, _ = make(Gatherer)
    output = torch.zeros(3, 2)
    comm.gather_single(output, torch.ones(2), 0, False)
    assert output.tolist() == [[1, 1], [2, 2], [3, 3]]


def test_what_python_backends_never_have_is_a_runtime_error():
    comm, _ = make(Minimal)
    batch = comm.batch_op_create()
    batch.send(torch.ones(1), 0)
    for unmet in (lambda: batch.issue(False), lambda: comm.abort(),
                  lambda: comm.get_backend_version(), lambda: comm.set_hints({}),
                  lambda: comm.reconfigure(1, []), lambda: comm.get_init_handle(),
                  lambda: comm.new_window(), lambda: comm.split([0], "n"),
                  lambda: comm.set_timeout(1.0)):  # fmt: skip
        with pytest.raises(RuntimeError):
            unmet()
    assert comm.is_aborted() is False
    assert comm.is_abort_supported() is False


def test_enable_reconfigure_is_refused_before_init():
    name = f"python_backend_{next(_names)}"

    class Never(Minimal):
        def init(self, device, name, options):
            raise AssertionError("init was called")

    register_backend(name, Never)
    with pytest.raises(RuntimeError, match="reconfigure"):
        torchcomms.new_comm(name, torch.device("cpu"), "n", enable_reconfigure=True)


def test_split_gives_a_communicator_of_the_returned_backend_or_none():
    child_backend = Minimal()
    comm, backend = make(with_answer(child_backend))
    child = comm.split([1, 0], "child", hints={"k": "v"}, timeout=timedelta(seconds=5))
    assert child.get_backend_impl() is child_backend
    assert (child.get_rank(), child.get_size()) == (0, 1)
    assert child.get_backend() == comm.get_backend()
    called, (ranks, name, options) = backend.calls[-1]
    assert (called, list(ranks), name) == ("split", [1, 0], "child")
    assert isinstance(options, CommOptions)
    assert options.timeout == timedelta(seconds=5)
    assert options.hints["k"] == "v"
    comm, _ = make(with_answer(None))
    assert comm.split([1], "none") is None


def test_a_child_of_split_remembers_its_device_name_and_options():
    class Nameless(TorchCommBackend):
        def get_rank(self):
            return 0

        def get_size(self):
            return 1

        def get_backend_name(self):
            return "nameless"

    name = f"python_backend_{next(_names)}"
    child_backend = Nameless()
    register_backend(name, with_answer(child_backend))
    comm = torchcomms.new_comm(name, torch.device("meta"), "parent", timeout=9.0)
    child = comm.split([1], "child", hints={"k": "v"}, timeout=5.0)
    assert (child.get_name(), child.get_device()) == ("child", torch.device("meta"))
    assert child.get_options().timeout == timedelta(seconds=5)
    assert child.get_options().hints == {"k": "v"}
    again = comm.split([1], "another", timeout=7.0)
    assert again.get_backend_impl() is child_backend
    assert (again.get_name(), again.get_options().timeout) == ("child", timedelta(seconds=5))


def test_a_backend_that_is_its_own_child_stays_what_init_made_it():
    comm, backend = make(Recorder, timeout=9.0)
    backend.answer = backend
    child = comm.split([1], "child", timeout=5.0)
    assert child.get_options().timeout == timedelta(seconds=9)


def test_split_must_give_a_backend():
    comm, _ = make(with_answer("no backend"))
    with refused(TypeError, "split", "returned 'no backend'", "None", "TorchCommBackend"):
        comm.split([1], "wrong")


def test_ranks_are_checked_as_for_any_backend():
    comm, backend = make(Recorder)
    with pytest.raises(RuntimeError, match="root"):
        comm.broadcast(torch.ones(1), 3, False)
    with pytest.raises(RuntimeError, match="dst"):
        comm.send(torch.ones(1), -1, False)
    assert [name for name, _ in backend.calls] == ["init"]


def test_hooks_fire_as_for_any_backend():
    comm, _ = make(Recorder)
    fired = []
    comm.register_pre_hook(lambda name, op_id, args: fired.append((str(name), op_id)))
    comm.register_post_hook(lambda op_id, args: fired.append(("post", op_id)))
    for name in OPERATIONS:
        fired.clear()
        call(comm, name, False)
        (pre, op_id), post = fired
        assert pre.endswith(f".{name}")
        assert post == ("post", op_id)


def test_finalize_is_forwarded_each_time():
    comm, backend = make(Recorder)
    comm.finalize()
    comm.finalize()
    assert [name for name, _ in backend.calls] == ["init", "finalize", "finalize"]


def test_set_timeout_reaches_the_override_as_a_timedelta():
    comm, backend = make(Recorder)
    comm.set_timeout(2.5)
    assert backend.calls[-1] == ("set_timeout", (timedelta(seconds=2.5),))


def test_the_backend_object_stays_the_same_when_nothing_else_holds_it():
    comm, _ = make(Recorder)
    comm.get_backend_impl().marker = "kept"
    gc.collect()
    assert comm.get_backend_impl().marker == "kept"


@pytest.mark.parametrize(
    ("method", "value", "allowed"),
    [
        ("get_rank", "zero", "int"),
        ("get_size", 1.5, "int"),
        ("get_comm_name", None, "str"),
    ],
)
def test_a_wrong_type_from_an_override_is_a_type_error(method, value, allowed):
    class Confused(Minimal):
        pass

    setattr(Confused, method, lambda self: value)
    with refused(TypeError, method, f"returned {value!r}", f"allowed is {allowed}"):
        make(Confused)


def test_a_python_backend_may_be_built_on_another_communicator():
    """A backend that forwards to an inner communicator, as wrappers do."""

    class Forwarding(Minimal):
        def init(self, device, name, options):
            self.inner = torchcomms.new_comm("fake", device, f"{name}_inner")

        def all_reduce(self, tensor, op, async_op):
            return self.inner.all_reduce(tensor, op, async_op)

    comm, backend = make(Forwarding)
    seen = []
    backend.inner.register_pre_hook(lambda name, op_id, args: seen.append(str(name)))
    comm.all_reduce(torch.ones(1), ReduceOp.AVG, True).wait()
    assert [n.rsplit(".")[-1] for n in seen] == ["all_reduce"]


def test_a_future_of_its_work_ends_though_nobody_else_waits():
    """DistributedDataParallel looks at the futures alone."""
    import torch.distributed as dist

    later = Later()
    comm, _ = make(type("Zeroth", (with_answer(later),), {"rank": 0, "size": 1}))
    custom = dist.ProcessGroup.BackendType.CUSTOM
    group = dist.ProcessGroup(dist.HashStore(), 0, 1)
    group._register_backend(torch.device("cpu"), custom, _comms._BackendWrapper(comm))
    group._set_default_backend(custom)
    work = group.allreduce([torch.ones(1)])
    work.get_future().wait()
    work.wait()
    assert later.waits == 1
