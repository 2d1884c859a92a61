"""Checks run within deadlines, and one check cannot spoil another."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from threading import Event

import pytest
from gkm.kube.errors import ApiError
from gkm.kube.resources import COMPUTEDOMAINS, DEFINITIONS, Resource
from gkm_cli.clusters.reads import Unreadable
from gkm_cli.doctor import runner
from gkm_cli.doctor.checks import CHECKS
from gkm_cli.doctor.findings import Finding, Severity
from gkm_cli.doctor.runner import Check, ClusterReader, Collection, reading_check, run_checks
from support.cli.doctor_lists import CUTOFF
from support.grove.kinds import ALL, COMPUTE_DOMAIN
from support.host.waiting import scaled
from support.kube.fake_api import FakeApi

NODES: Resource[dict[str, object]] = Resource("v1", "Node", "nodes", namespaced=False, type=dict)
AGAIN = "run the command again"
PROBLEM = Finding(Severity.PROBLEM, "o", "d")


def made(run: Callable[[ClusterReader], Iterator[Finding]], name: str = "area/subject") -> Check[ClusterReader]:
    return reading_check(name, "all is well")(run)


def working(_name: str) -> AbstractContextManager[None]:
    return nullcontext()


def results(
    *checks: Check[ClusterReader], api: FakeApi | None = None, seconds: float = 30
) -> list[tuple[str, str, str]]:
    reading = ClusterReader(api or FakeApi(), cutoff=CUTOFF)
    found = run_checks(checks, reading, working, seconds)
    return [(one.check, one.finding.severity.value, one.finding.why or one.finding.detail) for one in found]


def nothing(_reader: ClusterReader) -> Iterator[Finding]:
    yield from ()


def test_a_check_without_findings_has_passed() -> None:
    assert results(made(nothing)) == [("area/subject", "ok", "all is well")]


def test_what_a_check_found_before_it_failed_counts() -> None:
    def failing(_reader: ClusterReader) -> Iterator[Finding]:
        yield PROBLEM
        raise Unreadable("the cause", "the step")

    assert results(made(failing)) == [("area/subject", "problem", "d"), ("area/subject", "not checked", "the cause")]


def test_a_defect_of_a_check_is_not_checked_and_the_next_one_runs() -> None:
    def defective(_reader: ClusterReader) -> Iterator[Finding]:
        found: dict[str, list[Finding]] = {}
        yield from found["no such key"]

    found = results(made(defective), made(nothing, name="area/next"))
    assert found == [("area/subject", "not checked", "KeyError: 'no such key'"), ("area/next", "ok", "all is well")]


def test_a_list_that_does_not_end_is_waited_for_once() -> None:
    release = Event()

    def slow(_verb: str, plural: str) -> ApiError | None:
        if plural == "nodes":
            release.wait(scaled(60))
        return None

    def reading(reader: ClusterReader) -> Iterator[Finding]:
        reader.list(Collection(NODES))
        yield from ()

    api = FakeApi()
    api.fault = slow
    try:
        found = results(made(reading), made(reading, name="area/same"), api=api, seconds=0.2)
    finally:
        release.set()
    assert found == [
        ("area/subject", "not checked", "it did not end within 0.2 seconds"),
        ("area/same", "not checked", "reading nodes did not end in time"),
    ]


@pytest.mark.parametrize(
    ("namespace", "cluster_wide", "step"),
    [("", False, "run the command again, or with --namespace"), ("", True, AGAIN), ("ml", False, AGAIN)],
    ids=["another may help", "refused with it", "given already"],
)
def test_the_step_after_a_deadline_is_one_that_the_command_accepts(
    namespace: str,
    cluster_wide: bool,  # noqa: FBT001 -- a parameter
    step: str,
) -> None:
    release = Event()

    def reading(_reader: ClusterReader) -> Iterator[Finding]:
        release.wait(scaled(60))
        yield from ()

    check = replace(made(reading), cluster_wide=cluster_wide)
    try:
        found = [*run_checks([check], ClusterReader(FakeApi(), namespace=namespace, cutoff=CUTOFF), working, 0.2)]
    finally:
        release.set()
    assert [one.finding.hint for one in found] == [step], (
        "gkm doctor --check with --namespace ends with: these checks need the whole cluster"
    )


def test_findings_and_their_texts_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "MAX_FINDINGS", 3)

    def endless(_reader: ClusterReader) -> Iterator[Finding]:
        while True:
            yield Finding(Severity.PROBLEM, "o" * 10**6, "d" * 10**6, "w" * 10**6, "h" * 10**6)

    found = [one.finding for one in run_checks([made(endless)], ClusterReader(FakeApi(), cutoff=""), working)]
    assert [one.severity for one in found] == [Severity.PROBLEM] * 3 + [Severity.WARNING]
    assert all(len(text) <= 2001 for one in found for text in (one.object, one.detail, one.why, one.hint))
    assert found[3].detail == "there are more than 3 findings"


def test_no_check_of_domains_has_a_finding_in_a_cluster_without_domains() -> None:
    api = FakeApi()
    for kind in ALL:
        api.create(Resource("apiextensions.k8s.io/v1", "X", "customresourcedefinitions", False, dict), kind)  # noqa: FBT003
    checks = [check for check in CHECKS if check.name.startswith("domains/")]
    found = list(run_checks(checks, ClusterReader(api, cutoff=CUTOFF), working))
    looked_at = {one.check for one in found if one.finding.severity is Severity.OK}
    assert looked_at == {"domains/version"}
    assert {one.finding.severity for one in found} == {Severity.OK, Severity.SKIPPED}
    assert len({one.check for one in found}) == len(found) == len(checks)


def test_every_check_of_the_command_is_unknown_when_it_may_read_nothing() -> None:
    api = FakeApi()
    api.fault = lambda verb, plural: ApiError(403, "Forbidden", f"{verb} {plural}")
    found = list(run_checks(CHECKS, ClusterReader(api, cutoff=CUTOFF), working))
    assert [one.finding.severity for one in found] == [Severity.NOT_CHECKED] * len(CHECKS)
    assert all("missing right: " in one.finding.why for one in found)


def test_one_unreadable_list_leaves_all_checks_unknown_that_need_it() -> None:
    api = FakeApi()
    api.create(DEFINITIONS, COMPUTE_DOMAIN)
    api.fault = lambda _verb, plural: ApiError(500, "", "odd") if plural == COMPUTEDOMAINS.plural else None
    found = {one.check: one.finding.severity for one in run_checks(CHECKS, _reader(api), working)}
    unknown = {check for check, severity in found.items() if severity is Severity.NOT_CHECKED}
    need_it = {check.name for check in CHECKS if check.name.startswith("domains/")}
    assert unknown == need_it - {"domains/version", "domains/imex", "domains/switch"}


def _reader(api: FakeApi) -> ClusterReader:
    return ClusterReader(api, cutoff=CUTOFF)
