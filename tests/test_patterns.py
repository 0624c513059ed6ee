"""The catalogue of mistakes, and what becomes of a case: pattern, severity, share, signature, forecast."""

from __future__ import annotations

import ast
import functools
import importlib
import itertools
import pkgutil
import re
from dataclasses import replace

import pytest
import torch

import leakhunter
from leakhunter import patterns
from leakhunter.findings import Fix
from leakhunter.heap.labels import Link
from leakhunter.heap.paths import Route
from leakhunter.heap.suspects import Graph, Sample, Suspect
from leakhunter.patterns import allocator, catalogue, conclude
from leakhunter.patterns.case import open_case
from leakhunter.patterns.catalogue import CATALOGUE
from leakhunter.patterns.conclude import Growth

MACHINERY = ("case", "catalogue", "conclude", "ring")
# Notes on an allocator are made of numbers, not of cases: test_allocator_notes.py.
ALLOCATOR = {"allocator", "pool"} | {one.recognise.__module__.rpartition(".")[2] for one in allocator.PATTERNS}
MODULES = [
    info.name for info in pkgutil.iter_modules(patterns.__path__) if info.name not in (*MACHINERY, *ALLOCATOR)
]
FACTS = {"window": 8, "gc enabled": True, "gc comes in": 20.0}


def module(name):
    return importlib.import_module(f"leakhunter.patterns.{name}")


# ----------------------------------------------------------------------------------------------------------
# made-up suspects, as diagnoses make them


def link(edge, text, role, kind=None, **more):
    return Link(edge, text, kind or {"tensor": "Tensor", "module": "Linear"}.get(role, role), role, **more)


def frame(file="", line=1, function="train"):
    return link("root", "", "frame", file=file, line=line, function=function)


GLOBAL = link("root", "__main__", "python module", "module", detail="__main__")
TENSOR = link("index", "[*]", "tensor", detail="float32 (4,)")
NAMESPACE = link("namespace", "", "dict")
NATIVE = (link("root", "native", "native", "memory"),)
VECTOR = Sample("Tensor", "float32 (4,)", 4, False, 16, 16)
NUMBER = Sample("Tensor", "float32 ()", 1, True, 4, 4)
GRAPH = Graph(110, 22, 1, 22, 5632, ("AddBackward0", "MeanBackward0"))


def some(role="list", text="hist", edge="local", kind=None, **more):
    return link(edge, text, role, kind, length=24, **more)


def held(*path, **more):
    """Survivors behind the elements of the container before the first ``[*]``."""
    return suspect("held", *path, **more)


def suspect(state, *path, repeats=False, **more):
    container = next((n - 1 for n, part in enumerate(path) if "*" in part.text or part.edge == "as key"), -1)
    values = {
        "count": 8,
        "bytes": 1024,
        "bytes_per_step": 128.0,
        "held_count": 24,
        "held_bytes": 3072,
        "sample": VECTOR,
    }
    values |= {"container": container, "grew": 8 if container >= 0 else -1, "births": ((20, 1), (27, 1))}
    return Suspect(state, Route(tuple(path), repeats), **(values | more))


def graphs(*path, **more):
    return held(*path, **({"graph": GRAPH, "sample": NUMBER} | more))


def cycle(*path, state="gc-pending", **more):
    return suspect(state, *path, container=-1, grew=-1, **more)


def native(**more):
    return suspect("native", *NATIVE, **({"sample": Sample("memory")} | more))


def scalar(edge="local", text="total"):
    return link(edge, text, "tensor", detail="float32 ()")


NODE = link("cycle", "", "instance", "Node")
LRU = some("lru_cache", ".lookup", "attribute", "_lru_cache_wrapper", function="Net.lookup")
CACHED = link("cached", " (lru_cache)", "tensor")
FUTURE = link("index", "[*]", "future", "Future")
SUM = "def train(loss):\n    total = 0\n    total += loss\n"
AVERAGE = "def train(loss):\n    total = 0\n    total = 0.9 * total + 0.1 * loss\n"
CARRY = "def train(loss):\n    total = None\n    total = f(total)\n"
HOOK = """\
def train(net, hist):
    def keep(m, a, out):
        hist.append(out)
    net.register_forward_hook(keep)
"""
MISS = "def train(d, k):\n    if k not in d:\n        d[k] = f(k)\n"
SLICES = replace(VECTOR, bytes=16, storage_bytes=4096)
D = some("dict", "d")
ITEM = link("key", "[*]", "tensor")
HOOKS = (frame(), link("local", "net", "module"), some("dict", "._forward_hooks", "attribute"))
FN = link("index", "[*]", "function", function="train.<locals>.f")

# pattern -> (suspect that shows it, one that nearly does), each with facts and source where these matter
EXAMPLES = {
    "output_on_ctx": (
        cycle(
            link("cycle", "", "autograd function", "FBackward"), NAMESPACE, link("attribute", ".y", "tensor")
        ),
        cycle(NODE, link("attribute", ".y", "tensor")),
    ),
    "module_hook_cycle": (
        cycle(link("cycle", "", "module", "Net"), some("dict", "._forward_hooks", "attribute"), FN),
        cycle(link("cycle", "", "module", "Net"), some("dict", "._children", "attribute"), FN),
    ),
    "class_per_call": (
        cycle(link("cycle", "", "class", "type", function="make.<locals>.Batch"), NAMESPACE),
        cycle(NODE, link("attribute", ".kind", "class")),
    ),
    "waiting_cycle": (
        cycle(
            NODE,
            link("attribute", ".child", "instance", "Node"),
            link("attribute", ".parent", "instance", "Node"),
        ),
        cycle(NODE, link("attribute", ".child", "instance"), state="stranded"),
    ),
    "graph_on_grad": (
        cycle(link("cycle", "", "tensor", "Parameter"), link("grad", ".grad", "tensor"), state="stranded"),
        cycle(
            link("cycle", "", "tensor", "Parameter"),
            link("grad_fn", ".grad_fn", "autograd node"),
            state="stranded",
        ),
    ),
    "identity_pack_hook": (
        cycle(
            link("cycle", "", "tensor"),
            link("grad_fn", ".grad_fn", "autograd node"),
            link("saved", ".saved_result", "tensor"),
            state="stranded",
            hints={"pack hook": ("train.<locals>.pack", "a.py", 3)},
        ),
        cycle(link("cycle", "", "tensor"), link("saved", ".saved_result", "tensor"), state="stranded"),
    ),
    "hook_on_own_tensor": (
        cycle(link("cycle", "", "tensor"), some("dict", "._backward_hooks", "hooks"), state="stranded"),
        cycle(link("cycle", "", "module"), some("dict", "._backward_hooks", "hooks"), state="gc-pending"),
    ),
    "node_metadata": (
        cycle(
            link("cycle", "", "tensor"),
            link("grad_fn", ".grad_fn", "autograd node"),
            some("dict", ".hooks", "hooks"),
            link("key", "['origin']", "tensor"),
            state="stranded",
        ),
        cycle(link("cycle", "", "tensor"), some("dict", ".hooks", "hooks"), FN, state="stranded"),
    ),
    "checkpointed_output": (
        cycle(
            link("cycle", "", "tensor"),
            link("unpack hook", "", "function"),
            link("attribute", ".frame", "instance", "_CheckpointFrame"),
            state="stranded",
        ),
        cycle(
            link("cycle", "", "tensor"),
            link("unpack hook", "", "function"),
            link("attribute", ".frame", "instance", "Frame"),
            state="stranded",
        ),
    ),
    "tensor_attribute": (
        cycle(
            link("cycle", "", "tensor"), NAMESPACE, link("attribute", ".view_", "tensor"), state="stranded"
        ),
        cycle(NODE, link("attribute", ".other", "instance"), state="stranded"),
    ),
    "stranded_cycle": (cycle(NODE, state="stranded"), cycle(NODE)),
    "autocast_cache": (
        (native(hints={"operator": "aten::_to_copy"}), {"autocast cache": True}),
        (native(hints={"operator": "aten::mm"}), {"autocast cache": True}),
    ),
    "running_profiler": (
        (native(), {"profiler on": True}),
        (held(frame(), some(), TENSOR), {"profiler on": True}),
    ),
    "traced_again": ((native(), {"traced": True}), (native(), {"traced": False})),
    "shape_cache": ((native(), {"new shapes": True}), (native(), {"new shapes": False})),
    "graph_pool": (native(hints={"operator": "CUDA graph pool"}), native(hints={"operator": "MemPool"})),
    "mem_pool": (native(hints={"operator": "MemPool"}), native(hints={"operator": "cuBLAS workspace"})),
    "blas_workspaces": (native(hints={"operator": "cuBLAS workspace"}), native(hints={"operator": "aten::mm"})),
    "native_growth": (native(), held(frame(), some(), TENSOR)),
    "graphs_in_container": (graphs(frame(), some(), TENSOR), graphs(frame(), scalar())),
    "accumulated_loss": ((graphs(frame(), scalar()), {}, SUM), (graphs(frame(), scalar()), {}, CARRY)),
    "attached_average": ((graphs(frame(), scalar()), {}, AVERAGE), (graphs(frame(), scalar()), {}, CARRY)),
    "hidden_state": ((graphs(frame(), scalar()), {}, CARRY), (graphs(frame(), scalar()), {}, AVERAGE)),
    "attached_history": (graphs(frame(), scalar(), sample=VECTOR), held(frame(), some(), TENSOR)),
    "growing_tensor": (
        held(frame(), scalar(), hints={"replaced": 6, "operator": "aten::cat"}),
        held(frame(), scalar(), hints={"replaced": 6, "operator": "aten::randn"}),
    ),
    "larger_tensor": (
        held(frame(), scalar(), hints={"replaced": 6, "operator": "aten::randn"}),
        held(frame(), scalar()),
    ),
    "number_history": (
        held(
            frame(),
            some(),
            link("element", "[*]", "instance", "float"),
            hints={"python": True},
            sample=Sample("float", plain=True),
        ),
        held(
            frame(),
            some(),
            link("element", "[*]", "instance", "Big"),
            hints={"python": True},
            sample=Sample("Big"),
        ),
    ),
    "process_groups": (
        held(
            link("root", "torch.distributed.distributed_c10d", "python module"),
            some("dict", "_pg_map", "global"),
            ITEM,
        ),
        held(GLOBAL, some("dict", "_pg_map", "global"), ITEM),
    ),
    "exit_callbacks": (
        held(
            link("outside", "", "method", function="Run.close"),
            link("self", ".__self__", "instance"),
            hints={"atexit": True},
        ),
        held(link("outside", "", "method", function="Run.close"), link("self", ".__self__", "instance")),
    ),
    "bound_finalizer": (
        held(
            link("root", "weakref", "python module"),
            link("global", "finalize", "class", function="finalize"),
            some("dict", "._registry", "attribute"),
            link("key", "[*]", "instance", "finalize._Info"),
        ),
        held(
            GLOBAL,
            link("global", "Net", "class", function="Net"),
            some("dict", "._registry", "attribute"),
            ITEM,
        ),
    ),
    "weak_table": (
        held(
            frame(),
            link("local", "table", "instance", "WeakKeyDictionary"),
            some("dict", ".data", "attribute"),
            ITEM,
        ),
        held(frame(), link("local", "table", "instance", "Table"), some("dict", ".data", "attribute"), ITEM),
    ),
    "cached_method": (
        held(GLOBAL, link("global", "Net", "class", function="Net"), NAMESPACE, LRU, CACHED, container=3),
        held(GLOBAL, replace(LRU, edge="global", text="lookup"), CACHED, container=1),
    ),
    "unbounded_cache": (
        held(GLOBAL, replace(LRU, edge="global", text="lookup", function="lookup"), CACHED, container=1),
        held(GLOBAL, some("dict", "lookup", "global"), ITEM),
    ),
    "kept_exception": (
        held(
            frame(),
            some(),
            link("index", "[*]", "exception", "ValueError"),
            link("traceback", ".__traceback__", "traceback"),
        ),
        held(frame(), some(), link("index", "[*]", "instance", "Failure")),
    ),
    "copied_context": (
        held(frame(), some(), link("index", "[*]", "context", "Context")),
        held(frame(), some(), TENSOR),
    ),
    "kept_futures": (held(frame(), some(), FUTURE), held(frame(), some(), TENSOR)),
    "iterator_cache": (
        held(frame(), link("local", "stream", "iterator", "cycle"), some("list", "", "saved items"), TENSOR),
        held(
            frame(),
            link("local", "stream", "instance", "Loader"),
            some("list", ".items", "attribute"),
            TENSOR,
        ),
    ),
    "piled_generators": (
        held(
            frame(),
            some(),
            link("index", "[*]", "generator", function="read"),
            link("local", "batch", "tensor"),
        ),
        held(link("outside", "", "generator", function="read"), some(), TENSOR),
    ),
    "endless_threads": (
        held(frame(), link("local", "batch", "tensor"), hints={"thread function": "work"}),
        held(frame(), link("local", "batch", "tensor")),
    ),
    "unread_queue": (
        held(frame(), link("local", "q", "queue", "Queue"), some("deque", ".queue", "attribute"), TENSOR),
        held(frame(), link("local", "q", "instance", "Box"), some("deque", ".queue", "attribute"), TENSOR),
    ),
    "output_history": (
        held(GLOBAL, some("dict", "Out", "global"), ITEM),
        held(GLOBAL, some("dict", "Output", "global"), ITEM),
    ),
    "default_argument": (
        held(
            GLOBAL,
            link("global", "add", "function"),
            link("defaults", ".__defaults__", "tuple"),
            some("list", "[0]", "field"),
            TENSOR,
        ),
        held(
            GLOBAL, link("global", "add", "function"), NAMESPACE, some("list", ".seen", "attribute"), TENSOR
        ),
    ),
    "piled_hooks": (
        held(*HOOKS, replace(FN, edge="key")),
        held(
            frame(),
            link("local", "net", "module"),
            some("dict", ".layers", "attribute"),
            replace(FN, edge="key"),
        ),
    ),
    "dropped_parameters": (
        held(
            frame(),
            link("local", "opt", "optimizer", "Adam"),
            some("dict", ".state", "attribute"),
            ITEM,
            hints={"dropped parameters": 9},
        ),
        held(frame(), link("local", "opt", "optimizer", "Adam"), some("dict", ".state", "attribute"), ITEM),
    ),
    "wrapped_again": (
        held(frame(), link("local", "step", "function"), link("closure", "[step]", "cell"), repeats=True),
        held(frame(), link("local", "step", "function"), link("closure", "[step]", "cell")),
    ),
    "linked_chain": (
        held(
            frame(), link("local", "node", "instance"), link("attribute", ".before", "instance"), repeats=True
        ),
        held(frame(), link("local", "node", "instance"), link("attribute", ".before", "instance")),
    ),
    "stored_by_hook": (
        (held(frame(), some(), TENSOR), {}, HOOK),
        (held(frame(), some(), TENSOR), {}, HOOK.replace("register_forward_hook", "apply")),
    ),
    "large_base": (held(frame(), some(), TENSOR, sample=SLICES), held(frame(), some(), TENSOR)),
    "tensor_keys": (
        held(frame(), D, link("as key", "", "tensor")),
        held(frame(), D, ITEM),
    ),
    "kept_models": (
        held(frame(), some(), link("index", "[*]", "module", "Net"), link("attribute", ".weight", "tensor")),
        held(frame(), link("local", "net", "module"), some("list", ".hist", "attribute"), TENSOR),
    ),
    "dict_cache": (
        (held(frame(), D, ITEM), {}, MISS),
        (held(frame(), D, ITEM), {}, MISS.replace("k not in d", "k in d")),
    ),
    "shared_registry": (
        held(GLOBAL, link("global", "Net", "class"), NAMESPACE, some("list", ".made", "attribute"), TENSOR),
        held(
            frame(), link("local", "net", "instance"), NAMESPACE, some("list", ".made", "attribute"), TENSOR
        ),
    ),
    "piled_tensors": (
        held(frame(), some(), TENSOR),
        held(frame(), some(), link("index", "[*]", "instance"), sample=Sample("A")),
    ),
    "growing_container": (
        held(
            frame(),
            some(),
            link("element", "[*]", "instance", "Record"),
            sample=Sample("Record"),
            hints={"python": True},
        ),
        None,
    ),
}


@pytest.fixture
def case(tmp_path):
    """A case of an example; its source, where it has one, becomes a file."""

    def case(example, facts=None, text=""):
        if isinstance(example, tuple):
            return case(*example)
        file = ""
        if text:
            path = tmp_path / f"train{len(list(tmp_path.iterdir()))}.py"
            path.write_text(text)
            file = str(path)
        route = Route(
            tuple(replace(part, file=file) if part.role == "frame" else part for part in example.links),
            example.route.repeats,
        )
        return open_case(replace(example, route=route), FACTS | (facts or {}))

    return case


# ----------------------------------------------------------------------------------------------------------
# the catalogue


def test_every_module_of_the_package_is_in_the_catalogue_once():
    assert sorted(id(module(name).PATTERN) for name in MODULES) == sorted(map(id, CATALOGUE))


def test_every_pattern_has_an_example_here():
    assert sorted(EXAMPLES) == sorted(MODULES)


@pytest.mark.parametrize("attribute", ["id", "name", "why"])
def test_no_two_patterns_have_the_same(attribute):
    values = [getattr(pattern, attribute) for pattern in CATALOGUE]
    assert len(values) == len(set(values))


def test_the_last_pattern_fits_everything_and_no_other_does(case):
    assert CATALOGUE[-1].id == "LH299"
    made = [case(example) for pair in EXAMPLES.values() for example in pair if example is not None]
    fits_all = [pattern.id for pattern in CATALOGUE if all(pattern.recognise(one) for one in made)]
    assert fits_all == ["LH299"]


@pytest.mark.parametrize("name", MODULES)
def test_a_pattern_says_what_it_is_and_why(name):
    pattern = module(name).PATTERN
    assert re.fullmatch(r"LH\d{3}", pattern.id)
    assert 2 <= len(pattern.name.split()) <= 9
    assert pattern.why.endswith(".")
    assert pattern.why[0].isupper() or pattern.why.split()[0].replace(".", "").replace("_", "").isalpha()
    assert module(name).__doc__.strip()
    assert pattern.recognise.__doc__
    assert pattern.fix.__doc__
    assert callable(pattern.severity) or pattern.severity in ("leak", "growth", "note")


@pytest.mark.parametrize("name", MODULES)
def test_a_pattern_is_recognised_in_a_case_that_shows_it(case, name):
    made = case(EXAMPLES[name][0])
    assert module(name).PATTERN.recognise(made)
    assert catalogue.name(made) is module(name).PATTERN


@pytest.mark.parametrize(
    "name", [name for name in MODULES if EXAMPLES.get(name, (None, None))[1] is not None]
)
def test_a_pattern_is_not_recognised_in_a_case_that_only_resembles_it(case, name):
    assert not module(name).PATTERN.recognise(case(EXAMPLES[name][1]))


@pytest.mark.parametrize("name", MODULES)
def test_the_fix_of_a_pattern_is_a_whole_sentence(case, name):
    fix = module(name).PATTERN.fix(case(EXAMPLES[name][0]))
    assert isinstance(fix, Fix)
    assert len(fix.text.split()) >= 5
    assert not fix.text.endswith(".")
    assert "None," not in fix.text
    assert "empty_cache" not in fix.text + fix.diff
    assert not re.search(r"<\w+ object at|0x[0-9a-f]{6}", fix.text)
    assert not re.search(r"  |\.\.\w|\(\)\(|`\s*`", fix.text)


@pytest.mark.parametrize("name", MODULES)
def test_a_case_of_any_pattern_becomes_a_whole_finding(case, name):
    finding = conclusion(case(EXAMPLES[name][0]))
    assert finding.pattern == module(name).PATTERN.id
    assert finding.severity in ("leak", "growth", "note")
    assert finding.holder.path
    assert finding.holder.kind
    assert finding.evidence.statements[0]
    assert finding.evidence.statements[1] == module(name).PATTERN.why
    assert re.fullmatch(r"[0-9a-f]{8}", finding.signature)
    assert all(node.leaking in ("no", "unknown", "yes") for node in finding.holder.nodes)


# ----------------------------------------------------------------------------------------------------------
# fixes that belong to one pattern


def fixed(tmp_path, text, *, diff_of):
    """The text after the diff that ``diff_of(file)`` gives, which touches whole lines of it."""
    path = tmp_path / "user.py"
    path.write_text(text)
    lines, at, new = text.splitlines(), 0, []
    for line in diff_of(str(path)).splitlines()[2:]:
        if line.startswith("@@"):
            start, count = re.match(r"@@ -(\d+)(?:,(\d+))? ", line).groups()
            upto = int(start) - (count != "0")
            new += lines[at:upto]
            at = upto
        elif line.startswith("-"):
            assert lines[at] == line[1:]
            at += 1
        else:
            assert line.startswith("+"), f"{line!r} is neither taken away nor added"
            new.append(line[1:])
    after = "\n".join(new + lines[at:]) + "\n"
    ast.parse(after)
    return after


AUTOCAST = [
    ("torch.autocast('cpu')", "torch.autocast('cpu', cache_enabled=False)"),
    (
        "torch.autocast('cpu', dtype=torch.bfloat16)",
        "torch.autocast('cpu', dtype=torch.bfloat16, cache_enabled=False)",
    ),
    ("torch.cuda.amp.autocast()", "torch.cuda.amp.autocast(cache_enabled=False)"),
    ("torch.autocast('cuda',)", "torch.autocast('cuda', cache_enabled=False)"),
    ("torch.autocast(device_type=('cuda'))", "torch.autocast(device_type=('cuda'), cache_enabled=False)"),
]


@pytest.mark.parametrize(("call", "expected"), AUTOCAST, ids=[call for call, _ in AUTOCAST])
def test_the_autocast_cache_is_switched_off_in_the_users_own_call(tmp_path, call, expected):
    def diff_of(file):
        made = replace(open_case(native(), FACTS), site=(conclude.Frame(file, 3, "train"),))
        return module("autocast_cache").PATTERN.fix(made).diff

    text = "import torch\nwith {}:\n    layer(x)\n"
    after = fixed(tmp_path, text.format(call), diff_of=diff_of)
    assert ast.dump(ast.parse(after)) == ast.dump(ast.parse(text.format(expected)))


def test_an_autocast_call_without_cache_is_left_alone(tmp_path):
    path = tmp_path / "user.py"
    path.write_text("with torch.autocast('cpu', cache_enabled=False):\n    layer(x)\n")
    made = replace(open_case(native(), FACTS), site=(conclude.Frame(str(path), 2, "train"),))
    assert not module("autocast_cache").PATTERN.fix(made).diff


DECORATED = [
    ("@functools.lru_cache\n    ", 3),
    ("@functools.lru_cache(maxsize=None)\n    ", 3),
    ("@cache\n    ", 3),
    ("@lru_cache(\n        maxsize=None,\n    )\n    ", 3),
    ("@lru_cache\n    @other\n    ", 3),
]


@pytest.mark.parametrize(("decorator", "line"), DECORATED, ids=[text for text, _ in DECORATED])
def test_the_caching_decorator_alone_is_taken_away(tmp_path, decorator, line):
    text = "import functools\nclass Net:\n    {}def look(self, x):\n        return x\n"
    after = fixed(
        tmp_path,
        text.format(decorator),
        diff_of=lambda file: module("cached_method").without_decorator(file, line),
    )
    assert after == text.format("@other\n    " if "@other" in decorator else "")


def default_case(file, name, line, position=0):
    path = (
        GLOBAL,
        link("global", name, "function", file=file, line=line, function=name),
        link("defaults", ".__defaults__", "tuple"),
        some("list", f"[{position}]", "field"),
        TENSOR,
    )
    return open_case(held(*path), FACTS)


DEFAULTS = {
    "one line of body": ("def add(x, seen=[]):\n    seen.append(x)\n    return seen\n", 1, 0),
    "several defaults": ("def add(x, n=1, seen=[]):\n    seen.append(x)\n    return seen\n", 1, 1),
    "decorated": (
        "def d(f):\n    return f\n\n@d\ndef add(x, seen=[]):\n    seen.append(x)\n    return seen\n",
        4,
        0,
    ),
    "with a docstring": ('def add(x, seen=[]):\n    """Add."""\n    seen.append(x)\n    return seen\n', 1, 0),
    "body on the line of its head": ("def add(x, seen=[]): seen.append(x); return seen\n", 1, 0),
    "positional only": ("def add(x, seen=[], /):\n    seen.append(x)\n    return seen\n", 1, 0),
    "head of several lines": (
        "def add(\n    x,\n    seen=[],\n):\n    seen.append(x)\n    return seen\n",
        1,
        0,
    ),
    "not empty": ("def add(x, seen=[0]):\n    seen.append(x)\n    return seen\n", 1, 0),
    "made over several lines": (
        "def add(x, seen=list(\n    ())\n):\n    seen.append(x)\n    return seen\n",
        1,
        0,
    ),
}


@pytest.mark.parametrize("form", DEFAULTS)
def test_a_default_argument_becomes_none_and_is_made_inside(tmp_path, form):
    text, line, position = DEFAULTS[form]

    def diff_of(file):
        return module("default_argument").PATTERN.fix(default_case(file, "add", line, position)).diff

    before: dict = {}
    after: dict = {}
    exec(text, before)
    exec(fixed(tmp_path, text, diff_of=diff_of), after)
    once = len(before["add"](1))
    assert len(before["add"](2)) > once
    assert [len(after["add"](1)), len(after["add"](2))] == [once, once]
    mine: list = []
    assert "/" in text or after["add"](3, seen=mine) is mine
    assert after["add"].__doc__ == before["add"].__doc__


def test_the_default_of_the_function_that_leaks_is_changed_and_of_no_other(tmp_path):
    text = (
        "class Log:\n    def add(self, x, seen=[]):\n        seen.append(x)\n        return seen\n\n\n"
        "def other(x, seen=[]):\n    return [*seen, x]\n"
    )
    after = fixed(
        tmp_path,
        text,
        diff_of=lambda file: module("default_argument").PATTERN.fix(default_case(file, "Log.add", 2)).diff,
    )
    assert "def add(self, x, seen=None):" in after
    assert "def other(x, seen=[]):" in after


def packed(file, line, name="pack"):
    hints = {"pack hook": (name, file, line)}
    return open_case(
        cycle(
            link("cycle", "", "tensor"),
            link("saved", ".saved_result", "tensor"),
            state="stranded",
            hints=hints,
        ),
        FACTS,
    )


@pytest.mark.parametrize(
    ("text", "line", "expected"),
    [
        ("def pack(t):\n    return t\n", 1, "def pack(t):\n    return t.detach()\n"),
        ("hooks(lambda t: t, lambda t: t)\n", 1, "hooks(lambda t: t.detach(), lambda t: t)\n"),
        (
            "class P:\n    def pack(self, t):\n        log(t)\n        return t\n",
            2,
            "class P:\n    def pack(self, t):\n        log(t)\n        return t.detach()\n",
        ),
    ],
    ids=["function", "lambda", "method"],
)
def test_a_pack_hook_is_made_to_return_a_detached_tensor(tmp_path, text, line, expected):
    after = fixed(
        tmp_path, text, diff_of=lambda file: module("identity_pack_hook").PATTERN.fix(packed(file, line)).diff
    )
    assert after == expected


def test_a_pack_hook_that_computes_something_has_no_diff(tmp_path):
    path = tmp_path / "user.py"
    path.write_text("def pack(t):\n    return (t, 1)\n")
    assert not module("identity_pack_hook").PATTERN.fix(packed(str(path), 1)).diff


CTX = """\
class Net:
    def __init__(self, y):
        self.y = y

class Square(Function):
    @staticmethod
    def forward(ctx, x):
        y = x * x
        ctx.y = y
        return y
"""


def test_the_attribute_of_ctx_is_saved_and_no_attribute_of_that_name_elsewhere(tmp_path):
    def diff_of(file):
        ctx = link("cycle", "", "autograd function", "SquareBackward", file=file, function="SquareBackward")
        return (
            module("output_on_ctx")
            .PATTERN.fix(open_case(cycle(ctx, NAMESPACE, link("attribute", ".y", "tensor")), FACTS))
            .diff
        )

    assert fixed(tmp_path, CTX, diff_of=diff_of) == CTX.replace("ctx.y = y", "ctx.save_for_backward(y)")


def test_a_cycled_loader_is_restarted_and_no_other_call_of_that_name_is_touched(tmp_path):
    text = "def train(loader, colors):\n    color = colors.cycle(3)\n    stream = itertools.cycle(loader)\n"

    def diff_of(file):
        path = (
            frame(file),
            link("local", "stream", "iterator", "cycle"),
            some("list", "", "saved items"),
            TENSOR,
        )
        return module("iterator_cache").PATTERN.fix(open_case(held(*path), FACTS)).diff

    after = fixed(tmp_path, text, diff_of=diff_of)
    assert after == text.replace("itertools.cycle(loader)", "(item for _ in iter(int, 1) for item in loader)")


@pytest.mark.parametrize(
    "statement",
    [
        "hist.append(x[0])",
        "hist.append((i, x[0]))",
        "hist.append({'a': x[0]})",
        "hist.extend([x[0]])",
        "hist[i] = x[0]",
        "hist.append(x[0] + 0 if i else x[0])",
        "hist += [x[0]]",
    ],
)
def test_a_stored_slice_is_copied_by_a_diff_that_runs(tmp_path, statement):
    text = f"def train(hist, x):\n    i = 0\n    {statement}\n    return hist\n"
    path = tmp_path / "user.py"
    path.write_text(text)
    made = open_case(held(frame(str(path)), some(), TENSOR, sample=SLICES), FACTS)
    fix = module("large_base").PATTERN.fix(made)
    assert "16" in fix.text
    assert "4,096" in fix.text
    if fix.diff:
        namespace: dict = {}
        exec(fixed(tmp_path, text, diff_of=lambda file: fix.diff), namespace)
        assert namespace["train"]({} if "hist[i]" in statement else [], torch.ones(2, 4))


def emptied(tmp_path, body, role="list"):
    path = tmp_path / "user.py"
    path.write_text(body)
    links = (
        frame(str(path), 99),
        link("local", "box", "instance", "Box", file=str(path)),
        some(role, ".hist", "attribute"),
        TENSOR,
    )
    return open_case(held(*links), FACTS)


BOX = """\
class Box:
    def __init__(self):
        self.hist = []
    def add(self, x):
        self.hist.append(x)
"""


def test_a_method_of_the_users_that_empties_it_and_is_never_called_is_named(tmp_path):
    made = emptied(tmp_path, BOX + "    def reset(self):\n        self.hist.clear()\n")
    assert "call box.reset()" in module("piled_tensors").PATTERN.fix(made).text


def test_a_method_that_is_called_is_not_asked_for_again(tmp_path):
    made = emptied(tmp_path, BOX + "    def reset(self):\n        self.hist.clear()\nbox.reset()\n")
    assert "reset" not in module("piled_tensors").PATTERN.fix(made).text


def test_a_branch_that_would_empty_it_is_named_by_its_line(tmp_path):
    made = emptied(
        tmp_path, BOX.replace("append(x)", "append(x)\n        if self.full:\n            self.hist.clear()")
    )
    assert "line 7 empties it" in module("piled_tensors").PATTERN.fix(made).text


def test_looking_an_entry_up_is_no_way_to_empty_a_dict(tmp_path):
    text = BOX.replace("[]", "{}").replace("self.hist.append(x)", "self.hist[x] = x")
    made = emptied(
        tmp_path,
        text + "    def look(self, k):\n        if k:\n            return self.hist.get(k)\n",
        "dict",
    )
    text = module("piled_tensors").PATTERN.fix(made).text
    assert "look()" not in text
    assert "empties" not in text


def test_a_known_bound_turns_growth_into_a_note_that_says_where_it_stops(case):
    finding = conclusion(case(held(frame(), some("deque", bound=1000), TENSOR)))
    assert finding.severity == "note"
    assert any(
        "growth stops at 1,000 items, and it has 24 now" in text for text in finding.evidence.statements
    )
    assert not finding.forecast


def test_the_bound_of_a_queue_is_that_of_the_deque_inside(case):
    queue = link("local", "q", "queue", "Queue", bound=50)
    finding = conclusion(case(held(frame(), queue, some("deque", ".queue", "attribute"), TENSOR)))
    assert finding.severity == "note"


@pytest.mark.parametrize(
    ("facts", "hints", "severity"),
    [
        ({"gc comes in": 20.0}, {}, "note"),
        ({"gc comes in": 100.0}, {}, "note"),
        ({"gc comes in": 101.0}, {}, "leak"),
        ({"gc comes in": float("inf")}, {}, "leak"),
        ({"gc comes in": 20.0, "gc enabled": False}, {}, "leak"),
        ({"gc comes in": 20.0}, {"oldest generation": True}, "leak"),
    ],
)
def test_a_waiting_cycle_is_a_leak_only_where_gc_does_not_come(case, facts, hints, severity):
    made = case(replace(EXAMPLES["waiting_cycle"][0], hints=hints), facts)
    assert conclusion(made).severity == severity


@pytest.mark.parametrize(("total", "severity"), [(8 * 64 * 1024, "note"), (8 * 64 * 1024 + 8, "growth")])
def test_a_history_of_numbers_is_a_note_until_it_is_large(case, total, severity):
    assert conclusion(case(replace(EXAMPLES["number_history"][0], bytes=total))).severity == severity


# ----------------------------------------------------------------------------------------------------------
# conclusions

GROWTH = Growth("malloc (glibc)", "bytes", 128.0, 10, 8, 30, 0.5, {"cpu": 1e9}, True, {"cpu": 128.0}, dict(FACTS))


def conclusion(made, growth=GROWTH, share=1.0):
    return conclude.accuse(made, catalogue.name(made), growth, share)


def pile(name="hist", **more):
    return held(frame(), some(text=name), TENSOR, **more)


@pytest.mark.parametrize(("rate", "share"), [(64.0, 1.0), (128.0, 1.0), (256.0, 0.5), (1280.0, 0.1)])
def test_the_share_is_the_part_of_the_growth_that_a_suspect_explains(rate, share):
    growth = replace(GROWTH, rate=rate, rates={"cpu": rate})
    (finding,) = conclude.conclude([pile()], growth)
    assert finding.evidence.share == share


def test_a_suspect_is_measured_against_the_growth_of_its_own_device():
    growth = replace(GROWTH, rates={"cpu": 1e9, "cuda:0": 256.0})
    (finding,) = conclude.conclude([pile(device="cuda:0")], growth)
    assert finding.evidence.share == 0.5


def test_what_explains_next_to_nothing_is_left_out():
    assert not conclude.conclude([pile(bytes_per_step=6.0)], GROWTH)
    assert conclude.conclude([pile(bytes_per_step=6.5)], GROWTH)


def test_graphs_are_told_however_little_they_hold():
    (finding,) = conclude.conclude([graphs(frame(), scalar(), bytes_per_step=0.0)], GROWTH)
    assert finding.evidence.graph_nodes == 110


def test_more_turnover_than_growth_is_no_leak():
    assert not conclude.conclude([pile(bytes_per_step=1280.0, count=80, grew=8)], GROWTH)


def test_findings_come_in_the_order_of_the_suspects_and_are_few():
    names = [f"hist{letter}" for letter in "abcdefgh"]
    findings = conclude.conclude([pile(name) for name in names], GROWTH)
    assert [finding.holder.path for finding in findings] == [f"{name}[*]" for name in names[:5]]


def test_one_mistake_found_twice_is_one_finding_with_the_bytes_of_both():
    first, second = pile(bytes_per_step=60.0, held_bytes=1000), pile(bytes_per_step=40.0, held_bytes=500)
    (finding,) = conclude.conclude([first, second], GROWTH)
    assert (finding.bytes_per_step, finding.bytes_held) == (100.0, 1500)
    assert finding.evidence.share == pytest.approx(100 / 128)


def test_the_share_of_joined_findings_is_never_more_than_all():
    (finding,) = conclude.conclude([pile(bytes_per_step=120.0), pile(bytes_per_step=110.0)], GROWTH)
    assert finding.evidence.share == 1.0


def test_findings_of_two_holders_are_not_joined():
    findings = conclude.conclude([pile("a"), pile("b")], GROWTH)
    assert len({finding.signature for finding in findings}) == 2


def test_an_exact_meter_gives_the_rate_where_it_agrees():
    assert conclusion(open_case(pile(bytes_per_step=125.0), FACTS), share=125 / 128).bytes_per_step == 128.0
    assert conclusion(open_case(pile(bytes_per_step=64.0), FACTS), share=0.5).bytes_per_step == 64.0


@pytest.mark.parametrize(
    ("device", "free", "rate", "seconds", "text"),
    [
        (
            "cpu",
            128e6,
            128.0,
            0.04,
            "host memory is full in about 1,000,000 steps (11 h at this pace)",
        ),
        (
            "cuda:0",
            23_208_000.0,
            128.0,
            0.5,
            "cuda:0 is full in about 181,000 steps (25 h at this pace)",
        ),
        ("cpu", 1280.0, 128.0, 1.0, "host memory is full in about 10 steps (10 s at this pace)"),
        ("cpu", 0.0, 128.0, 1.0, ""),
        ("cpu", 1e9, 0.0, 1.0, ""),
        ("cpu", 1e9, -5.0, 1.0, ""),
        ("cpu", 1e9, 1e-6, 1.0, ""),
        ("xpu:0", None, 128.0, 1.0, ""),
    ],
)
def test_the_forecast_says_when_memory_is_full(device, free, rate, seconds, text):
    known = {} if free is None else {device: free}
    growth = replace(GROWTH, free=known, seconds_per_step=seconds)
    assert conclude.forecast(rate, growth, device) == text


def test_a_note_has_no_forecast(case):
    assert not conclusion(case(EXAMPLES["number_history"][0])).forecast
    assert conclusion(case(EXAMPLES["piled_tensors"][0])).forecast


def test_each_object_on_the_path_gets_a_verdict_and_a_reason():
    nodes = conclusion(open_case(pile(), FACTS)).holder.nodes
    assert [(node.label, node.leaking) for node in nodes] == [
        ("train()", "no"),
        ("hist", "unknown"),
        ("[*]", "yes"),
    ]
    assert [node.reason for node in nodes] == [
        "is running",
        "8 items more in 8 steps",
        "born in steps 20 to 27, alive at 30",
    ]


def test_graphs_are_dated_and_counted_in_words():
    finding = conclusion(open_case(graphs(frame(), scalar()), FACTS))
    assert finding.evidence.statements[0] == (
        "total holds the autograd graphs of 22 finished steps (1 to 22): 110 nodes, 5.5 KiB of saved tensors"
    )
    assert finding.first_step == 1
    assert finding.holder.nodes[-1].reason == "reaches graphs of steps 1 to 22; the loop is at step 30"


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (pile(), "hist got 8 items in 8 steps (1 a step, 24 now)"),
        (pile(grew=16), "hist got 16 items in 8 steps (2 a step, 24 now)"),
        (pile(grew=-1), "8 survivors in 8 steps, 24 held in all"),
        (cycle(NODE), "24 cycles like this hold 3.0 KiB and wait for gc"),
        (
            cycle(NODE, state="stranded"),
            "24 cycles like this hold 3.0 KiB and are stranded: gc can never free them",
        ),
        (native(), "8 storages of 1.0 KiB are alive, and no Python object refers to them"),
        (
            native(count=0),
            "malloc (glibc) grows by 128 B a step; tensors, autograd graphs, containers and garbage were "
            "looked at and do not explain it",
        ),
        (held(frame(), scalar(), hints={"replaced": 6}), "total has grown by 1.0 KiB in 6 steps"),
    ],
)
def test_what_piles_up_is_said_in_numbers(made, text):
    assert conclusion(open_case(made, FACTS)).evidence.statements[0] == text


@pytest.mark.parametrize("rate", [100.0, 5000.0])
def test_what_a_library_collects_for_itself_is_a_note_while_it_is_small(rate):
    library = link("root", "json.decoder", "python module", file=ast.__file__)
    made = held(library, some("dict", "memo", "global"), ITEM, hints={"python": True}, bytes_per_step=rate)
    assert (conclusion(open_case(made, FACTS), replace(GROWTH, rate=rate)).severity == "note") == (
        rate < 4096
    )


# ----------------------------------------------------------------------------------------------------------
# signatures


def other_run(part: Link) -> Link:
    """The same object in another run: other sizes, line numbers and folder."""
    file = f"/elsewhere{part.file}" if part.file else ""
    length = part.length + 17 if part.length >= 0 else -1
    return replace(part, line=part.line + 40 if part.line else 0, length=length, detail="17 items", file=file)


@pytest.mark.parametrize("name", [name for name in MODULES if name != "identity_pack_hook"])
def test_a_signature_is_the_same_whatever_the_counts_sizes_lines_and_folders(case, name):
    made = case(EXAMPLES[name][0])
    again = replace(
        made.suspect,
        count=99,
        bytes=9900,
        held_count=1000,
        held_bytes=10**6,
        births=(),
        grew=min(made.suspect.grew, 99),
        route=Route(tuple(map(other_run, made.links)), made.suspect.route.repeats),
    )
    second = conclude.accuse(
        replace(made, suspect=again), module(name).PATTERN, replace(GROWTH, step=900, rate=5.0), 0.2
    )
    assert conclude.accuse(made, module(name).PATTERN, GROWTH, 1.0).signature == second.signature


@pytest.mark.parametrize(
    "other",
    [
        pile("other"),
        held(frame(function="test"), some(), TENSOR),
        held(frame("/a/b.py"), some(), TENSOR),
        held(frame(), link("local", "trainer", "instance"), some(text=".hist", edge="attribute"), TENSOR),
        held(GLOBAL, some(edge="global"), TENSOR),
        graphs(frame(), some(), TENSOR),
    ],
    ids=["variable", "function", "file", "attribute", "global", "pattern"],
)
def test_another_holder_or_pattern_has_another_signature(other):
    assert conclusion(open_case(other, FACTS)).signature != conclusion(open_case(pile(), FACTS)).signature


def test_all_made_up_cases_have_signatures_of_their_own(case):
    found = [
        (conclusion(case(example[0])).signature, name)
        for name, example in EXAMPLES.items()
        if name in MODULES
    ]
    assert len({signature for signature, _ in found}) == len(found)


# ----------------------------------------------------------------------------------------------------------
# real leaks, a few tensors each


class Thing:
    """Something the catalogue has no name for."""

    def __init__(self):
        self.data = bytearray(2048)


def opened(fn):
    """The open findings of a loop that calls ``fn``."""
    return leakhunter.check(fn, repeats=30).open


def a_list():
    hist = []
    return lambda: hist.append(torch.zeros(512))


def a_sum():
    weight, total = torch.ones(512, requires_grad=True), 0.0

    def step():
        nonlocal total
        total += (weight * torch.ones(512)).sum()

    return step


def a_state():
    weight, state = torch.ones(512, requires_grad=True), torch.zeros(512)

    def step():
        nonlocal state
        state = torch.add(weight * 0.5, state)

    return step


def in_place():
    weight, total = torch.ones(512, requires_grad=True), torch.zeros(())

    def step():
        total.add_((weight * torch.ones(512)).sum())

    return step


def pairs():
    weight, hist = torch.ones(512, requires_grad=True), []
    return lambda: hist.append((len(hist), (weight * torch.ones(512)).sum()))


def joined_lists():
    weight, hist = torch.ones(512, requires_grad=True), []

    def step():
        nonlocal hist
        hist = hist + [(weight * torch.ones(512)).sum()]  # noqa: RUF005

    return step


def things():
    bag = {}
    return lambda: bag.setdefault(len(bag), Thing())


REAL = [
    (a_list, "LH201", "hist"),
    (a_sum, "LH101", "total"),
    (a_state, "LH104", "state"),
    (in_place, "LH105", "total"),
    (pairs, "LH103", "hist"),
    (joined_lists, "LH103", "hist"),
    (things, "LH299", "bag"),
]


@functools.cache
def findings_of(make):
    return opened(make()), opened(make())


@pytest.mark.parametrize(("make", "pattern", "holder"), REAL, ids=[make.__name__ for make, _, _ in REAL])
def test_a_real_leak_is_one_finding_with_its_holder(make, pattern, holder):
    (finding,) = findings_of(make)[0]
    assert re.search(rf"\b{holder}\b", finding.holder.path)
    assert finding.pattern == pattern
    assert finding.evidence.share > 0.5


@pytest.mark.parametrize(("make", "pattern", "holder"), REAL, ids=[make.__name__ for make, _, _ in REAL])
def test_the_signature_of_a_real_leak_is_the_same_in_two_runs(make, pattern, holder):
    first, second = findings_of(make)
    assert {finding.signature for finding in first} == {finding.signature for finding in second}
    assert first


@pytest.mark.parametrize(("make", "pattern", "holder"), REAL, ids=[make.__name__ for make, _, _ in REAL])
def test_the_diff_of_a_real_leak_is_on_the_line_that_makes_it_grow(make, pattern, holder):
    finding = max(findings_of(make)[0], key=lambda found: found.bytes_per_step)
    taken = [
        line for line in finding.fix.diff.splitlines() if line.startswith("-") and not line.startswith("---")
    ]
    assert all("+=" in line or "append" in line or "= hist +" in line or "add" in line for line in taken)
    given_back = [line[1:].strip() for line in finding.fix.diff.splitlines()[2:] if line.startswith("+")]
    assert not any(
        text in line for line in given_back for text in ("len(hist).item()", "]).item()", "]).detach()")
    )


def test_a_small_leak_of_graphs_is_not_told_a_second_time_as_native_growth():
    net, hist = torch.nn.Linear(8, 8), []
    found = opened(lambda: hist.append(net(torch.ones(4, 8)).pow(2).mean()))
    assert [finding.pattern for finding in found] == ["LH103"]


@pytest.mark.parametrize(("trend", "size", "found"), [(0.0, 2**21, 0), (2**18, 2**21, 1), (0.0, 2**12, 1)])
def test_what_fills_a_place_that_does_not_grow_is_no_finding(trend, size, found):
    # A list that is emptied now and then, met while it fills, because something else grew.
    filling = held(frame(), some(), TENSOR, device="cuda:0", bytes=size, bytes_per_step=size / 8)
    rates, trends = {"cuda:0": size / 8, "Python objects": 7.0}, {"cuda:0": trend}
    growth = Growth("Python objects", "blocks", 7.0, 10, 8, 30, 0.5, rates=rates, trends=trends)
    assert len(conclude.conclude([filling], growth)) == found


def test_an_earlier_look_at_the_heap_does_not_change_what_is_found():
    # Looking gives autograd nodes Python objects, which C++ keeps from then on.
    from leakhunter.heap.graph import captured

    def losses(look):
        weight, hist, count = torch.ones(512, requires_grad=True), [], itertools.count()

        def step():
            nonlocal hist
            hist = hist + [(weight * torch.ones(512)).sum()]  # noqa: RUF005
            if next(count) % 8 == 0 and look:
                with captured():
                    pass

        return step

    (plain,), (looked_at,) = opened(losses(False)), opened(losses(True))
    assert plain.holder.path == looked_at.holder.path
    assert plain.signature == looked_at.signature
