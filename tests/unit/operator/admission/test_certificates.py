"""Self-issued certificates: contents, writing, and when a renewal is due."""

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from gkm_operator.admission import certificates
from gkm_operator.admission.certificates import (
    CERTIFICATE,
    KEY,
    SHIPPED,
    CertificatePair,
    Rotation,
    RotationTimes,
    is_due,
    make,
    may_serve,
    write,
)
from gkm_operator.webhooks import CLOCKS_DIFFER
from hypothesis import given
from hypothesis import strategies as st
from support.operator.issued import issue

NOW = datetime(2030, 1, 1, tzinfo=UTC)
MOMENTS = st.datetimes(datetime(2000, 1, 1), datetime(2060, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 -- see timezones
WAITED = st.floats(0, 1e6)


def a_pair(made: datetime = NOW, times: RotationTimes = SHIPPED) -> CertificatePair:
    """Return a pair without the work of making one."""
    return CertificatePair(b"", b"", b"", made, made + times.valid)


def test_a_certificate_names_the_service_and_its_key_is_guarded(tmp_path: Path) -> None:
    issued = issue(tmp_path / "tls", ["gkm-admission.gkm-system.svc", "127.0.0.1"])
    certificate = x509.load_pem_x509_certificate(issued.certificate.read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["gkm-admission.gkm-system.svc"]
    assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]
    certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(issued.ca_bundle))
    assert issued.key.stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in (tmp_path / "tls").iterdir()) == ["ca.crt", "tls.crt", "tls.key"]
    assert b"PRIVATE" not in issued.authority.read_bytes()


def test_a_certificate_and_its_ca_are_valid_for_90_days_and_for_late_clocks() -> None:
    pair = make(["x"], NOW)
    for pem in (pair.certificate, pair.authority):
        certificate = x509.load_pem_x509_certificate(pem)
        assert certificate.not_valid_before_utc == pair.begins == NOW - CLOCKS_DIFFER
        assert certificate.not_valid_after_utc == pair.ends == NOW + timedelta(days=90)


def test_the_repr_of_a_pair_hides_its_key() -> None:
    pair = make(["x"], NOW)
    assert b"PRIVATE KEY" in pair.key
    assert "PRIVATE" not in repr(pair)


def test_a_client_finds_the_right_one_of_several_cas_with_one_name(tmp_path: Path) -> None:
    issued = [issue(tmp_path / str(number), ["x"]) for number in range(3)]
    context = ssl.create_default_context(cadata=b"".join(one.ca_bundle for one in issued).decode())
    certificate = x509.load_pem_x509_certificate(issued[-1].certificate.read_bytes())
    authority = x509.load_pem_x509_certificate(issued[-1].ca_bundle)
    says = certificate.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value.key_identifier
    assert says == authority.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value.digest
    assert len(context.get_ca_certs()) == 3


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_cut_after_each_step_the_certificate_is_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    """A server that reads the files in between finds a mismatch or the old pair, never a half-written new pair."""
    old, new = make(["x"], NOW), make(["x"], NOW)
    write(tmp_path, old)
    left = iter(range(steps))
    replace = certificates._replace

    def cut(path: Path, pem: bytes) -> None:
        if next(left, None) is None:
            raise OSError(28, "No space left on device")
        replace(path, pem)

    with monkeypatch.context() as patched:
        patched.setattr(certificates, "_replace", cut)
        with pytest.raises(OSError, match="No space"):
            write(tmp_path, new)
    assert (tmp_path / "tls.crt").read_bytes() == old.certificate
    write(tmp_path, new)
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(tmp_path / CERTIFICATE, tmp_path / KEY)


def test_leftovers_of_a_crash_do_not_prevent_a_write(tmp_path: Path) -> None:
    (tmp_path / "tls.key.new").write_bytes(b"half a key")
    (tmp_path / "tls.key.new").chmod(0o644)
    (tmp_path / "tls.key").write_bytes(b"")
    Rotation(tmp_path, ["x"])
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(tmp_path / CERTIFICATE, tmp_path / KEY)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ca.crt", "tls.crt", "tls.key"]
    assert (tmp_path / KEY).stat().st_mode & 0o777 == 0o600


def test_two_thirds_of_its_life_a_pair_is_not_due() -> None:
    pair = a_pair()
    assert not is_due(pair, SHIPPED, NOW)
    assert not is_due(pair, SHIPPED, NOW + timedelta(days=60, seconds=-1))
    assert is_due(pair, SHIPPED, NOW + timedelta(days=60))
    assert is_due(pair, SHIPPED, NOW - CLOCKS_DIFFER - timedelta(seconds=1))


@given(MOMENTS, MOMENTS)
def test_a_pair_that_is_not_due_is_valid_and_a_new_pair_is_not_due(made: datetime, now: datetime) -> None:
    assert is_due(a_pair(made), SHIPPED, now) or a_pair(made).is_valid(now)
    assert not is_due(a_pair(now), SHIPPED, now)


@given(made=MOMENTS, now=MOMENTS, waited=WAITED, found=st.booleans())
def test_a_valid_pair_serves_until_the_next_is_settled_and_an_invalid_one_is_replaced(
    *, made: datetime, now: datetime, waited: float, found: bool
) -> None:
    serving = a_pair(made)
    settled = found and waited >= SHIPPED.settle_seconds
    assert may_serve(serving, waited=waited if found else None, times=SHIPPED, now=now) == (
        settled or not made - CLOCKS_DIFFER <= now < made + SHIPPED.valid
    )
