"""ComputeDomains: deletion, owners, and the node labels that name them. Pure."""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping

from gkm.api.computedomains import ComputeDomain
from gkm.api.grove import GROUP
from gkm.api.mnnvl_metadata import (
    DOMAIN_LABEL,
    FINALIZER,
    GROVE_OPERATOR,
    MANAGED_BY,
    NODE_LABEL,
    PART_OF,
    PODS_USING,
    USED_BY,
    MnnvlMetadata,
    Owner,
)
from gkm.kube.api import Key

from gkm_cli.doctor.domains.listed import CHECK_CONTROLLERS, Listed, key, problem
from gkm_cli.doctor.findings import Finding, Severity, command, named, some

_KIND = "ComputeDomain"


def terminating(listed: Listed) -> Iterator[Finding]:
    """Yield the domains that have been Terminating since before the cutoff.

    NVIDIA's controller tears a domain down at its deletionTimestamp, whatever finalizers it has. Only the mark on its
    claim template stops that: such a domain works until its pods have ended.
    """
    sets = _sets(listed)
    marked = {found.metadata.label(NODE_LABEL): found.metadata for found in listed.templates if _in_use(found.metadata)}
    for domain in listed.domains:
        metadata = domain.metadata
        if metadata.deletion_timestamp is not None and metadata.deletion_timestamp <= listed.cutoff:
            finalizers = some(metadata.finalizers or ()) or "none"
            detail = f"Terminating since {metadata.deletion_timestamp}; finalizers: {finalizers}"
            if (mark := marked.get(metadata.uid)) is not None:
                users = mark.annotation(USED_BY) or f"{mark.annotation(PODS_USING)} pods"
                why = f"it works until the pods that use it have ended: {users}"
                hint = "let these pods end, or delete them; GKM then makes a new one if its workload needs it"
                yield Finding(Severity.WARNING, named(_KIND, *key(metadata)), detail, why, hint)
                continue
            yield problem(_KIND, metadata, detail, *_deletion_step(domain, set_exists=_has_set(domain, sets)))


def orphans(listed: Listed) -> Iterator[Finding]:
    """Yield the domains that Grove or GKM made for a workload that does not exist."""
    sets = _sets(listed)
    labeled = {(pod.metadata.namespace, pod.metadata.label(DOMAIN_LABEL)) for pod in listed.pods}
    for domain in listed.domains:
        metadata = domain.metadata
        if metadata.terminating or not listed.settled(metadata):
            continue
        missing = ""
        if _owning_set(domain) or metadata.label(MANAGED_BY) == GROVE_OPERATOR:
            missing = "" if _has_set(domain, sets) else f"the PodCliqueSet {_set_name(domain)} does not exist"
        elif domain.written_by_gkm and not metadata.owner_references and key(metadata) not in labeled:
            missing = f"it has no owner, and no pod has the label {DOMAIN_LABEL}: {metadata.name}"
        if missing:
            delete = command("kubectl", "delete", "computedomain", metadata.name, "-n", metadata.namespace)
            # Grove removes its finalizer only while its own switch is on.
            hint = CHECK_CONTROLLERS if domain.written_by_gkm else f"{delete}, then run gkm doctor again"
            yield problem(_KIND, metadata, "its workload is gone", missing, hint)


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
            return "GKM's controllers have not removed their finalizer", CHECK_CONTROLLERS
        if set_exists:
            # Grove counts it as existing, and never creates it again.
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


def _in_use(template: MnnvlMetadata) -> bool:
    """Return whether the mark of the controllers says that pods use it."""
    return template.annotation(PODS_USING) not in (None, "0")


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
