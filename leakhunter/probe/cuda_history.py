"""The CUDA allocator's own history, switched on for the steps of a probe: where and when each living block was born.

It sees what no dispatch mode can: blocks that backward allocates on a thread of the autograd engine, and those that
C++ and compiled code allocate. A history that the program or another tool has switched on is used and left as it is.
What differs between versions of torch is looked for, and keys that are not known are ignored.
"""

from __future__ import annotations

import inspect
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch

from leakhunter.findings import Frame
from leakhunter.origin import is_ours, is_user_file
from leakhunter.probe.census import uninterrupted
from leakhunter.units import size

# Trace entries kept; each costs some hundred bytes of host memory. A probe of ten steps needs ten steps' worth.
MOST = 200_000
DEEPEST = 8
# What need not be recorded, where that can be said.
UNREAD = ["free_requested", "free_completed", "segment_alloc", "segment_free"]
# What `_record_memory_history` calls.
SWITCH = "_cuda_record_memory_history"
# The pool of everything that belongs to no CUDA graph, compiled function or MemPool.
COMMON_POOL = (0, 0)
# Kinds of blocks that belong to no tensor.
GRAPH_POOL, MEM_POOL, WORKSPACE = "CUDA graph pool", "MemPool", "cuBLAS workspace"
OTHER_BLOCK = "block without a tensor"
# Bytes of a cuBLAS workspace by default (:4096:2:16:8 in KiB), and on Hopper and newer (:4096:8), for each handle and
# stream (getChosenWorkspaceSize in PyTorch's CUDABlas.cpp).
CUBLAS, CUBLAS_HOPPER = (2 * 4096 + 8 * 16) * 1024, 8 * 4096 * 1024


@dataclass(frozen=True)
class Block:
    """A living block of device memory.

    ``bytes`` are those that were asked for, ``step`` is the step of its birth, None when the history does not reach
    back so far, and ``stack`` the user's frames, innermost first, empty for what backward and C++ allocate.
    """

    address: int
    bytes: int
    device: int
    step: int | None
    stack: tuple[Frame, ...]
    pool: tuple[int, int] = COMMON_POOL

    @property
    def kind(self) -> str:
        """What a block is that belongs to no tensor and to no MemPool of the program."""
        if self.pool != COMMON_POOL:
            return GRAPH_POOL
        return WORKSPACE if self.bytes in workspace_sizes() else OTHER_BLOCK


class History:
    """Switches the history on for some steps and reads it once."""

    def __init__(self) -> None:
        self.remarks: list[str] = []
        self._ours = False
        # (microseconds at which a step began, its number)
        self._marks: list[tuple[int, int]] = []
        # what switches histories on and off, and what stands in its place while ours is on
        self._switch: tuple[Any, Any] | None = None

    def arm(self, step: int) -> None:
        """Record from now on, as step ``step``."""
        if not is_enabled():
            self._begin()
        self._marks.append((_now(), step))

    def quiet_point(self, step: int) -> None:
        """End of ``step``."""
        if not is_enabled():
            self.remarks.append("the CUDA allocator's history was switched off during a probe; it was armed again")
            self._begin()
        self._marks.append((_now(), step + 1))

    def blocks(self) -> dict[int, Block]:
        """All living blocks by address. Takes one snapshot: tens of milliseconds for 20,000 blocks."""
        with without_inductor():
            snapshot = torch._C._cuda_memorySnapshot(None)
        return {block.address: block for block in read(snapshot, self._step_at)}

    def disarm(self) -> None:
        """Leave the history as it was found."""
        self._release()
        if self._ours and is_enabled():
            torch.cuda.memory._record_memory_history(enabled=None)
        self._ours = False

    def _begin(self) -> None:
        """Switch on a history that is ours until somebody else asks for one, which then is not ours to switch off."""
        self._release()
        _switch_on()
        self._ours = True
        original = getattr(torch._C, SWITCH, None)
        if original is None:
            return

        def switch(enabled: Any, *settings: Any, **more: Any) -> Any:
            result = original(enabled, *settings, **more)
            self._ours = self._ours and enabled is None
            return result

        setattr(torch._C, SWITCH, switch)
        self._switch = original, switch

    def _release(self) -> None:
        # Whatever has been put in its place meanwhile is not ours to remove.
        if self._switch is not None and getattr(torch._C, SWITCH) is self._switch[1]:
            setattr(torch._C, SWITCH, self._switch[0])
        self._switch = None

    def _step_at(self, microseconds: int) -> int | None:
        found = None
        for start, step in self._marks:
            if start <= microseconds:
                found = step
        return found


def pool_remarks(blocks: Iterable[Block]) -> list[str]:
    """How much is in use in each private pool, which no counter of the allocator tells."""
    in_use: Counter[tuple[int, tuple[int, int]]] = Counter()
    for block in blocks:
        if block.pool != COMMON_POOL:
            in_use[block.device, block.pool] += block.bytes
    return [
        f"private pool {pool} of cuda:{device} has {size(count)} in use" for (device, pool), count in in_use.items()
    ]


def workspace_sizes() -> frozenset[int]:
    """Bytes of a cuBLAS workspace: what ``CUBLAS_WORKSPACE_CONFIG`` says (``:KiB:count``), or either default."""
    numbers = os.environ.get("CUBLAS_WORKSPACE_CONFIG", "").split(":")[1:]
    if not numbers or len(numbers) % 2 or not all(number.isdigit() for number in numbers):
        return frozenset({CUBLAS, CUBLAS_HOPPER})
    return frozenset({sum(int(a) * 1024 * int(b) for a, b in zip(numbers[::2], numbers[1::2], strict=True))})


def can_arm() -> bool:
    """Whether there is a history to use now: CUDA in use, with PyTorch's own allocator, and no graph being captured."""
    if not torch.cuda.is_initialized() or not hasattr(torch._C, "_cuda_memorySnapshot"):
        return False
    backend = getattr(torch.cuda, "get_allocator_backend", lambda: "native")()
    return backend == "native" and not torch.cuda.is_current_stream_capturing()


def is_enabled() -> bool:
    """Whether somebody records now. Versions that cannot be asked are asked for their newest entries."""
    ask = getattr(torch._C, "_cuda_isHistoryEnabled", None)
    if ask is not None:
        return bool(ask())
    return any(torch._C._cuda_memorySnapshot(None).get("device_traces", ()))


@contextmanager
def without_inductor() -> Iterator[None]:
    """Keep a snapshot from importing torch._inductor: seconds, and 100 MB, to ask it for frames of compiled code.

    Where it is not loaded there is no such code, so a stand-in that knows none gives the same answer.
    """
    if "torch._inductor" in sys.modules:
        yield
        return
    cache = SimpleNamespace(stack_frames_for_code=lambda path, line: None)
    with uninterrupted():
        vars(torch)["_inductor"] = SimpleNamespace(codecache=SimpleNamespace(PyCodeCache=cache))
        try:
            yield
        finally:
            del vars(torch)["_inductor"]


def _switch_on() -> None:
    # Stacks are read from living blocks, so that entries of the trace need none: they cost host memory in every step.
    wanted = {"enabled": "all", "context": "state", "stacks": "python", "max_entries": MOST, "skip_actions": UNREAD}
    known = set(inspect.signature(torch.cuda.memory._record_memory_history).parameters)
    if not {"context", "stacks"} <= known:
        torch.cuda.memory._record_memory_history(enabled="all")
        return
    settings = {name: value for name, value in wanted.items() if name in known}
    torch.cuda.memory._record_memory_history(**settings)  # type: ignore[arg-type]


def _now() -> int:
    return time.time_ns() // 1000


def read(snapshot: Mapping[str, Any], step_at: Any) -> Iterator[Block]:
    """The living blocks of a raw snapshot. ``step_at`` gives the step of a time in microseconds, or None."""
    born: dict[int, int] = {}
    for trace in snapshot.get("device_traces", ()):
        for entry in trace:
            if entry.get("action") == "alloc" and "time_us" in entry:
                born[entry["addr"]] = entry["time_us"]
    for segment in snapshot.get("segments", ()):
        address = segment["address"]
        for block in segment["blocks"]:
            if block.get("state") == "active_allocated":
                at = block.get("address", address)
                yield Block(
                    at,
                    block.get("requested_size", block["size"]),
                    segment.get("device", 0),
                    step_at(born[at]) if at in born else None,
                    stack_of(block.get("frames", ())),
                    tuple(segment.get("segment_pool_id", COMMON_POOL)),
                )
            address += block["size"]


def stack_of(frames: Any) -> tuple[Frame, ...]:
    """The user's frames of a recorded stack, innermost first; a library's innermost one where there is none."""
    all_frames = [
        Frame(frame.get("filename", ""), frame.get("line", 0), frame.get("name", ""))
        for frame in frames
        if not is_ours(frame.get("filename", "")) and not _is_native(frame)
    ]
    users = [frame for frame in all_frames if is_user_file(frame.file) and not _is_generated(frame.file)]
    return tuple(users[:DEEPEST] or all_frames[:1])


def _is_native(frame: Mapping[str, Any]) -> bool:
    """Whether a frame is one of C or C++: a history that the program itself switched on has them by default."""
    file, name = frame.get("filename", ""), frame.get("name", "")
    if file in ("", "??") or "::" in name or "(" in name:
        return True
    return not file.startswith("<") and os.path.splitext(file)[1] not in ("", ".py", ".pyw")


def _is_generated(file: str) -> bool:
    """Whether torch.compile wrote a file: into a folder of its cache, whose place it leaves in the environment."""
    cache = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    return bool(cache) and os.path.dirname(os.path.dirname(file)) == os.path.abspath(cache or "")
