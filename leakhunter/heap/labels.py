"""How a person writes the reference from one object to another, and what an object is called.

Only slots that C code fills are read: no ``__getattr__``, property, ``__eq__``, ``__hash__`` or ``__repr__`` of the
user's runs.
"""

from __future__ import annotations

import asyncio
import collections
import concurrent.futures
import contextvars
import functools
import itertools
import queue
import threading
import types
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from leakhunter import slots
from leakhunter.heap.graph import Heap, Storage
from leakhunter.heap.roots import CALLS
from leakhunter.origin import module_file
from leakhunter.probe.census import CONTAINERS
from leakhunter.slots import TensorSlots, derives, instance_dict

CACHE = functools._lru_cache_wrapper
TEE: type = type(itertools.tee([])[0])
ITERATORS: tuple[type, ...] = (itertools.cycle, itertools.chain, TEE, zip, map, filter, enumerate)


@dataclass(frozen=True)
class Edge:
    """One reference. ``kind`` is a word of this module, ``text`` what is appended to a path, maybe nothing."""

    kind: str
    text: str


@dataclass(frozen=True)
class Link:
    """One object of a path, in words.

    Attributes:
        edge: Kind of the reference that leads here.
        text: What it appends to the path.
        type: Name of the object's type.
        role: What kind of thing the object is (``list``, ``frame``, ``optimizer``, ...).
        detail: Size, shape or place.
        file: Where its code stands, empty when it has none.
        line: First line of that code.
        function: Qualified name of that code.
        length: Items in a container, -1 for anything else.
        bound: The most items it will ever have, -1 when nothing bounds it.

    """

    edge: str
    text: str
    type: str
    role: str
    detail: str = ""
    file: str = ""
    line: int = 0
    function: str = ""
    length: int = -1
    bound: int = -1


# --------------------------------------------------------------------------------------------------------------
# What an object is


def _is_hamt(kind: type) -> bool:
    return slots.type_name(kind).startswith("hamt")


_ROLES: tuple[tuple[tuple[type, ...], str], ...] = (
    ((torch.Tensor,), "tensor"),
    ((torch.nn.Module,), "module"),
    ((torch.optim.Optimizer,), "optimizer"),
    ((torch._C._FunctionBase,), "autograd function"),
    ((torch.autograd.profiler.profile, torch.profiler.profile), "profiler"),
    ((Storage,), "storage"),
    ((types.FrameType,), "frame"),
    ((types.TracebackType,), "traceback"),
    ((BaseException,), "exception"),
    ((types.ModuleType,), "python module"),
    ((type,), "class"),
    ((types.FunctionType,), "function"),
    ((types.MethodType,), "method"),
    ((types.CellType,), "cell"),
    ((functools.partial,), "partial"),
    ((CACHE,), "lru_cache"),
    ((types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType), "generator"),
    (ITERATORS, "iterator"),
    ((contextvars.Context, contextvars.Token), "context"),
    ((concurrent.futures.Future, asyncio.Future), "future"),
    ((threading.Thread,), "thread"),
    ((queue.Queue, queue.SimpleQueue, asyncio.Queue), "queue"),
    (
        (weakref.ReferenceType, weakref.WeakKeyDictionary, weakref.WeakValueDictionary, weakref.finalize),
        "weak",
    ),
    ((collections.deque,), "deque"),
    ((dict,), "dict"),
    ((list,), "list"),
    ((set, frozenset), "set"),
    ((tuple,), "tuple"),
    ((str, bytes, bytearray), "text"),
)


def role(thing: object) -> str:
    """What kind of thing an object is, in one word or two."""
    kind = type(thing)
    for bases, name in _ROLES:
        if derives(kind, *bases):
            return name
    if _is_hamt(kind):
        return "context"
    if slots.type_name(kind) == "ndarray":
        return "array"
    if is_autograd_node(thing):
        return "autograd node"
    return "instance"


def is_autograd_node(thing: object) -> bool:
    """Whether ``thing`` is the Python object of a node of an autograd graph."""
    kind = type(thing)
    return getattr(torch._C._functions, slots.type_name(kind), None) is kind or derives(kind, torch._C._FunctionBase)


def length(thing: object) -> int:
    """Items in a container, -1 for anything else."""
    for base, count in (*CONTAINERS, (tuple, tuple.__len__), (frozenset, frozenset.__len__)):
        if derives(type(thing), base):
            return count(thing)
    if type(thing) is CACHE:
        return thing.cache_info().currsize
    return -1


def bound(thing: object) -> int:
    """The most items a container will ever have, as it says itself; -1 when nothing bounds it."""
    kind = type(thing)
    if derives(kind, collections.deque):
        most = collections.deque.maxlen.__get__(thing)
        return -1 if most is None else int(most)
    if kind is CACHE:
        most = thing.cache_info().maxsize  # type: ignore[attr-defined]
        return -1 if most is None else int(most)
    if derives(kind, queue.Queue, asyncio.Queue):
        most = instance_dict(thing).get("maxsize", instance_dict(thing).get("_maxsize", 0))
        return most if type(most) is int and most > 0 else -1
    return -1


def describe(thing: object, edge: Edge) -> Link:
    """The object at the end of ``edge`` in words."""
    what = role(thing)
    file, line, function = _place(thing, what)
    return Link(
        edge.kind,
        edge.text,
        _display_type(thing),
        what,
        _detail(thing, what),
        file,
        line,
        function,
        length(thing),
        bound(thing),
    )


def _display_type(thing: object) -> str:
    if type(thing) is Storage:
        return "storage"
    return slots.qualified_name(type(thing))


def _detail(thing: Any, what: str) -> str:
    if what == "tensor":
        return tensor_detail(thing)
    if what == "storage":
        return f"{thing.bytes} bytes on {thing.device}"
    if what == "array":
        return f"{thing.dtype} {tuple(thing.shape)}"
    if what in ("function", "method", "class", "frame", "generator"):
        return _place(thing, what)[2]
    most = bound(thing)
    items = length(thing)
    if items < 0:
        return ""
    return f"{items:,} items" + (f", at most {most:,}" if most >= 0 else "")


def tensor_detail(tensor: torch.Tensor) -> str:
    """Type, shape and device of a tensor."""
    with slots.unwatched():
        kind = str(TensorSlots.dtype(tensor)).removeprefix("torch.")
        device = TensorSlots.device(tensor)
        place = "" if device.type == "cpu" else f" {device}"
        return f"{kind} {tuple(TensorSlots.shape(tensor))}{place}"


def _place(thing: Any, what: str) -> tuple[str, int, str]:
    """File, first line and qualified name of the code that belongs to an object."""
    if what == "method":
        thing = thing.__func__
        what = "function"
    if what == "partial":
        thing, what = thing.func, "function"
    if what == "lru_cache":
        thing, what = instance_dict(thing).get("__wrapped__"), "function"
    code = None
    if what == "function":
        code = getattr(thing, "__code__", None) if type(thing) is types.FunctionType else None
    elif what == "frame":
        code = thing.f_code
    elif what == "generator":
        code = next(
            getattr(thing, name) for name in ("gi_code", "cr_code", "ag_code") if hasattr(type(thing), name)
        )
    if code is not None:
        return code.co_filename, code.co_firstlineno, getattr(code, "co_qualname", code.co_name)
    kind = thing if what == "class" else type(thing)
    if what in ("class", "instance", "module", "optimizer", "exception", "thread", "autograd function"):
        return module_file(slots.type_module(kind)), 0, slots.qualified_name(kind)
    return "", 0, ""


# --------------------------------------------------------------------------------------------------------------
# How one object refers to another


def label(heap: Heap, before: int, source: int, target: int) -> Edge:
    """The reference ``source -> target``; ``before`` is the node that leads to ``source``, -1 at a root."""
    thing, child = heap.objects[source], heap.objects[target]
    hidden = heap.labels.get((source, target))
    if hidden == CALLS:
        return Edge("calls", "")
    if source in heap.frames:
        return Edge("local", hidden or "?")
    if hidden:
        return _hidden_edge(hidden)
    owner = heap.objects[before] if before >= 0 else None
    for base, name in _NAMERS:
        if derives(type(thing), base):
            edge = name(thing, child, owner)
            if edge is not None:
                return edge
    return _attribute(thing, child) or _by_type(child) or Edge("other", "")


def _hidden_edge(text: str) -> Edge:
    if text in (".grad", "._base"):
        return Edge(text.lstrip("._"), text)
    if text in ("hooks", "pack hook"):
        return Edge(text, ".hooks" if text == "hooks" else "")
    if text.startswith("saved"):
        return Edge("saved", f".{text.replace(' ', '_')}")
    return Edge(
        {".grad_fn": "grad_fn", ".base": "base", "[*]": "index"}.get(text, text),
        text if text[0] in ".[" else "",
    )


def is_attribute_dict(owner: object, namespace: object) -> bool:
    """Whether ``namespace`` is where ``owner`` keeps its attributes."""
    if owner is None:
        return False
    if derives(type(owner), type):
        return True
    if derives(type(owner), types.ModuleType):
        return slots.module_dict(owner) is namespace
    return type(namespace) is dict and instance_dict(owner) is namespace


def attribute_text(name: object) -> str:
    """``.name``, or ``[name]`` where a dot cannot be written."""
    return f".{name}" if type(name) is str and name.isidentifier() else f"[{key_text(name)}]"


def key_text(key: object) -> str:
    """A key as it is written, when it is short and plain; else the name of its type."""
    if type(key) is str:
        return repr(key) if len(key) <= 40 else "*"
    if slots.is_exactly(key, int, bool, float, type(None)):
        return repr(key)
    return slots.qualified_name(type(key))


def _in_tuple(thing: tuple[Any, ...], child: object, owner: object) -> Edge | None:
    fields = slots.type_dict(type(thing)).get("_fields")
    for position, value in enumerate(tuple.__iter__(thing)):
        if value is child:
            if type(owner) is types.FunctionType and owner.__closure__ is thing:
                return Edge("closure", f"[{owner.__code__.co_freevars[position]}]")
            if type(fields) is tuple and len(fields) > position:
                return Edge("field", f".{fields[position]}")
            return Edge("field", f"[{position}]")
    return None


def _in_set(thing: Any, child: object, owner: object) -> Edge | None:
    return Edge("element", "[*]")


def _in_function(thing: types.FunctionType, child: object, owner: object) -> Edge | None:
    for name in ("__closure__", "__defaults__", "__kwdefaults__", "__dict__", "__annotations__", "__code__"):
        if getattr(thing, name) is child:
            return Edge("namespace", "") if name == "__dict__" else Edge(name.strip("_"), f".{name}")
    return None


def _in_method(thing: types.MethodType, child: object, owner: object) -> Edge | None:
    return Edge("self", ".__self__") if thing.__self__ is child else Edge("func", ".__func__")


def _in_cell(thing: types.CellType, child: object, owner: object) -> Edge | None:
    return Edge("content", "")


def _in_partial(thing: Any, child: object, owner: object) -> Edge | None:
    for name in ("func", "args", "keywords"):
        if getattr(thing, name) is child:
            return Edge("partial", f".{name}")
    return None


def _in_cache(thing: Any, child: object, owner: object) -> Edge | None:
    namespace = instance_dict(thing)
    if child is namespace:
        return Edge("namespace", "")
    if any(child is value for value in namespace.values()):
        return Edge("attribute", ".__wrapped__")
    return Edge("cached", " (lru_cache)")


def _in_traceback(thing: types.TracebackType, child: object, owner: object) -> Edge | None:
    return Edge("frame", ".tb_frame") if thing.tb_frame is child else Edge("traceback", ".tb_next")


def _in_exception(thing: BaseException, child: object, owner: object) -> Edge | None:
    for name in ("__traceback__", "__cause__", "__context__", "args"):
        if BaseException.__dict__[name].__get__(thing) is child:
            return Edge(name.strip("_"), f".{name}")
    return None


def _in_frame(thing: types.FrameType, child: object, owner: object) -> Edge | None:
    # A variable that an inner function uses too lies in a cell.
    wanted = _content(child) if type(child) is types.CellType else child
    for name, value in slots.local_variables(thing, listed=1).items():
        if value is wanted:
            return Edge("local", name)
    return Edge("local", "?") if not derives(type(child), types.FrameType) else Edge("caller", ".f_back")


def _content(cell: types.CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # empty
        return cell


def _in_generator(thing: Any, child: object, owner: object) -> Edge | None:
    for attribute in ("gi_frame", "cr_frame", "ag_frame"):
        if hasattr(type(thing), attribute):
            frame = getattr(thing, attribute)
            if frame is child:
                return Edge("frame", "")
            return _in_frame(frame, child, owner) if frame is not None else None
    return None


def _in_class(thing: type, child: object, owner: object) -> Edge | None:
    if type(child) is dict:
        return Edge("namespace", "")
    for name in ("__bases__", "__mro__"):
        if type.__dict__[name].__get__(thing) is child:
            return Edge("base class", f".{name}")
    return None


def _in_context(thing: contextvars.Context, child: object, owner: object) -> Edge | None:
    return Edge("context", "")


def _in_tensor(thing: torch.Tensor, child: object, owner: object) -> Edge | None:
    if child is instance_dict(thing):
        return Edge("namespace", "")
    if derives(type(child), dict):
        return Edge("hooks", "._backward_hooks")
    return None


def _in_iterator(thing: Any, child: object, owner: object) -> Edge | None:
    return Edge("saved items" if type(child) is list else "source", "")


def _attribute(thing: object, child: object) -> Edge | None:
    """An attribute that lies in the object itself, in its dict or in a slot."""
    namespace = instance_dict(thing)
    if child is namespace:
        return Edge("namespace", "")
    for name, value in namespace.items():
        if value is child:
            return Edge("attribute", attribute_text(name))
    for kind in slots.mro(type(thing)):
        for name, descriptor in slots.type_dict(kind).items():
            if type(descriptor) is types.MemberDescriptorType:
                try:
                    if descriptor.__get__(thing) is child:
                        return Edge("attribute", f".{name}")
                except AttributeError:
                    continue
    return None


def _by_type(child: object) -> Edge | None:
    return Edge("type", ".__class__") if derives(type(child), type) else None


_NAMERS: tuple[tuple[type, Callable[[Any, object, object], Edge | None]], ...] = (
    (tuple, _in_tuple),
    (set, _in_set),
    (frozenset, _in_set),
    (types.FunctionType, _in_function),
    (types.MethodType, _in_method),
    (types.CellType, _in_cell),
    (functools.partial, _in_partial),
    (CACHE, _in_cache),
    (types.TracebackType, _in_traceback),
    (BaseException, _in_exception),
    (types.FrameType, _in_frame),
    (types.GeneratorType, _in_generator),
    (types.CoroutineType, _in_generator),
    (types.AsyncGeneratorType, _in_generator),
    (type, _in_class),
    (contextvars.Context, _in_context),
    (torch.Tensor, _in_tensor),
    *((kind, _in_iterator) for kind in ITERATORS),
)
