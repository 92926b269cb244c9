"""`torchcomms events`: prints an example of the event ring."""

from __future__ import annotations

import json
import sys

import typer


def events(
    as_json: bool = typer.Option(False, "--json", help="Print the raw records as JSON lines."),
) -> None:
    """Run a few operations on the `fake` backend and print the events they left.

    Every process always keeps such a ring. In your own program, call
    torchcomms.events.print_table(), or set TORCHCOMM_EVENTS_PRINT=1 to print the ring at exit.
    """
    import torchcomms

    try:
        _show(as_json)
    except torchcomms.CommError as error:  # such as an environment variable with a wrong value
        print(f"torchcomms events: {error}", file=sys.stderr)
        raise typer.Exit(2) from None


def _show(as_json: bool) -> None:
    import torch
    import torchcomms
    from torchcomms import events as ring

    comm = torchcomms.new_comm("fake", torch.device("cpu"), name="demonstration")
    data = torch.ones(1024)
    comm.all_reduce(data, torchcomms.ReduceOp.SUM, False)
    comm.broadcast(data, 0, True).wait()
    comm.all_gather_single(torch.empty(1024), data, False)
    comm.barrier(False)
    comm.finalize()
    if as_json:
        for event in ring.read():
            print(json.dumps(event))
    else:
        ring.print_table()
