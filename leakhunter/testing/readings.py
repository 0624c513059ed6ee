"""What is counted between two runs of a test, once everything that is not the test's own has settled."""

from __future__ import annotations

import array
import contextlib
import gc
import itertools
import logging
import random
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from leakhunter.testing.decision import Track, growing
from leakhunter.testing.settings import Settings

# Passes of gc until nothing more is found: what a finaliser lets go of is found by the next.
PASSES = 5
# Waits before a reading is taken again, in seconds: threads of the test may still be letting go.
WAITS = (0.01, 0.05, 0.2)
TENSORS, TENSOR_BYTES = "tensors", "tensor bytes"
# Bytes of the objects that are most, by which an allowance in bytes is one in blocks.
LEAST_BLOCK = 64
# Growth per call, in bytes and in blocks, below which meters that are not exact show their own ups and downs.
OF_BYTES, OF_BLOCKS = 256.0, 1.0


@dataclass(frozen=True)
class Living:
    """Storages that Python holds a tensor of: their bytes by their address."""

    storages: dict[int, int]

    def __len__(self) -> int:
        return len(self.storages)

    @property
    def bytes(self) -> int:
        """Bytes of all of them."""
        return sum(self.storages.values())

    def since(self, before: Living) -> dict[int, int]:
        """Those that did not live before."""
        return {address: size for address, size in self.storages.items() if address not in before.storages}


def living(device: str = "used") -> Living:
    """The storages that gc can list now, nothing where torch is not loaded. Does not run gc."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "Tensor"):
        return Living({})
    from leakhunter import slots
    from leakhunter.slots import TensorSlots

    found: dict[int, int] = {}
    objects = gc.get_objects()
    # By id, since a metaclass may have a hash of its own; and in C, since most objects are no tensors.
    kinds = list(map(id, map(type, objects)))
    by_id = dict(zip(kinds, map(type, objects), strict=True))
    wanted = {key for key, kind in by_id.items() if slots.derives(kind, torch.Tensor)}
    with slots.unwatched():
        for thing in itertools.compress(objects, map(wanted.__contains__, kinds)):
            try:
                if device not in ("used", "all") and TensorSlots.device(thing).type != device.partition(":")[0]:
                    continue
                storage: Any = TensorSlots.storage(thing)
                found[storage._cdata] = storage.nbytes()
            except (RuntimeError, NotImplementedError):  # sparse, meta and functional tensors have no storage
                continue
    return Living(found)


def settle() -> int:
    """Wait for devices, let go of what PyTorch itself keeps after a first use, and run gc.

    Returns:
        How many objects gc found unreachable.

    """
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.synchronize()
        clear = getattr(torch._C, "_cuda_clearCublasWorkspaces", None)
        if clear is not None:
            clear()
    _forget_compiled()
    total = 0
    for _ in range(PASSES):
        found = gc.collect()
        total += found
        if not found:
            break
    clear_caches = getattr(sys, "_clear_internal_caches", None)
    if clear_caches is not None:
        clear_caches()
    return total


# How many modules were loaded when gc's lists were last frozen, 0 when they are not.
_frozen_with = 0


def freeze() -> None:
    """Keep what lives now out of gc's lists, so that readings take microseconds, and count what is new only.

    Done once, and again when modules were loaded: these have many objects and stay, tests have few.
    """
    global _frozen_with
    if _frozen_with != len(sys.modules):
        gc.collect()
        gc.freeze()
        _frozen_with = len(sys.modules)


def thaw() -> None:
    """Give gc back what was frozen."""
    global _frozen_with
    if _frozen_with:
        gc.unfreeze()
        _frozen_with = 0


def is_frozen() -> bool:
    """Whether gc lists new objects only."""
    return bool(_frozen_with)


_frames_seen = 0


def _forget_compiled() -> None:
    """Reset ``torch.compile`` when it has compiled since the last time: its caches hold what the test compiled."""
    global _frames_seen
    utils = sys.modules.get("torch._dynamo.utils")
    if utils is None:
        return
    frames = sum(utils.counters["frames"].values())
    if frames and frames != _frames_seen:
        sys.modules["torch._dynamo"].reset()
        frames = sum(utils.counters["frames"].values())
    _frames_seen = frames


class Readings:
    """One reading after the warm-up and one after each repeat, of every meter that judges.

    Args:
        settings: How the test is checked.
        repeats: How many repeats there will be.

    """

    def __init__(self, settings: Settings, repeats: int) -> None:
        from leakhunter.meters import discover

        self._settings = settings
        self._meters = [
            meter
            for meter in discover()[0]
            if any(quantity.judged and settings.watches(quantity.name) for quantity in meter.quantities)
        ]
        self._quantities = [quantity for meter in self._meters for quantity in meter.quantities]
        # Numbers in arrays made beforehand: as objects, they would be counted among the growth.
        width = 2 + len(self._quantities)
        self._table = [array.array("d", bytes(8 * width)) for _ in range(repeats + 1)]
        self._count = 0
        self.cyclic = array.array("q", bytes(8 * (repeats + 1)))
        self.garbage = array.array("q", bytes(8 * (repeats + 1)))

    def take(self) -> None:
        """Take the next reading."""
        before = len(living(self._settings.device))
        self.garbage[self._count] = settle()
        self._read(self._table[self._count])
        self.cyclic[self._count] = max(0, before - int(self._table[self._count][0]))
        self._count += 1

    def again(self) -> None:
        """Take the last reading again, and keep the lower value of each quantity."""
        last = self._table[self._count - 1]
        now = array.array("d", last)
        settle()
        self._read(now)
        last[:] = array.array("d", map(min, last, now))

    def _read(self, row: array.array[float]) -> None:
        alive = living(self._settings.device)
        row[0], row[1] = len(alive), alive.bytes
        del alive
        row[2:] = array.array("d", [value for meter in self._meters for value in meter.read()])

    def tracks(self) -> tuple[Track, ...]:
        """The readings taken so far, by quantity."""
        settings, rows = self._settings, self._table[: self._count]
        columns = [tuple(row[position] for row in rows) for position in range(len(rows[0]))]
        found = [
            Track(TENSORS, "tensors", columns[0], settings.most_tensors),
            Track(TENSOR_BYTES, "bytes", columns[1], settings.most_bytes),
        ]
        for quantity, column in zip(self._quantities, columns[2:], strict=True):
            if not quantity.judged or not settings.watches(quantity.name):
                continue
            exact = quantity.name.endswith(" allocated")
            floor = 0.0 if exact else OF_BYTES if quantity.unit == "bytes" else OF_BLOCKS
            most = settings.most_bytes
            allowed = max(floor, most) if quantity.unit == "bytes" else floor + most / LEAST_BLOCK
            found.append(Track(quantity.name, quantity.unit, column, allowed, exact))
        return tuple(found)

    def growing(self) -> tuple[Track, ...]:
        """What grows in every repeat, the last reading taken again up to three times before that is said."""
        for wait in WAITS:
            if not growing(self.tracks()):
                return ()
            time.sleep(wait)
            self.again()
        return growing(self.tracks())


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """A run of a test that leaves no warnings and no log records with pytest, which would keep them all."""
    handlers = [handler for handler in logging.getLogger().handlers if hasattr(handler, "records")]
    marks = [(handler, len(handler.records), handler.stream.tell()) for handler in handlers]  # type: ignore[attr-defined]
    with warnings.catch_warnings(record=True):
        try:
            yield
        finally:
            for handler, count, position in marks:
                del handler.records[count:]
                handler.stream.truncate(handler.stream.seek(position))  # type: ignore[attr-defined]


@contextlib.contextmanager
def same_random_state() -> Iterator[None]:
    """Random numbers go on afterwards as if nothing had been repeated."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    state = random.getstate()
    of_numpy = numpy.random.get_state() if numpy is not None else None
    of_torch = torch.get_rng_state() if torch is not None else None
    on_cuda = torch is not None and torch.cuda.is_initialized()
    of_cuda: Sequence[Any] = torch.cuda.get_rng_state_all() if torch is not None and on_cuda else ()
    try:
        yield
    finally:
        random.setstate(state)
        if numpy is not None and of_numpy is not None:
            numpy.random.set_state(of_numpy)
        if torch is not None and of_torch is not None:
            torch.set_rng_state(of_torch)
            if of_cuda:
                torch.cuda.set_rng_state_all(of_cuda)
