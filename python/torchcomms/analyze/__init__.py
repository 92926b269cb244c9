"""Which rank is behind, and in which operation: a verdict from the ranks' flight recorder dumps."""

from torchcomms.analyze.dump import AnalyzeError, Dump, read
from torchcomms.analyze.text import to_text
from torchcomms.analyze.verdict import Finding, Verdict, analyze

__all__ = ["AnalyzeError", "Dump", "Finding", "Verdict", "analyze", "read", "to_text"]
