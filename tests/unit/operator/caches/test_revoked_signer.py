"""A signer that no policy names any more: the controller takes its verdict back, whatever the registry answers.

Real files, a real registry and real signatures; the registry then forgets everything, or is not there.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from gkm.api.config import Config, Policy, Registries, RegistryHost
from gkm.api.config import Verification as Demand
from gkm.api.errors import Reason
from gkm_operator.caches.verification import RecheckSchedule, VerificationQueue
from gkm_operator.images import CheckedImages
from msgspec import structs
from support.images.archives import cache_image
from support.images.cache_registry import LIMITS, Site, filled
from support.operator.verdicts import PINNED, TRACKED, CheckedCache
from support.registry.faults import Fault, status
from support.registry.push import Target
from support.registry.server import Registry
from support.sigstore.key_signatures import SigningKey, sign_bundle

HOUR = 3600.0
GONE = status("/v2/", 404)
OUT_OF_REACH = [GONE, status("/v2/", 503), status("/v2/", 401), status("/manifests/", 404)]
away = pytest.mark.parametrize("fault", OUT_OF_REACH, ids=["404", "503", "401", "manifests 404"])


@dataclass
class Scene:
    """A cache that was let through by the key in `file`."""

    site: Site
    checked: CheckedCache
    file: Path
    key: SigningKey
    demand: Demand

    def restart(self, demand: Demand | None = None) -> None:
        self.demand = demand or self.demand
        hosts = {self.site.real.host: RegistryHost(plain_http=True)}
        images = CheckedImages.of(Config(self.demand, Registries(hosts=hosts)), LIMITS, None)
        self.checked.verification = VerificationQueue(
            images,
            lambda _: self.checked.cache,
            lambda _: None,
            schedule=RecheckSchedule.of(self.demand),
            clock=lambda: self.checked.now,
        )

    def later(self) -> None:
        self.checked.now += 10 * HOUR
        self.checked.check()

    @property
    def verified(self) -> tuple[str, str]:
        return self.checked.verified.status, self.checked.verified.reason


@pytest.fixture(params=[PINNED, TRACKED], ids=["pinned", "tracked"])
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    with Registry.start() as real:
        site = filled(real, cache_image())
        key, file = SigningKey(), tmp_path / "cosign.pub"
        sign_bundle(Target(real.host, site.ref.repository), site.ref.target, key)
        file.write_bytes(key.public_pem)
        checked = CheckedCache(request.param)
        tag = f"{site.real.host}/{site.ref.repository}:1"
        checked.cache = structs.replace(checked.cache, spec=structs.replace(checked.cache.spec, image=tag))
        scene = Scene(site, checked, file, key, Demand(policies=[Policy(keys=[str(file)])]))
        scene.restart()
        checked.check()
        assert scene.verified == ("True", "CosignSuccess")
        yield scene


@pytest.mark.parametrize("restarted", [False, True], ids=["running", "restarted"])
@away
def test_a_key_that_was_replaced_counts_no_more(scene: Scene, fault: Fault, *, restarted: bool) -> None:
    scene.site.real.misbehave(fault)
    scene.file.write_bytes(SigningKey().public_pem)
    if restarted:
        scene.restart()
    for _ in range(3):
        scene.later()
        assert scene.verified == ("False", Reason.SIGNATURE_INVALID)
    assert f"key {scene.key.hint[:12]}" in scene.checked.verified.message
    assert "no policy names any more" in scene.checked.verified.message
    assert scene.checked.reasons().count(("Warning", "SignatureInvalid")) == 1


@away
def test_an_image_that_no_policy_covers_any_more_counts_no_more(scene: Scene, fault: Fault) -> None:
    scene.site.real.misbehave(fault)
    scene.restart(Demand(policies=[Policy(keys=[str(scene.file)], images=["other.example/*"])]))
    scene.later()
    assert scene.verified == ("False", Reason.SIGNATURE_MISSING)


@away
def test_a_key_that_is_still_named_counts(scene: Scene, fault: Fault) -> None:
    scene.site.real.misbehave(fault)
    keys = [SigningKey().public_pem.decode(), scene.key.public_pem.decode()]
    scene.restart(Demand(policies=[Policy(keys=keys)]))
    scene.later()
    assert scene.verified == ("True", "CosignSuccess")


@away
def test_a_stricter_policy_revokes_nothing_during_a_registry_outage(scene: Scene, fault: Fault) -> None:
    scene.site.real.misbehave(fault)
    keys = [SigningKey().public_pem.decode(), scene.key.public_pem.decode()]
    scene.restart(Demand(policies=[Policy(keys=keys, require="all")]))
    scene.later()
    assert scene.verified == ("True", "CosignSuccess")


def test_the_registry_may_show_a_signature_by_the_new_key(scene: Scene) -> None:
    new = SigningKey()
    sign_bundle(Target(scene.site.real.host, scene.site.ref.repository), scene.site.ref.target, new)
    scene.file.write_bytes(new.public_pem)
    scene.later()
    assert scene.verified == ("True", "CosignSuccess")
    assert [signer.key_id for signer in scene.checked.status.signers] == [new.hint]


@pytest.mark.parametrize("scene", [PINNED], indirect=True, ids=["pinned"])
@away
def test_a_mode_that_only_warns_lets_it_pass_by_name(scene: Scene, fault: Fault) -> None:
    scene.site.real.misbehave(fault)
    scene.file.write_bytes(SigningKey().public_pem)
    scene.restart(Demand("warn", scene.demand.policies))
    scene.later()
    assert scene.verified == ("True", Reason.NOT_REQUIRED)
