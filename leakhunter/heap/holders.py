"""Who holds the most bytes now, whatever grew: for the moment in which memory is full."""

from __future__ import annotations

from collections.abc import Collection

from leakhunter.findings import Held
from leakhunter.heap import cycles, roots
from leakhunter.heap.graph import Heap
from leakhunter.heap.paths import Paths, generalise, write

# Storages put into words, the largest first: the rest is small change.
MOST_STORAGES = 500
UNREACHABLE = "nothing (a cycle that waits for gc, or that gc cannot free)"


def largest(heap: Heap, device: str = "", only: Collection[int] | None = None, most: int = 8) -> tuple[Held, ...]:
    """The holders of the most bytes, largest first.

    Args:
        heap: What lives.
        device: Where the bytes are, anywhere when empty.
        only: The addresses of the storages that are meant, all when None.
        most: How many holders are named.

    """
    foreign = ~heap.ours[heap.sources]
    held = cycles.settle_hooks(heap, roots.outside(heap), foreign)
    paths = Paths(heap, held)
    storages = [
        node
        for address, node in heap.storages.items()
        if device in ("", heap.objects[node].device) and (only is None or address in only)
    ]
    storages.sort(key=lambda node: -heap.objects[node].bytes)
    found: dict[str, tuple[int, int]] = {}
    for node in storages[:MOST_STORAGES]:
        path = paths.to(node)
        name = write(generalise(paths.links(path)).links) if path is not None else UNREACHABLE
        size, count = found.get(name, (0, 0))
        found[name] = size + heap.objects[node].bytes, count + 1
    ranked = sorted(found.items(), key=lambda item: -item[1][0])
    return tuple(Held(name, size, count) for name, (size, count) in ranked[:most])
