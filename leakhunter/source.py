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
    "log_softmax", "sigmoid", "tanh", "relu", "matmul", "mm", "bmm", "cat", "stack", "clone", "detach", "float", "double",
    "half", "to", "cpu", "cuda", "view", "reshape", "squeeze", "unsqueeze", "flatten", "permute", "transpose", "linear",
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


def frames_of(stack: Iterable[tuple[types.CodeType, int]]) -> tuple[Frame, ...]:
    """A recorded call stack with the text of the expression that ran in each frame."""
    return tuple(_frame(code, offset) for code, offset in stack)


def _frame(code: types.CodeType, offset: int) -> Frame:
    line = _line_at(code, offset)
    text = ""
    try:
        import executing

        # executing wants a frame, of which it reads these four; the real one is long gone.
        stand_in = types.SimpleNamespace(f_code=code, f_lasti=offset, f_lineno=line, f_globals={})
        found = executing.Source.executing(stand_in)
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
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in IN_PLACE_CALLS:
        node = node.func.value
    return node


def _own_nodes(statement: ast.stmt) -> Iterator[ast.AST]:
    """The nodes of the statement itself, not of the statements it encloses."""
    pending: list[ast.AST] = [statement]
    while pending:
        node = pending.pop()
        pending += [
            child for child in ast.iter_child_nodes(node) if not isinstance(child, (ast.stmt, ast.excepthandler))
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


def _statements_at(
    tree: ast.Module | None, line: int
) -> list[tuple[ast.stmt, tuple[FunctionNode, ...]]]:
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
    return any(statement.kind in ("accumulate", "carry", "join", "rebuild") for statement in statements(file, target))


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


def called_on(file: str, node: ast.expr, method: str) -> Edit:
    """``node`` with ``.method()`` called on it, in parentheses where they are needed and not there yet."""
    text = segment(file, node)
    if isinstance(node, (ast.Name, ast.Attribute, ast.Call, ast.Subscript)):
        return replace(node, f"{text}.{method}()")
    line, end_line = node.lineno, node.end_lineno or node.lineno
    before = lines_of(file)[line - 1].encode()[: node.col_offset]
    after = lines_of(file)[end_line - 1].encode()[node.end_col_offset :]
    if before.endswith(b"(") and after.startswith(b")") and not before[:-1].rstrip()[-1:].isalnum():
        end = (node.end_col_offset or 0) + 1
        return Edit(end_line, end, end_line, end, f".{method}()")
    return replace(node, f"({text}).{method}()")


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
        after[edit.line - 1 : edit.end_line] = [first + edit.text + last]
    if insert_after is not None:
        after.insert(insert_after[0] + len(after) - len(before), insert_after[1])
    name = shorten(file)
    changed = difflib.unified_diff(before, after, name, name, n=0)
    return "".join(line if line.endswith("\n") else line + "\n" for line in changed)


def indentation(file: str, line: int) -> str:
    """The white space before a line."""
    text = linecache.getline(file, line)
    return text[: len(text) - len(text.lstrip())]


def self_reference_free(node: ast.expr, target: Target) -> list[ast.expr]:
    """The largest parts of a sum that do not mention the target and are more than numbers: what is added to it."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub, ast.Mult, ast.Div)):
        if isinstance(node.op, (ast.Mult, ast.Div)) and not _mentions(node, target):
            return [side for side in (node.left, node.right) if _is_tensor_like(side)][-1:]
        return [*self_reference_free(node.left, target), *self_reference_free(node.right, target)]
    if _mentions(node, target) or not _is_tensor_like(node):
        return []
    return [node]


def _is_tensor_like(node: ast.expr) -> bool:
    """Whether an expression may be a tensor: a number is none, and neither is a product of numbers."""
    if isinstance(node, ast.UnaryOp):
        return _is_tensor_like(node.operand)
    if isinstance(node, ast.BinOp):
        return _is_tensor_like(node.left) or _is_tensor_like(node.right)
    if isinstance(node, ast.Call) and name_of(node.func) in dir(builtins):
        return False
    return not isinstance(node, ast.Constant)


Rewriter = Callable[[Statement], str]
