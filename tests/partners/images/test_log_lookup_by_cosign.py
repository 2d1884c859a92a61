"""The real cosign queries the log for a legacy keyless signature without an entry, as GKM does."""

from pathlib import Path

import pytest
from support.peers import require
from support.sigstore.cosign import PLAIN, Cosign, CosignFailed
from support.sigstore.log_only import ALICE, Place, place

__all__ = ["place"]


def test_cosign_queries_the_log_too(place: Place, tmp_path: Path) -> None:
    require.peer("cosign2")
    cosign = Cosign(tmp_path, "cosign2")
    environment = place.server.environment(tmp_path)
    who = ["--certificate-identity", ALICE.subject, "--certificate-oidc-issuer", ALICE.issuer]
    place.sign(logged=False)
    with pytest.raises(CosignFailed, match="no matching signatures: signature not found in transparency log"):
        cosign.run("verify", *who, "--rekor-url", place.server.url, *PLAIN, str(place.ref), environment=environment)
    assert place.verdict().verified is False
    place.sign()
    cosign.run("verify", *who, "--rekor-url", place.server.url, *PLAIN, str(place.ref), environment=environment)
    assert place.verdict().verified is True
