"""From a holder or a call stack to the statement on the user's line, and the change to it as a diff.

Everything here reads source text through ``linecache``, so notebook cells work; nothing is imported or run.
"""

from __future__ import annotations

import ast
import builtins
import difflib
import linecache
import re
import types
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from dataclasses import replace as replace_fields
from typing import TYPE_CHECKING

from leakhunter.findings import Frame
from leakhunter.origin import shorten

if TYPE_CHECKING:
    from leakhunter.heap.labels import Link

GROWING_CALLS = {
    "append", "appendleft", "add", "extend", "insert", "put", "put_nowait", "push", "update", "setdefault",
    "heappush", "register", "submit", "enqueue", "add_param_group", "add_module", "add_done_callback",
    "create_task", "ensure_future",
}  # fmt: skip
EMPTYING_CALLS = {
    "clear", "pop", "popleft", "popitem", "remove", "discard", "get_nowait", "cache_clear", "unregister",
}  # fmt: skip
JOINING_CALLS = {"cat", "concat", "concatenate", "stack", "vstack", "hstack", "append"}
# Methods that add to a tensor in its own memory, and so to its graph.
IN_PLACE_CALLS = {
    "add_", "sub_", "mul_", "div_", "lerp_", "addcmul_", "addcdiv_", "addmm_", "index_add_", "scatter_add_",
}  # fmt: skip
# Which argument of a call becomes one element of the container, and which calls store each element of theirs.
ELEMENT_ARGUMENT = {
    "append": 0, "appendleft": 0, "add": 0, "put": 0, "put_nowait": 0, "push": 0,
    "insert": 1, "setdefault": 1, "heappush": 1,
}  # fmt: skip
SPREADING_CALLS = {"extend", "extendleft", "update"}
# What containers are read and changed by: any other method that is called on a variable is a tensor's.
CONTAINER_CALLS = {
    *GROWING_CALLS, *EMPTYING_CALLS, "extendleft", "get", "items", "keys", "values", "copy", "count", "index", "sort",
    "reverse", "qsize", "empty", "full", "task_done", "join", "fromkeys",
}  # fmt: skip
NUMBER_BUILTINS = {"len", "int", "float", "bool", "ord", "hash", "id", "str", "repr", "range"}
NUMBER_METHODS = {"item", "tolist", "numel", "nelement", "dim", "ndimension", "element_size", "size"}
# Functions of torch and methods of a tensor that give one tensor, whatever they are given.
TENSOR_CALLS = {
    "ones", "zeros", "rand", "randn", "full", "tensor", "arange", "ones_like", "zeros_like", "rand_like", "Parameter",
    "sum", "mean", "pow", "square", "sqrt", "abs", "exp", "log", "neg", "add", "sub", "mul", "div", "clamp", "softmax",
    "log_softmax", "sigmoid", "tanh", "relu", "matmul", "mm", "bmm", "cat", "stack", "clone", "detach", "float", "half",
    "double", "to", "cpu", "cuda", "view", "reshape", "squeeze", "unsqueeze", "flatten", "permute", "transpose",
    "linear",
}  # fmt: skip

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
Loop = ast.For | ast.AsyncFor | ast.While
# Statements whose body may not run to its end; ``except*`` came with Python 3.11.
BRANCHES = (ast.If, ast.Try, getattr(ast, "TryStar", ast.Try))


@dataclass(frozen=True)
class Target:
    """What is written to: a variable, an attribute of anything, or a constant key of anything.

    ``function`` (file, first line) narrows a variable to the function it is local to.
    """

    kind: str
    name: str
    function: tuple[str, int] | None = None


@dataclass(frozen=True)
class Assignment:
    """A place and the value it is given; where that is ``unpacked``, the value holds those of other places too."""

    place: ast.expr
    value: ast.expr
    unpacked: bool = False


@dataclass(frozen=True)
class Statement:
    """A statement of the user's, and ``scope``, the function or module it stands in.

    ``kind`` says what it does to its target: ``accumulate`` (``x = x + e``, ``x += e``, ``x.add_(e)``), ``carry``
    (``x = f(x)``), ``join`` (``x = cat([x, e])``), ``rebuild`` (``x = x[:n]``), ``assign``, ``add`` (a call such as
    ``append``), ``item`` (``x[k] = v``), ``empty`` (``x.clear()``, ``x = []``, ``del x[k]``).
    """

    file: str
    line: int
    end_line: int
    kind: str
    function: str
    node: ast.stmt
    target: Target
    scope: ast.AST
    method_of: str = ""
    conditional: bool = False

    @property
    def frame(self) -> Frame:
        """Where it stands, with its first line of text."""
        return Frame(self.file, self.line, self.function or "<module>", line_text(self.file, self.line))


# --------------------------------------------------------------------------------------------------------------
# Reading


def lines_of(file: str) -> list[str]:
    """The lines of a source file or notebook cell, each with its newline; empty when they cannot be read."""
    return linecache.getlines(file)


def line_text(file: str, line: int) -> str:
    """One line of source without its indentation."""
    return linecache.getline(file, line).strip()


def parse(file: str) -> ast.Module | None:
    """The syntax tree of a file, None when it cannot be had."""
    text = "".join(lines_of(file))
    if not text:
        return None
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # the last two: nested too deeply
        return None


def frames_of(stack: Iterable[tuple[types.CodeType, int] | Frame]) -> tuple[Frame, ...]:
    """A recorded call stack with the text of the expression that ran in each frame, or of its line."""
    return tuple(_with_text(place) if isinstance(place, Frame) else _frame(*place) for place in stack)


def _with_text(frame: Frame) -> Frame:
    return replace_fields(frame, code=line_text(frame.file, frame.line))


def _frame(code: types.CodeType, offset: int) -> Frame:
    line = _line_at(code, offset)
    text = ""
    try:
        import executing

        # executing wants a frame, of which it reads these four; the real one is long gone.
        stand_in = types.SimpleNamespace(f_code=code, f_lasti=offset, f_lineno=line, f_globals={})
        found = executing.Source.executing(stand_in)  # type: ignore[arg-type]
        if found.node is not None:
            text = ast.unparse(found.node)
    except Exception:  # a helper of the report: whatever goes wrong in it, the line itself is still told
        text = ""
    name = getattr(code, "co_qualname", code.co_name)
    if not text or len(text) > 120:
        text = line_text(code.co_filename, line)
    return Frame(code.co_filename, line, name, text)


def _line_at(code: types.CodeType, offset: int) -> int:
    line = code.co_firstlineno
    for start, end, number in code.co_lines():
        if start <= offset < end and number is not None:
            line = number
    return line


# --------------------------------------------------------------------------------------------------------------
# Finding


def statements(file: str, target: Target) -> Iterator[Statement]:
    """Every statement of a file that adds to ``target``, replaces it or empties it, in order of line."""
    tree = parse(file)
    if tree is None:
        return
    for node, functions, owner, conditional in _walk(tree):
        if target.function is not None and not _inside(functions, target.function, file):
            continue
        kind = _kind(node, target)
        if kind:
            yield _statement(file, tree, node, functions, kind, target, owner, conditional)


def _statement(
    file: str,
    tree: ast.Module,
    node: ast.stmt,
    functions: tuple[FunctionNode, ...],
    kind: str,
    target: Target,
    owner: str = "",
    conditional: bool = False,
) -> Statement:
    name = functions[-1].name if functions else ""
    scope = functions[-1] if functions else tree
    end = node.end_lineno or node.lineno
    return Statement(file, node.lineno, end, kind, name, node, target, scope, owner, conditional)


def _walk(
    node: ast.AST, functions: tuple[FunctionNode, ...] = (), owner: str = "", conditional: bool = False
) -> Iterator[tuple[ast.stmt, tuple[FunctionNode, ...], str, bool]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from _walk(child, (*functions, child), owner, False)
        elif isinstance(child, ast.ClassDef):
            yield from _walk(child, functions, child.name, False)
        elif isinstance(child, ast.stmt):
            yield child, functions, owner, conditional
            yield from _walk(child, functions, owner, conditional or isinstance(child, BRANCHES))
        elif isinstance(child, (ast.excepthandler, ast.match_case)):
            yield from _walk(child, functions, owner, True)


def _inside(functions: tuple[FunctionNode, ...], place: tuple[str, int], file: str) -> bool:
    if place[0] != file:
        return False
    starts = {min([f.lineno, *(d.lineno for d in f.decorator_list)]) for f in functions}
    return place[1] in starts or (place[1] <= 1 and not functions)


def _kind(statement: ast.stmt, target: Target) -> str:
    if isinstance(statement, ast.AugAssign) and refers_to(statement.target, target):
        return "accumulate"
    if isinstance(statement, ast.Delete):
        return "empty" if any(_is_item(place, target) for place in statement.targets) else ""
    places = [given.place for given in assignments(statement)]
    if isinstance(statement, ast.AugAssign):
        places = [statement.target]
    if any(_is_item(place, target) for place in places):
        return "item"
    given = assignment_to(statement, target)
    return _value_kind(given.value, target) if given is not None else _call_kind(statement, target)


def _is_item(node: ast.AST, target: Target) -> bool:
    return isinstance(node, ast.Subscript) and refers_to(node.value, target)


def assignments(statement: ast.stmt) -> Iterator[Assignment]:
    """What a statement assigns, with its ``:=`` and without those of the statements it encloses."""
    if isinstance(statement, ast.Assign):
        for place in statement.targets:
            yield from _unpacked(place, statement.value)
    elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
        yield Assignment(statement.target, statement.value)
    for node in _own_nodes(statement):
        if isinstance(node, ast.NamedExpr):
            yield Assignment(node.target, node.value)


def _unpacked(place: ast.expr, value: ast.expr) -> Iterator[Assignment]:
    """``a, b = c, d`` as ``a = c`` and ``b = d``, as far as the source shows which is which."""
    if not isinstance(place, (ast.Tuple, ast.List)):
        yield Assignment(place, value)
    elif isinstance(value, (ast.Tuple, ast.List)) and _same_length(place, value):
        for part, given in zip(place.elts, value.elts, strict=True):
            yield from _unpacked(part, given)
    else:
        for part in place.elts:
            for inner in _unpacked(part, value):
                yield Assignment(inner.place, value, True)


def _same_length(first: ast.Tuple | ast.List, second: ast.Tuple | ast.List) -> bool:
    starred = any(isinstance(part, ast.Starred) for part in (*first.elts, *second.elts))
    return not starred and len(first.elts) == len(second.elts)


def assignment_to(statement: ast.stmt, target: Target) -> Assignment | None:
    """What a statement assigns to the target, None when it assigns nothing to it."""
    return next((given for given in assignments(statement) if refers_to(given.place, target)), None)


def _value_kind(value: ast.expr, target: Target) -> str:
    if _is_empty(value):
        return "empty"
    if not _mentions(value, target):
        return "assign"
    if _joined(value, target):
        return "accumulate"
    for node in ast.walk(value):
        if isinstance(node, ast.Call) and any(_mentions(argument, target) for argument in arguments(node)):
            return "join" if name_of(node.func) in JOINING_CALLS else "carry"
    return "accumulate" if isinstance(value, ast.BinOp) else "rebuild"


def _call_kind(statement: ast.stmt, target: Target) -> str:
    for call in _own_calls(statement):
        name = name_of(call.func)
        on_target = isinstance(call.func, ast.Attribute) and refers_to(call.func.value, target)
        on_first = name == "heappush" and bool(call.args) and refers_to(call.args[0], target)
        if (on_target or on_first) and (name in GROWING_CALLS or name.startswith("register")):
            return "add"
        # A queue's get() takes out and has no key; a dict's get(key) only reads.
        if on_target and (name in EMPTYING_CALLS or (name == "get" and not call.args)):
            return "empty"
        if name in IN_PLACE_CALLS and refers_to(_receiver(call), target):
            return "accumulate"
    return ""


def _receiver(call: ast.Call) -> ast.expr:
    """What a chain of calls that change a tensor in its own memory begins with: ``x`` of ``x.mul_(a).add_(b)``."""
    node: ast.expr = call
    while (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in IN_PLACE_CALLS
    ):
        node = node.func.value
    return node


def _own_nodes(statement: ast.stmt) -> Iterator[ast.AST]:
    """The nodes of the statement itself, not of the statements it encloses."""
    pending: list[ast.AST] = [statement]
    while pending:
        node = pending.pop()
        pending += [
            child
            for child in ast.iter_child_nodes(node)
            if not isinstance(child, (ast.stmt, ast.excepthandler))
        ]
        yield node


def _own_calls(statement: ast.stmt) -> Iterator[ast.Call]:
    return (node for node in _own_nodes(statement) if isinstance(node, ast.Call))


def arguments(call: ast.Call) -> list[ast.expr]:
    """What a call is given, by position and by name."""
    return [*call.args, *(keyword.value for keyword in call.keywords)]


def refers_to(node: ast.AST, target: Target) -> bool:
    """Whether an expression is the target itself."""
    if isinstance(node, ast.Starred):
        node = node.value
    if target.kind == "name":
        return isinstance(node, ast.Name) and node.id == target.name
    if target.kind == "attribute":
        return isinstance(node, ast.Attribute) and node.attr == target.name
    key = node.slice if isinstance(node, ast.Subscript) else None
    if isinstance(node, ast.Call) and name_of(node.func) == "setdefault" and node.args:
        key = node.args[0]
    return isinstance(key, ast.Constant) and repr(key.value) == target.name


def _mentions(node: ast.AST, target: Target) -> bool:
    return any(refers_to(part, target) for part in ast.walk(node))


def _is_empty(value: ast.expr) -> bool:
    if isinstance(value, (ast.List, ast.Set, ast.Tuple)):
        return not value.elts or all(_is_empty(item) for item in value.elts)
    if isinstance(value, ast.Dict):
        return not value.keys
    if isinstance(value, ast.Call):
        return (
            not value.args and not value.keywords and name_of(value.func) in ("list", "dict", "set", "deque")
        )
    return isinstance(value, ast.Constant)


def name_of(function: ast.expr) -> str:
    """The last part of the name by which a function or method is called, empty when it has none."""
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def statement_at(file: str, line: int) -> tuple[ast.stmt, str] | None:
    """The innermost statement that spans a line, the last of several, and the function it stands in."""
    found = None
    for node, functions in _statements_at(parse(file), line):
        found = node, functions[-1].name if functions else ""
    return found


def _statements_at(tree: ast.Module | None, line: int) -> list[tuple[ast.stmt, tuple[FunctionNode, ...]]]:
    """The statements that span a line and enclose no other that does."""
    found: list[tuple[ast.stmt, tuple[FunctionNode, ...]]] = []
    for node, functions, _, _ in _walk(tree) if tree is not None else ():
        if node.lineno <= line <= (node.end_lineno or node.lineno):
            if found and any(part is node for part in ast.walk(found[-1][0])):
                found.pop()
            found.append((node, functions))
    return found


def growing_call_at(frame: Frame) -> Statement | None:
    """The statement at a frame's line, when it adds to some container."""
    tree = parse(frame.file)
    for node, functions in _statements_at(tree, frame.line):
        kind, container = _container_filled_by(node)
        if tree is not None and container is not None:
            return _statement(frame.file, tree, node, functions, kind, _target_of(container))
    return None


def _container_filled_by(statement: ast.stmt) -> tuple[str, ast.expr | None]:
    for call in _own_calls(statement):
        if isinstance(call.func, ast.Attribute) and call.func.attr in GROWING_CALLS:
            return "add", call.func.value
    if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Subscript):
        return "item", statement.targets[0].value
    return "", None


def _target_of(node: ast.expr) -> Target:
    if isinstance(node, ast.Attribute):
        return Target("attribute", node.attr)
    if isinstance(node, ast.Name):
        return Target("name", node.id)
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        return Target("key", repr(node.slice.value))
    return Target("name", "")


def is_loop_carried(file: str, first_line: int, name: str) -> bool:
    """Whether a local variable's value in one iteration of a loop is computed from that in the one before."""
    target = Target("name", name, (file, first_line))
    return any(
        statement.kind in ("accumulate", "carry", "join", "rebuild") for statement in statements(file, target)
    )


def parameter_name(file: str, first_line: int, position: int) -> str:
    """The parameter of a function to which its ``position``-th default belongs, empty when it cannot be told."""
    tree = parse(file)
    for _, functions, _, _ in _walk(tree) if tree is not None else ():
        if functions and _inside(functions[-1:], (file, first_line), file):
            arguments = functions[-1].args
            positional = [*arguments.posonlyargs, *arguments.args]
            with_default = positional[len(positional) - len(arguments.defaults) :]
            return with_default[position].arg if position < len(with_default) else ""
    return ""


def definition_line(file: str, qualified_name: str) -> int:
    """The line of a class or function, 0 when it is not in the file."""
    tree = parse(file)
    name = qualified_name.rsplit(".", 1)[-1]
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == name:
            return node.lineno
    return 0


def with_item(file: str, line: int, manager: str) -> ast.Call | None:
    """The call of a context manager in the innermost ``with`` around a line."""
    tree = parse(file)
    best = None
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, (ast.With, ast.AsyncWith)) and node.lineno <= line <= (node.end_lineno or line):
            for item in node.items:
                if isinstance(item.context_expr, ast.Call) and name_of(item.context_expr.func) == manager:
                    best = item.context_expr
    return best


def constructor_lines(file: str) -> set[int]:
    """The lines of all ``__init__`` methods of a file."""
    tree = parse(file)
    lines: set[int] = set()
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            lines.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return lines


def calls(file: str, name: str) -> Iterator[ast.Call]:
    """Every call of a function or method of this name in a file."""
    tree = parse(file)
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.Call) and name_of(node.func) == name:
            yield node


def calls_in_functions(file: str) -> Iterator[tuple[ast.Call, str]]:
    """Every call of a file, with the name of the function it stands in, empty at module level."""
    tree = parse(file)
    for statement, functions, _, _ in _walk(tree) if tree is not None else ():
        for call in _own_calls(statement):
            yield call, functions[-1].name if functions else ""


def loops_around(statement: Statement) -> list[Loop]:
    """The loops of its own function that a statement stands in, the outermost first."""
    loops = [
        node for node in ast.walk(statement.scope) if isinstance(node, (ast.For, ast.AsyncFor, ast.While))
    ]
    return [loop for loop in loops if any(_encloses(part, statement.node) for part in loop.body)]


def _encloses(outer: ast.AST, inner: ast.AST) -> bool:
    return any(node is inner for node in ast.walk(outer))


def is_read_later(statement: Statement) -> bool:
    """Whether the same pass of the loop, or the same call, reads the target after the statement."""
    region = next(reversed(loops_around(statement)), statement.scope)
    return any(
        refers_to(node, statement.target)
        and isinstance(getattr(node, "ctx", None), ast.Load)
        and getattr(node, "lineno", 0) > statement.end_line
        for node in ast.walk(region)
    )


def is_used_as_tensor(file: str, target: Target) -> bool:
    """Whether a program calls a tensor's methods on the target or on its elements, or joins them to one tensor."""
    tree, used = parse(file), False
    for node in ast.walk(tree) if tree is not None else ():
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.ctx, ast.Load)
            and node.attr not in CONTAINER_CALLS
        ):
            owner = node.value.value if isinstance(node.value, ast.Subscript) else node.value
            used = used or (refers_to(owner, target) and node.attr not in IN_PLACE_CALLS)
        elif isinstance(node, ast.Call) and name_of(node.func) in JOINING_CALLS - {"append"}:
            used = used or any(_mentions(argument, target) for argument in arguments(node))
        elif isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)) and _mentions(node.iter, target):
            used = used or _calls_methods_of(tree, node.target)
    return used


def _calls_methods_of(tree: ast.Module | None, place: ast.expr) -> bool:
    names = {node.id for node in ast.walk(place) if isinstance(node, ast.Name)}
    return any(
        isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in names
        for node in (ast.walk(tree) if tree is not None else ())
    )


def is_differentiated(file: str, target: Target) -> bool:
    """Whether a program calls ``backward`` on the target, which then must keep its graph."""
    return any(
        isinstance(call.func, ast.Attribute) and _mentions(call.func.value, target)
        for call in calls(file, "backward")
    )


def starts_as(file: str, target: Target) -> list[object]:
    """The constants that a program gives to the target, as an assignment or as the default of a parameter."""
    found: list[object] = []
    tree = parse(file)
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.stmt):
            given = [given.value for given in assignments(node) if refers_to(given.place, target)]
            found += [value.value for value in given if isinstance(value, ast.Constant)]
        if isinstance(node, ast.arguments) and target.kind == "name":
            default = defaults_of(node).get(target.name)
            found += [default.value] if isinstance(default, ast.Constant) else []
    return found


def defaults_of(parameters: ast.arguments) -> dict[str, ast.expr]:
    """The default values of a function's parameters, by name."""
    positional = [*parameters.posonlyargs, *parameters.args]
    pairs = zip(reversed(positional), reversed(parameters.defaults), strict=False)
    named = zip(parameters.kwonlyargs, parameters.kw_defaults, strict=True)
    return {parameter.arg: value for parameter, value in (*pairs, *named) if value is not None}


def function_at(file: str, first_line: int) -> FunctionNode | None:
    """The function whose code begins at a line, its decorators included."""
    tree = parse(file)
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, FunctionNode) and first_line_of(node) == first_line:
            return node
    return None


def first_line_of(node: ast.stmt) -> int:
    """The first line of a statement, which for a function or class is that of its first decorator."""
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])


# --------------------------------------------------------------------------------------------------------------
# What a statement adds and stores


def is_number(node: ast.expr) -> bool:
    """Whether an expression can hold no graph, whatever its names stand for: a constant, a length, an ``.item()``."""
    if isinstance(node, (ast.Constant, ast.JoinedStr)):
        return True
    if isinstance(node, ast.UnaryOp):
        return is_number(node.operand)
    if isinstance(node, ast.BinOp):
        return is_number(node.left) and is_number(node.right)
    if isinstance(node, ast.Subscript):
        return _is_shape(node.value)
    if not isinstance(node, ast.Call):
        return False
    if isinstance(node.func, ast.Name):
        return node.func.id in NUMBER_BUILTINS
    return name_of(node.func) in NUMBER_METHODS or _root(node.func) in ("math", "time")


def _is_shape(node: ast.expr) -> bool:
    if isinstance(node, ast.Call):
        return name_of(node.func) == "size"
    return isinstance(node, ast.Attribute) and node.attr == "shape"


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def may_be_number(node: ast.expr) -> bool:
    """Whether an expression is a number at times or always, so that no method of a tensor may be called on it."""
    if is_number(node):
        return True
    if isinstance(node, ast.IfExp):
        return may_be_number(node.body) or may_be_number(node.orelse)
    if isinstance(node, ast.BoolOp):
        return any(may_be_number(value) for value in node.values)
    if isinstance(node, ast.UnaryOp):
        return may_be_number(node.operand)
    if isinstance(node, ast.BinOp):
        return any(may_be_number(side) and not is_number(side) for side in (node.left, node.right))
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in dir(builtins)


def is_tensor(node: ast.expr, scope: ast.AST, seen: frozenset[str] = frozenset()) -> bool:
    """Whether the source shows that an expression is a tensor: PyTorch computes it, also by way of local variables."""
    if isinstance(node, ast.BinOp):
        return is_tensor(node.left, scope, seen) or is_tensor(node.right, scope, seen)
    if isinstance(node, ast.UnaryOp):
        return is_tensor(node.operand, scope, seen)
    if isinstance(node, ast.Subscript):
        return is_tensor(node.value, scope, seen)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        known = node.func.attr in TENSOR_CALLS or node.func.attr.endswith(("_loss", "cross_entropy"))
        of_torch = _root(node.func) in ("torch", "F", "nn")
        return known and (of_torch or is_tensor(node.func.value, scope, seen))
    if isinstance(node, ast.Name) and node.id not in seen:
        values = _values_of(node.id, scope)
        return bool(values) and all(is_tensor(value, scope, seen | {node.id}) for value in values)
    return False


def _values_of(name: str, scope: ast.AST) -> list[ast.expr]:
    """All that a local variable is assigned, nothing when it gets its value in other ways as well."""
    stores = [
        node
        for node in ast.walk(scope)
        if (isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store))
        or (isinstance(node, ast.arg) and node.arg == name)
    ]
    plain = [node for node in ast.walk(scope) if isinstance(node, ast.Assign) and len(node.targets) == 1]
    values = [node.value for node in plain if any(node.targets[0] is store for store in stores)]
    return values if len(values) == len(stores) else []


def self_reference_free(node: ast.expr, target: Target) -> list[ast.expr]:
    """The parts of a sum that do not mention the target and are more than numbers: what is added to it.

    Of a product the whole is such a part, unless all its factors but one are numbers.
    """
    if isinstance(node, ast.IfExp):
        return _parts_of_branches(node, target)
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub, ast.Mult, ast.Div)):
        sides = [side for side in (node.left, node.right) if not is_number(side)]
        if isinstance(node.op, (ast.Add, ast.Sub)) or _mentions(node, target) or len(sides) == 1:
            return [part for side in sides for part in self_reference_free(side, target)]
    return [] if _mentions(node, target) or is_number(node) else [node]


def _parts_of_branches(node: ast.IfExp, target: Target) -> list[ast.expr]:
    branches = [branch for branch in (node.body, node.orelse) if not is_number(branch)]
    if len(branches) == 1 or _mentions(node, target):
        return [part for branch in branches for part in self_reference_free(branch, target)]
    return [node] if branches else []


def added(statement: Statement) -> list[ast.expr]:
    """What a statement adds to its target, without what are numbers anyway."""
    node, target = statement.node, statement.target
    if isinstance(node, ast.AugAssign):
        return self_reference_free(node.value, target)
    given = assignment_to(node, target)
    if given is not None:
        return [] if given.unpacked else self_reference_free(given.value, target)
    return [
        part for argument in _in_place_arguments(statement) for part in self_reference_free(argument, target)
    ]


def changes_in_place(statement: Statement) -> bool:
    """Whether a statement calls ``add_`` and the like on its target."""
    return bool(_in_place_arguments(statement))


def _in_place_arguments(statement: Statement) -> list[ast.expr]:
    return [
        argument
        for call in _own_calls(statement.node)
        if name_of(call.func) in IN_PLACE_CALLS and refers_to(_receiver(call), statement.target)
        for argument in call.args
    ]


def stored(statement: Statement) -> Iterator[tuple[ast.expr, int]]:
    """What a statement puts into its target, and how many references of a path lead from the target to it.

    One to an element, two to an element of an element, none where the elements of the expression are stored.
    """
    node, target = statement.node, statement.target
    for call in _own_calls(node):
        yield from _stored_by_call(call, target)
    for given in assignments(node):
        if _is_item(given.place, target) and not given.unpacked:
            yield given.value, 1
        elif refers_to(given.place, target) and not given.unpacked:
            yield from ((value, 0) for value in _joined(given.value, target))
    if isinstance(node, ast.AugAssign):
        yield node.value, 1 if _is_item(node.target, target) else 0


def _stored_by_call(call: ast.Call, target: Target) -> Iterator[tuple[ast.expr, int]]:
    name, given = name_of(call.func), call.args
    receiver = given[0] if name == "heappush" and given else getattr(call.func, "value", None)
    depth = 0
    if (
        isinstance(receiver, ast.Call)
        and not refers_to(receiver, target)
        and name_of(receiver.func) == "setdefault"
    ):
        receiver, depth = getattr(receiver.func, "value", None), 1
    if receiver is None or not refers_to(receiver, target):
        return
    position = ELEMENT_ARGUMENT.get(name, -1)
    alone = len(given) == position + 1 and not call.keywords
    if position >= 0 and len(given) > position and (alone or name.startswith("put")):
        yield given[position], depth + 1
    if name in SPREADING_CALLS:
        if len(given) == 1:
            yield given[0], depth
        if call.keywords:
            yield ast.Call(ast.Name("dict", ast.Load()), [], call.keywords), depth


def _joined(value: ast.expr, target: Target) -> list[ast.expr]:
    """The containers that are joined to the target: ``[e]`` of ``x + [e]`` and of ``[*x, e]``."""
    if isinstance(value, ast.BinOp) and isinstance(value.op, (ast.Add, ast.BitOr)):
        sides = (value.left, value.right)
        on_target = any(refers_to(side, target) for side in sides)
        return [side for side in sides if on_target and isinstance(side, DISPLAYS)]
    if isinstance(value, (ast.List, ast.Tuple, ast.Set)):
        new = [part for part in value.elts if not (isinstance(part, ast.Starred) and refers_to(part, target))]
        return [ast.List(new, ast.Load())] if len(new) < len(value.elts) else []
    if isinstance(value, ast.Dict):
        pairs = zip(value.keys, value.values, strict=True)
        kept = [(key, part) for key, part in pairs if key is not None or not refers_to(part, target)]
        keys, values = [key for key, _ in kept], [part for _, part in kept]
        return [ast.Dict(keys, values)] if len(kept) < len(value.keys) else []
    return []


DISPLAYS = (ast.List, ast.Tuple, ast.Set, ast.Dict)
OPAQUE = (*DISPLAYS, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Lambda, ast.BoolOp)


def innermost(value: ast.expr, path: Sequence[Link]) -> list[ast.expr] | None:
    """The innermost expressions of a stored value that hold what ``path`` leads to, without numbers.

    None when part of the path lies inside something that the source does not show: a variable, a call, a comprehension.
    """
    if isinstance(value, ast.IfExp):
        branches = [branch for branch in (value.body, value.orelse) if not is_number(branch)]
        if len(branches) == 1 or path:
            return _all_innermost(branches, path)
        return None if may_be_number(value) else [value]
    if not path:
        if isinstance(value, OPAQUE):
            return None
        return [] if is_number(value) else [value]
    members = _members(value, path[0])
    return None if members is None else _all_innermost(members, path[1:])


def _all_innermost(values: Sequence[ast.expr], path: Sequence[Link]) -> list[ast.expr] | None:
    found: list[ast.expr] = []
    for value in values:
        inner = innermost(value, path)
        if inner is None:
            return None
        found += inner
    return found


def _members(value: ast.expr, step: Link) -> list[ast.expr] | None:
    """Those members of a literal to which one reference of a path may lead, None when it is no such literal."""
    if isinstance(value, ast.Call) and name_of(value.func) == "dict" and not value.args:
        keys = [None if keyword.arg is None else ast.Constant(keyword.arg) for keyword in value.keywords]
        value = ast.Dict([*keys], arguments(value))
    if isinstance(value, ast.Dict):
        return _values_under(value, step)
    if not isinstance(value, (ast.List, ast.Tuple, ast.Set)):
        return None
    if any(isinstance(part, ast.Starred) for part in value.elts):
        return None
    if "*" in step.text:
        return value.elts
    position = step.text[1:-1]
    return [value.elts[int(position)]] if position.isdigit() and int(position) < len(value.elts) else None


def _values_under(value: ast.Dict, step: Link) -> list[ast.expr] | None:
    if None in value.keys:
        return None
    if "*" in step.text:
        return value.values
    pairs = zip(value.keys, value.values, strict=True)
    return [
        part for key, part in pairs if isinstance(key, ast.Constant) and f"[{key.value!r}]" == step.text
    ] or None


def is_detached(node: ast.expr) -> bool:
    """Whether an expression ends with a call that leaves the graph behind."""
    return isinstance(node, ast.Call) and name_of(node.func) == "detach"


def occurrences(value: ast.expr, place: ast.expr) -> list[tuple[ast.expr, ast.AST | None]]:
    """Where a variable, attribute or item is read inside an expression, each with the node that it is a part of.

    Where it is only compared, it is left out.
    """
    written = ast.unparse(place)
    found: list[tuple[ast.expr, ast.AST | None]] = []
    pending: list[tuple[ast.AST, ast.AST | None]] = [(value, None)]
    while pending:
        node, parent = pending.pop()
        if isinstance(node, ast.Compare):
            continue
        if isinstance(node, ast.expr) and ast.unparse(node) == written:
            found.append((node, parent))
        else:
            pending += [(child, node) for child in ast.iter_child_nodes(node)]
    return found


# --------------------------------------------------------------------------------------------------------------
# Changing


@dataclass(frozen=True)
class Edit:
    """Text to put at a place of the source: ``(line, column)`` to ``(end_line, end_column)``, columns in bytes."""

    line: int
    column: int
    end_line: int
    end_column: int
    text: str


def replace(node: ast.expr | ast.stmt, text: str) -> Edit:
    """Put ``text`` in the place of a node."""
    return Edit(node.lineno, node.col_offset, node.end_lineno or node.lineno, node.end_col_offset or 0, text)


SIMPLE = (ast.Name, ast.Attribute, ast.Call, ast.Subscript)


def called(file: str, node: ast.expr, method: str) -> str:
    """A node with ``.method()`` called on it, as text."""
    text = segment(file, node)
    return f"{text}.{method}()" if isinstance(node, SIMPLE) else f"({text}).{method}()"


def called_on(file: str, node: ast.expr, method: str) -> Edit:
    """``node`` with ``.method()`` called on it, in parentheses where they are needed and not there yet."""
    line, end_line = node.lineno, node.end_lineno or node.lineno
    before = lines_of(file)[line - 1].encode()[: node.col_offset].decode()
    after = lines_of(file)[end_line - 1].encode()[node.end_col_offset :].decode()
    # Parentheses behind a name, an item or a call are those of a call.
    if re.search(r"[^\w\s\])'\"]\s*\($", before) and after.startswith(")") and not isinstance(node, SIMPLE):
        end = (node.end_col_offset or 0) + 1
        return Edit(end_line, end, end_line, end, f".{method}()")
    return replace(node, called(file, node, method))


def segment(file: str, node: ast.AST) -> str:
    """The source text of a node."""
    return ast.get_source_segment("".join(lines_of(file)), node) or ast.unparse(node)


def diff(file: str, edits: Sequence[Edit], insert_after: tuple[int, str] | None = None) -> str:
    """A unified diff of a file with the edits made, and with a line put after another where that is asked for."""
    before = lines_of(file)
    after = list(before)
    for edit in sorted(edits, key=lambda e: (e.line, e.column), reverse=True):
        first = after[edit.line - 1].encode()[: edit.column].decode()
        last = after[edit.end_line - 1].encode()[edit.end_column :].decode()
        after[edit.line - 1 : edit.end_line] = _split(first + edit.text + last)
    if insert_after is not None:
        after.insert(insert_after[0] + len(after) - len(before), insert_after[1])
    name = shorten(file)
    changed = difflib.unified_diff(before, after, name, name, n=0)
    return "".join(line if line.endswith("\n") else line + "\n" for line in changed)


def _split(text: str) -> list[str]:
    """Lines with their newlines; other separators, which ``str.splitlines`` knows as well, end no line of source."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def indentation(file: str, line: int) -> str:
    """The white space before a line."""
    text = linecache.getline(file, line)
    return text[: len(text) - len(text.lstrip())]


def stands_alone(file: str, node: ast.stmt) -> bool:
    """Whether a statement shares its lines with no other, so that a line can be put before or after it."""
    before = lines_of(file)[node.lineno - 1].encode()[: node.col_offset].decode()
    after = lines_of(file)[(node.end_lineno or node.lineno) - 1].encode()[node.end_col_offset :].decode()
    return not before.strip() and (not after.strip() or after.strip().startswith("#"))
