"""Webhook configurations by their names, the patch of their caBundle, and which CAs stay in a bundle."""

import base64
import copy
from datetime import UTC, datetime, timedelta
from functools import cache

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from gkm.kube.resources import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS, Json, Resource
from gkm_operator.admission.certificates import make
from gkm_operator.webhooks import (
    CLOCKS_DIFFER,
    MAX_CAS,
    SAFE_CAS,
    WebhookConfiguration,
    bundle_patch,
    bundles,
    copied_bundle,
    merged_bundle,
)
from hypothesis import given
from hypothesis import strategies as st
from support.operator.webhook_configurations import a_configuration

STORED = {"resourceVersion": "7"}

NOW = datetime(2030, 1, 1, tzinfo=UTC)
MANY = 3 * MAX_CAS


@pytest.mark.parametrize(
    ("text", "resource"),
    [("x", VALIDATING_WEBHOOKS), ("validating/x", VALIDATING_WEBHOOKS), ("mutating/x", MUTATING_WEBHOOKS)],
)
def test_a_configuration_is_named_with_its_kind(text: str, resource: Resource[Json]) -> None:
    assert WebhookConfiguration.parse(text) == WebhookConfiguration("x", resource)


@pytest.mark.parametrize("text", ["", "mutating/", "another/x", "a/b/c"])
def test_another_text_names_no_configuration(text: str) -> None:
    with pytest.raises(ValueError, match="mutating/NAME"):
        WebhookConfiguration.parse(text)


def test_a_patch_changes_the_bundles_and_no_other_field_of_the_version_that_was_read() -> None:
    found = a_configuration("", "%%%", base64.b64encode(b"old").decode())
    found["metadata"] |= STORED
    patch = bundle_patch(copy.deepcopy(found), b"new")
    assert patch is not None
    assert patch["metadata"] == STORED
    for hook in found["webhooks"]:
        hook["clientConfig"]["caBundle"] = base64.b64encode(b"new").decode()
    assert patch["webhooks"] == found["webhooks"]
    assert bundle_patch(found, b"new") is None
    assert list(bundles(found)) == [b"new"] * 3


def test_a_configuration_without_webhooks_needs_no_patch() -> None:
    assert bundle_patch({"metadata": STORED, "webhooks": None}, b"new") is None


@cache
def authority(number: int, *, expired: bool = False) -> bytes:
    made = NOW - timedelta(days=100) if expired else NOW
    return make([f"{number}.test"], made).authority


LIVING = st.integers(0, MANY).map(authority)

EXPIRED = st.integers(0, 3).map(lambda number: authority(number, expired=True))

NOISE = st.sampled_from(
    [
        b"",
        b"\n",
        b"%%%",
        b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        b"-----BEGIN CERTIFICATE-----\n-----BEGIN CERTIFICATE-----\n",
        b"-----BEGIN CERTIFICATE-----\n" + b"A" * 9000,
    ]
)

MIN_SIZE = 300
"""In bytes, of a certificate; what looks like one in NOISE is shorter."""

BUNDLES = st.lists(st.one_of(LIVING, EXPIRED, NOISE), max_size=MANY).map(b"".join)

OURS = st.lists(LIVING, min_size=1, max_size=2, unique=True)


def test_a_certificate_of_a_version_that_there_is_not_is_none() -> None:
    der = x509.load_pem_x509_certificate(authority(0)).public_bytes(Encoding.DER)
    odd = base64.encodebytes(der.replace(bytes.fromhex("a003020102"), bytes.fromhex("a003020107"), 1))
    before = b"-----BEGIN CERTIFICATE-----\n" + odd + b"-----END CERTIFICATE-----\n"
    assert merged_bundle(before, [authority(1)], NOW) == authority(1)


def read(pem: bytes) -> list[x509.Certificate]:
    return x509.load_pem_x509_certificates(pem)


def after(before: bytes, ours: list[bytes], now: datetime = NOW) -> bytes:
    changed = merged_bundle(before, ours, now)
    return before if changed is None else changed


@given(BUNDLES, OURS)
def test_ours_are_first_and_then_there_is_nothing_to_write(before: bytes, ours: list[bytes]) -> None:
    written = merged_bundle(before, ours, NOW)
    if written is not None:
        assert read(written)[: len(ours)] == read(b"".join(ours))
        assert merged_bundle(written, ours, NOW) is None


@given(BUNDLES, OURS)
def test_a_written_bundle_is_bounded_without_duplicates_and_expired_cas(before: bytes, ours: list[bytes]) -> None:
    written = merged_bundle(before, ours, NOW)
    if written is not None:
        found = read(written)
        assert len(found) <= MAX_CAS
        assert len(set(found)) == len(found)
        assert all(one.not_valid_after_utc > NOW for one in found)


def test_of_too_many_the_last_leave() -> None:
    many = [authority(number) for number in range(MAX_CAS + 5)]
    mine = authority(MANY)
    assert merged_bundle(b"".join(many), [mine], NOW) == b"".join([mine, *many[: MAX_CAS - 1]])


@given(st.lists(LIVING, max_size=MAX_CAS - 2, unique=True), OURS)
def test_no_ca_leaves_a_bundle_with_free_places(others: list[bytes], ours: list[bytes]) -> None:
    assert set(read(after(b"".join(others), ours))) == set(read(b"".join([*others, *ours])))


@given(st.lists(st.integers(0, SAFE_CAS - 1), max_size=20))
def test_a_running_replica_stays_trusted_through_any_number_of_restarts(arrivals: list[int]) -> None:
    """Between two checks of a replica, fewer than SAFE_CAS pods start and never check again."""
    mine, newest = authority(MANY), 0
    bundle = mine
    for some in arrivals:
        for _ in range(some):
            newest += 1
            bundle = after(bundle, [authority(newest % MANY)])
        assert set(read(mine)) <= set(read(bundle))
        bundle = after(bundle, [mine])


def test_eight_replicas_that_renew_at_once_stop_writing() -> None:
    replicas = [[authority(2 * number), authority(2 * number + 1)] for number in range(8)]
    bundle = b""
    for ours in replicas:
        bundle = after(bundle, ours)
    assert [merged_bundle(bundle, ours, NOW) for ours in replicas] == [None] * 8


def test_an_expired_ca_alone_causes_no_write() -> None:
    mine, expired = authority(1), authority(1, expired=True)
    assert merged_bundle(mine + expired, [mine], NOW) is None
    assert merged_bundle(mine + expired, [authority(2)], NOW) == authority(2) + mine


def test_an_early_clock_removes_no_valid_ca() -> None:
    ends = NOW + timedelta(days=90)
    assert merged_bundle(authority(1), [authority(2)], ends + CLOCKS_DIFFER / 2) == authority(2) + authority(1)
    assert merged_bundle(authority(1), [authority(2)], ends + CLOCKS_DIFFER) == authority(2)


def test_line_ends_of_another_kind_are_no_other_certificate() -> None:
    assert merged_bundle(authority(1).replace(b"\n", b"\r\n"), [authority(1)], NOW) is None


PARTS = st.lists(st.one_of(LIVING, EXPIRED, NOISE), max_size=MANY)


@given(PARTS)
def test_a_copy_has_the_certificates_of_a_bundle_in_bounds_and_no_other_byte(parts: list[bytes]) -> None:
    authorities = [part for part in parts if part.endswith(b"END CERTIFICATE-----\n") and len(part) > MIN_SIZE]
    assert copied_bundle(b"".join(parts)) == b"".join(authorities[:MAX_CAS])


def test_the_largest_copy_fits_into_a_configuration_many_times() -> None:
    padded = b"-----BEGIN CERTIFICATE-----\n" + b"\n" * 3000 + authority(0).partition(b"\n")[2]
    assert copied_bundle(padded) == b""
    assert len(copied_bundle(authority(0) * 10_000)) == MAX_CAS * len(authority(0))
