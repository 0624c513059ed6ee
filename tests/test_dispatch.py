"""The recorder of births: it knows the user's line of every storage, changes no result, and keeps nothing."""

from __future__ import annotations

import copy
import gc
import inspect
import io
import re
import sys
import threading
import types
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils import _python_dispatch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from leakhunter.probe import dispatch
from leakhunter.probe.dispatch import Recorder

pytestmark = pytest.mark.usefixtures("settled")


def stack() -> list:
    return _python_dispatch._get_current_dispatch_mode_stack()


FLAGS = [name for name in vars(_python_dispatch) if name.startswith("_is_in_")]


@pytest.fixture(autouse=True)
def _modes_as_before() -> Iterator[None]:
    """One test must not leave its modes to the next."""
    flags = {name: getattr(_python_dispatch, name) for name in FLAGS}
    yield
    while stack():
        _python_dispatch._pop_mode()
    for name, value in flags.items():
        setattr(_python_dispatch, name, value)


@contextmanager
def armed(step: int = 1) -> Iterator[Recorder]:
    recorder = Recorder()
    recorder.arm(step)
    try:
        yield recorder
    finally:
        recorder.disarm()
    assert recorder.error is None


def birth(recorder: Recorder, tensor: torch.Tensor) -> dispatch.Birth | None:
    return recorder.births.living.get(tensor.untyped_storage()._cdata)


def lines(recorder: Recorder, tensor: torch.Tensor) -> list[tuple[str, int]]:
    """Function and line of each frame where a tensor was born, innermost first."""
    found = []
    for code, offset in recorder.births.stacks[birth(recorder, tensor).site]:
        (line,) = (line for start, end, line in code.co_lines() if start <= offset < end)
        found.append((code.co_name, line))
    return found


def here() -> int:
    return inspect.currentframe().f_back.f_lineno


def test_a_birth_has_its_step_size_device_and_operator():
    with armed(step=7) as recorder:
        kept = torch.ones(3, 4)
    assert birth(recorder, kept) == dispatch.Birth(7, 0, 48, "cpu", "aten::ones", kept.data_ptr())


LAYER = nn.Linear(4, 4)

ALLOCATIONS = {
    "a factory": lambda: torch.zeros(4),
    "an operator": lambda: LAYER.weight.detach() + 1,
    "a module of torch": lambda: LAYER(torch.ones(4)),
    "a tensor method": lambda: LAYER.weight.detach().clone(),
    "from numbers": lambda: torch.tensor([1.0, 2.0]) * 1,
    "a list of operators": lambda: torch._foreach_add([torch.ones(2)], 1)[0],
}


@pytest.mark.parametrize("allocate", ALLOCATIONS.values(), ids=ALLOCATIONS)
def test_a_birth_names_the_lines_of_the_user(allocate):
    with armed() as recorder:
        kept, line = allocate(), here()
    found = lines(recorder, kept)
    assert found[0] == ("<lambda>", allocate.__code__.co_firstlineno)
    assert found[1] == (inspect.currentframe().f_code.co_name, line)


def test_no_frame_is_of_a_library_or_of_ours():
    with armed() as recorder:
        kept = [LAYER(torch.ones(4))]
    files = {code.co_filename for made in recorder.births.stacks for code, _ in made}
    # The process itself may have been started with a piece of code.
    assert files - {"<string>"} == {__file__}
    assert kept


def test_a_gradient_is_born_on_the_line_that_calls_backward():
    parameter = torch.ones(3, requires_grad=True)
    with armed() as recorder:
        loss = (parameter * 2).exp().sum()
        loss.backward()
        line = here() - 1
    assert lines(recorder, parameter.grad)[0][1] == line


def test_the_state_of_an_optimizer_is_born_on_the_line_of_its_step():
    parameter = nn.Parameter(torch.ones(3))
    parameter.grad = torch.ones(3)
    optimizer = torch.optim.Adam([parameter])
    with armed() as recorder:
        optimizer.step()
        line = here() - 1
    assert lines(recorder, optimizer.state[parameter]["exp_avg"])[0][1] == line


def test_two_lines_are_two_sites_and_one_line_is_one():
    with armed() as recorder:
        first = torch.ones(3)
        many = [torch.ones(3) for _ in range(3)]
    assert len({birth(recorder, tensor).site for tensor in many}) == 1
    assert birth(recorder, first).site != birth(recorder, many[0]).site


BASE = torch.ones(4, 4)
NO_BIRTHS = {
    "view": lambda: BASE.view(16),
    "slice": lambda: BASE[1:],
    "split": lambda: BASE.split(2),
    "detach": lambda: BASE.detach(),
    "in place": lambda: BASE.mul_(1),
    "out": lambda: torch.add(BASE, 0, out=BASE),
    "contiguous already": lambda: BASE.contiguous(),
    "number": lambda: BASE.sum(dtype=torch.float64).item() and None,
}


@pytest.mark.parametrize("work", NO_BIRTHS.values(), ids=NO_BIRTHS)
def test_what_allocates_nothing_that_lasts_is_no_birth(work):
    with armed() as recorder:
        kept = work()
        recorder.quiet_point(1)
    assert not recorder.births.living
    assert kept is None or kept is not BASE.grad


def fake() -> torch.Tensor:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        return torch.ones(1000)


UNREAL = {"meta": lambda: torch.ones(3, device="meta"), "fake": fake}


@pytest.mark.parametrize("make", UNREAL.values(), ids=UNREAL)
def test_tensors_without_memory_are_no_births(make):
    with armed() as recorder:
        kept = make()
    assert not recorder.births.living
    assert kept is not None


def test_each_output_of_an_operator_is_a_birth():
    with armed() as recorder:
        values, indices = BASE.topk(2)
    assert birth(recorder, values).bytes == 32
    assert birth(recorder, indices).bytes == 64


def test_what_is_recorded_dies_as_it_would_unrecorded():
    with armed() as recorder:
        tensor = torch.ones(3)
        reference, address = weakref.ref(tensor), tensor.untyped_storage()._cdata
        del tensor
        assert reference() is None
        assert torch.UntypedStorage._expired(address)
        recorder.quiet_point(1)
    assert address not in recorder.births.living


def test_a_quiet_point_keeps_the_living_and_begins_the_next_step():
    with armed(step=3) as recorder:
        old = torch.ones(3)
        recorder.quiet_point(3)
        young = torch.ones(3)
        recorder.quiet_point(4)
    assert (birth(recorder, old).step, birth(recorder, young).step) == (3, 4)


def test_the_bytes_of_a_site_are_noted_at_each_quiet_point():
    kept = None
    with armed() as recorder:
        for step in range(1, 4):
            kept = torch.ones(10 * step)
            recorder.quiet_point(step)
    assert recorder.births.site_bytes[birth(recorder, kept).site] == [(1, 40, 1), (2, 80, 1), (3, 120, 1)]


def test_more_births_than_can_be_followed_are_left_out(monkeypatch):
    monkeypatch.setattr(dispatch, "MOST", 3)
    with armed() as recorder:
        kept = [torch.ones(3) for _ in range(5)]
    assert len(recorder.births.living) == 3
    assert kept


def test_a_closed_recorder_holds_nothing():
    with armed() as recorder:
        kept = torch.ones(3)
    recorder.close()
    assert recorder.births == dispatch.Births()
    assert kept.sum() == 3


class Scaled(torch.Tensor):
    """A subclass that counts what torch asks of it."""

    asked: list = []

    @classmethod
    def __torch_function__(cls, func, kinds, args=(), kwargs=None):
        cls.asked.append(func)
        return super().__torch_function__(func, kinds, args, kwargs or {})


class Wrapper(torch.Tensor):
    """A subclass that holds its tensor inside and counts operators."""

    asked: list = []

    @staticmethod
    def __new__(cls, inner):
        options = {"dtype": inner.dtype, "requires_grad": inner.requires_grad}
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, **options)

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func, kinds, args=(), kwargs=None):
        cls.asked.append(func)
        inside = [arg.inner if type(arg) is Wrapper else arg for arg in args]
        out = func(*inside, **(kwargs or {}))
        return Wrapper(out) if isinstance(out, torch.Tensor) else out


class Functions(TorchFunctionMode):
    """Doubles what ``torch.ones`` gives and notes what is called."""

    def __init__(self):
        super().__init__()
        self.asked = []

    def __torch_function__(self, func, kinds, args=(), kwargs=None):
        self.asked.append(func)
        out = func(*args, **(kwargs or {}))
        return out * 2 if func is torch.ones else out


class Operators(TorchDispatchMode):
    """Doubles what ``aten::ones`` gives and notes what is called."""

    def __init__(self):
        super().__init__()
        self.asked = []

    def __torch_dispatch__(self, func, kinds, args=(), kwargs=None):
        self.asked.append(func)
        out = func(*args, **(kwargs or {}))
        return out * 2 if func is torch.ops.aten.ones.default else out


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 3 * x**2 * grad


def leaf(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, requires_grad=True)


def train(optimizer_class, **options):
    net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.GELU(), nn.Linear(8, 2))
    optimizer = optimizer_class(net.parameters(), lr=0.1, **options)
    for _ in range(3):
        optimizer.zero_grad()
        net(torch.randn(5, 4)).square().mean().backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
    return list(net.state_dict().values())


def evaluate(guard):
    with guard:
        return nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()(torch.randn(2, 3, 8))


def recurrent():
    x = leaf(2, 5, 4)
    out, (h, c) = nn.LSTM(4, 4, 2, batch_first=True, dropout=0.2)(x)
    (out.sum() + h.sum() + c.sum()).backward()
    return out, x.grad


def convolution():
    x = leaf(2, 3, 8, 8)
    out = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2))(x)
    out.sum().backward()
    return out, x.grad


def checkpointed(**options):
    x = leaf(3, 4)
    net = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Tanh())
    checkpoint(net, x, **options).sum().backward()
    return x.grad, [parameter.grad for parameter in net.parameters()]


def autocast():
    net, x = nn.Linear(4, 4), leaf(3, 4)
    with torch.autocast("cpu", torch.bfloat16):
        out = net(net(x))
    out.float().sum().backward()
    return out, x.grad, net.weight.grad


def double_backward():
    x = leaf(3)
    (grad,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    grad.square().sum().backward()
    return x.grad


def custom_function():
    x = leaf(3)
    Cube.apply(x).sum().backward()
    return x.grad


def functorch():
    def loss(w, x):
        return (w * x).sin().sum()

    w, x = torch.randn(3), torch.randn(5, 3)
    each = torch.func.vmap(torch.func.grad(loss), (None, 0))(w, x)
    noisy = torch.func.vmap(lambda row: row + torch.randn(3), randomness="different")(x)
    return each, noisy, torch.func.hessian(loss)(w, x[0]), torch.func.jvp(torch.sin, (w,), (x[0],))


def functional_call():
    net = nn.Linear(3, 3)
    weights = {"weight": torch.ones(3, 3), "bias": torch.ones(3)}
    return torch.func.functional_call(net, weights, (torch.randn(3),))


def subclass():
    Scaled.asked.clear()
    x = torch.randn(3).as_subclass(Scaled).requires_grad_()
    loss = (x * 2).exp().sum()
    loss.backward()
    return x.grad, loss, list(Scaled.asked)


def wrapper():
    Wrapper.asked.clear()
    x = leaf(3)
    out = (x * Wrapper(torch.ones(3))).exp()
    return out.inner, list(Wrapper.asked)


def operator_mode():
    with Operators() as mode:
        x = torch.ones(3, requires_grad=True)
        (x * 3).sum().backward()
    return x.grad, x, mode.asked


def function_mode():
    with Functions() as mode:
        x = torch.ones(3).requires_grad_()
        nn.functional.linear(x, torch.ones(3, 3)).sum().backward()
    return x.grad, x, mode.asked


def nested_modes():
    with Functions() as outer, Operators() as inner, torch.device("cpu"), Operators() as innermost:
        x = leaf(3)
        (Cube.apply(x) + torch.ones(3)).sum().backward()
    return x.grad, outer.asked, inner.asked, innermost.asked


def saved_hooks():
    x = leaf(3)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
        out = x.exp() * x
    out.sum().backward()
    return x.grad


def copies():
    net, file = nn.Linear(3, 3), io.BytesIO()
    torch.save(net.state_dict(), file)
    file.seek(0)
    return torch.load(file)["weight"], copy.deepcopy(net).weight


def odd_layouts():
    x = torch.eye(3).to_sparse()
    turned = torch.randn(3, 3).t().contiguous()
    return x @ turned, x.to_dense(), torch.fft.fft(turned), turned


def graph_of_fx():
    from torch.fx.experimental.proxy_tensor import make_fx

    return str(make_fx(lambda x: (x.sin() @ x).relu())(torch.randn(3, 3)).graph)


def traced(function, *shape: int):
    function = torch.jit.trace(function, (torch.ones(*shape),), check_trace=False)
    # Classes of modules are numbered through the whole process.
    return re.sub(r"___torch_mangle_\d+\.", "", str(function.graph)), function(torch.ones(*shape))


WORK = {
    "sgd": lambda: train(torch.optim.SGD, momentum=0.9),
    "adam": lambda: train(torch.optim.Adam),
    "adam one by one": lambda: train(torch.optim.AdamW, foreach=False),
    "fused adam": lambda: train(torch.optim.AdamW, fused=True),
    "recurrent": recurrent,
    "convolution": convolution,
    "inference mode": lambda: evaluate(torch.inference_mode()),
    "no grad": lambda: evaluate(torch.no_grad()),
    "checkpoint": lambda: checkpointed(use_reentrant=False),
    "reentrant checkpoint": lambda: checkpointed(use_reentrant=True),
    "autocast": autocast,
    "double backward": double_backward,
    "custom function": custom_function,
    "functorch": functorch,
    "functional call": functional_call,
    "subclass": subclass,
    "wrapper subclass": wrapper,
    "dispatch mode": operator_mode,
    "function mode": function_mode,
    "nested modes": nested_modes,
    "saved tensors hooks": saved_hooks,
    "copies": copies,
    "odd layouts": odd_layouts,
    "graph of fx": graph_of_fx,
    "traced function": lambda: traced(lambda x: x.exp() + x, 3),
    "traced function with a number": lambda: traced(lambda x: x * 2, 3),
    "traced linear": lambda: traced(nn.Linear(3, 3), 3),
    "traced convolution": lambda: traced(nn.Sequential(nn.Conv2d(1, 1, 1), nn.ReLU()), 1, 1, 3, 3),
}


def assert_same(one: object, other: object) -> None:
    assert type(one) is type(other)
    if isinstance(one, torch.Tensor):
        with torch._C.DisableTorchFunctionSubclass():
            assert (one.dtype, one.stride()) == (other.dtype, other.stride())
            assert (one.is_inference(), type(one.grad_fn)) == (other.is_inference(), type(other.grad_fn))
            assert one.requires_grad == other.requires_grad
            assert torch.equal(one, other)
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other)
        for left, right in zip(one, other, strict=True):
            assert_same(left, right)
    else:
        assert one == other


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("work", WORK.values(), ids=WORK)
def test_results_are_the_same_with_and_without_the_recorder(work):
    torch.manual_seed(0)
    without = work()
    torch.manual_seed(0)
    with armed() as recorder:
        recorded = work()
    assert_same(recorded, without)
    assert recorder.births.stacks


def test_results_of_compiled_functions_are_the_same(run_python):
    code = """
import torch
from leakhunter.probe.dispatch import Recorder, may_arm
def function(x):
    return (x.sin() @ x).relu().sum()
x = torch.randn(4, 4, requires_grad=True)
expected = function(x)
expected.backward()
grad, x.grad = x.grad, None
graphs = []
def backend(graph, inputs):
    graphs.append(graph)
    return graph.forward
assert may_arm()
recorder = Recorder()
recorder.arm(1)
for chosen in (backend, "eager", "aot_eager"):
    torch._dynamo.reset()
    out = torch.compile(function, backend=chosen, fullgraph=True)(x)
    out.backward()
    assert torch.equal(out, expected) and torch.equal(x.grad, grad), chosen
    x.grad = None
recorder.close()
assert len(graphs) == 1 and recorder.error is None
assert not may_arm()
"""
    done = run_python(code)
    assert done.returncode == 0, done.stderr


def test_errors_of_operators_are_those_of_torch():
    def mistake():
        torch.ones(2, 3) @ torch.ones(2, 3)

    with pytest.raises(RuntimeError) as without:
        mistake()
    with armed(), pytest.raises(RuntimeError) as recorded:
        mistake()
    assert str(recorded.value) == str(without.value)


@pytest.mark.parametrize("above", [0, 1, 2])
@pytest.mark.parametrize("below", [0, 1, 2])
def test_disarming_leaves_the_modes_of_the_user_as_they_were(below, above):
    modes = [Operators() for _ in range(below + above)]
    for mode in modes[:below]:
        mode.__enter__()
    recorder = Recorder()
    recorder.arm(1)
    for mode in modes[below:]:
        mode.__enter__()
    recorder.disarm()
    assert list(map(id, stack())) == list(map(id, modes))
    assert not recorder.armed
    assert _python_dispatch.is_in_torch_dispatch_mode() == bool(modes)
    for mode in reversed(modes):
        mode.__exit__(None, None, None)
    assert not stack()
    assert not _python_dispatch.is_in_torch_dispatch_mode()


def test_a_mode_that_the_user_leaves_while_the_recorder_is_armed_is_left():
    recorder = Recorder()
    with Operators() as mode:
        recorder.arm(1)
    mode.asked.clear()
    kept = torch.ones(3)
    assert mode not in stack()
    assert not mode.asked
    assert birth(recorder, kept) is not None
    recorder.disarm()
    assert not stack()


def test_disarming_twice_or_unarmed_does_nothing():
    recorder = Recorder()
    recorder.disarm()
    recorder.arm(1)
    assert recorder.armed
    recorder.disarm()
    recorder.disarm()
    assert not stack()


def test_what_other_threads_allocate_is_not_recorded():
    kept = []
    with armed() as recorder:
        thread = threading.Thread(target=lambda: kept.append(torch.ones(3)))
        thread.start()
        thread.join()
    assert birth(recorder, kept[0]) is None


def test_a_recorder_disarmed_by_another_thread_records_no_more():
    recorder = Recorder()
    recorder.arm(1)
    thread = threading.Thread(target=recorder.disarm)
    thread.start()
    thread.join()
    kept = torch.ones(3)
    assert not recorder.armed
    assert birth(recorder, kept) is None


def test_a_process_forked_while_armed_records_nothing(monkeypatch):
    with armed() as recorder:
        monkeypatch.setattr(dispatch, "os", types.SimpleNamespace(getpid=lambda: -1))
        kept = torch.ones(3)
    assert birth(recorder, kept) is None


def broken(*arguments):
    raise RuntimeError("injected")


def test_an_error_of_ours_is_kept_for_later_and_ends_the_recording(monkeypatch):
    recorder = Recorder()
    monkeypatch.setattr(recorder, "_born", broken)
    recorder.arm(1)
    assert torch.ones(3).sum().item() == 3
    monkeypatch.undo()
    kept = torch.ones(3)
    recorder.disarm()
    assert "injected" in str(recorder.error)
    assert birth(recorder, kept) is None


def test_an_error_of_ours_keeps_no_tensor_after_the_end(monkeypatch):
    recorder = Recorder()
    monkeypatch.setattr(recorder, "_born", broken)

    def work():
        recorder.arm(1)
        tensor = torch.ones(3)
        recorder.close()
        return weakref.ref(tensor)

    was_on = gc.isenabled()
    gc.disable()
    try:
        reference = work()
        assert reference() is None
    finally:
        if was_on:
            gc.enable()


def pack(tensor):
    return tensor


def test_hooks_that_pack_saved_tensors_are_named():
    x = leaf(3)
    with armed() as recorder, torch.autograd.graph.saved_tensors_hooks(pack, pack):
        kept = x.exp()
    assert recorder.births.pack_hooks == {("pack", __file__, pack.__code__.co_firstlineno)}
    assert kept is not None


def test_attributes_of_pack_hooks_are_not_run():
    class Hook:
        asked: list = []

        def __call__(self, tensor):
            return tensor

        def __getattr__(self, name):
            Hook.asked.append(name)
            raise RuntimeError(f"asked for {name}")

    x = leaf(3)
    recorder = Recorder()
    with torch.autograd.graph.saved_tensors_hooks(Hook(), Hook()):
        recorder.arm(1)
        kept = x.exp()
        recorder.disarm()
    assert kept is not None
    assert not Hook.asked
    assert recorder.error is None


def test_input_shapes_that_no_earlier_step_had_are_noted():
    layer = nn.Conv1d(1, 1, 1)
    with armed() as recorder:
        for step, length in enumerate([5, 5, 6, 7], 1):
            layer(torch.ones(1, 1, length))
            line = here() - 1
            recorder.quiet_point(step)
    assert recorder.births.new_shapes == {1: 1, 3: 1, 4: 1}
    code, offset = recorder.births.stacks[recorder.births.shaped_site][0]
    assert line in {each for start, end, each in code.co_lines() if start <= offset < end}


DYNAMO = "torch._dynamo.eval_frame"


@pytest.fixture
def _nothing_compiled(monkeypatch) -> None:
    monkeypatch.delitem(sys.modules, DYNAMO, raising=False)


@pytest.mark.usefixtures("_nothing_compiled")
def test_the_recorder_may_be_armed_in_an_ordinary_loop():
    assert dispatch.may_arm()


@pytest.mark.parametrize(
    ("backends", "allowed"), [({}, True), ({1: None}, True), ({1: len}, False), ({1: None, 2: len}, False)]
)
def test_the_recorder_is_not_armed_where_code_is_compiled(backends, allowed, monkeypatch):
    monkeypatch.setitem(sys.modules, DYNAMO, types.SimpleNamespace(cached_backends=backends))
    assert dispatch.may_arm() == allowed


@pytest.mark.usefixtures("_nothing_compiled")
@pytest.mark.parametrize("capturing", [False, True])
def test_the_recorder_is_not_armed_while_a_cuda_graph_is_captured(capturing, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: capturing)
    assert dispatch.may_arm() == (not capturing)


@pytest.mark.usefixtures("_nothing_compiled")
@pytest.mark.filterwarnings("ignore")
def test_the_recorder_is_not_armed_while_a_function_is_traced():
    seen = []

    def function(x):
        seen.append(dispatch.may_arm())
        return x + x

    torch.jit.trace(function, (torch.ones(3),), check_trace=False)
    assert seen == [False]


@pytest.mark.usefixtures("_nothing_compiled")
@pytest.mark.parametrize("loaded", [False, True])
def test_an_older_torch_that_has_loaded_flex_attention_is_not_recorded(loaded, monkeypatch):
    monkeypatch.delattr(TorchDispatchMode, "supports_higher_order_operators", raising=False)
    monkeypatch.delitem(sys.modules, dispatch.FLEX, raising=False)
    if loaded:
        monkeypatch.setitem(sys.modules, dispatch.FLEX, types.ModuleType(dispatch.FLEX))
    assert dispatch.may_arm() == (not loaded)
