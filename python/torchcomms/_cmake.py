"""Where CMake finds this package."""

from pathlib import Path


def cmake_prefix_path() -> str:
    """The folder for CMake's ``CMAKE_PREFIX_PATH``, so that ``find_package(torchcomms)`` succeeds.

    Its target ``torchcomms::torchcomms`` has the headers, this library and the torch it runs with.
    """
    return str(Path(__file__).parent / "share" / "cmake")
