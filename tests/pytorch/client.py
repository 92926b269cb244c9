"""Runs the tests that come with torch, as they are, on one backend: one JSON line a test.

    python tests/pytorch/client.py --backend ctran --size 3 --match send_recv

torch chooses by the name of the backend which of its tests apply. They are chosen as for `--as`
(gloo, so that every backend runs the same ones), and the groups are made by `--backend`. Ranks are
forked, so that torch is imported once and not once a rank and test.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import re
import tempfile
import time
import unittest
from collections.abc import Iterator
from typing import Any

TESTS = "torch.testing._internal.distributed"
# Bodies that ask for the name itself, to know whether their tensors are on a GPU.
ASK_FOR_THE_NAME = re.compile("accumulate_gradients")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", default="gloo")
    parser.add_argument("--as", dest="chosen_as", default="gloo")
    parser.add_argument("--size", type=int, default=3)
    parser.add_argument("--match", default="", help="a regular expression; tests it is found in")
    parser.add_argument("--without", default="^$", help="the same, of tests to leave out")
    parser.add_argument("--limit-s", type=int, default=120, help="of one test")
    parser.add_argument("--rpc", action="store_true", help="instead those of DDP beside RPC")
    return parser.parse_args()


def forked(kind: type, backend: str, module: Any) -> type[unittest.TestCase]:
    """A class of torch's tests whose ranks are forked, and make their groups with `backend`."""
    import torch.distributed as dist
    import torch.multiprocessing

    class Forked(kind):
        def setUp(self) -> None:
            super().setUp()
            self._start_processes(torch.multiprocessing.get_context("fork").Process)

        @classmethod
        def _run(cls, rank: int, test_name: str, *others: Any, **named: Any) -> None:
            init = dist.init_process_group

            named_by_tests = {"gloo", os.environ["BACKEND"]}

            def init_with_ours(name: str, **how: Any) -> None:
                init(backend if name in named_by_tests else name, **how)

            dist.init_process_group = lambda backend, **how: init_with_ours(backend, **how)
            if not ASK_FOR_THE_NAME.search(test_name):
                module.BACKEND = backend
            super()._run(rank, test_name, *others, **named)

    return Forked


def kinds(args: argparse.Namespace, scratch: str) -> Iterator[type[unittest.TestCase]]:
    """torch's classes of tests, in the environment that its own runner makes."""
    os.environ.update(
        BACKEND=args.chosen_as,
        WORLD_SIZE=str(args.size),
        INIT_METHOD=f"file://{scratch}/meeting",
        DISTRIBUTED_TESTS_DEFAULT_TIMEOUT=str(args.limit_s),
    )
    if args.rpc:
        theirs = importlib.import_module(f"{TESTS}.ddp_under_dist_autograd_test")
        agent = importlib.import_module(f"{TESTS}.rpc.tensorpipe_rpc_agent_test_fixture")
        base = importlib.import_module("torch.testing._internal.common_distributed")
        for suite in (theirs.DdpUnderDistAutogradTest, theirs.DdpComparisonTest):
            bases = (suite, agent.TensorPipeRpcAgentTestFixture, base.MultiProcessTestCase)
            yield forked(type(suite.__name__, bases, {}), args.backend, theirs)
        return
    theirs = importlib.import_module(f"{TESTS}.distributed_test")
    for profiled in (
        theirs.PROFILING_SUPPORTED_BACKENDS,
        theirs.SEND_RECV_PROFILING_SUPPORTED_BACKENDS,
    ):
        if args.backend not in profiled:
            profiled.append(args.backend)
    bases = (theirs.TestDistBackend, theirs.DistributedTest._DistTestBase)
    yield forked(type("Distributed", bases, {}), args.backend, theirs)


class Lines(unittest.TestResult):
    """Writes what becomes of each test as it ends."""

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self.began = time.monotonic()

    def _write(self, test: unittest.TestCase, outcome: str, text: str = "") -> None:
        line = {
            "test": test._testMethodName,
            "outcome": outcome,
            "seconds": round(time.monotonic() - self.began, 2),
            "text": text,
        }
        print(json.dumps(line), file=LINES, flush=True)

    def addSuccess(self, test: unittest.TestCase) -> None:
        self._write(test, "passed")

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        self._write(test, "skipped", reason)

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:
        self._write(test, "failed", str(err[1]))

    addError = addFailure


def main() -> None:
    args = arguments()
    with tempfile.TemporaryDirectory() as scratch:
        tempfile.tempdir = scratch
        for kind in kinds(args, scratch):
            names = [
                name
                for name in unittest.TestLoader().getTestCaseNames(kind)
                if re.search(args.match, name) and not re.search(args.without, name)
            ]
            unittest.TestSuite(map(kind, names)).run(Lines())


if __name__ == "__main__":
    # What torch and the ranks print is no line of ours.
    LINES = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    main()
