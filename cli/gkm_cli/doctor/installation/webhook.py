"""The admission webhook: it is registered, a process answers, the API server trusts it, and it saw each labeled pod."""

import base64
import binascii
import re
from collections.abc import Iterator

from cryptography import x509
from gkm.api.features import INSTALL, Feature, install
from gkm.api.installation import ADMISSION, NAMESPACE
from gkm.api.meta import timestamp
from gkm.api.pod_caches import CACHE, CLUSTER_CACHE, INJECTED, WEBHOOK

from gkm_cli.doctor.findings import Finding, at, items_at, moment, some, text_at
from gkm_cli.doctor.installation import subjects
from gkm_cli.doctor.installation.observation import CACHE_WEBHOOK, CERT_MANAGER, check
from gkm_cli.doctor.installation.observed import InstallationFacts, problem

AUTHORITY = "gkm-operator CA"
"""The subject of the certificate authorities that the admission processes make for themselves."""
_KIND = "ValidatingWebhookConfiguration"
_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]{1,8192}-----END CERTIFICATE-----")
_MAX_BUNDLE_BYTES = 1 << 20
_REFUSED = "the API server refuses every new cache, and every change of spec.image"
_SEE_ADMISSION = "read the log: kubectl logs -n gkm-system -l app.kubernetes.io/name=gkm-admission"
_ENDED = frozenset({"Succeeded", "Failed"})


@check("webhook/missing", "the webhook is registered", "webhook")
def missing(observed: InstallationFacts) -> Iterator[Finding]:
    """Yield a problem if the admission webhook is not registered."""
    if observed.webhook is None:
        why = "caches are created without a check of their image; the controllers verify it later"
        yield problem(_KIND, CACHE_WEBHOOK, "it does not exist", why, INSTALL)


@check("webhook/endpoints", "an admission process answers", "webhook slices", subjects.WEBHOOK)
def endpoints(observed: InstallationFacts) -> Iterator[Finding]:
    """Yield a problem if no admission process is ready to answer."""
    ready = [
        one
        for found in observed.slices
        for one in items_at(found, "endpoints")
        # None means ready (discovery/v1).
        if at(one, "conditions", "ready") is not False
    ]
    if observed.webhook is not None and not ready:
        hint = f"kubectl describe pods -n {NAMESPACE} -l app.kubernetes.io/name={ADMISSION}: why they are not ready"
        yield problem("Service", ADMISSION, "it has no ready endpoint", _REFUSED, hint, namespace=NAMESPACE)


@check("webhook/ca-bundle", "the API server can verify the webhook", "webhook", subjects.WEBHOOK)
def bundle(observed: InstallationFacts) -> Iterator[Finding]:
    """Yield the CA bundles with which no certificate of the webhook can be verified."""
    for number, webhook in enumerate(items_at(observed.webhook, "webhooks")):
        found, where = _bundle(webhook), f"webhooks[{number}].clientConfig.caBundle"
        if not found:
            detail = f"{where} is empty, or holds no certificate"
        elif not _by_cert_manager(observed) and all(_subject(one) != AUTHORITY for one in found):
            subject = found[0].subject.rfc4514_string()
            detail = f"{where} is not of the admission processes: {subject}"
        else:
            continue
        hint = "cert-manager writes it: see its injector's log" if _by_cert_manager(observed) else _SEE_ADMISSION
        yield problem(_KIND, CACHE_WEBHOOK, detail, f"it cannot verify the webhook: {_REFUSED}", hint)


@check("webhook/expired", "the certificate of the webhook is valid", "webhook certificate", subjects.CERTIFICATES)
def certificate(observed: InstallationFacts) -> Iterator[Finding]:
    """Yield a problem if the webhook's certificate has expired."""
    if _by_cert_manager(observed):
        ends = moment(at(observed.certificate, "status", "notAfter"))
        if ends is not None and ends <= observed.now:
            hint = f"kubectl describe certificate gkm-admission -n {NAMESPACE} says why it was not renewed"
            yield problem(
                "Certificate", ADMISSION, f"expired at {timestamp(ends)}", _REFUSED, hint, namespace=NAMESPACE
            )
        return
    for webhook in items_at(observed.webhook, "webhooks"):
        found = [one for one in _bundle(webhook) if _subject(one) == AUTHORITY]
        last = max((one.not_valid_after_utc for one in found), default=observed.now)
        if found and last <= observed.now:
            why = f"the processes renew it after 60 days, and could not: {_REFUSED}"
            yield problem(
                _KIND, CACHE_WEBHOOK, f"the webhook's certificate expired at {timestamp(last)}", why, _SEE_ADMISSION
            )


def _by_cert_manager(observed: InstallationFacts) -> bool:
    return bool(at(observed.webhook, "metadata", "annotations", CERT_MANAGER))


def _bundle(webhook: object) -> list[x509.Certificate]:
    text = text_at(webhook, "clientConfig", "caBundle")
    if len(text) > _MAX_BUNDLE_BYTES:
        return []
    try:
        pem = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return []
    found = []
    for one in _PEM.findall(pem):
        try:
            found.append(x509.load_pem_x509_certificate(one))
        except (ValueError, x509.InvalidVersion):
            continue  # an API server cannot read it either
    return found


def _subject(authority: x509.Certificate) -> str:
    names = authority.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    return str(names[0].value) if names else ""


@check(
    "caches/by-label",
    "every pod with the label of a cache was seen by the webhook",
    "labeled_pods",
    subjects.LABELED_PODS,
    cluster_wide=False,
)
def unseen(observed: InstallationFacts) -> Iterator[Finding]:
    """Yield the namespaces with pods that have a label of a cache, without its volume and without a report."""
    found: dict[str, list[str]] = {}
    for pod in observed.labeled_pods:
        metadata = pod.metadata
        labeled = any(metadata.labels.get(key) for key in (CACHE, CLUSTER_CACHE))
        if labeled and INJECTED not in metadata.annotations and pod.status.phase not in _ENDED:
            found.setdefault(metadata.namespace, []).append(metadata.name)
    why = f"the webhook {WEBHOOK} was not called when they were created: they run without their cache, and compile"
    hint = f"if the webhook is not installed, {install(Feature.POD_CACHES)}; then create these pods again"
    for namespace, names in sorted(found.items()):
        detail = f"pods have the label of a cache and no annotation {INJECTED}: {some(names)}"
        yield problem("Namespace", namespace, detail, why, hint)
