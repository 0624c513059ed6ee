"""What tells reference cycles that hold tensors, how fast, and in how much memory: ``python benchmarks/cycles.py``.

A heap of so many live objects also has 1,000 garbage cycles, each with a tensor, while gc is off. Each tool looks at it
in a fresh process, after one look at the small heap before it, so that imports do not count. The time is that of all
it takes until there is something to read; the memory is what the process gained at its peak, over the objects; a cycle
counts when what the tool gives has it as a cycle. Medians are told. The tools, which are left out when not installed:

* ``leakhunter``: ``leakhunter.cycles()`` and its text. It reads the whole heap and frees nothing.
* ``torch viz``: ``gc.collect()`` that keeps what it finds, then ``torch.utils.viz._cycles``, with CPU tensors counted.
* ``refcycle``: ``refcycle.key_cycles()``, which collects in the same way, annotated.
* ``objgraph``: ``get_leaking_objects()``, the tensors by type, and the chain that leads to one of them.

Those that collect see only what gc can free, run the finalisers of the garbage, and know no cycle that is still held.
From Python 3.11 on, torch's graph loses instances whose attributes had no dict yet: to name them makes the dict, and
what it then finds is the dict, which it does not know.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

RINGS = 1000


class Record:
    """A live object of the heap."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.parts = {"pair": [number, str(number)], "spot": (number, [number])}


class Part:
    """A member of a cycle."""

    def run(self) -> None:
        """Something to be bound."""


def fill(objects: int) -> list[Record]:
    """About ``objects`` objects that gc tracks: records, each with a dict, two lists and a tuple."""
    before = len(gc.get_objects())
    kept: list[Record] = []
    while (missing := objects - (len(gc.get_objects()) - before)) > 0:
        kept += [Record(number) for number in range(max(100, missing // 5))]
    return kept


def parent_and_child() -> int:
    """Two instances that refer to each other."""
    parent, child = Part(), Part()
    parent.child, child.parent, child.value = child, parent, torch.ones(16)
    return id(parent)


def closure() -> int:
    """A function that calls itself."""
    value = torch.ones(16)

    def step(depth: int) -> torch.Tensor:
        return step(depth - 1) if depth else value

    return id(step)


def containers() -> int:
    """A dict and a list that contain each other."""
    state: dict[str, Any] = {"value": torch.ones(16)}
    state["history"] = [state]
    return id(state)


def bound_method() -> int:
    """An instance that keeps a method of its own."""
    part = Part()
    part.callback, part.value = part.run, torch.ones(16)
    return id(part)


SHAPES = (parent_and_child, closure, containers, bound_method)


def look_leakhunter() -> Any:
    """All cycles, and the text of each."""
    import leakhunter

    found = leakhunter.cycles()
    return found, [str(cycle) for cycle in found]


def count_leakhunter(seen: Any, planted: set[int]) -> int:
    """Cycles that wait for gc."""
    return sum(cycle.count for cycle in seen[0] if cycle.state == "gc-pending" and cycle.tensors)


def look_torch() -> Any:
    """The graph that is drawn of the garbage from which a tensor is reached."""
    from torch.utils.viz import _cycles

    gc.set_debug(gc.DEBUG_SAVEALL)
    gc.collect()
    gc.set_debug(0)
    graph = _cycles.create_graph(gc.garbage, context=lambda thing: str(id(thing)), filter=is_tensor)
    return graph, _cycles.to_html(graph)


def is_tensor(thing: Any) -> bool:
    """What is looked for, in place of torch's test for a CUDA tensor."""
    return isinstance(thing, torch.Tensor)


def count_torch(seen: Any, planted: set[int]) -> int:
    """Planted objects on a cycle of the drawing."""
    graph = seen[0]
    following = {number: [target for _, target in node.referrents] for number, node in enumerate(graph)}
    return sum(int(node.context) in planted and on_cycle(number, following) for number, node in enumerate(graph))


def on_cycle(start: int, following: Mapping[int, Sequence[int]]) -> bool:
    """Whether a way leads from a node back to it."""
    seen: set[int] = set()
    pending = list(following[start])
    while pending:
        node = pending.pop()
        if node not in seen:
            seen.add(node)
            pending += following[node]
    return start in seen


def look_refcycle() -> Any:
    """The components that keep garbage alive, in words."""
    import refcycle

    found = refcycle.key_cycles()
    return found, [graph.annotated().to_dot() for graph in found]


def count_refcycle(seen: Any, planted: set[int]) -> int:
    """Components with a planted object."""
    return sum(bool(planted.intersection(map(id, graph))) for graph in seen[0] if len(graph.edges))


def look_objgraph() -> Any:
    """Objects that nothing refers to, and what leads to the tensor made last."""
    import objgraph

    tensors = objgraph.by_type("Tensor")
    leaking = objgraph.get_leaking_objects()
    chain = objgraph.find_backref_chain(tensors[-1], objgraph.is_proper_module) if tensors else []
    return tensors, leaking, chain


def count_objgraph(seen: Any, planted: set[int]) -> int:
    """Planted objects among those named: none, as ``get_leaking_objects`` collects first."""
    _, leaking, chain = seen
    return len(planted.intersection(map(id, leaking)) | planted.intersection(map(id, chain)))


# tool -> the module it needs, what it does, how many of the planted cycles are in what that gave, what it tells
TOOLS: dict[str, tuple[str, Callable[[], Any], Callable[[Any, set[int]], int], str]] = {
    "leakhunter": ("leakhunter", look_leakhunter, count_leakhunter, "each cycle, its state, what to cut"),
    "torch viz": ("torch.utils.viz._cycles", look_torch, count_torch, "a drawing of the garbage"),
    "refcycle": ("refcycle", look_refcycle, count_refcycle, "a drawing of each cycle"),
    "objgraph": ("objgraph", look_objgraph, count_objgraph, "tensors by type, chains to live modules"),
}


def measure(tool: str, objects: int) -> dict[str, float]:
    """Look at a heap with one tool, in this process."""
    _, look, count, _ = TOOLS[tool]
    look()
    gc.garbage.clear()
    gc.collect()
    gc.disable()
    kept = fill(objects)
    planted = {SHAPES[number % len(SHAPES)]() for number in range(RINGS)}
    size = len(gc.get_objects())
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start, cpu = time.perf_counter(), time.process_time()
    seen = look()
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu
    peak = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    told = count(seen, planted)
    assert kept
    return {"seconds": seconds, "cpu_s": cpu_seconds, "told": told, "size": size, "bytes_per_object": peak / size}


def measured(tool: str, objects: int, repeats: int) -> dict[str, float]:
    """The medians of several fresh processes."""
    command = [sys.executable, __file__, "--measure", tool, "--objects", str(objects)]
    runs = [
        json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[-1])
        for _ in range(repeats)
    ]
    return {key: statistics.median(run[key] for run in runs) for key in runs[0]}


def installed(module: str) -> bool:
    """Whether a module can be imported."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def row(*cells: object) -> str:
    """A line of the table."""
    return "{:10}  {:>9}  {:>9}  {:>7}  {:>7}  {:>14}  {:>12}  {}".format(*cells)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="What tells reference cycles that hold tensors, and at what cost.")
    parser.add_argument(
        "--objects", type=int, nargs="+", default=[100_000, 1_000_000], help="live objects beside those of a program"
    )
    parser.add_argument("--repeats", type=int, default=3, help="processes, of which the median is told (default: 3)")
    parser.add_argument("--measure", choices=TOOLS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure, options.objects[0])))
        return
    print(row("tool", "added", "objects", "seconds", "of CPU", "cycles told", "bytes/object", "tells"))
    found: dict[str, dict[int, Any]] = {}
    for tool, (module, _, _, tells) in TOOLS.items():
        if not installed(module):
            print(f"{tool:10}  not installed, left out")
            continue
        for objects in options.objects:
            run = measured(tool, objects, options.repeats)
            found.setdefault(tool, {})[objects] = run
            told = f"{run['told']:,.0f} of {RINGS:,}"
            times = f"{run['seconds']:.2f}", f"{run['cpu_s']:.2f}"
            sizes = f"{objects:,}", f"{run['size']:,.0f}"
            print(row(tool, *sizes, *times, told, f"{run['bytes_per_object']:.0f}", tells), flush=True)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
