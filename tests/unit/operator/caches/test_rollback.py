"""Track does not follow a tag back to an older signed image: signatures do not expire, so push rights suffice to show
it again.
"""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from gkm.api.caches import UpdatePolicy
from gkm.api.config import Config, Policy, Registries, RegistryHost
from gkm.api.config import Verification as Demand
from gkm.images.reference import Reference
from gkm.images.registries import push
from gkm.images.registries.registry import Registry as Client
from gkm.images.registries.transport import TransportLimits
from gkm_operator.caches.outcome import Age, why_older
from gkm_operator.caches.verification import RecheckSchedule, VerificationQueue
from gkm_operator.images import CheckedImages
from msgspec import structs
from support.images.archives import cache_image
from support.operator.verdicts import TRACKED, CheckedCache
from support.registry.faults import status
from support.registry.push import Target
from support.registry.server import Registry
from support.sigstore.key_signatures import SigningKey, push_bundle, sign_bundle
from support.sigstore.keyless import Service
from support.sigstore.services import Sigstore

CREATED = "org.opencontainers.image.created"
NOW = datetime.now(UTC).replace(microsecond=0)
HOUR = timedelta(hours=1)
OLD, NEW = NOW - 2 * HOUR, NOW - HOUR


class Scene:
    """A repository with one tag, a key that signs, and a cache that tracks the tag. `later` is the next look."""

    def __init__(self, real: Registry, root: Path) -> None:
        self.real = real
        self.key, self.sigstore = SigningKey(), Sigstore()
        self.target = Target(real.host, "team/cache")
        self.hosts = Registries(hosts={real.host: RegistryHost(plain_http=True)})
        self.client = Client(self.hosts)
        self.tag = f"{self.target}:1"
        key = self.key.public_pem.decode()
        policy = Policy(keys=[key], trusted_root=str(self.sigstore.write_trusted_root(root)))
        self.demand = Demand(policies=[policy])
        self.checked = CheckedCache(TRACKED)
        self.checked.cache = structs.replace(
            self.checked.cache, spec=structs.replace(self.checked.cache.spec, image=self.tag)
        )
        self.restart()

    def restart(self) -> None:
        self.checked.verification = VerificationQueue(
            CheckedImages.of(Config(self.demand, self.hosts), TransportLimits(1.0, 0.5, 3.0, pause=0.01), None),
            lambda _: self.checked.cache,
            lambda _: None,
            schedule=RecheckSchedule.of(self.demand),
            clock=lambda: self.checked.now,
        )

    def push(self, title: str, created: datetime | None = None, signed: datetime | None = None) -> str:
        """Push a signed image under the tag; return its digest."""
        digest = push.image(self.client, Reference.parse(self.tag), cache_image(title))
        if created is not None:
            manifest = json.loads(self.target.get(f"manifests/{digest}")[1])
            manifest["annotations"] = {CREATED: created.isoformat().replace("+00:00", "Z")}
            digest = str(self.target.manifest(manifest, "1")["digest"])
        if signed is None:
            sign_bundle(self.target, digest, self.key)
        else:
            self._log_at(digest, signed)
        return digest

    def _log_at(self, digest: str, signed: datetime) -> None:
        rekor = self.sigstore.rekor
        add = rekor.add
        rekor.add = lambda body, kind: add(body, kind, at=int(signed.timestamp()))  # type: ignore[method-assign, assignment, misc]
        try:
            push_bundle(self.target, digest, Service(self.sigstore).bundle(digest, self.key))
        finally:
            rekor.add = add  # type: ignore[method-assign]

    def retag(self, digest: str) -> None:
        self.target.manifest(self.target.get(f"manifests/{digest}")[1], "1")

    def later(self) -> str:
        """Check the tag again; return the digest of the cache afterwards."""
        self.checked.now += 3600
        self.checked.check()
        return str(self.checked.status.resolved_digest)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with Registry.start() as real:
        yield Scene(real, tmp_path)


Push = Callable[[Scene, str, datetime | None], str]


def by_annotation(scene: Scene, title: str, time: datetime | None) -> str:
    return scene.push(title, created=time)


def by_log(scene: Scene, title: str, time: datetime | None) -> str:
    return scene.push(title, signed=time)


ways = pytest.mark.parametrize(
    ("push_at", "word"), [(by_annotation, "created"), (by_log, "signed")], ids=["annotation", "log"]
)


@pytest.mark.parametrize("restarted", [False, True], ids=["running", "restarted"])
@ways
def test_a_tag_that_moves_back_is_not_followed(scene: Scene, push_at: Push, word: str, *, restarted: bool) -> None:
    old = push_at(scene, "old", OLD)
    assert scene.later() == old
    new = push_at(scene, "new", NEW)
    assert scene.later() == new
    scene.retag(old)
    if restarted:
        scene.restart()
    assert [scene.later() for _ in range(3)] == [new, new, new]
    verified = scene.checked.verified
    assert (verified.status, verified.reason) == ("True", "UpdateRefused")
    assert f"it was {word} {OLD:%Y-%m-%dT%H:%M:%SZ}, the present one {NEW:%Y-%m-%dT%H:%M:%SZ}" in verified.message
    assert "set updatePolicy.allowRollback to follow it" in verified.message


@ways
def test_data_lost_by_the_registry_changes_nothing(scene: Scene, push_at: Push, word: str) -> None:
    old = push_at(scene, "old", OLD)
    new = push_at(scene, "new", NEW)
    assert scene.later() == new
    scene.retag(old)
    scene.real.misbehave(status(f"/manifests/{new}", 404))
    assert scene.later() == new
    assert getattr(scene.checked.status, f"image_{word}") == f"{NEW:%Y-%m-%dT%H:%M:%SZ}"


@pytest.mark.parametrize(("code", "reason"), [(404, "UpdateRefused"), (503, "CosignSuccess")])
def test_an_image_that_hides_its_age_is_not_followed(scene: Scene, code: int, reason: str) -> None:
    old, new = scene.push("old", OLD), scene.push("new", NEW)
    assert scene.later() == new
    scene.retag(old)
    config = json.loads(scene.target.get(f"manifests/{old}")[1])["config"]["digest"]
    scene.real.misbehave(status(f"/blobs/{config}", code))
    assert scene.later() == new
    assert (scene.checked.verified.status, scene.checked.verified.reason) == ("True", reason)
    scene.real.behave()
    assert scene.later() == new


def test_an_image_that_is_no_cache_replaces_none_and_the_message_asks_for_a_cache(scene: Scene) -> None:
    cache = scene.push("cache")
    assert scene.later() == cache
    manifest = json.loads(scene.target.get(f"manifests/{cache}")[1])
    manifest["config"] |= scene.target.blob(b"{}")
    other = str(scene.target.manifest(manifest, "1")["digest"])
    sign_bundle(scene.target, other, scene.key)
    assert scene.later() == cache
    assert (scene.checked.verified.status, scene.checked.verified.reason) == ("True", "UpdateRefused")
    assert "push a cache image under the tag" in scene.checked.verified.message
    assert "allowRollback" not in scene.checked.verified.message


@ways
def test_with_allow_rollback_it_is_followed(scene: Scene, push_at: Push, word: str) -> None:
    del word
    old, new = push_at(scene, "old", OLD), push_at(scene, "new", NEW)
    assert scene.later() == new
    scene.checked.spec(update_policy=UpdatePolicy("Track", "15m", allow_rollback=True))
    scene.retag(old)
    assert scene.later() == old


def test_a_tag_is_followed_when_the_order_is_unknown(scene: Scene) -> None:
    old, new = scene.push("old"), scene.push("new")
    assert scene.later() == new
    scene.retag(old)
    assert scene.later() == old


def test_an_annotation_takes_precedence_over_the_log(scene: Scene) -> None:
    first = scene.push("first", created=OLD, signed=NEW)
    assert scene.later() == first
    second = scene.push("second", created=NEW, signed=OLD)
    assert scene.later() == second


@pytest.mark.parametrize(
    ("new", "old", "says"),
    [
        (Age(), Age(), ""),
        (Age(OLD), Age(), ""),
        (Age(), Age(NEW), ""),
        (Age(NEW), Age(OLD), ""),
        (Age(OLD), Age(OLD), ""),
        (Age(OLD), Age(NEW), "it was created "),
        (Age(OLD, OLD), Age(OLD, NEW), "it was signed "),
        (Age(NEW, OLD), Age(OLD, NEW), ""),
        (Age(signed=OLD), Age(created=NEW), ""),
        (Age(signed=NEW, readable=False), Age(created=OLD), "it cannot be read as a cache, and the present one was "),
        (Age(signed=NEW, readable=False), Age(signed=OLD), "it cannot be read as a cache"),
    ],
)
def test_only_times_of_one_kind_are_compared(new: Age, old: Age, says: str) -> None:
    assert why_older(new, old).startswith(says)
    assert bool(why_older(new, old)) is bool(says)
