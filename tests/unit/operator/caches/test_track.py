"""updatePolicy Track: the digest follows a tag to verified images only."""

import pytest
from gkm.api.caches import UpdatePolicy
from gkm.api.errors import GKMError, Reason
from gkm.images.signatures.verify import Verdict
from gkm_operator.caches.verification import NEVER, RecheckSchedule
from support.operator.images import AWAY, DIGEST, GOOD, OTHER, UNKNOWN, UNSIGNED, WARNED
from support.operator.verdicts import IMAGE, PINNED, TRACKED, CheckedCache

THIRD = "sha256:" + "c" * 64


@pytest.fixture
def checked() -> CheckedCache:
    made = CheckedCache()
    made.check()
    assert made.status.resolved_digest == DIGEST
    made.told.clear()
    return made


def test_a_tracked_tag_is_resolved_on_its_interval_with_some_jitter(checked: CheckedCache) -> None:
    left = checked.check()
    assert isinstance(left, float)
    assert 0.9 * 900 <= left <= 1.1 * 900
    checked.images.asked.clear()
    checked.now += left - 1
    assert checked.check() == pytest.approx(1)
    assert checked.images.asked == []
    checked.now += 1
    checked.check()
    assert ("resolve", IMAGE) in checked.images.asked


def test_a_tag_that_names_another_verified_digest_is_followed(checked: CheckedCache) -> None:
    checked.images.digests[IMAGE] = OTHER
    checked.now += 1000
    checked.check()
    assert (checked.status.resolved_digest, checked.verified.status) == (OTHER, "True")
    assert checked.images.asked.index(("verify", IMAGE, OTHER, "a")) > 0
    (told,) = checked.told
    assert (told.kind, told.reason) == ("Normal", "Updated")
    assert DIGEST in told.note
    assert OTHER in told.note


def test_a_tag_that_names_a_refused_image_is_not_followed(checked: CheckedCache) -> None:
    checked.images.digests[IMAGE], checked.images.verdicts[OTHER] = OTHER, UNSIGNED
    checked.now += 1000
    again = checked.check()
    assert checked.status.resolved_digest == DIGEST
    assert (checked.verified.status, checked.verified.reason) == ("True", "UpdateRefused")
    assert checked.verified.message == (
        f"the tag names {OTHER} now, which is refused: no signature was found; stays on {DIGEST}"
    )
    assert isinstance(again, float)
    assert checked.reasons() == [("Warning", "UpdateRefused")]


def test_a_refused_update_is_reported_once_also_after_restarts(checked: CheckedCache) -> None:
    checked.images.digests[IMAGE], checked.images.verdicts[OTHER] = OTHER, UNSIGNED
    for _ in range(3):
        checked.now += 1000
        checked.check()
        checked.restart()
    assert checked.reasons() == [("Warning", "UpdateRefused")]


def test_a_refused_update_ends_when_the_image_is_signed(checked: CheckedCache) -> None:
    checked.images.digests[IMAGE], checked.images.verdicts[OTHER] = OTHER, UNSIGNED
    checked.now += 1000
    checked.check()
    checked.images.verdicts[OTHER] = GOOD
    checked.now += 1000
    checked.check()
    assert (checked.status.resolved_digest, checked.verified.reason) == (OTHER, "CosignSuccess")
    assert checked.reasons() == [
        ("Warning", "UpdateRefused"),
        ("Normal", "Updated"),
        ("Normal", "CosignSuccess"),
    ]


def test_a_deleted_tag_leaves_the_present_digest(checked: CheckedCache) -> None:
    del checked.images.digests[IMAGE]
    checked.now += 1000
    checked.check()
    assert (checked.status.resolved_digest, checked.verified.status) == (DIGEST, "True")
    assert checked.verified.message.startswith("the tag names no image now: ")


@pytest.mark.parametrize("answer", [AWAY, GKMError(Reason.UNAUTHORIZED, "closed")])
def test_a_registry_that_does_not_resolve_the_tag_changes_nothing(checked: CheckedCache, answer: GKMError) -> None:
    before = checked.status
    checked.images.digests[IMAGE] = answer
    checked.now += 1000
    for _ in range(2):
        assert checked.check() == f"{answer.reason}: {answer}"
        assert (checked.status, checked.told) == (before, [])
        checked.restart()


@pytest.mark.parametrize("which", ["tag", "update"])
def test_a_refused_update_stays_refused_during_a_registry_outage(checked: CheckedCache, which: str) -> None:
    checked.images.digests[IMAGE], checked.images.verdicts[OTHER] = OTHER, UNSIGNED
    checked.now += 1000
    checked.check()
    before = checked.status
    if which == "tag":
        checked.images.digests[IMAGE] = AWAY
    else:
        checked.images.verdicts[OTHER] = UNKNOWN
    checked.now += 1000
    assert isinstance(checked.check(), str)
    assert checked.status == before
    assert checked.reasons() == [("Warning", "UpdateRefused")]


def test_a_digest_that_verifies_again_is_accepted_whatever_the_tag_names(checked: CheckedCache) -> None:
    checked.images.verdicts[DIGEST] = UNSIGNED
    checked.now += 1000
    checked.check()
    checked.images.verdicts[DIGEST], checked.images.digests[IMAGE] = GOOD, AWAY
    checked.check()
    assert (checked.status.resolved_digest, checked.verified.reason) == (DIGEST, "CosignSuccess")


@pytest.mark.parametrize("verdict", [UNKNOWN, AWAY])
def test_an_update_that_cannot_be_verified_now_waits(checked: CheckedCache, verdict: Verdict | GKMError) -> None:
    before = checked.status
    checked.images.digests[IMAGE], checked.images.verdicts[OTHER] = OTHER, verdict
    checked.now += 1000
    assert isinstance(checked.check(), str)
    assert (checked.status, checked.told) == (before, [])


def test_both_revoked_and_refused_is_refused(checked: CheckedCache) -> None:
    checked.images.digests[IMAGE] = OTHER
    checked.images.verdicts.update({DIGEST: UNSIGNED, OTHER: UNSIGNED})
    checked.now += 1000
    checked.check()
    assert (checked.status.resolved_digest, checked.verified.status) == (DIGEST, "False")
    assert checked.reasons() == [("Warning", "SignatureMissing")]


def test_a_revoked_digest_is_replaced_by_a_verified_one(checked: CheckedCache) -> None:
    checked.images.verdicts[DIGEST] = UNSIGNED
    checked.now += 1000
    checked.check()
    assert checked.verified.status == "False"
    checked.images.digests[IMAGE] = OTHER
    checked.check()
    assert (checked.status.resolved_digest, checked.verified.status) == (OTHER, "True")


def test_where_verification_only_warns_the_tag_is_followed(checked: CheckedCache) -> None:
    checked.images.digests[IMAGE], checked.images.verdicts[OTHER] = OTHER, WARNED
    checked.now += 1000
    checked.check()
    assert (checked.status.resolved_digest, checked.verified.reason) == (OTHER, "NotRequired")


def test_a_pinned_tag_is_never_resolved_again() -> None:
    checked = CheckedCache(PINNED, RecheckSchedule(3600))
    checked.check()
    checked.images.digests[IMAGE] = OTHER
    for _ in range(3):
        checked.now += 10_000
        checked.check()
        checked.restart()
    assert checked.status.resolved_digest == DIGEST
    assert checked.images.asked.count(("resolve", IMAGE)) == 1


def test_a_change_of_mode_takes_effect_at_once() -> None:
    checked = CheckedCache(PINNED)
    assert checked.check() is None
    checked.images.digests[IMAGE] = OTHER
    checked.spec(update_policy=TRACKED)
    assert isinstance(checked.check(), float)
    assert checked.status.resolved_digest == OTHER
    checked.images.digests[IMAGE] = DIGEST
    checked.spec(update_policy=PINNED)
    assert checked.check() is None
    assert checked.status.resolved_digest == OTHER


def test_a_change_of_interval_takes_effect_at_once(checked: CheckedCache) -> None:
    checked.images.asked.clear()
    checked.spec(update_policy=UpdatePolicy("Track", "2m"))
    left = checked.check()
    assert isinstance(left, float)
    assert left <= 1.1 * 120
    assert ("resolve", IMAGE) in checked.images.asked


def test_another_image_is_resolved_with_a_message_of_its_own(checked: CheckedCache) -> None:
    checked.images.digests["registry.test/team/cache:2"] = THIRD
    checked.images.verdicts[THIRD] = GOOD
    checked.spec(image="registry.test/team/cache:2")
    checked.check()
    assert (checked.status.resolved_digest, checked.status.observed_generation) == (THIRD, 2)
    assert checked.told == []


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("15m", 900),
        ("1h30m", 5400),
        ("1h2m3s", 3723),
        ("1s", 60),
        ("", 60),
        ("nonsense", 60),
        ("99999999h", 30 * 86_400),
        ("0m", 60),
    ],
)
def test_an_interval_is_read_within_its_bounds(text: str, seconds: float) -> None:
    assert UpdatePolicy("Track", text).seconds == seconds


@pytest.mark.parametrize(
    ("policy", "recheck", "shortest"),
    [
        (PINNED, 0, NEVER),
        (PINNED, 3600, 3600),
        (TRACKED, 0, 900),
        (TRACKED, 3600, 900),
        (UpdatePolicy("Track", "12h"), 3600, 3600),
    ],
)
def test_the_shorter_of_both_intervals_counts(policy: UpdatePolicy, recheck: float, shortest: float) -> None:
    pauses = [RecheckSchedule(recheck).pause(CheckedCache(policy).cache) for _ in range(50)]
    assert all(0.9 * shortest <= pause <= 1.1 * shortest for pause in pauses)
    assert len(set(pauses)) > 1 or shortest == NEVER
