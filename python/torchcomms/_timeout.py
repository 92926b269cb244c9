"""The timeout type that can pass through torch.compile."""

import datetime

from torchcomms._graph_metaclass import metaclass


class Timeout(datetime.timedelta, metaclass=metaclass()):  # type: ignore[metaclass]
    """A ``datetime.timedelta`` by another name, with the same constructor.

    Usable wherever a timedelta is. Not an error: that one is ``CommTimeout``.
    """
