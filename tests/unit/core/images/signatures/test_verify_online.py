"""Lookup of the log entry of legacy keyless signatures: only if a policy allows it, and verified like any entry."""

import json
import socket
from dataclasses import replace

import msgspec
import pytest
from gkm.api.config import Policy
from gkm.api.errors import Reason
from gkm.images.signatures.rekor import RETRIEVE, Rekor, hashedrekord_entry
from gkm.images.signatures.sigstore_services import SigstoreService as HTTPService
from gkm.images.signatures.verify import MAX_LOOKUPS, Verdict
from support.images.signers import private_key
from support.sigstore.http_services import SigstoreServer
from support.sigstore.key_signatures import SIMPLE_SIGNING, payload_of, push_legacy
from support.sigstore.keyless import Flaw, Person, Service
from support.sigstore.log_only import ALICE, Place, place
from support.sigstore.services import Sigstore

__all__ = ["place"]


def refused(verdict: Verdict) -> str:
    assert (verdict.verified, verdict.allowed) == (False, False)
    return verdict.message


def left_open(verdict: Verdict) -> None:
    assert (verdict.verified, verdict.allowed, verdict.reason) == (None, False, Reason.REGISTRY_UNAVAILABLE)


def test_the_log_is_queried_if_the_policy_allows_it(place: Place) -> None:
    place.sign()
    verdict = place.verdict()
    assert verdict.verified is True
    assert [(each.form, each.signer.identity) for each in verdict.findings] == [("legacy", ALICE.subject)]
    assert place.server.asked.count(RETRIEVE) == 1


def test_the_log_is_not_queried_unless_the_policy_allows_it(place: Place) -> None:
    place.sign()
    assert "has no log entry" in refused(place.verdict(lookup=False))
    assert RETRIEVE not in place.server.asked


def test_a_signature_that_is_not_in_the_log_does_not_count(place: Place) -> None:
    place.sign(logged=False)
    assert "has no log entry" in refused(place.verdict())


def test_a_signature_with_an_entry_is_not_looked_up(place: Place) -> None:
    payload = payload_of(place.target, place.ref.target)
    push_legacy(place.target, place.ref.target, *Service(place.server.sigstore, 1).legacy(payload, ALICE))
    assert place.verdict().verified is True
    assert place.server.asked == []


def test_signatures_of_strangers_are_not_looked_up(place: Place) -> None:
    place.sign(Person("mallory@example.test"), logged=False)
    refused(place.verdict())
    place.sign(flaw=Flaw.OTHER_CA, logged=False)
    refused(place.verdict())
    place.sign(flaw=Flaw.FLIPPED_SIGNATURE, logged=False)
    refused(place.verdict())
    assert RETRIEVE not in place.server.asked


def test_a_certificate_that_expired_before_its_log_entry_does_not_count(place: Place) -> None:
    place.sign(flaw=Flaw.EXPIRED)
    assert "its certificate was not valid" in refused(place.verdict())


@pytest.mark.parametrize(
    "answer", [(500, b""), (418, b""), (200, b"<html>"), (200, b"[" * 9999), (200, b" " * (2 << 20))]
)
def test_a_log_that_fails_leaves_the_verdict_open(place: Place, answer: tuple[int, bytes]) -> None:
    place.sign()
    place.server.fixed[RETRIEVE] = answer
    left_open(place.verdict())


def test_an_unavailable_or_silent_log_leaves_the_verdict_open(place: Place) -> None:
    place.sign()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        place.reachable(f"http://127.0.0.1:{silent.getsockname()[1]}")
        left_open(place.verdict(seconds=0.5))
    left_open(place.verdict())


@pytest.mark.parametrize("url", ["garbage", "ftp://log", "http://["])
def test_a_log_with_an_invalid_address_leaves_the_verdict_open(place: Place, url: str) -> None:
    place.sign()
    place.reachable(url)
    left_open(place.verdict())


@pytest.mark.parametrize("status", [400, 404])
def test_a_log_without_the_lookup_endpoint_has_no_entry(place: Place, status: int) -> None:
    place.sign()
    place.server.fixed[RETRIEVE] = (status, b"{}")
    assert "has no log entry" in refused(place.verdict())


def test_an_entry_of_another_signature_does_not_count(place: Place) -> None:
    place.sign()
    other = Rekor(HTTPService("Rekor", place.server.url))
    key = private_key()
    other.add_hashedrekord(b"other", signature := key.sign(b"other"), key.public.pem)
    answer = HTTPService("Rekor", place.server.url).post(
        RETRIEVE, msgspec.json.encode({"entries": [hashedrekord_entry(b"other", signature, key.public.pem)]})
    )
    place.server.fixed[RETRIEVE] = (200, answer.body)
    assert "about another signature" in refused(place.verdict())


def test_an_entry_in_a_log_that_is_not_trusted_does_not_count(place: Place) -> None:
    with SigstoreServer.start(Sigstore()) as stranger:
        mine, place.server = place.server, replace(stranger, sigstore=place.server.sigstore)
        place.sign()
        place.server = mine
        place.reachable(stranger.url)
        assert "a transparency log that is not trusted" in refused(place.verdict())
        assert RETRIEVE in stranger.asked


def test_the_log_lookups_for_one_image_are_limited(place: Place) -> None:
    payload = payload_of(place.target, place.ref.target)
    layers = []
    for _ in range(12):
        _, annotations = Service(place.server.sigstore, 0).legacy(payload, ALICE)
        layers.append({**place.target.blob(payload, SIMPLE_SIGNING), "annotations": annotations})
    manifest = {"schemaVersion": 2, "config": place.target.blob(b"{}"), "layers": layers}
    place.target.manifest(json.dumps(manifest).encode(), place.ref.target.replace(":", "-") + ".sig")
    refused(place.verdict())
    assert place.server.asked.count(RETRIEVE) == MAX_LOOKUPS


def test_a_policy_of_keys_queries_no_log() -> None:
    with pytest.raises(ValueError, match="tlogLookup"):
        Policy(["-----BEGIN PUBLIC KEY-----"], tlog_lookup=True)
