"""Unions of the argument types that hooks receive, for annotations."""

from torchcomms import _comms

PreHookArgs = (
    _comms.SendPreHookArgs
    | _comms.RecvPreHookArgs
    | _comms.BroadcastPreHookArgs
    | _comms.AllReducePreHookArgs
    | _comms.ReducePreHookArgs
    | _comms.AllGatherPreHookArgs
    | _comms.AllGatherVPreHookArgs
    | _comms.AllGatherSinglePreHookArgs
    | _comms.ReduceScatterPreHookArgs
    | _comms.ReduceScatterVPreHookArgs
    | _comms.ReduceScatterSinglePreHookArgs
    | _comms.AllToAllSinglePreHookArgs
    | _comms.AllToAllVSinglePreHookArgs
    | _comms.AllToAllPreHookArgs
    | _comms.BarrierPreHookArgs
    | _comms.ScatterPreHookArgs
    | _comms.GatherPreHookArgs
    | _comms.GatherSinglePreHookArgs
    | _comms.SplitPreHookArgs
    | _comms.NewWindowPreHookArgs
    | _comms.BatchOpIssuePreHookArgs
    | _comms.FinalizePreHookArgs
)

PostHookArgs = (
    _comms.CollectivePostHookArgs
    | _comms.SplitPostHookArgs
    | _comms.NewWindowPostHookArgs
    | _comms.BatchOpIssuePostHookArgs
    | _comms.FinalizePostHookArgs
)
