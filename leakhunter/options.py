"""Every option, its default, its environment variable and its meaning, in one place."""

from __future__ import annotations

import dataclasses
import difflib
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from leakhunter.findings import Finding

PREFIX = "LEAKHUNTER_"
ACTIONS = ("log", "warn", "raise")

_TRUE = {"1", "true", "yes", "on"}
_FALSE = {"0", "false", "no", "off"}


@dataclass(frozen=True)
class Options:
    """How a loop is watched. An argument of ``watch`` wins over its environment variable, and that over the default.

    Attributes:
        enabled: ``False`` makes the watch hand the iterable through and measure nothing. ``LEAKHUNTER_ENABLED``.
        warmup: Steps that are never judged. ``None`` is 8, or fewer for a loop known to be short.
            ``LEAKHUNTER_WARMUP``.
        block: Steps in the shortest block whose minimum is compared; growth must show in five blocks in a row.
            Longer blocks are tried as the loop goes on. ``None`` is 4, or fewer for a short loop.
            ``LEAKHUNTER_BLOCK``.
        floor: Growth slower than this, in bytes per step, is ignored. ``LEAKHUNTER_FLOOR``.
        probe: Steps for which evidence is gathered after suspicion, at least 3. ``LEAKHUNTER_PROBE``.
        cooldown: Steps without a new probe after one that found nothing; doubled each time. ``LEAKHUNTER_COOLDOWN``.
        on_leak: What happens when a finding of severity ``leak`` or ``growth`` is made: ``"log"`` (always done),
            ``"warn"`` (also a ``LeakWarning``), ``"raise"`` (``LeakError`` out of the loop), or a function that is
            called with the finding. ``LEAKHUNTER_ON_LEAK``.
        report: Where to write the report as JSON when the loop ends. ``LEAKHUNTER_REPORT``.

    """

    enabled: bool = True
    warmup: int | None = None
    block: int | None = None
    floor: float = 32.0
    probe: int | None = None
    cooldown: int = 24
    on_leak: str | Callable[[Finding], object] = "log"
    report: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.enabled, bool):
            raise ValueError(f"enabled is {self.enabled!r}: give True or False")
        _whole("warmup", self.warmup, 0)
        _whole("block", self.block, 1)
        _whole("probe", self.probe, 3)
        _whole("cooldown", self.cooldown, 0)
        if not _is_number(self.floor) or not 0 <= self.floor < math.inf:
            raise ValueError(f"floor is {self.floor!r}: give a number of at least 0")
        if self.report is not None and not isinstance(self.report, (str, os.PathLike)):
            raise ValueError(f"report is {self.report!r}: give the path of a file to write")
        if not callable(self.on_leak) and self.on_leak not in ACTIONS:
            raise ValueError(f"on_leak is {self.on_leak!r}: give one of {', '.join(ACTIONS)} or a function")

    @classmethod
    def resolve(cls, **given: Any) -> Options:
        """Options from arguments, then the environment, then defaults.

        Raises:
            TypeError: an argument is no option.
            ValueError: an argument or environment variable has a value that is none.

        """
        fields = {f.name: f for f in dataclasses.fields(cls)}
        for name in given:
            if name not in fields:
                near = difflib.get_close_matches(name, fields, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"the options are {', '.join(fields)}"
                raise TypeError(f"leakhunter has no option {name!r}: {hint}")
        values = {
            name: _read(name, str(f.type))
            for name, f in fields.items()
            if name not in given and PREFIX + name.upper() in os.environ
        }
        try:
            return cls(**{**values, **given})
        except ValueError as error:
            name = str(error).split(" ", 1)[0]
            if name not in values:
                raise
            raise ValueError(f"the environment variable {PREFIX}{name.upper()} is wrong: {error}") from None

    def to_dict(self) -> dict[str, Any]:
        """The options as JSON values; a function is its name."""
        plain = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        if callable(self.on_leak):
            plain["on_leak"] = getattr(self.on_leak, "__qualname__", type(self.on_leak).__qualname__)
        if self.report is not None:
            plain["report"] = os.fspath(self.report)
        return plain


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _whole(name: str, value: int | None, least: int) -> None:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < least):
        raise ValueError(f"{name} is {value!r}: give a whole number of at least {least}")


def _read(name: str, kind: str) -> Any:
    variable = PREFIX + name.upper()
    text = os.environ[variable].strip()
    try:
        if kind == "bool":
            return {**dict.fromkeys(_TRUE, True), **dict.fromkeys(_FALSE, False)}[text.lower()]
        if kind.startswith("int"):
            return int(text)
        if kind == "float":
            return float(text)
    except (KeyError, ValueError):
        wanted = {"bool": "1 or 0", "float": "a number"}.get(kind, "a whole number")
        raise ValueError(f"the environment variable {variable} is {text!r}: give {wanted}") from None
    # A variable set to nothing asks for no report.
    return None if name == "report" and not text else text
