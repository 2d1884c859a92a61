"""Crafted bundles, annotations and certificates: refused with a sentence, never a traceback."""

import base64
import json
import ssl
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from gkm.api.errors import GKMError, Reason
from gkm.images.signatures import trust_material
from gkm.images.signatures.signature_formats import parse_bundle, parse_legacy
from hypothesis import given, settings, strategies
from support.examples import examples
from support.images.keyless import ALICE, DIGEST, SIGSTORE, finding_for, trust
from support.registry.push import Target
from support.sigstore.key_signatures import payload_of
from support.sigstore.keyless import BUNDLE_ANNOTATION, CERTIFICATE_ANNOTATION, Service


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return SIGSTORE.write_trusted_root(tmp_path_factory.mktemp("sigstore"))


def _entry(bundle: dict[str, Any]) -> dict[str, Any]:
    entry: dict[str, Any] = bundle["verificationMaterial"]["tlogEntries"][0]
    return entry


MADE_UP: dict[str, Callable[[dict[str, Any]], object]] = {
    "certificate": lambda b: b["verificationMaterial"].update(certificate={"rawBytes": "AAAA"}),
    "key and certificate": lambda b: b["verificationMaterial"].update(publicKey={"hint": "x"}),
    "neither": lambda b: b["verificationMaterial"].pop("certificate"),
    "two entries": lambda b: b["verificationMaterial"].update(tlogEntries=[_entry(b), _entry(b)]),
    "time beyond all years": lambda b: _entry(b).update(integratedTime="9" * 18),
    "negative index": lambda b: _entry(b).update(logIndex="-1"),
    "huge tree": lambda b: _entry(b)["inclusionProof"].update(treeSize="9" * 18),
    "empty tree": lambda b: _entry(b)["inclusionProof"].update(treeSize="0"),
    "many hashes": lambda b: _entry(b)["inclusionProof"].update(hashes=["AAAA"] * 10_000),
    "no checkpoint": lambda b: _entry(b)["inclusionProof"].update(checkpoint={"envelope": ""}),
    "checkpoint of lines": lambda b: _entry(b)["inclusionProof"].update(checkpoint={"envelope": "\n" * 9000}),
    "body no JSON": lambda b: _entry(b).update(canonicalizedBody="AAAA"),
    "not base64": lambda b: _entry(b).update(canonicalizedBody="*"),
    "unknown kind": lambda b: _entry(b).update(kindVersion={"kind": "rekord", "version": "9"}),
    "token": lambda b: b["verificationMaterial"].update(
        timestampVerificationData={"rfc3161Timestamps": [{"signedTimestamp": "AAAA"}]}
    ),
    "no signature": lambda b: b["dsseEnvelope"].update(signatures=[]),
    "two signatures": lambda b: b["dsseEnvelope"].update(signatures=b["dsseEnvelope"]["signatures"] * 2),
    "a message, no statement": lambda b: b.pop("dsseEnvelope"),
    "another version": lambda b: b.update(mediaType="application/vnd.dev.sigstore.bundle+json;version=0.1"),
}


@pytest.mark.parametrize("name", MADE_UP)
def test_a_crafted_bundle_is_refused_with_a_sentence(root: Path, name: str) -> None:
    bundle = json.loads(json.dumps(Service(SIGSTORE).bundle(DIGEST, ALICE)))
    MADE_UP[name](bundle)
    try:
        finding = finding_for(root, bundle)
    except GKMError as error:
        assert error.reason is Reason.METADATA_INVALID
    else:
        assert (finding.ok, finding.reason.startswith("it "), "\n" in finding.reason) == (False, True, False)


@pytest.mark.parametrize("annotation", [CERTIFICATE_ANNOTATION, BUNDLE_ANNOTATION])
@pytest.mark.parametrize(
    "value", ["x", "{}", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----", "x" * 70_000]
)
def test_a_crafted_annotation_is_refused(annotation: str, value: str) -> None:
    payload = payload_of(Target("registry.example", "team/x"), DIGEST)
    payload, annotations = Service(SIGSTORE).legacy(payload, ALICE)
    with pytest.raises(GKMError) as caught:
        parse_legacy(payload, {**annotations, annotation: value})
    assert caught.value.reason is Reason.METADATA_INVALID


def _of_version_26(der: bytes) -> bytes:
    assert b"\xa0\x03\x02\x01\x02" in der
    return der.replace(b"\xa0\x03\x02\x01\x02", b"\xa0\x03\x02\x01\x1a", 1)


def test_a_certificate_of_an_impossible_version_is_refused(root: Path) -> None:
    """Found by fuzzing: cryptography raises an exception other than ValueError."""
    bundle = Service(SIGSTORE).bundle(DIGEST, ALICE)
    crafted = _of_version_26(base64.b64decode(bundle["verificationMaterial"]["certificate"]["rawBytes"]))
    bundle["verificationMaterial"]["certificate"] = {"rawBytes": base64.b64encode(crafted).decode()}
    assert not finding_for(root, bundle).ok
    payload, annotations = Service(SIGSTORE).legacy(payload_of(Target("registry.example", "team/x"), DIGEST), ALICE)
    pem = ssl.DER_cert_to_PEM_cert(crafted)
    with pytest.raises(GKMError) as caught:
        parse_legacy(payload, {**annotations, CERTIFICATE_ANNOTATION: pem})
    assert caught.value.reason is Reason.METADATA_INVALID


def test_a_trusted_root_with_a_certificate_of_an_impossible_version_is_refused(tmp_path: Path) -> None:
    content = SIGSTORE.trusted_root()
    first = content["certificateAuthorities"][0]["certChain"]["certificates"][0]
    first["rawBytes"] = base64.b64encode(_of_version_26(base64.b64decode(first["rawBytes"]))).decode()
    path = tmp_path / "root.json"
    path.write_text(json.dumps(content))
    with pytest.raises(GKMError, match="is no trusted root"):
        trust_material.root(str(path))


@settings(max_examples=examples(150))
@given(data=strategies.data())
def test_any_change_in_a_bundle_ends_in_a_verdict(data: strategies.DataObject) -> None:
    document = json.loads(json.dumps(data.draw(strategies.sampled_from(BUNDLES))))
    places = list(_places(document))
    holder, key = data.draw(strategies.sampled_from(places))
    before = holder[key]
    holder[key] = data.draw(JUNK)
    with tempfile.TemporaryDirectory() as directory:
        trusted = trust(SIGSTORE.write_trusted_root(Path(directory)))
        try:
            finding = trusted.evaluate(parse_bundle(json.dumps(document).encode()), DIGEST)
        except GKMError as error:
            assert error.reason is Reason.METADATA_INVALID
            return
    # Fields without a meaning can have any value: a hint, the id of a log that verification tries anyway.
    assert isinstance(finding.reason, str)
    assert not finding.ok or key not in {"payload", "sig", "rawBytes", "canonicalizedBody"} or holder[key] == before


def _places(value: Any) -> Iterator[tuple[Any, Any]]:  # noqa: ANN401 -- any JSON
    for key, part in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield value, key
        yield from _places(part)


BUNDLES = [Service(SIGSTORE, log, log == 2).bundle(DIGEST, ALICE) for log in (1, 2)]
JUNK = strategies.one_of(
    strategies.none(),
    strategies.integers(),
    strategies.text(max_size=40),
    strategies.binary(max_size=40).map(lambda raw: base64.b64encode(raw).decode()),
    strategies.sampled_from(["0", "1", "9" * 18, "", [], {}, [{}], "A" * 100_000]),
)
