"""One capture holds Python objects, autograd nodes and storages, and leaves the program as it was."""

from __future__ import annotations

import array
import asyncio
import contextlib
import ctypes
import gc
import sys
import threading
import types
import warnings
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.checkpoint import checkpoint

import leakhunter
from leakhunter.heap import autograd, cycles, graph, paths, roots

NUMBERS = 1024
BYTES = 4 * NUMBERS


def leaf():
    return torch.ones(NUMBERS, requires_grad=True)


class Box:
    """Something with attributes."""


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.save_for_backward(x)
        ctx.factor = factor
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2, None


# ----------------------------------------------------------------------------------------------------------
# Edges: each function makes an object, another that it refers to, and what keeps both alive.


def tensor_to_its_node():
    y = leaf() * 2
    return y, y.grad_fn


def node_to_the_next_node():
    y = (leaf() * 2).exp()
    return y.grad_fn, y.grad_fn.next_functions[0][0], y


def node_to_its_leaf():
    p = leaf()
    y = p * 2
    return y.grad_fn.next_functions[0][0], p, y


def leaf_to_its_gradient():
    p = leaf()
    (p * 2).sum().backward()
    return p, p.grad


def tensor_to_its_retained_gradient():
    y = leaf() * 2
    y.retain_grad()
    y.sum().backward()
    return y, y.grad


def view_to_its_base():
    base = torch.zeros(NUMBERS)
    return base[3:], base


def differentiable_view_to_its_base():
    base = leaf() * 2
    return base.view(2, -1), base


def node_to_the_input_it_saved():
    x = leaf()
    y = x.cos()
    return y.grad_fn, x, y


def node_to_one_of_several_it_saved():
    x, index = leaf(), torch.arange(10)
    y = x[index]
    return y.grad_fn, index, y


def custom_function_to_what_it_saved():
    x = leaf()
    y = Scale.apply(x, None)
    return y.grad_fn, x, y


def node_to_what_a_pack_hook_made_of_it():
    packed = []

    def pack(tensor):
        packed.append(Box())
        return packed[-1]

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda box: torch.zeros(NUMBERS)):
        y = leaf().exp()
    return y.grad_fn, packed[0], y


def node_to_a_tensor_that_a_pack_hook_made():
    packed = []

    def pack(tensor):
        packed.append(tensor.detach().half())
        return packed[-1]

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda half: half.float()):
        y = leaf().exp()
    return y.grad_fn, packed[0], y


def node_to_its_unpack_hook():
    def unpack(tensor):
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, unpack):
        y = leaf().exp()
    return y.grad_fn, unpack, y


# Those that gc shows too.


def ctx_to_its_attribute():
    factor = Box()
    y = Scale.apply(leaf(), factor)
    return y.grad_fn.__dict__, factor, y


def leaf_to_its_hooks():
    p = leaf()
    p.register_hook(lambda grad: grad)
    return p, p._backward_hooks


def list_to_its_item():
    item = Box()
    return [item], item


def generator_to_its_variable():
    item = Box()

    def produce():
        mine = item
        yield mine
        mine.done = True

    running = produce()
    next(running)
    return running, item


def coroutine_to_its_variable():
    item = Box()

    @types.coroutine
    def pause():
        yield

    async def work():
        mine = item
        await pause()
        mine.done = True

    running = work()
    running.send(None)
    return running, item


def asynchronous_generator_to_its_variable():
    item = Box()

    @types.coroutine
    def pause():
        yield

    async def produce():
        mine = item
        await pause()
        yield mine

    running = produce()
    with contextlib.suppress(StopIteration):
        running.__anext__().send(None)
    return running, item


def traceback_to_its_frame():
    def fail(item):
        raise ValueError(item is None)

    try:
        fail(Box())
    except ValueError as error:
        last = error.__traceback__.tb_next
    return last, last.tb_frame


def finished_frame_to_its_variable():
    def fail(item):
        raise ValueError(item)

    item = Box()
    try:
        fail(item)
    except ValueError as error:
        frame = error.__traceback__.tb_next.tb_frame
        error.args = ()
    return frame, item


def cell_to_its_content():
    item = Box()

    def inner():
        return item

    return inner.__closure__[0], item


# Function -> how the edge is called; gc's own have no label.
EDGES: dict[Callable[[], Any], str | None] = {
    tensor_to_its_node: ".grad_fn",
    node_to_the_next_node: "next",
    node_to_its_leaf: "variable",
    leaf_to_its_gradient: ".grad",
    tensor_to_its_retained_gradient: ".grad",
    view_to_its_base: "._base",
    differentiable_view_to_its_base: "._base",
    node_to_the_input_it_saved: "saved self",
    node_to_one_of_several_it_saved: "saved indices",
    custom_function_to_what_it_saved: "saved tensors",
    node_to_what_a_pack_hook_made_of_it: "saved result",
    node_to_a_tensor_that_a_pack_hook_made: "saved result",
    node_to_its_unpack_hook: "unpack hook",
    ctx_to_its_attribute: None,
    leaf_to_its_hooks: None,
    list_to_its_item: None,
    generator_to_its_variable: None,
    coroutine_to_its_variable: None,
    asynchronous_generator_to_its_variable: None,
    traceback_to_its_frame: None,
    finished_frame_to_its_variable: None,
    cell_to_its_content: None,
}


# ----------------------------------------------------------------------------------------------------------
# Bytes: each function makes one object that keeps so many bytes of storages in all.


def plain_tensor():
    return torch.zeros(NUMBERS), BYTES


def views_of_one_storage():
    base = torch.zeros(NUMBERS)
    return [base[:1], base.view(2, -1), base.t(), base.detach()], BYTES


def view_alone():
    return torch.zeros(NUMBERS)[:1], BYTES


def two_storages():
    return {"one": torch.zeros(NUMBERS), "other": torch.zeros(NUMBERS)}, 2 * BYTES


def parameter_with_gradient():
    p = nn.Parameter(torch.ones(NUMBERS))
    (p * 2).sum().backward()
    return p, 2 * BYTES


def gradient_of_a_leaf_that_nobody_holds():
    """The loss keeps the leaf, and the leaf its gradient."""
    x = leaf()
    loss = x.detach().requires_grad_()
    loss = loss * torch.ones(())
    loss.sum().backward()
    return loss, 3 * BYTES


def output_saved_in_cpp():
    """The result of exp has no Python object any more; its node saved it."""
    return leaf().exp().sum(), 2 * BYTES + 4


def graph_after_backward():
    x = torch.ones(NUMBERS)
    loss = (x * nn.Parameter(torch.ones(()))).exp().sum()
    loss.backward()
    return loss, 4 + 4 + 4


def what_custom_functions_save():
    return Scale.apply(leaf().clone(), None).sum(), 2 * BYTES + 4


def halves_of_a_pack_hook():
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.half(), lambda t: t.float()):
        return leaf().exp().sum(), BYTES + BYTES // 2 + 4


def tuples_of_a_pack_hook():
    with torch.autograd.graph.saved_tensors_hooks(lambda t: (t.detach(), 1), lambda pair: pair[0]):
        return leaf().exp().sum(), 2 * BYTES + 4


def attributes_of_ctx():
    return Scale.apply(torch.zeros(4, requires_grad=True), torch.zeros(NUMBERS)).sum(), BYTES + 16 + 4


def array_of_a_dead_tensor():
    return [torch.zeros(NUMBERS).numpy()], BYTES


def slice_of_an_array_of_a_dead_tensor():
    return {"values": torch.zeros(NUMBERS).numpy()[3:7]}, BYTES


def objects_in_an_array():
    values = np.empty(1, object)
    values[0] = torch.zeros(NUMBERS)
    return [values], BYTES


def storage_object():
    return [torch.zeros(NUMBERS).untyped_storage()], BYTES


def generator_that_waits():
    def produce():
        mine = torch.zeros(NUMBERS)
        yield
        mine.add_(1)

    running = produce()
    next(running)
    return running, BYTES


def exception_with_its_frame():
    def fail():
        mine = torch.zeros(NUMBERS)
        raise ValueError(len(mine))

    try:
        fail()
    except ValueError as error:
        return [error.__traceback__.tb_next], BYTES


def resized_away():
    tensor = torch.zeros(NUMBERS)
    tensor.untyped_storage().resize_(0)
    return tensor, 0


def larger_storage_than_shape():
    return torch.zeros(NUMBERS).resize_(1), BYTES


def shared_memory():
    return torch.zeros(NUMBERS).share_memory_(), BYTES


def empty_tensor():
    return torch.zeros(0), 0


def sparse_coordinates():
    return torch.eye(8).to_sparse(), 8 * 4 + 2 * 8 * 8


INDICES = torch.tensor([0, 1, 2])


def sparse_rows():
    parts = torch.arange(4), INDICES.clone(), torch.ones(3)
    return quiet(torch.sparse_csr_tensor, *parts), 4 * 8 + 3 * 8 + 3 * 4


def sparse_columns():
    parts = torch.arange(4), INDICES.clone(), torch.ones(3)
    return quiet(torch.sparse_csc_tensor, *parts), 4 * 8 + 3 * 8 + 3 * 4


def sparse_blocks_of_rows():
    parts = torch.arange(4), INDICES.clone(), torch.ones(3, 2, 2)
    return quiet(torch.sparse_bsr_tensor, *parts), 4 * 8 + 3 * 8 + 12 * 4


def sparse_blocks_of_columns():
    parts = torch.arange(4), INDICES.clone(), torch.ones(3, 2, 2)
    return quiet(torch.sparse_bsc_tensor, *parts), 4 * 8 + 3 * 8 + 12 * 4


def quantised():
    return quiet(torch.quantize_per_tensor, torch.zeros(NUMBERS), 0.1, 0, torch.quint8), NUMBERS


def on_meta():
    return torch.zeros(NUMBERS, device="meta"), 0


def fake():
    with FakeTensorMode():
        return torch.zeros(NUMBERS), 0


def without_storage():
    return quiet(torch.zeros(NUMBERS).to_mkldnn), 0


def uninitialised():
    return nn.LazyLinear(4), 0


def complex_conjugate():
    return torch.zeros(NUMBERS, dtype=torch.complex64).conj(), 2 * BYTES


def bits_packed():
    return torch.zeros(NUMBERS, dtype=torch.bool), NUMBERS


def inference():
    with torch.inference_mode():
        return torch.zeros(NUMBERS), BYTES


def jagged():
    rows = [torch.zeros(2, 3), torch.zeros(4, 3)]
    return quiet(torch.nested.nested_tensor, rows, layout=torch.jagged), 6 * 3 * 4 + 3 * 8


def nested():
    return quiet(torch.nested.nested_tensor, [torch.zeros(2, 3), torch.zeros(4, 3)]), 6 * 3 * 4


class Plain(torch.Tensor):
    """A subclass that adds nothing."""


class Refuses(torch.Tensor):
    """A subclass that answers no question."""

    @classmethod
    def __torch_function__(cls, function, kinds, arguments=(), options=None):
        raise AssertionError("asked")


def subclass():
    return torch.zeros(NUMBERS).as_subclass(Plain), BYTES


def subclass_that_refuses():
    return torch.zeros(NUMBERS).as_subclass(Refuses), BYTES


def quiet(function, *arguments, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(*arguments, **options)


KEPT = [
    plain_tensor,
    views_of_one_storage,
    view_alone,
    two_storages,
    parameter_with_gradient,
    gradient_of_a_leaf_that_nobody_holds,
    output_saved_in_cpp,
    graph_after_backward,
    what_custom_functions_save,
    halves_of_a_pack_hook,
    tuples_of_a_pack_hook,
    attributes_of_ctx,
    array_of_a_dead_tensor,
    slice_of_an_array_of_a_dead_tensor,
    objects_in_an_array,
    storage_object,
    generator_that_waits,
    exception_with_its_frame,
    resized_away,
    larger_storage_than_shape,
    shared_memory,
    empty_tensor,
    sparse_coordinates,
    sparse_rows,
    sparse_columns,
    sparse_blocks_of_rows,
    sparse_blocks_of_columns,
    quantised,
    on_meta,
    fake,
    without_storage,
    uninitialised,
    complex_conjugate,
    bits_packed,
    inference,
    jagged,
    nested,
    subclass,
    subclass_that_refuses,
]


@dataclass
class Seen:
    """One capture, in words."""

    edges: dict[Any, tuple[bool, str | None]] = field(default_factory=dict)
    bytes: dict[Any, int] = field(default_factory=dict)
    places: dict[Any, set[str]] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)
    sequence: list[bool] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)


@pytest.fixture(scope="module")
def seen() -> Seen:
    ends = {make: make() for make in EDGES}
    things = {make: make()[0] for make in KEPT}
    local = Box()
    untracked = [{"payload": b"x" * 5000, "small": b"y" * 100}, {"payload": np.zeros(NUMBERS)}]
    table = {"payload": np.zeros(NUMBERS)}
    found = Seen()
    with graph.captured() as heap:
        following = successors(heap)
        for make, (source, target, *_) in ends.items():
            pair = heap.find(source), heap.find(target)
            near = following(pair[0])
            # Until Python 3.10 a generator has a frame object, and the frame its variables.
            frames = [node for node in near if type(heap.objects[node]) is types.FrameType]
            near += [node for frame in frames for node in following(frame)]
            found.edges[make] = (pair[1] in near, heap.labels.get(pair))
        for make, thing in things.items():
            reached = [heap.objects[node] for node in reach(heap.find(thing), following)]
            storages = [item for item in reached if type(item) is graph.Storage]
            found.bytes[make] = sum(storage.bytes for storage in storages)
            found.places[make] = {storage.device for storage in storages}
        found.remarks = list(heap.remarks)
        dated = [ends[make][0] for make in (node_to_the_next_node, node_to_the_input_it_saved)]
        undated = ends[node_to_its_leaf][0]
        found.sequence = [heap.find(node) in heap.sequence for node in (*dated, undated)]
        frame = heap.find(sys._getframe())
        found.facts = {
            "own frame": heap.frames.get(frame) is sys._getframe(),
            "local": heap.labels.get((frame, heap.find(local))),
            "large text": heap.find(untracked[0]["payload"]) >= 0,
            "small text": heap.find(untracked[0]["small"]) >= 0,
            "array in a dict": heap.find(untracked[1]["payload"]) >= 0,
            "array in a local dict": heap.find(table["payload"]) >= 0,
            "distinct": len(set(map(id, heap.objects))) == heap.size,
            "ours": heap.ours[heap.find(sys.modules["leakhunter.heap.graph"].__dict__)],
            "not ours": heap.ours[heap.find(globals())],
            "in range": max(heap.sources.max(), heap.targets.max()) < heap.size,
            "tracked": all(map(gc.is_tracked, heap.objects[: heap.tracked])),
            "frames of ours": [f for f in heap.frames.values() if "leakhunter/heap" in f.f_code.co_filename],
        }
    return found


def successors(heap: graph.Heap) -> Callable[[int], list[int]]:
    """What a node refers to, but for modules, classes and running frames."""
    closed = np.zeros(heap.size, bool)
    closed[[*roots.barriers(heap).tolist(), *heap.frames, *heap.tracked_nodes(type)]] = True
    order = np.argsort(heap.sources, kind="stable")
    starts = np.searchsorted(heap.sources[order], np.arange(heap.size + 1))

    def following(node: int) -> list[int]:
        targets = heap.targets[order[starts[node] : starts[node + 1]]]
        return targets[~closed[targets]].tolist()

    return following


def reach(start: int, following: Callable[[int], list[int]]) -> set[int]:
    """Nodes reached from one, itself included."""
    found, pending = {start}, [start]
    while pending:
        new = [node for node in following(pending.pop()) if node not in found]
        found.update(new)
        pending += new
    return found


def named(functions: Any) -> Any:
    return pytest.mark.parametrize("make", functions, ids=lambda make: make.__name__)


@named(EDGES)
def test_the_reference_is_in_the_graph(make, seen):
    assert seen.edges[make] == (True, EDGES[make])


@named(KEPT)
def test_bytes_are_those_of_the_storages_each_counted_once(make, seen):
    assert seen.bytes[make] == make()[1]


def test_tensors_of_all_kinds_are_read_without_a_remark(seen):
    assert seen.remarks == []


@pytest.mark.parametrize(("make", "place"), [(plain_tensor, "cpu"), (shared_memory, "shared memory")])
def test_a_storage_says_where_it_lies(make, place, seen):
    assert seen.places[make] == {place}


def test_nodes_are_dated_and_leaves_are_not(seen):
    assert seen.sequence == [True, True, False]


FACTS = {
    "own frame": True,
    "local": "local",
    "large text": True,
    "small text": False,
    "array in a dict": True,
    "array in a local dict": True,
    "distinct": True,
    "ours": True,
    "not ours": False,
    "in range": True,
    "tracked": True,
    "frames of ours": [],
}


@pytest.mark.parametrize("fact", FACTS)
def test_the_graph_as_a_whole(fact, seen):
    assert seen.facts[fact] == FACTS[fact]


# ----------------------------------------------------------------------------------------------------------
# Roots


def held(*addresses: int) -> list[bool]:
    """Whether something outside the graph refers to the objects at these addresses."""
    with graph.captured() as heap:
        found = roots.outside(heap)
        return [bool(found[heap.find_id(address)]) for address in addresses]


def test_a_tensor_that_cpp_alone_holds_is_a_root():
    future = torch.futures.Future()
    future.set_result(torch.zeros(NUMBERS))
    box = [torch.zeros(NUMBERS)]
    addresses = id(future.value()), id(box[0])
    assert held(*addresses) == [True, False]


def test_an_object_with_one_reference_too_many_is_a_root():
    box = [Box(), Box()]
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(box[0]))
    addresses = id(box[0]), id(box[1])
    try:
        assert held(*addresses) == [True, False]
    finally:
        ctypes.pythonapi.Py_DecRef(ctypes.py_object(box[0]))


def inner_gradient():
    p = leaf()
    (p * 2).sum().backward()
    return [p.grad], p


def inner_leaf():
    p = leaf()
    return [p], p * 2


def inner_base():
    base = torch.zeros(NUMBERS)
    return [base], base[1:]


def inner_saved():
    x = leaf()
    return [x], x.cos()


def inner_custom_node():
    y = Scale.apply(leaf(), None)
    return [y.grad_fn], y


def inner_packed():
    packed = []

    def pack(tensor):
        packed.append(Box())
        return packed[-1]

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda box: torch.zeros(NUMBERS)):
        y = leaf().exp()
    return packed, y


@named([inner_gradient, inner_leaf, inner_base, inner_saved, inner_custom_node, inner_packed])
def test_what_the_graph_itself_holds_is_no_root(make):
    box, owner = make()
    address = id(box[0])
    assert held(address) == [False]
    assert owner is not None


def test_an_object_on_the_stack_of_a_call_is_held():
    def look(thing):
        with graph.captured() as heap:
            node = heap.find(thing)
            return bool(paths.reachable(heap, roots.outside(heap), ~heap.ours[heap.sources])[node])

    assert look(Box())


def test_frames_of_other_threads_are_read():
    ready, done, seen_local = threading.Event(), threading.Event(), []

    def work():
        mine = Box()
        seen_local.append(weakref.ref(mine))
        ready.set()
        done.wait()

    thread = threading.Thread(target=work, name="worker of this test")
    thread.start()
    try:
        ready.wait()
        with graph.captured() as heap:
            node = heap.find(seen_local[0]())
            frames = [edge[0] for edge, text in heap.labels.items() if (edge[1], text) == (node, "mine")]
            assert [roots.thread_name(heap.frames[frame]) for frame in frames] == ["worker of this test"]
            assert [roots.thread_function(heap.frames[frame]) for frame in frames] == ["work"]
    finally:
        done.set()
        thread.join()


def test_frames_of_the_main_thread_have_no_thread_name():
    assert roots.thread_name(sys._getframe()) == ""


# ----------------------------------------------------------------------------------------------------------
# Nothing is unpacked, and nothing of the user's runs


def test_unpack_hooks_are_not_called():
    calls = []

    def unpack(packed):
        calls.append(packed)
        return torch.zeros(NUMBERS)

    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: Box(), unpack):
        p = leaf()
        y = p.exp().sum()
    with graph.captured():
        pass
    assert calls == []
    y.backward()
    assert len(calls) == 1


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_checkpointed_forward_is_not_computed_again(reentrant):
    calls = []

    def forward(x):
        calls.append(x.shape)
        return x.exp().sin()

    x = leaf()
    y = checkpoint(forward, x, use_reentrant=reentrant)
    with graph.captured():
        pass
    assert len(calls) == 1
    y.sum().backward()
    assert len(calls) == 2
    assert x.grad is not None


class Counts(torch.overrides.TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_function__(self, function, kinds, arguments=(), options=None):
        self.calls.append(function)
        return function(*arguments, **(options or {}))


class CountsOperators(torch.utils._python_dispatch.TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, function, kinds, arguments=(), options=None):
        self.calls.append(function)
        return function(*arguments, **(options or {}))


@named([Counts, CountsOperators])
def test_a_mode_of_the_program_sees_no_call_of_a_capture(make):
    tensors = [torch.zeros(3), torch.eye(3).to_sparse(), leaf() * 2]
    with make() as mode, graph.captured() as heap:
        assert heap.find(tensors[1]) >= 0
    assert mode.calls == []


WRAPPER = """if True:
    import torch
    from leakhunter.heap import graph
    class Wrapper(torch.Tensor):
        @staticmethod
        def __new__(cls, inner, requires_grad=False):
            options = {"dtype": inner.dtype, "requires_grad": requires_grad}
            made = torch.Tensor._make_wrapper_subclass(cls, inner.shape, **options)
            made.inner = inner
            return made
        @classmethod
        def __torch_dispatch__(cls, function, kinds, arguments=(), options=None):
            inner = [thing.inner if type(thing) is cls else thing for thing in arguments]
            return cls(function(*inner, **(options or {})))
    y = Wrapper(torch.ones(1024), requires_grad=True) * 2
    for _ in range(2):
        with graph.captured() as heap:
            print(heap.labels.get((heap.find(y), heap.find(y.grad_fn))), heap.remarks)
    y.untyped_storage()
    with graph.captured() as heap:
        print(heap.labels.get((heap.find(y), heap.find(y.grad_fn))), heap.remarks)
"""


def test_a_tensor_that_wraps_another_is_read_like_any_other(run_python):
    result = run_python(WRAPPER)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == [".grad_fn []"] * 3


def test_tensors_that_cannot_be_read_are_told_of_once():
    remarks = []

    def look(x):
        several = [x * 2, x * 3, x * 4]
        with graph.captured() as heap:
            remarks.extend(heap.remarks)
        return sum(several)

    torch.func.vmap(look)(torch.ones(3, 4))
    assert len(remarks) == len(set(remarks))


# ----------------------------------------------------------------------------------------------------------
# The program is left as it was


def test_reference_counts_are_as_before():
    y = (leaf() * 2).exp()
    things = [Box(), [], {}, torch.zeros(3), y, y.grad_fn, leaf, Box, Scale, sys.modules, np.zeros(3)]
    with graph.captured():
        pass
    before = list(map(sys.getrefcount, things))
    for _ in range(3):
        with graph.captured():
            pass
    assert list(map(sys.getrefcount, things)) == before


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("error", [True, False])
def test_gc_and_threads_run_as_before(enabled, error):
    was = gc.isenabled(), sys.getswitchinterval(), gc.get_threshold()
    (gc.enable if enabled else gc.disable)()
    try:
        with contextlib.suppress(ZeroDivisionError), graph.captured():
            assert not gc.isenabled()
            if error:
                1 / 0
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if was[0] else gc.disable)()
    assert (sys.getswitchinterval(), gc.get_threshold()) == was[1:]


def test_no_collection_runs_in_a_capture():
    gc.disable()
    try:
        before = gc.get_stats()
        with graph.captured():
            pass
        assert gc.get_stats() == before
    finally:
        gc.enable()


def test_everything_captured_is_let_go_of_at_the_end():
    box, array_, y = Box(), np.zeros(NUMBERS), leaf() * 2
    references = [weakref.ref(box), weakref.ref(array_), weakref.ref(y)]
    gc.disable()
    try:
        with graph.captured() as heap:
            assert heap.find(box) >= 0
        del box, array_, y
        assert [reference() for reference in references] == [None] * 3
        assert heap.objects == []
    finally:
        gc.enable()


def test_everything_captured_is_let_go_of_after_an_error():
    box = Box()
    reference = weakref.ref(box)
    with pytest.raises(ZeroDivisionError), graph.captured():
        1 / 0
    del box
    gc.collect()
    assert reference() is None


class TestLocals:
    """A variable deleted after its frame was read is freed at once, on every Python."""

    @pytest.mark.parametrize("captures", [1, 3])
    def test_of_a_function(self, captures):
        thing = Box()
        reference = weakref.ref(thing)
        for _ in range(captures):
            with graph.captured():
                pass
        del thing
        assert reference() is None

    def test_of_its_caller(self):
        def look():
            with graph.captured():
                pass

        thing = Box()
        reference = weakref.ref(thing)
        look()
        del thing
        assert reference() is None

    def test_shared_with_an_inner_function(self):
        thing = Box()
        reference = weakref.ref(thing)

        def forget():
            nonlocal thing
            thing = None

        with graph.captured():
            pass
        forget()
        assert reference() is None

    def test_of_a_suspended_generator(self):
        references = []

        def produce():
            thing = Box()
            references.append(weakref.ref(thing))
            yield
            del thing
            yield

        running = produce()
        next(running)
        with graph.captured() as heap:
            ways = paths.Paths(heap, roots.outside(heap))
            assert ways.links(ways.to(heap.find(references[0]())))
        next(running)
        assert references[0]() is None

    def test_of_a_class_body_stay(self):
        class Made:
            kept = Box()
            with graph.captured():
                pass
            again = kept

        assert Made.again is Made.kept

    def test_that_the_program_reads_with_locals_stay(self):
        thing = Box()
        mine = locals()
        with graph.captured():
            pass
        assert mine["thing"] is thing


def test_local_variables_are_those_of_functions_only():
    one, other = 1, "two"
    found = roots.local_variables(sys._getframe())
    assert (found["one"], found["other"]) == (one, other)
    scope: dict[str, Any] = {"frames": []}
    exec("import sys; frames.append(sys._getframe())", scope)
    assert roots.local_variables(scope["frames"][0]) == {}
    assert "frames" in scope


def test_objects_of_the_program_are_not_changed():
    p = leaf()
    y = Scale.apply(p, Box())
    y.sum().backward()
    box = Box()
    box.y = y
    parts = [box.__dict__, y.grad_fn.__dict__]

    def state():
        return [*map(dict, parts), set(dir(p)), p._backward_hooks, y._version, p._version, p.grad.tolist()]

    before = state()
    with graph.captured():
        pass
    assert state() == before


def test_backward_works_after_a_capture_and_during_one():
    p, q = leaf(), leaf()
    one, other = p.exp().sum(), q.exp().sum()
    with graph.captured():
        one.backward()
    other.backward()
    assert torch.equal(p.grad, q.grad)


def test_a_capture_leaves_no_garbage():
    gc.collect()
    gc.disable()
    try:
        with graph.captured():
            pass
        assert gc.collect() == 0
    finally:
        gc.enable()


# ----------------------------------------------------------------------------------------------------------
# What is left out, and what is found all the same


def test_objects_of_ours_are_left_out():
    hunt = leakhunter.watch(range(3))
    running = iter(hunt)
    next(running)
    with graph.captured() as heap:
        assert heap.ours[heap.find(hunt)]
        assert not heap.ours[heap.find(globals())]
        assert not any(roots.outside(heap) & heap.ours)
    running.close()


def test_an_object_that_only_we_hold_is_on_no_path_of_the_program():
    target = torch.zeros(NUMBERS)
    held = autograd._Walk(None)  # type: ignore[arg-type]
    held.extra = [target]
    reference = weakref.ref(target)
    del target
    with graph.captured() as heap:
        ways = paths.Paths(heap, roots.outside(heap))
        path = ways.to(heap.find(reference()))
        assert path is None or path == [heap.find(reference())]


def test_objects_behind_gc_freeze_are_found_and_it_is_said(run_python):
    code = """if True:
        import gc, torch
        from leakhunter.heap import graph, paths, roots
        class Box: pass
        box = Box()
        box.items = [torch.zeros(1024), torch.ones(1024, requires_grad=True).exp()]
        gc.collect()
        gc.freeze()
        later = [torch.zeros(1024)]
        with graph.captured() as heap:
            print(heap.remarks)
            ways = paths.Paths(heap, roots.outside(heap))
            for tensor in (*box.items, *later):
                storage = heap.storages[tensor.untyped_storage()._cdata]
                print(heap.objects[storage].bytes, paths.write(ways.links(ways.to(heap.find(tensor)))))
        print(gc.get_freeze_count() > 0)
    """
    result = run_python(code)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert "gc.freeze() hides" in lines[0]
    assert lines[1:] == ["4096 box.items[*]", "4096 box.items[*]", "4096 later[*]", "True"]


def test_a_graph_too_large_is_walked_in_part_and_it_is_said(monkeypatch):
    monkeypatch.setattr(autograd, "MOST_NODES", 10)
    y = leaf()
    for _ in range(30):
        y = y * 2
    with graph.captured() as heap:
        assert any("larger than 10 nodes" in remark for remark in heap.remarks)


def test_a_very_deep_graph_is_walked_whole():
    y = leaf()
    for _ in range(5000):
        y = y + 1
    with graph.captured() as heap:
        found = reach(heap.find(y), successors(heap))
        assert sum(node in heap.sequence for node in found) == 5000
        assert heap.remarks == []


class TestUntrackedThings:
    """gc does not list what can be part of no cycle, and it may still be large."""

    @pytest.fixture(scope="class")
    def found(self) -> dict[str, bool]:
        values = np.zeros(NUMBERS)
        things = {
            "bytes": b"x" * 5000,
            "bytearray": bytearray(5000),
            "array": array.array("d", [0.0]) * 5000,
            "ndarray": values,
            "base of an ndarray": values[3:].base,
        }
        nested = {"deep": {"deeper": {"bytes": things["bytes"]}, "pair": (values, 1)}}
        holders = [[thing] for thing in things.values()]
        with graph.captured() as heap:
            following = successors(heap)
            found = {
                name: heap.find(thing) in following(heap.find(holder))
                for (name, thing), holder in zip(things.items(), holders, strict=True)
            }
            reached = reach(heap.find(nested), following)
            found["in a dict in a dict"] = heap.find(things["bytes"]) in reached
            found["in a tuple"] = heap.find(values) in reached
        return found

    KINDS = ["bytes", "bytearray", "array", "ndarray", "base of an ndarray"]

    @pytest.mark.parametrize("kind", [*KINDS, "in a dict in a dict", "in a tuple"])
    def test_have_a_node(self, kind, found):
        assert found[kind]


def test_lengths_are_those_of_the_moment():
    things: dict[Any, Any] = {3: [1, 2, Box()], 2: {"a": Box(), "b": 1}, 1: {Box()}, 0: []}
    box = Box()
    with graph.captured() as heap:
        things[0].append(1)
        found = {length: heap.length(heap.find(thing)) for length, thing in things.items()}
        assert heap.length(heap.find(box)) == -1
    assert found == {3: 3, 2: 2, 1: 1, 0: 0}


def test_an_object_made_later_has_no_node():
    with graph.captured() as heap:
        assert heap.find(Box()) == -1


def test_threads_that_allocate_do_not_disturb_a_capture():
    stop, errors = threading.Event(), []

    def work():
        try:
            while not stop.is_set():
                kept = [Box() for _ in range(100)]
                kept[0].ring = kept
                torch.zeros(8, requires_grad=True).exp().sum().backward()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(2):
            mine = Box()
            with graph.captured() as heap:
                assert heap.find(mine) >= 0
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert errors == []


def test_a_capture_inside_a_running_event_loop_works():
    async def work():
        mine = Box()
        await asyncio.sleep(0)
        with graph.captured() as heap:
            ways = paths.Paths(heap, roots.outside(heap))
            return paths.write(ways.links(ways.to(heap.find(mine))))

    assert asyncio.run(work()) == "mine"


def hook_over_its_own_tensor():
    y = leaf() * 2
    y.register_hook(lambda grad: y and None)
    return id(y._backward_hooks)


def test_hooks_that_only_their_own_tensor_leads_to_are_no_roots():
    address = hook_over_its_own_tensor()
    with graph.captured() as heap:
        node = heap.find_id(address)
        before = roots.outside(heap)
        after = cycles.settle_hooks(heap, before.copy(), ~heap.ours[heap.sources])
        assert (bool(before[node]), bool(after[node])) == (True, False)


def test_what_a_hook_of_a_held_node_closes_over_is_held():
    def closing_over(box):
        y.grad_fn.register_hook(lambda *grads: box and None)
        return id(box)

    y = leaf() * 2
    address = closing_over(Box())
    with graph.captured() as heap:
        settled = cycles.settle_hooks(heap, roots.outside(heap), ~heap.ours[heap.sources])
        assert paths.reachable(heap, settled, ~heap.ours[heap.sources])[heap.find_id(address)]
