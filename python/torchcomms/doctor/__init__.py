"""Is this machine ready? Looks at everything a communicator depends on, and proves it with one.

`torchcomms doctor` is the command over `examine()`.
"""

from __future__ import annotations

import time

from torchcomms.doctor import (
    backends,
    environment,
    gpus,
    libraries,
    machine,
    network,
    rendezvous,
    vendors,
    versions,
)
from torchcomms.doctor.exchange import Exchanges
from torchcomms.doctor.report import Finding, Report, Section
from torchcomms.doctor.text import to_text

__all__ = ["EXCHANGE_LIMIT_S", "Finding", "Report", "Section", "examine", "to_text"]

EXCHANGE_LIMIT_S = 60.0  # several Pythons import torch at once, on machines that do other work, too


def examine(limit_s: float = EXCHANGE_LIMIT_S) -> Report:
    """Looks at this process and its machine, and runs one all_reduce on every usable backend.

    Args:
        limit_s: seconds for those all_reduces, which run in processes of their own, in parallel.
    Raises nothing for what it finds: that is in the report. Takes a few seconds more than the
    slowest backend, most of it for starting Python.
    """
    start = time.monotonic()
    of_backends, usable = backends.look()
    exchanges = Exchanges(usable, limit_s)
    try:
        sections = [versions.look(), libraries.look(), vendors.look(), gpus.look(), of_backends]
        sections += [module.look() for module in (machine, network, rendezvous, environment)]
        sections.append(exchanges.finish())
    finally:
        exchanges.close()
    return Report(tuple(sections), time.monotonic() - start)
