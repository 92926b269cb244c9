"""The timeout type that can pass through torch.compile."""

import datetime


class Timeout(datetime.timedelta):
    """A ``datetime.timedelta`` by another name, with the same constructor.

    Usable wherever a timedelta is. Not an error: that one is ``CommTimeout``.
    """
