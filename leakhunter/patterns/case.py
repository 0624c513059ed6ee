"""One suspect with the user's source beside it: all that a pattern looks at."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from leakhunter import source
from leakhunter.findings import Fix, Frame, Holder
from leakhunter.heap import paths
from leakhunter.heap.labels import Link
from leakhunter.heap.suspects import Suspect
from leakhunter.origin import is_user_file
from leakhunter.source import Statement, Target

NAMED = ("local", "global", "attribute", "key")


@dataclass(frozen=True)
class Case:
    """A suspect, where it was allocated, and the statements that touch what holds it.

    Attributes:
        suspect: What piled up.
        site: Where it was allocated, innermost user frame first.
        target: The variable, attribute or key that grows, None when nothing has a name.
        growth: The statement that makes it grow.
        emptied: Statements that make it shrink.
        facts: What the watch knows: ``gc enabled``, ``autocast``, ``profiler``, ... by name.
    """

    suspect: Suspect
    site: tuple[Frame, ...] = ()
    target: Target | None = None
    growth: Statement | None = None
    emptied: tuple[Statement, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def links(self) -> tuple[Link, ...]:
        """The objects on the path, the root first."""
        return self.suspect.links

    @property
    def container(self) -> Link | None:
        """The object that grows."""
        position = self.suspect.container
        return self.links[position] if 0 <= position < len(self.links) else None

    @property
    def path(self) -> str:
        """The path as a person writes it."""
        return paths.write(self.links)

    @property
    def scalar(self) -> bool:
        """Whether what piles up is a single number in a tensor."""
        return self.suspect.sample.numel == 1

    def _is_called(self, statement: Statement) -> bool:
        """Whether anything but a constructor calls the method that a statement stands in."""
        return any(
            call.lineno not in source.constructor_lines(statement.file)
            for call in source.calls(statement.file, statement.function)
        )

    def holds(self, *roles: str) -> bool:
        """Whether something of one of these roles lies on the path."""
        return any(link.role in roles for link in self.links)

    def has_edge(self, *edges: str) -> bool:
        """Whether one of these kinds of reference lies on the path."""
        return any(link.edge in edges for link in self.links)

    def has_text(self, *texts: str) -> bool:
        """Whether one of these is written in the path."""
        return any(link.text in texts for link in self.links)

    @property
    def owner_text(self) -> str:
        """What is written before the last name: ``launcher`` of ``launcher._models[*]``."""
        position = self._named_position()
        start = paths.scope_position(self.links)
        parts = [link.text for link in self.links[start + 1 : position] if link.edge not in paths.PLUMBING]
        return "".join(parts).replace("[*]", "")

    @property
    def name(self) -> str:
        """The path up to the name of what grows: ``launcher._models``."""
        position = self._named_position()
        return paths.write(self.links[: position + 1]) if position > 0 else self.path

    def _named_position(self) -> int:
        end = self.suspect.container if self.suspect.container >= 0 else len(self.links) - 1
        return next(
            (p for p in range(end, 0, -1) if self.links[p].edge in NAMED and "*" not in self.links[p].text), 0
        )

    @property
    def unheld(self) -> bool:
        """Whether nothing in Python refers to the memory: C++ alone keeps it, maybe with the tensor's Python object."""
        first = self.links[0]
        return self.suspect.state == "native" or (first.edge == "outside" and first.role in ("tensor", "storage"))

    def emptying_call(self) -> str:
        """A call the user has written a method for, that would empty the container: ``launcher.free_memory()``."""
        for statement in self.emptied:
            if statement.function in ("", "__init__", "__new__") or not statement.method_of:
                continue
            if self.growth is not None and statement.function == self.growth.function:
                continue
            if self._is_called(statement):
                continue
            owner = self.owner_text or statement.method_of
            return f"{owner}.{statement.function}()"
        return ""


@dataclass(frozen=True)
class Pattern:
    """A named mistake.

    Attributes:
        id: ``LH`` and three digits.
        name: The mistake in a few words.
        why: Why it holds memory, in a sentence.
        recognise: Whether a case shows it.
        fix: The change for a case.
        severity: ``leak``, ``growth``, ``note``, or how it follows from a case.
        holder: What to call the holder where Python has no path to it.
    """

    id: str
    name: str
    why: str
    recognise: Callable[[Case], bool]
    fix: Callable[[Case], Fix]
    severity: str | Callable[[Case], str] = "leak"
    holder: Callable[[Case], Holder] | None = None

    def severity_of(self, case: Case) -> str:
        """The severity in a case."""
        return self.severity if isinstance(self.severity, str) else self.severity(case)


def open_case(suspect: Suspect, facts: Mapping[str, Any]) -> Case:
    """Find the source that belongs to a suspect."""
    site = source.frames_of(suspect.stacks[0]) if suspect.stacks else ()
    case = Case(suspect, site, facts=facts)
    target = find_target(case)
    growth = _growth(case, target)
    emptied = () if target is None else tuple(_statements(case, target, ("empty",)))
    return Case(suspect, site, target, growth, emptied, facts)


def find_target(case: Case) -> Target | None:
    """What has to be written to for the growth to happen."""
    links = case.links
    end = case.suspect.container if case.suspect.container >= 0 else len(links) - 1
    for position in range(end, 0, -1):
        link = links[position]
        if link.edge not in (*NAMED, "field", "closure") or "*" in link.text:
            continue
        if link.edge == "closure":
            scope = _scope(links, position)
            return Target("name", link.text.strip("[]"), None if scope is None else (scope.file, scope.line))
        if link.edge == "local":
            scope = _scope(links, position)
            return Target("name", link.text, (scope.file, scope.line) if scope is not None else None)
        if link.edge == "global":
            return Target("name", link.text)
        if link.edge == "field":
            if links[position - 1].edge != "defaults":
                continue
            function = links[position - 2]
            name = source.parameter_name(function.file, function.line, int(link.text.strip("[]")))
            return Target("name", name, (function.file, function.line)) if name else None
        if link.edge == "attribute" and link.text.startswith("."):
            return Target("attribute", link.text[1:])
        if link.edge == "key":
            return Target("key", link.text[1:-1])
    return None


def _scope(links: tuple[Link, ...], position: int) -> Link | None:
    for link in reversed(links[:position]):
        if link.role in ("frame", "generator", "function"):
            return link
    return None


def _files(case: Case) -> list[str]:
    """Files in which the statement may stand, the likeliest first."""
    files = [frame.file for frame in case.site]
    files += [link.file for link in reversed(case.links) if link.file]
    return [file for file in dict.fromkeys(files) if is_user_file(file)]


def _statements(case: Case, target: Target, kinds: tuple[str, ...]) -> list[Statement]:
    found = []
    for file in _files(case):
        found += [statement for statement in source.statements(file, target) if statement.kind in kinds]
    return found


def _growth(case: Case, target: Target | None) -> Statement | None:
    if target is None:
        return _growing_call(case)
    piles_up = case.suspect.container >= 0
    kinds = ("add", "item", "accumulate", "join") if piles_up else ("accumulate", "join", "carry", "rebuild", "assign")
    found = _statements(case, target, kinds)
    if not found:
        return _growing_call(case) if piles_up else None
    on_stack = {(frame.file, frame.function.rsplit(".", 1)[-1]) for frame in case.site}
    owners = {link.type for link in case.links} | {
        link.function for link in case.links if link.role == "class"
    }
    lines = {(frame.file, frame.line) for frame in case.site}

    def rank(statement: Statement) -> tuple[bool, bool, bool, int, int]:
        return (
            (statement.file, statement.line) not in lines,
            (statement.file, statement.function) not in on_stack,
            statement.method_of not in owners,
            kinds.index(statement.kind),
            statement.line,
        )

    return min(found, key=rank)


def _growing_call(case: Case) -> Statement | None:
    """Where the container was handed on under another name, the call that fills it stands on the call stack."""
    for frame in case.site:
        statement = source.growing_call_at(frame)
        if statement is not None:
            return statement
    return None
