"""Reads what C code keeps of an object, and runs nothing of the user's while doing so.

``isinstance`` asks ``__class__``, an attribute asks ``__getattribute__``, a type asks its metaclass, and a tensor its
``__torch_function__``. All of these may be the user's, raise, warn, or change something. The slots behind them are not.
"""

from __future__ import annotations

import gc
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

CO_OPTIMIZED = 1

_MRO = type.__dict__["__mro__"]
_NAME = type.__dict__["__name__"]
_QUALIFIED_NAME = type.__dict__["__qualname__"]
_MODULE = type.__dict__["__module__"]
_DICT = type.__dict__["__dict__"]
_MODULE_DICT: Any = vars(types.ModuleType)["__dict__"]


@contextmanager
def unwatched() -> Iterator[None]:
    """No torch function and no mode of the program sees what is asked of tensors here."""
    with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
        yield


def mro(kind: type) -> tuple[type, ...]:
    """The bases of a type, itself first."""
    found: tuple[type, ...] = _MRO.__get__(kind)
    return found


def derives(kind: type, *bases: type) -> bool:
    """Whether a type is, or derives from, one of ``bases``."""
    # By id: a metaclass may have a hash or an equality of its own.
    return not {id(base) for base in bases}.isdisjoint(map(id, _MRO.__get__(kind)))


def is_a(thing: object, *bases: type) -> bool:
    """Whether an object is an instance of one of ``bases``."""
    return derives(type(thing), *bases)


def is_exactly(thing: object, *kinds: type) -> bool:
    """Whether the type of an object is one of ``kinds`` itself."""
    kind = type(thing)
    return any(kind is other for other in kinds)


def type_name(kind: type) -> str:
    """The name of a type."""
    return str.__str__(_NAME.__get__(kind))


def qualified_name(kind: type) -> str:
    """The qualified name of a type."""
    return str.__str__(_QUALIFIED_NAME.__get__(kind))


def type_module(kind: type) -> str:
    """The name of the module of a type, empty when it has none."""
    try:
        module = _MODULE.__get__(kind)
    except AttributeError:  # made by code that has no __name__
        return ""
    return module if type(module) is str else ""


def type_dict(kind: type) -> types.MappingProxyType[str, Any]:
    """The namespace of a type."""
    namespace: types.MappingProxyType[str, Any] = _DICT.__get__(kind)
    return namespace


def module_dict(module: object) -> dict[str, Any]:
    """The namespace of a module; lazy ones stay unloaded."""
    namespace: dict[str, Any] = _MODULE_DICT.__get__(module)
    return namespace


def instance_dict(thing: object) -> dict[str, Any]:
    """The attribute dict of an object, empty when it has none; a property called ``__dict__`` is not run."""
    for kind in mro(type(thing)):
        found: Any = type_dict(kind).get("__dict__")
        if is_exactly(found, types.GetSetDescriptorType, types.MemberDescriptorType):
            try:
                namespace = found.__get__(thing)
            except (AttributeError, TypeError):
                return {}
            return namespace if type(namespace) is dict else {}
    return {}


def local_variables(frame: types.FrameType, listed: int = 0) -> dict[str, Any]:
    """The local variables of a function's frame, read without leaving a copy in it.

    Until Python 3.12, ``f_locals`` is a dict that the frame keeps, so a later ``del x`` would free nothing: it is
    emptied at once. The namespace of a module or class is no copy and belongs to the program.

    Args:
        frame: The frame.
        listed: References that the caller itself has to every object that gc tracks.

    """
    if not frame.f_code.co_flags & CO_OPTIMIZED:
        return {}
    namespace = frame.f_locals
    variables = dict(namespace)
    # Two references are ours and the frame's, the third is getrefcount's: any more, and the program holds the dict.
    if type(namespace) is dict and sys.getrefcount(namespace) <= 3 + (listed if gc.is_tracked(namespace) else 0):
        namespace.clear()
    return variables


def stack(frame: types.FrameType | None) -> Iterator[types.FrameType]:
    """A frame and those that called it."""
    while frame is not None:
        yield frame
        frame = frame.f_back


class TensorSlots:
    """The attributes of tensors as ``torch.Tensor`` itself gives them, whatever a subclass makes of them.

    To be used under ``unwatched()``.
    """

    requires_grad: Callable[[Any], Any] = staticmethod(torch._C.TensorBase.__dict__["requires_grad"].__get__)
    grad_fn: Callable[[Any], Any] = staticmethod(torch._C.TensorBase.__dict__["grad_fn"].__get__)
    is_leaf: Callable[[Any], Any] = staticmethod(torch._C.TensorBase.__dict__["is_leaf"].__get__)
    retains_grad: Callable[[Any], Any] = staticmethod(torch._C.TensorBase.__dict__["retains_grad"].__get__)
    grad: Callable[[Any], Any] = staticmethod(torch._C.TensorBase.__dict__["grad"].__get__)
    base: Callable[[Any], Any] = staticmethod(torch._C.TensorBase.__dict__["_base"].__get__)
    layout: Callable[[Any], Any] = staticmethod(torch._C.TensorBase.__dict__["layout"].__get__)
    device: Callable[[Any], Any] = staticmethod(torch._C.TensorBase.__dict__["device"].__get__)
    dtype: Callable[[Any], Any] = staticmethod(torch._C.TensorBase.__dict__["dtype"].__get__)
    shape: Callable[[Any], Any] = staticmethod(torch._C.TensorBase.__dict__["shape"].__get__)
    storage: Callable[[Any], Any] = staticmethod(torch._C.TensorBase.untyped_storage)
    uses: Callable[[Any], int] = staticmethod(vars(torch._C.TensorBase)["_use_count"])
    numel: Callable[[Any], int] = staticmethod(torch._C.TensorBase.numel)
    item_size: Callable[[Any], int] = staticmethod(torch._C.TensorBase.element_size)
