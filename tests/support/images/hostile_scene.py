"""The scene of the rows of `images_hostile`: a registry with one signed image, a second registry, and a policy."""

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache as once
from pathlib import Path
from typing import Any

from gkm.api.config import Registries, RegistryHost
from gkm.api.policies import Policy
from gkm.images.local_image import LocalImage
from gkm.images.manifest import OCI_INDEX, OCI_MANIFEST
from gkm.images.reference import Reference
from gkm.images.registries.auth import Login
from gkm.images.registries.registry import Registry
from gkm.images.registries.transport import TransportLimits
from support.images.archives import content, image_of_layers, tree
from support.registry.auth import Auth
from support.registry.push import Target
from support.registry.server import Registry as RealRegistry
from support.sigstore.key_signatures import SigningKey, sign_legacy
from support.sigstore.services import Sigstore

LIMITS = TransportLimits(connect=1.0, stall=0.5, request=3.0, pause=0.01)
REPOSITORY = "team/cache"
USER, SECRET = "robot", "s3cret-passw0rd"
GOOD = tree(("io.triton.cache/K/a.cubin", b"kernel" * 3000))


@once
def sigstore() -> Sigstore:
    return Sigstore()


class Fixed:
    """The same credentials for every registry, so that a leak is visible."""

    def logins(self, registry: str, repository: str) -> list[Login]:  # noqa: ARG002 -- the Protocol's names
        return [Login(USER, SECRET)]


@dataclass
class Scene:
    """A staged attack. After `put`, the tag names the image `digest`, which the key has signed."""

    real: RealRegistry
    other: RealRegistry
    directory: Path
    key: SigningKey = field(default_factory=SigningKey)
    digest: str = ""
    config: str = ""
    layers: tuple[str, ...] = ()
    """The digests of the configuration, and of the layers in their order."""
    trusted_root: str = ""
    """The path of a trusted root, if the policy demands a log entry."""

    @property
    def ref(self) -> Reference:
        return Reference.parse(f"{self.real.host}/{REPOSITORY}:1")

    @property
    def target(self) -> Target:
        return Target(self.real.host, REPOSITORY, ca_file=self.real.ca_file)

    @property
    def hosts(self) -> dict[str, RegistryHost]:
        plain = self.real.ca_file is None
        return {self.real.host: RegistryHost(plain_http=plain, ca_file=str(self.real.ca_file or ""))}

    @property
    def policy(self) -> Policy:
        keys = [self.key.public_pem.decode()]
        if not self.trusted_root:
            return Policy(keys=keys)
        return Policy(keys=keys, tlog="required", trusted_root=self.trusted_root)

    def client(self) -> Registry:
        return Registry(Registries(hosts=self.hosts), Fixed(), LIMITS)

    def put(self, *layers: bytes, labels: dict[str, str] | None = None, **changes: object) -> None:
        """Store an image and sign it. `changes` replace fields of its manifest."""
        self.put_image(image_of_layers(*layers, labels=labels), **changes)

    def put_image(self, image: LocalImage, **changes: object) -> None:
        for blob in image.blobs:
            self.real.store.put_blob(REPOSITORY, content(blob))
        self.config, *layers = (blob.descriptor.digest for blob in image.blobs)
        self.layers = tuple(layers)
        self.put_manifest(json.dumps(json.loads(image.manifest) | changes).encode())

    def put_manifest(self, raw: bytes, media_type: str = OCI_MANIFEST, *, sign: bool = True) -> None:
        """Store any manifest under the tag, and sign its digest."""
        self.digest = self.real.store.put_manifest(REPOSITORY, raw, tag="1", media_type=media_type)
        if sign:
            sign_legacy(self.target, self.digest, self.key)

    def put_index(self, *manifests: Mapping[str, Any], media_type: str = OCI_INDEX) -> None:
        self.put_manifest(json.dumps({"schemaVersion": 2, "manifests": list(manifests)}).encode(), media_type)

    def described(self) -> list[dict[str, Any]]:
        """Return the layers as the manifest describes them."""
        raw = self.real.store.repository(REPOSITORY).manifests[self.digest].data
        layers: list[dict[str, Any]] = json.loads(raw)["layers"]
        return layers

    def lock(self, auth: Auth) -> None:
        """Demand credentials from now on."""
        self.real.auth = auth

    def gave_away(self) -> bool:
        """Return whether the other registry received a credential of this one."""
        return any("authorization" in request.headers for request in self.other.requests)


@contextmanager
def scene(directory: Path, *, tls: bool = False) -> Iterator[Scene]:
    with ExitStack() as stack:
        (directory / "tls").mkdir()
        real = stack.enter_context(RealRegistry.start(tls=directory / "tls" if tls else None))
        yield Scene(real, stack.enter_context(RealRegistry.start()), directory)
