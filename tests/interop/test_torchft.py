"""torchft on communicators: each replica makes one alone, and no store is passed."""

from __future__ import annotations

import importlib.util
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torchcomms

from tests.harness.environment import neutral_environment

EXAMPLE = Path(__file__).parents[2] / "examples" / "train_torchft.py"
LIMIT_S = 120.0

TORCHFT = importlib.util.find_spec("torchft")

pytestmark = [
    pytest.mark.skipif(TORCHFT is None, reason="torchft is not installed: pip install torchft"),
    pytest.mark.skipif(
        not torchcomms.is_backend_built("ctran"), reason="backend ctran is not part of this build"
    ),
]


@pytest.fixture
def lighthouse():
    from torchft.coordination import LighthouseServer

    server = LighthouseServer(bind="[::]:0", min_replicas=2)
    yield server.address()
    server.shutdown()


class Replica:
    """A run of the example; its output is read when it has ended."""

    def __init__(self, number: int, lighthouse: str, folder: Path, **variables: str) -> None:
        self._err = folder / f"replica_{number}_{len(list(folder.iterdir()))}"
        place = str(Path(TORCHFT.submodule_search_locations[0]).parent)
        environment = neutral_environment(
            PYTHONPATH=place, TORCHFT_LIGHTHOUSE=lighthouse, REPLICA=str(number), **variables
        )
        with self._err.open("w") as err:
            self.process = subprocess.Popen(
                [sys.executable, str(EXAMPLE)],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=err,
                text=True,
            )

    def end(self, code: int) -> list[str]:
        """The lines that it has printed, when it has ended with that code."""
        out, _ = self.process.communicate(timeout=LIMIT_S)
        assert self.process.returncode == code, f"{out}\n{self._err.read_text()}"
        return out.splitlines()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def test_a_replica_that_was_killed_comes_back_to_equal_parameters(lighthouse, tmp_path):
    replicas = [Replica(0, lighthouse, tmp_path)]
    try:
        replicas.append(Replica(1, lighthouse, tmp_path, DIES_AT_STEP="3"))
        died = replicas[1].end(-signal.SIGKILL)
        assert died[-1] == "replica 1: step 3 of 8", died
        replicas.append(Replica(1, lighthouse, tmp_path))
        back, stayed = replicas[2].end(0), replicas[0].end(0)
    finally:
        for replica in replicas:
            replica.kill()
    print("\n".join(["stayed:", *stayed, "died:", *died, "came back:", *back]))
    assert back[0] != "replica 1: step 1 of 8", "it began anew"
    (one, hash_of_one), (other, hash_of_other) = (
        lines[-1].split(": parameters ") for lines in (stayed, back)
    )
    assert (one, other) == ("replica 0 of 2", "replica 1 of 2")
    assert hash_of_one == hash_of_other
