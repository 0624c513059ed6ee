"""What a watch found: frozen data, to and from JSON. A report is a function of these and of nothing else."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import threading
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

SCHEMA_VERSION = 1
OPEN = "open"
ACCUSING = ("leak", "growth")

T = TypeVar("T")


@dataclass(frozen=True)
class Frame:
    """One line of a call stack. ``code`` is its source text, empty when the source cannot be read."""

    file: str
    line: int
    function: str
    code: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}()"


@dataclass(frozen=True)
class Node:
    """One object on the way from a root to the survivors.

    ``label`` is how the object before it refers to this one (``.history``, ``[*]``), ``leaking`` is ``no``,
    ``unknown`` or ``yes``, and ``reason`` says why.
    """

    label: str
    type: str
    detail: str = ""
    leaking: str = "unknown"
    reason: str = ""


@dataclass(frozen=True)
class Holder:
    """Who keeps the survivors alive.

    ``path`` is written as a person would write it (``trainer.history[*]["loss"]``), ``kind`` is where the path
    starts (``local``, ``module global``, ``cycle``, ``native``, ...), ``location`` is ``file:line`` or empty.
    """

    path: str
    kind: str
    location: str = ""
    scope: str = ""
    nodes: tuple[Node, ...] = ()


@dataclass(frozen=True)
class Fix:
    """What to change. ``diff`` is a unified diff on the user's own line, empty where one sentence must do."""

    text: str
    diff: str = ""
    caveat: str = ""


@dataclass(frozen=True)
class Evidence:
    """What was measured.

    ``state`` is ``held``, ``gc-pending``, ``stranded`` or ``native``. ``share`` is the part of the meter's growth
    this finding explains (0 to 1). ``births`` are (step, survivors born in it) pairs. ``graph_steps``,
    ``graph_nodes`` and ``saved_bytes`` describe autograd graphs of finished steps that are still alive.
    """

    statements: tuple[str, ...] = ()
    state: str = "held"
    share: float = 0.0
    births: tuple[tuple[int, int], ...] = ()
    graph_steps: int = 0
    graph_nodes: int = 0
    saved_bytes: int = 0


@dataclass(frozen=True)
class CycleNode:
    """One object of a cycle.

    ``name`` is what a person would call it (``Learner``, ``PowBackward0``), ``location`` is ``file:line`` of its code
    or empty, ``bytes`` are those of the tensors that it alone of the cycle refers to.
    """

    name: str
    type: str
    location: str = ""
    bytes: int = 0


@dataclass(frozen=True)
class CycleEdge:
    """A reference from ``nodes[source]`` to ``nodes[target]`` of a cycle.

    ``label`` is how a person would write it (``.learner``, ``closure cell `scale` ``, ``saved by PowBackward0``),
    ``hidden`` whether Python's gc does not see it, ``cut`` whether it is the one to cut.
    """

    source: int
    target: int
    label: str
    hidden: bool = False
    cut: bool = False


@dataclass(frozen=True)
class Cycle:
    """Objects that refer to each other in a ring, and what they keep alive.

    ``nodes`` and ``edges`` go round once, ``edges[i]`` leads from ``nodes[i]`` to the next. ``bytes`` are those of the
    ``tensors`` kept by ``count`` cycles alike. ``state`` is ``held``, ``gc-pending`` or ``stranded``.
    ``holder_of_last_reference`` is the variable that keeps a ``held`` cycle, empty for garbage. ``pattern`` and
    ``name`` say which mistake it is.
    """

    nodes: tuple[CycleNode, ...]
    edges: tuple[CycleEdge, ...]
    bytes: int
    tensors: int
    count: int
    state: str
    pattern: str
    name: str
    fix: Fix
    holder_of_last_reference: str = ""

    def __str__(self) -> str:
        from leakhunter.report import drawing

        return f"{drawing.summary(self)}\n{drawing.text(self)}"

    def draw(self, path: str | os.PathLike[str]) -> None:
        """Write a drawing: ``.svg``, ``.dot`` or ``.txt``, with Graphviz also ``.png`` and ``.pdf``.

        Raises ``ValueError`` for other names, ``OSError`` when it cannot be written.
        """
        from leakhunter.report import drawing

        drawing.write(self, path)


@dataclass(frozen=True)
class Finding:
    """A pattern with its evidence, holder and fix.

    ``bytes_per_step`` and ``bytes_held`` are bytes, ``count`` is the number of objects held, ``first_step`` the step
    in which the growth began, ``step`` the one in which it was diagnosed. ``severity`` is ``leak``, ``growth`` or
    ``note``; ``status`` is ``open`` or ``resolved at step N``. ``signature`` holds no address, index or count, so the
    same mistake has the same signature in every run. ``cycle`` is the ring of references of a reference cycle.
    """

    pattern: str
    name: str
    severity: str
    meter: str
    bytes_per_step: float
    bytes_held: int
    count: int
    first_step: int
    step: int
    holder: Holder
    site: tuple[Frame, ...]
    evidence: Evidence
    fix: Fix
    forecast: str
    signature: str
    statement: Frame | None = None
    status: str = OPEN
    cycle: Cycle | None = None

    @property
    def is_open(self) -> bool:
        """Whether the growth still went on when it was last looked at."""
        return self.status == OPEN

    @property
    def accuses(self) -> bool:
        """Whether this is an open ``leak`` or ``growth``, and not a note."""
        return self.is_open and self.severity in ACCUSING

    @property
    def location(self) -> str:
        """``file:line`` to look at first: the statement to change, else the allocation, else the holder."""
        if self.statement is not None:
            return f"{self.statement.file}:{self.statement.line}"
        if self.site:
            return f"{self.site[0].file}:{self.site[0].line}"
        return self.holder.location


@dataclass(frozen=True)
class Verdict:
    """What a series of readings shows.

    ``kind`` is ``flat``, ``growing``, ``saturating``, ``sawtooth``, ``stepped`` or ``inconclusive``; ``rate`` is the
    growth in units per step; ``since`` the step from which it holds; ``period`` the steps from drop to drop of a
    sawtooth, 0 when there is none.
    """

    kind: str
    rate: float = 0.0
    since: int = 0
    period: int = 0


@dataclass(frozen=True)
class Series:
    """The readings of one meter: ``steps[i]`` is when ``readings[i]`` (in ``unit``) was taken.

    ``judged`` says whether its growth is looked into; others are shown only.
    """

    meter: str
    unit: str
    steps: tuple[int, ...]
    readings: tuple[float, ...]
    verdict: Verdict
    judged: bool = True


@dataclass(frozen=True)
class Breakdown:
    """What the live bytes of a device were for in one step.

    ``moment`` is ``quiet point`` (the end of the step) or ``peak`` (when most was in use in it). The bytes of
    ``categories`` add up to all that was allocated; what no tensor explains is one of them.
    """

    device: str
    moment: str
    step: int
    categories: Mapping[str, int]


@dataclass(frozen=True)
class Held:
    """Bytes of ``count`` storages that are kept alive through ``path``."""

    path: str
    bytes: int
    count: int


@dataclass(frozen=True)
class OutOfMemory:
    """A device that was full. All sizes are bytes.

    ``cause`` is ``leak`` (``grown`` bytes since warm-up filled it), ``fragmentation``, ``one large request`` or
    ``working set`` (everything that is live is in use). ``breakdown`` is what was allocated, by what it was for.
    """

    device: str
    step: int
    requested: int
    total: int
    free: int
    allocated: int
    reserved: int
    grown: int
    cause: str
    breakdown: Mapping[str, int] = field(default_factory=dict)
    holders: tuple[Held, ...] = ()


@dataclass(frozen=True)
class Report:
    """Everything one watch knows. ``str(report)`` is the text a person reads.

    ``breakdown`` is what live bytes were for at the quiet point of the last diagnosis, and at the peak of a step of its
    probe; empty when there was none.
    """

    watched: str
    steps: int
    seconds_per_step: float
    findings: tuple[Finding, ...] = ()
    series: tuple[Series, ...] = ()
    notes: tuple[str, ...] = ()
    breakdown: tuple[Breakdown, ...] = ()
    out_of_memory: tuple[OutOfMemory, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    created: str = ""
    schema: int = SCHEMA_VERSION

    @property
    def open(self) -> tuple[Finding, ...]:
        """The findings that accuse: open, and a ``leak`` or a ``growth``."""
        return tuple(finding for finding in self.findings if finding.accuses)

    def __str__(self) -> str:
        from leakhunter.report.text import render

        return render(self)

    def to_dict(self) -> dict[str, Any]:
        """The report as plain lists, dicts, strings and numbers; ``docs/report.md`` describes each key."""
        plain: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(self)))
        return plain

    def to_json(self, path: str | os.PathLike[str]) -> None:
        """Write the report to ``path``, whole or not at all. Raises ``OSError`` when it cannot be written."""
        target = Path(path)
        content = json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n"
        if not target.name:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
        # In the same folder, so that it takes the place of what is there in one move; one for each writer.
        draft = target.with_name(f".{target.name}.{os.getpid()}.{threading.get_ident()}.tmp")
        try:
            draft.write_text(content, encoding="utf-8")
            draft.replace(target)
        finally:
            draft.unlink(missing_ok=True)

    @classmethod
    def from_dict(cls, data: Any) -> Report:
        """The report that ``to_dict`` gave. Raises ``ValueError`` when ``data`` is not one."""
        if not isinstance(data, Mapping) or "schema" not in data:
            raise ValueError("this is not a leakhunter report: give a file that Report.to_json wrote")
        if type(data["schema"]) is not int or data["schema"] != SCHEMA_VERSION:
            raise ValueError(
                f"this report has schema {data['schema']!r} and this leakhunter reads schema {SCHEMA_VERSION}: "
                "read it with the version that wrote it"
            )
        try:
            report: Report = _decode(cls, data)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"this leakhunter report is damaged ({error}): write it again") from None
        return report

    @classmethod
    def from_json(cls, path: str | os.PathLike[str]) -> Report:
        """Read what ``to_json`` wrote. Raises ``OSError``, or ``ValueError`` when the file is not a report."""
        try:
            data = json.loads(Path(path).read_text(encoding="utf-8"))
        except (ValueError, RecursionError):
            raise ValueError(
                f"{os.fspath(path)} is not JSON: give a file that Report.to_json wrote"
            ) from None
        return cls.from_dict(data)


def _decode(kind: Any, value: Any) -> Any:
    """``value``, read from JSON, as the type that ``kind`` says. Unknown keys are ignored: newer files have them."""
    if dataclasses.is_dataclass(kind):
        if not isinstance(value, Mapping):
            raise TypeError(f"{getattr(kind, '__name__', kind)} must be an object")
        hints = typing.get_type_hints(kind)
        given = {
            f.name: _decode(hints[f.name], value[f.name]) for f in dataclasses.fields(kind) if f.name in value
        }
        return typing.cast(Any, kind)(**given)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        return None if value is None else _decode(next(a for a in arguments if a is not type(None)), value)
    if origin is tuple:
        if not isinstance(value, list):
            raise TypeError(f"expected a list, got {type(value).__name__}")
        if arguments[-1] is Ellipsis:
            return tuple(_decode(arguments[0], item) for item in value)
        return tuple(_decode(a, item) for a, item in zip(arguments, value, strict=True))
    if origin is not None:  # a mapping of names
        if not isinstance(value, Mapping):
            raise TypeError(f"expected an object, got {type(value).__name__}")
        return {_decode(arguments[0], name): _decode(arguments[1], item) for name, item in value.items()}
    if kind is Any:
        return value
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:
        raise TypeError(f"expected {kind.__name__}, got {type(value).__name__}")
    return value
