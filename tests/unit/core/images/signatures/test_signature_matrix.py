"""Every row of the matrix, on a registry with referrers and on one with the fallback tag."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from gkm.api.config import Verification
from gkm.api.errors import Reason
from gkm.images.reference import Reference
from gkm.images.signatures.verify import Verdict, Verifier
from support.images import matrix_periods as periods
from support.images.cache_registry import client_of
from support.images.matrix import ACCEPTED, REFUSED, Ground, Row, relisted
from support.registry.push import Target
from support.registry.server import Registry
from support.sigstore.services import Sigstore


@pytest.fixture(params=["referrers", "fallback tag"])
def registry(request: pytest.FixtureRequest) -> Iterator[Registry]:
    with Registry.start(referrers=request.param == "referrers") as registry:
        yield registry


@pytest.fixture(scope="module")
def sigstore() -> Sigstore:
    return Sigstore()


def verdict_on(row: Row, registry: Registry, sigstore: Sigstore, directory: Path) -> Verdict:
    ground = Ground.prepared(Target(registry.host, "team/image"), sigstore, directory)
    row.place(ground, row)
    ref = Reference.parse(f"{ground.target}@{ground.digest}")
    return Verifier(Verification(policies=[ground.policy(row)])).verify(client_of(registry), ref, "team")


@pytest.mark.parametrize("row", [*ACCEPTED, *periods.ACCEPTED], ids=str)
def test_a_valid_signature_is_accepted(row: Row, registry: Registry, sigstore: Sigstore, tmp_path: Path) -> None:
    verdict = verdict_on(row, registry, sigstore, tmp_path)
    assert (verdict.verified, verdict.allowed, verdict.reason) == (True, True, Reason.COSIGN_SUCCESS), verdict.message
    assert len(verdict.findings) == 1


@pytest.mark.parametrize("row", [*REFUSED, *periods.REFUSED], ids=str)
def test_a_wrong_signature_is_refused(row: Row, registry: Registry, sigstore: Sigstore, tmp_path: Path) -> None:
    verdict = verdict_on(row, registry, sigstore, tmp_path)
    assert (verdict.verified, verdict.allowed) == (False, False)
    # GKM does not request the tag from a registry with a referrers API; test_verify covers a registry that lies.
    untouched = row.place is relisted and "no signature was found" in verdict.message
    assert row.says in verdict.message or untouched
    assert verdict.reason in (Reason.SIGNATURE_INVALID, Reason.SIGNATURE_MISSING, Reason.IDENTITY_MISMATCH)
    assert "\n" not in verdict.message
