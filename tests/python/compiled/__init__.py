"""Programs of functions that torch.compile takes: run by test_functional_compile.py, a rank each.

Compile support is on in them, which `import torchcomms` decides for a whole process.
"""

from tests.python.compiled import (
    arguments,
    eager,
    gradients,
    inductor,
    operations,
    operators,
    passes,
)
from tests.python.compiled.cases import ALONE, CASES, main

__all__ = [
    "ALONE",
    "CASES",
    "arguments",
    "eager",
    "gradients",
    "inductor",
    "main",
    "operations",
    "operators",
    "passes",
]
