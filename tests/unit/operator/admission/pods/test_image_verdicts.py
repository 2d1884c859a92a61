"""One table for both deliveries: an image volume reaches a pod exactly where nodes of the CSI driver serve the image.

Real images, signatures and registries; the controllers' check, the agent's check and the webhook are those that ship.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import msgspec
import pytest
from gkm.api.caches import CacheSpec, CacheStatus, GKMCache
from gkm.api.config import Config, Policy, Registries, RegistryHost, Verification
from gkm.api.errors import GKMError
from gkm.api.meta import ObjectMeta, timestamp
from gkm.hoststate.layout import Layout
from gkm.images.reference import Reference
from gkm.images.registries import push
from gkm_agent.kubernetes.source import wanted_of
from gkm_agent.pulls.images import NodeImages
from gkm_operator.caches.outcome import check_image
from gkm_operator.caches.status import desired_status
from gkm_operator.caches.totals import CacheSummary
from gkm_operator.images import CheckedImages
from msgspec import structs
from support.grove.objects import NAMESPACE
from support.images import matrix, matrix_periods
from support.images.archives import image_of_layers
from support.images.cache_registry import LIMITS, client_of
from support.images.matrix import Ground, Row
from support.operator.pod_caches import PodCaches, a_pod
from support.registry.push import Target
from support.registry.server import Registry
from support.sigstore.services import Sigstore

PATH = "/var/cache/gkm/llama"
ROWS = [*matrix.ACCEPTED, *matrix_periods.ACCEPTED, *matrix.REFUSED, *matrix_periods.REFUSED]
SIGNED = matrix.ACCEPTED[0]
UNSIGNED = Row("no signature", "bundle", "key", "key", "no signature was found", place=lambda _ground, _row: None)
H100 = {"nvidia.com/gpu.compute.major": "9", "nvidia.com/gpu.compute.minor": "0"}
Mode = Literal["enforce", "warn", "off"]


@pytest.fixture(scope="module")
def sigstore() -> Sigstore:
    return Sigstore()


@pytest.fixture(params=["referrers", "fallback tag"])
def registry(request: pytest.FixtureRequest) -> Iterator[Registry]:
    with Registry.start(referrers=request.param == "referrers") as registry:
        yield registry


@dataclass
class Case:
    """A cache image with the signature of a row, declared in a cluster under a policy for the row."""

    row: Row
    registry: Registry
    ground: Ground
    allow: list[str] = field(default_factory=list)
    covers: list[str] = field(default_factory=lambda: [NAMESPACE])
    mode: Mode = "enforce"

    @classmethod
    def prepared(cls, row: Row, registry: Registry, sigstore: Sigstore, directory: Path) -> "Case":
        target = Target(registry.host, "team/image")
        built = image_of_layers(b"layer", labels={"gkm.io/mount-path": PATH})
        ref = Reference.parse(f"{target}:cache")
        digest = push.image(client_of(registry), ref, built)
        case = cls(row, registry, replace(Ground.prepared(target, sigstore, directory), digest=digest))
        row.place(case.ground, row)
        return case

    @property
    def config(self) -> Config:
        policy: Policy = structs.replace(self.ground.policy(self.row), namespaces=self.covers)
        host = RegistryHost(plain_http=True)
        registries = Registries(allow=self.allow, hosts={self.registry.host: host})
        return Config(
            verification=Verification(mode=self.mode, policies=[policy]), registries=registries, delivery="image"
        )

    def status(self) -> CacheStatus | None:
        """Return the status that the controllers write."""
        meta = ObjectMeta(name="llama", namespace=NAMESPACE, uid="u", generation=1)
        self.cache = GKMCache(meta, CacheSpec(self.ground.image))
        outcome = check_image(CheckedImages.of(self.config, LIMITS), self.cache, None)
        return desired_status(self.cache, outcome, CacheSummary(), timestamp(), delivery="image")

    def by_image(self, status: CacheStatus | None) -> str:
        """Return the reference that a pod gets, "" for none."""
        found = PodCaches(self.config)
        found.verified("llama", msgspec.to_builtins(status) or {}, {"image": self.ground.image})
        found.observe()
        made = found.review(a_pod(annotations={"gkm.io/cache-mode": "read-only"}, nodeSelector=H100)).object
        volumes = [each for each in made["spec"].get("volumes", ()) if each["name"] == "gkm-cache"]
        return str(volumes[0]["image"]["reference"]) if volumes else ""

    def by_csi(self, status: CacheStatus | None, directory: Path) -> str:
        """Return the reference that a node pulls and serves, "" for none."""
        wanted = wanted_of(structs.replace(self.cache, status=status or CacheStatus()), "node")
        if wanted is None or wanted.digest is None:
            return ""
        images = NodeImages.of(self.config, Layout(directory / "state", directory / "run"))
        try:
            images.check_allowed(wanted.image, wanted.ref.namespace)
            verdict = images.verify(wanted.image, wanted.digest, wanted.ref.namespace)
        except GKMError:
            return ""
        return str(Reference.parse(wanted.image).pinned(wanted.digest)) if verdict.allowed else ""


def assert_equal(case: Case, directory: Path, *, served: bool) -> None:
    status = case.status()
    expected = f"{case.ground.target}@{case.ground.digest}" if served else ""
    assert (case.by_image(status), case.by_csi(status, directory)) == (expected, expected)


@pytest.mark.parametrize("row", [*ROWS, UNSIGNED], ids=str)
def test_every_row_of_the_matrix_of_signatures(
    row: Row, registry: Registry, sigstore: Sigstore, tmp_path: Path
) -> None:
    assert_equal(Case.prepared(row, registry, sigstore, tmp_path), tmp_path, served=row.accepted)


@dataclass(frozen=True)
class Setting:
    """A configuration of verification and registries, and a signature."""

    name: str
    served: bool
    row: Row = SIGNED
    allow: tuple[str, ...] = ()
    covers: tuple[str, ...] = (NAMESPACE,)
    mode: Mode = "enforce"

    def __str__(self) -> str:
        return self.name


SETTINGS = (
    Setting("covered", served=True),
    Setting("another tenant", served=False, covers=("other",)),
    Setting("all tenants", served=True, covers=()),
    Setting("a registry outside the list", served=False, allow=("registry.example/*",)),
    Setting("unsigned, warn", served=True, row=UNSIGNED, mode="warn"),
    Setting("unsigned, off", served=True, row=UNSIGNED, mode="off"),
    Setting("not covered, warn", served=True, covers=("other",), mode="warn"),
)


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_tenants_lists_and_modes(setting: Setting, registry: Registry, sigstore: Sigstore, tmp_path: Path) -> None:
    case = Case.prepared(setting.row, registry, sigstore, tmp_path)
    case = replace(case, allow=list(setting.allow), covers=list(setting.covers), mode=setting.mode)
    assert_equal(case, tmp_path, served=setting.served)
