"""From a capture and a probe to suspects: what piled up, in which state, and on which path. Plain data comes out."""

from __future__ import annotations

import bisect
import collections
import gc
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise
from types import MappingProxyType
from typing import Any

import numpy as np
import torch

from leakhunter import slots
from leakhunter.heap import cycles, labels, roots
from leakhunter.heap.graph import Heap, Storage
from leakhunter.heap.labels import Edge, Link
from leakhunter.heap.paths import Paths, Route, generalise, key_of
from leakhunter.probe.census import CONTAINERS, Census, Marks, counters, ends, walkable
from leakhunter.probe.cuda_history import MEM_POOL, Block
from leakhunter.probe.dispatch import Birth, Births, Stack
from leakhunter.slots import TensorSlots

# Objects younger than this many steps may still be in use by the step after the one that made them.
OF_AGE = 2
# At most so many survivors and elements are put into words.
MOST_ROUTES = 2_000
MOST_ENTRIES = 500
SAMPLE = 8


@dataclass(frozen=True)
class Clock:
    """Dates autograd nodes: ``sequence[i]`` is the next sequence number at the end of ``steps[i]``."""

    steps: Sequence[int]
    sequence: Sequence[int]

    def step(self, number: int) -> int:
        """The step in which the node with this sequence number was made; 0 is before the first."""
        position = bisect.bisect_right(self.sequence, number)
        return self.steps[position] if position < len(self.steps) else self.steps[-1] + 1 if self.steps else 0


@dataclass(frozen=True)
class Graph:
    """Autograd graphs of finished steps: how many nodes, of which steps, and the bytes they saved."""

    nodes: int
    steps: int
    first: int
    last: int
    saved_bytes: int
    chain: tuple[str, ...]


@dataclass(frozen=True)
class Sample:
    """One of the things that pile up.

    ``bytes`` is what it needs by itself and ``storage_bytes`` what it keeps alive; they differ for a view.
    """

    type: str
    detail: str = ""
    numel: int = 0
    attached: bool = False
    bytes: int = 0
    storage_bytes: int = 0
    plain: bool = False


@dataclass(frozen=True)
class Suspect:
    """What piled up between census and capture.

    Attributes:
        state: ``held``, ``gc-pending``, ``stranded`` or ``native``.
        route: The path to it, generalised.
        count: How many survivors were born in the window.
        bytes: Their size in bytes.
        bytes_per_step: Bytes that each step adds.
        held_count: How many are held in all.
        held_bytes: Their size in bytes.
        held_storages: Of cycles, the storages that they keep.
        device: Where the memory is.
        container: Position in the route of the object that grows, -1 when none does.
        grew: Items added to it in the window, -1 when unknown.
        births: (step, survivors born in it).
        stacks: Where they were allocated, most bytes first.
        made: Storages like these that were born in the steps of ``births``, freed ones included; 0 when not known.
        graph: The autograd graphs held, if any.
        ring: The cycle that keeps it, if one does.
        sample: One of the survivors.
        hints: Facts for the catalogue, by name.
        rivals: Other paths to the same survivors.

    """

    state: str
    route: Route
    count: int
    bytes: int
    bytes_per_step: float = 0.0
    held_count: int = 0
    held_bytes: int = 0
    held_storages: int = 0
    device: str = "cpu"
    container: int = -1
    grew: int = -1
    births: tuple[tuple[int, int], ...] = ()
    stacks: tuple[Stack, ...] = ()
    made: int = 0
    graph: Graph | None = None
    ring: cycles.Ring | None = None
    sample: Sample = Sample("")
    hints: dict[str, Any] = field(default_factory=dict)
    rivals: tuple[Route, ...] = ()

    @property
    def links(self) -> tuple[Link, ...]:
        """The objects on the path, the root first."""
        return self.route.links

    @property
    def accumulator(self) -> tuple[str, tuple[tuple[str, str], ...]]:
        """Equal for suspects that pile up in the same place."""
        end = self.container + 1 if self.container >= 0 else len(self.links)
        return self.state, key_of(self.links[:end])


@dataclass
class _Group:
    """Survivors whose paths have the same shape."""

    route: Route
    members: list[int] = field(default_factory=list)
    paths: list[list[int]] = field(default_factory=list)


class Diagnosis:
    """Everything that one capture says, compared with a census ``now - census.step`` steps earlier.

    ``since`` is the step in which growth began: what is said to have grown must be large enough for it.
    """

    def __init__(
        self,
        heap: Heap,
        census: Census,
        births: Births,
        aged: Marks,
        clock: Clock,
        now: int,
        since: int,
        blocks: Mapping[int, Block] = MappingProxyType({}),
    ) -> None:
        self.marks, self.aged = aged, aged.living()
        self.heap = heap
        # steps since the growth began, which is longer than the window that was watched
        self.span = max(1, now - since)
        self.census = census
        self.births = births
        self.clock = clock
        self.now = now
        self.window = max(1, now - census.step)
        self.held, self.foreign, self.reached = cycles.settled(heap)
        self.paths = Paths(heap, self.held)
        self.storages = {
            node: thing for node in heap.storages.values() if (thing := heap.objects[node]).bytes
        }
        self.blocks = blocks
        # births that the recorder saw, and those that the device allocator's history shows
        self.living, self.stacks = self._joined_births()
        # id of a container -> its position in the census
        self._listed = {address: position for position, address in enumerate(census.container_ids.tolist())}

    def suspects(self) -> list[Suspect]:
        """All suspects, most bytes first."""
        fresh = self._fresh_storages()
        found = self._graphs()
        found += self._held_storages([node for node in fresh if self.reached[node]])
        found += self._garbage([node for node in fresh if not self.reached[node]])
        found += self._replaced()
        found += self._native()
        found += self._containers({suspect.accumulator for suspect in found})
        return sorted(_merged(found), key=lambda suspect: suspect.bytes, reverse=True)

    # ----------------------------------------------------------------------------------------------------------
    # storages

    def _joined_births(self) -> tuple[dict[int, Birth], list[Stack]]:
        """Births by StorageImpl; blocks that belong to no storage that is known have a negative key and a kind."""
        living, stacks = dict(self.births.living), list(self.births.stacks)
        storages = {storage.data: storage for storage in self.storages.values()}
        recorded = {birth.data for birth in living.values()}
        sites: dict[Stack, int] = {}
        for block in self.blocks.values():
            storage = storages.get(block.address)
            known = storage.address in living if storage is not None else block.address in recorded
            if known or block.step is None:
                continue
            site = sites.get(block.stack)
            if site is None:
                site = sites[block.stack] = len(stacks)
                stacks.append(block.stack)
            key, kind = (storage.address, "") if storage is not None else (-block.address, self._kind(block))
            living[key] = Birth(block.step, site, block.bytes, f"cuda:{block.device}", kind, block.address)
        return living, stacks

    def _kind(self, block: Block) -> str:
        """What a block is that belongs to no tensor."""
        own = self.heap.tracked_nodes(getattr(torch.cuda, "MemPool", type(None)))
        return MEM_POOL if any(tuple(self.heap.objects[node].id) == block.pool for node in own) else block.kind

    def _fresh_storages(self) -> list[int]:
        """Storages born in the window and of age."""
        saved = self._saved_in()
        found = []
        for node, storage in self.storages.items():
            birth = self.living.get(storage.address)
            if birth is not None:
                born: int | None = birth.step
            elif node in saved:
                born = saved[node]
            elif storage.address in self.census.storages or storage.address not in self.aged:
                continue
            else:
                # Not seen at the census, seen at a quiet point some steps ago.
                born = None
            if born is None or self.census.step < born <= self.now - OF_AGE:
                found.append(node)
        return found

    def _saved_in(self) -> dict[int, int]:
        """Storages that autograd nodes saved, with the step; most of them have no tensor that a census could see."""
        labels_here = self.heap.labels.items()
        steps: dict[int, int] = {}
        for (source, target), text in labels_here:
            if text.startswith("saved") and source in self.heap.sequence:
                steps[target] = self.clock.step(self.heap.sequence[source])
        return {
            target: steps[source]
            for (source, target), text in labels_here
            if text == "storage" and source in steps and source >= self.heap.tracked
        }

    def _per_step(self, size: float) -> float:
        """Bytes per step of survivors, which count only once they are of age."""
        return size / max(1, self.window - OF_AGE)

    def _held_storages(self, fresh: list[int]) -> list[Suspect]:
        """Survivors that Python variables hold, by route."""
        paths = {}
        for node in fresh[:MOST_ROUTES]:
            path = self.paths.by_python(node)
            if path is not None:
                paths[node] = path
        found = []
        for group in self._group(paths):
            suspect = self._held_group(group)
            if suspect is not None:
                found.append(suspect)
        return found

    def _group(self, paths: dict[int, list[int]]) -> list[_Group]:
        varying = self._varying(paths.values())
        groups: dict[Any, _Group] = {}
        for node, path in paths.items():
            route = self._route(path, varying)
            group = groups.setdefault(route.key, _Group(route))
            group.members.append(node)
            group.paths.append(path)
        return list(groups.values())

    def _varying(self, paths: Iterable[list[int]]) -> set[int]:
        """Dicts whose keys differ from survivor to survivor: they have grown, or many survivors hang on one of them."""
        children: dict[int, set[int]] = defaultdict(set)
        born: dict[int, set[tuple[int, int]]] = defaultdict(set)
        for path in paths:
            birth = self.living.get(self.storages[path[-1]].address) if path[-1] in self.storages else None
            # A birth that was not recorded counts as one in a step of its own.
            step = birth.step if birth is not None else -path[-1]
            for source, target in pairwise(path):
                children[source].add(target)
                if self._is_new(target):
                    born[source].add((target, step))
        return {node for node, targets in children.items() if len(targets) > SAMPLE or self._grew(node) > 0} | {
            # An object that gets an attribute of another name in every step.
            node
            for node, births in born.items()
            if min(len({target for target, _ in births}), len({step for _, step in births})) >= max(3, self.window // 3)
        }

    def _route(self, path: list[int], varying: set[int]) -> Route:
        placed = self.paths.placed_links(path)
        positions = frozenset(
            number
            for number, (link, position) in enumerate(placed)
            if position
            and path[position - 1] in varying
            and (
                link.edge == "key"
                # A tuple that is replaced by a longer one in every step.
                or (link.edge == "field" and link.text[1:-1].isdigit())
                or (link.edge in ("attribute", "global") and self._is_new(path[position]))
            )
        )
        return generalise([link for link, _ in placed], positions)

    def _is_new(self, node: int) -> bool:
        """Whether an object was not there at the census; what gc does not track is taken to be new."""
        if node >= self.heap.tracked:
            return True
        ids, address = self.census.ids, id(self.heap.objects[node])
        position = int(np.searchsorted(ids, address))
        return position >= len(ids) or int(ids[position]) != address

    def _grew(self, node: int) -> int:
        """Items added to a container since the census, 0 when it is new or no container."""
        before = self._length_before(node)
        return 0 if before < 0 else max(0, self.heap.length(node) - before)

    def _length_before(self, node: int) -> int:
        """Items a container had at the census, -1 when it was not there."""
        thing = self.heap.objects[node]
        position = self._listed.get(id(thing), -1)
        if position < 0:
            return -1
        length = int(self.census.lengths[position])
        first, last = self.census.ends[position].tolist()
        if first:
            kind = next((base for base, _ in CONTAINERS if slots.derives(type(thing), base)), object)
            now = ends(kind, thing)
            if first != now[0] and last != now[1]:
                return -1
        elif self._is_new(node):
            # Nothing tells it from another object that was there before at the same address.
            return -1
        return length

    def _held_group(self, group: _Group) -> Suspect | None:
        position, grew = self._accumulates(group)
        if position < 0:
            return None
        total = sum(self.storages[node].bytes for node in group.members)
        count = len(group.members)
        if 0 <= grew < (distinct := len({path[position + 1] for path in group.paths})):
            # The container also lost items: only what it gained is growth.
            total = int(total * grew / distinct)
            count = max(1, count * grew // distinct)
        held = self._held_in_all(group, position)
        return Suspect(
            state="held",
            route=group.route,
            count=count,
            bytes=total,
            bytes_per_step=self._per_step(total),
            held_count=len(held),
            held_bytes=sum(self.storages[n].bytes for n in held),
            device=self._device(group.members),
            container=self._container_link(group, position),
            grew=grew,
            births=self._births(group.members),
            stacks=self._stacks(group.members),
            made=self._made(group.members),
            sample=self._sample(group.paths[0]),
            hints=self._hints(group.paths[0]) | self._backward(group.members),
        )

    def _accumulates(self, group: _Group) -> tuple[int, int]:
        """Position in the paths of what survivors pile up in, and by how many items it has grown, -1 if unknown."""
        paths = group.paths
        shortest = min(map(len, paths))
        if len({path[0] for path in paths}) >= max(2, self.window // 4) and self._spread(group) >= 2:
            # Each has a root of its own: threads, or references that only C knows of.
            return 0, -1
        for position in range(shortest - 1):
            before = {path[position] for path in paths}
            here = {path[position + 1] for path in paths}
            known = [node for node in before if self._has_length(node)]
            grew = sum(self._grew(node) for node in known)
            if grew == 1 and self._is_namespace(group.paths[0], position):
                # One more attribute is no pile.
                return -1, 0
            if grew > 0 and any(self._is_new(node) for node in here):
                length = sum(self.heap.length(node) for node in known)
                return (position, grew) if self._has_grown_all_along(length, grew) else (-1, 0)
            # What fans out at a container that has not grown is a ring, or a fixed set of growing things.
            level = len(known) == len(before)
            fans_out = len(here) > len(before) and not level
            if fans_out and len(here) >= max(2, self.window // 4) and self._spread(group) >= 2:
                return position, -1
        if group.route.repeats and len(paths) >= 2:
            return shortest - 2, -1
        return -1, 0

    def _is_namespace(self, path: list[int], position: int) -> bool:
        """Whether what stands at ``position`` holds the next object of a path as an attribute or a global."""
        before = path[position - 1] if position else -1
        return self.paths.edge(before, path[position], path[position + 1]).kind in ("attribute", "global")

    def _has_length(self, node: int) -> bool:
        return self._length_before(node) >= 0

    def _container_link(self, group: _Group, position: int) -> int:
        """Position in the route of what stands at ``position`` in the paths."""
        prefix = self._route(group.paths[0][: position + 1], self._varying(group.paths))
        return min(len(prefix.links), len(group.route.links)) - 1

    def _is_ring(self, group: _Group, steps: int) -> bool:
        """Whether graphs of no more steps are held than a container that has not grown has items."""
        for position in range(min(map(len, group.paths)) - 1):
            nodes = {path[position] for path in group.paths}
            fans_out = len({path[position + 1] for path in group.paths}) > len(nodes)
            if fans_out and all(self._has_length(node) and not self._grew(node) for node in nodes):
                return steps <= 1.5 * sum(self.heap.length(node) for node in nodes)
        return False

    def _has_grown_all_along(self, length: int, grew: int) -> bool:
        """Whether a container has the items it must have if it grew like this since growth began."""
        return length >= 0.5 * grew / self.window * self.span

    def _spread(self, group: _Group) -> int:
        """In how many steps the members were born; unknown births count as one step each."""
        storages = [self.storages[node] for node in group.members if node in self.storages]
        births = [self.living.get(storage.address) for storage in storages]
        steps = {birth.step for birth in births if birth is not None}
        return len(steps) + sum(birth is None for birth in births)

    def _held_in_all(self, group: _Group, position: int) -> list[int]:
        """All storages whose path passes through what the survivors fan out from, old ones included."""
        gates = {path[position] for path in group.paths}
        found = set(group.members)
        for node in list(self.storages)[: 10 * MOST_ROUTES]:
            path = self.paths.by_python(node) if self.reached[node] else None
            if path is not None and gates.intersection(path):
                found.add(node)
        return list(found)

    def _births(self, nodes: Iterable[int]) -> tuple[tuple[int, int], ...]:
        births = (self.living.get(self.storages[node].address) for node in nodes)
        return tuple(sorted(Counter(birth.step for birth in births if birth is not None).items()))

    def _device(self, nodes: Iterable[int]) -> str:
        """Where most of the bytes are."""
        sizes: Counter[str] = Counter()
        for node in nodes:
            sizes[self.storages[node].device] += self.storages[node].bytes
        return sizes.most_common(1)[0][0] if sizes else "cpu"

    def _stacks(self, nodes: Iterable[int]) -> tuple[Stack, ...]:
        sizes: Counter[int] = Counter()
        for node in nodes:
            storage = self.storages[node]
            birth = self.living.get(storage.address)
            if birth is not None:
                sizes[birth.site] += storage.bytes
        return tuple(self.stacks[site] for site, _ in sizes.most_common(3))

    def _made(self, nodes: Iterable[int]) -> int:
        """How many storages like some were born, freed ones included; 0 when the recorder has not seen them all."""
        births = [self.living.get(self.storages[node].address) for node in nodes]
        kinds = {birth.kind if birth is not None else () for birth in births}
        return sum(self.births.made[kind] for kind in kinds) if all(map(self.births.made.get, kinds)) else 0

    def _backward(self, nodes: Iterable[int]) -> dict[str, Any]:
        """The autograd node that allocated most of some storages, and where the forward pass made it."""
        made = Counter(
            (birth.node, birth.forward)
            for node in nodes
            if (birth := self.living.get(self.storages[node].address)) is not None
        )
        (node, forward), _ = made.most_common(1)[0] if made else (("", -1), 0)
        return {"backward": (node, self.stacks[forward] if forward >= 0 else ())} if node else {}

    def _sample(self, path: Sequence[int]) -> Sample:
        heap = self.heap
        for node in reversed(path):
            thing = heap.objects[node]
            if slots.is_a(thing, torch.Tensor):
                return _tensor_sample(thing)
        thing = heap.objects[path[-1]]
        return Sample(slots.qualified_name(type(thing)), plain=_is_plain(thing))

    def _hints(self, path: Sequence[int]) -> dict[str, Any]:
        """Facts about objects on the path that no single link shows."""
        hints: dict[str, Any] = {}
        for before, node in pairwise(path):
            thing = self.heap.objects[before]
            if labels.role(thing) == "optimizer":
                groups = slots.instance_dict(thing).get("param_groups", [])
                current = {id(p) for group in groups for p in group.get("params", ())}
                state = slots.instance_dict(thing).get("state", {})
                dropped = sum(id(p) not in current for p in dict.keys(state))
                if dropped:
                    hints["dropped parameters"] = dropped
            if labels.role(thing) == "dict" and slots.is_a(self.heap.objects[node], torch.Tensor):
                hints["tensor keys"] = any(slots.is_a(key, torch.Tensor) for key in dict.keys(thing))
        first = self.heap.objects[path[0]]
        if labels.role(first) in ("method", "function", "partial") and self._counted("atexit"):
            hints["atexit"] = True
        if path[0] in self.heap.frames and self._counted("threads"):
            hints["thread function"] = roots.thread_function(self.heap.frames[path[0]])
        return hints

    def _counted(self, what: str) -> bool:
        """Whether a counter of the census has grown with the steps."""
        return counters()[what] - self.census.counters.get(what, 0) >= max(2, self.window // 4)

    def facts(self) -> dict[str, Any]:
        """What the heap says about growth that it cannot show."""
        found: dict[str, Any] = {}
        profilers = self.heap.tracked_nodes(torch.profiler.profile, torch.autograd.profiler.profile)
        reached = [path for node in profilers if (path := self.paths.by_python(node)) is not None]
        if reached:
            found["profiler path"] = self.paths.links(min(reached, key=len))
        if self._counted("jit functions"):
            found["traced"] = True
        return found

    # ----------------------------------------------------------------------------------------------------------
    # autograd graphs

    def _graphs(self) -> list[Suspect]:
        """Graphs of finished steps that Python variables hold, by the variable."""
        dated = {node: self.clock.step(number) for node, number in self.heap.sequence.items()}
        old = {
            node: step for node, step in dated.items() if 0 < step <= self.now - OF_AGE and self.reached[node]
        }
        if not old:
            return []
        following, holders = self._graph_edges()
        entries = self._entries(old, following, holders)
        groups = []
        for group in self._group(entries):
            nodes = _closure((holders[node] for node in group.members), following)
            groups.append((group, nodes))
        saved = self._saved_storages()
        suspects = []
        for group, nodes, rivals in _best_cover(groups, set(old)):
            suspect = self._graph_suspect(group, nodes, rivals, old, saved)
            if suspect is not None:
                suspects.append(suspect)
        return suspects

    def _graph_edges(self) -> tuple[dict[int, list[int]], dict[int, int]]:
        """Node -> next nodes, and tensor -> its grad_fn; a node that Python holds leads to itself."""
        following: dict[int, list[int]] = defaultdict(list)
        holders: dict[int, int] = {}
        for (source, target), text in self.heap.labels.items():
            if text == "next":
                following[source].append(target)
            elif text == ".grad_fn":
                holders[source] = target
        # A node that the program itself holds, such as the ctx of a custom Function.
        holders.update((node, node) for node in self.heap.sequence if node < self.heap.tracked)
        return following, holders

    def _entries(
        self, old: dict[int, int], following: dict[int, list[int]], holders: dict[int, int]
    ) -> dict[int, list[int]]:
        """Tensors and nodes that Python holds and from which an old node is reached, with their paths."""
        before: dict[int, list[int]] = defaultdict(list)
        for source, targets in following.items():
            for target in targets:
                before[target].append(source)
        above = _closure(old, before)
        entries = {}
        for tensor, grad_fn in holders.items():
            if grad_fn in above and self.reached[tensor]:
                path = self.paths.by_python(tensor)
                # A node has a Python object since anybody looked at it, maybe an earlier capture, and C++ keeps it.
                if path is not None and (tensor != grad_fn or tuple(path[-2:]) not in self.heap.labels):
                    entries[tensor] = path
                    if len(entries) >= MOST_ENTRIES:
                        break
        return entries

    def _saved_storages(self) -> dict[int, list[int]]:
        """Node -> storages that it saved and that no Python variable holds."""
        tensor_storages: dict[int, list[int]] = defaultdict(list)
        saved: dict[int, list[int]] = defaultdict(list)
        for (source, target), text in self.heap.labels.items():
            if text == "storage":
                tensor_storages[source].append(target)
        for (source, target), text in self.heap.labels.items():
            if text.startswith("saved "):
                for storage in tensor_storages.get(target, ()):
                    if storage in self.storages and self.paths.by_python(storage) is None:
                        saved[source].append(storage)
        return saved

    def _graph_suspect(
        self,
        group: _Group,
        nodes: set[int],
        rivals: list[Route],
        old: dict[int, int],
        saved: dict[int, list[int]],
    ) -> Suspect | None:
        mine = nodes & old.keys()
        steps = {old[node] for node in mine}
        # Graphs of a few steps may wait for one backward, and a ring of losses holds some: a leak has kept them since
        # the growth began.
        if (
            len(steps) < 3
            or min(steps) > self.census.step - OF_AGE
            or max(steps) - min(steps) < 0.5 * self.span
        ):
            return None
        if self._is_ring(group, len(steps)):
            return None
        storages = {storage for node in mine for storage in saved.get(node, ())}
        in_window = {
            storage
            for node in mine
            if old[node] > self.census.step - OF_AGE
            for storage in saved.get(node, ())
        }
        size = sum(self.storages[node].bytes for node in storages)
        position, grew = self._accumulates(group)
        newest = sorted(mine, key=lambda node: self.heap.sequence[node], reverse=True)
        chain = tuple(dict.fromkeys(slots.type_name(type(self.heap.objects[node])) for node in newest[:40]))
        by_step = Counter(old[node] for node in mine)
        device = self._device(storages)
        return Suspect(
            state="held",
            route=group.route,
            count=len(steps),
            bytes=(added := sum(self.storages[node].bytes for node in in_window)),
            bytes_per_step=added / self.window,
            held_count=len(steps),
            held_bytes=size,
            device=device,
            container=self._container_link(group, position) if position >= 0 else -1,
            grew=grew,
            births=tuple(sorted(by_step.items()))[-12:],
            stacks=self._stacks(in_window),
            graph=Graph(len(mine), len(steps), min(steps), max(steps), size, chain[:6]),
            sample=self._sample(group.paths[0]),
            hints=self._hints(group.paths[0]),
            rivals=tuple(rivals),
        )

    # ----------------------------------------------------------------------------------------------------------
    # garbage

    def _garbage(self, fresh: list[int]) -> list[Suspect]:
        found = []
        for cycle in cycles.find(self.heap, self.reached, self.foreign, fresh, self.paths, self.storages):
            members = cycle.storages
            if cycle.count < max(2, self.window // 4):
                continue
            size = sum(self.storages[node].bytes for node in members)
            found.append(
                Suspect(
                    state=cycle.state,
                    route=cycle.route,
                    count=cycle.count,
                    bytes=size,
                    bytes_per_step=self._per_step(size),
                    held_count=cycle.all_count,
                    held_bytes=cycle.all_bytes,
                    held_storages=cycle.all_storages,
                    device=self._device(members),
                    births=self._births(members),
                    stacks=self._stacks(members),
                    made=self._made(members),
                    ring=cycle.ring,
                    sample=self._sample(cycle.sample),
                    hints={
                        **self._backward(members),
                        "closes": cycle.closes,
                        "oldest generation": cycle.oldest,
                        **self._pack_hooks(cycle),
                    },
                )
            )
        return found

    def _pack_hooks(self, cycle: cycles.Garbage) -> dict[str, Any]:
        if not any(link.edge == "saved" for link in cycle.route.links) or not self.births.pack_hooks:
            return {}
        return {"pack hook": sorted(self.births.pack_hooks)[0]}

    # ----------------------------------------------------------------------------------------------------------
    # one tensor replaced by ever larger ones; memory that no object shows

    def _replaced(self) -> list[Suspect]:
        """Sites whose living bytes grow at a constant number of storages: one tensor, rebuilt larger each step."""
        found = []
        by_address = {storage.address: node for node, storage in self.storages.items()}
        for site, seen in self.births.site_bytes.items():
            sizes = [size for _, size, _ in seen]
            counts = {count for _, _, count in seen}
            rises = [after - before for before, after in pairwise(sizes)]
            if len(seen) < 3 or len(counts) > 1 or min(rises) < 0 or sum(rises) <= 0:
                continue
            if sum(rise > 0 for rise in rises) < min(2, len(rises)):
                continue
            nodes = [
                by_address[address]
                for address, birth in self.living.items()
                if birth.site == site and address in by_address
            ]
            paths = {node: path for node in nodes if (path := self.paths.to(node)) is not None}
            found += [
                Suspect(
                    state="held",
                    route=group.route,
                    count=1,
                    bytes=sizes[-1] - sizes[0],
                    bytes_per_step=(sizes[-1] - sizes[0]) / (seen[-1][0] - seen[0][0]),
                    held_count=len(group.members),
                    held_bytes=sum(self.storages[node].bytes for node in group.members),
                    device=self._device(group.members),
                    stacks=(self.stacks[site],),
                    sample=self._sample(group.paths[0]),
                    hints={"replaced": seen[-1][0] - seen[0][0], "operator": self._operator(site)},
                )
                for group in self._group(paths)
            ]
        return found

    def _operator(self, site: int) -> str:
        """The operator that made the living storages of a site, the most frequent one."""
        names = Counter(birth.op for birth in self.living.values() if birth.site == site)
        return names.most_common(1)[0][0] if names else ""

    def _native(self) -> list[Suspect]:
        """Survivors that no Python object and no autograd node refers to, by operator."""
        known = {storage.address for storage in self.storages.values()}
        groups: dict[tuple[str, str], list[tuple[int, Any]]] = defaultdict(list)
        for address, birth in self.living.items():
            if birth.step <= self.now - OF_AGE and address not in known and birth.bytes:
                groups[birth.op, birth.device].append((address, birth))
        found = []
        for (op, device), members in groups.items():
            if len({birth.step for _, birth in members}) < min(3, len(self.births.armed_steps) - OF_AGE):
                continue
            sites: Counter[int] = Counter()
            for _, birth in members:
                sites[birth.site] += birth.bytes
            size = sum(birth.bytes for _, birth in members)
            found.append(
                Suspect(
                    state="native",
                    route=Route((Link("root", "native", "storage", "native", op),), False),
                    count=len(members),
                    bytes=size,
                    bytes_per_step=size / len({birth.step for _, birth in members}),
                    held_count=len(members),
                    held_bytes=size,
                    device=device,
                    births=tuple(sorted(Counter(birth.step for _, birth in members).items())),
                    stacks=tuple(self.stacks[site] for site, _ in sites.most_common(3)),
                    sample=Sample("storage", op),
                    hints={"operator": op},
                )
            )
        return found

    # ----------------------------------------------------------------------------------------------------------
    # containers of anything

    def _containers(self, known: set[Any]) -> list[Suspect]:
        """Containers that have gained items, whatever the items are."""
        least = max(2, self.window // 4)
        grown: dict[int, int] = {}
        for node in self._longer(least):
            if self.heap.ours[node] or not self.reached[node]:
                continue
            grew = self._grew(node)
            if grew >= least and self._has_grown_all_along(self.heap.length(node), grew) and self._still_grows(node):
                grown[node] = grew
        groups: dict[Any, list[tuple[int, Route]]] = defaultdict(list)
        for node in sorted(grown, key=lambda node: grown[node], reverse=True)[:200]:
            path = self.paths.by_python(node)
            if path is not None and path[0] != node and not self._fills_by_probing(path):
                route = self._route(path, {step for step in path if self._grew(step) > 0})
                groups[route.key].append((node, route))
        return [
            self._container(members, grown) for key, members in groups.items() if ("held", key) not in known
        ]

    def _still_grows(self, node: int) -> bool:
        """Whether a container has gained items early and late in the window: an import fills tables at once."""
        if not self.marks.lengths or node >= self.heap.tracked:  # not marked: the loop ended, or gc does not track it
            return True
        grew, length = self._grew(node), self.heap.length(node)
        lately = min(grew, length - self.marks.lengths.get(id(self.heap.objects[node]), length - grew))
        expected = grew * OF_AGE / self.window
        return expected < 1 or (lately >= 0.25 * expected and grew - lately >= 0.25 * (grew - expected))

    def _longer(self, least: int) -> list[int]:
        """Containers with at least ``least`` items more than at the census."""
        heap, census = self.heap, self.census
        addresses = np.fromiter(map(id, heap.objects[: heap.tracked]), np.int64, heap.tracked)
        former = census.lengths_of(addresses)
        longer: list[int] = np.flatnonzero((former >= 0) & (heap.lengths >= former + least)).tolist()
        # Dicts that gc does not track are few.
        for node in range(heap.tracked, heap.size):
            before = self._listed.get(id(heap.objects[node]))
            if before is not None and heap.length(node) >= int(census.lengths[before]) + least:
                longer.append(node)
        return longer

    def _fills_by_probing(self, path: list[int]) -> bool:
        """Whether a container is one of PyTorch's that operators fill when they first meet a dispatch mode of ours."""
        return self.paths.module_name(path[0]).startswith(("torch._library", "torch._ops"))

    def _container(self, members: list[tuple[int, Route]], grown: dict[int, int]) -> Suspect:
        heap = self.heap
        nodes = [node for node, _ in members]
        route = members[0][1]
        container = heap.objects[nodes[0]]
        grew = sum(grown[node] for node in nodes)
        newest = _newest(container, min(SAMPLE, grown[nodes[0]]))
        sizes = [self._deep_size(item) for item in newest]
        each = sum(sizes) / len(sizes) if sizes else 0.0
        total = sum(heap.length(node) for node in nodes)
        item = newest[-1] if newest else None
        edge = Edge("element", "[*]")
        if route.links[-1].edge == "namespace":
            edge = Edge("attribute", ".*")
        routed = Route((*route.links, labels.describe(item, edge)), route.repeats)
        return Suspect(
            state="held",
            route=routed,
            count=grew,
            bytes=int(each * grew),
            bytes_per_step=each * grew / self.window,
            held_count=total,
            held_bytes=int(each * total),
            container=len(routed.links) - 2,
            grew=grew,
            sample=_sample_of(item),
            hints={"python": True},
        )

    def _deep_size(self, thing: object) -> int:
        """Bytes of an item and of what is new with it, tensors' storages included."""
        heap, census = self.heap, self.census
        total, pending = 0, [thing]
        seen: set[int] = set()
        new_node = heap.find(thing)
        if new_node < 0:
            return _size(thing)
        while pending and len(seen) < 200:
            current = pending.pop()
            if id(current) in seen:
                continue
            seen.add(id(current))
            total += _size(current)
            for item in gc.get_referents(*walkable([current])):
                if id(item) in seen or slots.is_a(item, type):
                    continue
                if gc.is_tracked(item):
                    position = int(np.searchsorted(census.ids, id(item)))
                    if position < len(census.ids) and census.ids[position] == id(item):
                        continue
                    pending.append(item)
                else:
                    seen.add(id(item))
                    total += _size(item)
        return total


def _merged(found: list[Suspect]) -> list[Suspect]:
    """One suspect for each place where things pile up: the graphs if there are any, else what needs most bytes."""
    groups: dict[Any, list[Suspect]] = defaultdict(list)
    for suspect in found:
        groups[suspect.accumulator].append(suspect)
    merged = []
    for members in groups.values():
        first = max(members, key=lambda suspect: (suspect.graph is not None, suspect.bytes))
        others = [suspect for suspect in members if suspect is not first]
        merged.append(
            replace(
                first,
                bytes=sum(suspect.bytes for suspect in members),
                bytes_per_step=sum(suspect.bytes_per_step for suspect in members),
                held_bytes=max(first.held_bytes, *(s.held_bytes for s in others))
                if others
                else first.held_bytes,
            )
        )
    return merged


def _best_cover(
    groups: list[tuple[_Group, set[int]]], old: set[int]
) -> list[tuple[_Group, set[int], list[Route]]]:
    """The fewest groups that reach all old nodes, each with the routes that reach the same.

    Of groups that reach the same old nodes the one whose own node lies deepest in the others' graphs comes first: a
    loss reaches the hidden state it was computed from, not the other way round.
    """
    chosen: list[tuple[_Group, set[int], list[Route]]] = []
    open_nodes = set(old)
    remaining = sorted(groups, key=lambda pair: (-len(pair[1] & old), len(pair[1]), len(pair[0].route.links)))
    while remaining and open_nodes:
        best = max(remaining, key=lambda pair: len(pair[1] & open_nodes))
        mine = best[1] & open_nodes
        if not mine:
            break
        equal = [pair for pair in remaining if len(pair[1] & mine) >= 0.9 * len(mine)]
        equal.sort(key=lambda pair: (len(pair[1]), len(pair[0].route.links)))
        first = equal[0]
        chosen.append((*first, [pair[0].route for pair in equal[1:]]))
        open_nodes -= first[1] | mine
        remaining = [pair for pair in remaining if not any(pair is other for other in equal)]
    return chosen


def _closure(start: Iterable[int], following: dict[int, list[int]]) -> set[int]:
    found = set(start)
    pending = list(found)
    while pending:
        for node in following.get(pending.pop(), ()):
            if node not in found:
                found.add(node)
                pending.append(node)
    return found


def _newest(container: Any, count: int) -> list[Any]:
    """The last items of a container; Python keeps dicts in order of insertion."""
    if slots.derives(type(container), dict):
        return list(islice(reversed(dict.values(container)), count))[::-1]
    if slots.derives(type(container), list):
        return list.__getitem__(container, slice(-count, None))
    for base in (collections.deque, set):
        if slots.is_a(container, base):
            return list(islice(base.__iter__(container), max(0, labels.length(container) - count), None))
    return []


def _size(thing: object) -> int:
    """Bytes of one object, from C code only; a tensor's storage is counted with it."""
    kind = type(thing)
    if type(thing) is Storage:
        return thing.bytes
    if slots.derives(kind, torch.Tensor):
        return 400 + _tensor_sample(thing).storage_bytes  # type: ignore[arg-type]
    if slots.type_module(kind) == "builtins" or slots.type_name(kind) == "ndarray":
        return sys.getsizeof(thing)
    return object.__sizeof__(thing) + 16


def _tensor_sample(tensor: torch.Tensor) -> Sample:
    name = slots.qualified_name(type(tensor))
    with slots.unwatched():
        try:
            size = TensorSlots.numel(tensor) * TensorSlots.item_size(tensor)
            dense = TensorSlots.layout(tensor) is torch.strided
            storage = TensorSlots.storage(tensor).nbytes() if dense else size
            attached = TensorSlots.grad_fn(tensor) is not None
        except (RuntimeError, NotImplementedError):
            return Sample(name)
        return Sample(name, labels.tensor_detail(tensor), TensorSlots.numel(tensor), attached, size, storage)


def _sample_of(thing: object) -> Sample:
    if slots.derives(type(thing), torch.Tensor):
        return _tensor_sample(thing)  # type: ignore[arg-type]
    return Sample(slots.qualified_name(type(thing)), plain=_is_plain(thing))


PLAIN = (int, float, bool, complex, str, type(None))


def _is_plain(thing: Any, depth: int = 0) -> bool:
    """Whether a thing is a number, a short text, or a small record of such."""
    kind = type(thing)
    if slots.is_exactly(thing, *PLAIN):
        return kind is not str or len(thing) < 200
    if depth < 2 and slots.is_exactly(thing, tuple, list, dict) and labels.length(thing) <= 16:
        items = thing.values() if kind is dict else thing
        return all(_is_plain(item, depth + 1) for item in items)
    return False

