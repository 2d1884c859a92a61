"""ComputeDomains: deletion, owners, readiness, and the node labels that name them. Pure."""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from types import MappingProxyType

import msgspec
from gkm.api.computedomains import ComputeDomain
from gkm.api.grove import GROUP
from gkm.api.meta import FALSE, TRUE
from gkm.api.mnnvl_metadata import (
    DOMAIN_LABEL,
    FINALIZER,
    GROVE_OPERATOR,
    MANAGED_BY,
    MNNVL_READY,
    NODE_LABEL,
    PART_OF,
    Owner,
)
from gkm.kube.api import Key
from gkm.kube.errors import UNDECODABLE
from msgspec import Struct

from gkm_cli.doctor.domains.listed import Listed, key, problem
from gkm_cli.doctor.findings import Finding, Severity, command, named, some

_KIND = "ComputeDomain"
_CHECK_CONTROLLERS = "check that gkm-controllers run and that one leads"
_UNUSED = "WaitingForPods"
_MAY_PASS = ("NodesNotReady", "PodsPending")
_NEXT_STEPS = MappingProxyType(
    {
        "DomainLost": "restart the pods that started before its deletion",
        "TemplateMissing": "check that NVIDIA's compute-domain-controller runs; see also domains/template-names",
        "NodeTaken": "one ComputeDomain at a time has the channel of a node: let the other one end, or use other nodes",
        "NodesIsolated": "check the NVLink fabric of these nodes: kubectl get nodefabrics",
        "SeveralCliques": "place the pods in one NVLink domain: network.placement in gkm-config, or an affinity",
        "PodsPending": "kubectl describe pod shows why they are not scheduled",
    }
)


class _Ready(Struct):
    status: str
    reason: str = ""
    message: str = ""


def terminating(listed: Listed) -> Iterator[Finding]:
    """Yield the domains that have been Terminating since before the cutoff.

    NVIDIA's controller tears a domain down at its deletionTimestamp, whatever finalizers it has: it has no NVLink.
    """
    sets = _sets(listed)
    for domain in listed.domains:
        metadata = domain.metadata
        if metadata.deletion_timestamp is not None and metadata.deletion_timestamp <= listed.cutoff:
            finalizers = some(metadata.finalizers or ()) or "none"
            detail = f"Terminating since {metadata.deletion_timestamp}; finalizers: {finalizers}"
            yield problem(_KIND, metadata, detail, *_deletion_step(domain, set_exists=_has_set(domain, sets)))


def orphans(listed: Listed) -> Iterator[Finding]:
    """Yield the domains that Grove or GKM made for a workload that does not exist."""
    sets = _sets(listed)
    labelled = {(pod.metadata.namespace, pod.metadata.label(DOMAIN_LABEL)) for pod in listed.pods}
    for domain in listed.domains:
        metadata = domain.metadata
        if metadata.terminating or not listed.settled(metadata):
            continue
        missing = ""
        if _owning_set(domain) or metadata.label(MANAGED_BY) == GROVE_OPERATOR:
            missing = "" if _has_set(domain, sets) else f"the PodCliqueSet {_set_name(domain)} does not exist"
        elif domain.written_by_gkm and not metadata.owner_references and key(metadata) not in labelled:
            missing = f"it has no owner, and no pod has the label {DOMAIN_LABEL}: {metadata.name}"
        if missing:
            delete = command("kubectl", "delete", "computedomain", metadata.name, "-n", metadata.namespace)
            # Grove removes its finalizer only while its own switch is on (grove-07, W2).
            hint = _CHECK_CONTROLLERS if domain.written_by_gkm else f"{delete}, then run gkm doctor again"
            yield problem(_KIND, metadata, "its workload is gone", missing, hint)


def readiness(listed: Listed) -> Iterator[Finding]:
    """Yield the domains whose condition MNNVLReady is not True, except those that no pod uses."""
    for domain in listed.domains:
        metadata = domain.metadata
        text = metadata.annotation(MNNVL_READY)
        if text is None or metadata.terminating or not listed.settled(metadata):
            continue
        what = named(_KIND, *key(metadata))
        try:
            ready = msgspec.json.decode(text, type=_Ready)
        except UNDECODABLE:
            detail = f"its annotation {MNNVL_READY} cannot be read"
            yield Finding(Severity.WARNING, what, detail, "", f"{_CHECK_CONTROLLERS}: they write it")
            continue
        if ready.status != TRUE and (ready.status, ready.reason) != (FALSE, _UNUSED):
            severity = Severity.WARNING if ready.reason in _MAY_PASS else Severity.PROBLEM
            daemons = command("kubectl", "get", "pods", "-A", "-l", f"{NODE_LABEL}={metadata.uid}")
            hint = _NEXT_STEPS.get(ready.reason, f"look at its IMEX daemons: {daemons}")
            yield Finding(severity, what, f"MNNVLReady is {ready.status}, {ready.reason}", ready.message, hint)


def node_labels(listed: Listed) -> Iterator[Finding]:
    """Yield one finding for each uid in node labels that no ComputeDomain has."""
    dead: dict[str, list[str]] = defaultdict(list)
    for node in listed.nodes:
        uid = node.metadata.label(NODE_LABEL)
        if uid and uid not in listed.domain_names:
            dead[uid].append(node.metadata.name)
    for uid, names in sorted(dead.items()):
        yield Finding(
            Severity.PROBLEM,
            f"Node {some(names)}",
            f"the label {NODE_LABEL} names the uid {uid}, and no ComputeDomain has it",
            "NVIDIA's kubelet plugin gives such a node to no other domain: its pods stay in ContainerCreating",
            command("kubectl", "label", "node", "-l", f"{NODE_LABEL}={uid}", f"{NODE_LABEL}-"),
        )


def _deletion_step(domain: ComputeDomain, *, set_exists: bool) -> tuple[str, str]:
    """Return who must remove a finalizer, and the next step."""
    finalizers = domain.metadata.finalizers or ()
    if FINALIZER in finalizers:
        if domain.written_by_gkm:
            return "GKM's controllers have not removed their finalizer", _CHECK_CONTROLLERS
        if set_exists:
            # Grove counts it as existing, and never creates it again (grove-07, W1).
            why = f"Grove's finalizer holds it: the pods of the PodCliqueSet {_set_name(domain)} have lost NVLink"
            return why, f"{_without_finalizer(domain)}, then restart these pods"
        return f"Grove's finalizer stayed, and the PodCliqueSet {_set_name(domain)} is gone", _without_finalizer(domain)
    if NODE_LABEL in finalizers:  # the finalizer of NVIDIA's controller has the name of its label
        return "NVIDIA's compute-domain-controller has not finished", "check that it runs, and read its log"
    return "these finalizers are not of Grove, GKM or NVIDIA", "let their owners remove them"


def _without_finalizer(domain: ComputeDomain) -> str:
    namespace, name = key(domain.metadata)
    rest = [finalizer for finalizer in domain.metadata.finalizers or () if finalizer != FINALIZER]
    patch = json.dumps({"metadata": {"finalizers": rest}})
    return command("kubectl", "patch", "computedomain", name, "-n", namespace, "--type=merge", "-p", patch)


def _sets(listed: Listed) -> dict[Key, str]:
    """Return the uid of each PodCliqueSet."""
    return {key(found.metadata): found.metadata.uid for found in listed.sets}


def _owning_set(domain: ComputeDomain) -> Owner | None:
    owners = domain.metadata.owner_references or ()
    return next((one for one in owners if one.kind == "PodCliqueSet" and one.api_version.startswith(f"{GROUP}/")), None)


def _set_name(domain: ComputeDomain) -> str:
    owner = _owning_set(domain)
    return owner.name if owner else domain.metadata.label(PART_OF)


def _has_set(domain: ComputeDomain, sets: Mapping[Key, str]) -> bool:
    """Return whether its set exists: with the uid in the owner reference, or without a reference, by its name."""
    owner, found = _owning_set(domain), sets.get((domain.metadata.namespace, _set_name(domain)))
    return found == owner.uid if owner else found is not None
