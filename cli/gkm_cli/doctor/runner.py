"""Runs checks one after another, each within a deadline."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Protocol

from gkm.api import msgspec_warmup

from gkm_cli.clusters.reads import Unreadable
from gkm_cli.doctor.findings import Finding, Severity
from gkm_cli.doctor.reader import ClusterReader

CHECK_SECONDS = 60.0
MAX_FINDINGS = 1000
MAX_TEXT = 2000
"""Characters of one text in a finding. A Kubernetes name has at most 253."""


class Check(Protocol):
    """One question about a cluster."""

    @property
    def name(self) -> str:
        """Return its area and subject, which never change: `domains/terminating`."""

    @property
    def passed(self) -> str:
        """Return the sentence for a check without findings."""

    @property
    def cluster_wide(self) -> bool:
        """Return whether it needs objects outside of one namespace."""

    def run(self, reader: ClusterReader) -> Iterator[Finding]:
        """Yield the findings; none if all is well.

        Raises:
            Unreadable: it cannot read what it needs. Findings that it yielded before are valid.
        """


@dataclass(frozen=True, slots=True)
class Result:
    """A finding of the check with this name."""

    check: str
    finding: Finding


def run_checks(
    checks: Iterable[Check],
    reader: ClusterReader,
    working: Callable[[str], AbstractContextManager[None]],
    seconds: float = CHECK_SECONDS,
) -> Iterator[Result]:
    """Yield the results of all checks: at least one for each. `working` shows the check that runs."""
    msgspec_warmup.warm_up()  # a check that is still reading at its deadline runs beside the next one
    for check in checks:
        with working(check.name):
            findings = _within(check, reader, seconds)
        yield from (Result(check.name, _clipped(finding)) for finding in findings)


def _within(check: Check, reader: ClusterReader, seconds: float) -> list[Finding]:
    """Return the findings of a check. A thread that is still reading at the deadline ends with the process."""
    answers: SimpleQueue[list[Finding]] = SimpleQueue()
    Thread(target=lambda: answers.put(_findings(check, reader)), name=check.name, daemon=True).start()
    try:
        return answers.get(timeout=seconds)
    except Empty:
        return [
            _not_checked(f"it did not end within {seconds:g} seconds", "run the command again, or with --namespace")
        ]


def _findings(check: Check, reader: ClusterReader) -> list[Finding]:
    found: list[Finding] = []
    try:
        for finding in check.run(reader):
            found.append(finding)
            if len(found) >= MAX_FINDINGS:
                found.append(Finding(Severity.WARNING, "", f"there are more than {MAX_FINDINGS} findings"))
                break
    except Unreadable as failure:
        found.append(_not_checked(failure.why, failure.hint))
    except Exception as error:  # noqa: BLE001 -- a defect of one check must not hide the findings of the others
        found.append(_not_checked(f"{type(error).__name__}: {error}", "report this defect of gkm"))
    return found or [Finding(Severity.OK, "", check.passed)]


def _not_checked(why: str, hint: str) -> Finding:
    return Finding(Severity.NOT_CHECKED, "", "nothing is known", why, hint)


def _clipped(finding: Finding) -> Finding:
    texts = (finding.object, finding.detail, finding.why, finding.hint)
    return Finding(finding.severity, *(text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}…" for text in texts))
