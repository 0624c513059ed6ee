"""From cases to findings: the pattern, the evidence in words, the holder, the forecast and the signature."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from leakhunter import source
from leakhunter.findings import Cycle, Evidence, Finding, Fix, Frame, Holder, Node
from leakhunter.heap import paths
from leakhunter.heap.labels import Link
from leakhunter.heap.suspects import Suspect
from leakhunter.origin import is_user_file, is_user_module, shorten
from leakhunter.patterns import catalogue
from leakhunter.patterns.case import Case, Pattern, open_case
from leakhunter.patterns.ring import cycle_of
from leakhunter.units import duration, size, three_digits

# A suspect that explains less of the growth than this is not worth a finding.
LEAST_SHARE = 0.05
# One that would explain this many times the growth does not pile up: as much is taken away as is added.
MOST_SHARE = 4.0
MOST_FINDINGS = 5
# Survivors of so many bytes stand out from the noise of any meter; their place must have grown by a part of their rate.
CERTAIN, LEAST_TREND = 65_536, 0.1
# Host memory of a tensor: TensorImpl, StorageImpl and Python object (400 bytes seen).
TENSOR_BYTES = 400
# Host memory of an autograd node with the edges and the tensor headers that it saved (580 to 1,750 bytes seen).
NODE_BYTES = 1000
# The meter of Python's own allocator.
PYTHON = "Python objects"
# Python's allocator hands larger objects on to malloc.
LARGEST_BLOCK = 512
# What a library's own tables may gain in bytes per step before it is more than a note.
LIBRARY_LEAST = 4096


@dataclass(frozen=True)
class Growth:
    """The growth that started a probe.

    ``meter`` is its name, ``rate`` its bytes (or blocks) per step, ``since`` the step it began at, ``window`` the steps
    that the probe watched, ``went_on`` whether growth kept its pace in them, ``free`` the bytes still free on each
    device, as far as known. ``rates`` are bytes per step of every place that is counted exactly, ``trends`` those since
    growth began of the places that did not raise the suspicion themselves.
    """

    meter: str
    unit: str
    rate: float
    since: int
    window: int
    step: int
    seconds_per_step: float
    free: dict[str, float] = field(default_factory=dict)
    went_on: bool = True
    rates: dict[str, float] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    trends: dict[str, float] = field(default_factory=dict)


def conclude(suspects: list[Suspect], growth: Growth) -> list[Finding]:
    """Findings for the suspects that explain a part of the growth, the largest first."""
    findings: list[Finding] = []
    for suspect in suspects:
        share = share_of(suspect, growth)
        if share > MOST_SHARE and suspect.grew < suspect.count:
            continue
        if falls_back(suspect, growth) or deciding_share(suspect, growth, share) < LEAST_SHARE:
            continue
        case = choose_holder(open_case(suspect, growth.facts))
        finding = accuse(case, catalogue.name(case), growth, share)
        same = next((known for known in findings if is_same(known, finding)), None)
        if same is None:
            findings.append(finding)
        else:
            findings[findings.index(same)] = joined(same, finding)
    return findings[:MOST_FINDINGS]


def falls_back(suspect: Suspect, growth: Growth) -> bool:
    """Whether memory has not grown where a suspect lies: what it adds in the probe's window is taken away later."""
    trend = growth.trends.get(suspect.device, math.inf)
    return suspect.bytes > CERTAIN and trend < LEAST_TREND * suspect.bytes_per_step


def is_same(first: Finding, second: Finding) -> bool:
    """Whether two findings tell of one mistake: one holder, or one pattern with one cure."""
    if first.signature == second.signature:
        return True
    same_place = bool(first.location) and first.location == second.location
    names = [finding.holder.path.partition("[")[0] for finding in (first, second)]
    return same_place and (first.pattern == second.pattern or names[0] == names[1])


def joined(first: Finding, second: Finding) -> Finding:
    """One finding for both, with the holder of the larger one."""
    evidence = replace(first.evidence, share=min(1.0, first.evidence.share + second.evidence.share))
    return replace(
        first,
        bytes_per_step=first.bytes_per_step + second.bytes_per_step,
        bytes_held=first.bytes_held + second.bytes_held,
        evidence=evidence,
    )


def share_of(suspect: Suspect, growth: Growth) -> float:
    """How much of the growth a suspect explains: 1 is all of it, and much more than that is turnover."""
    if meter_of(suspect, growth) == PYTHON:
        return (
            suspect.count / growth.window / (growth.rate if growth.unit == "blocks" else growth.rates[PYTHON])
        )
    rate = growth.rates.get(suspect.device, growth.rate)
    return suspect.bytes_per_step / rate if rate > 0 else math.inf


def meter_of(suspect: Suspect, growth: Growth) -> str:
    """The meter that counts what piled up: small Python objects are in no malloc, but in Python's own allocator."""
    if suspect.device == "shared memory":
        return suspect.device
    if suspect.device != "cpu" and suspect.device in growth.rates:
        return f"{suspect.device} allocated"
    small = suspect.bytes_per_step <= LARGEST_BLOCK * growth.rates.get(PYTHON, 0.0)
    # How large each block is cannot be seen; where malloc grew by as much, they lie there.
    in_malloc = growth.unit == "bytes" and 0.5 < suspect.bytes_per_step / max(growth.rate, 1.0) < 2.0
    if "python" in suspect.hints and suspect.state == "held" and small and not in_malloc:
        return PYTHON
    return growth.meter


def share_with_objects(suspect: Suspect, growth: Growth) -> float:
    """The same with an estimate of the host memory that tensors and nodes need beside their storages."""
    if suspect.state == "native" or "python" in suspect.hints or growth.rates.get("cpu", 0.0) <= 0:
        return share_of(suspect, growth)
    objects = max(suspect.count, suspect.grew) / growth.window * TENSOR_BYTES
    if suspect.graph is not None:
        objects = suspect.graph.nodes / suspect.graph.steps * NODE_BYTES
    return share_of(suspect, growth) + objects / growth.rates["cpu"]


def deciding_share(suspect: Suspect, growth: Growth, share: float) -> float:
    """The share that decides whether a suspect is worth a finding.

    Graphs, and many views of few storages, need memory for their objects above all.
    """
    many = suspect.container >= 0 and suspect.grew > suspect.count
    return share_with_objects(suspect, growth) if many or suspect.graph is not None else share


def choose_holder(case: Case) -> Case:
    """Of several variables that reach the same graphs, the one that carries them from step to step.

    An output of the last call reaches as much as the state does, but only the state is read again by the next step.
    """
    if case.suspect.graph is None or not case.suspect.rivals or case.suspect.container >= 0:
        return case
    for route in (case.suspect.route, *case.suspect.rivals):
        last = route.links[-1]
        scope = route.links[paths.scope_position(route.links)]
        if last.edge == "local" and scope.file and source.is_loop_carried(scope.file, scope.line, last.text):
            others = tuple(
                other for other in (case.suspect.route, *case.suspect.rivals) if other is not route
            )
            return open_case(replace(case.suspect, route=route, rivals=others), case.facts)
    return case


def accuse(case: Case, pattern: Pattern, growth: Growth, share: float) -> Finding:
    """The finding that ``pattern`` makes of ``case``."""
    suspect = case.suspect
    severity = pattern.severity_of(case)
    if bound_of(case) is not None or is_library_business(case):
        severity = "note"
    rate, share = rate_of(suspect, growth, share)
    fix = pattern.fix(case)
    holder = pattern.holder(case) if pattern.holder is not None else holder_of(case, growth)
    return Finding(
        pattern=pattern.id,
        name=pattern.name,
        severity=severity,
        meter=meter_of(suspect, growth),
        bytes_per_step=rate,
        bytes_held=suspect.held_bytes,
        count=suspect.held_count,
        first_step=first_step(suspect, growth),
        step=growth.step,
        holder=holder,
        site=case.site,
        evidence=Evidence(
            statements=(*grows(case, growth), *birth_statements(case), pattern.why, *bound_statement(case, growth)),
            state=suspect.state,
            share=min(1.0, share),
            births=suspect.births,
            graph_steps=suspect.graph.steps if suspect.graph else 0,
            graph_nodes=suspect.graph.nodes if suspect.graph else 0,
            saved_bytes=suspect.graph.saved_bytes if suspect.graph else 0,
        ),
        fix=fix,
        cycle=cycle_in(case, pattern, fix),
        forecast=forecast(rate, growth, suspect.device) if severity != "note" else "",
        signature=signature(pattern, case, holder),
        statement=statement_of(case, pattern),
    )


def cycle_in(case: Case, pattern: Pattern, fix: Fix) -> Cycle | None:
    """The drawing of the cycle in a case."""
    suspect = case.suspect
    if suspect.ring is None:
        return None
    size, count = suspect.held_bytes, suspect.held_count
    return cycle_of(suspect.ring, suspect.state, size, suspect.held_storages, count, pattern.id, pattern.name, fix)


def rate_of(suspect: Suspect, growth: Growth, share: float) -> tuple[float, float]:
    """Bytes per step that a suspect costs, and its share of the growth.

    The meter is exact and also counts what hangs on the survivors (headers, nodes, hooks), so that it knows better
    where it grows as fast as they do. The nodes of a graph can only be estimated, but are all there is once backward
    has freed what it saved.
    """
    if growth.unit == "bytes" and 0.9 < share < 1 / 0.9:
        return growth.rates.get(suspect.device, growth.rate), share
    measured = growth.rates.get("cpu", 0.0)
    if suspect.graph is None or suspect.device != "cpu" or measured <= 0:
        return suspect.bytes_per_step, share
    with_nodes = share_with_objects(suspect, growth)
    share = 1.0 if 0.5 < with_nodes < 2.0 else min(1.0, with_nodes)
    return max(suspect.bytes_per_step, share * measured), share


def is_library_business(case: Case) -> bool:
    """Whether a library collects small things for itself, which the user can do nothing about."""
    first, suspect = case.links[0], case.suspect
    of_library = first.role == "python module" and not is_user_module(first.text)
    return of_library and "python" in suspect.hints and suspect.bytes_per_step < LIBRARY_LEAST


def first_step(suspect: Suspect, growth: Growth) -> int:
    """The step in which what piled up began to, as far as it can be dated."""
    if suspect.graph is not None:
        return suspect.graph.first
    return max(1, growth.since)


def statement_of(case: Case, pattern: Pattern) -> Frame | None:
    """The statement to change."""
    found = pattern.statement(case) if pattern.statement is not None else None
    return found if found is not None or case.growth is None else case.growth.frame


def bound_of(case: Case) -> int | None:
    """The most items that what grows will ever hold, when it says so itself."""
    position = case.suspect.container
    if position < 0:
        return None
    # A queue bounds the deque inside it.
    for link in reversed(case.links[max(0, position - 2) : position + 1]):
        if link.bound >= 0:
            return link.bound
    return None


def bound_statement(case: Case, growth: Growth) -> tuple[str, ...]:
    """Where known growth will stop."""
    bound = bound_of(case)
    if bound is None or case.container is None:
        return ()
    return (f"it is bounded: growth stops at {bound:,} items, and it has {case.container.length:,} now",)


def grows(case: Case, growth: Growth) -> list[str]:
    """What piles up, in numbers."""
    suspect = case.suspect
    graph = suspect.graph
    name = case.name
    if graph is not None:
        verb = "hold" if suspect.container >= 0 else "holds"
        subject = f"the items of {name}" if suspect.container >= 0 else name
        return [
            f"{subject} {verb} the autograd graphs of {graph.steps:,} finished steps ({graph.first:,} to "
            f"{graph.last:,}): {graph.nodes:,} nodes, {size(graph.saved_bytes)} of saved tensors"
        ]
    if suspect.state in ("gc-pending", "stranded"):
        what = "wait for gc" if suspect.state == "gc-pending" else "are stranded: gc can never free them"
        return [f"{suspect.held_count:,} cycles like this hold {size(suspect.held_bytes)} and {what}"]
    if suspect.state == "native":
        return [native_statement(suspect, growth)]
    if "replaced" in suspect.hints:
        return [f"{case.path} has grown by {size(suspect.bytes)} in {suspect.hints['replaced']:,} steps"]
    if suspect.grew > 0:
        per_step = suspect.grew / growth.window
        container = case.container
        now = f", {container.length:,} now" if container is not None and container.length >= 0 else ""
        return [f"{name} got {suspect.grew:,} items in {growth.window:,} steps ({per_step:.3g} a step{now})"]
    return [f"{suspect.count:,} survivors in {growth.window:,} steps, {suspect.held_count:,} held in all"]


def birth_statements(case: Case) -> Iterator[str]:
    """When and where survivors were born, how many like them were freed, and which part of backward made them."""
    suspect = case.suspect
    count = sum(born for _, born in suspect.births)
    # Of graphs, nodes are counted.
    if count and case.site and suspect.graph is None:
        steps = [step for step, _ in suspect.births]
        place = f"{shorten(case.site[0].file)}:{case.site[0].line}"
        freed = suspect.made - count
        kept = ""
        if suspect.made:
            kept = ", none freed" if freed <= 0 else f", {freed:,} of {suspect.made:,} freed"
        pace = f"{count / len(steps):.3g} a step in steps {steps[0]:,} to {steps[-1]:,}"
        yield f"{count:,} survivors of {size(suspect.bytes / count)} born at {place}, {pace}{kept}"
    node, forward = suspect.hints.get("backward", ("", ()))
    if node:
        frames = source.frames_of(forward)
        made = f", which {shorten(frames[0].file)}:{frames[0].line} made in the forward pass" if frames else ""
        yield f"allocated in backward, by {node}{made}"


def native_statement(suspect: Suspect, growth: Growth) -> str:
    """Growth that no object explains, with what was looked at."""
    if suspect.count:
        return f"{suspect.count:,} storages of {size(suspect.bytes)} are alive, and no Python object refers to them"
    return (
        f"{growth.meter} grows by {size(growth.rate)} a step; tensors, autograd graphs, containers and garbage were "
        "looked at and do not explain it"
    )


def holder_of(case: Case, growth: Growth) -> Holder:
    """The holder in words, with a verdict for every object on the path."""
    links = case.links
    scope = links[paths.scope_position(links)]
    kind = paths.kind_of(links)
    where = (
        f"{scope.function}()"
        if scope.role in ("frame", "generator")
        else scope.text
        if kind == "module global"
        else ""
    )
    return Holder(case.path, kind, location_of(case, scope), where, tuple(nodes_of(case, growth)))


def location_of(case: Case, scope: Link) -> str:
    """``file:line`` of the variable: where it is assigned, else where its function or class begins."""
    if case.target is not None:
        for file in dict.fromkeys([scope.file, *(link.file for link in case.links)]):
            if file and is_user_file(file):
                for statement in source.statements(file, case.target):
                    if statement.kind in ("assign", "empty"):
                        return f"{shorten(file)}:{statement.line}"
    for link in (scope, *reversed(case.links)):
        if link.file and is_user_file(link.file):
            line = link.line or source.definition_line(link.file, link.function)
            return f"{shorten(link.file)}:{line}" if line else shorten(link.file)
    return ""


def nodes_of(case: Case, growth: Growth) -> Iterator[Node]:
    """The objects of the path with their verdicts; attribute dicts, cells and storages go with their neighbours."""
    links = case.links
    label = ""
    last = max(
        position for position, link in enumerate(links) if link.role not in HIDDEN_ROLES or position == 0
    )
    for position, link in enumerate(links):
        label += link.text
        if position and position != last and (link.edge == "namespace" or link.role in HIDDEN_ROLES):
            continue
        if link.role in HIDDEN_ROLES and position:
            continue
        verdict, reason = verdict_of(case, position, position == last, growth)
        place = f"{shorten(link.file)}:{link.line}" if link.file and link.line else ""
        detail = " ".join(part for part in (link.detail if link.edge != "root" else "", place) if part)
        yield Node(node_label(link, label), link.type, detail, verdict, reason)
        label = ""


HIDDEN_ROLES = ("cell", "storage")


def node_label(link: Link, label: str) -> str:
    """How the object before refers to this one, or what it is where the path begins."""
    if link.role in ("frame", "generator") and link.edge in ("root", "outside"):
        return f"{link.function}()"
    if link.edge == "root":
        return f"module {link.text}"
    return label or {"outside": link.function or "(held from C)", "cycle": "cycle of"}.get(
        link.edge, link.edge
    )


def verdict_of(case: Case, position: int, last: bool, growth: Growth) -> tuple[str, str]:
    """Whether an object leaks, and why one can say so."""
    link, suspect = case.links[position], case.suspect
    if link.role == "generator" and link.edge == "outside":
        return "no", "is suspended at a yield"
    if link.edge == "root":
        thread = f" in thread {link.detail}" if link.role == "frame" and link.detail else ""
        return "no", "is running" + thread if link.role == "frame" else "lives as long as the program"
    if suspect.state in ("gc-pending", "stranded"):
        return "yes", "nothing outside the cycle refers to it" if link.edge == "cycle" else ""
    if last and suspect.graph is not None:
        graph = suspect.graph
        return (
            "yes",
            f"reaches graphs of steps {graph.first:,} to {graph.last:,}; the loop is at step {growth.step:,}",
        )
    if last and suspect.state == "held":
        births = [step for step, _ in suspect.births]
        born = (
            f"born in steps {births[0]:,} to {births[-1]:,}, alive at {growth.step:,}"
            if births
            else "outlived its step"
        )
        return "yes", born
    if position == suspect.container and suspect.grew > 0:
        return "unknown", f"{suspect.grew:,} items more in {growth.window:,} steps"
    return "unknown", ""


def signature(pattern: Pattern, case: Case, holder: Holder) -> str:
    """Eight hex digits that stay the same from run to run: no address, index, count or line goes in."""
    end = case.suspect.container + 1 if case.suspect.container >= 0 else len(case.links)
    start = paths.scope_position(case.links[:end])
    scope = case.links[start]
    parts = [pattern.id, case.suspect.state, os.path.basename(scope.file), scope.function]
    parts += [edge + text for edge, text in paths.key_of(case.links[start:end])]
    if case.suspect.state in ("gc-pending", "stranded"):
        parts += [link.type for link in case.links]
    if pattern.holder is not None:
        parts = [pattern.id, holder.path]
    return hashlib.sha1("\0".join(parts).encode()).hexdigest()[:8]


def forecast(rate: float, growth: Growth, device: str) -> str:
    """When the memory of a device is full at this pace."""
    free = growth.free.get(device, 0.0)
    if rate <= 0 or free <= 0 or free / rate > 1e12:
        return ""
    steps = free / rate
    where = "host memory" if device == "cpu" else device
    time = duration(steps * growth.seconds_per_step)
    return f"{where} is full in about {three_digits(steps):,} steps ({time} at this pace)"
