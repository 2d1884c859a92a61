"""The certificate of admission, for clusters without cert-manager: issued, published, and renewed.

The API server trusts a new CA first, and the server uses it much later. Every replica adds its own CAs to a ConfigMap,
with the resource version of its read, so concurrent writers lose no CA. The controllers copy the ConfigMap into the
webhook configurations (gkm_operator.webhooks): the account of admission reads these, and writes only this ConfigMap.

A crash at any step needs no repair: a starting process issues everything anew, and unused CAs leave the bundle when
they expire or when others need their places.
"""

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from threading import Event

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from gkm.api.installation import ADMISSION, ADMISSION_CA, ADMISSION_CA_KEY, CONTROLLERS
from gkm.hoststate.logs import fields
from gkm.kube.api import Api
from gkm.kube.errors import ApiError
from gkm.kube.resources import CONFIGMAPS, Json
from gkm.kube.secrets import DEFAULT_NAMESPACE

from gkm_operator import metrics
from gkm_operator.webhooks import CLOCKS_DIFFER, WebhookConfiguration, bundles, has_all, merged_bundle

VALID = timedelta(days=90)
AUTHORITY, KEY, CERTIFICATE = "ca.crt", "tls.key", "tls.crt"
"""The names of the files, in the order in which they are written."""

_AUTHORITY, _SERVER = "gkm-operator CA", "gkm-operator"

MAX_TRIES = 5

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CertificatePair:
    """The webhook's TLS server certificate, its private key, and the CA that signed it; all PEM."""

    certificate: bytes
    key: bytes = field(repr=False)
    authority: bytes
    made: datetime
    ends: datetime

    @property
    def begins(self) -> datetime:
        """Return the start of the certificate's validity, a little before its issue, because clocks differ."""
        return self.made - CLOCKS_DIFFER

    def is_valid(self, now: datetime) -> bool:
        """Return whether a client whose clock shows `now` accepts the certificate."""
        return self.begins <= now < self.ends


def make(names: Sequence[str], now: datetime, valid: timedelta = VALID) -> CertificatePair:
    """Issue a CA and a server certificate for DNS names and IP addresses.

    The CA's key is never written: every certificate has a separate CA.
    """
    made = now.replace(microsecond=0)  # X.509 has whole seconds only
    ends = made + valid
    authority_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    identifier = x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key())
    authority = (
        _builder(_AUTHORITY, authority_key.public_key(), made, ends)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(ca=True), critical=True)
        .add_extension(identifier, critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    certificate = (
        _builder(_SERVER, key.public_key(), made, ends)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(ca=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False)
        # All our CAs have the same subject: this extension tells a client which one issued the certificate.
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return CertificatePair(certificate.public_bytes(pem), secret, authority.public_bytes(pem), made, ends)


def write(directory: Path, pair: CertificatePair) -> None:
    """Write the files of the CA, the key and the certificate to a directory, each atomically.

    Between the last two steps the files do not match: a server that reads them then keeps the pair in memory
    (https.certificate.ServerCertificate). Leftovers of a crash are never read: a starting process writes all three
    anew.

    Raises:
        OSError: the directory cannot be written.
    """
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    for name, pem in ((AUTHORITY, pair.authority), (KEY, pair.key), (CERTIFICATE, pair.certificate)):
        _replace(directory / name, pem)


def _replace(path: Path, pem: bytes) -> None:
    # A fixed name: the next write removes the leftover of a crash, so leftovers do not accumulate.
    temporary = path.with_name(f"{path.name}.new")
    temporary.unlink(missing_ok=True)
    temporary.touch(mode=0o600, exist_ok=False)
    temporary.write_bytes(pem)
    temporary.rename(path)


def _builder(name: str, key: ec.EllipticCurvePublicKey, made: datetime, ends: datetime) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(_name(name))
        .issuer_name(_name(_AUTHORITY))
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(made - CLOCKS_DIFFER)
        .not_valid_after(ends)
    )


def _usage(*, ca: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not ca,
        key_cert_sign=ca,
        crl_sign=ca,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def publish(
    api: Api,
    namespace: str,
    configurations: Sequence[WebhookConfiguration],
    authorities: Sequence[bytes],
    now: datetime,
) -> bool:
    """Add CAs to the ConfigMap from which the controllers copy them; return whether it had all of them before.

    Raises:
        ApiError: the API server does not answer or refuses, or another writer changes the ConfigMap again and again.
    """
    for tries in range(1, MAX_TRIES + 1):
        found = api.find(CONFIGMAPS, ADMISSION_CA, namespace)
        if found is None:
            _create(api, namespace, _former(api, configurations), authorities, now)
            return False
        bundle = merged_bundle(str((found.get("data") or {}).get(ADMISSION_CA_KEY, "")).encode(), authorities, now)
        if bundle is None:
            return True
        patch = {"metadata": {"resourceVersion": found["metadata"]["resourceVersion"]}, **_data(bundle)}
        try:
            api.merge(CONFIGMAPS, ADMISSION_CA, patch, namespace)
        except ApiError as error:
            if not error.conflict or tries == MAX_TRIES:
                raise
        else:
            break
    return False


def distrusting(
    api: Api, configurations: Iterable[WebhookConfiguration], authorities: Sequence[bytes]
) -> list[WebhookConfiguration]:
    """Return the webhook configurations on the API server that lack one of the CAs in a caBundle.

    Raises:
        ApiError: a configuration does not exist, or the API server does not answer.
    """
    return [each for each in configurations if not _trusts(api.get(each.resource, each.name), authorities)]


def _trusts(found: Json, authorities: Sequence[bytes]) -> bool:
    return all(has_all(bundle, authorities) for bundle in bundles(found))


def _create(api: Api, namespace: str, former: bytes, authorities: Sequence[bytes], now: datetime) -> None:
    # By an apply: its request names the object, so RBAC can allow the creation of this one alone.
    value = {
        "apiVersion": CONFIGMAPS.api_version,
        "kind": CONFIGMAPS.kind,
        "metadata": {"name": ADMISSION_CA, "namespace": namespace, "labels": {"app.kubernetes.io/part-of": "gkm"}},
        **_data(merged_bundle(former, authorities, now) or former),
    }
    api.apply(CONFIGMAPS, value, field_manager=ADMISSION)


def _former(api: Api, configurations: Sequence[WebhookConfiguration]) -> bytes:
    """Return what the API server trusts already.

    Where the ConfigMap was lost, the other replicas serve with these CAs until they publish them again; after an
    upgrade, so do the pods of a version that wrote the configurations itself.
    """
    found = [api.find(each.resource, each.name) or {} for each in configurations]
    return b"".join(dict.fromkeys(bundle for each in found for bundle in bundles(each)))


def _data(bundle: bytes) -> Json:
    return {"data": {ADMISSION_CA_KEY: bundle.decode("ascii")}}


@dataclass(frozen=True, slots=True)
class RotationTimes:
    """The periods of renewing the webhook's certificate. The defaults are the shipped values; only tests use others."""

    valid: timedelta = VALID
    renewed: timedelta = VALID * 2 / 3
    """Age at which a pair is due for renewal. The rest, a month, is the time to notice and repair an unavailable API
    server or a removed role."""

    settle_seconds: float = 300.0
    """The time from trust in a CA to its use by the server. API servers watch webhook configurations and see a change
    within a second. A server whose watch broke retries after half a minute at most (client-go's reflector), and then
    lists. A longer wait has no cost, because the old pair is valid for another month."""

    check_seconds: float = 60.0
    """A ConfigMap that was deleted has lost our CA. Each check compares a pair with the wall clock, so a clock that
    jumps is noticed by the next check."""

    copy_seconds: float = 1.0
    """Seconds until the next check after one that published a CA or waits for the controllers to copy it."""

    retry_seconds: float = 5.0
    """Seconds until the next check after one that failed."""


SHIPPED = RotationTimes()


def is_due(pair: CertificatePair, times: RotationTimes, now: datetime) -> bool:
    """Return whether a new certificate must be issued.

    The present one is old, or the clock was set back before its start.
    """
    return not pair.begins <= now < pair.made + times.renewed


class NotTrusted(RuntimeError):
    """The API server does not trust the serving certificate yet."""


def may_serve(serving: CertificatePair, *, waited: float | None, times: RotationTimes, now: datetime) -> bool:
    """Return whether the server may replace its certificate by the next one.

    `waited` is the time in seconds since its CA was trusted; None if this check did not find the CA in all bundles.
    While the serving pair is valid there is no hurry; when it is not, because the clock jumped, clients reject it, and
    the replica must not wait.
    """
    return not serving.is_valid(now) or (waited is not None and waited >= times.settle_seconds)


class Rotation:
    """Renews the webhook's certificate: one pair is in use, at most one waits for trust in its CA. Not thread-safe."""

    def __init__(
        self,
        directory: Path,
        names: Sequence[str],
        times: RotationTimes = SHIPPED,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        elapsed: Callable[[], float] = time.monotonic,
        namespace: str = DEFAULT_NAMESPACE,
    ) -> None:
        """Issue the first pair and write it to `directory`.

        Raises:
            OSError: the directory cannot be written.
        """
        self._directory = directory
        self._names = names
        self._times = times
        self._now = now
        self._elapsed = elapsed
        self._namespace = namespace
        self._serving = self._make()
        self._next: CertificatePair | None = None
        self._next_trusted: float | None = None
        """When the CA of the next pair was first in all bundles, by the monotonic clock."""
        write(directory, self._serving)

    def run(
        self, api: Api, configurations: Sequence[WebhookConfiguration], stop: Event, trusted: Callable[[], object]
    ) -> None:
        """Check the certificate at intervals until `stop`; call `trusted` once, when the API server trusts its CA.

        Never raises for errors of the API server or the disk: the process goes on serving, and checks again.
        """
        last_error, reported = "", False
        while True:
            try:
                pause = self._times.check_seconds if self.check(api, configurations) else self._times.copy_seconds
            except (ApiError, OSError, NotTrusted) as error:
                pause = self._times.copy_seconds if isinstance(error, NotTrusted) else self._times.retry_seconds
                if str(error) != last_error:
                    last_error = str(error)
                    _LOG.warning(
                        "CA of this replica not in all webhook configurations, checked again",
                        extra=fields(why=last_error),
                    )
            else:
                last_error = ""
                metrics.succeeded("certificate")
                if not reported:
                    trusted()
                reported = True
            if stop.wait(pause):
                return

    def check(self, api: Api, configurations: Sequence[WebhookConfiguration]) -> bool:
        """Publish our CAs, issue a pair when one is due, and serve it when that is safe.

        Return whether all CAs were published and trusted before.

        Raises:
            ApiError: the API server does not answer or refuses; the server keeps its certificate.
            NotTrusted: the controllers have not copied the CA of the serving pair.
            OSError: the files cannot be written; the server keeps the pair that it has in memory.
        """
        now = self._now()
        if is_due(self._next or self._serving, self._times, now):
            self._next, self._next_trusted = self._make(), None
        pairs = [pair for pair in (self._next, self._serving) if pair]
        published = publish(api, self._namespace, configurations, [pair.authority for pair in pairs], now)
        is_next_trusted = self._next is None or self._serve_next(api, configurations, self._next, now)
        if missing := distrusting(api, configurations, [self._serving.authority]):
            raise NotTrusted(
                f"{missing[0]} has no CA of this replica yet: {CONTROLLERS} copies it from the ConfigMap "
                f"{ADMISSION_CA}; see kubectl logs -n {self._namespace} deployment/{CONTROLLERS}"
            )
        return published and is_next_trusted

    def _serve_next(
        self, api: Api, configurations: Sequence[WebhookConfiguration], pair: CertificatePair, now: datetime
    ) -> bool:
        """Serve the next pair when that is safe; return whether its CA is trusted."""
        is_trusted = not distrusting(api, configurations, [pair.authority])
        if self._next_trusted is None and is_trusted:
            self._next_trusted = self._elapsed()
        waited = self._elapsed() - self._next_trusted if is_trusted and self._next_trusted is not None else None
        if may_serve(self._serving, waited=waited, times=self._times, now=now):
            write(self._directory, pair)
            self._serving, self._next = pair, None
            _LOG.info("webhook certificate renewed", extra=fields(until=pair.ends.isoformat()))
        return is_trusted

    def _make(self) -> CertificatePair:
        return make(self._names, self._now(), self._times.valid)
