"""The flight recorder: when a CUDA device is out of memory, what was live and what grew, before the error goes on.

PyTorch calls its observers after it has given up and before it raises. They cannot be taken away again, so there is one
for the whole process, which does nothing while nobody watches.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch

from leakhunter.findings import OutOfMemory
from leakhunter.heap.breakdown import breakdown, with_remainder
from leakhunter.heap.graph import captured
from leakhunter.heap.holders import largest

# Programs that look for the largest batch that fits run out of memory on purpose, many times.
MOST_REPORTS = 3
# A request for this part of the device would not fit beside much.
LARGE = 0.25
# Growth of this part of the device since warm-up is what filled it.
GROWN = 0.25

_listeners: weakref.WeakSet[Any] = weakref.WeakSet()
_attached = False


def listen(listener: Any) -> None:
    """Call ``listener.out_of_memory(device, requested bytes, bytes allowed)`` from now on, as long as it lives."""
    global _attached
    attach = getattr(torch._C, "_cuda_attach_out_of_memory_observer", None)
    if attach is None:
        return
    if not _attached:
        try:
            attach(_observe)
        except RuntimeError:  # an allocator other than PyTorch's own has no observers
            return
        _attached = True
    _listeners.add(listener)


def _observe(device: int, requested: int, limit: int, _free: int) -> None:
    for listener in list(_listeners):
        listener.out_of_memory(f"cuda:{device}", requested, limit)


def record(device: str, requested: int, total: int, step: int, grown: float) -> OutOfMemory:
    """What is live on ``device`` now.

    Args:
        device: The device that is full, such as ``cuda:0``.
        requested: Bytes that were asked for.
        total: Bytes that this process may use there: those of the device, or the part it was allowed.
        step: The step that is running.
        grown: Bytes allocated there since the end of the warm-up.

    """
    index = int(device.rpartition(":")[2])
    free = torch.cuda.mem_get_info(index)[0]
    allocated, reserved = torch.cuda.memory_allocated(index), torch.cuda.memory_reserved(index)
    with captured() as heap:
        parts = breakdown(heap).get(device, {})
        holders = largest(heap, device)
    return OutOfMemory(
        device=device,
        step=step,
        requested=requested,
        total=total,
        free=free,
        allocated=allocated,
        reserved=reserved,
        grown=int(max(0.0, grown)),
        cause=cause(requested, total, grown, reserved - allocated),
        breakdown=with_remainder(parts, allocated),
        holders=holders,
    )


def cause(requested: int, total: int, grown: float, unused: int) -> str:
    """Why memory is full: ``leak``, ``fragmentation``, ``one large request`` or ``working set``."""
    if grown >= GROWN * total:
        return "leak"
    if unused >= 2 * requested and unused >= GROWN * total:
        return "fragmentation"
    return "one large request" if requested >= LARGE * total else "working set"
