"""The HTTPS server: real TLS, real sockets, hostile clients."""

import http.client
import json
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event, Thread

import pytest
from cryptography import x509
from gkm.kube.errors import ApiError
from gkm.kube.resources import VALIDATING_WEBHOOKS, Json
from gkm_operator.admission import server as serving
from gkm_operator.admission.certificates import Issued, issue
from gkm_operator.admission.judge import Judge
from gkm_operator.admission.server import AdmissionServer
from gkm_operator.admission.trust import MAX_AUTHORITIES, bundle, keep, trust, trusting
from kube.fake_api import FakeApi
from operator_images import DIGEST, GOOD, FakeImages
from testbed.waiting import until

IMAGE = "registry.test/team/cache:1"
REVIEW = {
    "apiVersion": "admission.k8s.io/v1",
    "kind": "AdmissionReview",
    "request": {
        "uid": "u-1",
        "kind": {"group": "gkm.io", "version": "v1alpha1", "kind": "GKMCache"},
        "operation": "CREATE",
        "namespace": "a",
        "object": {"metadata": {"name": "x"}, "spec": {"image": IMAGE}},
    },
}


@dataclass
class Site:
    server: AdmissionServer
    issued: Issued

    def connection(self) -> http.client.HTTPSConnection:
        """Connect as the API server does: with nothing but the CA."""
        context = ssl.create_default_context(cadata=self.issued.ca_bundle.decode())
        return http.client.HTTPSConnection("127.0.0.1", self.server.port, timeout=20, context=context)

    def ask(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        connection = self.connection()
        try:
            connection.request(method, path, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    issued = issue(tmp_path / "tls", ["127.0.0.1", "gkm-admission.gkm-system.svc"])
    judge = Judge(FakeImages({IMAGE: DIGEST}, {DIGEST: GOOD}), "enforce")
    server = AdmissionServer(judge, ("127.0.0.1", 0), issued.certificate, issued.key)
    server.start()
    yield Site(server, issued)
    server.close()


def test_a_review_is_answered(site: Site) -> None:
    status, body = site.ask("POST", "/validate", json.dumps(REVIEW).encode())
    assert (status, json.loads(body)["response"]) == (200, {"uid": "u-1", "allowed": True})


def test_health_and_readiness(site: Site) -> None:
    assert site.ask("GET", "/healthz") == (200, b"ok\n")
    assert site.ask("GET", "/readyz") == (200, b"ok\n")
    site.server.ready.clear()
    assert site.ask("GET", "/readyz")[0] == 503


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/validate", b"", 405),
        ("POST", "/", b"", 404),
        ("POST", "/validate", b"", 400),
        ("POST", "/validate", b"{}", 400),
        ("POST", "/validate", b"\x00" * 100, 400),
    ],
    ids=["GET", "another path", "nothing", "no review", "zeros"],
)
def test_what_is_no_review_is_told_so(site: Site, method: str, path: str, body: bytes, status: int) -> None:
    assert site.ask(method, path, body)[0] == status


def test_a_body_beyond_the_bound_is_not_read(site: Site) -> None:
    connection = site.connection()
    connection.putrequest("POST", "/validate")
    connection.putheader("Content-Length", str(serving.MAX_BODY_BYTES + 1))
    connection.endheaders()
    assert connection.getresponse().status == 413
    connection.close()


def test_silent_clients_and_plain_http_keep_nobody_waiting(site: Site) -> None:
    silent = [socket.create_connection(("127.0.0.1", site.server.port)) for _ in range(10)]
    plain = socket.create_connection(("127.0.0.1", site.server.port))
    plain.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
    garbage = socket.create_connection(("127.0.0.1", site.server.port))
    garbage.sendall(b"\x16\x03\x01" + b"\xff" * 100)
    assert site.ask("GET", "/healthz") == (200, b"ok\n")
    for connection in (*silent, plain, garbage):
        connection.close()
    assert site.ask("GET", "/healthz") == (200, b"ok\n")


def test_a_new_certificate_is_served_without_a_restart(site: Site) -> None:
    old = site.issued
    site.issued = issue(old.certificate.parent, ["127.0.0.1"])
    assert site.ask("GET", "/healthz")[0] == 200
    site.issued = old
    with pytest.raises(ssl.SSLCertVerificationError):
        site.ask("GET", "/healthz")


def test_while_certificate_and_key_do_not_fit_the_old_pair_serves_on(site: Site, tmp_path: Path) -> None:
    other = issue(tmp_path / "other", ["127.0.0.1"])
    site.issued.key.write_bytes(other.key.read_bytes())
    assert site.ask("GET", "/healthz")[0] == 200
    site.issued.key.unlink()
    assert site.ask("GET", "/healthz")[0] == 200


def test_closing_frees_the_port(tmp_path: Path) -> None:
    issued = issue(tmp_path, ["127.0.0.1"])
    server = AdmissionServer(Judge(FakeImages(), "enforce"), ("127.0.0.1", 0), issued.certificate, issued.key)
    server.start()
    port = server.port
    server.close()
    again = AdmissionServer(Judge(FakeImages(), "enforce"), ("127.0.0.1", port), issued.certificate, issued.key)
    again.start()
    again.close()


def test_a_self_made_certificate_names_the_service_and_guards_its_key(tmp_path: Path) -> None:
    issued = issue(tmp_path / "tls", ["gkm-admission.gkm-system.svc", "127.0.0.1"])
    certificate = x509.load_pem_x509_certificate(issued.certificate.read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["gkm-admission.gkm-system.svc"]
    assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]
    authority = x509.load_pem_x509_certificate(issued.ca_bundle)
    certificate.verify_directly_issued_by(authority)
    nine_years = datetime.now(UTC) + timedelta(days=9 * 365)
    assert min(certificate.not_valid_after_utc, authority.not_valid_after_utc) > nine_years
    assert issued.key.stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in (tmp_path / "tls").iterdir()) == ["ca.crt", "tls.crt", "tls.key"]
    assert b"PRIVATE" not in issued.authority.read_bytes()


def a_configuration(*bundles: str) -> Json:
    return {
        "apiVersion": VALIDATING_WEBHOOKS.api_version,
        "kind": VALIDATING_WEBHOOKS.kind,
        "metadata": {"name": "gkm-caches"},
        "webhooks": [
            {"name": f"w{number}.gkm.io", "clientConfig": {"url": "https://x", **({"caBundle": b} if b else {})}}
            for number, b in enumerate(bundles)
        ],
    }


def test_the_api_server_is_told_whom_to_trust_once(tmp_path: Path) -> None:
    api = FakeApi()
    api.create(VALIDATING_WEBHOOKS, a_configuration("", "%%%"))
    authority = issue(tmp_path, ["x"]).ca_bundle
    for _ in range(2):
        trust(api, "gkm-caches", authority)
    found = api.get(VALIDATING_WEBHOOKS, "gkm-caches")
    assert found["webhooks"][0]["clientConfig"]["caBundle"] == found["webhooks"][1]["clientConfig"]["caBundle"]
    assert found["webhooks"][0]["clientConfig"]["url"] == "https://x"
    assert trusting(found, authority) is None
    assert sum(1 for verb, _, _ in api.calls if verb == "merge") == 1


def test_authorities_of_earlier_pods_stay_trusted_up_to_a_number(tmp_path: Path) -> None:
    made = [issue(tmp_path / str(number), ["x"]).ca_bundle for number in range(MAX_AUTHORITIES + 2)]
    trusted = b""
    for authority in made:
        trusted = bundle(trusted, authority)
    assert trusted.count(b"BEGIN CERTIFICATE") == MAX_AUTHORITIES
    assert trusted.startswith(made[-1].strip())
    assert made[-MAX_AUTHORITIES] in trusted
    assert made[0].strip() not in trusted
    assert len(x509.load_pem_x509_certificates(trusted)) == MAX_AUTHORITIES


def test_trust_is_tried_again_after_a_conflict_and_not_for_ever(tmp_path: Path) -> None:
    api = FakeApi()
    api.create(VALIDATING_WEBHOOKS, a_configuration(""))
    authority = issue(tmp_path, ["x"]).ca_bundle
    conflicts = iter([ApiError(409, "Conflict", "")] * 2)
    api.fault = lambda verb, _: next(conflicts, None) if verb == "merge" else None
    trust(api, "gkm-caches", authority)
    api.fault = lambda verb, _: ApiError(409, "Conflict", "") if verb == "merge" else None
    with pytest.raises(ApiError):
        trust(api, "gkm-caches", issue(tmp_path / "new", ["x"]).ca_bundle)
    with pytest.raises(ApiError) as caught:
        trust(api, "none", authority)
    assert caught.value.not_found


def test_a_configuration_that_was_applied_anew_is_told_again(tmp_path: Path) -> None:
    api, stop = FakeApi(), Event()
    authority = issue(tmp_path, ["x"]).ca_bundle
    api.create(VALIDATING_WEBHOOKS, a_configuration(""))
    trust(api, "gkm-caches", authority)
    keeper = Thread(target=keep, args=(api, "gkm-caches", authority, stop, 0.01))
    keeper.start()
    try:
        api.delete(VALIDATING_WEBHOOKS, "gkm-caches")
        looks = len(api.calls)
        until(lambda: len(api.calls) > looks + 2, "it looks on while there is none")
        api.fault = lambda _verb, _plural: ApiError(0, "Unreachable", "away")
        looks = len(api.calls)
        until(lambda: len(api.calls) > looks + 2, "it looks on while nobody answers")
        api.fault = lambda _verb, _plural: None
        api.create(VALIDATING_WEBHOOKS, a_configuration("", ""))
        until(lambda: trusting(api.get(VALIDATING_WEBHOOKS, "gkm-caches"), authority) is None, "it is trusted again")
    finally:
        stop.set()
        keeper.join(10)
    assert not keeper.is_alive()


def test_as_long_as_it_is_trusted_nothing_is_written(tmp_path: Path) -> None:
    api, stop = FakeApi(), Event()
    authority = issue(tmp_path, ["x"]).ca_bundle
    api.create(VALIDATING_WEBHOOKS, a_configuration(""))
    trust(api, "gkm-caches", authority)
    api.calls.clear()
    keeper = Thread(target=keep, args=(api, "gkm-caches", authority, stop, 0.01))
    keeper.start()
    until(lambda: len(api.calls) > 3, "it looks")
    stop.set()
    keeper.join(10)
    assert {verb for verb, _, _ in api.calls} == {"get"}
