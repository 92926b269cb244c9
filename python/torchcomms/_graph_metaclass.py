"""The metaclass that torch.compile requires of classes whose objects appear in its graphs."""

import importlib
import sys
import types

_NAME = "torchcomms._opaque_meta"
_SOURCES = ("torch._custom_class_base", "torch._opaque_base")  # newest first


def place() -> None:
    """Makes the module `torchcomms._opaque_meta`, from which our classes take their metaclass.

    Does nothing if compile support is off; the classes are plain then. The native core calls this
    function as well, because torch may import the core before the package.
    """
    from torchcomms.functional import is_torch_compile_supported_and_enabled

    if _NAME in sys.modules or not is_torch_compile_supported_and_enabled():
        return
    for source in _SOURCES:
        try:
            metaclass = importlib.import_module(source).OpaqueBaseMeta
        except (ImportError, AttributeError):
            continue
        module = types.ModuleType(_NAME, "The metaclass of classes that appear in graphs.")
        module.OpaqueBaseMeta = metaclass  # type: ignore[attr-defined]
        sys.modules[_NAME] = module
        return


def metaclass() -> type[type]:
    """The metaclass that place() found, or plain `type`."""
    module = sys.modules.get(_NAME)
    found: type[type] = type if module is None else module.OpaqueBaseMeta
    return found


def is_placed() -> bool:
    """Returns: whether place() has made the module, so that native classes have the metaclass."""
    return _NAME in sys.modules
