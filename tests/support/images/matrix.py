"""The matrix of signatures that a verifier must accept or refuse, as rows for GKM and for real cosign.

The rows have no online lookups: verification sends no request to a log.
"""

import datetime as dt
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gkm.api.config import Identity, Policy, Verification
from gkm.images.reference import Reference
from gkm.images.signatures.verify import Verdict, Verifier
from support.registry.clients import plain_client
from support.registry.push import Target
from support.registry.store import OCI_INDEX
from support.sigstore.key_signatures import SigningKey, payload_of, push_bundle, push_legacy
from support.sigstore.keyless import Flaw, Person, Service
from support.sigstore.services import Sigstore

PERIODS = {
    "ended": {"start": "2020-01-01T00:00:00Z", "end": "2021-01-01T00:00:00Z"},
    "not begun": {"start": "2100-01-01T00:00:00Z"},
}
LAYER = "application/vnd.oci.image.layer.v1.tar"


def limited(root: dict[str, Any], services: str, period: str) -> dict[str, Any]:
    """Return a trusted root in which `services` (tlogs, ctlogs …) are valid in one period only."""
    now = dt.datetime.now(dt.UTC).isoformat().replace("+00:00", "Z")
    valid = PERIODS.get(period, {"start": "2024-01-01T00:00:00Z", "end": now})
    for service in root[services]:
        service.get("publicKey", service)["validFor"] = valid
    return root


@dataclass(frozen=True)
class Ground:
    """An image to verify, another image in the same repository, and the trusted signers `key` and `person`."""

    target: Target
    digest: str
    other: str
    sigstore: Sigstore
    root: Path
    key: SigningKey = field(default_factory=SigningKey)
    person: Person = field(default_factory=Person)

    @classmethod
    def prepared(cls, target: Target, sigstore: Sigstore, directory: Path) -> "Ground":
        image, other = (target.image([(name.encode(), LAYER)], tag=name) for name in ("image", "other"))
        return cls(target, image, other, sigstore, sigstore.write_trusted_root(directory))

    @property
    def image(self) -> str:
        return f"{self.target}@{self.digest}"

    def accepted(self, row: "Row") -> bool | None:
        """Return whether GKM accepts the image under the policy for a row."""
        return verdict_on(self.image, self.policy(row)).verified

    def policy(self, row: "Row") -> Policy:
        root = str(self.root_of(row))
        if row.wants == "key":
            keys = [self.key.public_pem.decode()]
            return Policy(keys=keys, tlog="required" if row.log else "optional", trusted_root=root)
        return Policy(identities=[Identity(self.person.issuer, self.person.subject)], trusted_root=root)

    def root_of(self, row: "Row") -> Path:
        """Write the trusted root for a row, and return its path; a period that has ended since ends now."""
        if row.limited:
            self.root.write_text(json.dumps(limited(self.sigstore.trusted_root(), row.limited, row.period)))
        return self.root

    def sign(self, row: "Row", digest: str) -> str:
        """Sign as in the row and attach the signature to `digest`; return the digest of its manifest."""
        signers: dict[str, SigningKey | Person] = {
            "key": self.key,
            "person": self.person,
            "another key": SigningKey(),
            "another person": Person("mallory@example.test", self.person.issuer),
            "another issuer": Person(self.person.subject, "https://evil.example.test"),
        }
        signer = signers[row.by]
        service = Service(self.sigstore, row.log, row.stamped)
        if row.form == "legacy":
            return push_legacy(self.target, digest, *service.legacy(payload_of(self.target, digest), signer, row.flaw))
        return push_bundle(self.target, digest, service.bundle(digest, signer, row.flaw))


@dataclass(frozen=True)
class Row:
    """A signature in `form` by the signer `by`, under a policy for `wants`; `says` is the reason of a refusal.

    The services of the trusted root in `limited` are valid only in `period`. cosign accepts a row with `stricter`.
    """

    name: str
    form: str
    by: str
    wants: str
    says: str = ""
    log: int = 0
    stamped: bool = False
    flaw: Flaw = Flaw.NONE
    limited: str = ""
    period: str = ""
    stricter: bool = False
    place: Callable[[Ground, "Row"], object] = lambda ground, row: ground.sign(row, ground.digest)

    @property
    def accepted(self) -> bool:
        return not self.says

    @property
    def repository(self) -> str:
        """The name in a form that a repository may have."""
        return str(self).strip(".").replace(".", "")

    def __str__(self) -> str:
        return self.name.replace(" ", "-")


def verdict_on(image: str, policy: Policy) -> Verdict:
    """Return GKM's verdict under one policy on an image by its digest."""
    ref = Reference.parse(image)
    return Verifier(Verification(policies=[policy])).verify(plain_client(ref.registry), ref, "team")


def nothing(ground: Ground, row: Row) -> None:
    """Sign an image, then change its manifest, so that the new image is unsigned."""
    ground.sign(row, ground.other)


def copied_tag(ground: Ground, row: Row) -> None:
    """Sign the other image and copy its tag .sig to this one's."""
    ground.sign(row, ground.other)
    _, manifest = ground.target.get(f"manifests/{ground.other.replace(':', '-')}.sig")
    ground.target.manifest(manifest, ground.digest.replace(":", "-") + ".sig")


def relisted(ground: Ground, row: Row) -> None:
    """List the other image's referrer for this one, in a registry with the fallback tag."""
    referrer = ground.sign(row, ground.other)
    _, manifest = ground.target.get(f"manifests/{referrer}")
    entry = {"mediaType": json.loads(manifest)["mediaType"], "digest": referrer, "size": len(manifest)}
    index = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": [entry]}
    ground.target.manifest(json.dumps(index).encode(), ground.digest.replace(":", "-"), OCI_INDEX)


def rebuilt(ground: Ground, row: Row) -> None:
    """Attach the other image's bundle to this one, in a referrer of its own."""
    service = Service(ground.sigstore, row.log, row.stamped)
    by = ground.key if row.by == "key" else ground.person
    push_bundle(ground.target, ground.digest, service.bundle(ground.other, by))


ACCEPTED = (
    Row("key legacy", "legacy", "key", "key"),
    Row("key bundle", "bundle", "key", "key"),
    Row("key legacy rekor1", "legacy", "key", "key", log=1),
    Row("key bundle rekor1", "bundle", "key", "key", log=1),
    Row("key bundle rekor2 tsa", "bundle", "key", "key", log=2, stamped=True),
    Row("keyless bundle", "bundle", "person", "person", log=1),
    Row("keyless bundle tsa", "bundle", "person", "person", log=1, stamped=True),
    Row("keyless bundle rekor2 tsa", "bundle", "person", "person", log=2, stamped=True),
    Row("keyless legacy", "legacy", "person", "person", log=1),
)
_KEY, _NAMED = "was not made by a trusted key", "whom the policy does not name"
REFUSED = (
    Row("another key legacy", "legacy", "another key", "key", _KEY),
    Row("another key bundle", "bundle", "another key", "key", _KEY),
    Row("another key bundle rekor1", "bundle", "another key", "key", _KEY, log=1),
    Row("another person bundle", "bundle", "another person", "person", _NAMED, log=1),
    Row("another issuer bundle", "bundle", "another issuer", "person", _NAMED, log=1),
    Row("another person legacy", "legacy", "another person", "person", _NAMED, log=1),
    Row("another issuer legacy", "legacy", "another issuer", "person", _NAMED, log=1),
    Row("keyless where a key is wanted", "bundle", "person", "key", "names keys only", log=1),
    Row("changed manifest", "legacy", "key", "key", "no signature was found", place=nothing),
    Row("copied .sig tag", "legacy", "key", "key", "signs another image", place=copied_tag),
    Row("copied .sig tag keyless", "legacy", "person", "person", "signs another image", log=1, place=copied_tag),
    Row("relisted referrer", "bundle", "key", "key", "attached to another image", place=relisted),
    Row("rebuilt referrer", "bundle", "key", "key", "signs another image", place=rebuilt),
    Row("rebuilt referrer keyless", "bundle", "person", "person", "signs another image", log=1, place=rebuilt),
    Row("payload changed", "legacy", "key", "key", _KEY, flaw=Flaw.FLIPPED_PAYLOAD),
    Row("signature changed", "bundle", "person", "person", "invalid signature", 1, flaw=Flaw.FLIPPED_SIGNATURE),
    Row("log entry changed", "bundle", "person", "person", "root hash", 1, flaw=Flaw.FLIPPED_BODY),
    Row("root hash changed", "bundle", "person", "person", "root hash", 1, flaw=Flaw.FLIPPED_ROOT),
    Row(
        "tsa token changed", "bundle", "person", "person", "verified time", 2, stamped=True, flaw=Flaw.FLIPPED_TIMESTAMP
    ),
    Row("no tsa token", "bundle", "person", "person", "signed timestamp", 2, stamped=True, flaw=Flaw.NO_TIME),
    Row("no log entry", "bundle", "person", "person", "log entry", 1, flaw=Flaw.NO_ENTRY),
    Row("no log entry by key", "bundle", "key", "key", "no log entry", 1, flaw=Flaw.NO_ENTRY),
    Row("log entry of another", "bundle", "key", "key", "about another signature", 1, flaw=Flaw.OTHER_ENTRY),
    Row("log entry of another legacy", "legacy", "person", "person", "another signature", 1, flaw=Flaw.OTHER_ENTRY),
)
ATTESTATION = Row("attestation of another type", "bundle", "person", "person", "no signature", 1, flaw=Flaw.OTHER_TYPE)
"""cosign takes it for a signature."""
