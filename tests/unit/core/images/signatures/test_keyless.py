"""Keyless signatures: every flaw is detected, and verification contacts only the registry."""

import json
import socket
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from gkm.api.config import Identity, Policy, Verification
from gkm.api.errors import Reason
from gkm.api.signers import Signer
from gkm.images.signatures.signature_formats import parse_legacy
from gkm.images.signatures.verify import Verdict, Verifier
from support.host.waiting import scaled
from support.images.cache_registry import Site
from support.images.keyless import ALICE, DIGEST, SIGSTORE, finding_for, trust
from support.registry.push import Target
from support.sigstore.key_signatures import SigningKey, payload_of, push_bundle, push_legacy, sign_bundle
from support.sigstore.keyless import Flaw, Person, Service
from support.sigstore.services import Sigstore

WORKFLOW = Person("https://github.com/org/repo/.github/workflows/build.yaml@refs/tags/v1", "https://token.example")
ALWAYS_BAD = set(Flaw) - {Flaw.NONE, Flaw.FLIPPED_TIMESTAMP, Flaw.OTHER_TSA}
ONLY_IN_BUNDLES = {Flaw.FLIPPED_ROOT, Flaw.FLIPPED_CHECKPOINT}
ONLY_REKOR_1 = {Flaw.FLIPPED_PROMISE}
ANYBODY = Identity(ALICE.issuer, subject_reg_exp=".*")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return SIGSTORE.write_trusted_root(tmp_path_factory.mktemp("sigstore"))


def in_order(flaws: Iterable[Flaw]) -> list[Flaw]:
    """Return flaws by name: processes that share the tests must collect them in one order."""
    return sorted(flaws, key=lambda flaw: flaw.name)


@pytest.mark.parametrize("flaw", in_order(ALWAYS_BAD - ONLY_IN_BUNDLES), ids=lambda flaw: flaw.name)
def test_a_flaw_in_a_legacy_signature_is_detected(root: Path, flaw: Flaw) -> None:
    if flaw in (Flaw.OTHER_TYPE, Flaw.OTHER_SUBJECT):
        payload = json.dumps({"critical": {"type": "cosign container image signature", "image": {}}}).encode()
    else:
        payload = payload_of(Target("registry.example", "team/x"), DIGEST)
    finding = trust(root).evaluate(parse_legacy(*Service(SIGSTORE).legacy(payload, ALICE, flaw)), DIGEST)
    assert (finding.ok, finding.reason.startswith("it ")) == (False, True)


@pytest.mark.parametrize("flaw", in_order(ALWAYS_BAD), ids=lambda flaw: flaw.name)
def test_a_flaw_in_a_bundle_is_detected(root: Path, flaw: Flaw) -> None:
    finding = finding_for(root, Service(SIGSTORE).bundle(DIGEST, ALICE, flaw))
    assert (finding.ok, finding.reason.startswith("it ")) == (False, True)


@pytest.mark.parametrize("flaw", in_order(set(Flaw) - {Flaw.NONE} - ONLY_REKOR_1), ids=lambda flaw: flaw.name)
def test_a_flaw_in_a_bundle_of_rekor_2_is_detected(root: Path, flaw: Flaw) -> None:
    assert not finding_for(root, Service(SIGSTORE, log=2, stamped=True).bundle(DIGEST, ALICE, flaw)).ok


def test_rekor_2_states_no_time_so_a_timestamp_is_needed(root: Path) -> None:
    assert not finding_for(root, Service(SIGSTORE, log=2).bundle(DIGEST, ALICE)).ok


@pytest.mark.parametrize("other", ["fulcio", "rekor"])
def test_a_signature_of_another_sigstore_is_refused(root: Path, other: str) -> None:
    strange = Sigstore()
    mixed = Sigstore(strange.fulcio, SIGSTORE.rekor) if other == "fulcio" else Sigstore(SIGSTORE.fulcio, strange.rekor)
    assert not finding_for(root, Service(mixed).bundle(DIGEST, ALICE)).ok
    payload = payload_of(Target("registry.example", "team/x"), DIGEST)
    assert not trust(root).evaluate(parse_legacy(*Service(mixed).legacy(payload, ALICE)), DIGEST).ok


def test_an_entry_with_the_index_0_is_read_as_go_encodes_it(root: Path) -> None:
    fresh = Sigstore(fulcio=SIGSTORE.fulcio)
    fresh.rekor.leaves.clear()
    directory = root.parent / "fresh"
    directory.mkdir(exist_ok=True)
    bundle = Service(fresh).bundle(DIGEST, ALICE)
    entry = bundle["verificationMaterial"]["tlogEntries"][0]
    assert "logIndex" not in entry
    del entry["inclusionProof"]["logIndex"], entry["inclusionProof"]["hashes"]
    assert finding_for(fresh.write_trusted_root(directory), bundle).ok


@pytest.mark.parametrize(
    ("identity", "named"),
    [
        (Identity(WORKFLOW.issuer, WORKFLOW.subject), True),
        (Identity(WORKFLOW.issuer, WORKFLOW.subject.upper()), False),
        (Identity(WORKFLOW.issuer + "/", WORKFLOW.subject), False),
        (Identity(WORKFLOW.issuer, subject_reg_exp=r"https://github\.com/org/.*"), True),
        (Identity(WORKFLOW.issuer, subject_reg_exp=r"^https://github\.com/org/.*$"), True),
        (Identity(WORKFLOW.issuer, subject_reg_exp=r"https://github\.com/org"), False),
        (Identity(WORKFLOW.issuer, subject_reg_exp=r"github\.com/org/.*"), False),
        (Identity(WORKFLOW.issuer, subject_reg_exp=r"https://github\.com/org/|x"), False),
        (Identity(WORKFLOW.issuer, subject_reg_exp=r"(?m)^https://github\.com/org/.*$"), True),
        (Identity("https://token\\.example", subject_reg_exp=".*"), False),
    ],
)
def test_an_identity_matches_exactly_its_holder(root: Path, identity: Identity, *, named: bool) -> None:
    finding = finding_for(root, Service(SIGSTORE).bundle(DIGEST, WORKFLOW), identity)
    assert (finding.ok, finding.signer) == (named, Signer(identity=WORKFLOW.subject, issuer=WORKFLOW.issuer))
    assert named or "whom the policy does not name" in finding.reason


@pytest.mark.parametrize("pattern", ["(", "a)|(b", "(?=x)", r"(a)\1", "(a{1000}){1000}", "(?x)a #", "x" * 513])
def test_an_invalid_or_unbounded_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"no regular expression|characters"):
        Identity(ALICE.issuer, subject_reg_exp=pattern)


def test_a_pattern_that_would_backtrack_matches_in_linear_time() -> None:
    identity = Identity("i", subject_reg_exp=r"(.*)*(a+)+(a|a)*!")
    assert not identity.matches("i", "a" * 1024)
    assert not identity.matches("i", "!" * 1025)


def verdict(site: Site, *policies: Policy) -> Verdict:
    return Verifier(Verification(policies=list(policies))).verify(site.client, site.ref, "team")


def test_the_finding_names_the_signer_if_the_policy_names_another(site: Site, root: Path) -> None:
    target = Target(site.real.host, site.ref.repository)
    push_bundle(target, site.ref.target, Service(SIGSTORE).bundle(site.ref.target, ALICE))
    answer = verdict(site, Policy(identities=[Identity(ALICE.issuer, "bob@example.test")], trusted_root=str(root)))
    assert (answer.verified, answer.reason) == (False, Reason.IDENTITY_MISMATCH)
    assert "needs a signature by identity bob@example.test of https://issuer.example.test" in answer.message
    assert "it was made by alice@example.test of https://issuer.example.test" in answer.message


def test_verification_contacts_only_the_registry(site: Site, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = Target(site.real.host, site.ref.repository)
    push_bundle(target, site.ref.target, Service(SIGSTORE).bundle(site.ref.target, ALICE))
    push_legacy(target, site.ref.target, *Service(SIGSTORE).legacy(payload_of(target, site.ref.target), ALICE))
    contacted: set[str] = set()
    connect = socket.socket.connect

    def seen(self: socket.socket, address: Any) -> None:  # noqa: ANN401 -- as socket has it
        contacted.add(f"{address[0]}:{address[1]}")
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", seen)
    answer = verdict(site, Policy(identities=[ANYBODY], trusted_root=str(root)))
    assert [finding.ok for finding in answer.findings] == [True, True]
    assert contacted <= {site.real.host}


def test_policies_of_keys_never_load_sigstore(site: Site) -> None:
    key = SigningKey()
    sign_bundle(Target(site.real.host, site.ref.repository), site.ref.target, key)
    program = f"""
import sys
from gkm.api.config import Policy, Registries, RegistryHost, Verification
from gkm.images.reference import Reference
from gkm.images.registries.registry import Registry
from gkm.images.signatures.verify import Verifier
registry = Registry(Registries(hosts={{{site.real.host!r}: RegistryHost(plain_http=True)}}))
verifier = Verifier(Verification(policies=[Policy(keys=[{key.public_pem.decode()!r}])]))
answer = verifier.verify(registry, Reference.parse({str(site.ref)!r}), None)
print(answer.verified, sorted({{'sigstore', 'pydantic', 'pydantic_core', 're2', 'requests'}} & set(sys.modules)))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=scaled(60), check=True
    )
    assert done.stdout.strip() == "True []"


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"mediaType": "x"}', '{"mediaType": 1}', "\0", '{"a":' * 5000])
def test_an_invalid_trusted_root_is_refused_with_the_reason(site: Site, tmp_path: Path, content: str) -> None:
    path = tmp_path / "root.json"
    path.write_text(content)
    answer = verdict(site, Policy(identities=[ANYBODY], trusted_root=str(path)))
    assert (answer.verified, answer.allowed, answer.reason) == (False, False, Reason.SIGNATURE_INVALID)
    assert f"trusted root {str(path)!r} is no trusted root" in answer.message


@pytest.mark.parametrize("part", ["tlogs", "certificateAuthorities", "ctlogs"])
def test_a_trusted_root_without_one_part_trusts_no_signer(site: Site, tmp_path: Path, part: str) -> None:
    target = Target(site.real.host, site.ref.repository)
    push_bundle(target, site.ref.target, Service(SIGSTORE).bundle(site.ref.target, ALICE))
    push_legacy(target, site.ref.target, *Service(SIGSTORE).legacy(payload_of(target, site.ref.target), ALICE))
    path = tmp_path / "root.json"
    path.write_text(json.dumps({**SIGSTORE.trusted_root(), part: []}))
    answer = verdict(site, Policy(identities=[ANYBODY], trusted_root=str(path)))
    assert (answer.verified, answer.allowed) == (False, False)


@pytest.mark.parametrize("path", ["/nowhere/root.json", "/dev/zero", "/", "a\0b"])
def test_an_unreadable_trusted_root_is_refused_with_the_reason(site: Site, path: str) -> None:
    answer = verdict(site, Policy(identities=[ANYBODY], trusted_root=path))
    assert (answer.verified, answer.reason) == (False, Reason.SIGNATURE_INVALID)
    assert "trusted root" in answer.message


def test_a_changed_trusted_root_takes_effect_at_once(site: Site, tmp_path: Path) -> None:
    target = Target(site.real.host, site.ref.repository)
    push_bundle(target, site.ref.target, Service(SIGSTORE).bundle(site.ref.target, ALICE))
    path = SIGSTORE.write_trusted_root(tmp_path)
    verifier = Verifier(Verification(policies=[Policy(identities=[ANYBODY], trusted_root=str(path))]))
    assert verifier.verify(site.client, site.ref, None).verified is True
    path.write_text(json.dumps(Sigstore().trusted_root()) + "\n")
    assert verifier.verify(site.client, site.ref, None).verified is False
