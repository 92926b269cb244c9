"""
Direct access to vendor libraries, for torchcomms.doctor and torchcomms.bench.
"""

from __future__ import annotations
import typing

__all__: list[str] = ["Library", "RawCommunicator"]

class Library:
    """
    A vendor's communication library.
    """
    def __init__(self, backend: str) -> None:
        """
        Loads the library of a backend. Raises BackendUnavailable, which names what was searched.
        """
    def make_id(self) -> bytes:
        """
        The id with which all ranks connect to the rank that called this.
        """
    @property
    def how(self) -> str:
        """
        Why this file was loaded.
        """
    @property
    def on_host_memory(self) -> bool:
        """
        Whether it works on CPU tensors, as stand-ins for tests do.
        """
    @property
    def path(self) -> str: ...
    @property
    def version(self) -> str: ...

class RawCommunicator:
    """
    A communicator of the library without additions of torchcomms. It takes addresses and streams as integers, checks nothing, and keeps nothing alive.
    """
    class Collective:
        """
        Members:

          all_reduce

          all_gather_single

          reduce_scatter_single

          broadcast

          all_to_all_single
        """

        __members__: typing.ClassVar[dict[str, RawCommunicator.Collective]]
        all_gather_single: typing.ClassVar[RawCommunicator.Collective]
        all_reduce: typing.ClassVar[RawCommunicator.Collective]
        all_to_all_single: typing.ClassVar[RawCommunicator.Collective]
        broadcast: typing.ClassVar[RawCommunicator.Collective]
        reduce_scatter_single: typing.ClassVar[RawCommunicator.Collective]
        @typing.overload
        def __eq__(self, other: RawCommunicator.Collective) -> bool: ...
        @typing.overload
        def __eq__(self, other: typing.Any) -> bool: ...
        def __getstate__(self) -> int: ...
        def __hash__(self) -> int: ...
        def __index__(self) -> int: ...
        def __init__(self, value: typing.SupportsInt | typing.SupportsIndex) -> None: ...
        def __int__(self) -> int: ...
        @typing.overload
        def __ne__(self, other: RawCommunicator.Collective) -> bool: ...
        @typing.overload
        def __ne__(self, other: typing.Any) -> bool: ...
        def __repr__(self) -> str: ...
        def __setstate__(self, state: typing.SupportsInt | typing.SupportsIndex) -> None: ...
        def __str__(self) -> str: ...
        @property
        def name(self) -> str: ...
        @property
        def value(self) -> int: ...

    class Arguments:
        """
        The arguments of a call, created once for many calls.
        """
        def __init__(
            self,
            input: typing.SupportsInt | typing.SupportsIndex,
            output: typing.SupportsInt | typing.SupportsIndex,
            count: typing.SupportsInt | typing.SupportsIndex,
            dtype: str,
            stream: typing.SupportsInt | typing.SupportsIndex,
            root: typing.SupportsInt | typing.SupportsIndex = 0,
        ) -> None: ...

    def __init__(
        self,
        library: Library,
        size: typing.SupportsInt | typing.SupportsIndex,
        rank: typing.SupportsInt | typing.SupportsIndex,
        id: bytes,
    ) -> None:
        """
        Connects to the peer ranks, on the current device.
        """
    def close(self) -> None:
        """
        Closes the communicator. All operations must be done.
        """
    def enqueue(
        self, collective: RawCommunicator.Collective, arguments: RawCommunicator.Arguments
    ) -> None:
        """
        Calls the library once.
        """
    def enqueue_many(
        self,
        collective: RawCommunicator.Collective,
        arguments: RawCommunicator.Arguments,
        times: typing.SupportsInt | typing.SupportsIndex,
    ) -> float:
        """
        Calls the library `times` times from C++. Returns the microseconds of one call.
        """
