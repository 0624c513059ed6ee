"""What is asked of one test, from the command line, its markers, the ini file and the defaults, in this order."""

from __future__ import annotations

import dataclasses
import difflib
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

GROUP = "leakhunter: memory leaks (command line, then marker, then ini, then default)"
CYCLES = ("tensors", "all", "off")
_UNITS = {"": 1, "b": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30, "kb": 10**3, "mb": 10**6, "gb": 10**9}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)", re.IGNORECASE)
_DEVICE = re.compile(r"all|[a-z]+(:\d+)?")


@dataclass(frozen=True)
class Settings:
    """How one test is checked.

    Attributes:
        per_call: Bytes by which each call may grow, such as ``4096`` or ``"4 KiB"``. Where given, tensors are counted
            only when ``tensors`` is given too.
        tensors: Tensors by which each call may grow. Where given, bytes are counted only when ``per_call`` is too.
        warmup: Calls that are not judged, at least 1.
        repeats: Calls that are judged: 0, or at least 3.
        device: Whose memory is judged: ``"cpu"``, ``"cuda"``, ``"cuda:0"``, ``"all"``, or ``"used"`` for those that the
            test uses.
        ignore: Leaks that are listed and do not fail: a pattern, signature, or part of a holder, and the reason.
        expect_leak: Why the test leaks; it fails when it does so no more.
        cycles: Reference cycles that gc had to free are judged when they hold ``"tensors"``, ``"all"``, or ``"off"``.
        fresh_fixtures: Whether fixtures are set up again for every call.

    """

    per_call: int | None = None
    tensors: int | None = None
    warmup: int = 2
    repeats: int = 5
    device: str = "used"
    ignore: Mapping[str, str] = field(default_factory=dict)
    expect_leak: str = ""
    cycles: str = "tensors"
    fresh_fixtures: bool = False

    @property
    def most_tensors(self) -> float:
        """Tensors by which each call may grow."""
        return self.tensors if self.tensors is not None else 0.0 if self.per_call is None else math.inf

    @property
    def most_bytes(self) -> float:
        """Bytes by which each call may grow."""
        return self.per_call if self.per_call is not None else 0.0 if self.tensors is None else math.inf

    def watches(self, quantity: str) -> bool:
        """Whether the growth of a meter's quantity is judged, by its name."""
        if self.device in ("used", "all"):
            return True
        on_host = not re.match(r"(cuda|xpu|mps|mtia|hpu|privateuseone)\b", quantity)
        return on_host if self.device == "cpu" else quantity.startswith(self.device)


def size(value: object) -> int:
    """Bytes: a whole number, or text such as ``"4 KiB"``."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    match = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None or match[2].lower() not in _UNITS:
        raise ValueError('give bytes, or a size such as "4 KiB"')
    return round(float(match[1]) * _UNITS[match[2].lower()])


def _count(least: int) -> Callable[[object], int]:
    def read(value: object) -> int:
        number = int(value) if isinstance(value, str) and value.strip().isdigit() else value
        if not isinstance(number, int) or isinstance(number, bool) or number < least:
            raise ValueError(f"give a whole number of at least {least}")
        return number

    return read


def _repeats(value: object) -> int:
    number = _count(0)(value)
    if 0 < number < 3:
        raise ValueError("give at least 3, because fewer cannot tell growth from chance, or 0 for none")
    return number


def _device(value: object) -> str:
    if not isinstance(value, str) or not _DEVICE.fullmatch(value):
        raise ValueError('give "cpu", "cuda", "cuda:0" or "all"')
    return value


def _cycles(value: object) -> str:
    if value not in CYCLES:
        raise ValueError(f"give one of {', '.join(CYCLES)}")
    return str(value)


def _reason(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("give the reason, or the issue, as text")
    return value


def _ignore(value: object) -> Mapping[str, str]:
    if isinstance(value, (list, tuple)) and all(isinstance(line, str) for line in value):
        parts = [line.partition("=") for line in value]
        value = {name.strip(): reason.strip() for name, _, reason in parts}
    if not isinstance(value, Mapping) or not all(
        isinstance(text, str) and text for pair in value.items() for text in pair
    ):
        raise ValueError('give what is ignored and why, as {"LH401": "bounded, issue 123"}, or LH401=reason in the ini')
    return dict(value)


def _truth(value: object) -> bool:
    words = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}
    found = words.get(value.lower()) if isinstance(value, str) else value
    if not isinstance(found, bool):
        raise ValueError("give True or False")
    return found


READ: dict[str, Callable[[object], Any]] = {
    "per_call": size,
    "tensors": _count(0),
    "warmup": _count(1),
    "repeats": _repeats,
    "device": _device,
    "ignore": _ignore,
    "expect_leak": _reason,
    "cycles": _cycles,
    "fresh_fixtures": _truth,
}
HELP = {
    "per_call": "bytes by which each call may grow, such as '4 KiB'",
    "tensors": "tensors by which each call may grow",
    "warmup": "calls that are not judged",
    "repeats": "calls that are judged; 0 repeats nothing",
    "device": "whose memory is judged: cpu, cuda, cuda:0, all",
    "ignore": "leaks that do not fail: a pattern, signature or holder, and the reason",
    "cycles": "cycles that gc had to free: tensors, all or off",
    "fresh_fixtures": "set fixtures up again for every call",
}


def read(name: str, value: object, where: str) -> Any:
    """A setting as its type says. Raises ``pytest.UsageError`` when it is none."""
    if name not in READ:
        near = difflib.get_close_matches(name, READ, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"the options are {', '.join(READ)}"
        raise pytest.UsageError(f"{where}: leakhunter has no option {name!r}: {hint}")
    try:
        return READ[name](value)
    except ValueError as error:
        raise pytest.UsageError(f"{where}: {name} is {value!r}: {error}") from None


def add_options(parser: pytest.Parser) -> None:
    """The command line and ini forms of the settings."""
    group = parser.getgroup("leakhunter", GROUP)
    for name, words in HELP.items():
        option = f"--leakhunter-{name.replace('_', '-')}"
        if name == "fresh_fixtures":
            group.addoption(option, action="store_const", const=True, default=None, help=words)
        elif name == "ignore":
            group.addoption(option, action="append", metavar="NAME=REASON", help=words)
        else:
            group.addoption(option, metavar="N" if READ[name] is not size else "SIZE", help=words)
        kind: Literal["linelist", "string"] = "linelist" if name == "ignore" else "string"
        parser.addini(f"leakhunter_{name}", words, type=kind, default=None)


def from_configuration(config: pytest.Config) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the command line and what the ini file say."""
    command, ini = {}, {}
    for name in HELP:
        given = config.getoption(f"leakhunter_{name}")
        if given is not None:
            command[name] = read(name, given, f"--leakhunter-{name.replace('_', '-')}")
        written = config.getini(f"leakhunter_{name}")
        if written:
            ini[name] = read(name, written, f"leakhunter_{name} in the ini file")
    return command, ini


def from_markers(item: pytest.Item) -> dict[str, Any]:
    """What the markers of a test say, the closest first."""
    found: dict[str, Any] = {}
    for marker in item.iter_markers("leakhunter"):
        if marker.args:
            raise pytest.UsageError(f"{item.nodeid}: the leakhunter marker takes keywords only: write per_call=...")
        for name, value in marker.kwargs.items():
            if name not in found:
                found[name] = read(name, value, item.nodeid)
    return found


def settings_of(item: pytest.Item, command: Mapping[str, Any], ini: Mapping[str, Any]) -> Settings:
    """How a test is checked."""
    return dataclasses.replace(Settings(), **{**ini, **from_markers(item), **command})
