"""
Native core of torchcomms. Use the names of the `torchcomms` package.
"""

from __future__ import annotations
import collections.abc
import datetime
import torch
import torch._C._distributed_c10d
import torch.distributed.distributed_c10d
import typing
import typing_extensions
from . import hooks

__all__: list[str] = [
    "Aborted",
    "AllGatherOptions",
    "AllGatherPExecOptions",
    "AllGatherPInitOptions",
    "AllGatherPostHookArgs",
    "AllGatherPreHookArgs",
    "AllGatherSingleOptions",
    "AllGatherSinglePostHookArgs",
    "AllGatherSinglePreHookArgs",
    "AllGatherVPostHookArgs",
    "AllGatherVPreHookArgs",
    "AllReduceOptions",
    "AllReducePostHookArgs",
    "AllReducePreHookArgs",
    "AllToAllOptions",
    "AllToAllPostHookArgs",
    "AllToAllPreHookArgs",
    "AllToAllSingleOptions",
    "AllToAllSinglePostHookArgs",
    "AllToAllSinglePreHookArgs",
    "AllToAllVSinglePostHookArgs",
    "AllToAllVSinglePreHookArgs",
    "AllToAllvSingleOptions",
    "BackendUnavailable",
    "BarrierOptions",
    "BarrierPostHookArgs",
    "BarrierPreHookArgs",
    "BatchOpIssuePostHookArgs",
    "BatchOpIssuePreHookArgs",
    "BatchP2POptions",
    "BatchSendRecv",
    "BroadcastOptions",
    "BroadcastPostHookArgs",
    "BroadcastPreHookArgs",
    "CollectivePostHookArgs",
    "CommError",
    "CommFinalized",
    "CommOptions",
    "CommTimeout",
    "FinalizePostHookArgs",
    "FinalizePreHookArgs",
    "ForkedProcess",
    "GatherOptions",
    "GatherPostHookArgs",
    "GatherPreHookArgs",
    "GatherSingleOptions",
    "GatherSinglePostHookArgs",
    "GatherSinglePreHookArgs",
    "InvalidArgument",
    "Mismatch",
    "NewWindowPostHookArgs",
    "NewWindowPreHookArgs",
    "OpName",
    "OutOfRange",
    "P2POp",
    "P2POpType",
    "PeerFailed",
    "ReconfigureOptions",
    "RecvOptions",
    "RecvPostHookArgs",
    "RecvPreHookArgs",
    "RedOpType",
    "ReduceOp",
    "ReduceOptions",
    "ReducePostHookArgs",
    "ReducePreHookArgs",
    "ReduceScatterOptions",
    "ReduceScatterPostHookArgs",
    "ReduceScatterPreHookArgs",
    "ReduceScatterSingleOptions",
    "ReduceScatterSinglePostHookArgs",
    "ReduceScatterSinglePreHookArgs",
    "ReduceScatterVPostHookArgs",
    "ReduceScatterVPreHookArgs",
    "RemovableHandle",
    "ResourceExhausted",
    "ScatterOptions",
    "ScatterPostHookArgs",
    "ScatterPreHookArgs",
    "SendOptions",
    "SendPostHookArgs",
    "SendPreHookArgs",
    "SignalCmpOp",
    "SplitPostHookArgs",
    "SplitPreHookArgs",
    "StaleGeneration",
    "TooLarge",
    "TorchComm",
    "TorchCommBackend",
    "TorchCommWinAccessType",
    "TorchCommWindow",
    "TorchCommWindowAttr",
    "TorchWork",
    "UnsafeObject",
    "Unsupported",
    "WorkStatus",
    "WorkWrapper",
    "get_mem_allocator",
    "hooks",
    "register_backend",
]

class CommError(RuntimeError):
    """
    Base of all errors of torchcomms.

    Attributes: op (operation), comm (communicator), rank, peer (-1: none), seq (number of the
    operation in its communicator, 0: none), limit (the operation's timeout in seconds; 0.0: none
    or not known), culprits (tuple of the ranks at fault, as far as they are known), why (the
    reason alone).
    """

class InvalidArgument(CommError, ValueError):
    """
    The call itself is wrong; nothing was sent.
    """

class OutOfRange(InvalidArgument, IndexError):
    """
    A number does not fit, or lies outside its range.
    """

class CommTimeout(CommError, TimeoutError):
    """
    A timeout passed; the message names it and the setting that raises it.
    """

class PeerFailed(CommError):
    """
    A peer's process or connection has failed.
    """

class Aborted(CommError):
    """
    The communicator was aborted.
    """

class Mismatch(CommError):
    """
    Ranks disagree about an operation.
    """

class CommFinalized(CommError):
    """
    The communicator is not initialized, or is finalized.
    """

class StaleGeneration(CommError):
    """
    This member belongs to an earlier membership.
    """

class ForkedProcess(CommError):
    """
    The communicator was made before fork(); make one in the child.
    """

class BackendUnavailable(CommError, ModuleNotFoundError):
    """
    The backend does not exist, or does not work here.
    """

class Unsupported(CommError, NotImplementedError):
    """
    The backend has no such operation, dtype or device.
    """

class ResourceExhausted(CommError):
    """
    Descriptors, memory, threads or ports ran out; the message names which.
    """

class UnsafeObject(CommError):
    """
    An object was refused because reading it may run code.
    """

class TooLarge(CommError):
    """
    Something is over its size cap.
    """

class RedOpType:
    """
    The kinds of reduction.

    Members:

      SUM

      PRODUCT

      MIN

      MAX

      BAND

      BOR

      BXOR

      PREMUL_SUM

      AVG
    """

    AVG: typing.ClassVar[RedOpType]
    BAND: typing.ClassVar[RedOpType]
    BOR: typing.ClassVar[RedOpType]
    BXOR: typing.ClassVar[RedOpType]
    MAX: typing.ClassVar[RedOpType]
    MIN: typing.ClassVar[RedOpType]
    PREMUL_SUM: typing.ClassVar[RedOpType]
    PRODUCT: typing.ClassVar[RedOpType]
    SUM: typing.ClassVar[RedOpType]
    __members__: typing.ClassVar[dict[str, RedOpType]]
    @typing.overload
    def __eq__(self, other: RedOpType) -> bool: ...
    @typing.overload
    def __eq__(self, other: typing.Any) -> bool: ...
    def __getstate__(self) -> int: ...
    def __hash__(self) -> int: ...
    def __index__(self) -> int: ...
    def __init__(self, value: typing.SupportsInt | typing.SupportsIndex) -> None: ...
    def __int__(self) -> int: ...
    @typing.overload
    def __ne__(self, other: RedOpType) -> bool: ...
    @typing.overload
    def __ne__(self, other: typing.Any) -> bool: ...
    def __repr__(self) -> str: ...
    def __setstate__(self, state: typing.SupportsInt | typing.SupportsIndex) -> None: ...
    def __str__(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def value(self) -> int: ...

class WorkStatus:
    """
    The states of a work.

    Members:

      NOT_STARTED

      INPROGRESS

      COMPLETED

      TIMEDOUT

      ERROR
    """

    COMPLETED: typing.ClassVar[WorkStatus]
    ERROR: typing.ClassVar[WorkStatus]
    INPROGRESS: typing.ClassVar[WorkStatus]
    NOT_STARTED: typing.ClassVar[WorkStatus]
    TIMEDOUT: typing.ClassVar[WorkStatus]
    __members__: typing.ClassVar[dict[str, WorkStatus]]
    @typing.overload
    def __eq__(self, other: WorkStatus) -> bool: ...
    @typing.overload
    def __eq__(self, other: typing.Any) -> bool: ...
    def __getstate__(self) -> int: ...
    def __hash__(self) -> int: ...
    def __index__(self) -> int: ...
    def __init__(self, value: typing.SupportsInt | typing.SupportsIndex) -> None: ...
    def __int__(self) -> int: ...
    @typing.overload
    def __ne__(self, other: WorkStatus) -> bool: ...
    @typing.overload
    def __ne__(self, other: typing.Any) -> bool: ...
    def __repr__(self) -> str: ...
    def __setstate__(self, state: typing.SupportsInt | typing.SupportsIndex) -> None: ...
    def __str__(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def value(self) -> int: ...

class OpName:
    """
    The hooked entry points of a communicator.

    Members:

      send

      recv

      broadcast

      all_reduce

      reduce

      all_gather

      all_gather_v

      all_gather_single

      reduce_scatter

      reduce_scatter_v

      reduce_scatter_single

      all_to_all_single

      all_to_all_v_single

      all_to_all

      barrier

      scatter

      gather

      gather_single

      split

      new_window

      batch_op_issue

      finalize
    """

    __members__: typing.ClassVar[dict[str, OpName]]
    all_gather: typing.ClassVar[OpName]
    all_gather_single: typing.ClassVar[OpName]
    all_gather_v: typing.ClassVar[OpName]
    all_reduce: typing.ClassVar[OpName]
    all_to_all: typing.ClassVar[OpName]
    all_to_all_single: typing.ClassVar[OpName]
    all_to_all_v_single: typing.ClassVar[OpName]
    barrier: typing.ClassVar[OpName]
    batch_op_issue: typing.ClassVar[OpName]
    broadcast: typing.ClassVar[OpName]
    finalize: typing.ClassVar[OpName]
    gather: typing.ClassVar[OpName]
    gather_single: typing.ClassVar[OpName]
    new_window: typing.ClassVar[OpName]
    recv: typing.ClassVar[OpName]
    reduce: typing.ClassVar[OpName]
    reduce_scatter: typing.ClassVar[OpName]
    reduce_scatter_single: typing.ClassVar[OpName]
    reduce_scatter_v: typing.ClassVar[OpName]
    scatter: typing.ClassVar[OpName]
    send: typing.ClassVar[OpName]
    split: typing.ClassVar[OpName]
    @typing.overload
    def __eq__(self, other: OpName) -> bool: ...
    @typing.overload
    def __eq__(self, other: typing.Any) -> bool: ...
    def __getstate__(self) -> int: ...
    def __hash__(self) -> int: ...
    def __index__(self) -> int: ...
    def __init__(self, value: typing.SupportsInt | typing.SupportsIndex) -> None: ...
    def __int__(self) -> int: ...
    @typing.overload
    def __ne__(self, other: OpName) -> bool: ...
    @typing.overload
    def __ne__(self, other: typing.Any) -> bool: ...
    def __repr__(self) -> str: ...
    def __setstate__(self, state: typing.SupportsInt | typing.SupportsIndex) -> None: ...
    def __str__(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def value(self) -> int: ...

class P2POpType:
    """
    Direction of an entry of a batch.

    Members:

      SEND

      RECV
    """

    RECV: typing.ClassVar[P2POpType]
    SEND: typing.ClassVar[P2POpType]
    __members__: typing.ClassVar[dict[str, P2POpType]]
    @typing.overload
    def __eq__(self, other: P2POpType) -> bool: ...
    @typing.overload
    def __eq__(self, other: typing.Any) -> bool: ...
    def __getstate__(self) -> int: ...
    def __hash__(self) -> int: ...
    def __index__(self) -> int: ...
    def __init__(self, value: typing.SupportsInt | typing.SupportsIndex) -> None: ...
    def __int__(self) -> int: ...
    @typing.overload
    def __ne__(self, other: P2POpType) -> bool: ...
    @typing.overload
    def __ne__(self, other: typing.Any) -> bool: ...
    def __repr__(self) -> str: ...
    def __setstate__(self, state: typing.SupportsInt | typing.SupportsIndex) -> None: ...
    def __str__(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def value(self) -> int: ...

class ReduceOp:
    """
    How elements are combined; immutable.

    Constants: SUM, PRODUCT, MIN, MAX, BAND, BOR, BXOR, AVG; and PREMUL_SUM(factor).
    Compares by type and factor. AVG of integers truncates toward zero.
    """

    AVG: typing.ClassVar[ReduceOp]
    BAND: typing.ClassVar[ReduceOp]
    BOR: typing.ClassVar[ReduceOp]
    BXOR: typing.ClassVar[ReduceOp]
    MAX: typing.ClassVar[ReduceOp]
    MIN: typing.ClassVar[ReduceOp]
    PRODUCT: typing.ClassVar[ReduceOp]
    SUM: typing.ClassVar[ReduceOp]
    @staticmethod
    def PREMUL_SUM(factor: torch.Tensor | typing.SupportsFloat | typing.SupportsIndex) -> ReduceOp:
        """
        Multiplies this rank's input by `factor` (a number, or a one-element tensor) before the sum.
        """
    def __copy__(self) -> ReduceOp: ...
    def __deepcopy__(self, memo: dict) -> typing.Any: ...
    def __eq__(self, arg0: typing.Any) -> bool: ...
    def __getstate__(self) -> tuple[str, torch.Tensor | float | None]: ...
    def __hash__(self) -> int: ...
    def __init__(self, opType: RedOpType) -> None:
        """
        From a RedOpType. Raises InvalidArgument for PREMUL_SUM, whose factor would be missing.
        """
    def __repr__(self) -> str: ...
    def __setstate__(
        self, arg0: tuple[str, torch.Tensor | typing.SupportsFloat | typing.SupportsIndex | None]
    ) -> None: ...
    @property
    def _factor(self) -> torch.Tensor | float | None:
        """
        The factor of PREMUL_SUM; None for every other type.
        """
    @property
    def type(self) -> RedOpType:
        """
        The RedOpType.
        """

class P2POp:
    """
    One entry of a batch: P2POp(type, tensor, peer).
    """
    def __init__(
        self, type: P2POpType, tensor: torch.Tensor, peer: typing.SupportsInt | typing.SupportsIndex
    ) -> None: ...
    def __repr__(self) -> str: ...
    @property
    def peer(self) -> int:
        """
        The peer rank; checked when the batch is issued.
        """
    @peer.setter
    def peer(self, arg0: typing.SupportsInt | typing.SupportsIndex) -> None: ...
    @property
    def tensor(self) -> torch.Tensor:
        """
        The tensor to send, or to receive into.
        """
    @tensor.setter
    def tensor(self, arg0: torch.Tensor) -> None: ...
    @property
    def type(self) -> P2POpType:
        """
        P2POpType.SEND or P2POpType.RECV.
        """
    @type.setter
    def type(self, arg0: P2POpType) -> None: ...

class CommOptions:
    """
    Options for creating a communicator.

    The constructor reads TORCHCOMM_ABORT_ON_ERROR and TORCHCOMM_TIMEOUT_SECONDS each time, and raises
    InvalidArgument naming a bad value.
    """
    def __copy__(self) -> CommOptions: ...
    def __deepcopy__(self, memo: dict) -> CommOptions: ...
    def __getstate__(
        self,
    ) -> tuple[bool, datetime.timedelta, bool, bool | None, bool, str, dict[str, str]]: ...
    def __init__(self) -> None: ...
    def __repr__(self) -> str: ...
    def __setstate__(
        self,
        arg0: tuple[
            bool,
            datetime.timedelta,
            bool,
            bool | None,
            bool,
            str,
            collections.abc.Mapping[str, str],
        ],
    ) -> None: ...
    @property
    def abort_process_on_timeout_or_error(self) -> bool:
        """
        bool: whether an unobserved failure may terminate the process.
        """
    @abort_process_on_timeout_or_error.setter
    def abort_process_on_timeout_or_error(self, arg0: bool) -> None: ...
    @property
    def enable_reconfigure(self) -> bool:
        """
        bool: create without connecting; reconfigure() connects.
        """
    @enable_reconfigure.setter
    def enable_reconfigure(self, arg0: bool) -> None: ...
    @property
    def hints(self) -> dict[str, str]:
        """
        dict[str, str]. Reading gives a copy: assign a dict to change it.
        """
    @hints.setter
    def hints(self, arg0: collections.abc.Mapping[str, str]) -> None: ...
    @property
    def name(self) -> str:
        """
        str: used when new_comm is called without a name.
        """
    @name.setter
    def name(self, arg0: str) -> None: ...
    @property
    def store(self) -> torch._C._distributed_c10d.Store:
        """
        Rendezvous store; None: found by rank discovery.
        """
    @store.setter
    def store(self, arg0: torch._C._distributed_c10d.Store) -> None: ...
    @property
    def timeout(self) -> datetime.timedelta:
        """
        timedelta: per operation, and for start-up.
        """
    @timeout.setter
    def timeout(self, arg1: datetime.timedelta | float) -> None: ...

class SendOptions:
    """
    Options of send.
    """
    def __copy__(self) -> SendOptions: ...
    def __deepcopy__(self, memo: dict) -> SendOptions: ...
    def __getstate__(self) -> tuple[datetime.timedelta, dict[str, str], int]: ...
    def __init__(self) -> None: ...
    def __repr__(self) -> str: ...
    def __setstate__(
        self,
        arg0: tuple[
            datetime.timedelta,
            collections.abc.Mapping[str, str],
            typing.SupportsInt | typing.SupportsIndex,
        ],
    ) -> None: ...
    @property
    def hints(self) -> dict[str, str]:
        """
        dict[str, str]; unknown keys are ignored.
        """
    @hints.setter
    def hints(self, arg0: collections.abc.Mapping[str, str]) -> None: ...
    @property
    def tag(self) -> int:
        """
        Messages match by (peer, tag) if the backend has tags.
        """
    @tag.setter
    def tag(self, arg0: typing.SupportsInt | typing.SupportsIndex) -> None: ...
    @property
    def timeout(self) -> datetime.timedelta:
        """
        timedelta; zero: the communicator's default.
        """
    @timeout.setter
    def timeout(self, arg1: datetime.timedelta | float) -> None: ...

class RecvOptions:
    """
    Options of recv.
    """
    def __copy__(self) -> RecvOptions: ...
    def __deepcopy__(self, memo: dict) -> RecvOptions: ...
    def __getstate__(self) -> tuple[datetime.timedelta, dict[str, str], int, bool]: ...
    def __init__(self) -> None: ...
    def __repr__(self) -> str: ...
    def __setstate__(
        self,
        arg0: tuple[
            datetime.timedelta,
            collections.abc.Mapping[str, str],
            typing.SupportsInt | typing.SupportsIndex,
            bool,
        ],
    ) -> None: ...
    @property
    def hints(self) -> dict[str, str]:
        """
        dict[str, str]; unknown keys are ignored.
        """
    @hints.setter
    def hints(self, arg0: collections.abc.Mapping[str, str]) -> None: ...
    @property
    def tag(self) -> int:
        """
        Messages match by (peer, tag) if the backend has tags.
        """
    @tag.setter
    def tag(self, arg0: typing.SupportsInt | typing.SupportsIndex) -> None: ...
    @property
    def timeout(self) -> datetime.timedelta:
        """
        timedelta; zero: the communicator's default.
        """
    @timeout.setter
    def timeout(self, arg1: datetime.timedelta | float) -> None: ...

class BroadcastOptions:
    """
    Options of broadcast.
    """
    def __copy__(self) -> BroadcastOptions: ...
    def __deepcopy__(self, memo: dict) -> BroadcastOptions: ...
    def __getstate__(self) -> tuple[datetime.timedelta, dict[str, str]]: ...
    def __init__(self) -> None: ...
    def __repr__(self) -> str: ...
    def __setstate__(
        self, arg0: tuple[datetime.timedelta, collections.abc.Mapping[str, str]]
    ) -> None: ...
    @property
    def hints(self) -> dict[str, str]:
        """
        dict[str, str]; unknown keys are ignored.
        """
    @hints.setter
    def hints(self, arg0: collections.abc.Mapping[str, str]) -> None: ...
    @property
    def timeout(self) -> datetime.timedelta:
        """
        timedelta; zero: the communicator's default.
        """
    @timeout.setter
    def timeout(self, arg1: datetime.timedelta | float) -> None: ...

class AllReduceOptions:
    """
    Options of all_reduce.
    """
    def __copy__(self) -> AllReduceOptions: ...
    def __deepcopy__(self, memo: dict) -> AllReduceOptions: ...
    def __getstate__(self) -> tuple[datetime.timedelta, dict[str, str]]: ...
    def __init__(self) -> None: ...
    def __repr__(self) -> str: ...
    def __setstate__(
        self, arg0: tuple[datetime.timedelta, collections.abc.Mapping[str, str]]
    ) -> None: ...
    @property
    def hints(self) -> dict[str, str]:
        """
        dict[str, str]; unknown keys are ignored.
        """
    @hints.setter
    def hints(self, arg0: collections.abc.Mapping[str, str]) -> None: ...
    @property
    def timeout(self) -> datetime.timedelta:
        """
        timedelta; zero: the communicator's default.
        """
    @timeout.setter
    def timeout(self, arg1: datetime.timedelta | float) -> None: ...

class ReduceOptions:
    """
    Options of reduce.
    """
    def __copy__(self) -> ReduceOptions: ...
    def __deepcopy__(self, memo: dict) -> ReduceOptions: ...
    def __getstate__(self) -> tuple[datetime.timedelta, dict[str, str]]: ...
    def __init__(self) -> None: ...
    def __repr__(self) -> str: ...
    def __setstate__(
        self, arg0: tuple[datetime.timedelta, collections.abc.Mapping[str, str]]
    ) -> None: ...
    @property
    def hints(self) -> dict[str, str]:
        """
        dict[str, str]; unknown keys are ignored.
        """
    @hints.setter
    def hints(self, arg0: collections.abc.Mapping[str, str]) -> None: ...
    @property
    def timeout(self) -> datetime.timedelta:
        """
        timedelta; zero: the communicator's default.
        """
    @timeout.setter
    def timeout(self, arg1: datetime.timedelta | float) -> None: ...

class AllGatherOptions:
    """
    Options of all_gather and all_gather_v.
    """
    def __copy__(self) -> AllGatherOptions: ...
    def __deepcopy__(self, memo: dict) -> AllGatherOptions: ...
    def __getstate__(self) -> tuple[datetime.timedelta, dict[str, str]]: ...
    def __init__(self) -> None: ...
    def __repr__(self) -> str: ...
    def __setstate__(
        self, arg0: tuple[datetime.timedelta, collections.abc.Mapping[str, str]]
    ) -> None: ...
    @property
    def hints(self) -> dict[str, str]:
        """
        dict[str, str]; unknown keys are ignored.
        """
    @hints.setter
    def hints(self, arg0: collections.abc.Mapping[str, str]) -> None: ...
    @property
    def timeout(self) -> datetime.timedelta:
        """
        timedelta; zero: the communicator's default.
        """
    @timeout.setter
    def timeout(self, arg1: datetime.timedelta | float) -> None: ...

class AllGatherSingleOptions:
    """
    Options of all_gather_single.
    """
    def __copy__(self) -> AllGatherSingleOptions: ...
    def __deepcopy__(self, memo: dict) -> AllGatherSingleOptions: ...
    def __getstate__(self) -> tuple[datetime.timedelta, dict[str, str]]: ...
    def __init__(self) -> None: ...
    def __repr__(self) -> str: ...
    def __setstate__(
        self, arg0: tuple[datetime.timedelta, collections.abc.Mapping[str, str]]
    ) -> None: ...
    @property
    def hints(self) -> dict[str, str]:
        """
        dict[str, str]; unknown keys are ignored.
        """
    @hints.setter
    def hints(self, arg0: collections.abc.Mapping[str, str]) -> None: ...
    @property
    def timeout(self) -> datetime.timedelta:
        """
        timedelta; zero: the communicator's default.
        """
    @timeout.setter
    def timeout(self, arg1: datetime.timedelta | float) -> None: ...

class ReduceScatterOptions:
    """
    Options of reduce_scatter and reduce_scatter_v.
    """
    def __copy__(self) -> ReduceScatterOptions: ...
    def __deepcopy__(self, memo: dict) -> ReduceScatterOptions: ...
    def __getstate__(self) -> tuple[datetime.timedelta, dict[str, str]]: ...
    def __init__(self) -> None: ...
    def __repr__(self) -> str: ...
    def __setstate__(
        self, arg0: tuple[datetime.timedelta, collections.abc.Mapping[str, str]]
    ) -> None: ...
    @property
    def hints(self) -> dict[str, str]:
        """
        dict[str, str]; unknown keys are ignored.
        """
    @hints.setter
    def hints(self, arg0: collections.abc.Mapping[str, str]) -> None: ...
    @property
    def timeout(self) -> datetime.timedelta:
        """
        timedelta; zero: the communicator's default.
        """
    @timeout.setter
    def timeout(self, arg1: datetime.timedelta | float) -> None: ...

class ReduceScatterSingleOptions:
    """
    Options of reduce_scatter_single.
    """
    def __copy__(self) -> ReduceScatterSingleOptions: ...
    def __deepcopy__(self, memo: dict) -> ReduceScatterSingleOptions: ...
    def __getstate__(self) -> tuple[datetime.timedelta, dict[str, str]]: ...
    def __init__(self) -> None: ...
    def __repr__(self) -> str: ...
    def __setstate__(
        self, arg0: tuple[datetime.timedelta, collections.abc.Mapping[str, str]]
    ) -> None: ...
    @property
    def hints(self) -> dict[str, str]:
        """
        dict[str, str]; unknown keys are ignored.
        """
    @hints.setter
    def hints(self, arg0: collections.abc.Mapping[str, str]) -> None: ...
    @property
    def timeout(self) -> datetime.timedelta:
        """
        timedelta; zero: the communicator's default.
        """
    @timeout.setter
    def timeout(self, arg1: datetime.timedelta | float) -> None: ...

class AllToAllOptions:
    """
    Options of all_to_all.
    """
    def __copy__(self) -> AllToAllOptions: ...
    def __deepcopy__(self, memo: dict) -> AllToAllOptions: ...
    def __getstate__(self) -> tuple[datetime.timedelta, dict[str, str]]: ...
    def __init__(self) -> None: ...
    def __repr__(self) -> str: ...
    def __setstate__(
        self, arg0: tuple[datetime.timedelta, collections.abc.Mapping[str, str]]
    ) -> None: ...
    @property
    def hints(self) -> dict[str, str]:
        """
        dict[str, str]; unknown keys are ignored.
        """
    @hints.setter
    def hints(self, arg0: collections.abc.Mapping[str, str]) -> None: ...
    @property
    def timeout(self) -> datetime.timedelta:
        """
        timedelta; zero: the communicator's default.
        """
    @timeout.setter
    def timeout(self, arg1: datetime.timedelta | float) -> None: ...

class AllToAllSingleOptions:
    """
    Options of all_to_all_single.
    """
    def __copy__(self) -> AllToAllSingleOptions: ...
    def __deepcopy__(self, memo: dict) -> AllToAllSingleOptions: ...
    def __getstate__(self) -> tuple[datetime.timedelta, dict[str, str]]: ...
    def __init__(self) -> None: ...
    def __repr__(self) -> str: ...
    def __setstate__(
        self, arg0: tuple[datetime.timedelta, collections.abc.Mapping[str, str]]
    ) -> None: ...
    @property
    def hints(self) -> dict[str, str]:
        """
        dict[str, str]; unknown keys are ignored.
        """
    @hints.setter
    def hints(self, arg0: collections.abc.Mapping[str, str]) -> None: ...
    @property
    def timeout(self) -> datetime.timedelta:
        """
        timedelta; zero: the communicator's default.
        """
    @timeout.setter
    def timeout(self, arg1: datetime.timedelta | float) -> None: ...

class AllToAllvSingleOptions:
    """
    Options of all_to_all_v_single.
    """
    def __copy__(self) -> AllToAllvSingleOptions: ...
    def __deepcopy__(self, memo: dict) -> AllToAllvSingleOptions: ...
    def __getstate__(self) -> tuple[datetime.timedelta, dict[str, str]]: ...
    def __init__(self) -> None: ...
    def __repr__(self) -> str: ...
    def __setstate__(
        self, arg0: tuple[datetime.timedelta, collections.abc.Mapping[str, str]]
    ) -> None: ...
    @property
    def hints(self) -> dict[str, str]:
        """
        dict[str, str]; unknown keys are ignored.
        """
    @hints.setter
    def hints(self, arg0: collections.abc.Mapping[str, str]) -> None: ...
    @property
    def timeout(self) -> datetime.timedelta:
        """
        timedelta; zero: the communicator's default.
        """
    @timeout.setter
    def timeout(self, arg1: datetime.timedelta | float) -> None: ...

class BarrierOptions:
    """
    Options of barrier.
    """
    def __copy__(self) -> BarrierOptions: ...
    def __deepcopy__(self, memo: dict) -> BarrierOptions: ...
    def __getstate__(self) -> tuple[datetime.timedelta, dict[str, str]]: ...
    def __init__(self) -> None: ...
    def __repr__(self) -> str: ...
    def __setstate__(
        self, arg0: tuple[datetime.timedelta, collections.abc.Mapping[str, str]]
    ) -> None: ...
    @property
    def hints(self) -> dict[str, str]:
        """
        dict[str, str]; unknown keys are ignored.
        """
    @hints.setter
    def hints(self, arg0: collections.abc.Mapping[str, str]) -> None: ...
    @property
    def timeout(self) -> datetime.timedelta:
        """
        timedelta; zero: the communicator's default.
        """
    @timeout.setter
    def timeout(self, arg1: datetime.timedelta | float) -> None: ...

class ScatterOptions:
    """
    Options of scatter.
    """
    def __copy__(self) -> ScatterOptions: ...
    def __deepcopy__(self, memo: dict) -> ScatterOptions: ...
    def __getstate__(self) -> tuple[datetime.timedelta, dict[str, str]]: ...
    def __init__(self) -> None: ...
    def __repr__(self) -> str: ...
    def __setstate__(
        self, arg0: tuple[datetime.timedelta, collections.abc.Mapping[str, str]]
    ) -> None: ...
    @property
    def hints(self) -> dict[str, str]:
        """
        dict[str, str]; unknown keys are ignored.
        """
    @hints.setter
    def hints(self, arg0: collections.abc.Mapping[str, str]) -> None: ...
    @property
    def timeout(self) -> datetime.timedelta:
        """
        timedelta; zero: the communicator's default.
        """
    @timeout.setter
    def timeout(self, arg1: datetime.timedelta | float) -> None: ...

class GatherOptions:
    """
    Options of gather.
    """
    def __copy__(self) -> GatherOptions: ...
    def __deepcopy__(self, memo: dict) -> GatherOptions: ...
    def __getstate__(self) -> tuple[datetime.timedelta, dict[str, str]]: ...
    def __init__(self) -> None: ...
    def __repr__(self) -> str: ...
    def __setstate__(
        self, arg0: tuple[datetime.timedelta, collections.abc.Mapping[str, str]]
    ) -> None: ...
    @property
    def hints(self) -> dict[str, str]:
        """
        dict[str, str]; unknown keys are ignored.
        """
    @hints.setter
    def hints(self, arg0: collections.abc.Mapping[str, str]) -> None: ...
    @property
    def timeout(self) -> datetime.timedelta:
        """
        timedelta; zero: the communicator's default.
        """
    @timeout.setter
    def timeout(self, arg1: datetime.timedelta | float) -> None: ...

class GatherSingleOptions:
    """
    Options of gather_single.
    """
    def __copy__(self) -> GatherSingleOptions: ...
    def __deepcopy__(self, memo: dict) -> GatherSingleOptions: ...
    def __getstate__(self) -> tuple[datetime.timedelta, dict[str, str]]: ...
    def __init__(self) -> None: ...
    def __repr__(self) -> str: ...
    def __setstate__(
        self, arg0: tuple[datetime.timedelta, collections.abc.Mapping[str, str]]
    ) -> None: ...
    @property
    def hints(self) -> dict[str, str]:
        """
        dict[str, str]; unknown keys are ignored.
        """
    @hints.setter
    def hints(self, arg0: collections.abc.Mapping[str, str]) -> None: ...
    @property
    def timeout(self) -> datetime.timedelta:
        """
        timedelta; zero: the communicator's default.
        """
    @timeout.setter
    def timeout(self, arg1: datetime.timedelta | float) -> None: ...

class BatchP2POptions:
    """
    Options of BatchSendRecv.issue.
    """
    def __copy__(self) -> BatchP2POptions: ...
    def __deepcopy__(self, memo: dict) -> BatchP2POptions: ...
    def __getstate__(self) -> tuple[datetime.timedelta, dict[str, str]]: ...
    def __init__(self) -> None: ...
    def __repr__(self) -> str: ...
    def __setstate__(
        self, arg0: tuple[datetime.timedelta, collections.abc.Mapping[str, str]]
    ) -> None: ...
    @property
    def hints(self) -> dict[str, str]:
        """
        dict[str, str]; unknown keys are ignored.
        """
    @hints.setter
    def hints(self, arg0: collections.abc.Mapping[str, str]) -> None: ...
    @property
    def timeout(self) -> datetime.timedelta:
        """
        timedelta; zero: the communicator's default.
        """
    @timeout.setter
    def timeout(self, arg1: datetime.timedelta | float) -> None: ...

class AllGatherPInitOptions:
    """
    Options of all_gather_p_init.
    """
    def __copy__(self) -> AllGatherPInitOptions: ...
    def __deepcopy__(self, memo: dict) -> AllGatherPInitOptions: ...
    def __getstate__(self) -> tuple[datetime.timedelta, dict[str, str]]: ...
    def __init__(self) -> None: ...
    def __repr__(self) -> str: ...
    def __setstate__(
        self, arg0: tuple[datetime.timedelta, collections.abc.Mapping[str, str]]
    ) -> None: ...
    @property
    def hints(self) -> dict[str, str]:
        """
        dict[str, str]; unknown keys are ignored.
        """
    @hints.setter
    def hints(self, arg0: collections.abc.Mapping[str, str]) -> None: ...
    @property
    def timeout(self) -> datetime.timedelta:
        """
        timedelta; zero: the communicator's default.
        """
    @timeout.setter
    def timeout(self, arg1: datetime.timedelta | float) -> None: ...

class AllGatherPExecOptions:
    """
    Options of all_gather_p_exec.
    """
    def __copy__(self) -> AllGatherPExecOptions: ...
    def __deepcopy__(self, memo: dict) -> AllGatherPExecOptions: ...
    def __getstate__(self) -> tuple[datetime.timedelta, dict[str, str]]: ...
    def __init__(self) -> None: ...
    def __repr__(self) -> str: ...
    def __setstate__(
        self, arg0: tuple[datetime.timedelta, collections.abc.Mapping[str, str]]
    ) -> None: ...
    @property
    def hints(self) -> dict[str, str]:
        """
        dict[str, str]; unknown keys are ignored.
        """
    @hints.setter
    def hints(self, arg0: collections.abc.Mapping[str, str]) -> None: ...
    @property
    def timeout(self) -> datetime.timedelta:
        """
        timedelta; zero: the communicator's default.
        """
    @timeout.setter
    def timeout(self, arg1: datetime.timedelta | float) -> None: ...

class ReconfigureOptions:
    """
    The members after a reconfigure(), and its timeout and hints.
    """
    def __copy__(self) -> ReconfigureOptions: ...
    def __deepcopy__(self, memo: dict) -> ReconfigureOptions: ...
    def __getstate__(
        self,
    ) -> tuple[int, set[str] | list[str], datetime.timedelta | None, dict[str, str]]: ...
    @typing.overload
    def __init__(self) -> None: ...
    @typing.overload
    def __init__(
        self,
        uuid: typing.SupportsInt | typing.SupportsIndex,
        init_handles: collections.abc.Set[str] | collections.abc.Sequence[str],
        timeout: datetime.timedelta | float | None = None,
        hints: collections.abc.Mapping[str, str] | None = None,
    ) -> None: ...
    def __repr__(self) -> str: ...
    def __setstate__(
        self,
        arg0: tuple[
            typing.SupportsInt | typing.SupportsIndex,
            collections.abc.Set[str] | collections.abc.Sequence[str],
            datetime.timedelta | None,
            collections.abc.Mapping[str, str],
        ],
    ) -> None: ...
    @property
    def hints(self) -> dict[str, str]:
        """
        dict[str, str].
        """
    @hints.setter
    def hints(self, arg0: collections.abc.Mapping[str, str]) -> None: ...
    @property
    def init_handles(self) -> set[str] | list[str]:
        """
        list: in rank order; set: the backend chooses the order.
        """
    @init_handles.setter
    def init_handles(
        self, arg0: collections.abc.Set[str] | collections.abc.Sequence[str]
    ) -> None: ...
    @property
    def timeout(self) -> datetime.timedelta | None:
        """
        timedelta or None.
        """
    @timeout.setter
    def timeout(self, arg1: datetime.timedelta | float | None) -> None: ...
    @property
    def uuid(self) -> int:
        """
        int: not used before on this communicator.
        """
    @uuid.setter
    def uuid(self, arg0: typing.SupportsInt | typing.SupportsIndex) -> None: ...

class TorchWork:
    """
    One issued operation.

    It may be dropped before completion; the operation still completes.
    """
    def __init__(self, *args: typing.Any, **kwargs: typing.Any) -> None:
        """
        Raises TypeError: operations of a communicator return one.
        """
    def __repr__(self) -> str: ...
    def _set_status(self, status: WorkStatus) -> None:
        """
        Sets the state of a work that a Python backend returned.
        """
    def is_completed(self) -> bool:
        """
        True if the operation has succeeded; False while it runs, and after a failure.
        """
    def wait(self) -> None:
        """
        CPU: blocks until the operation is complete. GPU: the current stream waits, the host continues.

        Every call raises the operation's error. Repeated calls are allowed.
        """
    def wait_blocking(self) -> None:
        """
        Blocks the host until the operation is complete. Raises Unsupported if the work has no such wait.
        """

class TorchCommWinAccessType:
    """
    How a peer's window is accessed.

    Members:

      WIN_ACCESS_TYPE_UNIFIED

      WIN_ACCESS_TYPE_SEPARATE
    """

    WIN_ACCESS_TYPE_SEPARATE: typing.ClassVar[TorchCommWinAccessType]
    WIN_ACCESS_TYPE_UNIFIED: typing.ClassVar[TorchCommWinAccessType]
    __members__: typing.ClassVar[dict[str, TorchCommWinAccessType]]
    @typing.overload
    def __eq__(self, other: TorchCommWinAccessType) -> bool: ...
    @typing.overload
    def __eq__(self, other: typing.Any) -> bool: ...
    def __getstate__(self) -> int: ...
    def __hash__(self) -> int: ...
    def __index__(self) -> int: ...
    def __init__(self, value: typing.SupportsInt | typing.SupportsIndex) -> None: ...
    def __int__(self) -> int: ...
    @typing.overload
    def __ne__(self, other: TorchCommWinAccessType) -> bool: ...
    @typing.overload
    def __ne__(self, other: typing.Any) -> bool: ...
    def __repr__(self) -> str: ...
    def __setstate__(self, state: typing.SupportsInt | typing.SupportsIndex) -> None: ...
    def __str__(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def value(self) -> int: ...

class SignalCmpOp:
    """
    Comparison of the older window signals.

    Members:

      EQ

      GE

      LE
    """

    EQ: typing.ClassVar[SignalCmpOp]
    GE: typing.ClassVar[SignalCmpOp]
    LE: typing.ClassVar[SignalCmpOp]
    __members__: typing.ClassVar[dict[str, SignalCmpOp]]
    @typing.overload
    def __eq__(self, other: SignalCmpOp) -> bool: ...
    @typing.overload
    def __eq__(self, other: typing.Any) -> bool: ...
    def __getstate__(self) -> int: ...
    def __hash__(self) -> int: ...
    def __index__(self) -> int: ...
    def __init__(self, value: typing.SupportsInt | typing.SupportsIndex) -> None: ...
    def __int__(self) -> int: ...
    @typing.overload
    def __ne__(self, other: SignalCmpOp) -> bool: ...
    @typing.overload
    def __ne__(self, other: typing.Any) -> bool: ...
    def __repr__(self) -> str: ...
    def __setstate__(self, state: typing.SupportsInt | typing.SupportsIndex) -> None: ...
    def __str__(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def value(self) -> int: ...

class TorchCommWindowAttr:
    """
    The properties of a window of one peer.
    """
    def __init__(self) -> None: ...
    def __repr__(self) -> str: ...
    @property
    def access_type(self) -> TorchCommWinAccessType:
        """
        UNIFIED: also by loads and stores; SEPARATE: only by operations of the window.
        """
    @access_type.setter
    def access_type(self, arg0: TorchCommWinAccessType) -> None: ...

class TorchCommWindow:
    """
    Memory of this rank that peer ranks write one-sidedly.

    Created by TorchComm.new_window(), with memory from tensor_register(), or by TorchComm.window_allocate(). Keeps the
    communicator alive. Operations have no hooks. An operation that fails ends the communicator. An operation without a
    timeout of its own has the communicator's timeout.
    """
    def __copy__(self) -> typing.Any: ...
    def __deepcopy__(self, memo: dict) -> typing.Any: ...
    def __init__(self, *args: typing.Any, **kwargs: typing.Any) -> None:
        """
        Raises TypeError: TorchComm.new_window() and TorchComm.window_allocate() make one.
        """
    def __repr__(self) -> str: ...
    def deregister_local_buffer(self, handle: typing.SupportsIndex) -> None:
        """
        Undoes register_local_buffer(). Raises InvalidArgument for any other number.
        """
    def get_attr(self, peer_rank: typing.SupportsIndex) -> TorchCommWindowAttr:
        """
        How this rank accesses the window of `peer_rank`: a TorchCommWindowAttr.
        """
    def get_device(self) -> torch.device:
        """
        The torch.device of the memory.
        """
    def get_device_window(
        self,
        signal_count: typing.SupportsIndex = -1,
        counter_count: typing.SupportsIndex = -1,
        barrier_count: typing.SupportsIndex = 1,
    ) -> int:
        """
        Address of a handle for kernels, in this rank's device memory. The first call creates it.

        The handle is a torchcomms::device::TorchCommDeviceWindow (torchcomms/device/window.hpp), valid until
        tensor_deregister(). Not collective.

        Args:
            signal_count, counter_count, barrier_count: -1 for the maximum.
        Raises:
            InvalidArgument: a count is below -1, or no tensor is registered.
            OutOfRange: a count exceeds the maximum.
            Unsupported: the window is not in device memory, or kernels cannot access it.
        """
    def get_multimem_address(self, offset: typing.SupportsIndex = 0) -> int:
        """
        Device address of the multicast memory of all ranks; 0: windows have no multicast.
        """
    def get_nvlink_address(
        self, peer: typing.SupportsIndex, offset: typing.SupportsIndex = 0
    ) -> int:
        """
        Device address of the memory of `peer`, `offset` bytes after its beginning.

        0 if kernels cannot access it. Raises OutOfRange beyond the window, Unsupported as get_device_window().
        """
    def get_size(self) -> int:
        """
        Bytes registered on this rank; 0 if no tensor is registered.
        """
    @typing.overload
    def get_tensor(self) -> torch.Tensor | None:
        """
        The registered tensor; None if there is none, or if the window does not own it (owning=False).
        """
    @typing.overload
    def get_tensor(
        self,
        rank: typing.SupportsIndex,
        sizes: collections.abc.Sequence[typing.SupportsIndex],
        dtype: torch.dtype,
        offset: typing.SupportsIndex,
    ) -> torch.Tensor:
        """
        Older form: a view of the memory of `rank`, from `offset` elements of `dtype` after its beginning.

        Raises:
            OutOfRange: the view exceeds the window.
            Unsupported: get_attr(rank) returns SEPARATE.
        """
    def map_remote_tensor(self, rank: typing.SupportsIndex) -> torch.Tensor:
        """
        A view of the registered tensor of `rank`: reads and writes access the memory of that rank.

        The view has the dtype and shape of that rank's tensor; for this rank it is the registered tensor. Data that were
        written before a signal of that rank are visible after wait_signal(). Valid until tensor_deregister().

        Raises:
            Unsupported: get_attr(rank) returns SEPARATE.
        """
    @typing.overload
    def put(
        self,
        tensor: torch.Tensor,
        dst_rank: typing.SupportsIndex,
        target_offset_nelems: typing.SupportsIndex,
        async_op: bool,
        hints: dict[str, str] | None = None,
        timeout: datetime.timedelta | float | None = None,
    ) -> TorchWork:
        """
        Copies `tensor` into the window of `dst_rank`, which makes no call.

        Args:
            tensor: contiguous, of any dtype.
            dst_rank: target rank; may be this rank.
            target_offset_nelems: offset in the window, in elements of `tensor`'s dtype. Older names: offset, target_disp.
            async_op: False returns when the data is in the window; True returns a work at once.
        Raises:
            OutOfRange: the tensor does not fit into the window. Nothing was sent.
            PeerFailed, CommTimeout, Aborted: the communicator has ended.
            InvalidArgument: no tensor is registered, or rank or tensor is invalid. Nothing was sent.
        """
    @typing.overload
    def put(
        self,
        tensor: torch.Tensor,
        dst_rank: typing.SupportsIndex,
        offset: typing.SupportsIndex,
        async_op: bool,
        hints: dict[str, str] | None = None,
        timeout: datetime.timedelta | float | None = None,
    ) -> TorchWork:
        """
        Copies `tensor` into the window of `dst_rank`, which makes no call.

        Args:
            tensor: contiguous, of any dtype.
            dst_rank: target rank; may be this rank.
            target_offset_nelems: offset in the window, in elements of `tensor`'s dtype. Older names: offset, target_disp.
            async_op: False returns when the data is in the window; True returns a work at once.
        Raises:
            OutOfRange: the tensor does not fit into the window. Nothing was sent.
            PeerFailed, CommTimeout, Aborted: the communicator has ended.
            InvalidArgument: no tensor is registered, or rank or tensor is invalid. Nothing was sent.
        """
    @typing.overload
    def put(
        self,
        tensor: torch.Tensor,
        dst_rank: typing.SupportsIndex,
        target_disp: typing.SupportsIndex,
        async_op: bool,
        hints: dict[str, str] | None = None,
        timeout: datetime.timedelta | float | None = None,
    ) -> TorchWork:
        """
        Copies `tensor` into the window of `dst_rank`, which makes no call.

        Args:
            tensor: contiguous, of any dtype.
            dst_rank: target rank; may be this rank.
            target_offset_nelems: offset in the window, in elements of `tensor`'s dtype. Older names: offset, target_disp.
            async_op: False returns when the data is in the window; True returns a work at once.
        Raises:
            OutOfRange: the tensor does not fit into the window. Nothing was sent.
            PeerFailed, CommTimeout, Aborted: the communicator has ended.
            InvalidArgument: no tensor is registered, or rank or tensor is invalid. Nothing was sent.
        """
    def register_local_buffer(self, tensor: torch.Tensor) -> int:
        """
        Address of a handle of `tensor` as a source of puts by kernels. Its memory is kept alive.

        Raises:
            InvalidArgument: get_device_window() was not called, or the tensor is on another device.
            ResourceExhausted: 512 buffers are registered already.
            Unsupported: as get_device_window().
        """
    @typing.overload
    def signal(
        self,
        peer_rank: typing.SupportsIndex,
        async_op: bool,
        hints: dict[str, str] | None = None,
        timeout: datetime.timedelta | float | None = None,
    ) -> TorchWork:
        """
        Sends one signal to `peer_rank`, for its wait_signal().

        When the peer sees the signal, it also sees all data that this rank put to it before.
        """
    @typing.overload
    def signal(
        self,
        dst_rank: typing.SupportsIndex,
        async_op: bool,
        hints: dict[str, str] | None = None,
        timeout: datetime.timedelta | float | None = None,
    ) -> TorchWork:
        """
        Sends one signal to `peer_rank`, for its wait_signal().

        When the peer sees the signal, it also sees all data that this rank put to it before.
        """
    @typing.overload
    def signal(
        self,
        signal_disp: typing.SupportsIndex,
        signal_val: typing.SupportsIndex,
        dst_rank: typing.SupportsIndex,
        async_op: bool,
        hints: dict[str, str] | None = None,
        timeout: datetime.timedelta | float | None = None,
    ) -> TorchWork:
        """
        Older form: stores `signal_val` in slot `signal_disp` of `dst_rank`.

        When the peer sees the value, it also sees all data that this rank put to it before.
        """
    def tensor_deregister(self) -> None:
        """
        Ends the registration. Collective: returns when no rank writes to this rank's part any more. Views of peer ranks' parts become invalid. Raises InvalidArgument if no tensor is registered.
        """
    def tensor_register(self, tensor: torch.Tensor, owning: bool = True) -> None:
        """
        Makes `tensor` this rank's part of the window. Collective; sizes and dtypes may differ.

        Args:
            tensor: contiguous. If it is in shared memory (torch's share_memory_()), the ranks of this host map it.
            owning: False does not keep it alive: it must live until tensor_deregister().
        Raises:
            InvalidArgument: a tensor is registered already, or `tensor` is invalid. Nothing was sent.
        """
    @typing.overload
    def wait_signal(
        self,
        peer_rank: typing.SupportsIndex,
        async_op: bool,
        hints: dict[str, str] | None = None,
        timeout: datetime.timedelta | float | None = None,
    ) -> TorchWork:
        """
        Waits for one signal of `peer_rank` and consumes it.

        Raises:
            CommTimeout: no signal arrived in time; the communicator has ended.
            PeerFailed: that rank has exited, or has closed the communicator.
            InvalidArgument: on `ctran` for CPU tensors: the window was closed meanwhile; the communicator still works.
        """
    @typing.overload
    def wait_signal(
        self,
        signal_disp: typing.SupportsIndex,
        signal_val: typing.SupportsIndex,
        cmp_op: SignalCmpOp,
        async_op: bool,
        hints: dict[str, str] | None = None,
        timeout: datetime.timedelta | float | None = None,
    ) -> TorchWork:
        """
        Older form: waits until slot `signal_disp` of this rank compares true with `signal_val`.

        The slot is the left operand of the comparison; its value is not changed.
        """
    @property
    def device(self) -> torch.device:
        """
        torch.device of the registered tensor.
        """
    @property
    def dtype(self) -> torch.dtype:
        """
        torch.dtype of the registered tensor; float32 if there is none.
        """
    @property
    def shape(self) -> list[int]:
        """
        list[int]: shape of the registered tensor; empty if there is none.
        """

class SendPreHookArgs:
    """
    The arguments of an operation, as a pre-hook receives them. Read-only.
    """
    @property
    def async_op(self) -> bool:
        """
        Whether the call is asynchronous.
        """
    @property
    def peer(self) -> int:
        """
        The peer rank.
        """
    @property
    def tensor(self) -> torch.Tensor:
        """
        The tensor.
        """

class RecvPreHookArgs:
    """
    The arguments of an operation, as a pre-hook receives them. Read-only.
    """
    @property
    def async_op(self) -> bool:
        """
        Whether the call is asynchronous.
        """
    @property
    def peer(self) -> int:
        """
        The peer rank.
        """
    @property
    def tensor(self) -> torch.Tensor:
        """
        The tensor.
        """

class BroadcastPreHookArgs:
    """
    The arguments of an operation, as a pre-hook receives them. Read-only.
    """
    @property
    def async_op(self) -> bool:
        """
        Whether the call is asynchronous.
        """
    @property
    def root(self) -> int:
        """
        The root.
        """
    @property
    def tensor(self) -> torch.Tensor:
        """
        The tensor.
        """

class AllReducePreHookArgs:
    """
    The arguments of an operation, as a pre-hook receives them. Read-only.
    """
    @property
    def async_op(self) -> bool:
        """
        Whether the call is asynchronous.
        """
    @property
    def tensor(self) -> torch.Tensor:
        """
        The tensor.
        """

class ReducePreHookArgs:
    """
    The arguments of an operation, as a pre-hook receives them. Read-only.
    """
    @property
    def async_op(self) -> bool:
        """
        Whether the call is asynchronous.
        """
    @property
    def root(self) -> int:
        """
        The root.
        """
    @property
    def tensor(self) -> torch.Tensor:
        """
        The tensor.
        """

class AllGatherPreHookArgs:
    """
    The arguments of an operation, as a pre-hook receives them. Read-only.
    """
    @property
    def async_op(self) -> bool:
        """
        Whether the call is asynchronous.
        """
    @property
    def input(self) -> torch.Tensor:
        """
        The input tensor.
        """
    @property
    def output(self) -> list[torch.Tensor]:
        """
        The output tensors.
        """

class AllGatherVPreHookArgs:
    """
    The arguments of an operation, as a pre-hook receives them. Read-only.
    """
    @property
    def async_op(self) -> bool:
        """
        Whether the call is asynchronous.
        """
    @property
    def input(self) -> torch.Tensor:
        """
        The input tensor.
        """
    @property
    def output(self) -> list[torch.Tensor]:
        """
        The output tensors.
        """

class AllGatherSinglePreHookArgs:
    """
    The arguments of an operation, as a pre-hook receives them. Read-only.
    """
    @property
    def async_op(self) -> bool:
        """
        Whether the call is asynchronous.
        """
    @property
    def input(self) -> torch.Tensor:
        """
        The input tensor.
        """
    @property
    def output(self) -> torch.Tensor:
        """
        The output tensor.
        """

class ReduceScatterPreHookArgs:
    """
    The arguments of an operation, as a pre-hook receives them. Read-only.
    """
    @property
    def async_op(self) -> bool:
        """
        Whether the call is asynchronous.
        """
    @property
    def input(self) -> list[torch.Tensor]:
        """
        The input tensors.
        """
    @property
    def output(self) -> torch.Tensor:
        """
        The output tensor.
        """

class ReduceScatterVPreHookArgs:
    """
    The arguments of an operation, as a pre-hook receives them. Read-only.
    """
    @property
    def async_op(self) -> bool:
        """
        Whether the call is asynchronous.
        """
    @property
    def input(self) -> list[torch.Tensor]:
        """
        The input tensors.
        """
    @property
    def output(self) -> torch.Tensor:
        """
        The output tensor.
        """

class ReduceScatterSinglePreHookArgs:
    """
    The arguments of an operation, as a pre-hook receives them. Read-only.
    """
    @property
    def async_op(self) -> bool:
        """
        Whether the call is asynchronous.
        """
    @property
    def input(self) -> torch.Tensor:
        """
        The input tensor.
        """
    @property
    def output(self) -> torch.Tensor:
        """
        The output tensor.
        """

class AllToAllSinglePreHookArgs:
    """
    The arguments of an operation, as a pre-hook receives them. Read-only.
    """
    @property
    def async_op(self) -> bool:
        """
        Whether the call is asynchronous.
        """
    @property
    def input(self) -> torch.Tensor:
        """
        The input tensor.
        """
    @property
    def output(self) -> torch.Tensor:
        """
        The output tensor.
        """

class AllToAllVSinglePreHookArgs:
    """
    The arguments of an operation, as a pre-hook receives them. Read-only.
    """
    @property
    def async_op(self) -> bool:
        """
        Whether the call is asynchronous.
        """
    @property
    def input(self) -> torch.Tensor:
        """
        The input tensor.
        """
    @property
    def input_split_sizes(self) -> list[int]:
        """
        Rows sent to each rank.
        """
    @property
    def output(self) -> torch.Tensor:
        """
        The output tensor.
        """
    @property
    def output_split_sizes(self) -> list[int]:
        """
        Rows received from each rank.
        """

class AllToAllPreHookArgs:
    """
    The arguments of an operation, as a pre-hook receives them. Read-only.
    """
    @property
    def async_op(self) -> bool:
        """
        Whether the call is asynchronous.
        """
    @property
    def input(self) -> list[torch.Tensor]:
        """
        The input tensors.
        """
    @property
    def output(self) -> list[torch.Tensor]:
        """
        The output tensors.
        """

class BarrierPreHookArgs:
    """
    The arguments of an operation, as a pre-hook receives them. Read-only.
    """
    @property
    def async_op(self) -> bool:
        """
        Whether the call is asynchronous.
        """

class ScatterPreHookArgs:
    """
    The arguments of an operation, as a pre-hook receives them. Read-only.
    """
    @property
    def async_op(self) -> bool:
        """
        Whether the call is asynchronous.
        """
    @property
    def input(self) -> list[torch.Tensor]:
        """
        The input tensors.
        """
    @property
    def output(self) -> torch.Tensor:
        """
        The output tensor.
        """
    @property
    def root(self) -> int:
        """
        The root.
        """

class GatherPreHookArgs:
    """
    The arguments of an operation, as a pre-hook receives them. Read-only.
    """
    @property
    def async_op(self) -> bool:
        """
        Whether the call is asynchronous.
        """
    @property
    def input(self) -> torch.Tensor:
        """
        The input tensor.
        """
    @property
    def output(self) -> list[torch.Tensor]:
        """
        The output tensors.
        """
    @property
    def root(self) -> int:
        """
        The root.
        """

class GatherSinglePreHookArgs:
    """
    The arguments of an operation, as a pre-hook receives them. Read-only.
    """
    @property
    def async_op(self) -> bool:
        """
        Whether the call is asynchronous.
        """
    @property
    def input(self) -> torch.Tensor:
        """
        The input tensor.
        """
    @property
    def output(self) -> torch.Tensor:
        """
        The output tensor.
        """
    @property
    def root(self) -> int:
        """
        The root.
        """

class SplitPreHookArgs:
    """
    The arguments of an operation, as a pre-hook receives them. Read-only.
    """
    @property
    def name(self) -> str:
        """
        The requested name.
        """
    @property
    def ranks(self) -> list[int]:
        """
        The ranks of the group.
        """

class NewWindowPreHookArgs:
    """
    The arguments of an operation, as a pre-hook receives them. Read-only.
    """

class BatchOpIssuePreHookArgs:
    """
    The arguments of an operation, as a pre-hook receives them. Read-only.
    """
    @property
    def async_op(self) -> bool:
        """
        Whether the call is asynchronous.
        """
    @property
    def num_ops(self) -> int:
        """
        Entries of the batch.
        """

class FinalizePreHookArgs:
    """
    The arguments of an operation, as a pre-hook receives them. Read-only.
    """

class CollectivePostHookArgs:
    """
    The argument of a post-hook. It has no attributes.
    """

class SplitPostHookArgs:
    """
    The argument of a post-hook. It has no attributes.
    """

class NewWindowPostHookArgs:
    """
    The argument of a post-hook. It has no attributes.
    """

class BatchOpIssuePostHookArgs:
    """
    The argument of a post-hook. It has no attributes.
    """

class FinalizePostHookArgs:
    """
    The argument of a post-hook. It has no attributes.
    """

class RemovableHandle:
    """
    A registered hook. Dropping the handle leaves the hook registered.
    """
    def __repr__(self) -> str: ...
    def remove(self) -> None:
        """
        Removes the hook. Idempotent; safe after the communicator is deleted.
        """

class TorchCommBackend:
    """
    Base class of communicator backends; derive from it to write a backend in Python.

    A subclass takes no constructor arguments, calls super().__init__(), and overrides
    init(device, name, options), finalize(), get_rank(), get_size(), get_backend_name(), get_comm_name()
    and the operations it has: the names and leading parameters of TorchComm's, with async_op last.
    An operation returns None if it is complete, or an object with wait(). See docs/extending.
    """
    def __init__(self) -> None: ...
    def __repr__(self) -> str: ...

class BatchSendRecv:
    """
    Sends and receives issued as one group.

    TorchComm.batch_op_create() creates one. Operations with one peer match in order; mixed orders cannot deadlock.
    """
    def __init__(self, *args: typing.Any, **kwargs: typing.Any) -> None:
        """
        Raises TypeError: TorchComm.batch_op_create() makes one.
        """
    def __repr__(self) -> str: ...
    def issue(self, async_op: typing.Any = ..., options: BatchP2POptions | None = ...) -> TorchWork:
        """
        Issues all entries as one group. The list is kept, so a second issue() repeats it.

        options: BatchP2POptions; None: the defaults.
        Raises InvalidArgument for an empty batch, a peer out of range or an unusable tensor, before anything is sent.
        """
    def recv(self, tensor: torch.Tensor, src: typing.SupportsIndex) -> None:
        """
        Appends a receive. Before issue(), only types are checked and nothing is sent.
        """
    def send(self, tensor: torch.Tensor, dst: typing.SupportsIndex) -> None:
        """
        Appends a send. Before issue(), only types are checked and nothing is sent.
        """
    @property
    def ops(self) -> list[P2POp]:
        """
        list[P2POp]. Reading gives a new list; assigning replaces the batch.
        """
    @ops.setter
    def ops(self, arg0: collections.abc.Sequence[P2POp]) -> None: ...

class TorchComm:
    """
    A group of ranks that communicate. torchcomms.new_comm() creates one.

    Tensors must be contiguous, of one dtype, and on a device of the backend. Element counts must match; shapes
    are not compared. Every operation returns a TorchWork, which is complete for a synchronous call. The caller
    must serialize calls on one communicator; any thread may call abort() and is_aborted().
    """
    def __copy__(self) -> typing.Any: ...
    def __deepcopy__(self, memo: dict) -> typing.Any: ...
    def __init__(self, *args: typing.Any, **kwargs: typing.Any) -> None:
        """
        Raises TypeError: torchcomms.new_comm(backend, device, name) makes one.
        """
    def __repr__(self) -> str: ...
    def _reconfigure(
        self,
        uuid: typing.SupportsInt | typing.SupportsIndex,
        init_handles: collections.abc.Set[str] | collections.abc.Sequence[str],
        timeout: datetime.timedelta | float | None = None,
        hints: collections.abc.Mapping[str, str] | None = None,
    ) -> TorchWork:
        """
        Implements reconfigure(), with arguments of the right types.
        """
    def _recv_tagged(
        self,
        tensor: torch.Tensor,
        src: typing.SupportsInt | typing.SupportsIndex,
        tag: typing.SupportsInt | typing.SupportsIndex,
        async_op: bool,
    ) -> TorchWork:
        """
        recv() of a message that also matches by its tag, if the backend has tags.
        """
    def _send_tagged(
        self,
        tensor: torch.Tensor,
        dst: typing.SupportsInt | typing.SupportsIndex,
        tag: typing.SupportsInt | typing.SupportsIndex,
        async_op: bool,
    ) -> TorchWork:
        """
        send() of a message that also matches by its tag, if the backend has tags.
        """
    def _split(
        self,
        ranks: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex],
        name: str,
        hints: collections.abc.Mapping[str, str] | None = None,
        timeout: datetime.timedelta | float | None = None,
    ) -> TorchComm:
        """
        Implements split(), with all arguments given.
        """
    def abort(self) -> None:
        """
        Aborts operations in flight; every later operation raises. Raises Unsupported if the backend cannot abort. Any thread may call it.
        """
    def all_gather(
        self,
        tensor_list: list[torch.Tensor],
        tensor: torch.Tensor,
        async_op: bool,
        hints: dict[str, str] | None = None,
        timeout: datetime.timedelta | float | None = None,
    ) -> TorchWork:
        """
        Gathers every rank's tensor on every rank: tensor_list[i] becomes rank i's `tensor`.

        Args:
            tensor_list: N tensors, each with tensor.numel() elements, contiguous.
            tensor: contiguous, any shape.
            async_op: False: returns when the operation is complete (GPU: ordered on the current stream).
                True: returns at once; call wait() on the returned work.
            hints: per-call hints of the backend; unknown keys are ignored.
            timeout: timeout of this operation; None: the communicator's default.
        Returns:
            TorchWork; already complete if async_op=False.
        Raises:
            InvalidArgument: an argument is not as described above; nothing was sent.
            Unsupported: the backend lacks the operation, dtype or device.
            CommTimeout, PeerFailed, CommFinalized: see docs/concepts/errors.md.
        Cost:
            (N - 1) * B bytes received per rank.
        """
    def all_gather_p_exec(
        self,
        handle: typing_extensions.CapsuleType,
        input: torch.Tensor,
        async_op: bool,
        hints: collections.abc.Mapping[str, str] | None = None,
        timeout: datetime.timedelta | float | None = None,
    ) -> TorchWork:
        """
        Runs a prepared all_gather.
        """
    def all_gather_p_free(self, handle: typing_extensions.CapsuleType) -> None:
        """
        Releases a prepared all_gather.
        """
    def all_gather_p_init(
        self,
        output: torch.Tensor,
        hints: collections.abc.Mapping[str, str] | None = None,
        timeout: datetime.timedelta | float | None = None,
    ) -> typing_extensions.CapsuleType:
        """
        Prepares a repeated all_gather into `output`. Raises Unsupported where the backend has none.
        """
    def all_gather_single(
        self,
        output: torch.Tensor,
        input: torch.Tensor,
        async_op: bool,
        hints: dict[str, str] | None = None,
        timeout: datetime.timedelta | float | None = None,
    ) -> TorchWork:
        """
        Concatenates every rank's `input` into `output`, in rank order.

        Args:
            output: N * input.numel() elements, contiguous.
            input: contiguous, any shape.
            async_op: False: returns when the operation is complete (GPU: ordered on the current stream).
                True: returns at once; call wait() on the returned work.
            hints: per-call hints of the backend; unknown keys are ignored.
            timeout: timeout of this operation; None: the communicator's default.
        Returns:
            TorchWork; already complete if async_op=False.
        Raises:
            InvalidArgument: an argument is not as described above; nothing was sent.
            Unsupported: the backend lacks the operation, dtype or device.
            CommTimeout, PeerFailed, CommFinalized: see docs/concepts/errors.md.
        Cost:
            (N - 1) * B bytes received per rank.
        """
    def all_gather_v(
        self,
        tensor_list: list[torch.Tensor],
        tensor: torch.Tensor,
        async_op: bool,
        hints: dict[str, str] | None = None,
        timeout: datetime.timedelta | float | None = None,
    ) -> TorchWork:
        """
        Gathers tensors of different sizes: tensor_list[i] becomes rank i's `tensor`.

        Args:
            tensor_list: N contiguous tensors; tensor_list[i] has as many elements as rank i's `tensor`.
            tensor: contiguous, any shape; tensor_list[rank] has as many elements.
            async_op: False: returns when the operation is complete (GPU: ordered on the current stream).
                True: returns at once; call wait() on the returned work.
            hints: per-call hints of the backend; unknown keys are ignored.
            timeout: timeout of this operation; None: the communicator's default.
        Returns:
            TorchWork; already complete if async_op=False.
        Raises:
            InvalidArgument: an argument is not as described above; nothing was sent.
            Unsupported: the backend lacks the operation, dtype or device.
            CommTimeout, PeerFailed, CommFinalized: see docs/concepts/errors.md.
        Cost:
            the sum of the peer ranks' bytes received per rank.
        """
    def all_reduce(
        self,
        tensor: torch.Tensor,
        op: ReduceOp,
        async_op: bool,
        hints: dict[str, str] | None = None,
        timeout: datetime.timedelta | float | None = None,
    ) -> TorchWork:
        """
        Combines all ranks' tensors element by element; every rank gets the result, in place.

        Args:
            tensor: contiguous, any shape, as many elements on all ranks.
            op: ReduceOp. MIN and MAX need an ordered dtype; BAND, BOR and BXOR need integers or bool.
            async_op: False: returns when the operation is complete (GPU: ordered on the current stream).
                True: returns at once; call wait() on the returned work.
            hints: per-call hints of the backend; unknown keys are ignored.
            timeout: timeout of this operation; None: the communicator's default.
        Returns:
            TorchWork; already complete if async_op=False.
        Raises:
            InvalidArgument: an argument is not as described above; nothing was sent.
            Unsupported: the backend lacks the operation, dtype or device.
            CommTimeout, PeerFailed, CommFinalized: see docs/concepts/errors.md.
        Cost:
            2 (N - 1) / N * B bytes sent per rank on a ring.
        """
    def all_to_all(
        self,
        output_tensor_list: list[torch.Tensor],
        input_tensor_list: list[torch.Tensor],
        async_op: bool,
        hints: dict[str, str] | None = None,
        timeout: datetime.timedelta | float | None = None,
    ) -> TorchWork:
        """
        Sends tensor i of the input list to rank i; tensor i of the output list comes from rank i.

        Args:
            output_tensor_list: N contiguous tensors; tensor i has as many elements as rank i sends here.
            input_tensor_list: N contiguous tensors.
            async_op: False: returns when the operation is complete (GPU: ordered on the current stream).
                True: returns at once; call wait() on the returned work.
            hints: per-call hints of the backend; unknown keys are ignored.
            timeout: timeout of this operation; None: the communicator's default.
        Returns:
            TorchWork; already complete if async_op=False.
        Raises:
            InvalidArgument: an argument is not as described above; nothing was sent.
            Unsupported: the backend lacks the operation, dtype or device.
            CommTimeout, PeerFailed, CommFinalized: see docs/concepts/errors.md.
        Cost:
            the bytes of the peer ranks' tensors sent and received.
        """
    def all_to_all_single(
        self,
        output: torch.Tensor,
        input: torch.Tensor,
        async_op: bool,
        hints: dict[str, str] | None = None,
        timeout: datetime.timedelta | float | None = None,
    ) -> TorchWork:
        """
        Sends part i of `input` to rank i; part i of `output` comes from rank i.

        Args:
            output: as many elements as input, contiguous.
            input: contiguous, any shape; the element count divides by N.
            async_op: False: returns when the operation is complete (GPU: ordered on the current stream).
                True: returns at once; call wait() on the returned work.
            hints: per-call hints of the backend; unknown keys are ignored.
            timeout: timeout of this operation; None: the communicator's default.
        Returns:
            TorchWork; already complete if async_op=False.
        Raises:
            InvalidArgument: an argument is not as described above; nothing was sent.
            Unsupported: the backend lacks the operation, dtype or device.
            CommTimeout, PeerFailed, CommFinalized: see docs/concepts/errors.md.
        Cost:
            (N - 1) / N * B bytes sent and received per rank.
        """
    def all_to_all_v_single(
        self,
        output: torch.Tensor,
        input: torch.Tensor,
        output_split_sizes: list[int],
        input_split_sizes: list[int],
        async_op: bool,
        hints: dict[str, str] | None = None,
        timeout: datetime.timedelta | float | None = None,
    ) -> TorchWork:
        """
        Sends rows of `input` to each rank and receives rows into `output`, with a count per pair of ranks.

        Args:
            output: contiguous; rows as wide as the input's.
            input: contiguous, any shape.
            output_split_sizes: N numbers of rows (dimension 0) received from each rank; their sum may be below output's rows.
            input_split_sizes: N numbers of rows sent to each rank; their sum may be below input's rows.
            async_op: False: returns when the operation is complete (GPU: ordered on the current stream).
                True: returns at once; call wait() on the returned work.
            hints: per-call hints of the backend; unknown keys are ignored.
            timeout: timeout of this operation; None: the communicator's default.
        Returns:
            TorchWork; already complete if async_op=False.
        Raises:
            InvalidArgument: an argument is not as described above; nothing was sent.
            Unsupported: the backend lacks the operation, dtype or device.
            CommTimeout, PeerFailed, CommFinalized: see docs/concepts/errors.md.
        Cost:
            the bytes of the rows sent and received.
        """
    def barrier(
        self,
        async_op: bool,
        hints: dict[str, str] | None = None,
        timeout: datetime.timedelta | float | None = None,
    ) -> TorchWork:
        """
        Blocks until every rank has called barrier() (GPU: the current stream waits, the host continues).

        Args:
            async_op: False: returns when the operation is complete (GPU: ordered on the current stream).
                True: returns at once; call wait() on the returned work.
            hints: per-call hints of the backend; unknown keys are ignored.
            timeout: timeout of this operation; None: the communicator's default.
        Returns:
            TorchWork; already complete if async_op=False.
        Raises:
            InvalidArgument: an argument is not as described above; nothing was sent.
            Unsupported: the backend lacks the operation, dtype or device.
            CommTimeout, PeerFailed, CommFinalized: see docs/concepts/errors.md.
        Cost:
            about 2 log2(N) small messages.
        """
    def batch_op_create(self) -> BatchSendRecv:
        """
        Creates an empty BatchSendRecv, which keeps this communicator alive.
        """
    def broadcast(
        self,
        tensor: torch.Tensor,
        root: int,
        async_op: bool,
        hints: dict[str, str] | None = None,
        timeout: datetime.timedelta | float | None = None,
    ) -> TorchWork:
        """
        Copies `root`'s tensor to every rank.

        Args:
            tensor: contiguous, any shape, as many elements on all ranks; in place.
            root: rank whose tensor is copied.
            async_op: False: returns when the operation is complete (GPU: ordered on the current stream).
                True: returns at once; call wait() on the returned work.
            hints: per-call hints of the backend; unknown keys are ignored.
            timeout: timeout of this operation; None: the communicator's default.
        Returns:
            TorchWork; already complete if async_op=False.
        Raises:
            InvalidArgument: an argument is not as described above; nothing was sent.
            Unsupported: the backend lacks the operation, dtype or device.
            CommTimeout, PeerFailed, CommFinalized: see docs/concepts/errors.md.
        Cost:
            B bytes received per rank; about log2(N) steps on a tree.
        """
    def describe(self) -> dict:
        """
        dict: name, backend, device, rank, size, ranks, options, capabilities, duration of each start-up phase; if the backend reports them, also the link to each rank, the algorithms of each operation by size, bytes of device memory by purpose, and further notes by topic.
        """
    def finalize(self) -> None:
        """
        Releases the communicator's resources. A local call, not a barrier.

        Raises CommFinalized on a second call (not for `fake` and Python backends), and the error of pending failed work.
        """
    def gather(
        self,
        output_tensor_list: list[torch.Tensor],
        input_tensor: torch.Tensor,
        root: int,
        async_op: bool,
        hints: dict[str, str] | None = None,
        timeout: datetime.timedelta | float | None = None,
    ) -> TorchWork:
        """
        Gathers every rank's tensor on `root`: output_tensor_list[i] becomes rank i's `input_tensor`.

        Args:
            output_tensor_list: on the root N tensors with input_tensor.numel() elements each; unchanged elsewhere, may be [].
            input_tensor: contiguous, any shape.
            root: rank that gets the list.
            async_op: False: returns when the operation is complete (GPU: ordered on the current stream).
                True: returns at once; call wait() on the returned work.
            hints: per-call hints of the backend; unknown keys are ignored.
            timeout: timeout of this operation; None: the communicator's default.
        Returns:
            TorchWork; already complete if async_op=False.
        Raises:
            InvalidArgument: an argument is not as described above; nothing was sent.
            Unsupported: the backend lacks the operation, dtype or device.
            CommTimeout, PeerFailed, CommFinalized: see docs/concepts/errors.md.
        Cost:
            (N - 1) * B bytes received by the root.
        """
    def gather_single(
        self,
        output: torch.Tensor,
        input: torch.Tensor,
        root: int,
        async_op: bool,
        hints: dict[str, str] | None = None,
        timeout: datetime.timedelta | float | None = None,
    ) -> TorchWork:
        """
        Concatenates every rank's `input` into `output` on `root`, in rank order.

        Args:
            output: on the root N * input.numel() elements, contiguous; elsewhere ignored.
            input: contiguous, any shape.
            root: rank that gets the result.
            async_op: False: returns when the operation is complete (GPU: ordered on the current stream).
                True: returns at once; call wait() on the returned work.
            hints: per-call hints of the backend; unknown keys are ignored.
            timeout: timeout of this operation; None: the communicator's default.
        Returns:
            TorchWork; already complete if async_op=False.
        Raises:
            InvalidArgument: an argument is not as described above; nothing was sent.
            Unsupported: the backend lacks the operation, dtype or device.
            CommTimeout, PeerFailed, CommFinalized: see docs/concepts/errors.md.
        Cost:
            (N - 1) * B bytes received by the root.
        """
    def get_backend(self) -> str:
        """
        The backend name given to new_comm.
        """
    def get_backend_impl(self) -> TorchCommBackend:
        """
        The backend object, for backend-specific methods.
        """
    def get_backend_version(self) -> str:
        """
        Version text of the backend's library. Raises Unsupported if the backend has none.
        """
    def get_device(self) -> torch.device:
        """
        The resolved torch.device.
        """
    def get_device_transport(self) -> int:
        """
        Address of a transport for kernels, in this rank's device memory. The first call is collective. Raises Unsupported if there is none.
        """
    def get_init_handle(self) -> str:
        """
        Text that identifies this member in reconfigure(); unchanged until the next reconfigure(). Raises Unsupported if the backend cannot reconfigure.
        """
    def get_mem_allocator(self) -> typing.Any:
        """
        The backend's allocator. Raises Unsupported if the backend has none.
        """
    def get_name(self) -> str:
        """
        The name given at creation.
        """
    def get_options(self) -> CommOptions:
        """
        A fresh copy of the effective CommOptions; `store` reads None.
        """
    def get_rank(self) -> int:
        """
        This process's rank, 0 to get_size() - 1.

        Before reconfigure(): -1 on gloo and ctran; raises CommFinalized on nccl and the backends derived from it.
        """
    def get_ranks(self) -> list[int]:
        """
        Global ranks of the members, in rank order.
        """
    def get_size(self) -> int:
        """
        Number of ranks. Before reconfigure(): as get_rank().
        """
    def is_abort_supported(self) -> bool:
        """
        True if the backend supports abort().
        """
    def is_aborted(self) -> bool:
        """
        True after an abort, timeout or error. Any thread may call it.
        """
    def new_window(self, tensor: torch.Tensor | None = None) -> TorchCommWindow:
        """
        Creates a window for one-sided access. With a tensor, the call is collective, like tensor_register(). Raises Unsupported if the backend has no windows.
        """
    def reconfigure(
        self,
        uuid: int,
        init_handles: collections.abc.Sequence[str] | collections.abc.Set[str],
        timeout: datetime.timedelta | float | None = None,
        hints: dict[str, str] | None = None,
    ) -> TorchWork:
        """
        Connects exactly the members with these handles. All of these members call it. Blocks.

            Args:
                uuid: a number that no member has used before, the same for all.
                init_handles: the results of get_init_handle() of the members: a list in the order of the
                    new ranks, or a set, which every member sorts the same way.
                timeout: timeout of the call; None: the communicator's default.
                hints: dict[str, str].
            Returns:
                TorchWork. Its wait() raises the error of a failed call; the communicator then has no
                members.
            Raises:
                InvalidArgument: a wrong call; nothing has changed.
                TypeError: an argument of another type; nothing has changed.
                Unsupported: without enable_reconfigure=True, or if the backend cannot reconfigure.

        """
    def recv(
        self,
        tensor: torch.Tensor,
        src: int,
        async_op: bool,
        hints: dict[str, str] | None = None,
        timeout: datetime.timedelta | float | None = None,
    ) -> TorchWork:
        """
        Receives a message of rank `src` into `tensor`.

        Args:
            tensor: contiguous, any shape, with as many elements as are sent.
            src: sending rank.
            async_op: False: returns when the operation is complete (GPU: ordered on the current stream).
                True: returns at once; call wait() on the returned work.
            hints: per-call hints of the backend; unknown keys are ignored.
            timeout: timeout of this operation; None: the communicator's default.
        Returns:
            TorchWork; already complete if async_op=False.
        Raises:
            InvalidArgument: an argument is not as described above; nothing was sent.
            Unsupported: the backend lacks the operation, dtype or device.
            CommTimeout, PeerFailed, CommFinalized: see docs/concepts/errors.md.
        Cost:
            B bytes received, one message.
        """
    def reduce(
        self,
        tensor: torch.Tensor,
        root: int,
        op: ReduceOp,
        async_op: bool,
        hints: dict[str, str] | None = None,
        timeout: datetime.timedelta | float | None = None,
    ) -> TorchWork:
        """
        Combines all ranks' tensors element by element; only `root` gets the result, in place.

        Args:
            tensor: contiguous, any shape, as many elements on all ranks; unchanged on other ranks.
            root: rank that gets the result.
            op: ReduceOp. MIN and MAX need an ordered dtype; BAND, BOR and BXOR need integers or bool.
            async_op: False: returns when the operation is complete (GPU: ordered on the current stream).
                True: returns at once; call wait() on the returned work.
            hints: per-call hints of the backend; unknown keys are ignored.
            timeout: timeout of this operation; None: the communicator's default.
        Returns:
            TorchWork; already complete if async_op=False.
        Raises:
            InvalidArgument: an argument is not as described above; nothing was sent.
            Unsupported: the backend lacks the operation, dtype or device.
            CommTimeout, PeerFailed, CommFinalized: see docs/concepts/errors.md.
        Cost:
            about B bytes sent per rank.
        """
    def reduce_scatter(
        self,
        output: torch.Tensor,
        input_list: list[torch.Tensor],
        op: ReduceOp,
        async_op: bool,
        hints: dict[str, str] | None = None,
        timeout: datetime.timedelta | float | None = None,
    ) -> TorchWork:
        """
        Combines input_list[r] of every rank element by element; rank r gets the result.

        Args:
            output: contiguous, any shape.
            input_list: N tensors, each with output.numel() elements, contiguous.
            op: ReduceOp. MIN and MAX need an ordered dtype; BAND, BOR and BXOR need integers or bool.
            async_op: False: returns when the operation is complete (GPU: ordered on the current stream).
                True: returns at once; call wait() on the returned work.
            hints: per-call hints of the backend; unknown keys are ignored.
            timeout: timeout of this operation; None: the communicator's default.
        Returns:
            TorchWork; already complete if async_op=False.
        Raises:
            InvalidArgument: an argument is not as described above; nothing was sent.
            Unsupported: the backend lacks the operation, dtype or device.
            CommTimeout, PeerFailed, CommFinalized: see docs/concepts/errors.md.
        Cost:
            (N - 1) * B bytes sent per rank, B being the output's.
        """
    def reduce_scatter_single(
        self,
        output: torch.Tensor,
        input: torch.Tensor,
        op: ReduceOp,
        async_op: bool,
        hints: dict[str, str] | None = None,
        timeout: datetime.timedelta | float | None = None,
    ) -> TorchWork:
        """
        Combines all ranks' `input` element by element; rank r gets the r-th of N equal parts.

        Args:
            output: contiguous, any shape.
            input: N * output.numel() elements, contiguous.
            op: ReduceOp. MIN and MAX need an ordered dtype; BAND, BOR and BXOR need integers or bool.
            async_op: False: returns when the operation is complete (GPU: ordered on the current stream).
                True: returns at once; call wait() on the returned work.
            hints: per-call hints of the backend; unknown keys are ignored.
            timeout: timeout of this operation; None: the communicator's default.
        Returns:
            TorchWork; already complete if async_op=False.
        Raises:
            InvalidArgument: an argument is not as described above; nothing was sent.
            Unsupported: the backend lacks the operation, dtype or device.
            CommTimeout, PeerFailed, CommFinalized: see docs/concepts/errors.md.
        Cost:
            (N - 1) * B bytes sent per rank, B being the output's.
        """
    def reduce_scatter_v(
        self,
        output: torch.Tensor,
        input_list: list[torch.Tensor],
        op: ReduceOp,
        async_op: bool,
        hints: dict[str, str] | None = None,
        timeout: datetime.timedelta | float | None = None,
    ) -> TorchWork:
        """
        Combines input_list[r] of every rank, with a size per rank r; rank r gets the result.

        Args:
            output: contiguous, any shape; as many elements as input_list[rank].
            input_list: N tensors; input_list[i] has the same number of elements on all ranks.
            op: ReduceOp. MIN and MAX need an ordered dtype; BAND, BOR and BXOR need integers or bool.
            async_op: False: returns when the operation is complete (GPU: ordered on the current stream).
                True: returns at once; call wait() on the returned work.
            hints: per-call hints of the backend; unknown keys are ignored.
            timeout: timeout of this operation; None: the communicator's default.
        Returns:
            TorchWork; already complete if async_op=False.
        Raises:
            InvalidArgument: an argument is not as described above; nothing was sent.
            Unsupported: the backend lacks the operation, dtype or device.
            CommTimeout, PeerFailed, CommFinalized: see docs/concepts/errors.md.
        Cost:
            the sum of the other slots' bytes sent per rank.
        """
    def register_abort_hook(self, callback: collections.abc.Callable) -> RemovableHandle:
        """
        Calls `callback()` before the communicator is aborted for a timeout or an error.
        """
    def register_post_hook(self, callback: collections.abc.Callable) -> RemovableHandle:
        """
        Calls `callback(op_id: int, args)` right after each operation was issued.
        """
    def register_pre_hook(self, callback: collections.abc.Callable) -> RemovableHandle:
        """
        Calls `callback(name: OpName, op_id: int, args)` before each operation, in order of registration.
        """
    def scatter(
        self,
        output_tensor: torch.Tensor,
        input_tensor_list: list[torch.Tensor],
        root: int,
        async_op: bool,
        hints: dict[str, str] | None = None,
        timeout: datetime.timedelta | float | None = None,
    ) -> TorchWork:
        """
        Sends input_tensor_list[i] of `root` to rank i.

        Args:
            output_tensor: contiguous, any shape.
            input_tensor_list: on the root N tensors with output_tensor.numel() elements each; ignored elsewhere, may be [].
            root: rank that has the list.
            async_op: False: returns when the operation is complete (GPU: ordered on the current stream).
                True: returns at once; call wait() on the returned work.
            hints: per-call hints of the backend; unknown keys are ignored.
            timeout: timeout of this operation; None: the communicator's default.
        Returns:
            TorchWork; already complete if async_op=False.
        Raises:
            InvalidArgument: an argument is not as described above; nothing was sent.
            Unsupported: the backend lacks the operation, dtype or device.
            CommTimeout, PeerFailed, CommFinalized: see docs/concepts/errors.md.
        Cost:
            (N - 1) * B bytes sent by the root.
        """
    def send(
        self,
        tensor: torch.Tensor,
        dst: int,
        async_op: bool,
        hints: dict[str, str] | None = None,
        timeout: datetime.timedelta | float | None = None,
    ) -> TorchWork:
        """
        Sends `tensor` to rank `dst`. Sends match the recv calls of that rank in order.

        Args:
            tensor: contiguous, any shape.
            dst: receiving rank.
            async_op: False: returns when the operation is complete (GPU: ordered on the current stream).
                True: returns at once; call wait() on the returned work.
            hints: per-call hints of the backend; unknown keys are ignored.
            timeout: timeout of this operation; None: the communicator's default.
        Returns:
            TorchWork; already complete if async_op=False.
        Raises:
            InvalidArgument: an argument is not as described above; nothing was sent.
            Unsupported: the backend lacks the operation, dtype or device.
            CommTimeout, PeerFailed, CommFinalized: see docs/concepts/errors.md.
        Cost:
            B bytes sent, one message.
        """
    def set_hints(self, hints: collections.abc.Mapping[str, str]) -> None:
        """
        Sets the default hints of later operations. Raises Unsupported if the backend cannot change them.
        """
    def set_timeout(self, timeout: datetime.timedelta | float) -> None:
        """
        Sets the default timeout of later operations. Raises Unsupported if the backend cannot change it.
        """
    def split(
        self,
        ranks: collections.abc.Sequence[int]
        | collections.abc.Sequence[collections.abc.Sequence[int]]
        | None = None,
        name: str | None = None,
        hints: dict[str, str] | None = None,
        timeout: datetime.timedelta | float | None = None,
        *,
        rank_groups: collections.abc.Sequence[collections.abc.Sequence[int]] | None = None,
    ) -> TorchComm | None:
        """
        Makes a communicator of some of the ranks of this one. Collective: every rank calls it.

            Args:
                ranks: ranks of the group, in the order of the new ranks; [] takes no part.
                name: name of the child; None: the parent's name and a counter.
                hints: dict[str, str] of the child; nothing is inherited.
                timeout: timeout of the split and of the child's operations. None: the parent's timeout for
                    the split, TORCHCOMM_TIMEOUT_SECONDS for the child's operations.
                rank_groups: older form of `ranks`: disjoint groups, of which the group that contains this
                    rank is used. Such groups may also be passed as `ranks`.
            Returns:
                TorchComm, or None if this rank is in no group.
            Raises:
                InvalidArgument: a rank out of range or twice, or this rank missing from a non-empty list;
                    nothing was created.
                TypeError: an argument of another type; nothing was created.
            Cost: one connection set-up among the group.

        """
    def tensor_deregister(self, tensor: torch.Tensor) -> None:
        """
        Undoes tensor_register(). Raises Unsupported if the backend has no registration.
        """
    def tensor_register(self, tensor: torch.Tensor) -> None:
        """
        Registers the tensor's memory before it is used. Raises Unsupported if the backend has no registration.
        """
    def unsafe_get_backend(self) -> TorchCommBackend:
        """
        Deprecated name of get_backend_impl().
        """
    def window_allocate(
        self,
        window_size: typing.SupportsIndex,
        cpu_buf: bool = False,
        signal_size: typing.SupportsIndex | None = None,
    ) -> TorchCommWindow:
        """
        Older form of new_window, collective: allocates `window_size` bytes (with `cpu_buf` host memory on every device) and `signal_size` slots, or 256. Raises Unsupported if the backend has no windows.
        """
    @property
    def mem_allocator(self) -> typing.Any:
        """
        Older name of get_mem_allocator().
        """

class _Allocator:
    """
    Memory that a backend's library allocates.
    """

class WorkWrapper(torch.distributed.distributed_c10d.Work):
    """
    The work of a call on a process group.
    """
    def __repr__(self) -> str: ...

class _BackendWrapperOptions(torch._C._distributed_c10d.Backend.Options):
    """
    Options of a wrapped communicator, as torch.distributed shows them.
    """
    def __init__(self) -> None: ...

class _BackendWrapper(torch._C._distributed_c10d.Backend):
    """
    Adapts a communicator to a backend of torch.distributed's process groups.

    Register it with ``pg._register_backend(device, type, wrapper)``; every call on the group then is an
    operation of the communicator.
    """
    @staticmethod
    def _verify_work_timeout(
        work: torch._C._distributed_c10d.Work, timeout: datetime.timedelta
    ) -> bool:
        """
        True if `work` is a work of torchcomms with this timeout; a work without a timeout has the maximum.
        """
    def __init__(self, comm: TorchComm) -> None:
        """
        Raises TypeError for None. The communicator lives as long as the wrapper.
        """
    def __repr__(self) -> str: ...
    def _set_default_timeout(self, timeout: datetime.timedelta) -> None:
        """
        Sets the timeout of later calls that have none of their own.
        """
    def deregister_mem_pool(self, pool: typing.Any) -> None:
        """
        Undoes register_mem_pool(). Call it before the pool frees its memory. Does nothing for a pool that is not registered.
        """
    def get_comm(self) -> TorchComm:
        """
        The wrapped communicator.
        """
    def get_mem_allocator(self) -> _Allocator:
        """
        The allocator of the communicator's backend. Raises Unsupported if the backend has none.
        """
    def perform_nocolor_split(self, device: torch.device) -> None:
        """
        torch.distributed.new_group calls this on ranks outside of a group. It does nothing, because the members connect by themselves.
        """
    def register_mem_pool(self, pool: typing.Any, symm: bool = False) -> None:
        """
        Registers the current memory of a pool with the communicator's library.

        Args:
            pool: torch.cuda.MemPool. A second call also registers memory that the pool has allocated since.
            symm: must be False.
        Raises:
            Unsupported: symm is True, or the backend or its library registers no memory.
            InvalidArgument: the pool has memory of another device than the communicator's.
        Does nothing for a communicator on the CPU.
        """
    @property
    def options(self) -> torch._C._distributed_c10d.Backend.Options:
        """
        Options as torch.distributed shows them; backend is 'torchcomms'.
        """

def _algorithm_costs(
    operation: str,
    ranks: typing.SupportsInt | typing.SupportsIndex,
    bytes: typing.SupportsInt | typing.SupportsIndex,
    element_bytes: typing.SupportsInt | typing.SupportsIndex,
    local_size: typing.SupportsInt | typing.SupportsIndex,
    wire: str,
    cores: typing.SupportsInt | typing.SupportsIndex,
    tuning: str,
    chunk_bytes: typing.SupportsInt | typing.SupportsIndex,
) -> list:
    """
    list[dict]: the cost of each algorithm of the operation: steps, messages and bytes of its most expensive rank, and the model's time; `why_not` if it cannot run.
    """

def _algorithms() -> list:
    """
    list[dict]: every algorithm: operation, name, summary, source, addition, order.
    """

def _backend_library_variable(name: str) -> str:
    """
    The environment variable that names the library of backend `name`.
    """

def _check_tuning(text: str, source: str) -> str:
    """
    A tuning with every constant named. Raises InvalidArgument naming source, line and field.
    """

def _check_variable(name: str) -> None:
    """
    Raises InvalidArgument if the library would do so for the text of a variable.
    """

def _create_prefix_store(
    prefix: str, timeout: datetime.timedelta = ...
) -> torch._C._distributed_c10d.Store:
    """
    The store at MASTER_ADDR:MASTER_PORT under `prefix`; rank 0 serves it unless the launcher does.

    Raises CommTimeout or PeerFailed naming the address within `timeout`.
    """

def _dtype_words() -> dict:
    """
    dict[str, str]: the flight recorder's name of each dtype by its name in torch: 'Float' by 'float32'.
    """

def _dup_prefix_store(
    prefix: str,
    bootstrap_store: torch._C._distributed_c10d.Store,
    timeout: datetime.timedelta = ...,
) -> torch._C._distributed_c10d.Store:
    """
    A new store under `prefix`, served by rank 0 and announced through `bootstrap_store`. Collective.

    Raises CommTimeout or PeerFailed naming the address within `timeout`.
    """

def _environment() -> list:
    """
    list[dict]: every environment variable the library reads: name, type, default, doc.
    """

def _event_ring() -> dict:
    """
    dict: capacity of the event ring, events recorded so far, events skipped, the file it lies in, '' for none, and why it lies in memory where a file was wanted.
    """

def _is_backend_registered(name: str) -> bool:
    """
    True if new_comm finds `name` without loading anything.
    """

def _kernel_rows(tuning: str) -> list:
    """
    list[dict]: the lines 'kernel' of a tuning, by their fields.
    """

def _launchers() -> list:
    """
    list[dict]: the known launchers, in the order in which they are checked: name, methods of the selector, and the variables of rank and size.
    """

def _new_comm(backend: str, device: torch.device, name: str, options: CommOptions) -> TorchComm:
    """
    Implements new_comm(), with all arguments given.
    """

def _offer_stacks(
    signal: typing.SupportsInt | typing.SupportsIndex,
    descriptor: typing.SupportsInt | typing.SupportsIndex,
) -> None:
    """
    Notes in the event ring that `signal` makes this process write its stacks to `descriptor`.
    """

def _read_events() -> list:
    """
    list[dict]: the process's event ring, oldest first.
    """

def _record_process() -> str:
    """
    str: the file of this process's event ring, which it gets now if it has none yet; '' where there can be none.
    """

def _recorder_folders() -> list[str]:
    """
    list[str]: where processes of this environment put their event rings, the first that works; empty where they stay in memory.
    """

def _recorder_rooms() -> list:
    """
    list[dict]: for each folder of _recorder_folders(), what files of event rings take there, may take, and for how many more processes there is room.
    """

def _registered_backends() -> list[str]:
    """
    Names of the backends that are loaded, sorted.
    """

def _select_algorithm(
    operation: str,
    ranks: typing.SupportsInt | typing.SupportsIndex,
    bytes: typing.SupportsInt | typing.SupportsIndex,
    element_bytes: typing.SupportsInt | typing.SupportsIndex,
    local_size: typing.SupportsInt | typing.SupportsIndex,
    wire: str,
    cores: typing.SupportsInt | typing.SupportsIndex,
    tuning: str,
) -> dict:
    """
    dict: the choice of backend 'ctran': algorithm, chunk_bytes, why, estimate_us.
    """

def _set_backend_discovery(load_all: typing.Any) -> None:
    """
    Sets the function by which error texts find backends that are installed but not loaded.
    """

def _simulate_bootstrap(settings: dict) -> dict:
    """
    dict: the exchange of addresses at one size on the modelled network. `settings` as the fields of BootstrapRun, Network and Faults in src/sim. Raises ValueError.
    """

def _simulate_collective(operation: str, algorithm: str, settings: dict) -> dict:
    """
    dict: one algorithm at one size on the modelled network. `settings` as the fields of CollectiveRun, Network and Faults in src/sim. Raises ValueError.
    """

def _tuning_path() -> str:
    """
    Path of this machine's tuning file; '' without a home folder.
    """

def _tuning_text() -> str:
    """
    Text of this machine's tuning file; '' if there is none.
    """

def _tuning_word(name: str) -> str:
    """
    A GPU's model as tuning files spell it: 'nvidia-h200'.
    """

def get_mem_allocator(backend: str) -> _Allocator:
    """
    The allocator of a loaded backend, for torch.cuda.MemPool. Raises Unsupported if the backend has none.
    """

def register_backend(name: str, backend_class: typing.Any) -> None:
    """
    Makes `backend_class` available to new_comm under `name`.

    A new instance is created for each communicator. The first registration of a name wins; a later one logs a warning.
    Raises TypeError if `backend_class` is not callable; whether it creates a backend is checked when it is used.
    """

SendPostHookArgs = CollectivePostHookArgs
RecvPostHookArgs = CollectivePostHookArgs
BroadcastPostHookArgs = CollectivePostHookArgs
AllReducePostHookArgs = CollectivePostHookArgs
ReducePostHookArgs = CollectivePostHookArgs
AllGatherPostHookArgs = CollectivePostHookArgs
AllGatherVPostHookArgs = CollectivePostHookArgs
AllGatherSinglePostHookArgs = CollectivePostHookArgs
ReduceScatterPostHookArgs = CollectivePostHookArgs
ReduceScatterVPostHookArgs = CollectivePostHookArgs
ReduceScatterSinglePostHookArgs = CollectivePostHookArgs
AllToAllSinglePostHookArgs = CollectivePostHookArgs
AllToAllVSinglePostHookArgs = CollectivePostHookArgs
AllToAllPostHookArgs = CollectivePostHookArgs
BarrierPostHookArgs = CollectivePostHookArgs
ScatterPostHookArgs = CollectivePostHookArgs
GatherPostHookArgs = CollectivePostHookArgs
GatherSinglePostHookArgs = CollectivePostHookArgs
