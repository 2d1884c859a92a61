"""Checksums of the files of a release on GitHub, and a signed statement about all of them: one bundle of Sigstore.

`cosign verify-blob-attestation` verifies any of the files by it. Source: in-toto Statement v1; Sigstore bundle v0.3.
"""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

from gkm.images.signing import forms
from gkm.images.signing.forms import ImageSigner

from releasing import files, provenance

PREDICATE = "https://gkm.io/release/files/v1"
"""docs/reference/release.md describes its parameter `version`."""
BUNDLE = "gkm-release.sigstore.json"


def write(directory: Path, assets: Iterable[Path], version: str, signer: ImageSigner) -> list[Path]:
    """Write the checksums of assets by their names, and the statement about the assets and these.

    Raises:
        GKMError: the transparency log of the signer refused the statement.
    """
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in assets}
    sums, bundle = directory / files.CHECKSUMS, directory / BUNDLE
    sums.write_text("".join(f"{digest}  {name}\n" for name, digest in sorted(found.items())), encoding="utf-8")
    found[sums.name] = hashlib.sha256(sums.read_bytes()).hexdigest()
    payload = {
        "_type": provenance.STATEMENT,
        "subject": [{"name": name, "digest": {"sha256": digest}} for name, digest in sorted(found.items())],
        "predicateType": PREDICATE,
        "predicate": {"version": version},
    }
    bundle.write_bytes(forms.attestation(json.dumps(payload).encode(), signer))
    return [sums, bundle]
