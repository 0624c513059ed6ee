"""Capture of the heap as arrays: every object that gc tracks, and what gc cannot see beside it.

Node ``i`` of the graph is ``heap.objects[i]``. The first ``heap.tracked`` nodes are the objects gc lists; after them
come autograd nodes, tensors that live in C++ only, storages, arrays, and frames. While a capture is open it holds
every object, so it is closed as soon as what was seen has been put into words.
"""

from __future__ import annotations

import array
import gc
import itertools
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from leakhunter.origin import is_ours
from leakhunter.probe.census import TYPE_MRO, tracked_objects, types_of

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

CHUNK = 65_536
# Strings and byte strings below this many bytes are not worth a node.
SMALL = 1024

TYPE_MODULE = type.__dict__["__module__"]


@dataclass(frozen=True)
class Storage:
    """Memory of one or more tensors: ``address`` is that of its StorageImpl, ``bytes`` its size on ``device``."""

    address: int
    bytes: int
    device: str


@dataclass
class Heap:
    """One capture. ``sources[k] -> targets[k]`` are the references, ``labels`` names those that no object shows."""

    objects: list[Any]
    tracked: int
    # id() of each tracked object's type: the types themselves would be counted as held by this capture
    type_ids: Ints
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
    # edges that gc itself does not follow start at this position in ``sources``
    hidden_from: int = 0
    remarks: list[str] = field(default_factory=list)
    _index: Any = None
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
        return types_of(self.objects, self.type_ids)

    def tracked_nodes(self, *kinds: type) -> list[int]:
        """Tracked nodes whose type is one of ``kinds`` or derives from one.

        Asks types, never objects: ``isinstance`` would run the ``__class__`` properties of user code.
        """
        wanted = [
            key for key, kind in self.types().items() if not set(kinds).isdisjoint(TYPE_MRO.__get__(kind))
        ]
        nodes: list[int] = np.flatnonzero(np.isin(self.type_ids, wanted)).tolist()
        return nodes

    def close(self) -> None:
        """Let go of every object."""
        self.objects.clear()
        self.frames.clear()
        self._extra.clear()


@contextmanager
def undisturbed() -> Iterator[None]:
    """No automatic collection and no change of thread, so that counts and references belong together."""
    collecting, interval = gc.isenabled(), sys.getswitchinterval()
    gc.disable()
    sys.setswitchinterval(1000.0)
    try:
        yield
    finally:
        sys.setswitchinterval(interval)
        if collecting:
            gc.enable()


@contextmanager
def captured() -> Iterator[Heap]:
    """A capture of the heap, with the autograd graph and the running frames, that is let go of at the end."""
    from leakhunter.heap import autograd, roots

    with undisturbed():
        heap = _capture()
        try:
            heap.hidden_from = len(heap.sources)
            autograd.expand(heap)
            roots.add_frames(heap)
            heap.seal()
        except BaseException:
            heap.close()
            raise
    try:
        yield heap
    finally:
        heap.close()


def _capture() -> Heap:
    objects, remarks = tracked_objects()
    # Its references are known, so the count that getrefcount adds to all of them can be read off it.
    yardstick: list[Any] = []
    objects.append(yardstick)
    count = len(objects)
    ids = np.fromiter(map(id, objects), np.int64, count)
    order = np.argsort(ids, kind="stable")
    ids = ids[order]
    heap = Heap(
        objects=objects,
        tracked=count,
        type_ids=np.fromiter(map(id, map(type, objects)), np.int64, count),
        sources=np.zeros(0, np.int64),
        targets=np.zeros(0, np.int64),
        external=np.zeros(0, np.int64),
        ours=np.zeros(0, bool),
        remarks=remarks,
        _index=(ids, order),
    )
    _read_references(heap, ids, order)
    heap.ours = np.zeros(heap.size, bool)
    _mark_ours(heap)
    references = np.fromiter(map(sys.getrefcount, objects[:count]), np.int64, count)
    foreign = ~heap.ours[heap.sources]
    inside = np.bincount(heap.targets[foreign], minlength=heap.size)
    references -= references[-1] - 1
    heap.external = np.zeros(heap.size, np.int64)
    # The yardstick itself is one of two: the list of objects and this function's variable hold it.
    heap.external[:count] = np.maximum(references - inside[:count], 0)
    return heap


def _read_references(heap: Heap, ids: Ints, order: Ints) -> None:
    sources, targets = [], []
    objects, count = heap.objects, heap.tracked
    for start in range(0, count, CHUNK):
        referents = list(map(gc.get_referents, objects[start : min(start + CHUNK, count)]))
        lengths = np.fromiter(map(len, referents), np.int64, len(referents))
        flat = list(itertools.chain.from_iterable(referents))
        del referents
        wanted = np.fromiter(map(id, flat), np.int64, len(flat))
        positions = np.searchsorted(ids, wanted)
        positions[positions == count] = 0
        known = ids[positions] == wanted
        source = np.repeat(np.arange(start, start + len(lengths), dtype=np.int64), lengths)
        sources.append(source[known])
        targets.append(order[positions[known]])
        unknown = np.flatnonzero(~known)
        _add_leaves(heap, source[unknown].tolist(), [flat[i] for i in unknown.tolist()])
    heap.sources = np.concatenate(sources)
    heap.targets = np.concatenate(targets)


def _add_leaves(heap: Heap, sources: list[int], things: list[Any]) -> None:
    """Nodes for large things that gc does not track: arrays and long strings."""
    for source, thing in zip(sources, things, strict=True):
        kind = type(thing)
        if kind is np.ndarray:
            _link_array(heap, source, thing)
        elif kind in LEAVES and len(thing) >= SMALL:
            heap.link(source, heap.add(thing), "")


def _link_array(heap: Heap, source: int, values: npt.NDArray[Any]) -> None:
    known = heap.find(values) >= 0
    node = heap.add(values)
    heap.link(source, node, "")
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


LEAVES = {str, bytes, bytearray, array.array}


def _mark_ours(heap: Heap) -> None:
    """Objects of our own types, our generators and their dicts: what they refer to is not held by the user."""
    types_here = heap.types()
    own = [key for key, kind in types_here.items() if _is_our_type(kind)]
    heap.ours[: heap.tracked] = np.isin(heap.type_ids, own)
    for node in heap.tracked_nodes(types.GeneratorType):
        heap.ours[node] = is_ours(heap.objects[node].gi_code.co_filename)
    is_dict = np.append(heap.type_ids == id(dict), np.zeros(heap.size - heap.tracked, bool))
    held = heap.targets[heap.ours[heap.sources]]
    heap.ours[held[is_dict[held]]] = True


def _is_our_type(kind: type) -> bool:
    module = TYPE_MODULE.__get__(kind)
    return isinstance(module, str) and (module == "leakhunter" or module.startswith("leakhunter."))
