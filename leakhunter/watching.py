"""The front door: watch an iterable, a block of code, a generator or a function."""

from __future__ import annotations

import functools
import inspect
import logging
import os
import sys
import threading
import warnings
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from types import TracebackType
from typing import Any, TypeVar, overload

import torch

from leakhunter.findings import Finding, Report
from leakhunter.hunt import Hunt, environment
from leakhunter.options import Options
from leakhunter.origin import caller, shorten
from leakhunter.report import text

logger = logging.getLogger("leakhunter")

F = TypeVar("F", bound=Callable[..., Any])


class LeakWarning(UserWarning):
    """A finding of severity ``leak`` or ``growth``, with ``on_leak="warn"``."""


class LeakError(RuntimeError):
    """A finding of severity ``leak`` or ``growth``, with ``on_leak="raise"``; ``finding`` is what was found."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(text.headline(finding))
        self.finding = finding


class _Stack(threading.local):
    """The watches whose loops are running in this thread, the outermost first."""

    def __init__(self) -> None:
        self.active: list[Watch] = []


_stack = _Stack()
# Signatures that a running watch has logged, so that an epoch watch does not repeat its step watch.
_logged: dict[str, int] = {}


class Watch:
    """Watches one loop. Made by :func:`watch`.

    Iterating over it iterates over what it wraps; each request for the next item ends a step. Attributes and
    ``len()`` that it does not have itself are those of what it wraps.
    """

    def __init__(self, iterable: Any, options: Options, place: str) -> None:
        self._iterable = iterable
        self._options = options
        self._place = place
        self._hunt: Hunt | None = None
        self._off = not options.enabled
        self._current: Iterator[Any] | None = None
        self._process = os.getpid()
        self._said_end = -1

    # ----------------------------------------------------------------------------------------------------------
    # the loop

    def __iter__(self) -> Iterator[Any]:
        if self._iterable is None:
            raise TypeError(
                "this watch wraps nothing: use watch(iterable), or call step() at the end of each step"
            )
        return self._iterate(iter(self._iterable))

    def _iterate(self, iterator: Iterator[Any]) -> Iterator[Any]:
        self._start()
        first = True
        try:
            while True:
                if not first:
                    self.step()
                first = False
                try:
                    item = next(iterator)
                except StopIteration:
                    return
                yield item
                # The loop's own variable may live on, ours must not: it would keep the batch for another step.
                del item
        finally:
            self._finish()

    def __next__(self) -> Any:
        if self._current is None:
            self._current = iter(self)
        return next(self._current)

    def __aiter__(self) -> AsyncIterator[Any]:
        if self._iterable is None:
            raise TypeError(
                "this watch wraps nothing: use watch(iterable), or call step() at the end of each step"
            )
        return self._iterate_async(aiter(self._iterable))

    async def _iterate_async(self, iterator: AsyncIterator[Any]) -> AsyncIterator[Any]:
        self._start()
        first = True
        try:
            while True:
                if not first:
                    self.step()
                first = False
                try:
                    item = await anext(iterator)
                except StopAsyncIteration:
                    return
                yield item
                del item
        finally:
            self._finish()

    def __enter__(self) -> Watch:
        self._start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._finish()

    def __call__(self, function: F) -> F:
        """Use as a decorator of a generator function: every call of it is watched."""
        watched: F = _decorated(function, self._options)
        return watched

    def __len__(self) -> int:
        return len(self._iterable)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or self.__dict__.get("_iterable") is None:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self._iterable, name)

    # ----------------------------------------------------------------------------------------------------------
    # what the loop calls; none of it lets an error of ours out

    def step(self) -> None:
        """End of a step, called at a quiet point.

        Raises:
            LeakError: with ``on_leak="raise"`` only.
            LeakWarning: with ``on_leak="warn"`` where the program has made warnings errors.

        """
        if self._off or os.getpid() != self._process:
            return
        if self._hunt is None:
            self._begin()
        try:
            if self._hunt is not None:
                self._hunt.step()
                self._tell()
                if self._hunt.steps == 1 or self._hunt.steps == self._hunt.warmup + 1:
                    self._listen()
        except (LeakError, LeakWarning):
            raise
        except Exception as error:
            self._fail(error)

    def _start(self) -> None:
        """A loop begins, inside those that this thread is in already."""
        if self._off or os.getpid() != self._process:
            return
        for outer in _stack.active:
            if outer is not self and outer._hunt is not None:
                outer._hunt.coarse = True
        if self not in _stack.active:
            _stack.active.append(self)
        self._begin()

    def _begin(self) -> None:
        if self._hunt is not None:
            return
        try:
            self._hunt = Hunt(self._options, self._watched(), self._planned())
            logger.info(text.opening(self._hunt))
        except Exception as error:
            self._fail(error)

    def _finish(self) -> None:
        if sys is None or sys.is_finalizing():
            # The interpreter ends; what we need may be gone already.
            return
        if self in _stack.active:
            _stack.active.remove(self)
        if self._off or self._hunt is None or os.getpid() != self._process:
            return
        try:
            self._hunt.finish()
            self._tell()
            self._close()
        except (LeakError, LeakWarning):
            self._close()
            raise
        except Exception as error:
            self._fail(error)

    def _close(self) -> None:
        assert self._hunt is not None
        if self._options.report is not None:
            self._write_report(self._options.report)
        if self._said_end != self._hunt.steps:
            self._said_end = self._hunt.steps
            report = self._hunt.report()
            logger.log(logging.WARNING if report.open else logging.INFO, text.closing(report))
        if not _stack.active:
            _logged.clear()

    def _write_report(self, path: str | os.PathLike[str]) -> None:
        try:
            self.report.to_json(path)
        except OSError as error:
            logger.error("leakhunter could not write its report to %s (%s)", os.fspath(path), error)

    def _fail(self, error: Exception) -> None:
        """An error of ours: say it once, switch the watch off, let the loop go on."""
        self._off = True
        # The traceback would keep our frames, and they the objects of a capture.
        error.__traceback__ = None
        logger.error(
            "leakhunter has switched itself off after an error of its own (%s: %s); the loop is not affected",
            type(error).__name__,
            error,
        )
        if self in _stack.active:
            _stack.active.remove(self)
        try:
            if self._hunt is not None:
                self._hunt.abandon_probe()
        except Exception:
            logger.debug("leakhunter could not clean up after an error of its own")

    # ----------------------------------------------------------------------------------------------------------
    # what it says

    @property
    def report(self) -> Report:
        """What is known now; during the loop as well as after it."""
        if self._hunt is not None:
            return self._hunt.report()
        note = "leakhunter is switched off" if self._off else "nothing was watched: the loop made no step"
        return Report(
            self._watched(), 0, 0.0, notes=(note,), options=self._options.to_dict(), environment=environment()
        )

    def _watched(self) -> str:
        what = "a loop" if self._iterable is None else type(self._iterable).__name__
        return f"{what} at {self._place}"

    def _planned(self) -> int | None:
        try:
            return len(self._iterable)
        except Exception:  # whatever the iterable's own __len__ does
            return None

    def _listen(self) -> None:
        """Hear of it when a CUDA device in use is full."""
        if torch.cuda.is_initialized():
            from leakhunter import oom

            oom.listen(self)

    def out_of_memory(self, device: str, requested: int, total: int) -> None:
        """Say what fills a device, before the error that follows. Called by PyTorch's allocator; raises nothing."""
        if self._off or self._hunt is None or os.getpid() != self._process:
            return
        try:
            full = self._hunt.out_of_memory(device, requested, total)
            if full is not None:
                logger.error("%s", text.out_of_memory(full))
                if self._options.report is not None:
                    self._write_report(self._options.report)
        except Exception as error:
            logger.error("leakhunter could not say what filled %s (%s: %s)", device, type(error).__name__, error)

    def _tell(self) -> None:
        """Say what was found since the last step."""
        assert self._hunt is not None
        for finding in self._hunt.fresh_findings():
            self._found(finding)

    def _found(self, finding: Finding) -> None:
        repeated = finding.signature in _logged
        _logged[finding.signature] = finding.step
        if not finding.accuses:
            if not repeated:
                logger.info(text.finding(finding))
            return
        if not repeated:
            logger.warning(text.finding(finding))
        action = self._options.on_leak
        if callable(action):
            self._call(action, finding)
        elif action == "warn":
            warnings.warn(text.headline(finding), LeakWarning, stacklevel=2)
        elif action == "raise":
            raise LeakError(finding)

    def _call(self, action: Callable[[Finding], object], finding: Finding) -> None:
        try:
            action(finding)
        except LeakError:
            raise
        except Exception as error:
            logger.error("the on_leak function raised %s: %s", type(error).__name__, error)


def _place() -> str:
    frame = caller(sys._getframe(1))
    return f"{shorten(frame.f_code.co_filename)}:{frame.f_lineno}" if frame is not None else "?"


@overload
def watch(iterable: None = None, /, **options: Any) -> Watch: ...
@overload
def watch(iterable: Iterable[Any], /, **options: Any) -> Watch: ...
@overload
def watch(iterable: F, /, **options: Any) -> F: ...
def watch(iterable: Any = None, /, **options: Any) -> Any:
    """Watch a loop for memory that grows from step to step.

    Three forms: ``for batch in watch(loader)`` wraps any iterable; ``with watch() as hunt`` lets you own the loop and
    call ``hunt.step()`` at the end of each step; ``@watch`` decorates a generator function.

    Args:
        iterable: What to iterate over, a generator function to decorate, or nothing.
        **options: Fields of :class:`leakhunter.Options`.

    Raises:
        TypeError: the argument cannot be iterated over, or an option does not exist.
        ValueError: an option has a value that is none.

    """
    chosen = Options.resolve(**options)
    if inspect.isgeneratorfunction(iterable) or inspect.isasyncgenfunction(iterable):
        return _decorated(iterable, chosen)
    ways = ("__iter__", "__aiter__", "__getitem__")
    if iterable is not None and not any(hasattr(iterable, way) for way in ways):
        kind = type(iterable).__name__
        raise TypeError(
            f"watch() was given a {kind}: give it what you iterate over, such as the DataLoader or a range"
        )
    return Watch(iterable, chosen, _place())


def _decorated(function: Any, options: Options) -> Any:
    if not (inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)):
        raise TypeError("watch decorates generator functions: for a plain function, use check(function)")
    code = function.__code__
    place = f"{shorten(code.co_filename)}:{code.co_firstlineno}"

    @functools.wraps(function)
    def watched(*args: Any, **kwargs: Any) -> Watch:
        return Watch(function(*args, **kwargs), options, place)

    return watched


def check(function: Callable[[], Any], repeats: int = 20, **options: Any) -> Report:
    """Call ``function`` ``repeats`` times, each call a step, and report.

    Args:
        function: What to call, without arguments.
        repeats: How many calls; 20 suffice for a verdict.
        **options: Fields of :class:`leakhunter.Options`.

    Raises:
        TypeError: ``function`` cannot be called.
        ValueError: ``repeats`` is less than 1.

    """
    if not callable(function):
        raise TypeError(
            f"check() was given a {type(function).__name__}: give it a function without arguments"
        )
    if repeats < 1:
        raise ValueError(f"repeats is {repeats!r}: give a number of at least 1")
    watched = Watch(range(repeats), Options.resolve(**options), _place())
    for _ in watched:
        function()
    return watched.report
