"""Stores for programs that need one beside a communicator's own store."""

from torchcomms._comms import _create_prefix_store, _dup_prefix_store

__all__ = ["_create_prefix_store", "_dup_prefix_store"]
