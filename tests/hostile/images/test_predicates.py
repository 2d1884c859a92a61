"""Predicates by a trusted signer who is careless or compromised, and rules that cost too much, end within limits."""

import json
import time

import pytest
from gkm.api.errors import GKMError, Reason
from gkm.api.policies import Policy, PredicateRule, RequiredAttestation, Verification
from gkm.images.signatures import required_attestations
from gkm.images.signatures.attestations import MAX_REQUIRED_BYTES
from gkm.images.signatures.required_attestations import violation
from gkm.images.signatures.verify import Verifier
from hypothesis import given
from hypothesis import strategies as st
from support.images.cache_registry import Site
from support.registry.push import Target
from support.sigstore.attestations import PROVENANCE, attach, attach_legacy, statement
from support.sigstore.key_signatures import SigningKey, sign_bundle

KEY = SigningKey()
NUMBERS = [10**15 + number for number in range(9000)]


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the limits of the child end it, however busy the machine is."""
    monkeypatch.setattr(required_attestations, "RUN_SECONDS", 300.0)


def reason(expression: str, predicate: object) -> str:
    """Return why a predicate, or JSON as bytes, does not satisfy a rule."""
    raw = predicate if isinstance(predicate, bytes) else json.dumps(predicate).encode()
    return violation([PredicateRule(expression)], b'{"predicate": ' + raw + b"}", time.monotonic() + 300)


@pytest.mark.parametrize(
    ("expression", "predicate", "expected"),
    [
        (
            "predicate.l.all(a, predicate.l.all(b, predicate.l.all(c, true)))",
            {"l": NUMBERS},
            "Iteration budget exceeded",
        ),
        ("predicate.l.map(a, predicate.l.map(b, predicate.l)) != []", {"l": NUMBERS}, "budget exceeded|more than"),
        ("predicate.l.exists(a, a.exists(b, b.exists(c, c < 0)))", {"l": [[NUMBERS[:20]] * 20] * 20}, "is false"),
        ("size(predicate.l.filter(a, true)) < 0", {"l": NUMBERS}, "CPU time|MiB of memory"),
        ("predicate.s.contains(predicate.t)", {"s": "a" * (1 << 20), "t": "a" * (1 << 19) + "b"}, "CPU"),
        ("size(predicate.l.map(a, predicate.s + 'x')) < 0", {"l": NUMBERS, "s": "a" * (1 << 20)}, "MiB of memory"),
        ("'a'.matches(predicate.s)", {"s": "(((a{100}){100}){100})"}, "invalid regular expression"),
        ("predicate.s.matches('(a+)+$')", {"s": "a" * (1 << 20) + "!"}, "is false"),
        ("predicate.a == 1", b'{"a": ' + b"9" * 5000 + b"}", "out of range"),
        ("predicate.a == 'x'", b'{"a": "\\ud800"}', "cannot be"),
        ("predicate.a == 'x'", b'{"a": "x\\u0000/evil"}', "U+0000"),
        ("!has(predicate.a)", b'{"a\\u0000": 1}', "U+0000"),
        ("predicate.a == 'x'", b'{"a": "\\\\\\u0000"}', "U+0000"),
        ("predicate.a == 'x'", b'{"a": "\\n\\u0000"}', "U+0000"),
        ("predicate.a > 1.0", b'{"a": 1e999}', "out of range"),
        ("predicate != predicate", b"[" * 900 + b"]" * 900, "is false"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_a_rule_ends_within_its_limits_and_is_not_satisfied(expression: str, predicate: object, expected: str) -> None:
    try:
        found = reason(expression, predicate)
    except GKMError as error:
        assert error.reason is Reason.METADATA_INVALID
        found = error.message
    assert any(each in found for each in expected.split("|")), found


@pytest.mark.parametrize("text", ["\\u0000", "C:\\u0000", "\\\\u0000", "\\\\\\u0000x", "\n\\u0000", 'a"\\u0000'])
def test_a_text_that_looks_like_the_escape_of_a_nul_is_a_text_like_others(text: str) -> None:
    """A backslash of a text is two in JSON; the documentation of a language or a path of Windows may hold these."""
    assert reason(f"predicate.a == {json.dumps(text)}", {"a": text}) == ""


@given(st.text(st.sampled_from("\\u0n\0a"), max_size=12))
def test_a_predicate_holds_a_nul_exactly_if_its_values_do(text: str) -> None:
    assert required_attestations.has_nul(json.dumps({"a": text}).encode()) == ("\0" in text)
    assert required_attestations.has_nul(json.dumps({text: 1}).encode()) == ("\0" in text)


@pytest.mark.parametrize(
    "predicate",
    [
        pytest.param(b"[" + b"1," * 1_000_000 + b"1]", id="a million values"),
        pytest.param(b"[" * 100_000 + b"]" * 100_000, id="a hundred thousand levels"),
        pytest.param(b"[" * 2_000 + b"]" * 2_000, id="two thousand levels"),
        pytest.param(b'"' + b"x" * (4 << 20) + b'"', id="4 MiB"),
    ],
)
@pytest.mark.parametrize("form", ["bundle", "legacy"])
def test_an_image_with_such_an_attestation_is_refused(site: Site, predicate: bytes, form: str) -> None:
    place, digest = Target(site.real.host, site.ref.repository), site.ref.target
    sign_bundle(place, digest, KEY)
    payload = statement(digest, predicate)
    if form == "bundle":
        attach(place, digest, payload, KEY)
    else:
        attach_legacy(place, digest, [payload], KEY, stated=PROVENANCE)
    required = [RequiredAttestation(PROVENANCE, [PredicateRule("size(predicate) >= 0")])]
    policy = Policy(keys=[KEY.public_pem.decode()], attestations=required)
    found = Verifier(Verification(policies=[policy])).verify(site.patient().client, site.ref, "team")
    assert (found.verified, found.reason) == (False, Reason.ATTESTATION_MISSING)
    assert "no such attestation" not in found.message


def test_an_attestation_of_nearly_the_largest_size_counts(site: Site) -> None:
    place, digest = Target(site.real.host, site.ref.repository), site.ref.target
    sign_bundle(place, digest, KEY)
    packages = [{"name": f"package-{number:06}", "versionInfo": "1.2.3"} for number in range(50_000)]
    payload = statement(digest, {"packages": packages})
    assert MAX_REQUIRED_BYTES * 0.6 < len(payload) * 4 / 3 < MAX_REQUIRED_BYTES
    attach(place, digest, payload, KEY)
    required = [RequiredAttestation(PROVENANCE, [PredicateRule("size(predicate.packages) == 50000")])]
    policy = Policy(keys=[KEY.public_pem.decode()], attestations=required)
    assert Verifier(Verification(policies=[policy])).verify(site.patient().client, site.ref, "team").verified
