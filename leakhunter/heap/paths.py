"""Who holds what: the paths from roots to survivors that are easiest to understand, not just the shortest."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from leakhunter import slots
from leakhunter.heap import labels, roots
from leakhunter.heap.graph import Bools, Heap, Ints
from leakhunter.heap.labels import Edge, Link
from leakhunter.origin import module_file

# A path of more references than this is cut: what lies beyond is the inside of some structure.
DEEPEST = 5_000
# Repeats of up to this many references in a row are written once.
LONGEST_REPEAT = 4
NO_KEY = object()
NOTHING = -9999  # what scipy calls "no predecessor"

# Which references a search follows: those that Python sees, or autograd's too.
PYTHON, GRAPHS = 0, 1

# In this order roots are tried.
RANKS = (roots.USER_GLOBAL, roots.USER_LOCAL, roots.LIBRARY, roots.OUTSIDE)

# References through which a survivor is held, but which say nothing to a reader.
PLUMBING = {"namespace", "content", "context", "frame", "source", "storage", "other"}


def sparse(heap: Heap, edges: Bools, extra: Sequence[int] = ()) -> Any:
    """The chosen edges as a scipy matrix; with ``extra``, one more node that refers to those nodes in that order."""
    from scipy.sparse import csr_matrix

    size = heap.size
    sources, targets = heap.sources[edges], heap.targets[edges]
    order = np.argsort(sources, kind="stable")
    pointers = np.zeros(size + 2, np.int64)
    np.cumsum(np.bincount(sources, minlength=size), out=pointers[1 : size + 1])
    pointers[size + 1] = pointers[size] + len(extra)
    columns = np.concatenate([targets[order], np.array(extra, np.int64)])
    weights = np.ones(len(columns), np.int8)
    return csr_matrix((weights, columns, pointers), shape=(size + 1, size + 1))


def reachable(heap: Heap, start: Bools, edges: Bools) -> Bools:
    """Nodes that can be reached from ``start`` over ``edges``."""
    from scipy.sparse.csgraph import breadth_first_order

    graph = sparse(heap, edges, np.flatnonzero(start).tolist())
    order = breadth_first_order(graph, heap.size, return_predecessors=False)
    found = np.zeros(heap.size + 1, bool)
    found[order] = True
    return found[: heap.size]


class Paths:
    """Paths to any node, searched from the user's own variables first and from libraries and C++ only then."""

    def __init__(self, heap: Heap, held: Bools) -> None:
        self.heap = heap
        found = roots.roots(heap, held)
        self._tiers = {rank: [root.node for root in found if root.rank == rank] for rank in RANKS}
        passable = np.ones(heap.size, bool)
        passable[roots.barriers(heap)] = False
        edges = passable[heap.targets] & ~heap.ours[heap.sources]
        hidden = np.zeros(len(heap.sources), bool)
        hidden[heap.hidden_from :] = True
        graph_edges = np.array(
            [
                heap.labels.get(pair, "").startswith((".grad_fn", "next", "saved", "variable"))
                for pair in _pairs(heap)
            ],
            bool,
        )
        through_graph = hidden.copy()
        through_graph[heap.hidden_from :] = graph_edges
        self._edges = (edges & ~through_graph, edges)
        self._searches: dict[tuple[int, int], Ints] = {}
        self._modules = dict(roots.module_dicts(heap))
        self._labels: dict[tuple[int, int, int], Edge] = {}
        self._keys: dict[int, dict[int, Any]] = {}

    def to(self, node: int) -> list[int] | None:
        """Nodes from a root to ``node``: not through autograd graphs if that can be, from the user's code if it can."""
        return self.by_python(node) or self._best(node, GRAPHS)

    def by_python(self, node: int) -> list[int] | None:
        """Nodes from a root to ``node`` over references that Python sees."""
        return self._best(node, PYTHON)

    def _best(self, node: int, layer: int) -> list[int] | None:
        """A global or local variable of the user's, whichever is nearer; a library's, or C++, only without these."""
        own = [path for rank in RANKS[:2] if (path := self._trace(rank, layer, node)) is not None]
        if own:
            return min(own, key=len)
        return next((path for rank in RANKS[2:] if (path := self._trace(rank, layer, node)) is not None), None)

    def _trace(self, rank: int, layer: int, node: int) -> list[int] | None:
        before = self._search(rank, layer)
        path = [node]
        while before[node] != self.heap.size:
            node = int(before[node])
            if node == NOTHING or len(path) > DEEPEST:
                return None
            path.append(node)
        return path[::-1]

    def _search(self, rank: int, layer: int) -> Ints:
        from scipy.sparse.csgraph import breadth_first_order

        found = self._searches.get((rank, layer))
        if found is None:
            graph = sparse(self.heap, self._edges[layer], self._tiers[rank])
            _, found = breadth_first_order(graph, self.heap.size, return_predecessors=True)
            self._searches[rank, layer] = found
        return found

    # ----------------------------------------------------------------------------------------------------------

    def edge(self, before: int, source: int, target: int) -> Edge:
        """The reference ``source -> target`` as a person writes it; an index is ``[*]``."""
        key = (before, source, target)
        found = self._labels.get(key)
        if found is None:
            found = self._labels[key] = self._edge(before, source, target)
        return found

    def _edge(self, before: int, source: int, target: int) -> Edge:
        heap = self.heap
        thing = heap.objects[source]
        if source in self._modules:
            name = self._key(source, target)
            return Edge("global", name if type(name) is str else "?")
        kind = type(thing)
        if slots.derives(kind, list, collections.deque):
            return Edge("index", "[*]")
        if slots.derives(kind, dict):
            key = self._key(source, target)
            if key is NO_KEY:
                return Edge("as key", "")
            owner = heap.objects[before] if before >= 0 else None
            if labels.is_attribute_dict(owner, thing):
                return Edge("attribute", labels.attribute_text(key))
            return Edge("key", f"[{labels.key_text(key)}]" if type(key) is str else "[*]")
        return labels.label(heap, before, source, target)

    def _key(self, source: int, target: int) -> Any:
        """The key under which a dict refers to a node; the whole dict is read once, as many may be asked for."""
        keys = self._keys.get(source)
        if keys is None:
            items = dict.items(self.heap.objects[source])
            keys = self._keys[source] = {id(value): key for key, value in items}
        return keys.get(id(self.heap.objects[target]), NO_KEY)

    def links(self, path: Sequence[int]) -> list[Link]:
        """The objects of a path in words, the root first."""
        return [link for link, _ in self.placed_links(path)]

    def placed_links(self, path: Sequence[int]) -> list[tuple[Link, int]]:
        """The objects of a path in words, each with its position in the path."""
        heap = self.heap
        found = [(self._root_link(path[0]), 0)]
        for position in range(1, len(path)):
            before = path[position - 2] if position > 1 else -1
            edge = self.edge(before, path[position - 1], path[position])
            found.append((labels.describe(heap.objects[path[position]], edge), position))
        return _merge_module_dicts(found)

    def module_name(self, node: int) -> str:
        """The name of the module whose namespace a node is, empty when it is none."""
        return self._modules.get(node, "")

    def _root_link(self, node: int) -> Link:
        heap = self.heap
        if node in self._modules:
            name = self._modules[node]
            return Link("root", name, "module", "python module", name, module_file(name))
        if node in heap.frames:
            link = labels.describe(heap.objects[node], Edge("root", ""))
            return replace(link, detail=roots.thread_name(heap.frames[node]))
        return labels.describe(heap.objects[node], Edge("outside", ""))


def _pairs(heap: Heap) -> Iterable[tuple[int, int]]:
    start = heap.hidden_from
    return zip(heap.sources[start:].tolist(), heap.targets[start:].tolist(), strict=True)


def _merge_module_dicts(found: list[tuple[Link, int]]) -> list[tuple[Link, int]]:
    """``net._parameters['weight']`` as ``net.weight``, ``net._modules['0']`` as ``net[0]``."""
    merged: list[tuple[Link, int]] = []
    for link, position in found:
        if link.edge == "key" and merged and merged[-1][0].text in ("._parameters", "._buffers", "._modules"):
            key = link.text[2:-2]
            merged.pop()
            link = replace(link, edge="attribute", text=labels.attribute_text(int(key) if key.isdigit() else key))
        merged.append((link, position))
    return merged


@dataclass(frozen=True)
class Route:
    """A path in words that stands for all paths of the same shape: indices are ``[*]``, repeats written once."""

    links: tuple[Link, ...]
    repeats: bool

    @property
    def key(self) -> tuple[tuple[str, str], ...]:
        """Equal for paths that differ in addresses, indices and counts only."""
        return key_of(self.links)


def key_of(links: Sequence[Link]) -> tuple[tuple[str, str], ...]:
    """What a reader sees of a path: whether an object keeps its attributes in a dict of its own does not matter."""
    return tuple((link.edge, link.text) for link in links if link.edge not in PLUMBING)


def generalise(links: Sequence[Link], varying: set[int] | frozenset[int] = frozenset()) -> Route:
    """The route of a path. ``varying`` are positions of dict keys that differ among paths of its kind."""
    general = [
        replace(link, text=ANY.get(link.edge, "[*]"))
        if link.edge in ("index", "element") or position in varying
        else link
        for position, link in enumerate(links)
    ]
    return _collapse(general)


# How one of many is written, by the kind of reference.
ANY = {"attribute": ".*", "global": "*"}


def _collapse(links: list[Link]) -> Route:
    """Write ``.next.next.next`` once."""
    kept: list[Link] = []
    repeats = False
    for link in links:
        kept.append(link)
        for span in range(1, LONGEST_REPEAT + 1):
            if len(kept) <= 2 * span or span > len(kept) - span:
                continue
            last, before = kept[-span:], kept[-2 * span : -span]
            same = all(
                (a.edge, a.text, a.type) == (b.edge, b.text, b.type)
                for a, b in zip(last, before, strict=True)
            )
            if same and any(part.edge not in PLUMBING for part in last):
                del kept[-span:]
                repeats = True
                break
    return Route(tuple(kept), repeats)


# A path is read from the innermost of these: what encloses a variable need not be told.
SCOPES = ("frame", "generator", "python module")


def scope_position(links: Sequence[Link]) -> int:
    """Where the written path starts: at the last frame or module that is not itself one of many in a container."""
    start = 0
    if links[0].edge == "cycle":
        return start
    for position, link in enumerate(links):
        if "*" in link.text:
            break
        if link.role in SCOPES:
            start = position
    return start


def write(links: Sequence[Link]) -> str:
    """The path as a person writes it, from its scope to the end."""
    start = scope_position(links)
    scope = links[start]
    text = ""
    for link in links[start + 1 :]:
        if link.edge == "local" and text:
            text += f" -> {link.text}"
        elif link.edge not in PLUMBING:
            text += link.text
    if scope.edge == "cycle" and scope.role not in ("frame", "generator"):
        name = "ctx" if scope.role == "autograd function" else scope.function or scope.type
        return f"{name}{text}"
    if scope.edge == "outside" and scope.role not in SCOPES:
        return f"{scope.function or scope.type}{text}"
    if scope.role == "python module" and scope.text not in ("__main__", "builtins"):
        return f"{scope.text}.{text.lstrip('.')}"
    return text or scope.text or scope.type


def kind_of(links: Sequence[Link]) -> str:
    """Where the written path starts, in words."""
    scope = links[scope_position(links)]
    if scope.edge == "cycle":
        return "cycle"
    if scope.role == "python module":
        return "module global"
    if scope.role in ("frame", "generator"):
        return "local"
    return "native" if scope.role == "native" else "outside Python"
