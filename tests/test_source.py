"""From a holder or a call stack to the user's statement, and the change to it as a diff that works."""

from __future__ import annotations

import ast
import linecache
import re
import sys
import textwrap
import types

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from leakhunter import source
from leakhunter.findings import Frame
from leakhunter.heap.labels import Link
from leakhunter.heap.paths import Route
from leakhunter.heap.suspects import Graph, Sample, Suspect
from leakhunter.patterns import catalogue
from leakhunter.patterns.case import open_case
from leakhunter.source import Target

NAME = Target("name", "x")


@pytest.fixture
def write(tmp_path):
    """Write a source file and give its name."""

    def write(text: str | bytes, name: str = "train.py") -> str:
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return str(path)

    return write


def patched(text: str, diff: str) -> str:
    """``text`` with a unified diff applied; fails where the diff does not belong to the text."""
    old, new, at = text.splitlines(), [], 0
    lines = diff.splitlines()
    assert lines[0].startswith("--- ")
    assert lines[1].startswith("+++ ")
    for line in lines[2:]:
        if line.startswith("@@"):
            start, count = re.match(r"@@ -(\d+)(?:,(\d+))? ", line).groups()
            upto = int(start) - (count != "0")
            new += old[at:upto]
            at = upto
        elif line.startswith("-"):
            assert old[at] == line[1:]
            at += 1
        else:
            assert line.startswith("+"), f"{line!r} is neither taken away nor added"
            new.append(line[1:])
    return "\n".join(new + old[at:]) + "\n"


TOKEN = re.compile(
    r"\.(?P<attribute>\w+)|\['(?P<key>\w+)'\]|\[(?P<field>\d+)\]|(?P<index>\[\*\])|(?P<any>\{\*\})|<(?P<closure>\w+)>"
    r"|(?P<local>\w+)"
)
OWNERS = {
    "attribute": "instance",
    "key": "dict",
    "field": "tuple",
    "index": "list",
    "any": "dict",
    "closure": "function",
}


def links(file: str, path: str, line: int, function: str = "train") -> tuple[Link, ...]:
    """Objects on a path such as ``trainer.hist[*][1]``; ``{*}`` any key, ``<x>`` a closed-over variable."""
    tokens = [(match.lastgroup, match.group(match.lastgroup)) for match in TOKEN.finditer(path)]
    roles = [OWNERS[kind] for kind, _ in tokens[1:]] + ["tensor"]
    found = [Link("root", "", "frame", "frame", "", file, line, function)]
    for (kind, text), role in zip(tokens, roles, strict=True):
        name = "Tensor" if role == "tensor" else role
        if kind == "closure":
            found.append(Link("closure", ".__closure__", "tuple", "tuple", length=1))
            found.append(Link("closure", f"[{text}]", "cell", "cell"))
        edge, written = {
            "attribute": ("attribute", f".{text}"),
            "key": ("key", f"['{text}']"),
            "field": ("field", f"[{text}]"),
            "index": ("index", "[*]"),
            "any": ("key", "[*]"),
            "closure": ("content", ""),
            "local": ("local", text),
        }[kind]
        found.append(Link(edge, written, name, role, length=24 if role in ("list", "dict") else -1))
    return tuple(found)


def case_of(file: str, path: str, numel: int = 1, line: int | None = None):
    """A case of graphs of finished steps held by ``path`` from the function ``train`` of a file."""
    line = source.definition_line(file, "train") if line is None else line
    route = Route(links(file, path, line), False)
    container = next((n - 1 for n, link in enumerate(route.links) if "*" in link.text), -1)
    sample = Sample("Tensor", "float32 ()", numel, True, 4 * numel, 4 * numel)
    graph = Graph(110, 22, 1, 22, 5632, ("AddBackward0", "SumBackward0"))
    suspect = Suspect(
        "held",
        route,
        22,
        1024,
        256.0,
        22,
        5632,
        container=container,
        grew=8 if container >= 0 else 0,
        graph=graph,
        sample=sample,
    )
    return open_case(suspect, {"window": 8, "gc enabled": True})


def fix_of(file: str, path: str, numel: int = 1):
    case = case_of(file, path, numel)
    return catalogue.name(case).fix(case)


PROGRAM = """\
import collections
import queue
import torch


class Record:
    def __init__(self, loss):
        self.loss = loss


class Trainer:
    def __init__(self):
        self.total = 0.0
        self.hist = []
        self.log = Record([])
        self.stats = {"loss": 0.0}
        self.state = torch.zeros(4)

    def update(self, x, out, loss):
        METHOD


def cell(x, state, other=0.0):
    return torch.tanh(x + state + other)


def pair(x, h, c):
    return torch.tanh(x + h), torch.tanh(x + c)


def train(steps):
    weight = torch.nn.Parameter(torch.ones(4))
    trainer = Trainer()
    SETUP
    for step in range(steps):
        x = torch.ones(4)
        n = 4
        out = x * weight
        loss = out.sum()
        STATEMENT
    return ROOT
"""


def program(path: str, setup: str, statement: str, method: str = "pass") -> str:
    """A program whose every step runs ``statement`` and that returns what ``path`` begins with."""
    text = PROGRAM.replace("METHOD", method.replace("\n", "\n" + 8 * " "))
    text = text.replace("SETUP", setup or "pass").replace("ROOT", re.match(r"\w+", path).group())
    return text.replace("STATEMENT", statement.replace("\n", "\n" + 8 * " "))


def graph_size(value) -> int:
    """How many autograd nodes a value holds."""
    nodes, seen, pending = set(), set(), [value]
    while pending:
        thing = pending.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        if isinstance(thing, torch.Tensor):
            pending.append(thing.grad_fn)
        elif hasattr(thing, "next_functions"):
            nodes.add(thing)
            pending += [node for node, _ in thing.next_functions]
        elif isinstance(thing, dict):
            pending += thing.values()
        elif isinstance(thing, (list, tuple, set, type(iter(())))) or type(thing).__name__ == "deque":
            pending += thing
        elif isinstance(thing, types.FunctionType):
            pending += [cell.cell_contents for cell in thing.__closure__ or ()]
        elif hasattr(thing, "__dict__") and not isinstance(thing, type):
            pending += vars(thing).values()
    return len(nodes)


def graphs_pile_up(text: str) -> bool:
    """Whether a program holds more of autograd's graphs the more steps it makes."""
    namespace: dict = {}
    exec(compile(text, "<string>", "exec"), namespace)
    return graph_size(namespace["train"](6)) > graph_size(namespace["train"](3))


# ----------------------------------------------------------------------------------------------------------
# what a statement does to its target

KINDS = [
    ("x += loss", "accumulate"),
    ("x -= loss", "accumulate"),
    ("x = x + loss", "accumulate"),
    ("x = loss + x", "accumulate"),
    ("x: float = x + loss", "accumulate"),
    ("x = 0.9 * x + 0.1 * loss", "accumulate"),
    ("x += [loss]", "accumulate"),
    ("x = f(x)", "carry"),
    ("x = f(a, state=x)", "carry"),
    ("x = torch.add(x, loss)", "carry"),
    ("y, x = f(a, x)", "carry"),
    ("[y, x] = f(a, x)", "carry"),
    ("y, *x = f(a, x)", "carry"),
    ("x = y = f(x)", "carry"),
    ("x = torch.cat([x, e])", "join"),
    ("x = torch.cat((x, e))[-5:]", "join"),
    ("x = np.append(x, e)", "join"),
    ("x = x[-5:]", "rebuild"),
    ("x = x.detach()", "rebuild"),
    ("x = f(a)", "assign"),
    ("x = y", "assign"),
    ("x.append(loss)", "add"),
    ("x.extend([loss])", "add"),
    ("x.insert(0, loss)", "add"),
    ("x.appendleft(loss)", "add"),
    ("x.add(loss)", "add"),
    ("x.put(loss)", "add"),
    ("x.update(a=loss)", "add"),
    ("x.setdefault(k, []).append(loss)", "add"),
    ("x.setdefault(k, loss)", "add"),
    ("await x.put(loss)", "add"),
    ("heapq.heappush(x, loss)", "add"),
    ("heappush(x, (1, loss))", "add"),
    ("x.register_forward_hook(f)", "add"),
    ("y = x.append(loss)", "add"),
    ("return x.append(loss)", "add"),
    ("[x.append(a) for a in b]", "add"),
    ("f = lambda a: x.append(a)", "add"),
    ("a and x.append(loss)", "add"),
    ("x[k] = loss", "item"),
    ("x[k], y = loss, 1", "item"),
    ("x[k]: int = loss", "item"),
    ("x = []", "empty"),
    ("x = 0.0", "empty"),
    ("x = None", "empty"),
    ("x = [[], []]", "empty"),
    ("x = {}", "empty"),
    ("x = dict()", "empty"),
    ("x = collections.deque()", "empty"),
    ("x.clear()", "empty"),
    ("y = x.pop()", "empty"),
    ("del x[k]", "empty"),
    ("del x[:]", "empty"),
    ("for a in x.popleft(): pass", "empty"),
    ("with x.pop(): pass", "empty"),
]
NEUTRAL = [
    "y += x",
    "y = x + 1",
    "print(x)",
    "y.append(x)",
    "x",
    "x.y = 1",
    "x.total += 1",
    "del x",
    "y[x] = 1",
    "xx += 1",
]


def inside(statement: str) -> str:
    return f"async def train(y, x):\n    {statement}\n"


@pytest.mark.parametrize(("statement", "kind"), KINDS, ids=[statement for statement, _ in KINDS])
def test_a_statement_is_understood_for_a_variable(write, statement, kind):
    (found,) = source.statements(write(inside(statement)), NAME)
    assert (found.kind, found.line, found.function) == (kind, 2, "train")


OWNED = [(statement, kind) for statement, kind in KINDS if "x:" not in statement and "*x" not in statement]


@pytest.mark.parametrize(
    ("written", "target"),
    [
        ("self.x", Target("attribute", "x")),
        ("self.model.x", Target("attribute", "x")),
        ("stats['x']", Target("key", "'x'")),
        ("self.stats[0]['x']", Target("key", "'x'")),
    ],
    ids=["attribute", "attribute of an attribute", "key", "key of an attribute"],
)
@pytest.mark.parametrize(("statement", "kind"), OWNED, ids=[statement for statement, _ in OWNED])
def test_a_statement_is_understood_for_an_attribute_and_a_key(write, written, target, statement, kind):
    text = inside(re.sub(r"\bx\b", written, statement)).replace("def train(y, " + written, "def train(y, q")
    (found,) = source.statements(write(text), target)
    assert (found.kind, found.line) == (kind, 2)


@pytest.mark.parametrize("statement", NEUTRAL)
def test_a_statement_that_only_reads_the_target_is_left_out(write, statement):
    assert not list(source.statements(write(f"def train(y, x):\n    {statement}\n"), NAME))


@pytest.mark.parametrize(
    "statement", ["(x := x + loss)", "print(x := x + loss)", "while (x := x + loss) is None: pass"]
)
def test_a_walrus_adds_to_its_target(write, statement):
    (found,) = source.statements(write(f"def train(x, loss):\n    {statement}\n"), NAME)
    assert found.kind == "accumulate"


@pytest.mark.parametrize(
    "statement", ["if x.pop() is None: pass", "while x.popleft(): pass", "assert x.pop()", "raise x.pop()"]
)
def test_a_call_in_the_head_of_any_statement_counts(write, statement):
    (found,) = source.statements(write(f"def train(x):\n    {statement}\n"), NAME)
    assert found.kind == "empty"


@pytest.mark.parametrize("other", [Target("name", "y"), Target("attribute", "x"), Target("key", "'x'")])
def test_a_variable_an_attribute_and_a_key_of_one_name_are_not_confused(write, other):
    assert not list(source.statements(write(inside("x += 1")), other))


@pytest.mark.parametrize(
    ("target", "line"),
    [
        (Target("key", "'0'"), 1),
        (Target("key", "0"), 2),
        (Target("key", "b'0'"), 3),
        (Target("key", "None"), 4),
    ],
)
def test_constant_keys_are_told_apart_by_their_type(write, target, line):
    file = write("d['0'] += v\nd[0] += v\nd[b'0'] += v\nd[None] += v\n")
    assert [statement.line for statement in source.statements(file, target)] == [line]


@pytest.mark.parametrize(
    "call", ["x.get(k)", "x.get(k, None)", "y = x.get(k)"], ids=["bare", "with default", "assigned"]
)
def test_reading_a_dict_does_not_count_as_emptying_it(write, call):
    file = write(f"def train(x, k):\n    x[k] = 1\n    {call}\n")
    assert not [statement for statement in source.statements(file, NAME) if statement.kind == "empty"]


# ----------------------------------------------------------------------------------------------------------
# where a statement stands

PLACES = {
    "module": "{}",
    "for": "for a in b:\n    {}",
    "for else": "for a in b:\n    pass\nelse:\n    {}",
    "while": "while a:\n    {}",
    "with": "with a as b, c:\n    {}",
    "try": "try:\n    {}\nfinally:\n    pass",
    "except": "try:\n    pass\nexcept a:\n    {}",
    "try else": "try:\n    pass\nexcept a:\n    pass\nelse:\n    {}",
    "finally": "try:\n    pass\nfinally:\n    {}",
    "if": "if a:\n    {}",
    "elif": "if a:\n    pass\nelif b:\n    {}",
    "else": "if a:\n    pass\nelse:\n    {}",
    "match": "match a:\n    case 1:\n        {}",
    "function": "def f():\n    {}",
    "nested function": "def f():\n    def g():\n        {}",
    "decorated function": "@d\ndef f():\n    {}",
    "method": "class C:\n    def f(self):\n        {}",
    "async method": "class C:\n    async def f(self):\n        async with a:\n            {}",
    "class body": "class C:\n    {}",
    "class in a function": "def f():\n    class C:\n        def g(self):\n            {}",
    "on the line of its head": "for a in b: {}",
    "after a semicolon": "a = 1; {}; b = 2",
    "continued line": "a = \\\n    1\n{}",
    "after a long string": 'a = """\nx.append(1)\n"""\n{}',
}
CONDITIONAL = {"except", "try", "try else", "finally", "if", "elif", "else", "match"}


@pytest.mark.parametrize("place", PLACES)
def test_a_statement_is_found_wherever_it_stands(write, place):
    text = PLACES[place].format("x.append(loss)") + "\n"
    (found,) = source.statements(write(text), NAME)
    assert found.kind == "add"
    assert text.splitlines()[found.line - 1].find("x.append(loss)") >= 0
    assert found.conditional == (place in CONDITIONAL)
    assert found.frame.line == found.line


@pytest.mark.skipif(sys.version_info < (3, 11), reason="except* came with Python 3.11")
def test_a_statement_under_except_star_may_not_run(write):
    (found,) = source.statements(write("try:\n    x.append(1)\nexcept* E:\n    pass\n"), NAME)
    assert found.conditional


@pytest.mark.parametrize(
    ("place", "function", "owner"),
    [
        ("module", "", ""),
        ("function", "f", ""),
        ("nested function", "g", ""),
        ("method", "f", "C"),
        ("async method", "f", "C"),
        ("class body", "", "C"),
        ("class in a function", "g", "C"),
    ],
)
def test_a_statement_knows_its_function_and_class(write, place, function, owner):
    (found,) = source.statements(write(PLACES[place].format("x.append(1)") + "\n"), NAME)
    assert (found.function, found.method_of) == (function, owner)
    assert found.frame.function == (function or "<module>")


TWO = """\
import a
def train():
    x += 1
@d
@e
def test():
    x += 2
    def inner():
        nonlocal x
        x += 3
"""


@pytest.mark.parametrize(("first_line", "lines"), [(2, [3]), (4, [7, 10]), (8, [10]), (99, [])])
def test_a_variable_is_looked_for_in_its_own_function_only(write, first_line, lines):
    file = write(TWO)
    found = source.statements(file, Target("name", "x", (file, first_line)))
    assert [statement.line for statement in found] == lines


def test_a_variable_of_a_function_of_another_file_is_not_found(write):
    file = write(TWO)
    assert not list(source.statements(file, Target("name", "x", (write("", "other.py"), 2))))


def test_a_variable_of_the_module_itself_is_found_at_module_level(write):
    file = write("import a\nx += 1\ndef train():\n    x += 2\n")
    assert [statement.line for statement in source.statements(file, Target("name", "x", (file, 1)))] == [2]


def test_statements_of_one_line_and_of_several_come_in_order(write):
    file = write("x = []; x.append(1); x.clear()\nx.append(\n    2,\n)\n")
    found = list(source.statements(file, NAME))
    assert [(s.kind, s.line, s.end_line) for s in found] == [
        ("empty", 1, 1),
        ("add", 1, 1),
        ("empty", 1, 1),
        ("add", 2, 4),
    ]


# ----------------------------------------------------------------------------------------------------------
# the fix, applied and run

SUM = [
    ("total", "total = 0.0", "total += loss", "total += loss.item()"),
    ("total", "total = 0.0", "total -= loss", "total -= loss.item()"),
    ("total", "total = 0.0", "total = total + loss", "total = total + loss.item()"),
    ("total", "total = 0.0", "total = loss + total", "total = loss.item() + total"),
    ("total", "total = 0.0", "total = (total + loss)", "total = (total + loss.item())"),
    ("total", "total = 0.0", "total: float = total + loss", "total: float = total + loss.item()"),
    ("total", "total = 0.0", "total += (loss)", "total += (loss.item())"),
    ("total", "total = 0.0", "total += -loss", "total += (-loss).item()"),
    ("total", "total = 0.0", "total += loss ** 2", "total += (loss ** 2).item()"),
    ("total", "total = 0.0", "total += (loss ** 2)", "total += (loss ** 2).item()"),
    (
        "total",
        "total = 0.0",
        "total += (loss @ loss if n < 4 else loss)",
        "total += (loss @ loss if n < 4 else loss).item()",
    ),
    ("total", "total = 0.0", "total += loss + 1.0", "total += loss.item() + 1.0"),
    ("total", "total = 0.0", "total += loss + out.mean()", "total += loss.item() + out.mean().item()"),
    ("total", "total = 0.0", "total += 0.5 * loss", "total += 0.5 * loss.item()"),
    ("total", "total = 0.0", "total += loss / len(x)", "total += loss.item() / len(x)"),
    ("total", "total = 0.0", "total = 0.9 * total + 0.1 * loss", "total = 0.9 * total + 0.1 * loss.item()"),
    ("total", "total = 0.0", "total += out.pow(2).mean()", "total += out.pow(2).mean().item()"),
    ("total", "total = 0.0", "total += out[0]", "total += out[0].item()"),
    ("total", "total = 0.0", "a = 1; total += loss; b = 2", "a = 1; total += loss.item(); b = 2"),
    (
        "total",
        "total = 0.0",
        "with torch.enable_grad(): total += loss",
        "with torch.enable_grad(): total += loss.item()",
    ),
    ("total", "total = 0.0", "if True:\n    total += loss", "if True:\n    total += loss.item()"),
    (
        "total",
        "total = 0.0",
        "match n:\n    case 4:\n        total += loss",
        "match n:\n    case 4:\n        total += loss.item()",
    ),
    ("total", "total = 0.0", "total += loss  # ünïcödé", "total += loss.item()  # ünïcödé"),
    ("total", "total = 0.0", "s = 'äöü€😀'; total += loss", "s = 'äöü€😀'; total += loss.item()"),
    ("größe", "größe = 0.0", "größe += loss", "größe += loss.item()"),
    ("trainer.total", "", "trainer.total += loss", "trainer.total += loss.item()"),
    (
        "trainer.total",
        "",
        "trainer.total = trainer.total + loss",
        "trainer.total = trainer.total + loss.item()",
    ),
    (
        "trainer.log.loss",
        "trainer.log.loss = 0.0",
        "trainer.log.loss += loss",
        "trainer.log.loss += loss.item()",
    ),
    ("stats['loss']", "stats = {'loss': 0.0}", 'stats["loss"] += loss', 'stats["loss"] += loss.item()'),
    ("trainer.stats['loss']", "", "trainer.stats['loss'] += loss", "trainer.stats['loss'] += loss.item()"),
]
STORE = [
    ("hist[*]", "hist = []", "hist.append(loss)", "hist.append(loss.item())"),
    ("hist[*]", "hist = []", "hist.append( loss , )", "hist.append( loss.item() , )"),
    ("hist[*]", "hist = []", "hist.append(loss * 0.5)", "hist.append((loss * 0.5).item())"),
    ("hist[*]", "hist = []", "hist.append((loss * 0.5))", "hist.append((loss * 0.5).item())"),
    ("hist[*]", "hist = []", "hist.append(-loss)", "hist.append((-loss).item())"),
    ("hist[*]", "hist = []", "hist.append(out.pow(2).mean())", "hist.append(out.pow(2).mean().item())"),
    ("hist[*]", "hist = []", "hist.insert(0, loss)", "hist.insert(0, loss.item())"),
    ("hist[*]", "hist = collections.deque()", "hist.appendleft(loss)", "hist.appendleft(loss.item())"),
    ("hist[*]", "hist = []", "hist.extend([loss])", "hist.extend([loss.item()])"),
    ("hist[*]", "hist = []", "hist.extend((loss, out[0]))", "hist.extend((loss.item(), out[0].item()))"),
    ("hist[*]", "hist = []", "hist += [loss]", "hist += [loss.item()]"),
    ("hist[*]", "hist = []", "hist += [loss * 2]", "hist += [(loss * 2).item()]"),
    ("hist[*]", "hist = set()", "hist.add(loss)", "hist.add(loss.item())"),
    ("hist.queue[*]", "hist = queue.Queue()", "hist.put(loss)", "hist.put(loss.item())"),
    ("hist[*]", "hist = []", "é = '∂'; hist.append(loss); ñ = 1", "é = '∂'; hist.append(loss.item()); ñ = 1"),
    (
        "hist[*]",
        "hist = []",
        "try:\n    hist.append(loss)\nfinally:\n    pass",
        "try:\n    hist.append(loss.item())\nfinally:\n    pass",
    ),
    ("trainer.hist[*]", "", "trainer.hist.append(loss)", "trainer.hist.append(loss.item())"),
    ("trainer.log.loss[*]", "", "trainer.log.loss.append(loss)", "trainer.log.loss.append(loss.item())"),
    (
        "stats['loss'][*]",
        "stats = {'loss': []}",
        "stats['loss'].append(loss)",
        "stats['loss'].append(loss.item())",
    ),
    ("d{*}", "d = {}", "d[step] = loss", "d[step] = loss.item()"),
    ("d{*}", "d = {}", "d.setdefault(step, loss)", "d.setdefault(step, loss.item())"),
    ("d{*}", "d = {}", "d.update({step: loss})", "d.update({step: loss.item()})"),
    (
        "d{*}[*]",
        "d = {}",
        "d.setdefault(step, []).append(loss)",
        "d.setdefault(step, []).append(loss.item())",
    ),
    (
        "d['loss'][*]",
        "d = {}",
        "d.setdefault('loss', []).append(loss)",
        "d.setdefault('loss', []).append(loss.item())",
    ),
    (
        "hist[*]['loss']",
        "hist = []",
        "hist.append({'n': n, 'loss': loss})",
        "hist.append({'n': n, 'loss': loss.item()})",
    ),
    ("hist[*][1]", "hist = []", "hist.append((step, loss))", "hist.append((step, loss.item()))"),
    (
        "hist[*][1]",
        "hist = []",
        "hist.append((len(x), loss * 2))",
        "hist.append((len(x), (loss * 2).item()))",
    ),
]
STORE_VECTOR = [
    ("hist[*]", "hist = []", "hist.append(out)", "hist.append(out.detach())"),
    ("hist[*]", "hist = []", "hist.append(out * 2)", "hist.append((out * 2).detach())"),
    ("d{*}", "d = {}", "d[step] = out", "d[step] = out.detach()"),
    (
        "hist[*]['out']",
        "hist = []",
        "hist.append({'out': out, 'loss': n})",
        "hist.append({'out': out.detach(), 'loss': n})",
    ),
    (
        "trainer.total",
        "",
        "trainer.total = 0.9 * trainer.total + out",
        "trainer.total = 0.9 * trainer.total + out.detach()",
    ),
    ("trainer.total", "", "trainer.total += out * 0.1", "trainer.total += out.detach() * 0.1"),
    ("state", "state = torch.zeros(4)", "state = cell(out, state)", "state = cell(out, state.detach())"),
    (
        "state",
        "state = torch.zeros(4)",
        "state = cell(out, state=state)",
        "state = cell(out, state=state.detach())",
    ),
    (
        "state",
        "state = torch.zeros(4)",
        "y, state = pair(out, 0.0, state)",
        "y, state = pair(out, 0.0, state.detach())",
    ),
    (
        "trainer.state",
        "",
        "trainer.state = cell(out, trainer.state)",
        "trainer.state = cell(out, trainer.state.detach())",
    ),
    (
        "buf",
        "buf = torch.zeros(4)",
        "buf = torch.cat([buf, out])[-4:]",
        "buf = torch.cat([buf, out])[-4:].detach()",
    ),
    (
        "buf",
        "buf = torch.zeros(4)",
        "buf = torch.cat([buf, out])\nbuf = buf[-4:]",
        "buf = torch.cat([buf, out])\nbuf = buf[-4:].detach()",
    ),
    ("buf", "buf = torch.zeros(4)", "buf = buf[:2].repeat(2)", "buf = buf[:2].repeat(2).detach()"),
]
FORMS = [(*form, 1) for form in SUM + STORE] + [(*form, 4) for form in STORE_VECTOR]


@pytest.mark.parametrize(
    ("path", "setup", "statement", "expected", "numel"),
    FORMS,
    ids=[f"{form[0]}: {form[2]}" for form in FORMS],
)
def test_the_diff_changes_the_statement_alone_and_ends_the_growth(
    write, path, setup, statement, expected, numel
):
    text = program(path, setup, statement)
    if path != "buf" or "repeat" not in statement:
        assert graphs_pile_up(text)
    fix = fix_of(write(text), path, numel)
    after = patched(text, fix.diff)
    assert after == program(path, setup, expected)
    assert not graphs_pile_up(after)
    assert fix.text
    assert fix.caveat


# What a fix may say only in words; where it gives a diff, that must work.
RISKY = [
    ("total", "total = 0.0", "total += loss * n", 1),
    ("total", "total = 0.0", "total += loss / n", 1),
    ("total", "total = 0.0", "total += loss * x.size(0)", 1),
    ("total", "total = 0.0", "total += weight[0] * loss", 1),
    ("total", "total = 0.0", "total += loss * weight[0] * n", 1),
    ("total", "total = 0.0", "total += loss if step else 0.0", 1),
    ("total", "total = 0.0", "total += sum([loss, loss])", 1),
    ("total", "total = torch.zeros(())", "(total := total + loss)", 1),
    ("total", "total = torch.zeros(())", "total.add_(loss)", 1),
    ("total", "total = torch.zeros(())", "total = torch.add(total, loss)", 1),
    ("total", "total = torch.zeros(())", "total = sum([total, loss])", 1),
    ("total", "total = torch.zeros(())", "total = torch.stack([total, loss]).sum()", 1),
    ("hist[*]", "hist = []", "hist = hist + [loss]", 1),
    ("hist[*]", "hist = []", "hist = [*hist, loss]", 1),
    ("hist[*]", "hist = ()", "hist += (loss,)", 1),
    ("hist[*]", "hist = []", "losses = [loss]\nhist.extend(losses)", 1),
    ("hist[*]", "hist = []", "hist.extend(a for a in [loss])", 1),
    ("hist[*]", "hist = []", "hist.extend([a for a in [loss]])", 1),
    ("hist[*]", "hist = []", "hist.extend(out)", 1),
    ("hist[*]", "hist = []", "[hist.append(a) for a in [loss]]", 1),
    ("hist[*]", "hist = []", "keep = lambda a: hist.append(a); keep(loss)", 1),
    ("hist[*]", "hist = []", "def keep(a): hist.append(a)\nkeep(loss)", 1),
    ("hist[*]", "hist = []", "_ = hist.append(loss)", 1),
    ("hist[*]", "hist = []", "print('') if hist.append(loss) else None", 1),
    ("hist[*]", "hist = []", "hist.append(loss if step else 0.0)", 1),
    ("hist[*]<loss>", "hist = []", "def keep(loss=loss):\n    hist.append(lambda: loss)\nkeep()", 1),
    ("hist[*].loss", "hist = []", "hist.append(Record(loss))", 1),
    ("hist[*].loss", "hist = []", "record = Record(loss)\nhist.append(record)", 4),
    ("hist[*]['loss']", "hist = []", "outs = {'loss': loss, 'n': n}\nhist.append(outs)", 1),
    ("hist[*]['loss']", "hist = []", "hist.append(dict(loss=loss, n=n))", 1),
    ("hist[*]['a']['loss']", "hist = []", "hist.append({'a': {'loss': loss}, 'n': n})", 1),
    ("hist[*][0]", "hist = []", "both = (loss, n)\nhist.append(both)", 1),
    ("hist[*][*]", "hist = []", "hist.append([loss, loss])", 1),
    ("hist[*][*]", "hist = []", "hist.append([a for a in [loss]])", 1),
    ("hist[*][1]['loss']", "hist = []", "hist.append((step, {'loss': loss}))", 1),
    ("hist[*][1]", "hist = []", "heap = hist; hist.append((step, loss))", 1),
    ("d{*}[*]", "d = {}", "d[step] = collections.deque()\nd[step].append(loss)", 1),
    ("d{*}[*]", "d = collections.defaultdict(list)", "d[step % 2].append(loss)", 1),
    ("d{*}[0]", "d = {}", "d[step] = loss, n", 1),
    ("d{*}", "d = {}", "d[step], y = loss, n", 1),
    ("d{*}", "d = {}", "d |= {step: loss}", 1),
    ("d{*}", "d = {}", "d = {**d, step: loss}", 1),
    ("d{*}", "d = {}", "d.update([(step, loss)])", 1),
    ("d{*}", "d = {}", "d.update(dict.fromkeys([step], loss))", 1),
    ("state", "state = torch.zeros(4)", "state = cell(out, state, state)", 4),
    ("state", "state = torch.zeros(4)", "state = cell(cell(out, state), state)", 4),
    ("state", "state = torch.zeros(4)", "state = state.add(out)", 4),
    ("state", "state = torch.zeros(4)", "state = cell(out, state * 0.5)", 4),
    ("state[0]", "state = (torch.zeros(4), torch.zeros(4))", "state = pair(out, *state)", 4),
    ("state[0]", "state = (torch.zeros(4),)", "state = tuple(cell(out, a) for a in state)", 4),
    ("h", "h = c = torch.zeros(4)", "h, c = pair(out, h, c)", 4),
    ("state", "state = torch.zeros(4)", "_, state = 0, state * out", 4),
]


@pytest.mark.parametrize(
    ("path", "setup", "statement", "numel"), RISKY, ids=[f"{form[0]}: {form[2]}" for form in RISKY]
)
def test_a_diff_that_is_given_always_ends_the_growth(write, path, setup, statement, numel):
    text = program(path, setup, statement)
    assert graphs_pile_up(text)
    fix = fix_of(write(text), path, numel)
    assert fix.text
    if fix.diff:
        after = patched(text, fix.diff)
        ast.parse(after)
        assert not graphs_pile_up(after), fix.diff


METHODS = [
    ("trainer.total", "self.total += loss", 1),
    ("trainer.total", "self.total = self.total + loss", 1),
    ("trainer.hist[*]", "self.hist.append(loss)", 1),
    ("trainer.hist[*]", "if True:\n    self.hist.append(loss)", 1),
    ("trainer.log.loss[*]", "self.log.loss.append(loss)", 1),
    ("trainer.stats['loss']", "self.stats['loss'] += loss", 1),
    ("trainer.state", "self.state = cell(out, self.state)", 4),
    ("trainer.state", "y, self.state = pair(out, 0.0, self.state)", 4),
    ("trainer.state", "state = cell(out, self.state)\nself.state = state", 4),
    ("trainer.state", "state = cell(out, self.state)\ny, self.state = 0, state", 4),
]


@pytest.mark.parametrize(("path", "statement", "numel"), METHODS, ids=[form[1] for form in METHODS])
def test_the_diff_of_a_statement_in_a_method_is_written_in_the_words_of_the_method(
    write, path, statement, numel
):
    text = program(path, "", "trainer.update(x, out, loss)", statement)
    assert graphs_pile_up(text)
    fix = fix_of(write(text), path, numel)
    after = patched(text, fix.diff)
    assert not graphs_pile_up(after), fix.diff


@pytest.mark.parametrize("setup", ["state = (torch.zeros(4), torch.zeros(4))"])
def test_the_fix_of_a_tuple_of_states_assigns_to_no_item_of_it(write, setup):
    text = program("state", setup, "out, state = out, pair(out, state[0], state[1])")
    fix = fix_of(write(text), "state[0]", 4)
    assert "state[0] =" not in fix.text


MULTILINE = [
    ("total", "total = 0.0", "total += torch.mean(\n    out,\n    dim=0,\n)", 1),
    ("total", "total = 0.0", "total = (\n    total\n    + loss\n)", 1),
    ("total", "total = 0.0", "total += (\n    loss **\n    2\n)", 1),
    ("total", "total = 0.0", "total = total + \\\n    loss", 1),
    ("hist[*]", "hist = []", "hist.append(\n    loss\n)", 1),
    ("hist[*]", "hist = []", "hist.append(\n    loss  # ünï\n    * 2,\n)", 1),
    ("hist[*]", "hist = []", "hist.append(torch.mean(\n    out,\n))", 1),
    (
        "hist[*]['loss']",
        "hist = []",
        "hist.append({\n    'n': n,\n    'loss': torch.mean(\n        out,\n    ),\n})",
        1,
    ),
    ("hist[*]", "hist = []", "hist.extend([\n    torch.mean(\n    out), loss, torch.mean(\n    out)\n])", 1),
    ("d{*}", "d = {}", "d[\n    step\n] = torch.mean(\n    out\n)", 1),
    ("buf", "buf = torch.zeros(4)", "buf = torch.cat(\n    [buf, out]\n)[-4:]", 4),
    ("state", "state = torch.zeros(4)", "state = cell(\n    out,\n    state,\n)", 4),
    ("hist[*]", "hist = []", 'hist.append(torch.mean(out + len("""\na\n""")))', 1),
]


@pytest.mark.parametrize(
    ("path", "setup", "statement", "numel"), MULTILINE, ids=[form[2].replace("\n", " ") for form in MULTILINE]
)
def test_the_diff_of_a_statement_over_several_lines_can_be_applied(write, path, setup, statement, numel):
    text = program(path, setup, statement)
    assert graphs_pile_up(text)
    after = patched(text, fix_of(write(text), path, numel).diff)
    ast.parse(after)
    assert not graphs_pile_up(after)
    before_statement = text[: text.index(statement.splitlines()[0])]
    assert after.startswith(before_statement)
    assert after.endswith("    return " + re.match(r"\w+", path).group() + "\n")


def test_lines_that_do_not_change_are_not_in_the_diff(write):
    statement = "hist.append(torch.mean(\n    out,\n    dim=0,\n))"
    diff = fix_of(write(program("hist[*]", "hist = []", statement)), "hist[*]").diff
    body = [line for line in diff.splitlines() if line[0] in "+-" and line[:3] not in ("+++", "---")]
    assert len(body) == 2


def test_another_statement_of_the_same_name_in_another_function_is_left_alone(write):
    text = (
        program("total", "total = 0.0", "total += loss")
        + "\n\ndef other(loss):\n    total = 0\n    total += loss\n"
    )
    after = patched(text, fix_of(write(text), "total").diff)
    assert after == text.replace(
        "        total += loss\n    return", "        total += loss.item()\n    return"
    )


# ----------------------------------------------------------------------------------------------------------
# how the text is laid out

LAYOUT = "def train(loss, hist=None):\n    for _ in range(3):\n        hist.append(loss)\n    return hist\n"
LAYOUTS = {
    "tabs": LAYOUT.replace("    ", "\t"),
    "no newline at the end": LAYOUT.replace("    return hist\n", "    return hist"),
    "statement on the last line, no newline": LAYOUT.replace("    return hist\n", "").rstrip(),
    "CRLF": LAYOUT.replace("\n", "\r\n"),
    "byte order mark": "\ufeff" + LAYOUT,
    "form feed": "\f" + LAYOUT,
    "form feed in the line": LAYOUT.replace("hist.append(", "hist.append(\f"),
    "other line separators in a string": 's = "\u2028\x85\x0b\x1c"\n' + LAYOUT,
    "non-ASCII before it": LAYOUT.replace("hist.append", "s = '日本€😀'; hist.append"),
    "combining characters": LAYOUT.replace("hist.append", "s = 'e\u0301\u200d'; hist.append"),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_diff_fits_the_text_however_it_is_laid_out(write, layout):
    text = LAYOUTS[layout]
    fix = fix_of(write(text), "hist[*]")
    minus, plus = [
        line for line in fix.diff.split("\n") if line[:1] in "+-" and line[:3] not in ("+++", "---") and line
    ]
    assert plus[1:].strip() == minus[1:].strip().replace("loss", "loss.item()")
    assert minus[1:] in text
    assert re.search(r"^@@ -\d+ \+\d+ @@$", fix.diff, re.MULTILINE)


def test_a_source_in_another_encoding_is_read_by_its_cookie(write):
    text = "# coding: latin-1\ndef train(hist, loss):\n    s = 'äöü'; hist.append(loss)\n"
    fix = fix_of(write(text.encode("latin-1")), "hist[*]")
    assert "+    s = 'äöü'; hist.append(loss.item())" in fix.diff


@given(st.text(max_size=30))
@settings(max_examples=60, deadline=None, database=None)
def test_any_text_before_the_expression_leaves_the_edit_in_its_place(prefix):
    statement = f"s = {prefix!r}; hist.append(loss)"
    name = f"<cell {abs(hash(prefix))}>"
    text = f"def train(hist, loss):\n    {statement}\n"
    linecache.cache[name] = (len(text), None, [line + "\n" for line in text.split("\n")[:-1]], name)
    try:
        fix = fix_of(name, "hist[*]")
    finally:
        del linecache.cache[name]
    assert f"+    {statement.replace('hist.append(loss)', 'hist.append(loss.item())')}\n" in fix.diff


# ----------------------------------------------------------------------------------------------------------
# sources that cannot be read, or are no files

UNREADABLE = {
    "missing": None,
    "empty": b"",
    "syntax error": b"def train(hist, loss):\n    hist.append(loss\n",
    "bad indentation": b"def train(hist, loss):\nhist.append(loss)\n",
    "null byte": b"def train(hist, loss):\n    hist.append(loss)\n\0\n",
    "not text": bytes(range(128, 256)),
    "a wrong cookie": b"# coding: no-such-codec\nhist = []\n",
    "nested too deeply": b"hist = " + b"(" * 500 + b")" * 500 + b"\n",
    "a sum too long": b"hist = " + b"-" * 10_000 + b"1\n",
}


def asked(file: str) -> list:
    """Everything that is asked of a source file."""
    target = Target("name", "hist", (file, 1))
    return [
        *source.statements(file, target),
        *source.calls(file, "append"),
        source.statement_at(file, 2),
        source.growing_call_at(Frame(file, 2, "train")),
        source.is_loop_carried(file, 1, "hist"),
        source.parameter_name(file, 1, 0),
        source.definition_line(file, "train"),
        source.with_item(file, 2, "autocast"),
        *source.constructor_lines(file),
    ]


@pytest.mark.parametrize("kind", UNREADABLE)
def test_a_source_that_cannot_be_read_gives_nothing_and_raises_nothing(write, tmp_path, kind):
    content = UNREADABLE[kind]
    file = str(tmp_path / "gone.py") if content is None else write(content)
    assert not any(asked(file))


@pytest.mark.parametrize("kind", UNREADABLE)
def test_without_a_source_the_fix_is_a_sentence(write, tmp_path, kind):
    content = UNREADABLE[kind]
    file = str(tmp_path / "gone.py") if content is None else write(content)
    fix = fix_of(file, "hist[*]")
    assert "hist" in fix.text
    assert not fix.diff


@pytest.mark.parametrize(
    "file", ["<string>", "<stdin>", "<frozen importlib._bootstrap>", "", "/", "<no such cell>"]
)
def test_code_without_a_source_gives_nothing(file):
    assert not any(asked(file))


def test_a_folder_in_the_place_of_a_source_gives_nothing(tmp_path):
    assert not any(asked(str(tmp_path)))


@pytest.mark.parametrize("cached", [True, False], ids=["read before", "not read before"])
@pytest.mark.parametrize("new", ["", "x = 1\n", LAYOUT[:60], "\n\n\n" + LAYOUT, "}" + LAYOUT])
def test_a_source_that_changed_on_disk_raises_nothing(write, new, cached):
    file = write(LAYOUT)
    if cached:
        linecache.getlines(file)
    write(new)
    fix = fix_of(file, "hist[*]")
    assert fix.text
    assert ("hist.append(loss.item())" in fix.diff) == (cached or "append(loss)" in new) or new.startswith(
        ("}", LAYOUT[:9])
    )


CELL = ["import torch\n", "hist = []\n", "for _ in range(3):\n", "    hist.append(loss)\n"]


@pytest.fixture(params=["<ipython-input-7-0a1b2c3d>", "/nowhere/ipykernel_42/123456.py"])
def cell(request):
    """A notebook cell: text that only linecache knows."""
    linecache.cache[request.param] = (sum(map(len, CELL)), None, list(CELL), request.param)
    yield request.param
    linecache.cache.pop(request.param, None)


def test_a_statement_of_a_notebook_cell_is_found_and_changed(cell):
    (statement,) = [s for s in source.statements(cell, Target("name", "hist")) if s.kind == "add"]
    assert statement.frame == Frame(cell, 4, "<module>", "hist.append(loss)")
    diff = source.diff(cell, [source.called_on(cell, statement.node.value.args[0], "item")])
    assert patched("".join(CELL), diff).endswith("    hist.append(loss.item())\n")


def test_a_cell_whose_last_line_has_no_newline_gives_a_whole_diff(cell):
    lines = [*CELL[:3], CELL[3].rstrip("\n")]
    linecache.cache[cell] = (0, None, lines, cell)
    (call,) = source.calls(cell, "append")
    diff = source.diff(cell, [source.called_on(cell, call.args[0], "item")], (4, "    hist.clear()\n"))
    assert patched("".join(lines), diff).endswith("    hist.append(loss.item())\n    hist.clear()\n")


def test_the_source_of_a_lazy_linecache_entry_is_read():
    name = "cell of a loader"
    linecache.cache[name] = (lambda: "".join(CELL),)
    try:
        assert [s.line for s in source.statements(name, Target("name", "hist"))] == [2, 4]
    finally:
        linecache.cache.pop(name, None)


# ----------------------------------------------------------------------------------------------------------
# call stacks

CALLS = """\
import sys

def record():
    frame = sys._getframe(1)
    return frame.f_code, frame.f_lasti

def first(): return record()

class Deep:
    def method(self):
        return [1, *record(),
                2]

    def lines(self, a):
        return dict(a=a,
                    b=record(
                        ))

SHORT = lambda: record()
"""


@pytest.fixture
def calls_module(write):
    file = write(CALLS, "calls.py")
    namespace: dict = {"__name__": "calls"}
    exec(compile(CALLS, file, "exec"), namespace)
    return types.SimpleNamespace(file=file, **namespace)


def test_a_frame_tells_its_line_and_the_expression_that_ran(calls_module):
    (frame,) = source.frames_of([calls_module.first()])
    assert (frame.file, frame.line, frame.function, frame.code) == (calls_module.file, 7, "first", "record()")


def test_a_frame_in_a_statement_of_several_lines_tells_the_call_alone(calls_module):
    code_offset = calls_module.Deep().lines(1)["b"]
    (frame,) = source.frames_of([code_offset])
    assert frame.line in (15, 16)
    assert frame.code == "record()"


def test_frames_keep_the_order_of_the_stack(calls_module):
    deep = calls_module.Deep().method()
    frames = source.frames_of([(deep[1], deep[2]), calls_module.first(), calls_module.SHORT()])
    assert [frame.line for frame in frames] == [11, 7, 19]
    assert frames[0].function.endswith("method")


@pytest.mark.parametrize("file", ["<string>", "<stdin>", "no/such/file.py"])
def test_a_frame_of_code_without_source_has_a_line_and_no_text(file):
    namespace: dict = {}
    exec(compile(CALLS, file, "exec"), namespace)
    (frame,) = source.frames_of([namespace["first"]()])
    assert (frame.file, frame.line, frame.function, frame.code) == (file, 7, "first", "")


def test_a_frame_whose_source_changed_still_has_its_line(calls_module, write):
    write("import sys\n", "calls.py")
    linecache.checkcache(calls_module.file)
    (frame,) = source.frames_of([calls_module.first()])
    assert frame.line == 7


def test_an_expression_too_long_to_read_is_told_by_its_line(write):
    arguments = ", ".join(f"argument_{n}" for n in range(20))
    text = f"import sys\ndef f({arguments}):\n    return record(\n        {arguments})\n"
    namespace: dict = {"record": lambda *_: (sys._getframe(1).f_code, sys._getframe(1).f_lasti)}
    exec(compile(text, write(text), "exec"), namespace)
    (frame,) = source.frames_of([namespace["f"](*range(20))])
    assert frame.code == "return record("


def test_a_function_that_has_just_begun_is_at_its_first_line(calls_module):
    (frame,) = source.frames_of([(calls_module.first.__code__, 0)])
    assert (frame.line, frame.function) == (7, "first")


@pytest.mark.parametrize(
    ("text", "line", "written"),
    [
        ("a = 1\nx.append(f(1))\n", 2, "x.append(f(1))"),
        ("if a:\n    if b:\n        x.append(1)\n", 3, "x.append(1)"),
        ("x.append(\n    f(1)\n)\n", 2, "x.append(\n    f(1)\n)"),
        ("def f():\n    with a:\n        x[k] = f(1)\n", 3, "x[k] = f(1)"),
        ("match a:\n    case 1:\n        x.add(1)\n", 3, "x.add(1)"),
    ],
)
def test_the_innermost_statement_of_a_line_is_found(write, text, line, written):
    file = write(text)
    statement, _ = source.statement_at(file, line)
    assert source.segment(file, statement) == written


@pytest.mark.parametrize(
    ("statement", "kind", "target"),
    [
        ("x.append(f(1))", "add", Target("name", "x")),
        ("self.x.append(f(1))", "add", Target("attribute", "x")),
        ("d['x'].append(f(1))", "add", Target("key", "'x'")),
        ("x[k] = f(1)", "item", Target("name", "x")),
        ("self.x[k] = f(1)", "item", Target("attribute", "x")),
        ("a = f(2); x.append(a)", "add", Target("name", "x")),
        ("x.append(f(1)); n += 1", "add", Target("name", "x")),
        ("get().append(f(1))", "add", Target("name", "")),
    ],
)
def test_a_call_that_fills_a_container_is_found_at_a_frame(write, statement, kind, target):
    found = source.growing_call_at(Frame(write(f"def train():\n    {statement}\n"), 2, "train"))
    assert found is not None
    assert (found.kind, found.target, found.function, found.line) == (kind, target, "train", 2)


@pytest.mark.parametrize("statement", ["f(1)", "x = f(1)", "return f(1)", "x.read(f(1))", "append(f(1))"])
def test_a_frame_that_fills_nothing_has_no_such_call(write, statement):
    assert source.growing_call_at(Frame(write(f"def train():\n    {statement}\n"), 2, "train")) is None


# ----------------------------------------------------------------------------------------------------------
# the smaller questions


@pytest.mark.parametrize(
    ("statement", "carried"),
    [
        ("x = f(x)", True),
        ("x += 1", True),
        ("x = torch.cat([x, y])", True),
        ("x = x[:5]", True),
        ("y, x = f(x)", True),
        ("x = f(y)", False),
        ("x.append(y)", False),
        ("y = f(x)", False),
        ("x[0] = x[1]", False),
        ("x = None", False),
    ],
)
def test_a_variable_is_carried_from_step_to_step_when_it_is_computed_from_itself(write, statement, carried):
    file = write(f"def train():\n    for y in z:\n        {statement}\n\ndef other():\n    x = f(x)\n")
    assert source.is_loop_carried(file, 1, "x") is carried


@pytest.mark.parametrize(
    ("head", "line", "position", "name"),
    [
        ("def f(a, b=[]):", 1, 0, "b"),
        ("def f(a, b=1, c=[]):", 1, 1, "c"),
        ("def f(a, /, b=1, *c, d=[], **e):", 1, 0, "b"),
        ("def f(a=[], /):", 1, 0, "a"),
        ("async def f(a=1, b=[]):", 1, 1, "b"),
        ("@d\n@e(1)\ndef f(a=[]):", 1, 0, "a"),
        ("def f(a=[]):", 1, 5, ""),
        ("def f(a=[]):", 7, 0, ""),
    ],
)
def test_the_parameter_of_a_default_is_known_by_its_position(write, head, line, position, name):
    assert source.parameter_name(write(f"{head}\n    return 1\n"), line, position) == name


def test_classes_and_functions_are_found_by_their_qualified_name(write):
    file = write("class A:\n    def f(self): pass\n\n@d\nasync def g():\n    class B: pass\n")
    found = [source.definition_line(file, name) for name in ("A", "A.f", "g", "g.<locals>.B", "h")]
    assert found == [1, 2, 5, 6, 0]


WITHS = (
    "with torch.autocast('cpu'):\n    with open(p) as f, torch.amp.autocast('cuda'):\n        a = 1\n"
    "    b = 1\nc = 1\n"
    "async def f():\n    async with autocast():\n        d = 1\nwith manager:\n    e = 1\n"
)


@pytest.mark.parametrize(
    ("line", "call"),
    [(3, "torch.amp.autocast('cuda')"), (4, "torch.autocast('cpu')"), (5, ""), (8, "autocast()"), (10, "")],
)
def test_the_innermost_context_manager_around_a_line_is_found(write, line, call):
    found = source.with_item(write(WITHS), line, "autocast")
    assert (ast.unparse(found) if found else "") == call


def test_lines_of_constructors_are_those_of_init_alone(write):
    file = write("class A:\n    def __init__(self):\n        self.a = 1\n\n    def f(self):\n        pass\n")
    assert source.constructor_lines(file) == {2, 3}


def test_calls_are_found_by_the_last_part_of_their_name(write):
    file = write("f(1)\na.f(2)\na.b.f(f(3))\nf\ng(4)\na[0](5)\n")
    assert sorted(ast.unparse(call) for call in source.calls(file, "f")) == [
        "a.b.f(f(3))",
        "a.f(2)",
        "f(1)",
        "f(3)",
    ]


@pytest.mark.parametrize(
    ("expression", "called"),
    [
        ("a", "a.item()"),
        ("a.b", "a.b.item()"),
        ("a[0]", "a[0].item()"),
        ("f(a)", "f(a).item()"),
        ("a + b", "(a + b).item()"),
        ("-a", "(-a).item()"),
        ("(a + b)", "(a + b).item()"),
        ("( a + b )", None),
        ("f((a + b))", "f((a + b)).item()"),
        ("a if b else c", "(a if b else c).item()"),
        ("lambda: a", "(lambda: a).item()"),
        ("not a", "(not a).item()"),
        ("1.5", "(1.5).item()"),
        ("f'{a}ü' + b", "(f'{a}ü' + b).item()"),
    ],
)
def test_a_method_is_called_on_the_whole_expression(write, expression, called):
    text = f"é = 'ü'; x = {expression}\n"
    file = write(text)
    node = source.parse(file).body[1].value
    after = patched(text, source.diff(file, [source.called_on(file, node, "item")]))
    call = ast.parse(after).body[1].value
    assert isinstance(call, ast.Call)
    assert call.func.attr == "item"
    assert ast.dump(call.func.value) == ast.dump(node)
    if called is not None:
        assert after == f"é = 'ü'; x = {called}\n"


def test_a_call_with_its_one_argument_keeps_its_parentheses(write):
    file = write("f(a + b)\nreturn_(a + b)\n")
    nodes = [statement.value.args[0] for statement in source.parse(file).body]
    after = patched(
        "f(a + b)\nreturn_(a + b)\n", source.diff(file, [source.called_on(file, n, "item") for n in nodes])
    )
    assert after == "f((a + b).item())\nreturn_((a + b).item())\n"


@pytest.mark.parametrize("keyword", ["return", "yield", "assert", "x = y or", "x = not"])
def test_parentheses_behind_a_keyword_belong_to_the_expression(write, keyword):
    text = f"def f(a, b, y):\n    {keyword} (a + b)\n"
    file = write(text)
    node = next(n for n in ast.walk(source.parse(file)) if isinstance(n, ast.BinOp))
    after = patched(text, source.diff(file, [source.called_on(file, node, "item")]))
    calls = [n for n in ast.walk(ast.parse(after)) if isinstance(n, ast.Call)]
    assert [ast.unparse(call) for call in calls] == ["(a + b).item()"]


def test_several_edits_of_a_line_and_of_others_make_one_diff(write):
    text = "a = f(x, y)\nb = 1\nc = g(\n    z)\n"
    file = write(text)
    names = [n for n in ast.walk(source.parse(file)) if isinstance(n, ast.Name) and n.id in "xyz"]
    after = patched(text, source.diff(file, [source.called_on(file, name, "item") for name in names]))
    assert after == "a = f(x.item(), y.item())\nb = 1\nc = g(\n    z.item())\n"


@pytest.mark.parametrize(("after", "place"), [(0, 0), (1, 1), (3, 3)])
def test_a_line_is_put_after_another(write, after, place):
    lines = ["a = 1\n", "b = 2\n", "c = 3\n"]
    file = write("".join(lines))
    expected = [*lines[:place], "new = 0\n", *lines[place:]]
    assert patched("".join(lines), source.diff(file, [], (after, "new = 0\n"))) == "".join(expected)


def test_no_edit_gives_no_diff(write):
    assert source.diff(write("a = 1\n"), []) == ""


def test_the_diff_names_the_file(write, monkeypatch, tmp_path):
    file = write("a = b\n")
    monkeypatch.chdir(tmp_path)
    diff = source.diff(file, [source.called_on(file, source.parse(file).body[0].value, "item")])
    assert diff.splitlines()[:2] == ["--- train.py", "+++ train.py"]


def test_an_edit_with_several_lines_of_text_marks_each_of_them(write):
    text = "a = [\n    b,\n    c,\n]\nd = 1\n"
    file = write(text)
    node = source.parse(file).body[0].value
    diff = source.diff(file, [source.replace(node, "{\n    1: b,\n    2: c,\n}")])
    assert patched(text, diff) == "a = {\n    1: b,\n    2: c,\n}\nd = 1\n"


@pytest.mark.parametrize("indent", ["", "  ", "\t", "\t  "])
def test_the_indentation_is_taken_as_it_is(write, indent):
    file = write(f"{indent}x = 1\n")
    assert source.indentation(file, 1) == indent
    assert source.line_text(file, 1) == "x = 1"


@pytest.mark.parametrize("line", [0, 99])
def test_a_line_out_of_range_has_no_text(write, line):
    assert source.line_text(write("x = 1\n"), line) == ""


@pytest.mark.parametrize(
    ("value", "parts"),
    [
        ("loss", ["loss"]),
        ("x + loss", ["loss"]),
        ("x + a + b", ["a", "b"]),
        ("x * 0.9 + loss * 0.1", ["loss"]),
        ("x + len(a)", []),
        ("x + 1", []),
        ("x * a", ["a"]),
        ("x", []),
        ("(x + a) / (n + 1)", ["a", "n"]),
        ("f(x)", []),
        ("x + a @ b", ["a @ b"]),
    ],
)
def test_what_is_added_to_the_target_is_told_from_the_target(value, parts):
    node = ast.parse(value, mode="eval").body
    assert [ast.unparse(part) for part in source.self_reference_free(node, NAME)] == parts


def test_the_statement_of_a_finding_is_the_users_own_line(write):
    text = textwrap.dedent(program("hist[*]", "hist = []", "hist.append(loss)"))
    case = case_of(write(text), "hist[*]")
    assert case.growth is not None
    assert case.growth.frame.code == "hist.append(loss)"
    assert text.splitlines()[case.growth.line - 1].strip() == "hist.append(loss)"
