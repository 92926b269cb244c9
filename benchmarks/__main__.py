"""`python -m benchmarks all_reduce ...` is `torchcomms bench all_reduce ...`."""

import sys

from torchcomms_cli import main

sys.argv.insert(1, "bench")
main()
