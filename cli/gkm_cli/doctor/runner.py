"""Run checks one after another, each within a deadline.

All share one reader of the cluster, which makes each read once; it remembers a failure, too.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Generic, NamedTuple, TypeVar

from gkm.api import msgspec_warmup
from gkm.kube.api import Api, ListSelector
from gkm.kube.resources import DEFINITIONS, Resource

from gkm_cli.clusters import reads
from gkm_cli.clusters.reads import NotServed, Unreadable, merged
from gkm_cli.doctor.findings import Finding, Severity, nothing, some

CHECK_SECONDS = 60.0
MAX_FINDINGS = 1000
MAX_TEXT = 2000
"""Limit of characters of one text in a finding. A Kubernetes name has at most 253."""
_AGAIN = "run the command again"
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Collection(Generic[T]):
    """A kind of objects that checks list, with selectors.

    `definition` names the CustomResourceDefinition without which there can be no objects: only then is a resource that
    the API server does not serve an empty list. `labels` and `fields` are selectors. A `namespace` is GKM's own or
    Kubernetes' own; without one, the objects come from the command's namespace, or from all.
    """

    resource: Resource[T]
    definition: str = ""
    labels: str = ""
    fields: str = ""
    namespace: str = ""


class ClusterReader:
    """Reads one cluster, or one `namespace` of it, for the checks of `gkm doctor`; each list and object once.

    Objects created before `cutoff` are older than the grace period. `now` returns the time for comparisons with
    objects: the API server's time, where it is known.
    """

    def __init__(
        self, api: Api, *, namespace: str = "", cutoff: str, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._api = api
        self.now = now
        self.namespace = namespace
        self.cutoff = cutoff
        self._read: dict[Hashable, Any] = {}

    def all(self, *readings: Callable[[], object]) -> list[Any]:
        """Return the results of several reads; all are tried, even if some fail.

        Raises:
            Unreadable: some failed; the message names all of these.
        """
        found, failures = [], []
        for read in readings:
            try:
                found.append(read())
            except Unreadable as failure:
                failures.append(failure)
        if failures:
            raise failures[0] if len(failures) == 1 else merged(failures)
        return found

    def list(self, collection: Collection[T]) -> tuple[T, ...]:
        """Return the objects of a collection; the first call lists them.

        Raises:
            Unreadable: they cannot be listed, or not all of them can be read.
        """
        return self._once(collection, collection.resource.plural, lambda: self._listed(collection))

    def get(self, resource: Resource[T], name: str, namespace: str | None = None) -> T | None:
        """Return an object, None if it does not exist; the first call reads it.

        Raises:
            Unreadable: it cannot be read.
        """
        key = (resource, name, namespace)
        return self._once(key, resource.plural, lambda: reads.get(self._api, resource, name, namespace))

    def _once(self, key: Hashable, plural: str, read: Callable[[], T]) -> T:
        if key not in self._read:
            # The findings of later checks when the thread of this one is still reading at its deadline.
            late = Unreadable(f"reading {plural} did not end in time", _AGAIN)
            self._read[key] = late
            try:
                self._read[key] = read()
            except Unreadable as failure:
                self._read[key] = failure
        found: T | Unreadable = self._read[key]
        if isinstance(found, Unreadable):
            raise found
        return found

    def _listed(self, collection: Collection[T]) -> tuple[T, ...]:
        resource = collection.resource
        namespace = collection.namespace or (self.namespace if resource.namespaced else "")
        try:
            found, damaged = reads.listed(
                self._api, resource, ListSelector(namespace, labels=collection.labels, fields=collection.fields)
            )
        except NotServed:
            if collection.definition and self.get(DEFINITIONS, collection.definition) is None:
                return ()
            raise
        if damaged:
            # Without them, what they refer to would look unused, and what refers to them, orphaned.
            raise Unreadable(f"these {resource.plural} cannot be read: {some(damaged)}", "correct or delete them")
        return tuple(found)


class Subject(NamedTuple, Generic[T]):
    """The objects of a check: `find` returns a true value if there is any; `absent` says that there is none."""

    absent: str
    find: Callable[[T], object]


@dataclass(frozen=True, slots=True)
class Check(Generic[T]):
    """One check of `gkm doctor`: `decide` yields the findings in the facts that `observe` reads, the `fields` of them.

    `name` is area and subject, such as `domains/terminating`; names never change. A check without findings prints
    `passed`, or is skipped if it has a `subject` and found none: a check whose finding is the absence of an object has
    no subject. `cluster_wide`: it reads objects outside of one namespace.
    """

    name: str
    passed: str
    decide: Callable[[T], Iterator[Finding]]
    observe: Callable[[ClusterReader, Sequence[str]], T]
    fields: Sequence[str] = ()
    subject: Subject[T] | None = None
    cluster_wide: bool = True

    def __call__(self, observed: T) -> Iterator[Finding]:
        """Yield the findings in these facts."""
        return self.decide(observed)

    def run(self, reader: ClusterReader) -> Iterator[Finding]:
        """Read the fields and yield the findings.

        Raises:
            Unreadable: it cannot read what it needs. Findings that it yielded before are valid.
        """
        observed, silent = self.observe(reader, self.fields), True
        for finding in self.decide(observed):
            silent = False
            yield finding
        if silent and self.subject and not self.subject.find(observed):
            yield nothing(self.subject.absent)


def reading_check(
    name: str, passed: str
) -> Callable[[Callable[[ClusterReader], Iterator[Finding]]], Check[ClusterReader]]:
    """Make a check of a function that reads single objects of the whole cluster itself."""
    return lambda decide: Check(name, passed, decide, lambda reader, _: reader)


@dataclass(frozen=True, slots=True)
class Result:
    """A finding together with the name of its check."""

    check: str
    finding: Finding


def run_checks(
    checks: Iterable[Check[Any]],
    reader: ClusterReader,
    working: Callable[[str], AbstractContextManager[None]],
    seconds: float = CHECK_SECONDS,
) -> Iterator[Result]:
    """Run all checks and yield their results, at least one for each. `working` shows a running check's name."""
    msgspec_warmup.warm_up()  # a check that is still reading at its deadline runs beside the next one
    for check in checks:
        with working(check.name):
            findings = _within(check, reader, seconds)
        yield from (Result(check.name, _clipped(finding)) for finding in findings)


def _within(check: Check[Any], reader: ClusterReader, seconds: float) -> list[Finding]:
    """Return the findings of a check. A thread that is still reading at the deadline ends with the process."""
    answers: SimpleQueue[list[Finding]] = SimpleQueue()
    Thread(target=lambda: answers.put(_findings(check, reader)), name=check.name, daemon=True).start()
    try:
        return answers.get(timeout=seconds)
    except Empty:
        helps = not (check.cluster_wide or reader.namespace)
        step = f"{_AGAIN}, or with --namespace" if helps else _AGAIN
        return [_not_checked(f"it did not end within {seconds:g} seconds", step)]


def _findings(check: Check[Any], reader: ClusterReader) -> list[Finding]:
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
    return Finding(Severity.NOT_CHECKED, "", "the state is unknown", why, hint)


def _clipped(finding: Finding) -> Finding:
    texts = (finding.object, finding.detail, finding.why, finding.hint)
    return Finding(finding.severity, *(text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}…" for text in texts))
