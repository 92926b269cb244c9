"""Importing the package: from either side, in any order, and when something is wrong with it."""

from __future__ import annotations

import os
import re
import shutil
import time
from pathlib import Path

import pytest
import torch
import torchcomms

from tests.harness.programs import python

PACKAGE = Path(torchcomms.__file__).parent


def test_it_has_a_version():
    assert re.fullmatch(r"\d+\.\d+\.\d+\S*", torchcomms.__version__)
    from importlib.metadata import version

    assert version("torchcomms") == torchcomms.__version__


@pytest.mark.parametrize(
    "first",
    [
        "import torchcomms",
        "import torch",
        "import torch.distributed",
        "import torchcomms._comms",
        "from torchcomms import new_comm",
        "from torchcomms import *",
    ],
)
def test_it_imports_first_or_after_torch(first):
    finished = python(
        f"""
        {first}
        import torchcomms, torch, torch.distributed
        comm = torchcomms.new_comm("fake", torch.device("cpu"), "n")
        comm.all_reduce(torch.ones(1), torchcomms.ReduceOp.SUM, False)
        assert torch.distributed.is_available()
        print("ok")
    """,
        flags=("-W", "error::ImportWarning"),
    ).expect_success()
    assert finished.out == "ok\n"
    assert finished.err == ""


def test_it_needs_nothing_of_the_half_loaded_distributed_module():
    """Torch imports us while that module is not finished; here it cannot even be imported."""
    python("""
        import sys, types
        import torch
        for name in [n for n in sys.modules if n.startswith("torch.distributed.distributed_c10d")]:
            del sys.modules[name]
        sys.modules["torch.distributed.distributed_c10d"] = types.ModuleType("half_loaded")
        import torchcomms
        comm = torchcomms.new_comm("fake", torch.device("cpu"), "n")
        comm.barrier(False)
    """).expect_success()


def test_importers_of_others_are_asked_for_every_module():
    """Also for the one at which we find torch whole: an importer may be alone in knowing it."""
    python(
        """
        import sys
        from importlib.machinery import PathFinder

        class Alone(PathFinder):
            asked = set()
            @classmethod
            def find_spec(cls, name, path=None, target=None):
                cls.asked.add(name)
                return super().find_spec(name, path, target)

        class Rest(PathFinder):
            @classmethod
            def find_spec(cls, name, path=None, target=None):
                assert name in Alone.asked, f"{name}: the importer before was not asked"

        sys.meta_path[sys.meta_path.index(PathFinder)] = Rest
        sys.meta_path.insert(0, Alone)
        import torch, torchcomms
        assert sys.meta_path[0] is Alone
        """,
        TORCHCOMMS_PATCH_FOR_COMPILE="1",
    ).expect_success()


def test_torch_sees_what_it_asks_for_or_goes_without_in_silence():
    """The import inside of torch.distributed never fails because of us."""
    finished = python("""
        import torch.distributed as dist
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        dist.barrier()
        dist.destroy_process_group()
        print("ok")
    """).expect_success()
    assert finished.out == "ok\n"
    assert "torchcomms" not in finished.err


def test_the_top_level_does_not_import_the_larger_packages():
    python("""
        import sys, torchcomms
        for name in ("device_mesh", "distwrap", "functional.collectives", "cli", "bench"):
            assert f"torchcomms.{name}" not in sys.modules, name
        for name in ("matplotlib", "rich", "typer", "numpy.testing"):
            assert name not in sys.modules, name
    """).expect_success()


def test_native_modules_load_and_the_library_stays_local():
    python("""
        import ctypes, torchcomms
        from torchcomms import _comms
        assert _comms.__file__.endswith(".so")
        everything = ctypes.CDLL(None)
        assert not hasattr(everything, "PyInit__comms"), "symbols are visible to everybody"
    """).expect_success()
    assert (PACKAGE / "libtorchcomms.so").exists()


def test_it_does_not_need_the_gil_where_python_can_do_without():
    python("""
        import sys, torchcomms
        enabled = getattr(sys, "_is_gil_enabled", lambda: None)()
        import sysconfig
        if sysconfig.get_config_var("Py_GIL_DISABLED"):
            assert enabled is False, "the import switched the GIL on"
    """).expect_success()


def test_importing_starts_no_thread_and_opens_no_descriptor():
    finished = python("""
        import os
        import torch, torch.distributed
        def state(): return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))
        before = state()
        import torchcomms
        assert state() == before, f"{before} -> {state()}"
    """)
    finished.expect_success()


def test_the_package_says_that_it_is_typed_and_carries_stubs():
    assert (PACKAGE / "py.typed").exists()
    assert (PACKAGE / "_comms" / "__init__.pyi").exists()


def test_the_package_is_an_ordinary_one_that_can_be_extended(tmp_path):
    """Directories put on its path become sub-packages."""
    added = tmp_path / "torchcomms_extra" / "added_package"
    added.mkdir(parents=True)
    (added / "__init__.py").write_text("value = 5\n")
    python(
        """
        import sys, torchcomms
        torchcomms.__path__.append(sys.argv[1])
        from torchcomms.added_package import value
        assert value == 5
    """,
        str(added.parent),
    ).expect_success()
    assert (PACKAGE / "__init__.py").exists()


@pytest.fixture
def copied_package(tmp_path):
    """A copy of the installed package that a program can be pointed at, to be damaged."""
    target = tmp_path / "site" / "torchcomms"
    shutil.copytree(PACKAGE, target, ignore=shutil.ignore_patterns("__pycache__"))
    return target


def run_copy(package, source):
    return python(f"""
        import sys
        sys.path.insert(0, {str(package.parent)!r})
        {source}
    """)


IMPORT_AND_TELL = """
        try:
            import torchcomms
        except ImportError as error:
            print(type(error).__name__, "|", error)
        else:
            raise SystemExit("imported from " + torchcomms.__file__)
"""


def test_the_copy_itself_imports(copied_package):
    """The control of the tests below: an undamaged copy works."""
    finished = run_copy(copied_package, "import torchcomms; print(torchcomms.__file__)")
    assert str(copied_package) in finished.expect_success().out


def native_module(package):
    (module,) = package.glob("_comms.*.so")
    return module


@pytest.mark.parametrize(
    "damage",
    [
        "no native module",
        "broken native module",
        "no library",
        "broken library",
        "no build information",
    ],
)
def test_a_broken_installation_is_an_import_error_and_nothing_else(copied_package, damage):
    victims = {
        "native": native_module(copied_package),
        "library": copied_package / "libtorchcomms.so",
        "build": copied_package / "_build_info.py",
    }
    victim = next(path for word, path in victims.items() if word in damage)
    if damage.startswith("no"):
        victim.unlink()
    else:
        victim.write_bytes(b"\x7fELF broken")
    finished = run_copy(copied_package, IMPORT_AND_TELL).expect_success()
    assert finished.out.split(" | ")[0] in ("ImportError", "ModuleNotFoundError")
    assert finished.err == ""


@pytest.mark.parametrize("damage", ["native", "minor"])
def test_torch_distributed_imports_beside_a_broken_installation(copied_package, damage):
    """Torch switches its use of us off on ImportError; any other exception would break torch."""
    if damage == "native":
        native_module(copied_package).write_bytes(b"\x7fELF broken")
    else:
        other_minor(copied_package)
    finished = run_copy(
        copied_package,
        """
        import warnings
        warnings.simplefilter("error")
        import torch.distributed as dist
        assert dist.is_available()
        print("ok")
    """,
    ).expect_success()
    assert finished.out == "ok\n"
    assert finished.err == ""


def other_minor(package):
    """Makes the copy believe that it was built for another torch."""
    info = package / "_build_info.py"
    text = info.read_text()
    major, minor = torch.__version__.split(".")[:2]
    assert f"{major}.{minor}" in text, text
    info.write_text(text.replace(f"{major}.{minor}", f"{major}.{int(minor) + 1}"))
    return f"{major}.{int(minor) + 1}"


def test_another_torch_minor_is_one_clear_sentence(copied_package):
    built_for = other_minor(copied_package)
    began = time.monotonic()
    finished = run_copy(copied_package, IMPORT_AND_TELL).expect_success()
    kind, message = finished.out.strip().split(" | ", 1)
    assert kind == "ImportError"
    assert "\n" not in message
    assert built_for in message, "the torch that it was built for"
    assert ".".join(torch.__version__.split(".")[:2]) in message, "the torch that is here"
    assert re.search("install|build", message), "what to do"
    assert time.monotonic() - began < 30


def test_asking_torch_to_use_a_broken_installation_gives_one_warning(copied_package):
    other_minor(copied_package)
    finished = python(
        f"""
        import sys
        sys.path.insert(0, {str(copied_package.parent)!r})
        import torch.distributed as dist
    """,
        TORCH_DISTRIBUTED_USE_TORCHCOMMS="1",
    ).expect_success()
    assert finished.err.count("RuntimeWarning") == 1, finished.err
    assert "torchcomms" in finished.err


def test_bytecode_and_environment_do_not_matter(tmp_path):
    """From another folder, without a home and without write access to anything."""
    environment = {"HOME": "/nonexistent", "PYTHONDONTWRITEBYTECODE": "1"}
    before = os.getcwd()
    os.chdir(tmp_path)
    try:
        python("import torchcomms", **environment).expect_success()
    finally:
        os.chdir(before)
    assert list(tmp_path.iterdir()) == []
