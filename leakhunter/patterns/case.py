"""One suspect with the user's source beside it: all that a pattern looks at."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
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
# What piles up in a container is put there by one of these; a single value grows by one of those, the surest first.
FILLING = ("add", "item", "accumulate", "join")
UPDATING = ("accumulate", "join", "carry", "rebuild", "item", "assign")
CONSTRUCTORS = ("__init__", "__new__", "__post_init__")
# Where a queue keeps its items: the user writes to the queue.
INSIDE_QUEUE = (".queue", "._queue")


@dataclass(frozen=True)
class Case:
    """A suspect, where it was allocated, and the statements that touch what holds it.

    Attributes:
        suspect: What piled up.
        site: Where it was allocated, innermost user frame first.
        target: The variable, attribute or key that grows, None when nothing has a name.
        growth: The statement that makes it grow.
        also: Others of the same function that do so in the same way.
        emptied: Statements that make it shrink.
        facts: What the watch knows: ``gc enabled``, ``autocast``, ``profiler``, ... by name.

    """

    suspect: Suspect
    site: tuple[Frame, ...] = ()
    target: Target | None = None
    growth: Statement | None = None
    also: tuple[Statement, ...] = ()
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
    def cells(self) -> list[str]:
        """The variables of closures that the path leads through."""
        return [link.text.strip("[]") for link in self.links if link.edge == "closure" and link.role == "cell"]

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
    def below_name(self) -> tuple[Link, ...] | None:
        """The references from the variable, attribute or key that is written to down to the tensor it holds."""
        position = next((position for position, _ in _targets(self)), 0)
        return _down_to_tensor(self.links[position:]) if position else None

    @property
    def variable(self) -> str:
        """The path without what is below the variable, attribute or key: ``state`` of ``state[0]``."""
        below = self.below_name or ()
        return self.path.removesuffix("".join(link.text for link in below))

    @property
    def certain(self) -> bool:
        """Whether the growing statement writes to what the path names, and not only stands on the call stack."""
        return self.growth is not None and self.growth.target == self.target

    def is_once_a_step(self, statement: Statement) -> bool:
        """Whether no loop inside the step repeats a statement: the loop over steps is one of the path's own frame."""
        scope = self.links[paths.scope_position(self.links)]
        own = statement.function == scope.function.rsplit(".", 1)[-1] or not statement.function
        loops = [loop for loop in source.loops_around(statement) if "epoch" not in _head(loop)]
        return len(loops) <= (1 if own else 0)

    def stored_tensors(self) -> list[ast.expr]:
        """What the growing statements store of tensors; nothing where the source does not show all for certain."""
        if self.growth is None or not self.certain:
            return []
        found: list[tuple[ast.expr, Statement]] = []
        for statement in (self.growth, *self.also):
            for value, depth in source.stored(statement):
                for path in self._paths_below_container():
                    inner = source.innermost(value, path[depth:]) if path and len(path) >= depth else None
                    if inner is None:
                        return []
                    found += [(node, statement) for node in inner if not source.is_detached(node)]
        nodes = {id(node): (node, statement) for node, statement in found}.values()
        if len(nodes) > 1 and not all(source.is_tensor(node, statement.scope) for node, statement in nodes):
            return []
        return [node for node, _ in nodes if not source.may_be_number(node)]

    def _paths_below_container(self) -> Iterator[tuple[Link, ...] | None]:
        """The references from the container to the tensors, on the path and on others through the same container."""
        end = self.suspect.container
        prefix = paths.key_of(self.links[: end + 1])
        for route in (self.suspect.route, *self.suspect.rivals):
            if paths.key_of(route.links[: end + 1]) == prefix:
                yield _down_to_tensor(route.links[end:])

    @property
    def unheld(self) -> bool:
        """Whether nothing in Python refers to the memory: C++ alone keeps it, maybe with the tensor's Python object."""
        first = self.links[0]
        return self.suspect.state == "native" or (
            first.edge == "outside" and first.role in ("tensor", "storage")
        )

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
        statement: Where to change the program, when that is no statement that names what grows.

    """

    id: str
    name: str
    why: str
    recognise: Callable[[Case], bool]
    fix: Callable[[Case], Fix]
    severity: str | Callable[[Case], str] = "leak"
    holder: Callable[[Case], Holder] | None = None
    statement: Callable[[Case], Frame | None] | None = None

    def severity_of(self, case: Case) -> str:
        """The severity in a case."""
        return self.severity if isinstance(self.severity, str) else self.severity(case)


def open_case(suspect: Suspect, facts: Mapping[str, Any]) -> Case:
    """Find the source that belongs to a suspect."""
    site = source.frames_of(suspect.stacks[0]) if suspect.stacks else ()
    case = Case(suspect, site, facts=facts)
    target = find_target(case)
    growing = _growth(case, target)
    emptied = () if target is None else tuple(_statements(case, target, ("empty",)))
    growth = growing[0] if growing else None
    return Case(suspect, site, target, growth, tuple(growing[1:]), emptied, facts)


def find_target(case: Case) -> Target | None:
    """What has to be written to for the growth to happen."""
    targets = list(_targets(case))
    inside_queue = len(targets) > 1 and case.links[targets[0][0]].text in INSIDE_QUEUE
    if inside_queue and not _statements(case, targets[0][1], FILLING):
        return targets[1][1]
    return targets[0][1] if targets else None


def _targets(case: Case) -> Iterator[tuple[int, Target]]:
    """The names on the path from the inside out, each with its position."""
    links = case.links
    end = case.suspect.container if case.suspect.container >= 0 else len(links) - 1
    for position in range(end, 0, -1):
        link = links[position]
        if link.edge not in (*NAMED, "field", "closure") or "*" in link.text:
            continue
        target = _target(links, position)
        if target is not None:
            yield position, target


def _target(links: tuple[Link, ...], position: int) -> Target | None:
    """The variable, attribute or key to which a reference of the path belongs."""
    link = links[position]
    if link.edge in ("closure", "local"):
        scope = _scope(links, position)
        return Target("name", link.text.strip("[]"), None if scope is None else (scope.file, scope.line))
    if link.edge == "global":
        return Target("name", link.text)
    if link.edge == "attribute" and link.text.startswith("."):
        return Target("attribute", link.text[1:])
    if link.edge == "key":
        return Target("key", link.text[1:-1])
    if link.edge == "field" and links[position - 1].edge == "defaults":
        function = links[position - 2]
        name = source.parameter_name(function.file, function.line, int(link.text.strip("[]")))
        return Target("name", name, (function.file, function.line)) if name else None
    return None


def _down_to_tensor(links: tuple[Link, ...]) -> tuple[Link, ...] | None:
    """The references behind the first of the links, up to one that leads to a tensor; None when none does."""
    end = next((position for position, link in enumerate(links) if link.role == "tensor"), None)
    if end is None:
        return None
    return tuple(link for link in links[1 : end + 1] if link.edge not in paths.PLUMBING)


def _head(loop: source.Loop) -> str:
    """What a loop runs over, as text."""
    return (
        ast.unparse(loop.test)
        if isinstance(loop, ast.While)
        else ast.unparse(loop.target) + ast.unparse(loop.iter)
    )


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


def _growth(case: Case, target: Target | None) -> list[Statement]:
    """The statement that makes the target grow, and after it those of its function that do so in the same way."""
    piles_up = case.suspect.container >= 0
    kinds = FILLING if piles_up else UPDATING
    found = [] if target is None else _statements(case, target, kinds)
    if not found:
        return _growing_call(case) if piles_up or target is None else []
    on_stack = {(frame.file, frame.function.rsplit(".", 1)[-1]) for frame in case.site}
    owners = {link.type for link in case.links} | {
        link.function for link in case.links if link.role == "class"
    }
    lines = {(frame.file, frame.line) for frame in case.site}

    def rank(statement: Statement) -> tuple[bool, bool, bool, bool, int, bool, int]:
        return (
            (statement.file, statement.line) not in lines,
            (statement.file, statement.function) not in on_stack,
            statement.function in CONSTRUCTORS,
            statement.method_of not in owners,
            kinds.index(statement.kind),
            # What is assigned before the loop is where it starts, not how it grows.
            statement.kind == "assign" and not source.loops_around(statement),
            statement.line,
        )

    first = min(found, key=rank)
    return [first, *(other for other in found if other is not first and _is_alike(other, first))]


def _is_alike(first: Statement, second: Statement) -> bool:
    places = [(statement.file, statement.function, statement.method_of) for statement in (first, second)]
    return places[0] == places[1] and first.kind in ("add", "item", "accumulate")


def _growing_call(case: Case) -> list[Statement]:
    """Where the container was handed on under another name, the call that fills it stands on the call stack."""
    found = (source.growing_call_at(frame) for frame in case.site)
    return [statement for statement in found if statement is not None][:1]
