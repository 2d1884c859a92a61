"""An image with a legacy keyless signature whose entry exists only in the log."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from gkm.api.config import Identity, Policy, Verification
from gkm.images.reference import Reference
from gkm.images.signatures.rekor import Rekor
from gkm.images.signatures.sigstore_services import SigstoreService as HTTPService
from gkm.images.signatures.verify import Verdict, Verifier
from support.images.cache_registry import client_of
from support.images.matrix import LAYER
from support.registry.push import Target
from support.registry.server import Registry
from support.sigstore.http_services import SigstoreServer
from support.sigstore.key_signatures import SIGNATURE_ANNOTATION, payload_of, push_legacy
from support.sigstore.keyless import CERTIFICATE_ANNOTATION, Flaw, Person, Service
from support.sigstore.services import Sigstore

ALICE = Person()


class Place:
    """The image, its registry, the log, and the trusted root that names the log."""

    def __init__(self, real: Registry, server: SigstoreServer, directory: Path) -> None:
        self.real, self.server = real, server
        self.target = Target(real.host, "team/cache")
        self.ref = Reference.parse(f"{self.target}@{self.target.image([(b'layer', LAYER)])}")
        self.root = directory / "root.json"
        self.reachable(server.url)

    def reachable(self, url: str) -> None:
        """Write the trusted root with an address of the log."""
        root = self.server.sigstore.trusted_root()
        root["tlogs"] = [{**root["tlogs"][0], "baseUrl": url}]
        self.root.write_text(json.dumps(root))

    def sign(self, by: Person = ALICE, *, logged: bool = True, flaw: Flaw = Flaw.NONE) -> None:
        """Sign, log, and attach the signature without the log entry."""
        payload = payload_of(self.target, self.ref.target)
        _, annotations = Service(self.server.sigstore, 0).legacy(payload, by, flaw)
        kept = {name: annotations[name] for name in (SIGNATURE_ANNOTATION, CERTIFICATE_ANNOTATION)}
        if logged:
            log = Rekor(HTTPService("Rekor", self.server.url))
            signature = base64.b64decode(kept[SIGNATURE_ANNOTATION])
            log.add_hashedrekord(payload, signature, kept[CERTIFICATE_ANNOTATION].encode())
        push_legacy(self.target, self.ref.target, payload, kept)

    def verdict(self, *, lookup: bool = True, seconds: float = 60.0, subject: str = ALICE.subject) -> Verdict:
        named = [Identity(ALICE.issuer, subject)]
        policy = Policy(identities=named, trusted_root=str(self.root), tlog_lookup=lookup)
        verifier = Verifier(Verification(policies=[policy]), seconds)
        return verifier.verify(client_of(self.real), self.ref, None)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with Registry.start() as real, SigstoreServer.start(Sigstore()) as server:
        yield Place(real, server, tmp_path)
