"""Garbage without running gc: which objects nothing reaches, in which cycles, and whether gc can ever free them.

**gc-pending** garbage is what ``gc.collect()`` would free. **Stranded** garbage it never frees: C++ holds a reference
whose origin gc does not see, so gc takes the object for used, while every holder lies in the cycle itself.
"""

from __future__ import annotations

import collections
import gc
import heapq
import itertools
import types
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from leakhunter import slots
from leakhunter.heap import labels, roots
from leakhunter.heap.graph import Bools, Heap, Ints, Storage
from leakhunter.heap.labels import Edge, Link
from leakhunter.heap.paths import Paths, Route, generalise, reachable, sparse, write
from leakhunter.origin import is_user_module

# So many components are put into words, the largest first; others are counted with the one whose objects are of the
# same types.
MOST_CYCLES = 400
# Start points tried for the shortest cycle of a component.
TRIES = 6
HIDDEN_TRIES = 60

# From the nodes of a component to the references of each inside it.
References = Callable[[Sequence[int]], dict[int, list[int]]]


@dataclass(frozen=True)
class Ring:
    """One cycle in words: ``links[i]`` refers to ``links[i + 1]``, and the last is the first once more.

    ``hidden[i]`` says whether gc does not see the reference to ``links[i + 1]``; ``bytes[i]`` are those of the storages
    that of all objects in cycles ``links[i]`` is nearest to.
    """

    links: tuple[Link, ...]
    hidden: tuple[bool, ...]
    bytes: tuple[int, ...]


@dataclass
class Garbage:
    """Cycles of one shape: ``count`` hold storages born in the window, ``all_count`` there are in all.

    ``state`` is what they are, or for ``held`` ones what they will be when the last variable lets go, which is
    ``holder``.
    """

    state: str
    route: Route
    closes: tuple[str, ...]
    sample: list[int]
    ring: Ring
    count: int = 0
    storages: list[int] = field(default_factory=list)
    all_count: int = 0
    all_bytes: int = 0
    all_storages: int = 0
    oldest: bool = False
    held: bool = False
    holder: str = ""
    # what unpacks a saved tensor on the way
    unpack_hook: Link | None = None


def settle_hooks(heap: Heap, held: Bools, edges: Bools) -> Bools:
    """``held`` less the hook dicts that only the graph's own nodes can hold, with those references added.

    C++ keeps the dict of a node's or tensor's hooks and shows it to nobody. A dict that looks like one, that C++
    alone holds, and from which a node or tensor is reached that nothing else reaches, is taken to be that node's.
    """
    held = _settle_pack_hooks(heap, held)
    edges = np.append(edges, np.ones(len(heap.sources) - len(edges), bool))
    candidates = [node for node in np.flatnonzero(held).tolist() if _is_hook_dict(heap, node)]
    if not candidates:
        return held
    others: Bools = held.copy()
    others[candidates] = False
    reached = reachable(heap, others, edges)
    graph = sparse(heap, edges)
    for node in candidates:
        if reached[node]:
            others[node] = held[node]
            continue
        owner = _hook_owner(heap, graph, node, reached)
        if owner < 0:
            others[node] = True
        else:
            heap.link(owner, node, "hooks")
    heap.seal()
    return others


def _is_hook_dict(heap: Heap, node: int) -> bool:
    """Whether a dict may be that of a tensor's or node's hooks, or the ``metadata`` of a node."""
    thing = heap.objects[node]
    if not slots.is_exactly(thing, collections.OrderedDict, dict):
        return False
    if not dict.__len__(thing) or heap.external[node] - heap.explained.get(node, 0) != 1:
        return False
    kind = int if type(thing) is collections.OrderedDict else str
    return all(type(key) is kind for key in dict.keys(thing))


def _settle_pack_hooks(heap: Heap, held: Bools) -> Bools:
    """``held`` less the pack hooks: a saved value keeps the pair of its hooks, and shows the one that unpacks."""
    settled: Bools = held.copy()
    for unpack, uses in heap.unpack_hooks.items():
        for node in _siblings(heap, unpack):
            unexplained = heap.external[node] - heap.explained.get(node, 0)
            if held[node] and unexplained <= uses:
                settled[node] = False
                heap.link(unpack, node, "pack hook")
    heap.seal()
    return settled


def _siblings(heap: Heap, hook: int) -> list[int]:
    """Functions that share a closure cell with a hook, and methods bound to the same object."""
    ends = _shared_parts(heap.objects[hook])
    if not ends:
        return []
    kind = type(heap.objects[hook])
    return [
        node
        for node in heap.tracked_nodes(kind)
        if node != hook and not ends.isdisjoint(_shared_parts(heap.objects[node]))
    ]


def _shared_parts(thing: Any) -> set[int]:
    if type(thing) is types.MethodType:
        return {id(thing.__self__)}
    if type(thing) is types.FunctionType:
        return set(map(id, thing.__closure__ or ()))
    return set()


def _hook_owner(heap: Heap, graph: Any, node: int, reached: Bools) -> int:
    """The nearest tensor that refers to the dict, else the nearest autograd node that the hooks lead to."""
    seen, pending = {node}, deque([node])
    nearest = -1
    while pending:
        current = pending.popleft()
        for target in graph.indices[graph.indptr[current] : graph.indptr[current + 1]].tolist():
            if target in seen or reached[target]:
                continue
            seen.add(target)
            pending.append(target)
            thing = heap.objects[target]
            if slots.is_a(thing, torch.Tensor):
                if node in graph.indices[graph.indptr[target] : graph.indptr[target + 1]]:
                    return int(target)
            elif nearest < 0 and target in heap.sequence:
                nearest = int(target)
    return nearest


def settled(heap: Heap) -> tuple[Bools, Bools, Bools]:
    """Nodes held from outside, references that are not ours, and nodes that are reached, with hooks at their owners."""
    outside = settle_hooks(heap, roots.outside(heap), ~heap.ours[heap.sources])
    # Hooks that were given their owner are references more.
    foreign = ~heap.ours[heap.sources]
    return outside, foreign, reachable(heap, outside, foreign)


def survey(heap: Heap) -> list[Garbage]:
    """All cycles that keep storages: garbage, and held ones that will wait for gc or be stranded one day."""
    outside, foreign, reached = settled(heap)
    paths = Paths(heap, outside)
    storages = {node: thing for node in heap.storages.values() if (thing := heap.objects[node]).bytes}
    lost = [node for node in storages if not reached[node]]
    return find(heap, reached, foreign, lost, paths, storages) + _held(heap, reached, foreign, paths, storages)


def find(
    heap: Heap, reached: Bools, edges: Bools, fresh: Sequence[int], paths: Paths, storages: dict[int, Storage]
) -> list[Garbage]:
    """The unreachable cycles that keep ``fresh`` storages, grouped by shape, most bytes first."""
    if not fresh:
        return []
    inside = edges & ~reached[heap.sources] & ~reached[heap.targets]
    lost = [node for node in storages if not reached[node]]
    groups = _grouped(heap, inside, lost, set(fresh), paths, storages, _seen_by_gc(heap, reached))
    return [group for group in groups if group.storages]


def _held(
    heap: Heap, reached: Bools, edges: Bools, paths: Paths, storages: dict[int, Storage]
) -> list[Garbage]:
    """The cycles of reachable objects that keep storages, without those through modules, classes and running frames."""
    passable = reached.copy()
    passable[roots.barriers(heap)] = False
    passable[heap.tracked_nodes(type)] = False
    passable[list(heap.frames)] = False
    inside = edges & passable[heap.sources] & passable[heap.targets]
    through_cpp: Bools = np.zeros(heap.size, bool)
    through_cpp[heap.sources[heap.hidden_from :]] = True
    kept = [node for node in storages if reached[node]]
    return _grouped(heap, inside, kept, set(), paths, storages, through_cpp, held=True)


def _grouped(
    heap: Heap,
    inside: Bools,
    nodes: Sequence[int],
    fresh: set[int],
    paths: Paths,
    storages: dict[int, Storage],
    unfreed: Bools,
    held: bool = False,
) -> list[Garbage]:
    """The cycles over ``inside`` that keep some storages. Those with a node of ``unfreed`` are stranded."""
    component, cyclic = components(heap, inside)
    by_component, sample, nearest = _kept_by(heap, inside, component, cyclic, nodes, storages)
    if not by_component:
        return []
    members = _members(component, by_component)
    oldest = _oldest_generation(heap, itertools.chain.from_iterable(members.values()))
    references = _references(heap, inside, component, cyclic)
    groups: dict[Any, Garbage] = {}
    # kinds of the objects in a component -> the group of those that are put into words
    alike: dict[Any, Garbage | None] = {}
    ranked = sorted(by_component, key=lambda label: -sum(storages[node].bytes for node in by_component[label]))
    for number, label in enumerate(ranked):
        stranded = bool(unfreed[members[label]].any())
        kinds = _kinds(heap, members[label]), stranded
        group = alike.get(kinds) if number >= MOST_CYCLES else None
        if group is None and len(groups) < MOST_CYCLES:
            group = _group(heap, references, members[label], paths, stranded, nearest, groups, sample[label], held)
            alike[kinds] = group
        if group is None:
            continue
        fresh_here = [node for node in by_component[label] if node in fresh]
        group.all_count += 1
        group.all_storages += len(by_component[label])
        group.all_bytes += sum(storages[node].bytes for node in by_component[label])
        group.oldest = group.oldest or not oldest.isdisjoint(members[label])
        group.count += bool(fresh_here)
        group.storages += fresh_here
    return sorted(groups.values(), key=lambda group: -group.all_bytes)


def _group(
    heap: Heap,
    references: References,
    nodes: Sequence[int],
    paths: Paths,
    stranded: bool,
    nearest: Mapping[int, int],
    groups: dict[Any, Garbage],
    sample: list[int],
    held: bool,
) -> Garbage | None:
    """The group of a component, by the shape of its most telling cycle."""
    cycle = shortest_cycle(heap, references(nodes), nodes, stranded)
    if cycle is None:
        return None
    ring = _ring(heap, cycle, paths, nearest)
    route = generalise(ring.links)
    known = groups.get((route.key, stranded))
    if known is not None:
        return known
    holder = ""
    if held:
        way = paths.to(cycle[0])
        holder = write(generalise(paths.links(way)).links) if way is not None else ""
    state = "stranded" if stranded else "gc-pending"
    group = Garbage(state, route, _closes(heap, cycle), sample, ring, held=held, holder=holder)
    group.unpack_hook = next(
        (
            labels.describe(heap.objects[hook], Edge("unpack hook", ""))
            for hook in heap.unpack_hooks
            if any((node, hook) in heap.labels for node in cycle)
        ),
        None,
    )
    return groups.setdefault((route.key, stranded), group)


def _kinds(heap: Heap, nodes: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """The types of some objects and how many there are of each."""
    return tuple(sorted(collections.Counter(id(type(heap.objects[node])) for node in nodes).items()))


def _kept_by(
    heap: Heap, inside: Bools, component: Ints, cyclic: Bools, nodes: Sequence[int], storages: dict[int, Storage]
) -> tuple[dict[int, list[int]], dict[int, list[int]], dict[int, int]]:
    """Storages by the component that keeps them, the shortest way to one from each, and bytes by the nearest object."""
    owner = _owners(heap, inside, cyclic)
    by_component: dict[int, list[int]] = defaultdict(list)
    sample: dict[int, list[int]] = {}
    nearest: dict[int, int] = defaultdict(int)
    for node in nodes:
        path = owner(node)
        if path is not None:
            label = int(component[path[0]])
            by_component[label].append(node)
            nearest[path[0]] += storages[node].bytes
            if label not in sample or len(path) < len(sample[label]):
                sample[label] = path
    return by_component, sample, nearest


def components(heap: Heap, edges: Bools) -> tuple[Ints, Bools]:
    """The strongly connected component of each node over ``edges``, and which nodes lie on a cycle."""
    from scipy.sparse.csgraph import connected_components

    _, component = connected_components(sparse(heap, edges), directed=True, connection="strong")
    component = component[: heap.size].astype(np.int64)
    large = np.bincount(component) > 1
    cyclic: Bools = large[component]
    loops = edges & (heap.sources == heap.targets)
    cyclic[heap.sources[loops]] = True
    return component, cyclic


def _owners(heap: Heap, edges: Bools, cyclic: Bools) -> Any:
    """A function from a node to the path that leads to it from the nearest node on a cycle."""
    from scipy.sparse.csgraph import breadth_first_order

    graph = sparse(heap, edges, np.flatnonzero(cyclic).tolist())
    _, before = breadth_first_order(graph, heap.size, return_predecessors=True)

    def owner(node: int) -> list[int] | None:
        path = [node]
        while before[node] != heap.size:
            node = int(before[node])
            if node < 0:
                return None
            path.append(node)
        return path[::-1]

    return owner


def _members(component: Ints, wanted: Any) -> dict[int, list[int]]:
    labels_wanted = np.array(sorted(wanted), np.int64)
    members: dict[int, list[int]] = {int(label): [] for label in labels_wanted}
    for node in np.flatnonzero(np.isin(component, labels_wanted)).tolist():
        members[int(component[node])].append(node)
    return members


def _references(heap: Heap, edges: Bools, component: Ints, cyclic: Bools) -> References:
    """A function from all nodes of a component to their references inside it, which are sorted out once for all."""
    # Of a heap few edges are left after the first line, so that all else costs next to nothing.
    chosen = np.flatnonzero(edges & cyclic[heap.sources])
    chosen = chosen[component[heap.sources[chosen]] == component[heap.targets[chosen]]]
    chosen = chosen[np.argsort(heap.sources[chosen], kind="stable")]
    sources, targets = heap.sources[chosen], heap.targets[chosen]

    def following(nodes: Sequence[int]) -> dict[int, list[int]]:
        starts = np.searchsorted(sources, nodes, "left").tolist()
        ends = np.searchsorted(sources, nodes, "right").tolist()
        return {node: targets[start:end].tolist() for node, start, end in zip(nodes, starts, ends, strict=True)}

    return following


def _seen_by_gc(heap: Heap, reached: Bools) -> Bools:
    """Garbage that gc takes for used: reached, over references that gc follows, from some it cannot account for.

    Nothing that is ``reached`` refers to garbage, so the search starts at garbage and stays there.
    """
    start = (heap.external > 0) & ~reached
    if not start.any():
        return start
    visible = ~heap.ours[heap.sources] & ~reached[heap.sources]
    visible[heap.hidden_from :] = False
    return reachable(heap, start, visible)


def _oldest_generation(heap: Heap, nodes: Iterable[int]) -> set[int]:
    """Those of some nodes that only a full collection looks at."""
    by_id = {id(heap.objects[node]): node for node in nodes if node < heap.tracked}
    return {by_id[found] for found in set(by_id).intersection(map(id, gc.get_objects(generation=2)))}


def shortest_cycle(
    heap: Heap, following: Mapping[int, list[int]], nodes: Sequence[int], stranded: bool
) -> list[int] | None:
    """The cycle of a component that is easiest to understand, its first node once more at the end.

    A stranded component may also have cycles that gc could free; the one to show runs through what gc does not see.
    """
    best: list[int] | None = None
    for cycle in _hidden_cycles(heap, nodes, following) if stranded else _cycles(heap, nodes, following):
        if best is None or len(cycle) < len(best):
            best = cycle
    if best is None:
        return shortest_cycle(heap, following, nodes, False) if stranded else None
    return _rotated(heap, best)


def _ring(heap: Heap, cycle: Sequence[int], paths: Paths, nearest: Mapping[int, int]) -> Ring:
    links = [labels.describe(heap.objects[cycle[0]], Edge("cycle", ""))]
    for position in range(1, len(cycle)):
        before = cycle[position - 2] if position > 1 else cycle[-2]
        edge = paths.edge(before, cycle[position - 1], cycle[position])
        links.append(labels.describe(heap.objects[cycle[position]], edge))
    hidden = tuple(pair in heap.labels for pair in itertools.pairwise(cycle))
    return Ring(tuple(links), hidden, tuple(nearest.get(node, 0) for node in cycle[:-1]))


def _closes(heap: Heap, cycle: Sequence[int]) -> tuple[str, ...]:
    """The references of a cycle that gc does not see."""
    return tuple(heap.labels[pair] for pair in itertools.pairwise(cycle) if pair in heap.labels)


def _cycles(heap: Heap, nodes: Sequence[int], following: Mapping[int, list[int]]) -> Iterator[list[int]]:
    """The shortest cycle through each of the objects that a reader knows best."""
    for start in heapq.nsmallest(TRIES, nodes, key=lambda node: _preference(heap, node)):
        way = _way(start, start, following)
        if way is not None:
            yield way


def _hidden_cycles(heap: Heap, nodes: Sequence[int], following: Mapping[int, list[int]]) -> Iterator[list[int]]:
    """The shortest cycle through each of the references that gc does not see."""
    tried = 0
    for source in nodes:
        for target in following.get(source, ()):
            if (source, target) in heap.labels and tried < HIDDEN_TRIES:
                tried += 1
                way = [target] if target == source else _way(target, source, following)
                if way is not None:
                    yield [source, *way]


def _rotated(heap: Heap, cycle: list[int]) -> list[int]:
    """The same cycle, begun at the object that a reader knows best."""
    ring = cycle[:-1]
    first = min(range(len(ring)), key=lambda position: _preference(heap, ring[position]))
    return [*ring[first:], *ring[:first], ring[first]]


def _preference(heap: Heap, node: int) -> tuple[int, int]:
    """Which object of a cycle a reader knows best, the lowest first."""
    thing = heap.objects[node]
    key = id(type(thing))
    rank = heap.ranks.get(key)
    if rank is None:
        rank = heap.ranks[key] = _rank(thing)
    return rank, node


def _rank(thing: Any) -> int:
    """By its type: one of a class of the user's, else of torch, else a container."""
    what = labels.role(thing)
    if what in ("instance", "module", "thread", "autograd function") and is_user_module(
        slots.type_module(type(thing))
    ):
        return 0
    order = (
        "autograd function",
        "module",
        "tensor",
        "optimizer",
        "instance",
        "function",
        "generator",
        "frame",
    )
    return 1 + order.index(what) if what in order else 20


def _way(start: int, end: int, following: Mapping[int, list[int]]) -> list[int] | None:
    """The shortest way of at least one reference from ``start`` to ``end``, both included."""
    before: dict[int, int] = {}
    pending = deque([start])
    while pending:
        node = pending.popleft()
        for target in following.get(node, ()):
            if target == end:
                way = [end, node]
                while node != start:
                    node = before[node]
                    way.append(node)
                return way[::-1]
            if target not in before and target != start:
                before[target] = node
                pending.append(target)
    return None
