"""Finds which rank a job waits for, and in which operation, from what the ranks recorded.

It reads the files of the always-on event rings, and flight recorder dumps.
"""

from torchcomms.analyze.dump import read, read_newest
from torchcomms.analyze.finding import Finding
from torchcomms.analyze.flight_recorder import to_flight_recorder, write_flight_recorder
from torchcomms.analyze.record import AnalyzeError, Dump, Making, Operation, Process
from torchcomms.analyze.stacks import stacks
from torchcomms.analyze.text import to_text
from torchcomms.analyze.timeline import to_timeline
from torchcomms.analyze.verdict import Verdict, analyze

__all__ = [
    "AnalyzeError",
    "Dump",
    "Finding",
    "Making",
    "Operation",
    "Process",
    "Verdict",
    "analyze",
    "read",
    "read_newest",
    "stacks",
    "to_flight_recorder",
    "to_text",
    "to_timeline",
    "write_flight_recorder",
]
