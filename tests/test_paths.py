"""Who holds an object is told as a person would write it."""

from __future__ import annotations

import asyncio
import collections
import contextvars
import functools
import gc
import itertools
import queue
import re
import sys
import threading
import types
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch

from leakhunter.heap import graph, labels, paths, roots
from leakhunter.heap.labels import Edge, Link

PRELUDE = """
import collections, contextvars, dataclasses, functools, itertools, queue, threading, types, weakref
from concurrent.futures import Future
import numpy as np
import torch
from torch import nn

class Box:
    pass
"""

# What a program does with the tensor that new() makes, and how the way to it is written. Names are used once.
HELD = {
    "a_name = new()": "a_name",
    "a_list = [0, new()]": "a_list[*]",
    "a_nest = [[new()]]": "a_nest[*][*]",
    "a_tuple = (0, new())": "a_tuple[1]",
    "a_dict = {'key': new()}": "a_dict['key']",
    "by_number = {7: new()}": "by_number[*]",
    "by_pair = {(1, 'a'): new()}": "by_pair[*]",
    "records = [{'loss': new()}]": "records[*]['loss']",
    "of_lists = {'train': [new()]}": "of_lists['train'][*]",
    "long_key = {'k' * 60: new()}": "long_key[*]",
    "a_default = collections.defaultdict(list); a_default['run'].append(new())": "a_default['run'][*]",
    "an_order = collections.OrderedDict(first=new())": "an_order['first']",
    "a_set = {new()}": "a_set[*]",
    "a_frozen = frozenset([new()])": "a_frozen[*]",
    "a_deque = collections.deque([new()])": "a_deque[*]",
    "a_chain = collections.ChainMap({'x': new()})": "a_chain.maps[*]['x']",
    "a_record = collections.namedtuple('Record', 'step loss')(1, new())": "a_record.loss",
    "a_key = {new(): 1}": "a_key",
    "a_space = types.SimpleNamespace(item=new())": "a_space.item",
    "a_view = types.MappingProxyType({'x': new()})": "a_view['x']",
    "class UserList(list): pass\na_subclass = UserList([new()])": "a_subclass[*]",
    "class UserDict(dict): pass\na_subdict = UserDict(x=new())": "a_subdict['x']",
    "a_box = Box(); a_box.item = new()": "a_box.item",
    "a_trainer = Box(); a_trainer.history = [{'loss': new()}]": "a_trainer.history[*]['loss']",
    "a_parent = Box(); a_parent.child = Box(); a_parent.child.item = new()": "a_parent.child.item",
    "odd_name = Box(); setattr(odd_name, 'not a name', new())": "odd_name['not a name']",
    "class Slots:\n    __slots__ = ('item',)\na_slot = Slots(); a_slot.item = new()": "a_slot.item",
    "class Sub(Slots):\n    pass\na_base_slot = Sub(); a_base_slot.item = new()": "a_base_slot.item",
    "@dataclasses.dataclass\nclass Data:\n    item: object\na_data = Data(new())": "a_data.item",
    "@dataclasses.dataclass(slots=True)\nclass Slim:\n    item: object\na_slim = Slim(new())": "a_slim.item",
    "class Holder:\n    shared = new()": "Holder.shared",
    "class Registry:\n    entries = [new()]": "Registry.entries[*]",
    "class Outer:\n    class Inner:\n        item = new()": "Outer.Inner.item",
    "class Prop:\n    value = property(lambda self: self._value)\n"
    "a_prop = Prop(); a_prop._value = new()": "a_prop._value",
    "class Once:\n    @functools.cached_property\n    def item(self): return new()\n"
    "a_once = Once(); a_once.item": "a_once.item",
    "class Private:\n    def __init__(self): self.__item = new()\n"
    "a_private = Private()": "a_private._Private__item",
    "def a_function(): pass\na_function.cache = new()": "a_function.cache",
    "def with_default(x=new()): pass": "with_default.__defaults__[0]",
    "def with_list(x=[new()]): pass": "with_list.__defaults__[0][*]",
    "def with_keyword(*, x=new()): pass": "with_keyword.__kwdefaults__['x']",
    "def closing(item):\n    return lambda: item\na_closure = closing(new())": "a_closure.__closure__[item]",
    "def counting():\n    seen = [new()]\n    def inner(): return seen\n    return inner\n"
    "a_counter = counting()": "a_counter.__closure__[seen][*]",
    "class Acts:\n    def act(self): pass\nacting = Acts(); acting.item = new()\n"
    "a_method = acting.act; del acting": "a_method.__self__.item",
    "a_bound = [new()].append": re.compile(r"^a_bound\b.*\[\*\]$"),
    "a_partial = functools.partial(print, new())": "a_partial.args[0]",
    "a_keyword = functools.partial(print, end=new())": "a_keyword.keywords['end']",
    "@functools.lru_cache\ndef a_cache(x): return new()\na_cache(1)": "a_cache (lru_cache)",
    "@functools.lru_cache(maxsize=None)\ndef endless(x): return [new()]\n"
    "endless(1)": "endless (lru_cache)[*][*]",
    "class Cached:\n    @functools.lru_cache\n    def get(self): return 1\none = Cached(); one.item = new()\n"
    "one.get(); del one": "Cached.get (lru_cache)[0].item",
    "def running():\n    mine = new()\n    yield\n    mine.add_(1)\n"
    "a_generator = running(); next(a_generator)": "mine",
    "def outer():\n    yield from running()\na_delegate = outer(); next(a_delegate)": "mine",
    "@types.coroutine\ndef pause(): yield\n"
    "async def work():\n    mine = new()\n    await pause()\n    mine.add_(1)\n"
    "a_coroutine = work(); a_coroutine.send(None)": "mine",
    "a_cycle = itertools.cycle([new()]); next(a_cycle)": re.compile(r"^a_cycle\b"),
    "a_queue = queue.Queue(); a_queue.put(new())": "a_queue.queue[*]",
    "a_simple_queue = queue.SimpleQueue(); a_simple_queue.put(new())": (
        re.compile(r"^a_simple_queue(\[\*\])?$")
    ),
    "a_future = Future(); a_future.set_result(new())": "a_future._result",
    "a_local = threading.local(); a_local.item = new()": re.compile(r"^a_local\b.*item"),
    "a_context = contextvars.Context(); a_context.run(contextvars.ContextVar('v').set, new())": "a_context",
    "an_error = ValueError(new())": "an_error.args[0]",
    "def fail():\n    mine = new()\n    raise ValueError\n"
    "try: fail()\nexcept ValueError as error: kept_error = error": "mine",
    "an_array = np.empty(1, object); an_array[0] = new()": "an_array[*]",
    "a_finalizer = weakref.finalize(Box, print, new())": re.compile(r"finalize"),
    # torch
    "net = nn.Linear(2, 2); net.weight = mark(nn.Parameter(torch.zeros(2)))": "net.weight",
    "deep = nn.Sequential(nn.Sequential(nn.Identity())); deep[0][0].item = new()": "deep[0][0].item",
    "named = nn.Module(); named.head = nn.Module(); named.head.item = new()": "named.head.item",
    "buffered = nn.Module(); buffered.register_buffer('mean', new())": "buffered.mean",
    "listed = nn.ModuleList([nn.Identity()]); listed[0].item = new()": "listed[0].item",
    "a_leaf = torch.ones(2, requires_grad=True); a_leaf.grad = new(2)": "a_leaf.grad",
    "a_part = new()[0:1]": "a_part._base",
    "an_output = torch.ones(4, requires_grad=True) * new()": re.compile(r"^an_output\.grad_fn\.saved_other$"),
    "a_tagged = torch.zeros(1); a_tagged.item_ = new()": "a_tagged.item_",
    "p = nn.Parameter(torch.zeros(4)); an_optimizer = torch.optim.SGD([p])\n"
    "an_optimizer.state[p]['momentum'] = new()": "an_optimizer.state[*]['momentum']",
    "hooked = nn.Identity()\ndef hooking(x): return lambda *a: x\n"
    "hooked.register_forward_hook(hooking(new()))": "hooked._forward_hooks[*].__closure__[x]",
    "a_hooked = torch.ones(2, requires_grad=True); a_hooked.register_hook(hooking(new()))": (
        "a_hooked._backward_hooks[*].__closure__[x]"
    ),
}

# Nothing holds what only these lead to.
WEAK = [
    "a_reference = weakref.ref(new())",
    "a_weak_set = weakref.WeakSet([new()])",
    "a_weak_value = weakref.WeakValueDictionary(x=new())",
    "a_weak_list = [weakref.ref(new())]",
    "a_proxy = weakref.proxy(new())",
    "a_short_life = new(); del a_short_life",
]


@dataclass
class Seen:
    """The way to the tensor of each statement, in words."""

    texts: dict[str, str]
    links: dict[str, list[Link]]
    alive: dict[str, bool]
    kinds: dict[str, str]


def program(folder: Any, name: str) -> types.ModuleType:
    """An empty module of the user's."""
    module = types.ModuleType(name)
    module.__file__ = str(folder / f"{name}.py")
    sys.modules[name] = module
    return module


@pytest.fixture(scope="module")
def seen(tmp_path_factory) -> Iterator[Seen]:
    module = program(tmp_path_factory.mktemp("zoo"), "zoo")
    made: dict[str, weakref.ref[torch.Tensor]] = {}
    current = ""

    def mark(tensor: torch.Tensor) -> torch.Tensor:
        made[current] = weakref.ref(tensor)
        return tensor

    def new(size: int = 4) -> torch.Tensor:
        return mark(torch.ones(size))

    scope = module.__dict__
    exec(compile(PRELUDE, module.__file__, "exec"), scope)
    scope.update(new=new, mark=mark)
    for code in [*HELD, *WEAK]:
        current = code
        exec(compile(code, module.__file__, "exec"), scope)
    del scope["new"], scope["mark"]
    found = describe({code: [reference] for code, reference in made.items()})
    del sys.modules["zoo"]
    scope.clear()
    return found


def describe(wanted: dict[str, list[Any]]) -> Seen:
    """The way to what each weak reference leads to."""
    found = Seen({}, {}, {}, {})
    gc.collect()
    with graph.captured() as heap:
        ways = paths.Paths(heap, roots.outside(heap))
        for code, (reference,) in wanted.items():
            address = _address(reference)
            found.alive[code] = address != 0
            path = ways.to(heap.find_id(address)) if address else None
            if path is not None:
                links = ways.links(path)
                found.links[code] = links
                found.texts[code] = paths.write(paths.generalise(links).links)
                found.kinds[code] = paths.kind_of(links)
    return found


def _address(reference: Any) -> int:
    thing = reference()
    return 0 if thing is None else id(thing)


def written(seen: Seen, code: str) -> str:
    return seen.texts[code].removeprefix("zoo.")


@pytest.mark.parametrize("code", HELD)
def test_the_way_to_an_object_reads_as_it_is_written(code, seen):
    text, expected = written(seen, code), HELD[code]
    assert re.search(expected, text) if isinstance(expected, re.Pattern) else text == expected


@pytest.mark.parametrize("code", HELD)
def test_the_way_begins_with_a_name_of_the_program(code, seen):
    assert seen.kinds[code] in ("module global", "local")
    assert "?" not in seen.texts[code]
    assert "0x" not in seen.texts[code]


@pytest.mark.parametrize("code", WEAK)
def test_weak_references_hold_nothing(code, seen):
    assert not seen.alive[code]
    assert code not in seen.texts


# ----------------------------------------------------------------------------------------------------------
# Which of several ways


def in_a_function(kept: list[weakref.ref[Any]]) -> Seen:
    mine = [{"item": torch.zeros(3)}]
    kept.append(weakref.ref(mine[0]["item"]))
    return describe({"item": kept})


def test_a_local_of_a_running_function_is_named():
    found = in_a_function([])
    assert found.texts["item"] == "mine[*]['item']"
    assert found.kinds["item"] == "local"
    assert found.links["item"][0].function.endswith("in_a_function")


def test_a_local_that_an_inner_function_shares_is_named():
    shared = [torch.zeros(3)]
    reference = weakref.ref(shared[0])

    def inner():
        return shared

    assert describe({"item": [reference]}).texts["item"] == "shared[*]"
    assert inner() is shared


def test_a_local_of_another_thread_is_named_with_its_thread():
    kept: list[Any] = []
    ready, done = threading.Event(), threading.Event()

    def work():
        mine = [torch.zeros(3)]
        kept.append(weakref.ref(mine[0]))
        ready.set()
        done.wait()

    thread = threading.Thread(target=work, name="loader")
    thread.start()
    try:
        ready.wait()
        found = describe({"item": kept})
    finally:
        done.set()
        thread.join()
    assert found.texts["item"] == "mine[*]"
    assert found.links["item"][0].detail == "loader"


def test_a_global_is_preferred_to_a_local_of_the_same_length(tmp_path):
    module = program(tmp_path, "preferred")
    mine = module.kept = [torch.zeros(3)]
    reference = weakref.ref(mine[0])
    found = describe({"item": [reference]})
    del sys.modules["preferred"]
    assert found.texts["item"] == "preferred.kept[*]"


def test_a_global_of_the_program_is_preferred_to_one_of_a_library(tmp_path, monkeypatch):
    module = program(tmp_path, "own")
    tensor = torch.zeros(3)
    module.box = types.ModuleType("none").__dict__
    module.box["deep"] = [[tensor]]
    monkeypatch.setattr(threading, "near", tensor, raising=False)
    reference = weakref.ref(tensor)
    del tensor
    found = describe({"item": [reference]})
    del sys.modules["own"]
    assert found.texts["item"].startswith("own.box")


def test_a_global_of_a_library_is_named_when_nothing_else_holds_an_object(monkeypatch):
    monkeypatch.setattr(collections, "kept_by_test", [torch.zeros(3)], raising=False)
    reference = weakref.ref(collections.kept_by_test[0])
    assert describe({"item": [reference]}).texts["item"] == "collections.kept_by_test[*]"


def test_a_tensor_that_cpp_alone_holds_is_outside_python():
    future = torch.futures.Future()
    future.set_result(torch.zeros(3))
    reference = weakref.ref(future.value())
    found = describe({"item": [reference]})
    assert found.kinds["item"] == "outside Python"
    assert found.links["item"][0].role == "tensor"


def test_ways_go_round_autograd_graphs_where_they_can():
    """The parameter is in a list and in the graph of a loss; the list is what a reader knows."""
    parameters = [[[[torch.ones(3, requires_grad=True)]]]]
    loss = parameters[0][0][0][0] * 2
    reference = weakref.ref(parameters[0][0][0][0])
    assert describe({"item": [reference]}).texts["item"].startswith("parameters[*]")
    assert loss.requires_grad


def test_what_only_a_graph_holds_is_found_through_the_graph():
    def make():
        x = torch.ones(3, requires_grad=True)
        return weakref.ref(x), x.cos()

    reference, loss = make()
    assert describe({"item": [reference]}).texts["item"] == "loss.grad_fn.saved_self"
    assert loss.requires_grad


def test_what_nothing_holds_has_no_way():
    gc.disable()
    try:
        ring: list[Any] = [torch.zeros(3)]
        ring.append(ring)
        address = id(ring[0])
        del ring
        with graph.captured() as heap:
            ways = paths.Paths(heap, roots.outside(heap))
            assert heap.find_id(address) >= 0
            assert ways.to(heap.find_id(address)) is None
    finally:
        gc.enable()


# ----------------------------------------------------------------------------------------------------------
# From links to words


def link(edge: str, text: str, kind: str = "dict", role: str = "dict", **more: Any) -> Link:
    return Link(edge, text, kind, role, **more)


MODULE = link("root", "__main__", "module", "python module")
TRAIN = link("root", "train", "module", "python module")
FRAME = link("root", "", "frame", "frame", function="step")
INDEX = link("index", "[*]", "Tensor", "tensor")
NEXT = link("attribute", ".next", "Node", "instance")

WRITTEN = [
    ([MODULE, link("global", "kept"), INDEX], "kept[*]", "module global"),
    ([TRAIN, link("global", "kept"), INDEX], "train.kept[*]", "module global"),
    ([FRAME, link("local", "kept"), INDEX], "kept[*]", "local"),
    ([FRAME, link("local", "self", "Loop", "instance"), link("attribute", ".out")], "self.out", "local"),
    ([FRAME, link("local", "f", "function", "function"), link("closure", "[x]")], "f[x]", "local"),
    ([MODULE, link("global", "b"), link("namespace", ""), link("attribute", ".a")], "b.a", "module global"),
    ([link("outside", "", "Tensor", "tensor")], "Tensor", "outside Python"),
    ([link("outside", "", "dict", "dict"), link("key", "['a']")], "dict['a']", "outside Python"),
    ([link("cycle", "", "Box", "instance"), link("attribute", ".child")], "Box.child", "cycle"),
    ([link("cycle", "", "FBackward", "autograd function"), link("attribute", ".out")], "ctx.out", "cycle"),
    ([link("root", "native", "storage", "native")], "native", "native"),
]


@pytest.mark.parametrize(("links", "text", "kind"), WRITTEN, ids=[text for _, text, _ in WRITTEN])
def test_links_are_written_from_the_scope_on(links, text, kind):
    assert paths.write(links) == text
    assert paths.kind_of(links) == kind


def test_a_way_through_a_generator_is_told_from_the_generator_on():
    generator = link("global", "running", "generator", "generator", function="produce")
    links = [MODULE, generator, link("local", "mine"), INDEX]
    assert paths.write(links) == "mine[*]"
    assert paths.kind_of(links) == "local"


def test_a_way_through_one_of_many_generators_is_told_from_the_container_on():
    generator = link("index", "[*]", "generator", "generator", function="produce")
    links = [MODULE, link("global", "pool"), generator, link("local", "mine")]
    assert paths.write(links) == "pool[*] -> mine"


@pytest.mark.parametrize("length", [4, 5, 40, 4000])
def test_a_chain_is_written_once_whatever_its_length(length):
    head = link("global", "head", "Node", "instance")
    route = paths.generalise([MODULE, head, *[NEXT] * length])
    assert route.repeats
    assert route.key == paths.generalise([MODULE, head, *[NEXT] * 3]).key


@pytest.mark.parametrize("span", [1, 2, 3, 4])
def test_a_chain_of_several_references_a_link_is_written_once(span):
    ring = [replace(NEXT, text=f".part{number}") for number in range(span)]
    route = paths.generalise([MODULE, link("global", "head"), *ring * 6])
    assert route.repeats
    assert len(route.links) <= 2 + 2 * span


def test_different_references_in_a_row_are_no_chain():
    parts = [replace(NEXT, text=f".part{number}") for number in range(9)]
    links = [MODULE, link("global", "a"), *parts]
    route = paths.generalise(links)
    assert not route.repeats
    assert list(route.links) == links


@pytest.mark.parametrize(
    ("one", "general"),
    [
        (link("index", "[3]"), "[*]"),
        (link("element", "[*]"), "[*]"),
        (link("key", "['a']"), "[*]"),
        (link("attribute", ".step_17"), ".*"),
        (link("global", "loss_17"), "*"),
    ],
)
def test_one_of_many_is_written_as_a_star(one, general):
    route = paths.generalise([MODULE, one], varying={1})
    assert route.links[1].text == general


def test_keys_that_do_not_vary_stay():
    assert paths.generalise([MODULE, link("key", "['a']")]).links[1].text == "['a']"


@pytest.mark.parametrize("edge", sorted(paths.PLUMBING))
def test_plumbing_is_no_part_of_a_signature(edge):
    plain = [MODULE, link("global", "box"), link("attribute", ".a")]
    assert paths.key_of([*plain[:2], link(edge, ""), plain[2]]) == paths.key_of(plain)


def test_the_way_to_the_same_leak_reads_the_same_in_every_run():
    texts = set()
    for before in (0, 5):
        kept = [*range(before), torch.zeros(3 + before)]
        reference = weakref.ref(kept[-1])
        texts.add(describe({"item": [reference]}).texts["item"])
    assert texts == {"kept[*]"}


# ----------------------------------------------------------------------------------------------------------
# What an object is called


class Plain:
    """An object."""


class Words(dict):
    """A dict."""


BOUNDS = [
    (collections.deque([1], maxlen=3), 3, 1),
    (collections.deque([1]), -1, 1),
    ([1, 2], -1, 2),
    ({1: 2}, -1, 1),
    ((1, 2, 3), -1, 3),
    (frozenset([1]), -1, 1),
    ({1, 2}, -1, 2),
    (queue.Queue(5), 5, -1),
    (queue.Queue(), -1, -1),
    (asyncio.Queue(4), 4, -1),
    (functools.lru_cache(maxsize=8)(len), 8, 0),
    (functools.lru_cache(maxsize=None)(len), -1, 0),
    (Plain(), -1, -1),
    ("text", -1, -1),
]


@pytest.mark.parametrize(("thing", "most", "items"), BOUNDS, ids=lambda value: type(value).__name__)
def test_a_container_says_how_many_items_it_has_and_may_have(thing, most, items):
    described = labels.describe(thing, Edge("root", ""))
    assert (described.bound, described.length) == (most, items)


ROLES = [
    (torch.zeros(1), "tensor"),
    (torch.nn.Parameter(torch.zeros(1)), "tensor"),
    (torch.nn.Identity(), "module"),
    (torch.optim.SGD([torch.zeros(1, requires_grad=True)]), "optimizer"),
    (sys, "python module"),
    (Plain, "class"),
    (Plain(), "instance"),
    (describe, "function"),
    ([].append, "instance"),
    (functools.partial(describe), "partial"),
    (functools.lru_cache(describe), "lru_cache"),
    ((number for number in ()), "generator"),
    (itertools.chain(), "iterator"),
    (contextvars.copy_context(), "context"),
    (threading.Thread(), "thread"),
    (queue.SimpleQueue(), "queue"),
    (weakref.ref(Plain), "weak"),
    (weakref.WeakValueDictionary(), "weak"),
    (collections.deque(), "deque"),
    (collections.defaultdict(list), "dict"),
    (Words(), "dict"),
    ([], "list"),
    (set(), "set"),
    ((), "tuple"),
    ("", "text"),
    (ValueError(), "exception"),
    (np.zeros(1), "array"),
    ((torch.ones(1, requires_grad=True) * 2).grad_fn, "autograd node"),
    (types.MethodType(describe, 1), "method"),
    (types.CellType(1), "cell"),
    (torch.profiler.profile(), "profiler"),
]


@pytest.mark.parametrize(("thing", "role"), ROLES, ids=[f"{type(t).__name__}-{r}" for t, r in ROLES])
def test_an_object_is_told_by_what_it_is(thing, role):
    assert labels.describe(thing, Edge("root", "")).role == role


@pytest.mark.parametrize(
    ("thing", "detail"),
    [
        (torch.zeros(2, 3), "float32 (2, 3)"),
        (torch.zeros(2, device="meta"), "float32 (2,) meta"),
        (np.zeros((2, 1)), "float64 (2, 1)"),
        ([1, 2], "2 items"),
        (collections.deque(maxlen=1000), "0 items, at most 1,000"),
        (Plain(), ""),
        (Plain, "Plain"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_object_is_told_with_its_size(thing, detail):
    assert labels.describe(thing, Edge("root", "")).detail == detail


KEYS = [("a", "'a'"), (3, "3"), (None, "None"), (1.5, "1.5"), ("k" * 41, "*"), ((1,), "tuple")]


@pytest.mark.parametrize(("key", "text"), [*KEYS, (Plain(), "Plain")])
def test_a_key_is_written_when_it_is_short_and_plain(key, text):
    assert labels.key_text(key) == text


CODE = [describe, functools.partial(describe), types.MethodType(describe, 1)]


@pytest.mark.parametrize("thing", CODE, ids=lambda thing: type(thing).__name__)
def test_code_is_told_with_its_place(thing):
    described = labels.describe(thing, Edge("root", ""))
    assert described.file == __file__
    assert described.line == describe.__code__.co_firstlineno
    assert described.function == "describe"
