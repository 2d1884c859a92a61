"""Evaluation of keyless signatures without a registry: a trusted identity, and the finding for one bundle."""

import json
from pathlib import Path
from typing import Any

from gkm.api.config import Identity, Policy
from gkm.images.signatures.evaluation import SignatureFinding, TrustPolicy
from gkm.images.signatures.signature_formats import parse_bundle
from support.sigstore.keyless import Person
from support.sigstore.services import Sigstore

SIGSTORE = Sigstore()
ALICE = Person()
DIGEST = "sha256:" + "a" * 64


def trust(root: Path, *identities: Identity) -> TrustPolicy:
    named = list(identities) or [Identity(ALICE.issuer, ALICE.subject)]
    return TrustPolicy.from_policy(0, Policy(identities=named, trusted_root=str(root)))


def finding_for(root: Path, bundle: dict[str, Any], *identities: Identity) -> SignatureFinding:
    return trust(root, *identities).evaluate(parse_bundle(json.dumps(bundle).encode()), DIGEST)
