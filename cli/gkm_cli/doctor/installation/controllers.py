"""The controllers: they are installed, and one of them leads. Pure."""

from collections.abc import Iterator
from datetime import timedelta

from gkm.api.features import INSTALL
from gkm.api.installation import ADMISSION, CONTROLLERS, NAMESPACE

from gkm_cli.doctor.findings import Finding, moment, text_at
from gkm_cli.doctor.installation import subjects
from gkm_cli.doctor.installation.objects import tag_of
from gkm_cli.doctor.installation.observation import check
from gkm_cli.doctor.installation.observed import InstallationFacts, problem

LATE = timedelta(seconds=60)
"""A new leader follows a killed one within 18 seconds (gkm.kube.leases); clocks differ."""


@check("controllers/missing", "the Deployments are there", "deployments")
def missing(observed: InstallationFacts) -> Iterator[Finding]:
    """Yield the Deployments of GKM that do not exist."""
    for name in (CONTROLLERS, ADMISSION):
        if observed.deployments.get(name) is None:
            why = "no cache is verified or counted" if name == CONTROLLERS else "the API server refuses every new cache"
            yield problem("Deployment", name, "it does not exist", why, INSTALL, namespace=NAMESPACE)


@check("controllers/leader", "one of the controllers leads", "deployments lease pods", subjects.LEASE)
def leader(observed: InstallationFacts) -> Iterator[Finding]:
    """Yield a problem if no replica of the controllers leads."""
    deployment = observed.deployments.get(CONTROLLERS)
    if deployment is None or (
        observed.lease is None and not observed.is_settled(text_at(deployment, "metadata", "creationTimestamp"))
    ):
        return
    renewed = text_at(observed.lease, "spec", "renewTime")
    holder = text_at(observed.lease, "spec", "holderIdentity")
    last = moment(renewed)
    # Without a holder as well: one replica has released it, and another one follows.
    if last is not None and observed.now - last <= LATE:
        return
    detail = f"{holder} has not renewed it since {renewed}" if holder and renewed else "it has no holder"
    if observed.lease is None:
        detail = "it does not exist: the controllers have never led"
    waiting = next((pod.waits_for for pod in observed.pods_of(CONTROLLERS) if not pod.is_ready), "")
    why = "no cache is verified, counted or reported" + (f"; a pod waits: {waiting}" if waiting else "")
    hint = f"kubectl logs -n {NAMESPACE} -l app.kubernetes.io/name={CONTROLLERS}: the last line says what is missing"
    yield problem("Lease", CONTROLLERS, detail, why, hint, namespace=NAMESPACE)


@check("controllers/versions", "all programs are of one version", "daemon_sets deployments", subjects.PROGRAMS)
def versions(observed: InstallationFacts) -> Iterator[Finding]:
    """Yield a warning if programs of GKM have several versions. Images by digest are not compared."""
    tags: dict[str, list[str]] = {}
    for name, found in (*observed.daemon_sets.items(), *observed.deployments.items()):
        if tag := tag_of(found):
            tags.setdefault(tag, []).append(name)
    if len(tags) > 1:
        detail = "; ".join(f"{tag}: {', '.join(sorted(names))}" for tag, names in sorted(tags.items()))
        why = "an upgrade was not finished, or one image was changed by hand; they share files and kinds of one version"
        yield problem(
            "Namespace", NAMESPACE, f"several versions run: {detail}", why, "upgrade the whole chart to one version"
        )
