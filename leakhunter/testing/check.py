"""The check of one test, from before its fixtures are set up to after they are gone."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import os
import sys
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

import pytest

from leakhunter.testing.settings import Settings

if TYPE_CHECKING:
    from leakhunter.testing.loops import Loops
    from leakhunter.testing.outcome import Outcome
    from leakhunter.testing.readings import Living
    from leakhunter.testing.repeats import Repeats


class Check:
    """What is asked of one test and what is known of it so far.

    Args:
        settings: How it is checked.
        marked: Whether its body is to be repeated.
        knows: Whether leaks with these signatures are known and do not fail.

    """

    def __init__(self, settings: Settings, marked: bool, knows: Callable[[Collection[str]], bool]) -> None:
        self.settings = settings
        self.marked = marked
        self.knows = knows
        self.loops: Loops | None = None
        # what the body or its loops showed, and what was there after the test
        self.inside: Outcome | None = None
        self.after: Outcome | None = None
        # whether the body is repeated from inside, by whoever calls it
        self.inner = False
        # why the test cannot be checked, empty when it can
        self.unchecked = "it did not run"
        # the run of the body that failed after the first had passed, 0 when none did
        self.broken = 0
        self._before: Living | None = None
        self._frozen = False
        self._globs: dict[str, Any] = {}
        self._repeating = False

    # ----------------------------------------------------------------------------------------------------------
    # the body

    def repeats(self, item: pytest.Item) -> Repeats | None:
        """The further runs of the body, None when there are to be none."""
        if not self.marked or self._repeating or self.loops is not None:
            return None
        if self.settings.fresh_fixtures or not self.settings.repeats:
            return None
        from leakhunter.testing.repeats import Repeats

        return Repeats(self.settings, self.settings.warmup - 1, "grew", _place(item))

    def repeat(self, item: pytest.Item, body: Callable[[], Any]) -> None:
        """Run the body again and again, after its first run has passed."""
        repeats = self.repeats(item)
        if repeats is None:
            return
        from leakhunter.testing.readings import same_random_state

        self._repeating = True
        try:
            with same_random_state(), contextlib.closing(iter(repeats)) as runs:
                for _ in runs:
                    body()
        except BaseException:
            self.broken = repeats.runs + 1
            raise
        finally:
            self._repeating = False
        self.inside = repeats.outcome

    async def repeat_async(self, item: pytest.Item, body: Callable[[], Any]) -> None:
        """The same for a body that is awaited."""
        repeats = self.repeats(item)
        if repeats is None:
            return
        from leakhunter.testing.readings import same_random_state

        self._repeating = True
        try:
            with same_random_state(), contextlib.closing(iter(repeats)) as runs:
                for _ in runs:
                    await body()
        except BaseException:
            self.broken = repeats.runs + 1
            raise
        finally:
            self._repeating = False
        self.inside = repeats.outcome

    def conclude_body(self, item: pytest.Item) -> Outcome | None:
        """What the body of a test that passed shows, as it counts: known, ignored and expected leaks do not fail."""
        if self.loops is not None and self.inside is None:
            self.inside = self.loops.outcome()
        if self.inside is not None:
            self.inside = self._counted(self.inside, item)
        return self.inside

    def _counted(self, outcome: Outcome, item: pytest.Item) -> Outcome:
        from leakhunter.testing import outcome as words

        settings = self.settings
        expects = settings.expect_leak and (outcome.question == "outlived") == settings.fresh_fixtures
        if outcome.kind == words.LEAK and settings.ignore:
            ignored = [_ignored(found, settings.ignore) for found in outcome.findings]
            if ignored and all(ignored):
                outcome = dataclasses.replace(outcome, kind=words.IGNORED, reason=ignored[0])
        if expects and outcome.kind == words.LEAK:
            return dataclasses.replace(outcome, kind=words.EXPECTED, reason=settings.expect_leak)
        if expects and outcome.kind in (words.CLEAN, words.NOTED):
            return dataclasses.replace(outcome, kind=words.GONE, reason=settings.expect_leak)
        if outcome.kind == words.LEAK and self.knows(words.signatures(outcome, item.nodeid)):
            return dataclasses.replace(outcome, kind=words.KNOWN, reason="in the baseline")
        return outcome

    # ----------------------------------------------------------------------------------------------------------
    # the test with its fixtures

    def begin(self, item: pytest.Item, frozen: bool) -> None:
        """Before the fixtures are set up. ``frozen`` says whether readings must be quick."""
        from leakhunter.testing import readings

        if frozen:
            readings.freeze()
        else:
            readings.thaw()
        self._frozen = frozen
        if isinstance(item, pytest.DoctestItem):
            # Doctest empties them after a run.
            self._globs = dict(item.dtest.globs)
        self._before = readings.living(self.settings.device)

    def finish(self, item: pytest.Item, nextitem: pytest.Item | None) -> None:
        """After the fixtures are gone: what is left that was not there before, and whether it piles up."""
        explained = self.inside is not None and self.inside.kind not in ("clean", "unmeasured", "inconclusive")
        if self.unchecked or self._before is None or explained:
            return
        from leakhunter.testing.outcome import CLEAN, INCONCLUSIVE, UNMEASURED, Outcome
        from leakhunter.testing.readings import is_frozen, living, settle

        before, self._before = self._before, None
        if is_frozen() != self._frozen:
            # Holders were looked for meanwhile, in all that lives: what was there before is not known any more.
            return
        if "torch" not in sys.modules:
            self.after = Outcome(UNMEASURED, "outlived", reason="torch was not loaded")
            return
        left = living(self.settings.device).since(before)
        cyclic = 0
        if left:
            _drop_instance(item)
            left = living(self.settings.device).since(before)
            settle()
            remaining = living(self.settings.device).since(before)
            cyclic, left = len(left) - len(remaining), remaining
        if not left and not self.settings.fresh_fixtures:
            self.after = Outcome(CLEAN, "outlived", cyclic=cyclic)
        elif not self.settings.repeats:
            self.after = Outcome(
                INCONCLUSIVE, "outlived", reason=f"{len(left)} tensors outlived it, and it is not repeated"
            )
        else:
            self.after = self._counted(dataclasses.replace(self._again(item, nextitem), cyclic=cyclic), item)

    def end(self) -> None:
        """Tests that are not checked see gc as it is."""
        from leakhunter.testing.readings import thaw

        thaw()

    def _again(self, item: pytest.Item, nextitem: pytest.Item | None) -> Outcome:
        """Run the whole test again, fixtures and all, until nothing is added or it is certain that something is."""
        from leakhunter.testing.outcome import INCONCLUSIVE, Outcome
        from leakhunter.testing.readings import same_random_state
        from leakhunter.testing.repeats import Repeats

        repeats = Repeats(self.settings, 0, "outlived", _place(item))
        self._repeating = True
        sibling = copy.copy(item)
        failed = ""
        try:
            with same_random_state(), contextlib.closing(iter(repeats)) as runs:
                for _ in runs:
                    failed = _run_again(item, sibling, self._globs)
                    if failed:
                        break
            item.session._setupstate.teardown_exact(nextitem)
        finally:
            self._repeating = False
        if failed or repeats.outcome is None:
            return Outcome(INCONCLUSIVE, "outlived", reason=f"tensors outlived it, and run again it {failed}")
        return repeats.outcome

    @property
    def repeating(self) -> bool:
        """Whether a run goes on that pytest is not to report."""
        return self._repeating


def _run_again(item: pytest.Item, sibling: pytest.Item, globs: dict[str, Any]) -> str:
    """Run a test once more as if ``sibling`` came next, so that wider fixtures stay; why it failed, or nothing."""
    from _pytest.runner import runtestprotocol

    properties = len(item.user_properties)
    if isinstance(item, pytest.DoctestItem):
        item.dtest.globs.update(globs)
    try:
        reports = runtestprotocol(item, log=False, nextitem=sibling)
    finally:
        del item.user_properties[properties:], item._report_sections[:]
        _drop_instance(item)
    return next((f"{report.outcome} in its {report.when}" for report in reports if not report.passed), "")


def _drop_instance(item: pytest.Item) -> None:
    """Pytest keeps the object of a test class with each of its tests, and whatever the test set on it."""
    if getattr(item, "_instance", None) is not None and isinstance(item, pytest.Function):
        del item._instance
        item.__dict__.pop("_obj", None)


def _ignored(found: Any, ignore: Any) -> str:
    """Why a finding is ignored, nothing when it is not."""
    for name, reason in ignore.items():
        in_path = name in found.holder.path or any(name == node.type for node in found.holder.nodes)
        if name in (found.pattern, found.signature) or in_path:
            return str(reason)
    return ""


def _place(item: pytest.Item) -> str:
    file, line = place_of(item)
    return f"{file}:{line}"


def place_of(item: pytest.Item) -> tuple[str, int]:
    """File and line of a test, as a person types them from here."""
    from leakhunter.origin import shorten

    path, line, _ = item.location
    return shorten(os.fspath(item.config.rootpath / path)), (line or 0) + 1
