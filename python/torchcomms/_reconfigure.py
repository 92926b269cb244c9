"""``TorchComm.reconfigure`` and the check of its arguments."""

import datetime
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet

from torchcomms._arguments import (
    require_hints,
    require_int64,
    require_limit,
    require_texts,
)
from torchcomms._comms import TorchComm, TorchWork

# Functions that reconfigure() calls afterwards with the communicator, whose members may be new.
after_change: list[Callable[[TorchComm], None]] = []


def reconfigure(
    self: TorchComm,
    uuid: int,
    init_handles: Sequence[str] | AbstractSet[str],
    timeout: datetime.timedelta | float | None = None,
    hints: dict[str, str] | None = None,
) -> TorchWork:
    """Connects exactly the members with these handles. All of these members call it. Blocks.

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
    number = require_int64("reconfigure", "uuid", uuid)
    handles = require_texts("reconfigure", "init_handles", init_handles)
    if timeout is not None:
        require_limit("reconfigure", timeout)
    if hints is not None:
        require_hints("reconfigure", hints)
    try:
        return self._reconfigure(number, handles, timeout, hints)
    finally:
        for callback in after_change:
            callback(self)
