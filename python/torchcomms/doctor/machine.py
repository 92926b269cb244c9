"""Checks the resources that ranks run out of first: shared memory, limits, memory, cores."""

from __future__ import annotations

import mmap
import os
import resource
from pathlib import Path
from typing import Any

from torchcomms import _comms
from torchcomms._table import human_bytes
from torchcomms.doctor.report import Section, facts

_MIB = 1 << 20
_SHM = Path("/dev/shm")
_PAIR_BYTES = 2 * _MIB  # slightly more than two ranks share


def look() -> Section:
    section = Section("machine", "Machine")
    _shared_memory(section)
    _links(section)
    _records(section)
    _limits(section)
    _memory(section)
    _cores(section)
    return section


def _shared_memory(section: Section) -> None:
    if not _SHM.is_dir():
        section.problem(
            str(_SHM), "does not exist", f"mount it: mount -t tmpfs -o size=1g tmpfs {_SHM}"
        )
        return
    state = os.statvfs(_SHM)
    size, free = state.f_blocks * state.f_frsize, state.f_bavail * state.f_frsize
    section.rows += facts(
        [
            ("/dev/shm size", human_bytes(size)),
            ("/dev/shm free", human_bytes(free)),
            ("/dev/shm writable", os.access(_SHM, os.W_OK)),
        ]
    )
    more = f"mount -o remount,size=1g {_SHM}; for a container: docker run --shm-size=1g"
    if not os.access(_SHM, os.W_OK):
        section.problem(str(_SHM), "this user has no write permission", f"chmod 1777 {_SHM}")
    elif free < 16 * _MIB:
        section.problem(str(_SHM), f"only {human_bytes(free)} of {human_bytes(size)} free", more)
    elif free < 256 * _MIB:
        section.warn(str(_SHM), f"only {human_bytes(free)} of {human_bytes(size)} free", more)
    else:
        section.ok(str(_SHM), f"{human_bytes(free)} free")


def _links(section: Section) -> None:
    """Checks whether two ranks of backend ctran can share memory."""
    try:
        with open(os.memfd_create("torchcomms-doctor"), "r+b") as file:
            os.ftruncate(file.fileno(), _PAIR_BYTES)
            mmap.mmap(file.fileno(), _PAIR_BYTES).close()
    except OSError as error:
        section.warn(
            "shared memory of ranks",
            f"memfd_create of {human_bytes(_PAIR_BYTES)} failed: {error.strerror}; ranks of "
            "backend ctran on this host use TCP",
            "ulimit -f unlimited; allow memfd_create in the container's policy (seccomp)",
        )


def _records(section: Section) -> None:
    """Reports where the event rings of ranks would be, and for how many ranks there is space."""
    rooms = _comms._recorder_rooms()
    section.rows += facts((f"records in {room['folder']}", _room(room)) for room in rooms)
    if not rooms:
        section.ok("records", "only in memory, because TORCHCOMM_RECORDER_DIR is off")
        return
    fitting = next((room for room in rooms if room["more_rings"] > 0), None)
    more = (
        f"enlarge {_SHM} (docker run --shm-size=1g), or name another folder with "
        "TORCHCOMM_RECORDER_DIR; `torchcomms trace` cannot show a rank whose record is in memory"
    )
    if fitting is None:
        reasons = "; ".join(f"{room['folder']}: {room['why_none']}" for room in rooms)
        section.warn("records", f"only in memory, and lost at the process's exit: {reasons}", more)
        return
    ranks = os.environ.get("LOCAL_WORLD_SIZE", "")
    wanted = int(ranks) if ranks.isdigit() else 1
    found = sum(room["more_rings"] for room in rooms)
    text = f"{fitting['folder']} has room for {fitting['more_rings']} more ranks"
    if found < wanted:
        few = f"{text}, but this host has {wanted}: the others keep their records in memory"
        section.warn("records", few, more)
    elif fitting is not rooms[0]:
        why = f"{rooms[0]['folder']}: {rooms[0]['why_none']}"
        section.ok("records", f"{text}; not in {why}")
    else:
        section.ok("records", text)


def _room(room: dict[str, Any]) -> str:
    taken = human_bytes(room["owned_bytes"] + room["left_bytes"])
    if not room["most_bytes"]:
        return str(room["why_none"])
    return (
        f"{taken} taken, at most {human_bytes(room['most_bytes'])}; "
        f"room for {room['more_rings']} more of {human_bytes(room['ring_bytes'])}"
    )


def _limits(section: Section) -> None:
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    processes, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    locked, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    sizes, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    section.rows += facts(
        [
            ("open files (nofile)", _limit(files)),
            ("processes (nproc)", _limit(processes)),
            ("locked memory (memlock)", _limit(locked, human_bytes)),
            ("file size (fsize)", _limit(sizes, human_bytes)),
        ]
    )
    if 0 <= files < 1024:
        text = f"the limit is {files}; a rank needs about one for each peer and communicator"
        fix = "ulimit -n 65536, or LimitNOFILE= of the service, or /etc/security/limits.conf"
        (section.problem if files < 256 else section.warn)("open files", text, fix)
    else:
        section.ok("open files", f"the limit is {_limit(files)}")
    if 0 <= processes < 512 and os.geteuid() != 0:  # the kernel does not apply it to root
        section.warn(
            "processes",
            f"the limit is {processes} for all processes and threads of this user",
            "ulimit -u 4096, or TasksMax= of the service",
        )
    if 0 <= sizes < 64 * _MIB:
        section.warn(
            "file size",
            f"the limit is {human_bytes(sizes)}: ranks of backend ctran share no larger memory, "
            "and use TCP",
            "ulimit -f unlimited, or LimitFSIZE=infinity of the service",
        )
    verbs = Path("/dev/infiniband")
    if verbs.is_dir() and any(verbs.iterdir()) and 0 <= locked < 1024 * _MIB:
        section.warn(
            "locked memory",
            f"the limit is {human_bytes(locked)}, but RDMA devices pin what they transfer",
            "ulimit -l unlimited, or LimitMEMLOCK=infinity of the service",
        )


def _limit(value: int, show: object = str) -> str:
    if value == resource.RLIM_INFINITY:
        return "unlimited"
    return human_bytes(value) if show is human_bytes else str(value)


def _memory(section: Section) -> None:
    lines = (line.split() for line in Path("/proc/meminfo").read_text().splitlines())
    kib = {fields[0].rstrip(":"): int(fields[1]) for fields in lines}
    total, available = kib["MemTotal"] << 10, kib["MemAvailable"] << 10
    section.rows += facts([("memory", human_bytes(total)), ("available", human_bytes(available))])
    limit = _control_group_limit()
    if limit is not None and limit < total:
        section.rows += facts([("memory limit of the control group", human_bytes(limit))])
        available = min(available, limit)
    if available < 1024 * _MIB:
        section.warn(
            "memory",
            f"{human_bytes(available)} available; a rank with torch needs about 400M",
            "end other programs, or raise the container's memory limit",
        )


def _control_group_limit() -> int | None:
    try:
        text = Path("/sys/fs/cgroup/memory.max").read_text().strip()
    except OSError:
        return None
    return None if text == "max" else int(text)


def _cores(section: Section) -> None:
    allowed = sorted(os.sched_getaffinity(0))
    section.rows += facts(
        [
            ("cores", os.cpu_count()),
            ("cores this process may use", f"{len(allowed)} ({_ranges(allowed)})"),
            ("load", " ".join(f"{value:.1f}" for value in os.getloadavg())),
        ]
    )
    ranks = os.environ.get("LOCAL_WORLD_SIZE", "")
    if ranks.isdigit() and int(ranks) > len(allowed):
        section.warn(
            "cores",
            f"{ranks} ranks of this host share {len(allowed)} cores (oversubscribed)",
            "start fewer ranks here, or widen the affinity (taskset, --cpus, cpuset)",
        )


def _ranges(numbers: list[int]) -> str:
    """Converts [0, 1, 2, 5] to "0-2,5"."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1][1:] = [number]
        else:
            parts.append([number])
    return ",".join("-".join(map(str, part)) for part in parts)
