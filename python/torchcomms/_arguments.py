"""Checks of arguments, and one wording of the errors for arguments of the wrong type."""

import datetime
import operator
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from typing import Any

from torchcomms._comms import InvalidArgument

# The checks below refuse integers that do not fit the C++ type. Native code checks the rest.
_INT32_END, _INT64_END = 2**31, 2**63
MOST_SECONDS = 1e9  # the longest timeout; native code treats larger values as this one
# The `torchcomms` commands accept waits of at most one day, and this many ranks on one machine.
# poll(), with its 32-bit milliseconds, could express several days.
MOST_SECONDS_HERE, MOST_RANKS_HERE = 86400.0, 1024
LIMIT = "datetime.timedelta, float seconds or None"


def wrong_type(function: str, argument: str, expected: str, value: object) -> TypeError:
    """The TypeError that names the function, the argument, the allowed type and the type seen."""
    seen = f"int {value}" if type(value) is int else type(value).__name__
    return TypeError(f"{function}(): argument '{argument}' must be {expected}, not {seen}")


def require_hints(function: str, hints: Any) -> dict[str, str]:  # noqa: ANN401
    """Checks that `hints` is a dict with str keys and str values.

    Returns: `hints`.
    Raises: TypeError that names the key.
    """
    if not isinstance(hints, dict):
        raise wrong_type(function, "hints", "dict[str, str] or None", hints)
    for key, value in hints.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise wrong_type(function, f"hints[{key!r}]", "str, with a str as key", value)
    return hints


def require_limit(
    function: str,
    limit: Any,  # noqa: ANN401
    least_seconds: float = -MOST_SECONDS,
) -> datetime.timedelta | float:
    """Checks a timeout that the caller gave.

    Args:
        least_seconds: the smallest allowed value. The default admits all negative values, because
            the function itself decides whether a timeout may be negative or zero.

    Returns: `limit`.
    Raises: TypeError for another type; InvalidArgument for a NaN or a value below `least_seconds`.
    """
    if not isinstance(limit, datetime.timedelta | float):
        raise wrong_type(function, "timeout", LIMIT, limit)
    seconds = limit.total_seconds() if isinstance(limit, datetime.timedelta) else limit
    if not seconds >= least_seconds:  # refuses a NaN too
        raise InvalidArgument(f"{function}: timeout is {limit!r}; allowed is 0 or more")
    return limit


def require_int64(function: str, argument: str, value: Any) -> int:  # noqa: ANN401
    """Converts an integer that fits 64 bits, signed. Raises TypeError."""
    try:
        number = operator.index(value)
    except TypeError:
        raise wrong_type(function, argument, "int", value) from None
    if not -_INT64_END <= number < _INT64_END:
        raise wrong_type(function, argument, "int of 64 bits", number)
    return number


def require_texts(
    function: str,
    argument: str,
    texts: Any,  # noqa: ANN401
) -> list[str] | set[str]:
    """Checks a sequence or a set of str.

    Returns: a list in the order given, or a set.
    Raises: TypeError that names the element that is not a str.
    """
    allowed = "list[str] or set[str]"
    if isinstance(texts, str | bytes) or not isinstance(texts, Iterable):
        raise wrong_type(function, argument, allowed, texts)
    if isinstance(texts, AbstractSet):
        for text in texts:
            if not isinstance(text, str):
                raise wrong_type(function, argument, allowed, text)
        return set(texts)
    found = list(texts)
    for place, text in enumerate(found):
        if not isinstance(text, str):
            raise wrong_type(function, f"{argument}[{place}]", "str", text)
    return found


def require_ranks(
    function: str,
    argument: str,
    ranks: Any,  # noqa: ANN401
    size: Callable[[], int],
) -> list[int]:
    """Converts a list of rank indices to ints.

    Args:
        size: returns the number of ranks. It is called only for an error text, so that a closed
            communicator raises the error of the function itself.

    Raises: TypeError that names the element that is not an int.
    """

    def allowed(what: str) -> str:
        return f"{what} from 0 to {size() - 1}"

    if isinstance(ranks, str) or not isinstance(ranks, Iterable):
        raise wrong_type(function, argument, allowed("list[int] of ranks"), ranks)
    found: list[int] = []
    for rank in ranks:
        place = f"{argument}[{len(found)}]"
        try:
            index = operator.index(rank)
        except TypeError:
            raise wrong_type(function, place, allowed("int"), rank) from None
        if abs(index) >= _INT32_END:
            raise wrong_type(function, place, allowed("int"), index)
        found.append(index)
    return found


def require_groups(
    function: str,
    argument: str,
    groups: Any,  # noqa: ANN401
    size: Callable[[], int],
) -> list[list[int]]:
    """Converts a list of rank lists to lists of ints. Raises TypeError."""
    if isinstance(groups, str) or not isinstance(groups, Iterable):
        raise wrong_type(function, argument, "list[list[int]]", groups)
    return [require_ranks(function, argument, group, size) for group in groups]
