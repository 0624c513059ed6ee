"""Page-locked host memory, as PyTorch's pinned-memory allocator counts it."""

from __future__ import annotations

import sys
from typing import Any

from leakhunter.meters import Meter, Quantity


def meters() -> tuple[list[Meter], list[str]]:
    """One meter, where CUDA is initialised and this version counts pinned memory."""
    torch = sys.modules["torch"]
    if not torch.cuda.is_initialized() or not hasattr(torch.cuda, "host_memory_stats"):
        return [], []

    def read() -> tuple[float, float]:
        stats = torch.cuda.host_memory_stats()
        return _first(stats, "active_bytes.current", "active_requests.current"), _first(
            stats, "allocated_bytes.current"
        )

    # Blocks given back stay with the allocator, so that only those in use are judged.
    quantities = (Quantity("pinned memory in use"), Quantity("pinned memory", judged=False))
    return [Meter(quantities, read)], []


def _first(stats: dict[str, Any], *names: str) -> float:
    return next((float(stats[name]) for name in names if name in stats), 0.0)
