"""All reference cycles that hold tensors now, asked for by the user."""

from __future__ import annotations

import gc
from typing import Any

from leakhunter.findings import Cycle
from leakhunter.heap import cycles as heap_cycles
from leakhunter.heap.graph import captured
from leakhunter.heap.suspects import Suspect
from leakhunter.patterns import catalogue
from leakhunter.patterns.case import open_case
from leakhunter.patterns.ring import cycle_of


def cycles() -> list[Cycle]:
    """All reference cycles that keep tensors alive, those that keep most bytes first.

    One look at the heap, without running gc or a finaliser. Each ``Cycle`` stands for all of one shape. Its ``state``
    is ``held`` (a variable leads to it), ``gc-pending`` (gc will free it when it comes) or ``stranded`` (it runs
    through C++, and gc never will); ``bytes`` are those of its tensors. ``str`` of a cycle is its text.

    The time is about that of a diagnosis: a second or two for a million objects.
    """
    with captured() as heap:
        found = heap_cycles.survey(heap)
    return sorted((_cycle(garbage) for garbage in found), key=lambda cycle: -cycle.bytes)


def _cycle(garbage: heap_cycles.Garbage) -> Cycle:
    suspect = Suspect(
        state=garbage.state,
        route=garbage.route,
        count=garbage.all_count,
        bytes=garbage.all_bytes,
        held_count=garbage.all_count,
        held_bytes=garbage.all_bytes,
        ring=garbage.ring,
        hints={"closes": garbage.closes, "oldest generation": garbage.oldest, **_pack_hook(garbage)},
    )
    case = open_case(suspect, {"gc enabled": gc.isenabled()})
    pattern = catalogue.name(case)
    return cycle_of(
        garbage.ring,
        "held" if garbage.held else garbage.state,
        garbage.all_bytes,
        garbage.all_storages,
        garbage.all_count,
        pattern.id,
        pattern.name,
        pattern.fix(case),
        garbage.holder,
    )


def _pack_hook(garbage: heap_cycles.Garbage) -> dict[str, Any]:
    """Where the pack hook stands, which no object leads to: beside the unpack hook, when both are lambdas."""
    hook = garbage.unpack_hook
    if hook is None:
        return {}
    return {"pack hook": ("", hook.file, hook.line if "<lambda>" in hook.function else 0)}
