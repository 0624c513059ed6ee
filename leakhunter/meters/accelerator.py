"""Accelerators other than CUDA (XPU, MPS, MTIA, ...), by the functions that their own torch module offers."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from leakhunter.meters import Meter, Quantity

# Names under which modules tell bytes in use and bytes held in reserve, the exact one first.
IN_USE = ("memory_allocated", "current_allocated_memory")
RESERVED = ("memory_reserved", "driver_allocated_memory")


def meters() -> tuple[list[Meter], list[str]]:
    """A meter for each device of the accelerator in use, none where there is none or it is not initialised."""
    torch = sys.modules["torch"]
    kind = _kind(torch)
    module = getattr(torch, kind, None)
    if not kind or kind == "cuda" or module is None or not _is_initialised(module):
        return [], []
    in_use = _function(module, IN_USE)
    if in_use is None:
        return [], [f"torch.{kind} does not say how many bytes are in use: its memory is not measured"]
    reserved = _function(module, RESERVED)
    count = getattr(module, "device_count", lambda: 1)()
    return [_meter(f"{kind}:{index}", index, in_use, reserved) for index in range(count)], []


def _meter(name: str, index: int, in_use: Callable[..., Any], reserved: Callable[..., Any] | None) -> Meter:
    quantities = [Quantity(f"{name} allocated", least=512.0)]
    readers = [_bound(in_use, index)]
    if reserved is not None:
        quantities.append(Quantity(f"{name} reserved", judged=False))
        readers.append(_bound(reserved, index))

    def read() -> tuple[float, ...]:
        return tuple(float(reader()) for reader in readers)

    return Meter(tuple(quantities), read)


def _bound(reader: Callable[..., Any], index: int) -> Callable[[], Any]:
    """A reader of one device. MPS has a single one and takes no index, which is found out here, not at every step."""
    try:
        reader(index)
    except TypeError:
        return reader
    return functools.partial(reader, index)


def _function(module: Any, names: tuple[str, ...]) -> Callable[..., Any] | None:
    return next((getattr(module, name) for name in names if hasattr(module, name)), None)


def _kind(torch: Any) -> str:
    """The type of the current accelerator, empty without one; asked without initialising it."""
    accelerator = getattr(torch, "accelerator", None)
    if accelerator is None:
        return next((kind for kind in ("xpu", "mps") if _is_available(getattr(torch, kind, None))), "")
    current = accelerator.current_accelerator()
    return str(current.type) if current is not None else ""


def _is_available(module: Any) -> bool:
    return bool(getattr(module, "is_available", lambda: False)())


def _is_initialised(module: Any) -> bool:
    # A module without the question (MPS) has nothing that asking for counts would start.
    return bool(getattr(module, "is_initialized", lambda: True)())
