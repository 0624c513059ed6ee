"""Tests whose body somebody else calls: unittest between ``setUp`` and ``tearDown``, Hypothesis for every example."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from leakhunter.testing.check import Check


@contextlib.contextmanager
def repeated_inside(item: pytest.Item, check: Check) -> Iterator[None]:
    """While this lasts, such a test repeats itself; others are left to pytest's own call."""
    from _pytest.unittest import TestCaseFunction

    if isinstance(item, TestCaseFunction):
        with _unittest(item, check):
            yield
    elif hasattr(getattr(item, "obj", None), "hypothesis"):
        with _examples(item, check):
            yield
    else:
        yield


@contextlib.contextmanager
def _unittest(item: Any, check: Check) -> Iterator[None]:
    body, instance = item.obj, item.instance
    check.inner = True
    if inspect.iscoroutinefunction(body):

        @functools.wraps(body)
        async def repeated_async() -> None:
            await body()
            await check.repeat_async(item, body)

        setattr(instance, item.name, repeated_async)
        try:
            yield
        finally:
            delattr(instance, item.name)
        return

    @functools.wraps(body)
    def repeated() -> None:
        body()
        check.repeat(item, body)

    item.obj = repeated
    try:
        yield
    finally:
        item.obj = body


@contextlib.contextmanager
def _examples(item: Any, check: Check) -> Iterator[None]:
    """Every example is a step of a loop, because no two need the same memory."""
    from leakhunter.testing.loops import Loops
    from leakhunter.testing.repeats import silent

    handle = item.obj.hypothesis
    inner = handle.inner_test
    if check.loops is None:
        check.loops = Loops(check.settings)
    hunt = check.loops.watch()

    @functools.wraps(inner)
    def example(*arguments: Any, **values: Any) -> Any:
        result = inner(*arguments, **values)
        hunt.step()
        return result

    check.inner = True
    handle.inner_test = example
    try:
        with silent(), hunt:
            yield
    finally:
        handle.inner_test = inner
