"""Keyless signatures judged without a registry: who is trusted, and what comes of one bundle."""

import json
from pathlib import Path
from typing import Any

from gkm.api.config import Identity, Policy
from gkm.images.signatures.judging import Finding, Trust
from gkm.images.signatures.material import Material
from gkm.images.signatures.parsing import parse_bundle
from testbed.sigstore_keyless import Person
from testbed.sigstore_services import Sigstore

SIGSTORE = Sigstore()
ALICE = Person()
DIGEST = "sha256:" + "a" * 64


def trust(root: Path, *identities: Identity) -> Trust:
    named = list(identities) or [Identity(ALICE.issuer, ALICE.subject)]
    return Trust.of(0, Policy(identities=named, trusted_root=str(root)), Material())


def judged(root: Path, bundle: dict[str, Any], *identities: Identity) -> Finding:
    return trust(root, *identities).judge(parse_bundle(json.dumps(bundle).encode()), DIGEST)
