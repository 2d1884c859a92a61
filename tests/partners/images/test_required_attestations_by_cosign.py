"""Real cosign attests, and a policy of GKM decides; a provenance of GKM is verified by real cosign."""

import datetime as dt
import json
from pathlib import Path

import pytest
from gkm.api.config import Policy, Verification
from gkm.api.policies import PredicateRule, RequiredAttestation
from gkm.images.assembly.provenance import CacheBuild, statement
from gkm.images.assembly.versions import DependencyVersions
from gkm.images.local_image import LocalImage
from gkm.images.reference import Reference
from gkm.images.signatures.verify import Verdict, Verifier
from gkm.images.signing import keys as signing_keys
from gkm.images.signing import sign
from gkm.images.signing.forms import ImageSigner
from support.registry.clients import plain_client
from support.sigstore.cosign import PLAIN, Cosign, CosignFailed

PROVENANCE = "https://slsa.dev/provenance/v1"
BUILDER = "https://ci.test/builder"
PREDICATE = {
    "buildDefinition": {
        "buildType": "https://ci.test/type",
        "externalParameters": {"ref": "refs/tags/v1"},
        "resolvedDependencies": [{"uri": "pkg:pypi/triton@3.5.1"}],
    },
    "runDetails": {"builder": {"id": BUILDER}, "metadata": {"startedOn": "2026-01-02T03:04:05Z"}},
}
OLD = ("--use-signing-config=false", "--new-bundle-format=false", "--tlog-upload=false")
FORMS = {"bundle": ("cosign", ()), "legacy": ("cosign", OLD), "cosign 2": ("cosign2", ("--tlog-upload=false",))}


def attested(cosign: Cosign, ref: Reference, form: str, kind: str, predicate: object) -> None:
    """Attest an image by cosign, in a form."""
    program, options = FORMS[form]
    words: tuple[str, ...] = options or ("--signing-config", str(cosign.signing_config), "--new-bundle-format")
    file = cosign.directory / "predicate.json"
    file.write_text(json.dumps(predicate))
    by_key = ("--key", str(cosign.private_key), "--yes", "--type", kind, "--predicate", str(file))
    Cosign(cosign.directory, program).run("attest", *by_key, *words, *PLAIN, str(ref))


def verdict(ref: Reference, cosign: Cosign, expression: str, kind: str = PROVENANCE) -> Verdict:
    required = RequiredAttestation(kind, [PredicateRule(expression)])
    policy = Policy([cosign.public_key.read_text()], attestations=[required])
    return Verifier(Verification(policies=[policy])).verify(plain_client(ref.registry), ref, "team")


@pytest.mark.parametrize("form", FORMS)
def test_what_cosign_attests_satisfies_a_policy(ref: Reference, cosign: Cosign, tmp_path: Path, form: str) -> None:
    cosign.sign(str(ref))
    dependency = "predicate.buildDefinition.resolvedDependencies.exists(d, d.uri.startsWith('pkg:pypi/triton@3.'))"
    assert not verdict(ref, cosign, dependency).verified
    attested(Cosign.create(tmp_path / "stranger"), ref, form, "slsaprovenance1", PREDICATE)
    assert "was not made by a trusted key" in verdict(ref, cosign, dependency).message
    attested(cosign, ref, form, "slsaprovenance1", PREDICATE)
    found = verdict(ref, cosign, dependency)
    assert found.verified, found.message
    assert "is false" in verdict(ref, cosign, "predicate.runDetails.builder.id == 'https://other.test'").message
    assert "no such attestation" in verdict(ref, cosign, "true", "https://slsa.dev/provenance/v0.2").message


@pytest.mark.parametrize("form", FORMS)
def test_a_bill_of_materials_of_cosign_satisfies_a_policy(ref: Reference, cosign: Cosign, form: str) -> None:
    cosign.sign(str(ref))
    packages = [{"name": "triton", "versionInfo": "3.5.1"}]
    attested(cosign, ref, form, "spdxjson", {"spdxVersion": "SPDX-2.3", "packages": packages})
    rule = "predicate.packages.exists(p, p.name == 'triton' && p.versionInfo.startsWith('3.'))"
    found = verdict(ref, cosign, rule, "https://spdx.dev/Document")
    assert found.verified, found.message


def test_a_provenance_of_ours_is_verified_by_cosign_with_its_rules(
    ref: Reference, cosign: Cosign, tmp_path: Path
) -> None:
    times = [dt.datetime(2026, 1, 2, 3, 4, second, tzinfo=dt.UTC) for second in (5, 9)]
    build = CacheBuild([], DependencyVersions(cuda="12.9"), BUILDER, "1.2.3", *times)
    image = LocalImage(
        plain_client(ref.registry).manifest(ref).raw, "", (), {"gkm.io/dependency-version.triton": "3.5.1"}
    )
    made = json.loads(statement(ref, image, build))
    signer = ImageSigner.by_key(signing_keys.read(str(cosign.private_key), b""))
    sign.attest(plain_client(ref.registry), ref, made["predicateType"], made["predicate"], signer)
    rego = tmp_path / "policy.rego"
    rego.write_text(
        "package signature\nimport rego.v1\ndefault allow := false\n"
        f'allow if input.predicate.runDetails.builder.id == "{BUILDER}"\n'
    )
    words = ("verify-attestation", "--key", str(cosign.public_key), "--type", "slsaprovenance1")
    offline = ("--insecure-ignore-tlog=true", "--trusted-root", str(cosign.trusted_root), *PLAIN)
    assert '"payload"' in cosign.run(*words, *offline, "--policy", str(rego), str(ref))
    rego.write_text(rego.read_text().replace(BUILDER, "https://other.test"))
    with pytest.raises(CosignFailed, match="expression value, false, is not true"):
        cosign.run(*words, *offline, "--policy", str(rego), str(ref))
    cosign.sign(str(ref))
    found = verdict(ref, cosign, f"predicate.runDetails.builder.id == '{BUILDER}'")
    assert found.verified, found.message
