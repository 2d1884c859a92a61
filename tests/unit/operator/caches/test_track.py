"""updatePolicy Track: a tag is followed to what is verified, and to nothing else."""

import pytest
from gkm.api.caches import UpdatePolicy
from gkm.api.errors import GKMError, Reason
from gkm.images.signatures.verify import Verdict
from gkm_operator.caches.verification.recheck import NEVER, RecheckSchedule
from support.operator.images import AWAY, DIGEST, GOOD, OTHER, UNKNOWN, UNSIGNED, WARNED
from support.operator.verdicts import IMAGE, PINNED, TRACKED, Place

THIRD = "sha256:" + "c" * 64


@pytest.fixture
def place() -> Place:
    made = Place()
    made.check()
    assert made.status.resolved_digest == DIGEST
    made.told.clear()
    return made


def test_a_tracked_tag_is_resolved_on_its_interval_with_some_jitter(place: Place) -> None:
    left = place.check()
    assert isinstance(left, float)
    assert 0.9 * 900 <= left <= 1.1 * 900
    place.images.asked.clear()
    place.now += left - 1
    assert place.check() == pytest.approx(1)
    assert place.images.asked == []
    place.now += 1
    place.check()
    assert ("resolve", IMAGE) in place.images.asked


def test_a_tag_that_names_another_verified_digest_is_followed(place: Place) -> None:
    place.images.digests[IMAGE] = OTHER
    place.now += 1000
    place.check()
    assert (place.status.resolved_digest, place.verified.status) == (OTHER, "True")
    assert place.images.asked.index(("verify", IMAGE, OTHER, "a")) > 0
    (told,) = place.told
    assert (told.kind, told.reason) == ("Normal", "Updated")
    assert DIGEST in told.note
    assert OTHER in told.note


def test_a_tag_that_names_a_refused_image_is_not_followed(place: Place) -> None:
    place.images.digests[IMAGE], place.images.verdicts[OTHER] = OTHER, UNSIGNED
    place.now += 1000
    again = place.check()
    assert place.status.resolved_digest == DIGEST
    assert (place.verified.status, place.verified.reason) == ("True", "UpdateRefused")
    assert place.verified.message == (
        f"the tag names {OTHER} now, which is refused: no signature was found; stays on {DIGEST}"
    )
    assert isinstance(again, float)
    assert place.reasons() == [("Warning", "UpdateRefused")]


def test_a_refused_update_is_reported_once_also_after_restarts(place: Place) -> None:
    place.images.digests[IMAGE], place.images.verdicts[OTHER] = OTHER, UNSIGNED
    for _ in range(3):
        place.now += 1000
        place.check()
        place.restart()
    assert place.reasons() == [("Warning", "UpdateRefused")]


def test_a_refused_update_ends_when_the_image_is_signed(place: Place) -> None:
    place.images.digests[IMAGE], place.images.verdicts[OTHER] = OTHER, UNSIGNED
    place.now += 1000
    place.check()
    place.images.verdicts[OTHER] = GOOD
    place.now += 1000
    place.check()
    assert (place.status.resolved_digest, place.verified.reason) == (OTHER, "CosignSuccess")
    assert place.reasons() == [("Warning", "UpdateRefused"), ("Normal", "Updated"), ("Normal", "CosignSuccess")]


def test_a_deleted_tag_leaves_the_present_digest(place: Place) -> None:
    del place.images.digests[IMAGE]
    place.now += 1000
    place.check()
    assert (place.status.resolved_digest, place.verified.status) == (DIGEST, "True")
    assert place.verified.message.startswith("the tag names no image now: ")


@pytest.mark.parametrize("answer", [AWAY, GKMError(Reason.UNAUTHORIZED, "closed")])
def test_a_registry_that_does_not_resolve_the_tag_changes_nothing(place: Place, answer: GKMError) -> None:
    before = place.status
    place.images.digests[IMAGE] = answer
    place.now += 1000
    for _ in range(2):
        assert place.check() == f"{answer.reason}: {answer}"
        assert (place.status, place.told) == (before, [])
        place.restart()


@pytest.mark.parametrize("which", ["tag", "update"])
def test_a_refused_update_stays_refused_during_a_registry_outage(place: Place, which: str) -> None:
    place.images.digests[IMAGE], place.images.verdicts[OTHER] = OTHER, UNSIGNED
    place.now += 1000
    place.check()
    before = place.status
    if which == "tag":
        place.images.digests[IMAGE] = AWAY
    else:
        place.images.verdicts[OTHER] = UNKNOWN
    place.now += 1000
    assert isinstance(place.check(), str)
    assert place.status == before
    assert place.reasons() == [("Warning", "UpdateRefused")]


def test_a_digest_that_verifies_again_is_accepted_whatever_the_tag_names(place: Place) -> None:
    place.images.verdicts[DIGEST] = UNSIGNED
    place.now += 1000
    place.check()
    place.images.verdicts[DIGEST], place.images.digests[IMAGE] = GOOD, AWAY
    place.check()
    assert (place.status.resolved_digest, place.verified.reason) == (DIGEST, "CosignSuccess")


@pytest.mark.parametrize("verdict", [UNKNOWN, AWAY])
def test_an_update_that_cannot_be_verified_now_waits(place: Place, verdict: Verdict | GKMError) -> None:
    before = place.status
    place.images.digests[IMAGE], place.images.verdicts[OTHER] = OTHER, verdict
    place.now += 1000
    assert isinstance(place.check(), str)
    assert (place.status, place.told) == (before, [])


def test_both_revoked_and_refused_is_refused(place: Place) -> None:
    place.images.digests[IMAGE] = OTHER
    place.images.verdicts.update({DIGEST: UNSIGNED, OTHER: UNSIGNED})
    place.now += 1000
    place.check()
    assert (place.status.resolved_digest, place.verified.status) == (DIGEST, "False")
    assert place.reasons() == [("Warning", "SignatureMissing")]


def test_a_revoked_digest_is_replaced_by_a_verified_one(place: Place) -> None:
    place.images.verdicts[DIGEST] = UNSIGNED
    place.now += 1000
    place.check()
    assert place.verified.status == "False"
    place.images.digests[IMAGE] = OTHER
    place.check()
    assert (place.status.resolved_digest, place.verified.status) == (OTHER, "True")


def test_where_verification_only_warns_the_tag_is_followed(place: Place) -> None:
    place.images.digests[IMAGE], place.images.verdicts[OTHER] = OTHER, WARNED
    place.now += 1000
    place.check()
    assert (place.status.resolved_digest, place.verified.reason) == (OTHER, "NotRequired")


def test_a_pinned_tag_is_never_resolved_again() -> None:
    place = Place(PINNED, RecheckSchedule(3600))
    place.check()
    place.images.digests[IMAGE] = OTHER
    for _ in range(3):
        place.now += 10_000
        place.check()
        place.restart()
    assert place.status.resolved_digest == DIGEST
    assert place.images.asked.count(("resolve", IMAGE)) == 1


def test_a_change_of_mode_takes_effect_at_once() -> None:
    place = Place(PINNED)
    assert place.check() is None
    place.images.digests[IMAGE] = OTHER
    place.spec(update_policy=TRACKED)
    assert isinstance(place.check(), float)
    assert place.status.resolved_digest == OTHER
    place.images.digests[IMAGE] = DIGEST
    place.spec(update_policy=PINNED)
    assert place.check() is None
    assert place.status.resolved_digest == OTHER


def test_a_change_of_interval_takes_effect_at_once(place: Place) -> None:
    place.images.asked.clear()
    place.spec(update_policy=UpdatePolicy("Track", "2m"))
    left = place.check()
    assert isinstance(left, float)
    assert left <= 1.1 * 120
    assert ("resolve", IMAGE) in place.images.asked


def test_another_image_is_resolved_with_a_message_of_its_own(place: Place) -> None:
    place.images.digests["registry.test/team/cache:2"] = THIRD
    place.images.verdicts[THIRD] = GOOD
    place.spec(image="registry.test/team/cache:2")
    place.check()
    assert (place.status.resolved_digest, place.status.observed_generation) == (THIRD, 2)
    assert place.told == []


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
    pauses = [RecheckSchedule(recheck).pause(Place(policy).cache) for _ in range(50)]
    assert all(0.9 * shortest <= pause <= 1.1 * shortest for pause in pauses)
    assert len(set(pauses)) > 1 or shortest == NEVER
