"""Examines whether this machine is ready for torchcomms, and proves it with communicators.

`torchcomms doctor` is the command for `examine()`.
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

# Generous: several processes import torch at once, on machines with other work.
EXCHANGE_LIMIT_S = 60.0


def examine(limit_s: float = EXCHANGE_LIMIT_S) -> Report:
    """Examines this process and its machine, and runs one all_reduce on every usable backend.

    The call takes a few seconds more than the slowest backend, most of it for starting Python.

    Args:
        limit_s: timeout in seconds of these all_reduces, which run in other processes, in parallel.
    Returns:
        Report. Problems are findings of the report; they are not raised.
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
