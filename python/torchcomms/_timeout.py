"""The timeout type that can pass through torch.compile."""

import datetime

from torchcomms._graph_metaclass import metaclass


class Timeout(datetime.timedelta, metaclass=metaclass()):  # type: ignore[metaclass]
    """A ``datetime.timedelta`` by another name, with the same constructor.

    It may be used wherever a timedelta may be used. It is not an error type: that is
    ``CommTimeout``.
    """
