"""The metrics of a pull: the duration of its stages, and the result of verification."""

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
    """Return the verdict of `verify`; record its duration under its result."""
    began, result = time.monotonic(), "error"
    try:
        verdict = verify()
        result = result_of(verdict)
        return verdict
    finally:
        metrics.VERIFY_SECONDS.labels(result).observe(time.monotonic() - began)


def result_of(verdict: Verdict) -> str:
    """Return the metric label of a verdict."""
    if not verdict.allowed:
        return "refused"
    return "verified" if verdict.verified else "admitted"


class FetchTimer:
    """Measures the stages of one fetch from its progress. A fetch that finds the entry has no stages.

    The last stage ends with the fetch, so it includes the rename of the entry into the store.
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
        """Record the progress of the fetch and pass it on; several threads may call it, one at a time."""
        if stage is not self._stage:
            self._end()
            self._stage, self._began = stage, time.monotonic()
        self._progress(stage, percent)

    def _end(self) -> None:
        if self._stage is not None:
            metrics.PULL_SECONDS.labels(_NAMES[self._stage]).observe(time.monotonic() - self._began)
