"""The census: what lives at a quiet point is seen and not kept, and the interpreter is as before."""

from __future__ import annotations

import atexit
import collections
import gc
import queue
import sys
import threading
import types
import weakref
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from torch import nn

from leakhunter.probe import census

pytestmark = pytest.mark.usefixtures("settled")


def nothing(storages: frozenset[int] = frozenset()) -> census.Census:
    """A census that saw only these storages."""
    none = np.zeros(0, np.int64)
    return census.Census(0, none, np.zeros(1, np.int64), np.zeros(1, np.int64), none.reshape(-1, 2), storages)


def marked() -> frozenset[int]:
    marks = census.mark(nothing())
    found = marks.living()
    marks.release()
    return found


LOOKS = {"take": lambda: census.take(1), "mark": marked}


def address(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


class Sub(torch.Tensor):
    """A subclass that counts what torch asks of it."""

    asked: list = []

    @classmethod
    def __torch_function__(cls, func, kinds, args=(), kwargs=None):
        cls.asked.append(func)
        return super().__torch_function__(func, kinds, args, kwargs or {})


TENSORS = {
    "tensor": lambda: torch.ones(3),
    "parameter": lambda: nn.Parameter(torch.ones(3)),
    "subclass": lambda: torch.ones(3).as_subclass(Sub),
    "result with a graph": lambda: torch.ones(3, requires_grad=True) * 2,
    "view": lambda: torch.ones(3, 4)[1:, 2],
    "empty": lambda: torch.empty(0),
    "from numpy": lambda: torch.from_numpy(np.ones(3)),
    "shared": lambda: torch.ones(3).share_memory_(),
}


@pytest.mark.parametrize("look", [lambda: census.take(1).storages, marked])
def test_the_storage_of_every_tensor_object_is_seen(look):
    kept = {name: make() for name, make in TENSORS.items()}
    with torch._C.DisableTorchFunctionSubclass():
        expected = {address(tensor): name for name, tensor in kept.items()}
    Sub.asked.clear()
    seen = look()
    assert [name for place, name in expected.items() if place not in seen] == []
    assert not Sub.asked


def unreadable() -> list:
    """Tensors without a storage of their own that could be read."""
    kept = [
        torch.eye(3).to_sparse(),
        torch.eye(3).to_sparse_csr(),
        torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
        torch.ones(3, device="meta"),
        nn.parameter.UninitializedParameter(),
    ]
    if torch.backends.mkldnn.is_available():
        kept.append(torch.ones(3).to_mkldnn())
    return kept


def test_tensors_without_an_ordinary_storage_are_no_obstacle():
    kept = [unreadable(), torch.ones(3)]
    assert address(kept[1]) in census.take(1).storages


def test_tensors_inside_a_transform_are_no_obstacle():
    kept, seen = torch.ones(3), []

    def look(x):
        y = x * 2
        seen.append(census.take(1).storages)
        return y

    torch.func.vmap(torch.func.grad(lambda x: look(x).sum()))(torch.ones(2, 3))
    assert address(kept) in seen[0]


def test_a_mark_tells_those_that_live_on_from_the_dead_and_the_younger():
    old, dead = torch.ones(3), torch.ones(3)
    of_old, of_dead = address(old), address(dead)
    marks = census.mark(nothing())
    assert {of_old, of_dead} <= marks.living()
    del dead
    young = [torch.ones(3) for _ in range(100)]
    assert of_old in marks.living()
    # No younger storage has been given the address of the dead one.
    assert of_dead not in marks.living()
    assert marks.living().isdisjoint(address(tensor) for tensor in young)
    marks.release()
    assert not marks.living()


def test_known_storages_are_not_marked():
    first, second = torch.ones(3), torch.ones(3)
    marks = census.mark(nothing(frozenset([address(first)])))
    assert address(second) in marks.living()
    assert address(first) not in marks.living()
    marks.release()


def test_containers_that_have_gained_items_since_a_census_are_marked_with_their_length():
    longer, level, shorter = [1, [], {}], [[]], [[], []]
    counted = census.take(1)
    longer.append(4)
    del shorter[0]
    marks = census.mark(counted)
    assert marks.lengths[id(longer)] == 4
    assert id(level) not in marks.lengths
    assert id(shorter) not in marks.lengths
    marks.release()


def found(container: object, counted: census.Census) -> tuple[int, tuple[int, int]] | None:
    """Length and ends of a container in a census."""
    position = int(np.searchsorted(counted.container_ids, id(container)))
    if position == len(counted.container_ids) or counted.container_ids[position] != id(container):
        return None
    return int(counted.lengths[position]), tuple(counted.ends[position].tolist())


class OwnList(list):
    pass


class OwnDict(dict):
    pass


A, B, C = object(), object(), object()


def simple_queue() -> queue.SimpleQueue:
    filled: queue.SimpleQueue = queue.SimpleQueue()
    for item in (A, B, C):
        filled.put(item)
    return filled


CONTAINERS = {
    "list": (lambda: [A, B, C], (A, C)),
    "own list": (lambda: OwnList([A, B, C]), (A, C)),
    "deque": (lambda: collections.deque([A, B, C]), (A, C)),
    "dict": (lambda: {A: [], B: [], C: []}, (A, C)),
    "own dict": (lambda: OwnDict({A: [], B: [], C: []}), (A, C)),
    "ordered dict": (lambda: collections.OrderedDict({A: [], B: [], C: []}), (A, C)),
    "counter": (lambda: collections.Counter([A, B, C]), (A, C)),
    "untracked dict": (lambda: {"a": 1, "b": 2, "c": 3}, ("a", "c")),
    "set": (lambda: {A, B, C}, None),
    "simple queue": (simple_queue, None),
}


def test_containers_are_listed_with_their_length_and_their_ends():
    kept = {name: make() for name, (make, _) in CONTAINERS.items()}
    ends = {name: (id(ends[0]), id(ends[1])) if ends else (0, 0) for name, (_, ends) in CONTAINERS.items()}
    counted = census.take(1)
    assert {name: found(kept[name], counted) for name in kept} == {name: (3, ends[name]) for name in kept}


def test_an_empty_container_has_no_ends():
    kinds = [list, set, collections.deque, OwnList, OwnDict, queue.SimpleQueue]
    kept = [kind() for kind in kinds]
    counted = census.take(1)
    assert [found(container, counted) for container in kept] == [(0, (0, 0))] * len(kinds)


def test_a_container_that_grows_keeps_its_first_item():
    kept = [A]
    before = found(kept, census.take(1))
    kept += [B, C]
    after = found(kept, census.take(2))
    assert (before[0], after[0]) == (1, 3)
    assert before[1][0] == after[1][0] == id(A)
    assert after[1][1] == id(C)


class Node:
    """Something gc tracks."""


def test_ids_are_sorted_and_each_object_is_counted_once():
    kept = Node()
    ids = census.take(1).ids
    assert np.array_equal(ids, np.unique(ids))
    assert id(kept) in ids


def test_a_census_knows_the_step_it_was_taken_in():
    assert census.take(41).step == 41


def test_a_census_lists_what_lives_and_not_what_comes_later():
    before = census.take(1)
    kept = [Node() for _ in range(100)]
    after = census.take(2)
    new = set(after.ids.tolist()) - set(before.ids.tolist())
    assert sum(id(node) in new for node in kept) > 50


@pytest.mark.parametrize("look", LOOKS)
def test_a_look_keeps_nothing_alive(look):
    node, tensor = Node(), torch.ones(3)
    references = [weakref.ref(node), weakref.ref(tensor)]
    was_on = gc.isenabled()
    gc.disable()
    try:
        kept = LOOKS[look]()
        del node, tensor
        assert [reference() for reference in references] == [None, None]
        assert kept
    finally:
        if was_on:
            gc.enable()


@pytest.mark.parametrize("look", LOOKS)
def test_gc_is_off_meanwhile(look, monkeypatch):
    seen, types_of = [], census.types_of

    def look_around(*arguments):
        seen.append(gc.isenabled())
        return types_of(*arguments)

    monkeypatch.setattr(census, "types_of", look_around)
    with unusual(enabled=True, frozen=False):
        LOOKS[look]()
    assert seen == [False]


def test_threads_wait_while_items_are_counted(monkeypatch):
    seen, ends = set(), census._ends_of_all

    def look_around(*arguments):
        seen.add(sys.getswitchinterval())
        return ends(*arguments)

    monkeypatch.setattr(census, "_ends_of_all", look_around)
    census.take(1)
    assert seen == {1.0}


def test_the_switch_interval_does_not_drift():
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.0125)
    try:
        chosen = sys.getswitchinterval()
        for _ in range(5):
            with census.uninterrupted():
                pass
        assert sys.getswitchinterval() == chosen
    finally:
        sys.setswitchinterval(before)


def state() -> dict:
    return {
        "enabled": gc.isenabled(),
        "thresholds": gc.get_threshold(),
        "debug": gc.get_debug(),
        "interval": sys.getswitchinterval(),
        "frozen": gc.get_freeze_count(),
        "modes": torch._C._len_torch_dispatch_stack(),
    }


@contextmanager
def unusual(enabled: bool, frozen: bool):
    """Settings as a trainer may have chosen them."""
    before = state()
    gc.set_threshold(123_456, 7, 5)
    sys.setswitchinterval(0.25)
    (gc.enable if enabled else gc.disable)()
    if frozen:
        gc.freeze()
    try:
        yield
    finally:
        if frozen:
            gc.unfreeze()
        gc.set_threshold(*before["thresholds"])
        sys.setswitchinterval(before["interval"])
        (gc.enable if before["enabled"] else gc.disable)()


@pytest.mark.parametrize(
    ("look", "enabled", "frozen"),
    [
        ("take", True, False),
        ("take", False, True),
        ("mark", True, True),
        ("mark", False, False),
    ],
)
def test_the_settings_of_the_interpreter_are_as_before(look, enabled, frozen):
    with unusual(enabled, frozen):
        before = state()
        LOOKS[look]()
        assert state() == before


@pytest.mark.parametrize(
    ("name", "error"),
    [("tracked_objects", MemoryError), ("types_of", RuntimeError), ("_tensors", KeyboardInterrupt)],
)
@pytest.mark.parametrize("look", LOOKS)
def test_the_settings_are_as_before_also_after_an_error(look, name, error, monkeypatch):
    def fail(*arguments):
        raise error("injected")

    monkeypatch.setattr(census, name, fail)
    with unusual(enabled=True, frozen=False):
        before = state()
        with pytest.raises(error, match="injected"):
            LOOKS[look]()
        assert state() == before


def test_an_error_keeps_no_object_of_the_user(monkeypatch):
    def fail(*arguments):
        raise RuntimeError("injected")

    node = Node()
    reference = weakref.ref(node)
    monkeypatch.setattr(census, "counters", fail)
    with pytest.raises(RuntimeError) as caught:
        census.take(1)
    del node
    assert caught.value.__traceback__ is not None
    assert reference() is None


def test_uncollected_can_be_entered_again():
    with unusual(enabled=True, frozen=False):
        before = state()
        with census.uncollected():
            with census.uncollected():
                assert not gc.isenabled()
            assert not gc.isenabled()
        assert state() == before


class Lazy(types.ModuleType):
    """A module that would load something if anyone asked it."""

    asked: list = []

    def __getattribute__(self, name):
        Lazy.asked.append(name)
        return super().__getattribute__(name)

    def __getattr__(self, name):
        raise AssertionError(f"loaded for {name}")


@pytest.mark.parametrize("module", [sys, types.ModuleType("own"), Lazy("lazy")], ids=["sys", "own", "lazy"])
def test_a_module_is_walked_by_its_namespace_alone(module):
    Lazy.asked.clear()
    first, (namespace,), last = census.walkable([A, module, B])
    assert (first, last) == (A, B)
    assert namespace is types.ModuleType.__dict__["__dict__"].__get__(module)
    assert not Lazy.asked


def test_anything_but_a_module_is_walked_as_it_is():
    things = [Node(), [A], Node, len, torch.ones(3), nn.Linear(1, 1)]
    assert list(map(id, census.walkable(things))) == list(map(id, things))


class Asked(list):
    """Names of methods of the user that were run while ``watching``; each of them raises then."""

    watching = False

    @contextmanager
    def watch(self):
        self.watching = True
        try:
            yield
        finally:
            self.watching = False

    def hostile(self, base: type, *names: str) -> type:
        """A subclass whose methods ``names`` are never to be called."""

        def method(name):
            def run(this, *arguments):
                if self.watching:
                    self.append(name)
                    raise AssertionError(f"asked for {name}")
                return getattr(base, name)(this, *arguments)

            return run

        return type(f"Hostile{base.__name__}", (base,), {name: method(name) for name in names})


CONTAINER_METHODS = ("__len__", "__iter__", "__getitem__", "__contains__", "keys", "__reversed__")


@pytest.mark.parametrize("base", [list, dict, collections.deque, set, collections.OrderedDict])
def test_methods_of_containers_are_not_run(base):
    asked = Asked()
    names = [name for name in CONTAINER_METHODS if hasattr(base, name)]
    kept = [asked.hostile(base, *names)([(1, A), (2, B)])]
    with asked.watch():
        length = found(kept[0], census.take(1))
    assert length is not None
    assert length[0] == 2
    assert not asked


@pytest.mark.parametrize(
    ("look", "name"),
    [
        ("take", "__hash__"),
        ("take", "__eq__"),
        ("take", "__getattribute__"),
        ("take", "__instancecheck__"),
        ("mark", "__hash__"),
    ],
)
def test_methods_of_metaclasses_are_not_run(look, name):
    asked = Asked()
    names = {name, "__hash__"} if name == "__eq__" else {name}
    kept = [asked.hostile(type, *names)("Odd", (), {})()]
    with asked.watch():
        LOOKS[look]()
    assert not asked
    assert kept


def in_a_global(monkeypatch):
    module = types.ModuleType("frozen_module")
    module.kept = [torch.ones(3)]
    monkeypatch.setitem(sys.modules, "frozen_module", module)
    return module.kept


def in_an_attribute(monkeypatch):
    in_an_attribute.node = Node()
    in_an_attribute.node.kept = [torch.ones(3)]
    return in_an_attribute.node.kept


def in_a_closure(monkeypatch):
    kept = [torch.ones(3)]
    in_a_closure.function = lambda: kept
    return kept


def in_a_generator(monkeypatch):
    def generate():
        kept = [torch.ones(3)]
        yield kept
        yield kept

    in_a_generator.generator = generate()
    return next(in_a_generator.generator)


def test_frozen_objects_are_seen_again(monkeypatch):
    places = [in_a_global, in_an_attribute, in_a_closure, in_a_generator]
    containers, storages = {}, {}
    for place in places:
        kept = place(monkeypatch)
        containers[id(kept)], storages[address(kept[0])] = place.__name__, place.__name__
        del kept
    with unusual(enabled=True, frozen=True):
        counted, visible = census.take(1), marked()
    assert [name for place, name in containers.items() if place not in counted.container_ids] == []
    assert [name for place, name in storages.items() if place not in counted.storages & visible] == []


def test_a_frozen_list_in_a_local_variable_of_a_running_function_is_seen_again():
    kept = [torch.ones(3)]
    with unusual(enabled=True, frozen=True):
        counted = census.take(1)
    assert id(kept) in counted.container_ids
    assert address(kept[0]) in counted.storages


def test_each_frozen_object_is_listed_once_and_that_is_said():
    with unusual(enabled=False, frozen=True):
        objects, remarks = census.tracked_objects()
        ids = list(map(id, objects))
    assert len(ids) == len(set(ids))
    assert "gc.freeze()" in remarks[0]


def test_a_heap_that_is_not_frozen_has_no_remark():
    assert census.tracked_objects()[1] == []


def test_a_heap_too_large_is_looked_at_in_part_and_that_is_said(monkeypatch):
    monkeypatch.setattr(census, "MOST", 1000)
    objects, remarks = census.tracked_objects()
    assert len(objects) == 1000
    assert "only 1,000 were looked at" in remarks[0]


def test_functions_registered_for_the_exit_are_counted():
    def at_exit():
        pass

    before = census.counters()["atexit"]
    atexit.register(at_exit)
    try:
        assert census.take(1).counters["atexit"] == before + 1
    finally:
        atexit.unregister(at_exit)


def test_threads_that_run_are_counted():
    done = threading.Event()
    before = census.counters()["threads"]
    thread = threading.Thread(target=done.wait)
    thread.start()
    try:
        assert census.take(1).counters["threads"] == before + 1
    finally:
        done.set()
        thread.join()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_traced_functions_are_counted():
    before = census.counters()["jit functions"]
    torch.jit.trace(lambda x: x + x, (torch.ones(3),), check_trace=False)
    assert census.take(1).counters["jit functions"] > before


def test_containers_that_other_threads_fill_meanwhile_are_no_obstacle():
    done, table = threading.Event(), {"first": []}

    def fill():
        while not done.wait(0.0001):
            table[len(table)] = []
            if len(table) > 100:
                table.clear()
                table["first"] = []

    thread = threading.Thread(target=fill)
    thread.start()
    try:
        counted = [census.take(step) for step in range(3)]
    finally:
        done.set()
        thread.join()
    for each in counted:
        assert found(table, each)[0] in range(102)
        assert len(each.lengths) == len(each.container_ids) == len(each.ends)
