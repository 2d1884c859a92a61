"""The condition MNNVLReady of ComputeDomains, which GKM's controllers write as an annotation. Pure."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from gkm.api.domain_readiness import ReadyReason, parse_readiness
from gkm.api.meta import FALSE, TRUE
from gkm.api.mnnvl_metadata import MNNVL_READY, NODE_LABEL

from gkm_cli.doctor.domains.listed import CHECK_CONTROLLERS, Listed, key
from gkm_cli.doctor.findings import Finding, Severity, command, named

_MAY_PASS = (ReadyReason.DOMAIN_TERMINATING, ReadyReason.NODES_NOT_READY, ReadyReason.PODS_PENDING)
_NEXT_STEPS: Mapping[str, str] = MappingProxyType(
    {
        ReadyReason.DOMAIN_LOST: "restart the pods that started before its deletion",
        ReadyReason.DOMAIN_TERMINATING: "let its pods end: it works for them, and GKM makes a new one afterwards",
        ReadyReason.TEMPLATE_MISSING: (
            "check that NVIDIA's compute-domain-controller runs; see also domains/template-names"
        ),
        ReadyReason.CLAIM_MISSING: "check that gkm-admission runs, then delete these pods: new ones get the claim",
        ReadyReason.NODE_TAKEN: (
            "one ComputeDomain at a time has the channel of a node: let the other one end, or use other nodes"
        ),
        ReadyReason.NODES_ISOLATED: "check the NVLink fabric of these nodes: kubectl get nodefabrics",
        ReadyReason.SEVERAL_CLIQUES: (
            "place the pods in one NVLink domain: network.placement in gkm-config, or an affinity"
        ),
        ReadyReason.PODS_PENDING: "kubectl describe pod shows why they are not scheduled, or do not start",
    }
)


def findings(listed: Listed) -> Iterator[Finding]:
    """Yield the domains whose condition is not True, except those that no pod uses."""
    for domain in listed.domains:
        metadata = domain.metadata
        text = metadata.annotation(MNNVL_READY)
        if text is None or not listed.settled(metadata):
            continue
        what = named("ComputeDomain", *key(metadata))
        ready = parse_readiness(text)
        if ready is None:
            detail = f"its annotation {MNNVL_READY} cannot be read"
            yield Finding(Severity.WARNING, what, detail, "", f"{CHECK_CONTROLLERS}: they write it")
            continue
        if ready.status != TRUE and (ready.status, ready.reason) != (FALSE, ReadyReason.WAITING_FOR_PODS):
            severity = Severity.WARNING if ready.reason in _MAY_PASS else Severity.PROBLEM
            daemons = command("kubectl", "get", "pods", "-A", "-l", f"{NODE_LABEL}={metadata.uid}")
            hint = _NEXT_STEPS.get(
                ready.reason, f"look at its IMEX daemons, if the driver runs them (domains/imex): {daemons}"
            )
            yield Finding(severity, what, f"MNNVLReady is {ready.status}, {ready.reason}", ready.message, hint)
