"""The caches: their images are trusted and can be fetched, and no node fails at them. Pure."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import timedelta

from gkm.api.caches import Cache, condition_of, verified_digest
from gkm.api.config import Config
from gkm.api.errors import GKMError, Reason
from gkm.api.installation import CONTROLLERS, NAMESPACE
from gkm.api.meta import TRUE
from gkm.api.nodes import NodeSpec
from gkm.api.rollouts import is_open
from gkm.images.reference import Reference
from gkm.images.signatures.verify import covers

from gkm_cli.doctor.findings import Finding, Severity, command, moment, some
from gkm_cli.doctor.installation import subjects
from gkm_cli.doctor.installation.observation import check
from gkm_cli.doctor.installation.observed import InstallationFacts, cache_name

SIGNATURES = frozenset(
    {Reason.SIGNATURE_MISSING, Reason.SIGNATURE_INVALID, Reason.IDENTITY_MISMATCH, Reason.ATTESTATION_MISSING}
)
WITHOUT_NODE = frozenset({"NodesIncompatible", "NoMatchingNodes"})
"""Reasons of the condition Ready (gkm_operator.caches.status)."""
STUCK = timedelta(minutes=30)
"""A pull of 64 GiB at 100 MB/s takes 11 minutes."""
_READ_LOG = f"kubectl logs -n {NAMESPACE} -l app.kubernetes.io/name={CONTROLLERS}"
_IN_PROGRESS = frozenset({"Pending", "Downloading", "Extracting"})


@check("caches/no-policy", "a policy covers every image", "config_map caches", subjects.ENFORCED_CACHES)
def no_policy(observed: InstallationFacts) -> Iterator[Finding]:
    """Yield the caches whose image no policy covers; without any policy, the check of the configuration reports it."""
    config = observed.config
    if not isinstance(config, Config) or config.verification.mode != "enforce" or not config.verification.policies:
        return
    for cache in observed.caches:
        if not _is_covered(cache, config):
            yield Finding(
                Severity.PROBLEM,
                cache_name(cache),
                f"no policy covers {cache.spec.image}",
                "verification.mode is enforce: an image without a policy is refused",
                "add a policy with a glob for it to verification.policies, or correct spec.image",
            )


@check("caches/signature", "every image has its signature", "config_map caches", subjects.CONFIGURED_CACHES)
def signature(observed: InstallationFacts) -> Iterator[Finding]:
    """Yield the caches whose image has no valid signature, though a policy covers it."""
    config = observed.config
    for cache in observed.caches:
        reason, message = _unverified(cache)
        if reason in SIGNATURES and isinstance(config, Config) and _is_covered(cache, config):
            verify = command("gkm", "cache", "verify", cache.spec.image, "--config", "FILE")
            hint = f"{verify} says why each signature does not count"
            why = "it is unsigned, another key signed it, or the policy names the wrong key"
            yield Finding(Severity.PROBLEM, cache_name(cache), f"{reason}: {message}", why, hint)


@check("caches/credentials", "every image can be fetched", "caches", subjects.CACHES, cluster_wide=False)
def credentials(observed: InstallationFacts) -> Iterator[Finding]:
    """Yield the caches whose registry demands other credentials, or whose pull secret does not exist."""
    for cache in observed.caches:
        reason, message = _unverified(cache)
        if reason == Reason.UNAUTHORIZED:
            why = "the pull secret does not exist, GKM may not read it, or the registry refuses what is in it"
            hint = "see spec.imagePullSecrets, deploy/samples/pull-secret.yaml and registries.hosts in gkm-config"
            yield Finding(Severity.PROBLEM, cache_name(cache), message, why, hint)


@check("caches/refused", "every other image is verified", "caches", subjects.CACHES, cluster_wide=False)
def refused(observed: InstallationFacts) -> Iterator[Finding]:
    """Yield the caches that the controllers refuse, or cannot verify, for any other reason."""
    for cache in observed.caches:
        condition = cache.status.condition("Verified")
        reason, message = _unverified(cache)
        if condition is None and observed.is_settled(cache.metadata.creation_timestamp):
            detail, hint = "the controllers have not looked at it", f"{_READ_LOG}: why they have not come to it"
            yield Finding(Severity.WARNING, cache_name(cache), detail, "it is not verified", hint)
        if condition is None or reason in {"", *SIGNATURES, Reason.UNAUTHORIZED}:
            continue
        if condition.last_transition_time <= observed.cutoff:
            severity = Severity.PROBLEM if condition.status == "False" else Severity.WARNING
            hint = "docs/reference/reasons.md explains this reason"
            yield Finding(severity, cache_name(cache), f"{reason}: {message}", "it is not verified", hint)


@check("caches/failed", "no node fails at a cache", "caches reports", subjects.REPORTED, cluster_wide=False)
def failed(observed: InstallationFacts) -> Iterator[Finding]:
    """Yield the caches that failed on nodes, with reasons and nodes."""
    for cache, reasons in _on_nodes(observed):
        for reason, (nodes, message) in sorted(reasons.items()):
            if reason != Reason.DISK_FULL:  # nodes/disk-full names it
                detail = f"{reason} on {some(nodes)}: {message}"
                hint = "docs/reference/reasons.md explains this reason; the agent tries again by itself"
                yield Finding(Severity.PROBLEM, cache, detail, "these nodes do not serve it to pods", hint)


@check("caches/no-node", "every cache fits a node", "caches", subjects.CACHES, cluster_wide=False)
def without_node(observed: InstallationFacts) -> Iterator[Finding]:
    """Yield the caches that no node can use: no node reports them, or their GPUs do not fit."""
    for cache in observed.caches:
        ready = condition_of(cache, "Ready")
        if ready and ready.reason in WITHOUT_NODE and ready.last_transition_time <= observed.cutoff:
            yield Finding(
                Severity.PROBLEM,
                cache_name(cache),
                f"{ready.reason}: {ready.message}",
                "no pod can mount it, and a pod that waits for it waits forever",
                "build it for the GPUs of the cluster, correct spec.nodeSelector, or delete it",
            )


@check(
    "caches/stuck", "no node has been fetching for too long", "caches reports", subjects.REPORTED, cluster_wide=False
)
def stuck(observed: InstallationFacts) -> Iterator[Finding]:
    """Yield the caches that nodes have been fetching for too long.

    A node that `spec.rollout` has not reached waits its turn: the check names the nodes that hold up the rollout.
    """
    late, unverified = observed.now - STUCK, _not_verified(observed)
    caches = {(cache.metadata.namespace, cache.metadata.name): cache for cache in observed.caches}
    for report in observed.reports:
        for name, found in report.status.caches.items():
            key = report.metadata.namespace, name
            if key in unverified or (found.state == "Pending" and _waits_its_turn(caches.get(key), report.spec)):
                continue
            since = moment(found.last_updated)
            if found.state in _IN_PROGRESS and since is not None and since <= late:
                kind = "GKMCache" if report.metadata.namespace else "ClusterGKMCache"
                where = f"{report.metadata.namespace}/" if report.metadata.namespace else ""
                yield Finding(
                    Severity.PROBLEM,
                    f"{kind} {where}{name}",
                    f"{report.spec.node_name} has been {found.state} since {found.last_updated}, at {found.progress} %",
                    found.message or "the agent waits for the registry, for disk space, or for other pulls",
                    "read the log of gkm-agent on this node",
                )


def _waits_its_turn(cache: Cache | None, node: NodeSpec) -> bool:
    """Return whether the rollout of a cache has not reached a node."""
    if cache is None or (digest := verified_digest(cache)) is None:
        return False
    return not is_open(cache.spec.rollout, cache.status.rollout, node.node_name, digest)


def _unverified(cache: Cache) -> tuple[str, str]:
    """Return reason and message of the condition Verified unless it is True, or about an earlier image."""
    condition = condition_of(cache, "Verified")
    return (condition.reason, condition.message) if condition and condition.status != "True" else ("", "")


def _not_verified(observed: InstallationFacts) -> set[tuple[str, str]]:
    """Return namespace and name of the caches that the controllers have not verified.

    The agents repeat the reason of a refusal, or wait: the condition Verified is the finding, not what follows from it.
    """
    return {
        (cache.metadata.namespace, cache.metadata.name)
        for cache in observed.caches
        if (condition := condition_of(cache, "Verified")) is None or condition.status != TRUE
    }


def _is_covered(cache: Cache, config: Config) -> bool:
    try:
        image = Reference.parse(cache.spec.image)
    except GKMError:
        return True  # another reason than the policies
    return any(covers(policy, image, cache.metadata.namespace or None) for policy in config.verification.policies)


def _on_nodes(observed: InstallationFacts) -> Iterator[tuple[str, Mapping[str, tuple[list[str], str]]]]:
    """Yield each cache with its failures: the reason, with the nodes and the message of one of them."""
    found: dict[str, dict[str, tuple[list[str], str]]] = defaultdict(dict)
    unverified = _not_verified(observed)
    for report in observed.reports:
        for name, cache in report.status.caches.items():
            if cache.state == "Failed" and (report.metadata.namespace, name) not in unverified:
                space = report.metadata.namespace
                key = f"GKMCache {space}/{name}" if space else f"ClusterGKMCache {name}"
                nodes, _ = found[key].setdefault(cache.reason, ([], cache.message))
                nodes.append(report.spec.node_name)
    yield from sorted(found.items())
