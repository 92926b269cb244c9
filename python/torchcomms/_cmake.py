"""The folder in which CMake finds this package."""

from pathlib import Path


def cmake_prefix_path() -> str:
    """The folder for CMake's ``CMAKE_PREFIX_PATH``, so that ``find_package(torchcomms)`` succeeds.

    The CMake target ``torchcomms::torchcomms`` has the headers, this library, and the torch that
    the library runs with.
    """
    return str(Path(__file__).parent / "share" / "cmake")
