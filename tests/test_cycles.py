"""Garbage is told apart without running gc: held, waiting for gc, or stranded in C++ for ever."""

from __future__ import annotations

import contextvars
import functools
import gc
import html
import re
import shutil
import threading
import types
import warnings
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import leakhunter
from leakhunter.findings import Cycle
from leakhunter.heap import cycles, graph, paths, roots

NUMBERS = 1024
BYTES = 4 * NUMBERS
# What a node saves beside the tensors: a factor, a sum.
SCALARS = 64
COPIES = 3


def leaf():
    return torch.ones(NUMBERS, requires_grad=True)


class Box:
    """Something with attributes."""


class OutputOnCtx(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.out = x * 2
        return ctx.out

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


class InputOnCtx(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.x = x
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


class SavesOutput(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x * 2
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


# ----------------------------------------------------------------------------------------------------------
# Cycles that gc can never free. Each function leaves one and returns a tensor in it.


def grad_with_its_graph():
    p = leaf()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (p * p).sum().backward(create_graph=True)
    return p


def grad_assigned_with_its_graph():
    p = leaf()
    p.grad = torch.exp(p.cos())
    return p


def tensor_hook_over_its_non_leaf():
    y = leaf() * 2
    y.register_hook(lambda grad: grad * y.detach())
    return y


def node_hook_over_its_tensor():
    after = leaf() * 2
    after.grad_fn.register_hook(lambda *grads: after and None)
    return after


def node_prehook_over_its_tensor():
    before = leaf() * 2
    before.grad_fn.register_prehook(lambda *grads: before and None)
    return before


def hook_after_accumulation_over_its_parameter():
    p = leaf()
    p.register_post_accumulate_grad_hook(lambda _: p and None)
    return p


def hook_of_many_tensors_over_them():
    one, other = leaf() * 2, leaf() * 3
    torch.autograd.graph.register_multi_grad_hook((one, other), lambda grads: one is other)
    return one


def identity_pack_hook():
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        return leaf().exp()


def pack_hook_that_wraps():
    with torch.autograd.graph.saved_tensors_hooks(lambda t: [t], lambda box: box[0]):
        return leaf().exp()


def tensor_in_metadata_of_its_node():
    y = leaf() * 2
    y.grad_fn.metadata["output"] = y
    return y


def checkpoint_without_reentry_over_its_output():
    box: list[torch.Tensor] = []
    y = checkpoint(lambda x: (x.exp() if not box else x).sin(), leaf(), use_reentrant=False)
    box.append(y)
    return y


# ----------------------------------------------------------------------------------------------------------
# Cycles that gc will free.


def tensor_hook_over_its_leaf():
    p = leaf()
    p.register_hook(lambda grad: grad * p.detach())
    return p


def output_on_ctx():
    return OutputOnCtx.apply(leaf())


def checkpoint_with_reentry_over_its_output():
    box: list[torch.Tensor] = []
    y = checkpoint(
        lambda x: x.exp() if not box else x, leaf(), use_reentrant=True, preserve_rng_state=False
    )
    box.append(y)
    return y


def tensor_as_its_own_attribute():
    y = leaf() * 2
    y.source = y
    return y


def output_stored_by_module_hook():
    net = nn.Identity()

    def store(module, inputs, output):
        net.last = output

    net.register_forward_hook(store)
    return net(torch.zeros(NUMBERS))


def parent_and_child():
    parent, child = Box(), Box()
    parent.child, child.parent = child, parent
    child.data = torch.zeros(NUMBERS)
    return child.data


def own_bound_method():
    box = Box()
    box.data = torch.zeros(NUMBERS)
    box.show = types.MethodType(lambda self: self.data, box)
    return box.data


def lambda_over_its_owner():
    widget = Box()
    widget.data = torch.zeros(NUMBERS)
    widget.on_click = lambda: widget.data
    return widget.data


def partial_over_its_owner():
    button = Box()
    button.data = torch.zeros(NUMBERS)
    button.act = functools.partial(print, button)
    return button.data


def exception_in_its_own_frame():
    data = torch.zeros(NUMBERS)
    try:
        raise ValueError(len(data))
    except ValueError as error:
        caught = error
    return data if caught else None


def class_made_per_call():
    class Made:
        data = torch.zeros(NUMBERS)

    return Made.data


def function_that_calls_itself():
    data = torch.zeros(NUMBERS)

    def again(depth):
        return again(depth - 1) if depth else data

    return again(2)


def generator_that_knows_itself():
    data, box = torch.zeros(NUMBERS), []

    def produce():
        mine = box
        yield data
        mine.clear()

    running = produce()
    box.append(running)
    return next(running)


def list_in_itself():
    ring: list[Any] = [torch.zeros(NUMBERS)]
    ring.append(ring)
    return ring[0]


def dict_in_itself():
    table: dict[str, Any] = {"data": torch.zeros(NUMBERS)}
    table["again"] = table
    return table["data"]


def set_of_its_owner():
    group = Box()
    group.data = torch.zeros(NUMBERS)
    group.members = {group}
    return group.data


def property_closed_over_its_instance():
    outer = Box()
    outer.data = torch.zeros(NUMBERS)
    outer.kind = type("Made", (), {"owner": property(lambda self: outer)})
    return outer.data


def slots_that_meet():
    @dataclass(slots=True, eq=False)
    class Node:
        data: torch.Tensor
        other: Any = None

    left, right = Node(torch.zeros(NUMBERS)), Node(torch.zeros(0))
    left.other, right.other = right, left
    return left.data


def context_variable_in_its_context():
    variable: contextvars.ContextVar[Any] = contextvars.ContextVar("variable")
    box = Box()
    box.data = torch.zeros(NUMBERS)
    box.context = contextvars.copy_context()
    box.context.run(variable.set, box)
    return box.data


def hanging_from_a_cycle():
    """The tensor is on no cycle itself; one keeps it."""
    tail: list[Any] = []
    tail.append(tail)
    tail.append({"deep": [torch.zeros(NUMBERS)]})
    return tail[1]["deep"][0]


# ----------------------------------------------------------------------------------------------------------
# No garbage at all: freed at once.


def saved_output():
    return SavesOutput.apply(leaf())


def input_on_ctx():
    return InputOnCtx.apply(leaf())


def graph_of_a_loss():
    return leaf().exp().tanh().softmax(0)


def weak_parent():
    parent, child = Box(), Box()
    parent.child, child.parent = child, weakref.ref(parent)
    parent.data = torch.zeros(NUMBERS)
    return parent.data


def checkpoint_without_reentry():
    return checkpoint(lambda x: x.exp().sin(), leaf(), use_reentrant=False)


# The same without the cycle: what is said of each is done.


def cured_grad():
    p = leaf()
    (grad,) = torch.autograd.grad(p.exp().sum(), p, create_graph=True)
    return grad.detach()


def cured_tensor_hook():
    y = leaf() * 2
    y.register_hook(lambda grad: grad * 2)
    return y


def cured_hook_by_a_weak_reference():
    y = leaf() * 2
    itself = weakref.ref(y)
    y.register_hook(lambda grad: grad * itself().detach())
    return y


def cured_node_hook():
    y = leaf() * 2
    y.grad_fn.register_hook(lambda before, after: None)
    return y


def cured_hook_after_accumulation():
    p = leaf()
    p.register_post_accumulate_grad_hook(lambda itself: None)
    return p


def cured_pack_hook():
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.detach(), lambda t: t):
        return leaf().exp()


def cured_metadata():
    y = leaf() * 2
    y.grad_fn.metadata["origin"] = y.detach()
    return y


def cured_checkpoint():
    return checkpoint(lambda x: x.sin(), leaf(), use_reentrant=False)


def cured_module_hook():
    net, box = nn.Identity(), Box()
    net.register_forward_hook(lambda module, args, out: setattr(module, "last", out))
    box.net, box.out = net, net(torch.ones(NUMBERS))
    return box.out


def cured_bound_method():
    box = Box()
    box.weights = torch.ones(NUMBERS)
    box.show = types.FunctionType(leaf.__code__, globals())
    return box.weights


def cured_lambda():
    box = Box()
    box.weights = torch.ones(NUMBERS)
    box.on_click = functools.partial(print, weakref.ref(box))
    return box.weights


def cured_exception():
    tensor = torch.ones(NUMBERS)
    caught = None
    try:
        raise ValueError
    except ValueError as error:
        caught = error
    finally:
        del caught
    return tensor


# Function -> tensors of NUMBERS numbers that its cycle keeps.
STRANDED: dict[Callable[[], Any], int] = {
    grad_with_its_graph: 2,
    grad_assigned_with_its_graph: 2,
    tensor_hook_over_its_non_leaf: 2,
    node_hook_over_its_tensor: 2,
    node_prehook_over_its_tensor: 2,
    hook_after_accumulation_over_its_parameter: 1,
    hook_of_many_tensors_over_them: 4,
    identity_pack_hook: 2,
    pack_hook_that_wraps: 2,
    tensor_in_metadata_of_its_node: 2,
    checkpoint_without_reentry_over_its_output: 2,
}
PENDING: dict[Callable[[], Any], int] = {
    tensor_hook_over_its_leaf: 1,
    output_on_ctx: 2,
    checkpoint_with_reentry_over_its_output: 2,
    tensor_as_its_own_attribute: 2,
    output_stored_by_module_hook: 1,
    parent_and_child: 1,
    own_bound_method: 1,
    lambda_over_its_owner: 1,
    partial_over_its_owner: 1,
    exception_in_its_own_frame: 1,
    class_made_per_call: 1,
    function_that_calls_itself: 1,
    generator_that_knows_itself: 1,
    list_in_itself: 1,
    dict_in_itself: 1,
    set_of_its_owner: 1,
    property_closed_over_its_instance: 1,
    slots_that_meet: 1,
    context_variable_in_its_context: 1,
    hanging_from_a_cycle: 1,
}
CURED = [
    cured_grad,
    cured_tensor_hook,
    cured_hook_by_a_weak_reference,
    cured_node_hook,
    cured_hook_after_accumulation,
    cured_pack_hook,
    cured_metadata,
    cured_checkpoint,
    cured_module_hook,
    cured_bound_method,
    cured_lambda,
    cured_exception,
]
FREED = [saved_output, input_on_ctx, graph_of_a_loss, weak_parent, checkpoint_without_reentry, *CURED]
CYCLES = {**STRANDED, **PENDING}


@dataclass
class Found:
    """What is said of the tensors of one function, each of COPIES of them."""

    states: list[str]
    text: str = ""
    closes: tuple[str, ...] = ()
    count: int = 0
    each: float = 0.0
    oldest: bool = False


@dataclass
class Seen:
    """One capture, in words, and what gc did afterwards."""

    found: dict[Any, Found]
    alive_before: dict[Any, int]
    alive_after: dict[Any, int]
    gc_ran: bool
    kept: list[Any]


class Tracked:
    """Storages and weak references of tensors, and maybe the tensors themselves."""

    def __init__(self, make: Callable[[], Any], keep: bool) -> None:
        tensors = [make() for _ in range(COPIES)]
        self.addresses = [tensor.untyped_storage()._cdata for tensor in tensors]
        self.references = [weakref.ref(tensor) for tensor in tensors]
        self.kept = tensors if keep else []

    def alive(self) -> int:
        return sum(reference() is not None for reference in self.references)


def look(makers: Any, keep: bool = False, old: bool = False) -> Seen:
    """Leave what the functions leave, capture the heap, and then let gc show the truth."""
    gc.collect()
    gc.disable()
    try:
        tracked = {make: Tracked(make, keep or old) for make in makers}
        if old:
            gc.collect()
            for things in tracked.values():
                things.kept.clear()
        before = {make: things.alive() for make, things in tracked.items()}
        stats = gc.get_stats()
        addresses = {make: things.addresses if before[make] else [] for make, things in tracked.items()}
        found = diagnose(addresses)
        ran = gc.get_stats() != stats
        gc.collect()
        after = {make: things.alive() for make, things in tracked.items()}
    finally:
        gc.enable()
    return Seen(found, before, after, ran, [things.kept for things in tracked.values()])


def diagnose(addresses: dict[Any, list[int]]) -> dict[Any, Found]:
    with graph.captured() as heap:
        held = cycles.settle_hooks(heap, roots.outside(heap), ~heap.ours[heap.sources])
        foreign = ~heap.ours[heap.sources]
        reached = paths.reachable(heap, held, foreign)
        ways = paths.Paths(heap, held)
        storages = {node: heap.objects[node] for node in heap.storages.values()}
        nodes = {key: [heap.storages[address] for address in places] for key, places in addresses.items()}
        lost = [node for members in nodes.values() for node in members if not reached[node]]
        garbage = cycles.find(heap, reached, foreign, lost, ways, storages)
        return {key: _words(members, reached, garbage) for key, members in nodes.items()}


def _words(members: list[int], reached: Any, garbage: list[cycles.Garbage]) -> Found:
    found = Found(["held" for node in members if reached[node]])
    for group in garbage:
        here = [node for node in members if node in group.storages]
        found.states += [group.state] * len(here)
        if here:
            found.text, found.closes = paths.write(group.route.links), group.closes
            found.count, found.each = group.count, group.all_bytes / group.all_count
            found.oldest = group.oldest
    return found


@pytest.fixture(scope="module")
def dropped() -> Seen:
    return look([*CYCLES, *FREED])


@pytest.fixture(scope="module")
def kept() -> Seen:
    return look([*CYCLES, *FREED], keep=True)


def named(functions: Any) -> Any:
    return pytest.mark.parametrize("make", functions, ids=lambda make: make.__name__)


@named(STRANDED)
def test_a_cycle_through_cpp_is_stranded_and_gc_does_not_free_it(make, dropped):
    assert dropped.alive_after[make] == COPIES
    assert dropped.found[make].states == ["stranded"] * COPIES


@named(PENDING)
def test_a_cycle_that_gc_frees_is_pending_until_then(make, dropped):
    assert dropped.alive_before[make] == COPIES
    assert dropped.alive_after[make] == 0
    assert dropped.found[make].states == ["gc-pending"] * COPIES


@named(FREED)
def test_what_python_frees_at_once_is_no_garbage(make, dropped):
    assert dropped.alive_before[make] == 0


@named([*CYCLES, *FREED])
def test_a_tensor_that_a_variable_leads_to_is_held_whatever_cycles_it_is_in(make, kept):
    assert kept.alive_after[make] == COPIES
    assert kept.found[make].states == ["held"] * COPIES


# Checkpoints also keep the state of the random number generators.
@named([make for make in CYCLES if make is not checkpoint_without_reentry_over_its_output])
def test_bytes_of_a_cycle_are_those_of_its_tensors(make, dropped):
    wanted = CYCLES[make] * BYTES
    assert wanted <= dropped.found[make].each < wanted + SCALARS


@named(CYCLES)
def test_cycles_of_one_shape_are_counted_together(make, dropped):
    assert dropped.found[make].count % COPIES == 0
    assert dropped.found[make].count > 0


def test_telling_garbage_apart_does_not_run_gc(dropped, kept):
    assert not dropped.gc_ran
    assert not kept.gc_ran


TEXTS = {
    grad_with_its_graph: r"^Tensor\.grad\.grad_fn",
    grad_assigned_with_its_graph: r"^Tensor\.grad\.grad_fn",
    tensor_hook_over_its_non_leaf: r"^Tensor\.hooks\[\*\]\.__closure__\[y\]$",
    tensor_hook_over_its_leaf: r"^Tensor\._backward_hooks\[\*\]\.__closure__\[p\]$",
    node_hook_over_its_tensor: r"^Tensor\.grad_fn\.hooks\[\*\]\.__closure__\[after\]$",
    node_prehook_over_its_tensor: r"^Tensor\.grad_fn\.hooks\[\*\]\.__closure__\[before\]$",
    hook_after_accumulation_over_its_parameter: r"^Tensor\.hooks\[\*\]\.__closure__\[p\]$",
    identity_pack_hook: r"^Tensor\.grad_fn\.saved_result$",
    output_on_ctx: r"^ctx\.out\.grad_fn$",
    checkpoint_with_reentry_over_its_output: r"^ctx\.run_function\.__closure__\[box\]\[\*\]\.grad_fn$",
    tensor_as_its_own_attribute: r"^Tensor\.source$",
    output_stored_by_module_hook: r"^Identity\._forward_hooks.*\.__closure__\[net\]$",
    parent_and_child: r"^Box\.(child\.parent|parent\.child)$",
    own_bound_method: r"^Box\.show\.__self__$",
    lambda_over_its_owner: r"^Box\.on_click\.__closure__\[widget\]$",
    partial_over_its_owner: r"^Box\.act\.args\[0\]$",
    exception_in_its_own_frame: r"\bcaught\.__traceback__",
    class_made_per_call: r"\bMade\b",
    function_that_calls_itself: r"\bagain\.__closure__\[again\]$",
    generator_that_knows_itself: r"\bmine\[\*\]$",
    list_in_itself: r"^list\[\*\]$",
    dict_in_itself: r"^dict\['again'\]$",
    set_of_its_owner: r"^Box\.members\[\*\]$",
    slots_that_meet: r"\bNode\.other\.other$|\bNode\.other$",
}


@named(TEXTS)
def test_a_cycle_reads_as_a_person_writes_it(make, dropped):
    assert re.search(TEXTS[make], dropped.found[make].text), dropped.found[make].text


CLOSES = {
    grad_with_its_graph: {".grad", ".grad_fn", "variable"},
    grad_assigned_with_its_graph: {".grad", ".grad_fn"},
    tensor_hook_over_its_non_leaf: {"hooks"},
    node_hook_over_its_tensor: {"hooks", ".grad_fn"},
    node_prehook_over_its_tensor: {"hooks", ".grad_fn"},
    hook_after_accumulation_over_its_parameter: {"hooks"},
    identity_pack_hook: {".grad_fn", "saved result"},
    pack_hook_that_wraps: {".grad_fn", "saved result"},
}


@named(CLOSES)
def test_a_stranded_cycle_names_the_references_that_gc_does_not_see(make, dropped):
    assert CLOSES[make] <= set(dropped.found[make].closes)


@named([parent_and_child, list_in_itself, lambda_over_its_owner, class_made_per_call])
def test_a_cycle_of_python_objects_alone_is_closed_by_nothing_hidden(make, dropped):
    assert dropped.found[make].closes == ()


@pytest.mark.parametrize("old", [True, False], ids=["survived a collection", "young"])
def test_it_is_known_whether_only_a_full_collection_comes_for_a_cycle(old):
    make = tensor_as_its_own_attribute
    assert look([make], old=old).found[make].oldest is old


def test_cycles_without_fresh_storages_are_not_reported():
    with graph.captured() as heap:
        nothing = np.zeros(heap.size, bool)
        assert cycles.find(heap, nothing, nothing, [], None, {}) == []  # type: ignore[arg-type]


def holding_thread():
    """A cycle that only the running frame of another thread leads to."""
    ready, done = threading.Event(), threading.Event()
    tensors = []

    def work():
        mine = [torch.zeros(NUMBERS)]
        mine.append(mine)
        tensors.append(weakref.ref(mine[0]))
        ready.set()
        done.wait()

    thread = threading.Thread(target=work)
    thread.start()
    ready.wait()
    return tensors[0]().untyped_storage()._cdata, done, thread


def test_a_cycle_in_a_running_thread_is_held_until_the_thread_ends():
    address, done, thread = holding_thread()
    gc.disable()
    try:
        assert diagnose({"mine": [address]})["mine"].states == ["held"]
        done.set()
        thread.join()
        assert diagnose({"mine": [address]})["mine"].states == ["gc-pending"]
    finally:
        done.set()
        gc.enable()


def test_garbage_that_nobody_can_see_is_counted_once_per_storage():
    """Two views of one storage lie on the same cycle."""

    def views():
        ring: list[Any] = [torch.zeros(NUMBERS)]
        ring += [ring[0][:10], ring[0].view(2, -1), ring]
        return ring[1]

    assert look([views]).found[views].each == BYTES


def test_a_cycle_reached_from_another_cycle_is_counted_with_its_own_bytes():
    def outer():
        inner: list[Any] = [torch.zeros(NUMBERS)]
        inner.append(inner)
        table: dict[str, Any] = {"inner": inner, "large": torch.zeros(2 * NUMBERS)}
        table["again"] = table
        return inner[0]

    found = look([outer]).found[outer]
    assert found.states == ["gc-pending"] * COPIES
    assert found.each == BYTES


def test_a_stranded_cycle_that_also_has_a_plain_one_is_stranded():
    def both():
        y = leaf() * 2
        y.register_hook(lambda grad: y and None)
        y.itself = y
        return y

    seen = look([both])
    assert seen.alive_after[both] == COPIES
    assert seen.found[both].states == ["stranded"] * COPIES
    assert "hooks" in seen.found[both].closes


def test_breaking_a_stranded_cycle_frees_it_at_once():
    y = tensor_hook_over_its_non_leaf()
    reference, address = weakref.ref(y), y.untyped_storage()._cdata
    assert diagnose({"y": [address]})["y"].states == ["held"]
    y._backward_hooks.clear()
    del y
    assert reference() is None


@pytest.mark.parametrize(
    ("pairs", "on_cycle"),
    [
        ([], set()),
        ([(0, 1), (1, 2)], set()),
        ([(0, 0)], {0}),
        ([(0, 1), (1, 0), (1, 2)], {0, 1}),
        ([(0, 1), (1, 2), (2, 0), (3, 0)], {0, 1, 2}),
        ([(0, 1), (1, 0), (2, 3), (3, 2)], {0, 1, 2, 3}),
    ],
)
def test_components_know_which_nodes_lie_on_a_cycle(pairs, on_cycle):
    heap = small_heap(4, pairs)
    component, cyclic = cycles.components(heap, np.ones(len(pairs), bool))
    assert set(np.flatnonzero(cyclic[:4]).tolist()) == on_cycle
    for node in range(4):
        alike = set(np.flatnonzero(component == component[node]).tolist())
        assert alike == {node} or alike <= on_cycle


def small_heap(size: int, pairs: list[tuple[int, int]]) -> graph.Heap:
    ends = np.array(pairs, np.int64).reshape(-1, 2)
    zeros = np.zeros(size, np.int64)
    things = [object() for _ in range(size)]
    return graph.Heap(things, size, zeros, zeros, ends[:, 0], ends[:, 1], zeros, zeros > 0)


# ----------------------------------------------------------------------------------------------------------
# asked for by the user: leakhunter.cycles()

# Function -> its pattern and the reference to cut, as it is written in the drawing.
CUTS: dict[Callable[[], Any], tuple[str, str]] = {
    grad_with_its_graph: ("LH811", r"^\.grad$"),
    grad_assigned_with_its_graph: ("LH811", r"^\.grad$"),
    tensor_hook_over_its_non_leaf: ("LH813", r"^closure cell `y` of .*<lambda> at tests/test_cycles\.py:\d+$"),
    tensor_hook_over_its_leaf: ("LH813", r"^closure cell `p` of .*<lambda> at "),
    node_hook_over_its_tensor: ("LH813", r"^closure cell `after` of "),
    node_prehook_over_its_tensor: ("LH813", r"^closure cell `before` of "),
    hook_after_accumulation_over_its_parameter: ("LH813", r"^closure cell `p` of "),
    hook_of_many_tensors_over_them: ("LH813", r"^closure cell `one` of "),
    identity_pack_hook: ("LH812", r"^saved result by ExpBackward0$"),
    pack_hook_that_wraps: ("LH812", r"^saved result by ExpBackward0$"),
    tensor_in_metadata_of_its_node: ("LH815", r"^metadata of MulBackward0$"),
    checkpoint_without_reentry_over_its_output: ("LH816", r"^closure cell `box` of "),
    checkpoint_with_reentry_over_its_output: ("LH804", r"^ctx\.run_function$"),
    output_on_ctx: ("LH804", r"^ctx\.out$"),
    tensor_as_its_own_attribute: ("LH801", r"^\.source$"),
    output_stored_by_module_hook: ("LH803", r"^closure cell `net` of "),
    parent_and_child: ("LH801", r"^\.(parent|child)$"),
    own_bound_method: ("LH801", r"^\.__self__$"),
    lambda_over_its_owner: ("LH801", r"^closure cell `widget` of "),
    partial_over_its_owner: ("LH801", r"^\.args$"),
    exception_in_its_own_frame: ("LH801", r"^local `caught` of exception_in_its_own_frame\(\)$"),
    class_made_per_call: ("LH802", r"\[0\]$"),
    function_that_calls_itself: ("LH801", r"^closure cell `again` of "),
    generator_that_knows_itself: ("LH801", r"^local `mine` of .*produce\(\)$"),
    list_in_itself: ("LH801", r"^\[\*\]$"),
    dict_in_itself: ("LH801", r"^\['again'\]$"),
    set_of_its_owner: ("LH801", r"^\[\*\]$"),
    slots_that_meet: ("LH801", r"^\.other$"),
}


@pytest.fixture(scope="module")
def drawn() -> list[Cycle]:
    """All cycles after COPIES calls of each function; gc has not run meanwhile."""
    gc.collect()
    gc.disable()
    try:
        for make in CUTS:
            for _ in range(COPIES):
                make()
        stats = gc.get_stats()
        found = leakhunter.cycles()
        assert gc.get_stats() == stats
    finally:
        gc.enable()
        gc.collect()
    return found


def cut_of(cycle: Cycle) -> str:
    (label,) = (edge.label for edge in cycle.edges if edge.cut)
    return label


@named(CUTS)
def test_a_cycle_is_drawn_with_its_state_its_bytes_and_the_reference_to_cut(make, drawn):
    pattern, cut = CUTS[make]
    state = "stranded" if make in STRANDED else "gc-pending"
    alike = [c for c in drawn if (c.pattern, c.state) == (pattern, state) and re.search(cut, cut_of(c))]
    assert alike, [(c.pattern, c.state, cut_of(c)) for c in drawn]
    found = max(alike, key=lambda cycle: cycle.count)
    assert found.count >= COPIES
    assert found.bytes >= COPIES * CYCLES[make] * BYTES
    assert found.tensors >= COPIES * CYCLES[make]
    assert [edge.source for edge in found.edges] == list(range(len(found.nodes)))
    assert [edge.target for edge in found.edges] == [*range(1, len(found.nodes)), 0]
    assert any(edge.hidden for edge in found.edges) or make not in STRANDED
    assert found.fix.text
    assert "cut here" in str(found)


def test_largest_cycles_come_first(drawn):
    sizes = [cycle.bytes for cycle in drawn]
    assert sizes == sorted(sizes, reverse=True)


def test_a_cycle_that_a_variable_leads_to_is_held_and_says_by_which():
    box = Box()
    box.twin = Box()
    box.twin.brother, box.twin.weights = box, torch.ones(NUMBERS)
    found = [cycle for cycle in leakhunter.cycles() if cycle.state == "held"]
    (mine,) = (cycle for cycle in found if {".twin", ".brother"} == {edge.label for edge in cycle.edges})
    assert mine.bytes == BYTES
    assert mine.holder_of_last_reference == "box"


def test_more_cycles_than_are_put_into_words_are_all_counted():
    class Twin:
        """Of a type of its own."""

    def twins():
        one, other = Twin(), Twin()
        one.other, other.other, one.weights = other, one, torch.ones(NUMBERS)

    count = cycles.MOST_CYCLES + 150
    gc.disable()
    try:
        for _ in range(count):
            twins()
        (found,) = (cycle for cycle in leakhunter.cycles() if "Twin" in cycle.nodes[0].name)
    finally:
        gc.enable()
        gc.collect()
    assert (found.count, found.bytes, found.state) == (count, count * BYTES, "gc-pending")


@pytest.mark.parametrize("suffix", ["txt", "dot", "svg"])
def test_a_cycle_is_drawn_into_a_file(suffix, drawn, tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: None)
    drawn[0].draw(tmp_path / f"cycle.{suffix}")
    written = (tmp_path / f"cycle.{suffix}").read_text(encoding="utf-8")
    assert all(html.escape(node.name) in written or node.name in written for node in drawn[0].nodes)


@pytest.mark.parametrize("name", ["cycle.png", "cycle.xyz", "cycle"])
def test_what_cannot_be_drawn_is_said(name, drawn, tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(ValueError, match=r"cannot be written .*: give a name that ends in \.svg"):
        drawn[0].draw(tmp_path / name)
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not installed")
def test_graphviz_draws_it(drawn, tmp_path):
    for cycle in drawn:
        cycle.draw(tmp_path / "cycle.png")
    assert (tmp_path / "cycle.png").read_bytes().startswith(b"\x89PNG")
