"""Which objects, containers and storages live at one quiet point, without keeping any of them."""

from __future__ import annotations

import atexit
import collections
import gc
import itertools
import queue
import sys
import threading
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from leakhunter import slots
from leakhunter.origin import is_ours
from leakhunter.slots import TensorSlots

Ints = npt.NDArray[np.int64]

# A heap of more objects than this is looked at in part, and the report says so.
MOST = 20_000_000

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

    ``ids`` are the sorted ``id()``s of all tracked objects; ``container_ids``, ``lengths`` and ``ends`` those of the
    containers among them, how many items each had, and the ``id()``s of its first and last; ``storages`` the addresses
    of storages with a Python tensor; ``counters`` numbers that the interpreter and torch keep of things that can pile
    up.
    """

    step: int
    ids: Ints
    container_ids: Ints
    lengths: Ints
    ends: Ints
    storages: frozenset[int]
    counters: dict[str, int] = field(default_factory=dict)

    def lengths_of(self, ids: Ints) -> Ints:
        """How many items each container with one of these ``id()``s had, -1 where there was none."""
        place = np.minimum(np.searchsorted(self.container_ids, ids), len(self.container_ids) - 1)
        lengths: Ints = np.where(self.container_ids[place] == ids, self.lengths[place], -1)
        return lengths


def take(step: int) -> Census:
    """A census now. Costs about 150 ms for 200,000 objects."""
    objects: list[Any] = []
    with uncollected():
        try:
            objects += tracked_objects()[0]
            return _count(step, objects)
        finally:
            # The list may contain what refers to it, such as this frame's own cells.
            objects.clear()


class Marks:
    """Storages that lived at one quiet point, and ``lengths`` of the containers by their ``id()``.

    A weak reference to each storage keeps its address from being given to another, but not its memory.
    """

    def __init__(self, addresses: set[int], lengths: dict[int, int]) -> None:
        self._addresses = addresses
        self.lengths = lengths

    def living(self) -> frozenset[int]:
        """The addresses of those that still live."""
        return frozenset(address for address in self._addresses if not torch.UntypedStorage._expired(address))

    def release(self) -> None:
        """Let go of the weak references."""
        while self._addresses:
            torch.UntypedStorage._free_weak_ref(self._addresses.pop())


def mark(before: Census) -> Marks:
    """Mark what is new since a census: storages that have a Python tensor, and containers that are longer."""
    objects: list[Any] = []
    with uncollected():
        try:
            objects += tracked_objects()[0]
            kinds = np.fromiter(map(id, map(type, objects)), np.int64, len(objects))
            by_kind = types_of(objects, kinds)
            addresses: set[int] = set()
            for node in _tensors(kinds, by_kind):
                storage = _storage(objects[node])
                if storage is None or storage._cdata in before.storages:
                    continue
                if storage._cdata not in addresses:
                    addresses.add(storage._weak_ref())  # type: ignore[arg-type]
            return Marks(addresses, _longer(before, objects, kinds, by_kind))
        finally:
            objects.clear()


def _longer(before: Census, objects: list[Any], kinds: Ints, by_kind: dict[int, type]) -> dict[int, int]:
    """Lengths of the containers that have gained items since a census, by their ``id()``."""
    longer: dict[int, int] = {}
    for kind, length in CONTAINERS:
        members = [objects[node] for node in _instances(kinds, by_kind, kind)]
        ids = np.fromiter(map(id, members), np.int64, len(members))
        lengths = np.fromiter(map(length, members), np.int64, len(members))
        former = before.lengths_of(ids)
        gained = (former >= 0) & (lengths > former)
        longer.update(zip(ids[gained].tolist(), lengths[gained].tolist(), strict=True))
    return longer


def _tensors(kinds: Ints, by_kind: dict[int, type]) -> list[int]:
    return _instances(kinds, by_kind, torch.Tensor)


def _instances(kinds: Ints, by_kind: dict[int, type], base: type) -> list[int]:
    found: list[int] = np.flatnonzero(np.isin(kinds, _deriving(by_kind, base))).tolist()
    return found


def _count(step: int, objects: list[Any]) -> Census:
    count = len(objects)
    ids = np.fromiter(map(id, objects), np.int64, count)
    kinds = np.fromiter(map(id, map(type, objects)), np.int64, count)
    by_kind = types_of(objects, kinds)
    storages = [_storage(objects[node]) for node in _tensors(kinds, by_kind)]
    untracked = untracked_dicts(objects)
    groups: list[tuple[type, Callable[[Any], int], list[Any]]] = [(dict, dict.__len__, untracked)]
    for kind, length in CONTAINERS:
        groups.append((kind, length, [objects[node] for node in _instances(kinds, by_kind, kind)]))
    # At once: other threads may fill and empty containers whenever numpy lets go of the GIL.
    with uninterrupted():
        lengths = [np.fromiter(map(length, members), np.int64, len(members)) for _, length, members in groups]
        marks = [_ends_of_all(kind, members) for kind, _, members in groups]
    addresses = [np.fromiter(map(id, members), np.int64, len(members)) for _, _, members in groups]
    containers, first = np.unique(np.concatenate(addresses), return_index=True)
    return Census(
        step,
        np.sort(ids),
        containers,
        np.concatenate(lengths)[first],
        np.concatenate(marks)[first],
        frozenset(storage._cdata for storage in storages if storage is not None),
        counters(),
    )


def ends(kind: type, container: Any) -> tuple[int, int]:
    """``id()`` of the first and the last item of a container that keeps an order, zeros for others.

    A container that grows keeps one of them; another object at the same address has neither.
    """
    if kind is dict:
        for first in dict.keys(container):
            return id(first), id(next(reversed(dict.keys(container))))
    elif (kind is list or kind is collections.deque) and kind.__len__(container):
        last = kind.__len__(container) - 1
        return id(kind.__getitem__(container, 0)), id(kind.__getitem__(container, last))
    return 0, 0


def _ends_of_all(kind: type, members: list[Any]) -> Ints:
    """The ``ends`` of many containers at once, looked up in C."""
    found = np.zeros((len(members), 2), np.int64)
    if kind is not dict and kind is not list and kind is not collections.deque:
        return found
    lengths = list(map(kind.__len__, members))
    filled = list(itertools.compress(range(len(members)), lengths))
    things = [members[position] for position in filled]
    if kind is dict:
        firsts = map(next, map(iter, map(dict.keys, things)))
        lasts = map(next, map(reversed, map(dict.keys, things)))
    else:
        firsts = map(kind.__getitem__, things, itertools.repeat(0))
        lasts = map(kind.__getitem__, things, [lengths[position] - 1 for position in filled])
    pairs = list(map(id, firsts)), list(map(id, lasts))
    found[filled] = np.array(pairs, np.int64).T
    return found


def untracked_dicts(objects: list[Any]) -> list[dict[Any, Any]]:
    """Dicts that tracked objects refer to and gc does not list, because nothing in them can be part of a cycle."""
    referents = gc.get_referents(*walkable(objects))
    # Running frames are no objects to gc, and their variables no referents.
    referents += [value for variables in running_locals() for value in variables.values()]
    kinds = np.fromiter(map(id, map(type, referents)), np.int64, len(referents))
    dicts = [referents[position] for position in np.flatnonzero(kinds == id(dict)).tolist()]
    return [thing for thing in dicts if not gc.is_tracked(thing)]


def walkable(objects: list[Any]) -> list[Any]:
    """``objects`` with a tuple of its namespace in the place of every module.

    ``gc.get_referents`` of a module also runs the traversal of extension modules over their inner state. That of
    ``_asyncio`` in Python 3.12 hands out dead objects of a free list, which ruins the list.
    """
    type_ids = list(map(id, map(type, objects)))
    kinds = dict(zip(type_ids, map(type, objects), strict=True))
    modules = {key for key, kind in kinds.items() if slots.derives(kind, types.ModuleType)}
    walked = list(objects)
    for position in itertools.compress(range(len(objects)), map(modules.__contains__, type_ids)):
        walked[position] = (slots.module_dict(objects[position]),)
    return walked


def running_locals() -> Iterator[dict[str, Any]]:
    """The local variables of every running function that is not ours."""
    top = frame = None
    try:
        for top in sys._current_frames().values():
            for frame in slots.stack(top):
                if not is_ours(frame.f_code.co_filename):
                    yield slots.local_variables(frame, listed=1)
    finally:
        # One of them is a frame of ours: kept in its own variable, it would live until gc comes.
        del top, frame


@contextmanager
def uncollected() -> Iterator[None]:
    """No automatic collection."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


@contextmanager
def uninterrupted() -> Iterator[None]:
    """No change of thread, as long as nothing lets go of the GIL: then a busy thread would keep it for a second."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1.0)
    try:
        yield
    finally:
        # Microseconds are cut off, not rounded.
        sys.setswitchinterval(interval + 1e-7)


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
    return [key for key, kind in by_kind.items() if slots.derives(kind, base)]


def _storage(tensor: torch.Tensor) -> torch.UntypedStorage | None:
    """The storage of a tensor, None where it has none of its own."""
    try:
        with slots.unwatched():
            if TensorSlots.layout(tensor) is torch.strided:
                found: torch.UntypedStorage = TensorSlots.storage(tensor)
                return found
    except (RuntimeError, NotImplementedError):
        pass
    return None


def tracked_objects() -> tuple[list[Any], list[str]]:
    """Every object gc tracks, those that ``gc.freeze()`` hides included, and remarks where the list falls short."""
    objects = gc.get_objects()
    remarks = []
    # Python 3.12 freezes some objects of its own at start; the program has frozen its heap when this one is gone too.
    if gc.get_freeze_count() and not any(thing is sys.modules for thing in objects):
        objects = _unfreeze(objects)
        remarks.append(f"gc.freeze() hides {gc.get_freeze_count():,} objects from gc; they were found by walking")
    if len(objects) > MOST:
        remarks.append(f"the heap has {len(objects):,} objects; only {MOST:,} were looked at")
        del objects[MOST:]
    return objects, remarks


def _unfreeze(objects: list[Any]) -> list[Any]:
    """``objects`` and all tracked objects reachable from them and from modules."""
    found: list[Any] = []
    seen: set[int] = set()
    variables = [value for names in running_locals() for value in names.values()]
    for thing in itertools.chain(objects, [sys.modules], sys.modules.values(), variables):
        if id(thing) not in seen and gc.is_tracked(thing):
            seen.add(id(thing))
            found.append(thing)
    del variables
    frontier = list(found)
    seen.update(map(id, (found, seen, objects)))
    while frontier:
        # Our own lists are reachable too, through the frame that runs here, and there is a new one in every round.
        following: list[Any] = []
        seen.update((id(following), id(frontier)))
        for thing in itertools.chain.from_iterable(map(gc.get_referents, walkable(frontier))):
            if id(thing) not in seen and gc.is_tracked(thing):
                seen.add(id(thing))
                following.append(thing)
        found += following
        frontier = following
    return found
