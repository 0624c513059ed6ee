"""Call stack and birth step of every storage that PyTorch's operators make while this is armed, on any device.

A ``TorchDispatchMode`` sees the outputs of each operator, those of backward included. It is armed for a few steps
only: on a loop of tiny operators it triples their cost.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import CodeType, FrameType, FunctionType
from typing import Any

import torch
from torch.utils import _python_dispatch
from torch.utils._python_dispatch import TorchDispatchMode

from leakhunter.findings import Frame
from leakhunter.origin import is_ours, is_user_file

# More births than this are not followed: the table would be larger than the evidence is worth.
MOST = 200_000
DEEPEST = 8

# Operators whose CPU kernels are generated and kept per input shape (oneDNN primitive cache).
SHAPED = {
    "aten::convolution",
    "aten::convolution_backward",
    "aten::mkldnn_convolution",
    "aten::mkldnn_linear",
    "aten::mkldnn_rnn_layer",
    "aten::_mkldnn_transpose",
}

FLEX = "torch.nn.attention.flex_attention"

# Where torch.jit and the older ONNX exporter begin to trace.
TRACERS = (
    (torch.jit._trace, "_trace_impl"),
    (torch.jit._trace, "trace_module"),
    (torch.jit, "trace_module"),
    (torch.jit._trace.ONNXTracedModule, "forward"),
)

# The node that backward runs on this thread, None outside of it, and the number that the next new node will have.
_current_node: Callable[[], Any] = getattr(torch._C, "_current_autograd_node", lambda: None)
_sequence_number: Callable[[], int] = getattr(torch._C._autograd, "_get_sequence_nr", lambda: -1)

# A call stack, innermost first: (code, instruction offset) pairs of user frames, or frames that an allocator recorded.
Stack = tuple[tuple[CodeType, int] | Frame, ...]


@dataclass
class Birth:
    """One storage: born in ``step`` at ``stacks[site]`` as output of ``op``; ``data`` is the address of its memory.

    Where backward made it, ``node`` is the autograd node and ``stacks[forward]`` where the forward pass made that node.
    """

    step: int
    site: int
    bytes: int
    device: str
    op: str
    data: int = 0
    node: str = ""
    forward: int = -1

    @property
    def kind(self) -> tuple[Any, ...]:
        """Equal for storages that one expression makes in one step, alike in size."""
        return self.step, self.site, self.op, self.node, self.forward, self.bytes


@dataclass
class Births:
    """What the recorder saw. ``living`` maps the address of a StorageImpl to its birth."""

    living: dict[int, Birth] = field(default_factory=dict)
    stacks: list[Stack] = field(default_factory=list)
    # storages born, also those that have died, by `Birth.kind`
    made: Counter[tuple[Any, ...]] = field(default_factory=Counter)
    # site -> bytes alive at each quiet point, to see one tensor that is replaced by ever larger ones
    site_bytes: dict[int, list[tuple[int, int, int]]] = field(default_factory=dict)
    # step -> operators met with an input shape that no earlier step of the probe had
    new_shapes: dict[int, int] = field(default_factory=dict)
    # where they were met last
    shaped_site: int = -1
    traced_steps: set[int] = field(default_factory=set)
    # names of the pack hooks that were active, with file and line
    pack_hooks: set[tuple[str, str, int]] = field(default_factory=set)
    armed_steps: set[int] = field(default_factory=set)


class Recorder(TorchDispatchMode):
    """Records births while it is on the stack of dispatch modes of the thread that armed it."""

    def __init__(self, after_operator: Callable[[], None] = lambda: None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.births = Births()
        self._after_operator = after_operator
        self.step = 0
        self.error: Exception | None = None
        self._sites: dict[tuple[tuple[int, int], ...], int] = {}
        self._fresh: dict[Any, tuple[bool, ...]] = {}
        self._shapes: set[tuple[Any, ...]] = set()
        self._devices: dict[torch.device, str] = {}
        # sequence number of an autograd node -> site of the forward operator that made it
        self._forward: dict[int, int] = {}
        self._sequence = -1
        self._thread: int | None = None
        self._process = 0
        # (owner, name, original, guard) of each function that is guarded now
        self._tracers: list[tuple[Any, str, Any, Any]] = []

    # Without this, a higher-order operator met under a mode of ours would raise into the user's program.
    supports_higher_order_operators = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Wrapped against dynamo, the first operator recorded would import all of torch._dynamo: seconds, and 100 MB.
        return False

    @classmethod
    def is_infra_mode(cls) -> bool:
        """Tells torch.compile that this mode only watches."""
        return True

    def arm(self, step: int) -> None:
        """Record from now on, as step ``step``."""
        self.step = step
        self._thread, self._process = threading.get_ident(), os.getpid()
        self.births.armed_steps.add(step)
        self._join_stack()
        self._guard_tracers()

    def disarm(self) -> None:
        """Leave the stack of modes as it would be without us, also when the program has pushed modes since."""
        if self._thread is None:
            return
        self._release_tracers()
        # On another thread the mode stays on that thread's stack and from now on only passes calls through.
        if self._thread == threading.get_ident():
            self._leave_stack()
        self._thread = None

    def _join_stack(self) -> None:
        # Below the program's own modes: a mode ends by taking the topmost one off, whichever that is. The flags that
        # TorchDispatchMode.__enter__ sets are the program's too, and stay as they are.
        above = []
        while any(getattr(mode, "_mode_key", None) is None for mode in _modes()):
            above.append(_python_dispatch._pop_mode())
        _python_dispatch._push_mode(self)
        for mode in reversed(above):
            _python_dispatch._push_mode(mode)

    def _leave_stack(self) -> None:
        if not any(mode is self for mode in _modes()):
            return
        above = []
        while (mode := _python_dispatch._pop_mode()) is not self:
            above.append(mode)
        for mode in reversed(above):
            _python_dispatch._push_mode(mode)

    def _guard_tracers(self) -> None:
        """``torch.jit.trace`` raises under any dispatch mode, so that we stay off the stack while it runs."""
        for owner, name in TRACERS:
            original = getattr(owner, name, None)
            if original is not None:
                guard = self._guarded(original)
                setattr(owner, name, guard)
                self._tracers.append((owner, name, original, guard))

    def _release_tracers(self) -> None:
        for owner, name, original, guard in self._tracers:
            # Whatever has been put in its place meanwhile is not ours to remove.
            if getattr(owner, name) is guard:
                setattr(owner, name, original)
        self._tracers.clear()

    def _guarded(self, tracer: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(tracer)
        def trace(*args: Any, **kwargs: Any) -> Any:
            away = self._thread == threading.get_ident() and any(mode is self for mode in _modes())
            if away:
                self._leave_stack()
                self.births.traced_steps.add(self.step)
            try:
                return tracer(*args, **kwargs)
            finally:
                if away and self._thread == threading.get_ident():
                    self._join_stack()

        return trace

    @property
    def armed(self) -> bool:
        """Whether operators are being recorded."""
        return self._thread is not None

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = _call(func, args, kwargs or {})
        if self._thread is not None and self.error is None and os.getpid() == self._process:
            try:
                # What slots.unwatched() does, for a third of its time.
                with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
                    self._record(func, args, out)
                    self._after_operator()
            except Exception as error:
                # Its traceback would keep the tensors of our frames.
                self.error = error.with_traceback(None)
        return out

    def _record(self, func: Any, args: Any, out: Any) -> None:
        fresh = self._fresh.get(func)
        if fresh is None:
            fresh = self._fresh[func] = _fresh_outputs(func)
        node = _current_node()
        site = self._forward_site() if node is None else -1
        if not any(fresh):
            return
        outputs = out if len(fresh) > 1 else (out,)
        for is_fresh, output in zip(fresh, outputs, strict=False):
            if not is_fresh:
                continue
            for tensor in _tensors(output):
                if tensor.layout is not torch.strided:
                    continue
                if site < 0:
                    site = self._site()
                self._born(tensor, func, site, node)
        if site >= 0:
            self._observe(func, args, site)

    def _forward_site(self) -> int:
        """The site of an operator that an autograd node has just been made for, -1 when none has."""
        sequence = _sequence_number()
        if sequence == self._sequence or len(self._forward) >= MOST:
            return -1
        self._sequence = sequence
        site = self._forward[sequence - 1] = self._site()
        return site

    def _born(self, tensor: torch.Tensor, func: Any, site: int, node: Any) -> None:
        living = self.births.living
        if len(living) >= MOST:
            return
        storage = tensor.untyped_storage()
        device = self._devices.get(storage.device)
        if device is None:
            device = self._devices[storage.device] = str(storage.device)
        if device == "meta":  # FakeTensors too, whatever device they stand for
            return
        try:
            data = storage.data_ptr()
        except RuntimeError:  # the zeros of forward-mode differentiation have no memory
            return
        address: int = storage._weak_ref()  # type: ignore[assignment]
        if address in living:
            torch.UntypedStorage._free_weak_ref(address)
            return
        birth = living[address] = Birth(self.step, site, storage.nbytes(), device, func._schema.name, data)
        if node is not None:
            birth.node = node.name().rsplit("::", 1)[-1]
            birth.forward = self._forward.get(node._sequence_nr(), -1)
        self.births.made[birth.kind] += 1

    def _observe(self, func: Any, args: Any, site: int) -> None:
        name = func._schema.name
        if name in SHAPED:
            key = (name, *(tuple(a.shape) for a in args if isinstance(a, torch.Tensor)))
            if key not in self._shapes:
                self._shapes.add(key)
                self.births.shaped_site = site
                self.births.new_shapes[self.step] = self.births.new_shapes.get(self.step, 0) + 1

    def _site(self) -> int:
        stack = _user_frames(sys._getframe())
        if not stack and self._thread is not None and self._thread != threading.get_ident():
            # Nothing stands above us on a thread of the autograd engine: the loop's own thread waits in backward().
            stack = _user_frames(sys._current_frames().get(self._thread))
        # By id: a code object is hashed, and compared, by all that it contains.
        key = tuple([(id(code), offset) for code, offset in stack])
        site = self._sites.get(key)
        if site is None:
            site = self._sites[key] = len(self.births.stacks)
            self.births.stacks.append(tuple(stack))
            self._note_pack_hook()
        return site

    def _note_pack_hook(self) -> None:
        top = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)
        hooks = top(False) if top is not None else None
        if hooks and type(hooks[0]) is FunctionType:
            code = hooks[0].__code__
            self.births.pack_hooks.add((hooks[0].__qualname__, code.co_filename, code.co_firstlineno))

    def quiet_point(self, step: int) -> None:
        """End of ``step``: drop what has died, note how many bytes each site keeps alive."""
        births = self.births
        expired, free = torch.UntypedStorage._expired, torch.UntypedStorage._free_weak_ref
        for address in [address for address in births.living if expired(address)]:
            free(address)  # type: ignore[no-untyped-call]
            del births.living[address]
        per_site: dict[int, list[int]] = {}
        for birth in births.living.values():
            total = per_site.setdefault(birth.site, [0, 0])
            total[0] += birth.bytes
            total[1] += 1
        for site, (size, count) in per_site.items():
            births.site_bytes.setdefault(site, []).append((step, size, count))
        self.step = step + 1

    def close(self) -> None:
        """Let go of everything."""
        self.disarm()
        for address in self.births.living:
            torch.UntypedStorage._free_weak_ref(address)
        self.births = Births()
        self.error = None
        self._sites.clear()
        self._fresh.clear()
        self._shapes.clear()
        self._forward.clear()


def _user_frames(frame: FrameType | None) -> list[tuple[CodeType, int]]:
    """The user's frames from ``frame`` outwards; a library's innermost one where there is none."""
    stack: list[tuple[CodeType, int]] = []
    innermost: tuple[CodeType, int] | None = None
    while frame is not None and len(stack) < DEEPEST:
        code = frame.f_code
        if is_user_file(code.co_filename):
            stack.append((code, frame.f_lasti))
        elif innermost is None and not is_ours(code.co_filename):
            innermost = (code, frame.f_lasti)
        frame = frame.f_back
    return stack or ([innermost] if innermost is not None else [])


def _call(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    try:
        return func(*args, **kwargs)
    except RuntimeError:
        wrapped = _numbers_as_tensors(func, args)
        if wrapped is None:
            raise
    return func(*wrapped, **kwargs)


def _numbers_as_tensors(func: Any, args: Any) -> list[Any] | None:
    """``args`` with a tensor for each number where ``func`` asks for one, None when there is no such number.

    TorchScript passes constants as tensors that are marked as numbers; a mode is given them as numbers, and not every
    operator takes them back. The types are those of c10::scalar_to_tensor.
    """
    wanted = [str(argument.type) == "Tensor" for argument in func._schema.arguments]
    numbers = {bool: torch.bool, int: torch.int64, float: torch.float64, complex: torch.complex128}
    wrapped = [
        torch.tensor(value, dtype=numbers[type(value)]) if is_wanted and type(value) in numbers else value
        for value, is_wanted in zip(args, wanted, strict=False)
    ]
    same = all(one is other for one, other in zip(wrapped, args, strict=False))
    return None if same else wrapped


def _modes() -> list[Any]:
    modes: list[Any] = _python_dispatch._get_current_dispatch_mode_stack()
    return modes


def _fresh_outputs(func: Any) -> tuple[bool, ...]:
    """For each output of an operator, whether its memory is new: neither a view of an input nor the input itself."""
    schema = getattr(func, "_schema", None)
    if schema is None:
        return ()
    return tuple(output.alias_info is None for output in schema.returns)


def _tensors(output: Any) -> Iterator[torch.Tensor]:
    if isinstance(output, torch.Tensor):
        yield output
    elif isinstance(output, (list, tuple)):
        for item in output:
            yield from _tensors(item)


def may_arm() -> bool:
    """Whether a dispatch mode may be used now.

    Compiled code would leave its fast path, a CUDA graph capture would record what we do, and before torch knew
    ``supports_higher_order_operators`` an operator such as flex attention raised under any mode it did not know.
    """
    dynamo = sys.modules.get("torch._dynamo.eval_frame")
    # Optimizers load dynamo only to keep it off, and leave a backend of None behind.
    if dynamo is not None and any(getattr(dynamo, "cached_backends", {}).values()):
        return False
    if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
        return False
    if not hasattr(TorchDispatchMode, "supports_higher_order_operators") and FLEX in sys.modules:
        return False
    return not torch._C._get_tracing_state()
