"""Where references start: running frames, modules, and whatever holds an object from outside the graph."""

from __future__ import annotations

import sys
import threading
import types
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from leakhunter.heap.graph import Bools, Heap, Ints, add_leaf, is_leaf
from leakhunter.origin import is_ours, is_user_file, is_user_module
from leakhunter.slots import is_exactly, local_variables, module_dict, stack

# Not a name that a variable could have.
CALLS = "(calls)"
SUSPENDED = (types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType)
CODES = ("gi_code", "cr_code", "ag_code")

# Whose variable a path starts at, the easiest to understand first.
USER_GLOBAL, USER_LOCAL, LIBRARY, OUTSIDE = range(4)


@dataclass(frozen=True)
class Root:
    """A node where paths may start. ``rank`` says how hard it is to understand, lower is better."""

    node: int
    rank: int


def add_frames(heap: Heap) -> None:
    """Add the running frames of all threads, with their locals; gc does not list them."""
    top = None
    try:
        for top in sys._current_frames().values():
            _add_stack(heap, top)
    finally:
        # One of them is this function's own frame: kept in its own variable, it would live until gc comes.
        del top


def _add_stack(heap: Heap, frame: types.FrameType | None) -> None:
    inner: int | None = None
    while frame is not None:
        if not is_ours(frame.f_code.co_filename):
            node = _add_frame(heap, frame)
            if inner is not None:
                heap.link(node, inner, CALLS)
            # The user's own function is where a reader starts; what it called is told from there.
            inner = None if is_user_file(frame.f_code.co_filename) else node
        frame = frame.f_back


def _add_frame(heap: Heap, frame: types.FrameType) -> int:
    node = heap.add(frame)
    heap.frames[node] = frame
    for name, value in local_variables(frame, listed=1).items():
        target = heap.find(value)
        if target >= 0:
            heap.link(node, target, name)
        elif is_leaf(value):
            add_leaf(heap, node, value, name)
    return node


def thread_name(frame: types.FrameType) -> str:
    """The name of the thread that runs ``frame``, empty for the main thread."""
    name = ""
    top = None
    try:
        for thread, top in sys._current_frames().items():
            known = threading._active.get(thread)  # type: ignore[attr-defined]
            if frame in stack(top) and known is not None and known is not threading.main_thread():
                name = str(known.name)
    finally:
        del top
    return name


def thread_function(frame: types.FrameType) -> str:
    """The function that the thread of ``frame`` was started with, as far as its frames show."""
    names = [step.f_code.co_name for step in stack(frame) if is_user_file(step.f_code.co_filename)]
    return names[-1] if names else ""


def outside(heap: Heap) -> Bools:
    """Nodes that something outside the graph refers to: the interpreter's stack, C++ or an extension module."""
    external = heap.external.copy()
    for node, count in heap.explained.items():
        external[node] -= count
    held: Bools = external > 0
    for node in heap.frames:
        held[node] = True
    return held & ~heap.ours


def roots(heap: Heap, held: Bools) -> list[Root]:
    """Nodes where a path may start, given the nodes held from outside."""
    found = [
        Root(node, USER_GLOBAL if is_user_module(name) else LIBRARY) for node, name in module_dicts(heap)
    ]
    called = {target for (_, target), text in heap.labels.items() if text == CALLS}
    for node, frame in heap.frames.items():
        if node not in called:
            found.append(Root(node, USER_LOCAL if is_user_file(frame.f_code.co_filename) else LIBRARY))
    known = {root.node for root in found} | called
    found += [Root(node, _outside_rank(heap, node)) for node in np.flatnonzero(held).tolist() if node not in known]
    return found


def _outside_rank(heap: Heap, node: int) -> int:
    """A generator that a running loop or our own watch holds is read like a running function."""
    thing = heap.objects[node]
    if is_exactly(thing, *SUSPENDED):
        code = next(getattr(thing, name) for name in CODES if hasattr(thing, name))
        return USER_LOCAL if is_user_file(code.co_filename) else LIBRARY
    return OUTSIDE


def module_dicts(heap: Heap) -> Iterator[tuple[int, str]]:
    """The namespaces of modules, with the modules' names."""
    for node in heap.tracked_nodes(types.ModuleType):
        namespace = module_dict(heap.objects[node])
        found = heap.find(namespace)
        if found >= 0 and not is_ours(str(namespace.get("__file__", ""))):
            name = namespace.get("__name__")
            yield found, name if type(name) is str else "?"


def barriers(heap: Heap) -> Ints:
    """Nodes that no path may pass through: modules, where a path starts, and what is ours."""
    modules = heap.tracked_nodes(types.ModuleType)
    namespaces = [node for node, _ in module_dicts(heap)]
    return np.array([*modules, *namespaces, *np.flatnonzero(heap.ours).tolist()], np.int64)
