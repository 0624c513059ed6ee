"""What PyTorch's CUDA allocator counts, for every device in use, and what the driver says beside it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

from leakhunter.meters import Meter, Quantity

# Every allocation is a multiple of this many bytes (kMinBlockSize of the caching allocator).
BLOCK = 512.0
# Dear, but what matters most where there is a GPU: read at every step.
ALLOCATOR_BUDGET = 60e-6


def meters() -> tuple[list[Meter], list[str]]:
    """Meters of each device that has allocated, none while CUDA is uninitialised: asking must not initialise it."""
    torch = sys.modules["torch"]
    if not torch.cuda.is_initialized():
        return [], []
    found, remarks = [], []
    for index in range(torch.cuda.device_count()):
        stats = _stats(torch, index)
        if stats is None:
            remarks.append(
                f"the CUDA allocator in use ({_backend(torch)}) keeps no counts: memory of cuda:{index} is not measured"
            )
        elif _current(stats, "reserved_bytes"):
            found += [_allocator(torch, index), _driver(torch, index)]
    return found, remarks


def _allocator(torch: Any, index: int) -> Meter:
    """Counters of the caching allocator. Only ``allocated`` is judged: the others follow it or are kept as cache."""
    name = f"cuda:{index}"
    quantities = (
        Quantity(f"{name} allocated", least=BLOCK),
        Quantity(f"{name} reserved", judged=False),
        Quantity(f"{name} active", judged=False),
        Quantity(f"{name} requested", judged=False),
        Quantity(f"{name} allocations", "blocks", judged=False),
        Quantity(f"{name} retries", "count", judged=False),
        Quantity(f"{name} out of memory", "count", judged=False),
    )

    def read() -> tuple[float, ...]:
        # The nested form costs a fifth of torch.cuda.memory_stats(), which flattens it.
        stats = torch.cuda.memory_stats_as_nested_dict(index)
        return (
            _current(stats, "allocated_bytes"),
            _current(stats, "reserved_bytes"),
            _current(stats, "active_bytes"),
            _current(stats, "requested_bytes"),
            _current(stats, "allocation"),
            stats.get("num_alloc_retries", 0),
            stats.get("num_ooms", 0),
        )

    return Meter(quantities, read, budget=ALLOCATOR_BUDGET)


def _driver(torch: Any, index: int) -> Meter:
    """Memory of the device that PyTorch did not reserve: contexts, NCCL, other processes. Shown, never judged."""

    def read() -> tuple[float]:
        free, total = torch.cuda.mem_get_info(index)
        reserved = _current(torch.cuda.memory_stats_as_nested_dict(index), "reserved_bytes")
        return (total - free - reserved,)

    return Meter((Quantity(f"cuda:{index} outside PyTorch", judged=False),), read, beat=16)


def _current(stats: Mapping[str, Any], name: str) -> float:
    """The current value of one statistic over all pools, 0 where this version does not know it."""
    value: float = stats.get(name, {}).get("all", {}).get("current", 0)
    return value


def _stats(torch: Any, index: int) -> Mapping[str, Any] | None:
    """The statistics of a device, None where the allocator keeps none."""
    try:
        stats: Mapping[str, Any] = torch.cuda.memory_stats_as_nested_dict(index)
    except RuntimeError:
        return None
    return stats


def _backend(torch: Any) -> str:
    ask: Callable[[], str] = getattr(torch.cuda, "get_allocator_backend", lambda: "unknown")
    return ask()
