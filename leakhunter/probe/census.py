"""Which objects, containers and storages live at one quiet point, without keeping any of them."""

from __future__ import annotations

import atexit
import collections
import gc
import itertools
import queue
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

Ints = npt.NDArray[np.int64]

# A heap of more objects than this is looked at in part, and the report says so.
MOST = 20_000_000

TYPE_MRO = type.__dict__["__mro__"]
CONTAINERS: tuple[tuple[type, Callable[[Any], int]], ...] = (
    (list, list.__len__),
    (dict, dict.__len__),
    (set, set.__len__),
    (collections.deque, collections.deque.__len__),
    (queue.SimpleQueue, queue.SimpleQueue.qsize),
)


@dataclass(frozen=True)
class Census:
    """Taken at the end of ``step``.

    ``ids`` are the sorted ``id()``s of all tracked objects; ``container_ids`` and ``lengths`` those of the containers
    among them and how many items each had; ``storages`` the addresses of storages with a Python tensor; ``counters``
    numbers that the interpreter and torch keep of things that can pile up.
    """

    step: int
    ids: Ints
    container_ids: Ints
    lengths: Ints
    storages: frozenset[int]
    counters: dict[str, int] = field(default_factory=dict)


def take(step: int) -> Census:
    """A census now. Costs about 150 ms for 200,000 objects."""
    objects: list[Any] = []
    with undisturbed():
        try:
            objects += tracked_objects()[0]
            return _count(step, objects)
        finally:
            # The list may contain what refers to it, such as this frame's own cells.
            objects.clear()


def _count(step: int, objects: list[Any]) -> Census:
    count = len(objects)
    ids = np.fromiter(map(id, objects), np.int64, count)
    kinds = np.fromiter(map(id, map(type, objects)), np.int64, count)
    by_kind = types_of(objects, kinds)
    tensors = np.flatnonzero(np.isin(kinds, _deriving(by_kind, torch.Tensor)))
    storages = frozenset([_storage_address(objects[node]) for node in tensors.tolist()])
    untracked = untracked_dicts(objects)
    container_ids = [np.fromiter(map(id, untracked), np.int64, len(untracked))]
    lengths = [np.fromiter(map(len, untracked), np.int64, len(untracked))]
    for kind, length in CONTAINERS:
        nodes = np.flatnonzero(np.isin(kinds, _deriving(by_kind, kind)))
        members = [objects[node] for node in nodes.tolist()]
        container_ids.append(ids[nodes])
        lengths.append(np.fromiter(map(length, members), np.int64, len(members)))
    containers, first = np.unique(np.concatenate(container_ids), return_index=True)
    return Census(step, np.sort(ids), containers, np.concatenate(lengths)[first], storages, counters())


def untracked_dicts(objects: list[Any]) -> list[dict[Any, Any]]:
    """Dicts that tracked objects refer to and gc does not list, because nothing in them can be part of a cycle."""
    referents = gc.get_referents(*objects)
    kinds = np.fromiter(map(id, map(type, referents)), np.int64, len(referents))
    dicts = [referents[position] for position in np.flatnonzero(kinds == id(dict)).tolist()]
    return [thing for thing in dicts if not gc.is_tracked(thing)]


@contextmanager
def undisturbed() -> Iterator[None]:
    """No automatic collection, and no change of thread but where a call lets go of the GIL."""
    collecting, interval = gc.isenabled(), sys.getswitchinterval()
    gc.disable()
    # A thread that asks for the GIL meanwhile waits this long before it insists, so not longer than one would notice.
    sys.setswitchinterval(1.0)
    try:
        yield
    finally:
        sys.setswitchinterval(interval)
        if collecting:
            gc.enable()


def counters() -> dict[str, int]:
    """Numbers of things that pile up where gc cannot see them."""
    found = {"atexit": atexit._ncallbacks(), "threads": threading.active_count(), "jit functions": 0}
    jit = sys.modules.get("torch.jit._state")
    unit = getattr(jit, "_python_cu", None)
    if unit is not None:
        found["jit functions"] = len(unit.get_functions())
    return found


def types_of(objects: list[Any], kinds: Ints) -> dict[int, type]:
    """The types that occur in ``objects``, by their ``id()``; ``kinds[i]`` is the id of the type of ``objects[i]``."""
    ids, first = np.unique(kinds, return_index=True)
    return {int(key): type(objects[node]) for key, node in zip(ids, first, strict=True)}


def _deriving(by_kind: dict[int, type], base: type) -> list[int]:
    # Types are asked, never objects: isinstance would run the __class__ properties of user code.
    return [key for key, kind in by_kind.items() if base in TYPE_MRO.__get__(kind)]


def _storage_address(tensor: torch.Tensor) -> int:
    try:
        with torch._C.DisableTorchFunctionSubclass():
            return tensor.untyped_storage()._cdata if tensor.layout is torch.strided else 0
    except (RuntimeError, NotImplementedError):
        return 0


def tracked_objects() -> tuple[list[Any], list[str]]:
    """Every object gc tracks, those that ``gc.freeze()`` hides included, and remarks where the list falls short."""
    objects = gc.get_objects()
    remarks = []
    if gc.get_freeze_count():
        objects = _unfreeze(objects)
        remarks.append(
            f"gc.freeze() hides {gc.get_freeze_count():,} objects from gc; they were found by walking"
        )
    if len(objects) > MOST:
        remarks.append(f"the heap has {len(objects):,} objects; only {MOST:,} were looked at")
        del objects[MOST:]
    return objects, remarks


def _unfreeze(objects: list[Any]) -> list[Any]:
    """``objects`` and all tracked objects reachable from them and from modules."""
    seen = set(map(id, objects))
    frontier: list[Any] = [*objects, *sys.modules.values()]
    found = list(objects)
    while frontier:
        following = []
        for thing in itertools.chain.from_iterable(map(gc.get_referents, frontier)):
            if id(thing) not in seen and gc.is_tracked(thing):
                seen.add(id(thing))
                following.append(thing)
        found += following
        frontier = following
    return found
