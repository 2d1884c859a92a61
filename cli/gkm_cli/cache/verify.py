"""`gkm cache verify`: show every signature and required attestation of an image, and why it counts or not."""

from collections.abc import Sequence
from typing import Any

from gkm.api.signers import Signer
from gkm.images.signatures.evaluation import SignatureFinding
from gkm.images.signatures.required_attestations import AttestationFinding
from gkm.images.signatures.verify import Verdict

from gkm_cli.output import NegativeResult, Output, OutputOption, line, show, table
from gkm_cli.registries import RefArgument, RegistryAccess
from gkm_cli.signers import SignerOptions, verification, verify_image


def verify(
    reference: RefArgument, *, signers: SignerOptions, access: RegistryAccess, output: OutputOption = Output.TABLE
) -> None:
    """Resolve REF and show for every signature whether it is valid, and why; exit 3 if the image is not verified."""
    wanted = verification(signers, access.config)
    registry, pinned = access.pinned(reference)
    verdict = verify_image(registry, pinned, wanted, signers.namespace)
    result = {
        "digest": pinned.digest,
        "verified": bool(verdict.verified),
        "message": verdict.message,
        "matched": _matched(verdict),
        "signatures": [_finding(found, {"form": found.form.value}) for found in verdict.findings],
        "attestations": [_finding(found, {"predicateType": found.predicate_type}) for found in verdict.attestations],
    }
    show(result, output, lambda: _print_result(verdict))
    if not verdict.verified:
        raise NegativeResult


def _matched(verdict: Verdict) -> dict[str, Any] | None:
    """Return the first valid signature, with the index of its policy."""
    found = next((finding for finding in verdict.findings if finding.ok), None)
    if not verdict.verified or found is None:
        return None
    return {"policy": found.policy, "form": found.form.value, "identity": found.signer.identity or found.signer.key_id}


def _finding(found: SignatureFinding | AttestationFinding, kind: dict[str, str]) -> dict[str, Any]:
    signer = found.signer
    by = {"identity": signer.identity, "issuer": signer.issuer} if signer.identity else {"keyid": signer.key_id}
    return {"policy": found.policy, **kind, **by, "ok": found.ok, "reason": found.reason}


def _print_result(verdict: Verdict) -> None:
    line(("verified: " if verdict.verified else "not verified: ") + verdict.message)
    _print_table("form", [(found.form.value, found) for found in verdict.findings])
    _print_table("attestation", [(found.predicate_type, found) for found in verdict.attestations])


def _print_table(kind: str, findings: Sequence[tuple[str, SignatureFinding | AttestationFinding]]) -> None:
    rows = [(name, _signer(found.signer), "yes" if found.ok else "no", found.reason) for name, found in findings]
    if rows:
        table((kind, "signer", "counts", "reason"), rows)


def _signer(signer: Signer) -> str:
    return str(signer) if signer.identity else signer.key_id[:12]
