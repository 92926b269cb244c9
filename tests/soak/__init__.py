"""Tests of `torchcomms soak`: the plan, the checker, and short soaks of every backend."""
