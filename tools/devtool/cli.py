"""Arguments of `./dev`."""

from __future__ import annotations

import argparse
import re
import signal
import sys

from . import commands, site
from .paths import DEFAULT_TORCH, Workspace
from .shell import Failure, say

COMMANDS = {
    "setup": (
        commands.setup,
        "install what is missing: system packages, virtual environment, torch",
    ),
    "build": (
        commands.build,
        "set up, compile, and make the package importable in the environment",
    ),
    "demo": (commands.demo, "build, train a small network on 4 processes, print a benchmark table"),
    "docs": (commands.docs, "build the documentation site into build/site; a broken link fails"),
    "test": (
        commands.test,
        "build, documentation site, C++ tests, Python tests; further arguments go to pytest",
    ),
    "check": (commands.check, "formatters, linters, sanitizers, all tests including the slow ones"),
    "bench": (commands.bench, "build, then `torchcomms bench` with the further arguments"),
    "shell": (commands.shell, "a shell (or the command given) inside the environment"),
}
XCCL = (
    "instead: backend xccl on the CPU over Intel's oneCCL, which is downloaded from PyPI (455 MB) "
    "into build/oneccl the first time"
)
CHANGED = (
    "only the tests that the files changed since --since concern: C++ tests of their rooms and of "
    "the rooms above, Python tests by what they import, worlds of the backends that are above"
)
SERVE = "instead: serve the site on this machine, and rebuild it whenever a page changes"
PORT = f"of --serve (default {site.DEFAULT_PORT})"
TAKES_REST = {"test", "bench", "shell", "demo"}


def torch_version(text: str) -> str:
    if not re.fullmatch(r"\d+\.\d+\.\d+", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no release of torch; write 2.11.0, say")
    return text


def port(text: str) -> int:
    if not text.isdigit() or not 0 < int(text) <= site.MOST_PORT:
        raise argparse.ArgumentTypeError(f"{text!r} is no port; write 1 to {site.MOST_PORT}")
    return int(text)


def add_torch(parser: argparse.ArgumentParser, default: str) -> None:
    parser.add_argument(
        "--torch",
        type=torch_version,
        default=default,
        metavar="VERSION",
        help=f"torch to build against and run with (default {DEFAULT_TORCH}); another version "
        "has its own environment .venv-torchVERSION and build folder build/dev-torchVERSION",
    )


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="./dev",
        description="Every command does its own set-up and may be repeated; a second run starts "
        "in seconds.",
    )
    add_torch(parser, DEFAULT_TORCH)
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, (_, text) in COMMANDS.items():
        # bench and its like have options of their own, so only whole words are ours.
        sub = subparsers.add_parser(name, help=text, description=text, allow_abbrev=False)
        add_torch(sub, argparse.SUPPRESS)  # before the command or after it
        if name == "test":
            sub.add_argument("--xccl", action="store_true", help=XCCL)
            sub.add_argument("--changed", action="store_true", help=CHANGED)
            sub.add_argument(
                "--since",
                metavar="COMMIT",
                help="implies --changed; default: where the branch left origin/main, else HEAD",
            )
        if name == "docs":
            sub.add_argument("--serve", action="store_true", help=SERVE)
            sub.add_argument("--port", type=port, metavar="N", help=PORT)
    return parser


def main() -> int:
    parser = make_parser()
    args, rest = parser.parse_known_args()
    if rest and args.command not in TAKES_REST:
        parser.error(f"{args.command} takes no further arguments, got {' '.join(rest)}")
    is_changed = getattr(args, "changed", False) or getattr(args, "since", None) is not None
    if is_changed and args.xccl:
        parser.error("--xccl runs the spec suite as a whole, without --changed and --since")
    if getattr(args, "port", None) is not None and not args.serve:
        parser.error("--port is of --serve")
    # A terminated ./dev takes the program it runs with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        command = COMMANDS[args.command][0]
        if getattr(args, "xccl", False):
            command = commands.test_xccl
        elif is_changed:
            return commands.test_changed(Workspace(args.torch), rest, args.since)
        elif getattr(args, "serve", False):
            return site.serve(args.port or site.DEFAULT_PORT)
        return command(Workspace(args.torch), rest)
    except Failure as failure:
        say(str(failure))
        return 1
    except KeyboardInterrupt:
        say("interrupted")
        return 130


if __name__ == "__main__":
    sys.exit(main())
