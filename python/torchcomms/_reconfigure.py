"""``TorchComm.reconfigure``: its arguments, told apart as those of split are."""

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

# Called with a communicator whose members may be others than before.
after_change: list[Callable[[TorchComm], None]] = []


def reconfigure(
    self: TorchComm,
    uuid: int,
    init_handles: Sequence[str] | AbstractSet[str],
    timeout: datetime.timedelta | float | None = None,
    hints: dict[str, str] | None = None,
) -> TorchWork:
    """Connects exactly the members with these handles. All of them call it. Blocks.

    Args:
        uuid: a number that none of them has used before, the same for all.
        init_handles: what get_init_handle() gave them: a list in the order of the new ranks, or a
            set, which all order alike.
        timeout: limit of the call; None: the communicator's own.
        hints: dict[str, str].
    Returns:
        TorchWork. What went wrong is raised by its wait(), and the communicator has no members
        then.
    Raises:
        InvalidArgument: a wrong call; nothing has changed.
        TypeError: an argument of another type; nothing has changed.
        Unsupported: without enable_reconfigure=True, and where the backend cannot.
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
        for tell in after_change:
            tell(self)
