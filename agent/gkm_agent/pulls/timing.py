"""The clock beside a pull: how long each of its stages took, and what verification came to."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Self

from gkm.images.pulling.pull import Progress, PullStage
from gkm.images.signatures.verify import Verdict

from gkm_agent.telemetry import metrics

_NAMES = {PullStage.DOWNLOADING: "download", PullStage.EXTRACTING: "extract"}


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Time one stage: `resolve` or `describe`."""
    began = time.monotonic()
    try:
        yield
    finally:
        metrics.PULL_SECONDS.labels(name).observe(time.monotonic() - began)


def verified(verify: Callable[[], Verdict]) -> Verdict:
    """Return the verdict that `verify` returns, timed and counted by what it is."""
    began, result = time.monotonic(), "error"
    try:
        verdict = verify()
        result = result_of(verdict)
        return verdict
    finally:
        metrics.VERIFY_SECONDS.labels(result).observe(time.monotonic() - began)


def result_of(verdict: Verdict) -> str:
    """Return the label of a verdict."""
    if not verdict.allowed:
        return "refused"
    return "verified" if verdict.verified else "admitted"


class FetchTimer:
    """Times the stages of one fetch, told from its progress; one that finds the entry there has none.

    The last stage ends with the fetch, so that of putting an entry into the store belongs to it.
    """

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._stage: PullStage | None = None
        self._began = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def record(self, stage: PullStage, percent: int) -> None:
        """Pass on what a fetch tells; it may come from several threads, one at a time."""
        if stage is not self._stage:
            self._end()
            self._stage, self._began = stage, time.monotonic()
        self._progress(stage, percent)

    def _end(self) -> None:
        if self._stage is not None:
            metrics.PULL_SECONDS.labels(_NAMES[self._stage]).observe(time.monotonic() - self._began)
