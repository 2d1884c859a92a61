"""The pause that a registry requests with Retry-After delays the next check of its images, and no revocation."""

from dataclasses import replace

import pytest
from gkm.api.config import Policy, Verification
from gkm.api.errors import GKMError, Reason
from gkm.images.registries.transport import MAX_RETRY_AFTER_SECONDS
from gkm.images.signatures.verify import Verifier
from gkm.kube.workqueue import Retry
from gkm_operator.caches.outcome import CurrentImage, check_image
from gkm_operator.caches.verification import RecheckSchedule
from gkm_operator.images import CheckedImages
from support.images.cache_registry import Site
from support.images.fixtures import built, site
from support.operator.images import DIGEST, GOOD, OTHER, UNKNOWN, UNSIGNED, FakeImages
from support.operator.verdicts import IMAGE, KEY, PINNED, TRACKED, CheckedCache
from support.registry import faults
from support.sigstore.key_signatures import SigningKey

__all__ = ["built", "site"]

POLICY = Policy(keys=[SigningKey().public_pem.decode()])
HOUR, PAUSE = 3600.0, 90.0
BUSY = GKMError(Reason.REGISTRY_UNAVAILABLE, "the registry answers 429", retry_after=PAUSE)
UNDECIDED = replace(UNKNOWN, retry_after=PAUSE)


def retry(checked: CheckedCache) -> Retry:
    with pytest.raises(Retry) as caught:
        checked.verification.verify(KEY)
    return caught.value


@pytest.mark.parametrize(
    "images",
    [
        FakeImages({IMAGE: BUSY}),
        FakeImages({IMAGE: DIGEST}, {DIGEST: BUSY}),
        FakeImages({IMAGE: DIGEST}, {DIGEST: UNDECIDED}),
        FakeImages({IMAGE: DIGEST}, {DIGEST: replace(UNDECIDED, allowed=True)}),
        FakeImages({IMAGE: DIGEST}, {DIGEST: GOOD}, {DIGEST: BUSY}),
    ],
    ids=["tag", "signatures", "an open verdict", "an open verdict that is admitted", "the size of a verified image"],
)
def test_a_new_image_is_checked_again_after_the_requested_pause(images: FakeImages) -> None:
    assert retry(CheckedCache(images=images)).retry_after == PAUSE


@pytest.mark.parametrize("answer", [BUSY, UNDECIDED])
def test_a_verified_image_is_checked_again_after_the_requested_pause(answer: object) -> None:
    checked = CheckedCache(PINNED, RecheckSchedule(HOUR))
    checked.check()
    checked.images.verdicts[DIGEST] = answer  # type: ignore[assignment]
    checked.now += 2 * HOUR
    assert retry(checked).retry_after == PAUSE


@pytest.mark.parametrize(("tag", "verdict"), [(BUSY, GOOD), (OTHER, BUSY)])
def test_a_tag_is_followed_after_the_requested_pause(tag: str | GKMError, verdict: object) -> None:
    checked = CheckedCache(TRACKED)
    checked.check()
    checked.images.digests[IMAGE], checked.images.verdicts[OTHER] = tag, verdict  # type: ignore[assignment]
    checked.now += HOUR
    assert retry(checked).retry_after == PAUSE


def test_a_revoked_image_is_withdrawn_at_once_and_its_registry_gets_the_pause() -> None:
    checked = CheckedCache(PINNED, RecheckSchedule(HOUR))
    checked.check()
    checked.images.verdicts[DIGEST], checked.images.revocations[DIGEST] = BUSY, UNSIGNED
    checked.now += 2 * HOUR
    assert retry(checked).retry_after == PAUSE
    checked.write()
    assert checked.verified.status == "False"


def test_a_refusal_that_no_registry_caused_has_the_pauses_of_the_queue() -> None:
    assert retry(CheckedCache(images=FakeImages({IMAGE: DIGEST}, {DIGEST: UNSIGNED}))).retry_after == 0


@pytest.mark.parametrize(
    ("header", "pause"),
    [("3600", MAX_RETRY_AFTER_SECONDS), ("90", PAUSE), ("Fri, 27 Nov 2133 00:00:00 GMT", MAX_RETRY_AFTER_SECONDS)],
)
@pytest.mark.parametrize("known", [False, True])
def test_the_header_of_a_real_registry_is_bounded(site: Site, header: str, pause: float, known: bool) -> None:  # noqa: FBT001 -- a column
    site.real.requests.clear()
    site.real.misbehave(faults.status("", 429, headers={"Retry-After": header}))
    checked = CheckedCache(PINNED)
    checked.spec(image=f"{site.ref.name}:1")
    images = CheckedImages(site.client, Verifier(Verification(policies=[POLICY])), None)
    outcome = check_image(images, checked.cache, CurrentImage(site.ref.target) if known else None)
    assert (outcome.sure, outcome.settled, outcome.reason) == (False, False, Reason.REGISTRY_UNAVAILABLE)
    assert outcome.retry_after == pause
    assert len(site.real.requests) == (2 if known else 1)  # the two forms of signatures, or the tag
