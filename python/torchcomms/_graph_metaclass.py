"""The metaclass that torch.compile asks of classes whose objects stand in its graphs."""

import importlib
import sys
import types

_NAME = "torchcomms._opaque_meta"
_SOURCES = ("torch._custom_class_base", "torch._opaque_base")  # newest first


def place() -> None:
    """Makes the module `torchcomms._opaque_meta`, from which our classes take it.

    Only where compile support is on; without it the classes are plain. The native core calls this
    as well, for torch may import it on its own account, before the package is loaded.
    """
    from torchcomms.functional import is_torch_compile_supported_and_enabled

    if _NAME in sys.modules or not is_torch_compile_supported_and_enabled():
        return
    for source in _SOURCES:
        try:
            metaclass = importlib.import_module(source).OpaqueBaseMeta
        except (ImportError, AttributeError):
            continue
        module = types.ModuleType(_NAME, "The metaclass of classes that stand in graphs.")
        module.OpaqueBaseMeta = metaclass  # type: ignore[attr-defined]
        sys.modules[_NAME] = module
        return


def metaclass() -> type[type]:
    """The metaclass in place, or plain `type`."""
    module = sys.modules.get(_NAME)
    found: type[type] = type if module is None else module.OpaqueBaseMeta
    return found


def is_placed() -> bool:
    """Whether the native classes have it."""
    return _NAME in sys.modules
