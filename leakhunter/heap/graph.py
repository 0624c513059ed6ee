"""Capture of the heap as arrays: every object that gc tracks, and what gc cannot see beside it.

Node ``i`` of the graph is ``heap.objects[i]``. The first ``heap.tracked`` nodes are the objects gc lists; after them
come autograd nodes, tensors that live in C++ only, storages, arrays, and frames. While a capture is open it holds
every object, so it is closed as soon as what was seen has been put into words.
"""

from __future__ import annotations

import array
import bisect
import functools
import gc
import itertools
import operator
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from leakhunter import slots
from leakhunter.origin import is_ours
from leakhunter.probe.census import CONTAINERS, tracked_objects, types_of, uncollected, uninterrupted, walkable

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

CHUNK = 65_536
# Strings and byte strings below this many bytes are not worth a node.
SMALL = 1024


@dataclass(frozen=True)
class Storage:
    """Memory of one or more tensors.

    ``address`` is that of its StorageImpl, ``data`` that of the memory itself, ``bytes`` its size on ``device``.
    """

    address: int
    bytes: int
    device: str
    data: int = 0


@dataclass
class Heap:
    """One capture. ``sources[k] -> targets[k]`` are the references, ``labels`` names those that no object shows."""

    objects: list[Any]
    tracked: int
    # id() of each tracked object's type: the types themselves would be counted as held by this capture
    type_ids: Ints
    # items of each tracked container, -1 for anything else
    lengths: Ints
    sources: Ints
    targets: Ints
    external: Ints
    ours: Bools
    labels: dict[tuple[int, int], str] = field(default_factory=dict)
    # autograd node -> its sequence number, which dates it; leaves have none
    sequence: dict[int, int] = field(default_factory=dict)
    storages: dict[int, int] = field(default_factory=dict)
    frames: dict[int, types.FrameType] = field(default_factory=dict)
    # references held by C++ that the graph shows, per node; what is left of ``external`` comes from outside
    explained: dict[int, int] = field(default_factory=dict)
    # hooks that unpack what nodes saved -> how many saved values each unpacks
    unpack_hooks: dict[int, int] = field(default_factory=dict)
    # id() of a type -> how well a reader knows objects of it, as far as was asked
    ranks: dict[int, int] = field(default_factory=dict)
    # edges that gc itself does not follow start at this position in ``sources``
    hidden_from: int = 0
    remarks: list[str] = field(default_factory=list)
    _index: Any = None
    # the first tracked object of each type
    _first: Ints | None = None
    _extra: dict[int, int] = field(default_factory=dict)
    _new_edges: list[tuple[int, int]] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Number of nodes."""
        return len(self.objects)

    def find(self, thing: object) -> int:
        """The node of an object, -1 when it is none."""
        return self.find_id(id(thing))

    def find_id(self, address: int) -> int:
        """The node of the object with this ``id()``, -1 when there is none."""
        extra = self._extra.get(address)
        if extra is not None:
            return extra
        ids, order = self._index
        position = int(np.searchsorted(ids, address))
        if position < len(ids) and ids[position] == address:
            return int(order[position])
        return -1

    def length(self, node: int) -> int:
        """Items in a container at the moment of the capture, -1 for anything else."""
        if node < self.tracked:
            return int(self.lengths[node])
        thing = self.objects[node]
        return len(thing) if type(thing) is dict else -1

    def add(self, thing: object) -> int:
        """The node of ``thing``, made when there is none."""
        node = self.find(thing)
        if node < 0:
            node = len(self.objects)
            self.objects.append(thing)
            self._extra[id(thing)] = node
        return node

    def add_storage(self, storage: Storage) -> int:
        """The node of a storage; one with the same address is the same storage."""
        node = self.storages.get(storage.address)
        if node is None:
            node = self.storages[storage.address] = self.add(storage)
        return node

    def link(self, source: int, target: int, label: str) -> None:
        """Add a reference that gc does not show."""
        self._new_edges.append((source, target))
        self.labels.setdefault((source, target), label)

    def remark(self, text: str) -> None:
        """Something the reader must know of this capture, said once."""
        if text not in self.remarks:
            self.remarks.append(text)

    def explain(self, node: int) -> None:
        """One reference to ``node`` that C code holds is an edge of this graph."""
        self.explained[node] = self.explained.get(node, 0) + 1

    def seal(self) -> None:
        """Put the references added since the last time into the arrays."""
        grown = self.size - len(self.external)
        self.external = np.concatenate([self.external, np.zeros(grown, np.int64)])
        self.ours = np.concatenate([self.ours, np.zeros(grown, bool)])
        if self._new_edges:
            new = np.array(self._new_edges, np.int64)
            self.sources = np.concatenate([self.sources, new[:, 0]])
            self.targets = np.concatenate([self.targets, new[:, 1]])
            self._new_edges.clear()

    def types(self) -> dict[int, type]:
        """The type of every tracked object, by its id()."""
        if self._first is None:
            # Positions, not the types, which the capture must not keep.
            self._first = np.unique(self.type_ids, return_index=True)[1]
        return types_of([self.objects[node] for node in self._first.tolist()], self.type_ids[self._first])

    def tracked_nodes(self, *kinds: type) -> list[int]:
        """Tracked nodes whose type is one of ``kinds`` or derives from one."""
        wanted = [
            key for key, kind in self.types().items() if slots.derives(kind, *kinds)
        ]
        nodes: list[int] = np.flatnonzero(np.isin(self.type_ids, wanted)).tolist()
        return nodes

    def close(self) -> None:
        """Let go of every object."""
        self.objects.clear()
        self.frames.clear()
        self._extra.clear()


@contextmanager
def captured() -> Iterator[Heap]:
    """A capture of the heap, with the autograd graph and the running frames, that is let go of at the end."""
    from leakhunter.heap import autograd, roots

    with uncollected():
        heap = _capture()
        try:
            heap.hidden_from = len(heap.sources)
            autograd.expand(heap)
            roots.add_frames(heap)
            heap.seal()
            yield heap
        finally:
            heap.close()


def _capture() -> Heap:
    with uninterrupted():
        objects, remarks, snapshot = _atomic()
    count = len(objects)
    order = np.argsort(snapshot.ids, kind="stable")
    heap = Heap(
        objects=objects,
        tracked=count,
        type_ids=snapshot.type_ids,
        lengths=snapshot.lengths,
        sources=np.zeros(0, np.int64),
        targets=np.zeros(0, np.int64),
        external=np.zeros(0, np.int64),
        ours=np.zeros(0, bool),
        remarks=remarks,
        _index=(snapshot.ids[order], order),
    )
    _connect(heap, snapshot)
    heap.ours = np.zeros(heap.size, bool)
    _mark_ours(heap)
    foreign = ~heap.ours[heap.sources]
    inside = np.bincount(heap.targets[foreign], minlength=heap.size)
    # The yardstick has two references, the list of objects and a variable there; every other object has the list's.
    references = snapshot.references - (snapshot.references[-1] - 1)
    heap.external = np.zeros(heap.size, np.int64)
    heap.external[:count] = np.maximum(references - inside[:count], 0)
    return heap


def _atomic() -> tuple[list[Any], list[str], _Snapshot]:
    """All objects and what they were at one moment: nothing here lets go of the GIL, as most of numpy would."""
    objects, remarks = tracked_objects()
    # Its references are known, so the count that getrefcount adds to all of them can be read off it.
    yardstick: list[Any] = []
    objects.append(yardstick)
    return objects, remarks, _snapshot(objects)


@dataclass
class _Snapshot:
    """What the objects were at one moment: everything as numbers but the few ``leaves``."""

    ids: Ints
    type_ids: Ints
    references: Ints
    lengths: Ints
    # for each object how many referents it has, and the ids of all referents in that order
    degrees: list[Ints] = field(default_factory=list)
    referents: list[Ints] = field(default_factory=list)
    # (source, referent): large or container-like things that gc does not track
    leaves: list[tuple[int, Any]] = field(default_factory=list)


def _snapshot(objects: list[Any]) -> _Snapshot:
    # All in C, not only for its speed: in Python code, threads may change.
    count = len(objects)
    type_ids = np.fromiter(map(id, map(type, objects)), np.int64, count)
    snapshot = _Snapshot(
        np.fromiter(map(id, objects), np.int64, count),
        type_ids,
        np.fromiter(map(sys.getrefcount, objects), np.int64, count),
        _lengths(objects, type_ids.tolist()),
    )
    for start in range(0, count, CHUNK):
        referents = list(map(gc.get_referents, walkable(objects[start : start + CHUNK])))
        degrees = list(map(len, referents))
        flat = list(itertools.chain.from_iterable(referents))
        snapshot.degrees.append(np.array(degrees, np.int64))
        snapshot.referents.append(np.fromiter(map(id, flat), np.int64, len(flat)))
        snapshot.leaves += _leaves(flat, [start, *itertools.accumulate(degrees)], start)
    return snapshot


def _lengths(objects: list[Any], type_ids: list[int]) -> Ints:
    """Items of each container, -1 for anything else."""
    kinds = dict(zip(type_ids, map(type, objects), strict=True))
    measure = {
        key: length for key, kind in kinds.items() for base, length in CONTAINERS if slots.derives(kind, base)
    }
    nodes = list(itertools.compress(range(len(objects)), map(measure.__contains__, type_ids)))
    items = [measure[type_ids[node]](objects[node]) for node in nodes]
    lengths = np.full(len(objects), -1, np.int64)
    lengths[nodes] = items
    return lengths


def _leaves(flat: list[Any], ends: list[int], start: int) -> list[tuple[int, Any]]:
    """Those referents that are leaves, each with the number of the object that refers to it.

    ``ends`` are the positions in ``flat`` after the referents of each object, the number of the first object first.
    """
    chosen = map(LEAVES.__contains__, map(id, map(type, flat)))
    positions = list(itertools.compress(range(len(flat)), chosen))
    tracked = map(gc.is_tracked, map(flat.__getitem__, positions))
    untracked = itertools.compress(positions, map(operator.not_, tracked))
    found = [position for position in untracked if LEAVES[id(type(flat[position]))](flat[position])]
    return [(start + bisect.bisect_right(ends, position, lo=1) - 1, flat[position]) for position in found]


def _connect(heap: Heap, snapshot: _Snapshot) -> None:
    """Turn ids of referents into nodes."""
    ids, order = heap._index
    degrees = np.concatenate(snapshot.degrees)
    wanted = np.concatenate(snapshot.referents)
    positions = np.searchsorted(ids, wanted)
    positions[positions == len(ids)] = 0
    known = ids[positions] == wanted
    heap.sources = np.repeat(np.arange(heap.tracked, dtype=np.int64), degrees)[known]
    heap.targets = order[positions[known]]
    for source, thing in snapshot.leaves:
        add_leaf(heap, source, thing)
    snapshot.leaves.clear()


def is_leaf(thing: object) -> bool:
    """Whether gc does not track a thing that may be large: an array, a long text, a dict or tuple that holds such."""
    test = LEAVES.get(id(type(thing)))
    return test is not None and not gc.is_tracked(thing) and test(thing)


def add_leaf(heap: Heap, source: int, thing: Any, label: str = "") -> None:
    """A node for a leaf, and a reference to it; ``label`` names a variable."""
    if type(thing) is np.ndarray:
        _link_array(heap, source, thing, label)
        return
    known = heap.find(thing) >= 0
    node = heap.add(thing)
    heap.link(source, node, label)
    if not known and slots.is_exactly(thing, dict, tuple):
        for item in thing.values() if type(thing) is dict else thing:
            if is_leaf(item):
                add_leaf(heap, node, item)


def _link_array(heap: Heap, source: int, values: npt.NDArray[Any], label: str = "") -> None:
    known = heap.find(values) >= 0
    node = heap.add(values)
    heap.link(source, node, label)
    if known:
        return
    base = values.base
    if type(base) is np.ndarray:
        _link_array(heap, node, base)
    elif base is not None and heap.find(base) >= 0:
        heap.link(node, heap.find(base), ".base")
        heap.explain(heap.find(base))
    if values.dtype.hasobject and base is None:
        for item in values.ravel().tolist():
            if heap.find(item) >= 0:
                heap.link(node, heap.find(item), "[*]")


def _is_long(text: Any) -> bool:
    return len(text) >= SMALL


def _holds_payload(holder: Any) -> bool:
    """Whether a dict or tuple is one that gc left out and has an array or the like in it.

    gc leaves out those in which nothing can be part of a cycle, and an array is taken for such.
    """
    return not PAYLOAD.isdisjoint(map(id, map(type, holder.values() if type(holder) is dict else holder)))


TEXTS = (bytes, bytearray, array.array)
PAYLOAD = {id(kind) for kind in (np.ndarray, *TEXTS)}
# What may be large where gc does not track it: the id of its type, with a test of one such thing.
LEAVES: dict[int, Callable[[Any], bool]] = {
    id(np.ndarray): lambda thing: True,
    **{id(kind): _is_long for kind in TEXTS},
    id(dict): _holds_payload,
    id(tuple): _holds_payload,
}


def _mark_ours(heap: Heap) -> None:
    """Objects of our own types, our generators and modules, and containers they own: none holds for the user."""
    own = [key for key, kind in heap.types().items() if _is_our_type(kind)]
    heap.ours[: heap.tracked] = np.isin(heap.type_ids, own)
    for node in heap.tracked_nodes(types.GeneratorType):
        heap.ours[node] = is_ours(heap.objects[node].gi_code.co_filename)
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] == "leakhunter":
            namespace = heap.find(module.__dict__)
            if namespace >= 0:
                heap.ours[namespace] = True
    containers = [id(kind) for kind in (dict, list, set, functools._lru_cache_wrapper)]
    is_container = np.append(np.isin(heap.type_ids, containers), np.zeros(heap.size - heap.tracked, bool))
    before = -1
    while before < (before := int(heap.ours.sum())):
        held = heap.targets[heap.ours[heap.sources]]
        heap.ours[held[is_container[held]]] = True


def _is_our_type(kind: type) -> bool:
    return slots.type_module(kind).split(".")[0] == "leakhunter"
