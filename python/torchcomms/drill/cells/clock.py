"""F42: the wall clock jumps."""

from __future__ import annotations

import functools
import mmap
import os
import shutil
import struct
import subprocess
import time
from pathlib import Path

from torchcomms.drill.buffers import Shape
from torchcomms.drill.cell import OURS, Cell, Skip
from torchcomms.drill.scene import Scene

_DAY_S = 86400
_VARIABLE = "DRILL_CLOCK_FILE"  # read by the interposed library and by the program below

# Interposes all functions that read the wall clock: they add the seconds in a shared file.
_SOURCE = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
static volatile int64_t* shift;
__attribute__((constructor)) static void begin(void) {
  const char* path = getenv("DRILL_CLOCK_FILE");
  const int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
  if (file < 0) return;
  void* at = mmap(0, 4096, PROT_READ, MAP_SHARED, file, 0);
  if (at != MAP_FAILED) shift = at;
  close(file);
}
static int64_t moved(void) { return shift ? *shift : 0; }
int clock_gettime(clockid_t id, struct timespec* t) {
  const int result = (int)syscall(SYS_clock_gettime, id, t);
  if (result == 0 && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) t->tv_sec += moved();
  return result;
}
int gettimeofday(struct timeval* restrict t, void* restrict zone) {
  struct timespec now;
  (void)zone;
  if (clock_gettime(CLOCK_REALTIME, &now) != 0) return -1;
  t->tv_sec = now.tv_sec;
  t->tv_usec = now.tv_nsec / 1000;
  return 0;
}
/* Waits till a time of the wall clock, which the system's own does not share. */
int pthread_cond_timedwait(pthread_cond_t* condition, pthread_mutex_t* mutex,
                           const struct timespec* until) {
  static int (*next)(pthread_cond_t*, pthread_mutex_t*, const struct timespec*);
  if (!next) next = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
  if (!next) next = dlsym(RTLD_NEXT, "pthread_cond_timedwait");
  struct timespec own = *until;
  if (own.tv_sec > 1000000000) own.tv_sec -= moved(); /* else it is the monotonic clock's */
  return next(condition, mutex, &own);
}
time_t time(time_t* out) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (out) *out = now.tv_sec;
  return now.tv_sec;
}
"""


def moving_clock(folder: Path) -> dict[str, str]:
    """Builds the library that moves the wall clock. Returns the environment of the ranks."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise Skip("no C compiler to build the library that moves the clock")
    source, library, shared = folder / "clock.c", folder / "clock.so", folder / "clock"
    source.write_text(_SOURCE)
    shared.write_bytes(bytes(4096))
    command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        why = done.stderr.strip()[:200]
        raise Skip(f"the library that moves the clock does not compile: {why}")
    return {"LD_PRELOAD": str(library), _VARIABLE: str(shared)}


def move_clock(seconds: int) -> None:
    """Moves the wall clock of all processes that run with the library."""
    path = os.environ[_VARIABLE]
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 4096) as shared:
        shared[:8] = struct.pack("<q", seconds)


def jumps(scene: Scene, days: int) -> None:
    """The clock jumps while all ranks wait for rank 1. Timeouts must still last as long."""
    side = scene.comm(limit_s=30.0)
    scene.works(side)
    scene.meet("before")
    pending = side.start("all_reduce", Shape(1 << 14)) if scene.rank == 0 else None
    if scene.rank == 1:
        wall = time.time()
        move_clock(days * _DAY_S)
        jumped = time.time() - wall
        scene.check(abs(jumped - days * _DAY_S) < 3600, f"the clock jumped by {jumped:.0f} s")
        pending = side.start("all_reduce", Shape(1 << 14))
    assert pending is not None
    scene.right(pending)
    for op in ("all_reduce", "all_gather_single", "barrier"):
        scene.works(side, op)
    again = scene.comm()
    scene.works(again)
    scene.meet("silence")
    if scene.rank == 0:
        began = time.monotonic()
        scene.raises(
            lambda: again.start("all_reduce", async_op=False, limit_s=scene.limit_s),
            "CommTimeout", naming=[1], what="the operation without peers",
        )  # fmt: skip
        took = time.monotonic() - began
        inside = scene.limit_s * 0.95 <= took <= scene.limit_s + scene.role.slack
        scene.check(inside, f"a timeout of {scene.limit_s:g} s passed after {took:.2f} s")
    scene.meet("over")


CELLS = tuple(
    Cell(
        f"F42/{name}", f"the wall clock jumps by {days:+d} day while an operation waits",
        "no timeout passes early or late", functools.partial(jumps, days=days), ranks=2,
        backends=OURS, fresh=moving_clock, slow=True, hang_s=60.0,
    )
    for name, days in (("forward", 1), ("back", -1))
)  # fmt: skip
