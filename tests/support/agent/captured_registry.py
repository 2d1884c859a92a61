"""A captured image in a registry, with its signatures and the statement of the agent."""

import copy
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from gkm.api.config import Policy, Verification
from gkm.images.captured import statement
from gkm.images.captured.content import PREDICATE_TYPE, Hardware
from gkm.images.captured.statement import CaptureClaim
from gkm.images.manifest import OCI_INDEX
from gkm.images.reference import Reference
from gkm.images.registries.registry import Registry
from gkm.images.signatures.verify import Verifier
from gkm.images.signing.forms import ImageSigner
from gkm.images.signing.keys import PrivateKey
from gkm.images.signing.sign import attest
from gkm_agent.capturing.progress import load_files
from msgspec import to_builtins
from support.agent.capturing import CaptureNode, write_key
from support.registry.server import Registry as RegistryServer

MADE = datetime(2026, 1, 1, tzinfo=UTC)
NOW = datetime(2026, 1, 10, tzinfo=UTC)


@pytest.fixture(scope="module", params=[True, False], ids=["referrers API", "fallback tags"])
def server(request: pytest.FixtureRequest) -> Iterator[RegistryServer]:
    with RegistryServer.start(referrers=request.param) as running:
        yield running


class CapturedInRegistry:
    """An image that the agent made of a capture."""

    def __init__(self, root: Path, server: RegistryServer) -> None:
        self.server = server
        self.node = CaptureNode(root, server.host)
        self.key = write_key(self.node.key_file)
        self.node.capture()
        self.report = self.node.announced("csi-1")
        self.ref = Reference.parse(self.report.image)
        self.registry = Registry(self.node.config.registries)

    @property
    def hardware_key(self) -> str:
        report = self.report
        return Hardware(report.backend, report.arch, 32, report.driver, report.runtime, report.version).key

    @property
    def claim(self) -> CaptureClaim:
        return CaptureClaim("ml-apps", self.hardware_key, self.report.content_digest or "")

    def check(
        self, key: PrivateKey | None = None, *, now: datetime = NOW, wanted: CaptureClaim | None = None
    ) -> datetime:
        policy = Policy([(key or self.key).public.pem.decode()], tlog="ignored")
        trusts = Verifier(Verification(policies=[policy])).trusts(self.ref, "ml-apps")
        return statement.check(self.registry, self.ref, trusts, wanted or self.claim, now)

    def state(self, time: str, key: PrivateKey | None = None, /, **changes: object) -> None:
        """Attach another statement, as a node does that captured the same at another time."""
        files = load_files(self.node.layout.captured / "csi-1")
        predicate = {
            "namespace": "ml-apps",
            "time": time,
            "contentDigest": self.claim.content_digest,
            "hardware": self.hardware_key,
            "files": [to_builtins(each) for each in files],
        }
        stated = {name: value for name, value in (predicate | changes).items() if value is not None}
        attest(self.registry, self.ref, PREDICATE_TYPE, stated, ImageSigner.by_key(key or self.key))

    def stored(self) -> tuple[int, int]:
        """Return the numbers of the manifests and tags in the repository.

        A fallback tag names another index after each change; those before it stay, without a tag.
        """
        repository = self.server.store.repository(self.ref.repository)
        found = [each for each in repository.manifests.values() if each.media_type != OCI_INDEX]
        return len(found), len(repository.tags)


@pytest.fixture(scope="module")
def captured_once(tmp_path_factory: pytest.TempPathFactory, server: RegistryServer) -> CapturedInRegistry:
    """The image for all tests of a module: `captured` takes back what each of them did to the registry."""
    return CapturedInRegistry(tmp_path_factory.mktemp("captured"), server)


@pytest.fixture
def captured(captured_once: CapturedInRegistry) -> Iterator[CapturedInRegistry]:
    stored = captured_once.server.store.repository(captured_once.ref.repository)
    before = copy.deepcopy(stored)
    yield captured_once
    vars(stored).update(vars(before))
