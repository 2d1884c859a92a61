"""The cache of positive verdicts: what it stores, and what invalidates it."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml
from gkm.api.config import parse
from gkm.api.errors import GKMError, Reason
from gkm_operator.admission.validator import VerdictCache
from gkm_operator.images import CheckedImages
from support.operator.deployment import Shelf
from support.operator.images import AWAY, DIGEST, GOOD, OFF, OTHER, UNKNOWN, UNSIGNED, WARNED, FakeImages
from support.sigstore.key_signatures import SigningKey

IMAGE = "registry.test/team/cache:1"


@dataclass
class Site:
    """Images with positive verdicts only, behind the cache; the test sets `stamp` and `now`."""

    images: FakeImages = field(default_factory=lambda: FakeImages({IMAGE: DIGEST}, {DIGEST: GOOD, OTHER: GOOD}))
    stamp: object = "files"
    now: float = 0.0
    limit: int = 100

    def __post_init__(self) -> None:
        self.verdicts = VerdictCache(
            self.images, lambda: str(self.stamp), seconds=300, limit=self.limit, clock=lambda: self.now
        )

    def verified(self, image: str = IMAGE, digest: str = DIGEST, namespace: str | None = "a") -> bool:
        """Verify; return whether the verifier was called."""
        before = len(self.images.asked)
        self.verdicts.verify(image, digest, namespace)
        return len(self.images.asked) > before


def test_a_positive_verdict_is_computed_once() -> None:
    site = Site()
    assert [site.verified() for _ in range(3)] == [True, False, False]
    assert site.verdicts.verify(IMAGE, DIGEST, "a").message == GOOD.message


def test_another_tag_of_the_same_repository_with_the_same_digest_is_the_same_image() -> None:
    site = Site()
    site.verified()
    assert not site.verified("registry.test/team/cache:2")
    assert not site.verified(f"registry.test/team/cache@{DIGEST}")


@pytest.mark.parametrize(
    ("image", "digest", "namespace"),
    [
        ("registry.test/team/other:1", DIGEST, "a"),
        ("other.test/team/cache:1", DIGEST, "a"),
        (IMAGE, OTHER, "a"),
        (IMAGE, DIGEST, "b"),
        (IMAGE, DIGEST, None),
    ],
    ids=["repository", "registry", "digest", "namespace", "cluster"],
)
def test_verdicts_are_cached_by_repository_digest_and_namespace(image: str, digest: str, namespace: str | None) -> None:
    site = Site()
    site.verified()
    assert site.verified(image, digest, namespace)
    assert not site.verified()


@pytest.mark.parametrize("verdict", [UNSIGNED, WARNED, UNKNOWN, OFF])
def test_only_a_positive_verdict_is_cached(verdict: object) -> None:
    site = Site(FakeImages({}, {DIGEST: verdict}))  # type: ignore[dict-item]
    assert [site.verified() for _ in range(2)] == [True, True]
    site.images.verdicts[DIGEST] = GOOD
    assert [site.verified() for _ in range(2)] == [True, False]


def test_an_error_is_raised_and_not_cached() -> None:
    site = Site(FakeImages({}, {DIGEST: AWAY}))
    with pytest.raises(GKMError, match=AWAY.message):
        site.verified()
    site.images.verdicts[DIGEST] = GOOD
    assert site.verified()


def test_a_tag_is_resolved_each_time() -> None:
    site = Site()
    for _ in range(3):
        site.verdicts.resolve(IMAGE)
    assert site.images.asked == [("resolve", IMAGE)] * 3


def test_a_verdict_ends_with_its_time() -> None:
    site = Site()
    site.verified()
    site.now = 299.9
    assert not site.verified()
    site.now = 300.0
    assert site.verified()


def test_the_least_recently_used_verdict_is_dropped_first() -> None:
    site = Site(limit=2)
    for name in ("a", "b", "a", "c"):
        site.verified(namespace=name)
    assert [site.verified(namespace=name) for name in ("a", "c", "b")] == [False, False, True]
    assert len(site.verdicts._verdicts.items()) == 2


def test_a_changed_policy_file_drops_all_verdicts() -> None:
    site = Site()
    site.verified()
    site.verified(namespace="b")
    site.stamp = "another key"
    assert [site.verified(), site.verified(namespace="b")] == [True, True]
    site.stamp = "files"
    assert site.verified()


def test_a_verdict_computed_while_a_file_changed_is_not_cached() -> None:
    site = Site()
    stamps = iter(["old", "new", "old", "old"])
    site.verdicts = VerdictCache(site.images, lambda: next(stamps))
    assert [site.verified() for _ in range(2)] == [True, True]


def test_the_time_budget_bounds_all_signatures_together(images: Shelf) -> None:
    image, digest = images.push("patience")
    verdict = CheckedImages.of(parse(images.config()), seconds=0.0).verify(image, digest, "a")
    assert (verdict.verified, verdict.reason) == (None, Reason.REGISTRY_UNAVAILABLE)


@pytest.fixture
def key_file(tmp_path: Path, images: Shelf) -> Path:
    path = tmp_path / "signer.pub"
    path.write_bytes(images.key.public_pem)
    return path


@pytest.mark.parametrize("taken", ["replaced", "removed", "rewritten"])
def test_a_removed_key_invalidates_cached_verdicts(images: Shelf, key_file: Path, taken: str) -> None:
    value = yaml.load(images.config(), yaml.CSafeLoader)
    value["verification"]["policies"] = [{"keys": [str(key_file)]}]
    real = CheckedImages.of(parse(yaml.safe_dump(value)))
    verdicts = VerdictCache(real, real.verifier.stamp)
    image, digest = images.push("kept")
    assert verdicts.verify(image, digest, "a").verified
    before = len(images.registry.requests)
    assert verdicts.verify(image, digest, "a").verified
    assert len(images.registry.requests) == before
    other = SigningKey().public_pem
    if taken == "replaced":
        (fresh := key_file.with_name("fresh")).write_bytes(other)
        fresh.replace(key_file)
    elif taken == "rewritten":
        key_file.write_bytes(other + b"\n")
    else:
        key_file.unlink()
    assert verdicts.verify(image, digest, "a").verified is False
