"""Rechecks on a schedule, when files change, and after a start; an inconclusive check changes nothing."""

from pathlib import Path

import pytest
from gkm.api.config import ConfigInvalid, Policy, Verification, parse_verification
from gkm.api.errors import GKMError, Reason
from gkm.images.signatures.verify import Verdict
from gkm_operator.caches.throttling import BURST, REFILL_SECONDS, EventBudget
from gkm_operator.caches.totals import CacheSummary
from gkm_operator.caches.verification import PER_SECOND, RecheckSchedule, VerificationQueue
from support.operator.images import AWAY, DIGEST, GOOD, OFF, UNKNOWN, UNSIGNED, WARNED, FakeImages
from support.operator.verdicts import IMAGE, KEY, PINNED, CheckedCache

HOURS = 3600.0
GONE = GKMError(Reason.NOT_FOUND, "no such manifest")
CLOSED = GKMError(Reason.UNAUTHORIZED, "closed")
AWAY_BUT_ALLOWED = Verdict(verified=None, allowed=True, reason=Reason.REGISTRY_UNAVAILABLE, message="away")


@pytest.fixture
def checked() -> CheckedCache:
    made = CheckedCache(PINNED, RecheckSchedule(6 * HOURS))
    made.check()
    assert made.verified.status == "True"
    made.told.clear()
    return made


def test_a_verified_image_is_verified_again_on_its_interval_and_not_before(checked: CheckedCache) -> None:
    asked = len(checked.images.asked)
    left = checked.check()
    assert isinstance(left, float)
    assert 5.4 * HOURS <= left <= 6.6 * HOURS
    assert len(checked.images.asked) == asked
    checked.now += left
    checked.check()
    assert checked.images.asked[asked:] == [("verify", IMAGE, DIGEST, "a"), ("size", IMAGE, DIGEST)]


def test_without_an_interval_it_is_never_verified_again() -> None:
    checked = CheckedCache(PINNED, RecheckSchedule(0))
    assert checked.check() is None
    asked = len(checked.images.asked)
    checked.now += 1e9
    assert checked.check() is None
    assert len(checked.images.asked) == asked


def test_a_revoked_signature_is_reported_once(checked: CheckedCache) -> None:
    checked.images.verdicts[DIGEST] = UNSIGNED
    for _ in range(3):
        checked.now += 10 * HOURS
        checked.check()
        checked.restart()
    assert (checked.verified.status, checked.verified.reason) == ("False", "SignatureMissing")
    assert checked.reasons() == [("Warning", "SignatureMissing")]


def test_an_image_signed_again_is_verified_again(checked: CheckedCache) -> None:
    checked.images.verdicts[DIGEST] = UNSIGNED
    checked.now += 10 * HOURS
    checked.check()
    checked.images.verdicts[DIGEST] = GOOD
    checked.check()
    assert checked.reasons() == [("Warning", "SignatureMissing"), ("Normal", "CosignSuccess")]


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("standing", [GOOD, UNSIGNED, WARNED, OFF])
@pytest.mark.parametrize("answer", [UNKNOWN, AWAY, CLOSED])
def test_an_inconclusive_check_changes_no_verdict(
    standing: Verdict,
    answer: Verdict | GKMError,
    restarted: bool,  # noqa: FBT001 -- a parameter
) -> None:
    checked = CheckedCache(PINNED, RecheckSchedule(HOURS))
    checked.images.verdicts[DIGEST] = standing
    checked.check()
    before = checked.status
    checked.told.clear()
    checked.images.verdicts[DIGEST] = answer
    checked.now += 10 * HOURS
    if restarted:
        checked.restart()
    assert isinstance(checked.check(), str)
    assert (checked.status, checked.told) == (before, [])


@pytest.mark.parametrize("answer", [UNSIGNED, GONE])
def test_an_image_deleted_from_its_registry_is_not_a_revocation(
    checked: CheckedCache, answer: Verdict | GKMError
) -> None:
    before = checked.status
    checked.images.verdicts[DIGEST] = answer
    checked.images.sizes = {DIGEST: GONE}
    checked.now += 10 * HOURS
    assert isinstance(checked.check(), str)
    assert (checked.status, checked.told) == (before, [])


def test_a_registry_that_hides_whether_an_image_exists_revokes_nothing(checked: CheckedCache) -> None:
    before = checked.status
    checked.images.verdicts[DIGEST] = UNSIGNED
    checked.images.sizes = {DIGEST: AWAY}
    checked.now += 10 * HOURS
    assert checked.check() == f"{AWAY.reason}: {AWAY}"
    assert (checked.status, checked.told) == (before, [])


def test_credentials_that_cannot_be_read_change_no_verdict(checked: CheckedCache) -> None:
    before = checked.status
    checked.restart()
    checked.images.closed = CLOSED
    assert isinstance(checked.check(), str)
    assert (checked.status, checked.told) == (before, [])


def test_an_unreachable_registry_in_mode_warn_leaves_a_positive_verdict(checked: CheckedCache) -> None:
    checked.images.verdicts[DIGEST] = AWAY_BUT_ALLOWED
    checked.now += 10 * HOURS
    checked.check()
    assert checked.verified.reason == "CosignSuccess"


def test_a_mode_that_admits_a_refused_image_does_so_during_a_registry_outage(checked: CheckedCache) -> None:
    checked.images.verdicts[DIGEST] = UNSIGNED
    checked.now += 10 * HOURS
    checked.check()
    checked.images.verdicts[DIGEST] = AWAY_BUT_ALLOWED
    checked.check()
    assert (checked.verified.status, checked.verified.reason) == ("True", "NotRequired")


def test_a_verdict_on_another_image_does_not_apply(checked: CheckedCache) -> None:
    checked.images.digests["registry.test/team/cache:2"] = AWAY
    checked.spec(image="registry.test/team/cache:2")
    checked.check()
    assert (checked.verified.status, checked.verified.reason) == ("Unknown", "RegistryUnavailable")


def test_observed_generation_advances_even_if_the_verdict_stays(checked: CheckedCache) -> None:
    checked.images.verdicts[DIGEST] = AWAY
    checked.spec(image_pull_secrets=[])
    checked.restart()
    checked.check()
    assert (checked.status.observed_generation, checked.verified.status) == (2, "True")


def test_ready_is_reported_when_it_begins_and_when_it_ends(checked: CheckedCache) -> None:
    for summary in (
        CacheSummary(2, 1),
        CacheSummary(2, 2),
        CacheSummary(3, 2),
        CacheSummary(3, 3),
        CacheSummary(3, 2, 1, 0, {"NoGPU": ["n"]}),
    ):
        checked.summary = summary
        checked.write()
        checked.restart()
    assert checked.reasons() == [
        ("Normal", "AllNodesReady"),
        ("Normal", "NodesPending"),
        ("Normal", "AllNodesReady"),
        ("Warning", "NodesFailed"),
    ]


def test_after_a_start_caches_without_a_verdict_are_checked_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    checked = CheckedCache(PINNED)
    places: list[float] = []
    checked.check()
    checked.restart()
    monkeypatch.setattr(checked.verification.queue, "add", lambda _, after=0.0: places.append(after))
    for _ in range(3):
        checked.verification.changed(KEY, None, checked.cache)
    checked.verification.changed(KEY, None, CheckedCache(PINNED).cache)
    assert places == pytest.approx([0.0, 1 / PER_SECOND, 2 / PER_SECOND, 0.0])


class Files:
    """A mounted ConfigMap as kubelet makes it: a link to a link to a directory that is exchanged atomically."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._count = 0
        self.path = root / "key.pem"
        self.write("one")
        self.path.symlink_to(Path("..data") / "key.pem")

    def write(self, key: str) -> None:
        self._count += 1
        made = self._root / f"..{self._count}"
        made.mkdir()
        (made / "key.pem").write_text(key)
        link = self._root / "..tmp"
        link.symlink_to(made.name)
        link.rename(self._root / "..data")


def noticing(mounted: Files, monkeypatch: pytest.MonkeyPatch) -> tuple[VerificationQueue, list[int]]:
    """Return a queue whose policies name a file, and a list that grows when it verifies every image again."""
    queue, noticed = CheckedCache(PINNED, RecheckSchedule(files=(str(mounted.path),))).verification, []
    monkeypatch.setattr(queue, "recheck_all", lambda: noticed.append(1))
    return queue, noticed


def test_a_file_that_changed_is_noticed_by_its_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounted = Files(tmp_path)
    queue, noticed = noticing(mounted, monkeypatch)
    queue.check_files()
    mounted.write("one")
    queue.check_files()
    assert noticed == []
    mounted.write("two")
    queue.check_files()
    queue.check_files()
    assert len(noticed) == 1
    mounted.path.unlink()
    queue.check_files()
    assert len(noticed) == 2


def test_a_file_change_before_the_first_check_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounted = Files(tmp_path)
    queue, noticed = noticing(mounted, monkeypatch)
    mounted.write("two")
    queue.check_files()
    assert noticed == [1]


def test_a_file_of_a_policy_that_changes_has_every_image_verified_again(tmp_path: Path) -> None:
    mounted = Files(tmp_path)
    again = RecheckSchedule.of(Verification(policies=[Policy(keys=[str(mounted.path)])]))
    assert again.files == (str(mounted.path),)
    checked = CheckedCache(PINNED, again)
    checked.check()
    checked.images.verdicts[DIGEST] = UNSIGNED
    checked.check()
    assert checked.verified.status == "True"
    mounted.write("two")
    checked.verification.check_files()
    assert len(checked.verification.queue) == 1
    checked.check()
    assert checked.verified.status == "False"


def test_a_file_change_during_the_first_check_causes_another_verification() -> None:
    checked = CheckedCache(PINNED, RecheckSchedule(6 * HOURS))
    judge = checked.images.verify

    def changed(image: str, digest: str, namespace: str | None) -> Verdict:
        verdict = judge(image, digest, namespace)
        checked.verification.recheck_all()
        return verdict

    checked.images.verify = changed  # type: ignore[method-assign]
    assert checked.check() == 0
    checked.images.verify = judge  # type: ignore[method-assign]
    checked.images.verdicts[DIGEST] = UNSIGNED
    checked.check()
    assert checked.verified.status == "False"


def test_where_nothing_is_verified_nothing_is_verified_again() -> None:
    assert RecheckSchedule.of(Verification(mode="off", policies=[Policy(keys=["/key.pem"])])) == RecheckSchedule()


@pytest.mark.parametrize("text", ["recheckInterval: 5", "recheckInterval: -1", "whenRevoked: panic"])
def test_an_invalid_recheck_setting_is_refused_with_its_key(text: str) -> None:
    with pytest.raises(ConfigInvalid, match=text.partition(":")[0]):
        parse_verification(text)


def test_an_interval_of_zero_is_never() -> None:
    assert RecheckSchedule.of(parse_verification("recheckInterval: 0")).seconds == 0


def test_events_of_an_object_have_a_burst_and_then_a_low_rate() -> None:
    now = [0.0]
    allowance = EventBudget(lambda: now[0])
    assert [allowance.spend("u") for _ in range(BURST + 2)] == [True] * BURST + [False] * 2
    assert allowance.spend("other")
    now[0] += REFILL_SECONDS
    assert [allowance.spend("u") for _ in range(2)] == [True, False]


def test_the_check_of_an_object_deleted_meanwhile_is_forgotten() -> None:
    checked = CheckedCache(PINNED)
    objects = [checked.cache, None]
    queue = VerificationQueue(FakeImages({IMAGE: DIGEST}, {DIGEST: GOOD}), lambda _: objects.pop(0), lambda _: None)
    queue.verify(KEY)
    assert queue.outcome(checked.cache) is None
