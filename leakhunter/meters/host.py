"""Bytes in use inside malloc, from the allocator itself: exact where RSS moves by megabytes for no reason.

Which allocator serves the process is told by the functions it exports, so preloaded ones are found too.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from typing import Any

from leakhunter.meters import Meter, Quantity

Reader = Callable[[], tuple[float]]


class _Mallinfo2(ctypes.Structure):
    """``struct mallinfo2`` of glibc 2.33 and newer (malloc.h)."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    ]


class _MimallocArea(ctypes.Structure):
    """``mi_heap_area_t`` of mimalloc 2 (mimalloc.h)."""

    _fields_ = [
        ("blocks", ctypes.c_void_p),
        ("reserved", ctypes.c_size_t),
        ("committed", ctypes.c_size_t),
        ("used", ctypes.c_size_t),
        ("block_size", ctypes.c_size_t),
        ("full_block_size", ctypes.c_size_t),
    ]


class _Mstats(ctypes.Structure):
    """``struct mstats`` of macOS (malloc/malloc.h)."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in ("bytes_total", "chunks_used", "bytes_used", "chunks_free", "bytes_free")
    ]


def meters() -> tuple[list[Meter], list[str]]:
    """The meter of the allocator in use, or the reason why there is none."""
    try:
        library: Any = ctypes.CDLL(None)
    except (OSError, TypeError):
        return [], ["malloc cannot be read on this platform; host memory is judged by Python objects alone"]
    for name, symbol, make in ALLOCATORS:
        if hasattr(library, symbol):
            return [Meter((Quantity(f"malloc ({name})"),), make(library))], []
    return [], ["this C library has no exact malloc counter; host memory is judged by Python objects alone"]


def glibc(library: Any) -> Reader:
    """``uordblks + hblkhd``: bytes in use in all arenas, and in blocks mapped on their own."""
    mallinfo2 = library.mallinfo2
    mallinfo2.restype = _Mallinfo2

    def read() -> tuple[float]:
        info = mallinfo2()
        return (info.uordblks + info.hblkhd,)

    return read


def jemalloc(library: Any) -> Reader:
    """``stats.allocated`` less what sits in thread caches, which jemalloc counts as allocated."""
    size = ctypes.c_size_t(ctypes.sizeof(ctypes.c_size_t))
    epoch, value = ctypes.c_uint64(1), ctypes.c_size_t()

    def get(name: bytes) -> int:
        return (
            value.value if library.mallctl(name, ctypes.byref(value), ctypes.byref(size), None, 0) == 0 else 0
        )

    def read() -> tuple[float]:
        # Statistics are a copy that writing to "epoch" renews; 4096 is MALLCTL_ARENAS_ALL (jemalloc.h).
        library.mallctl(b"epoch", None, None, ctypes.byref(epoch), ctypes.c_size_t(8))
        return (get(b"stats.allocated") - get(b"stats.arenas.4096.tcache_bytes"),)

    return read


def tcmalloc(library: Any) -> Reader:
    """``generic.current_allocated_bytes``, which leaves thread caches out."""
    value = ctypes.c_size_t()

    def read() -> tuple[float]:
        library.MallocExtension_GetNumericProperty(b"generic.current_allocated_bytes", ctypes.byref(value))
        return (value.value,)

    return read


def mimalloc(library: Any) -> Reader:
    """Blocks in use times their size over the pages of this thread's heap; mimalloc keeps no such total itself."""
    visitor = ctypes.CFUNCTYPE(
        ctypes.c_bool,
        ctypes.c_void_p,
        ctypes.POINTER(_MimallocArea),
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_void_p,
    )
    total = 0

    def add(_heap: Any, area: Any, _block: Any, _size: Any, _argument: Any) -> bool:
        nonlocal total
        total += area.contents.used * area.contents.block_size
        return True

    callback = visitor(add)
    library.mi_heap_visit_blocks.argtypes = [ctypes.c_void_p, ctypes.c_bool, visitor, ctypes.c_void_p]
    library.mi_heap_get_default.restype = ctypes.c_void_p

    def read() -> tuple[float]:
        nonlocal total
        total = 0
        library.mi_heap_visit_blocks(library.mi_heap_get_default(), False, callback, None)
        return (total,)

    return read


def macos(library: Any) -> Reader:
    """``mstats().bytes_used`` over all zones. Unchecked: written from Apple's header, not run on a Mac."""
    library.mstats.restype = _Mstats

    def read() -> tuple[float]:
        return (library.mstats().bytes_used,)

    return read


# A preloaded allocator exports its own functions while glibc's stay visible, so glibc is asked last.
ALLOCATORS: tuple[tuple[str, str, Callable[[Any], Reader]], ...] = (
    ("jemalloc", "mallctl", jemalloc),
    ("tcmalloc", "MallocExtension_GetNumericProperty", tcmalloc),
    ("mimalloc", "mi_heap_visit_blocks", mimalloc),
    *((("macOS", "mstats", macos),) if sys.platform == "darwin" else ()),
    ("glibc", "mallinfo2", glibc),
)
