"""ComputeDomains and what belongs to them: deletion, owners, node labels, readiness, claims and waiting pods. Pure.

GKM's controllers write the condition MNNVLReady as an annotation.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from gkm.api.computedomains import CHANNEL_CLASS, ComputeDomain
from gkm.api.domain_readiness import ReadyReason, parse_readiness
from gkm.api.features import Feature, install
from gkm.api.grove import GROUP
from gkm.api.imex import DRIVER
from gkm.api.meta import FALSE, TRUE
from gkm.api.mnnvl_metadata import (
    DOMAIN_LABEL,
    FINALIZER,
    GROVE_OPERATOR,
    MANAGED_BY,
    MNNVL_READY,
    NODE_LABEL,
    PART_OF,
    PODS_USING,
    USED_BY,
    MnnvlMetadata,
    Owner,
)
from gkm.kube.api import Key

from gkm_cli.doctor.domains.listed import CHECK_CONTROLLERS, Listed, ListedClaim, check, key, problem
from gkm_cli.doctor.findings import Finding, Severity, at, command, items_at, named, some
from gkm_cli.doctor.runner import Subject

_KIND = "ComputeDomain"
_MAY_PASS = (ReadyReason.DOMAIN_TERMINATING, ReadyReason.NODES_NOT_READY, ReadyReason.PODS_PENDING)
CHANNEL_CONFIG = "ComputeDomainChannelConfig"
"""The configuration of a workload's claim. Daemons have another one, and run in the driver's namespace."""
INJECTED_CLAIM = "mnnvl-claim"
"""The name of the claim that Grove and GKM add to pods."""
_TEMPLATE, _CLAIM = "ResourceClaimTemplate", "ResourceClaim"
DOMAINS = Subject[Listed]("there is no ComputeDomain", lambda listed: listed.domains)
LABELED_NODES = Subject[Listed]("no node has the label of a ComputeDomain", lambda listed: listed.nodes)
TEMPLATES = Subject[Listed](
    "no ResourceClaimTemplate is of a ComputeDomain",
    lambda listed: any(template.metadata.label(NODE_LABEL) for template in listed.templates),
)
CLAIMS = Subject[Listed](
    "no ResourceClaim is of a ComputeDomain", lambda listed: any(_domain(claim)[0] for claim in listed.claims)
)
PODS = Subject[Listed](
    "no Pending pod has a claim", lambda listed: any(pod.spec.resource_claims for pod in listed.pending_pods)
)


@check("domains/terminating", "no ComputeDomain is stuck in deletion", "domains sets templates", DOMAINS)
def terminating(listed: Listed) -> Iterator[Finding]:
    """Yield the ComputeDomains that have been Terminating since before the cutoff.

    NVIDIA's controller tears a domain down at its deletionTimestamp, with any finalizers. Only the mark on its
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


@check("domains/orphans", "every ComputeDomain has its workload", "domains sets labeled_pods", DOMAINS)
def orphans(listed: Listed) -> Iterator[Finding]:
    """Yield the ComputeDomains that Grove or GKM made for a workload that does not exist."""
    sets = _sets(listed)
    labeled = {(pod.metadata.namespace, pod.metadata.label(DOMAIN_LABEL)) for pod in listed.labeled_pods}
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


@check(
    "domains/node-labels", "every node label names a ComputeDomain", "nodes domains", LABELED_NODES, cluster_wide=True
)
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
            rights = f"they need the feature domains, also while its switch is off: {install(Feature.DOMAINS)}"
            return "GKM's controllers have not removed their finalizer", f"{CHECK_CONTROLLERS}; {rights}"
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
        ReadyReason.PODS_PENDING: "kubectl describe pods -n NAMESPACE shows why they do not start",
    }
)


@check("domains/readiness", "no ComputeDomain reports a fault", "domains", DOMAINS)
def findings(listed: Listed) -> Iterator[Finding]:
    """Yield the ComputeDomains whose condition MNNVLReady is not True, except those that no pod uses."""
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


@check("domains/claim-templates", "every claim template has its ComputeDomain", "domains templates", TEMPLATES)
def templates(listed: Listed) -> Iterator[Finding]:
    """Yield the claim templates of NVIDIA's controller whose ComputeDomain does not exist."""
    for template in listed.templates:
        metadata = template.metadata
        uid = metadata.label(NODE_LABEL)
        # Templates of daemons are not in the namespace of their domain.
        if listed.namespace and CHANNEL_CLASS not in template.device_classes():
            continue
        if uid and uid not in listed.domain_names and listed.settled(metadata):
            delete = command("kubectl", "delete", "resourceclaimtemplate", metadata.name, "-n", metadata.namespace)
            yield problem(
                _TEMPLATE,
                metadata,
                f"no ComputeDomain has its uid {uid}",
                "NVIDIA's compute-domain-controller, which removes such templates, did not run or failed",
                f"check that it runs; else {delete}, and remove the finalizer {NODE_LABEL}",
            )


@check("domains/template-names", "no other claim template has the name of a domain's", "domains templates", DOMAINS)
def template_names(listed: Listed) -> Iterator[Finding]:
    """Yield the claim templates with the name of a ComputeDomain's template that belong to a user or another domain.

    NVIDIA's controller tries forever to create its own, and reports that only in its log.
    """
    by_name = {key(template.metadata): template for template in listed.templates}
    for domain in listed.domains:
        metadata = domain.metadata
        template = by_name.get((metadata.namespace, domain.template))
        if template is None or metadata.terminating:
            continue
        uid = template.metadata.label(NODE_LABEL)
        if uid == metadata.uid or (uid and uid not in listed.domain_names):
            continue
        whose = "is not of NVIDIA's controller"
        hint = "use another name in one of the two, or delete the template if it is unused"
        if uid:
            whose = f"belongs to the ComputeDomain {listed.domain_names[uid]}"
            hint = "create one of the two ComputeDomains again, with another name of its claim template"
        yield problem(
            _TEMPLATE,
            template.metadata,
            f"the ComputeDomain {metadata.name} needs this name, and the template {whose}",
            "NVIDIA's controller fails with AlreadyExists for ever, and pods get no channel of this domain",
            hint,
        )


@check("domains/claims", "every allocated claim has its pod and its ComputeDomain", "pods domains claims", CLAIMS)
def claims(listed: Listed) -> Iterator[Finding]:
    """Yield the allocated ResourceClaims of ComputeDomains whose pods or domain do not exist."""
    pods = {pod.metadata.uid for pod in listed.pods}
    for claim in listed.claims:
        metadata = claim.metadata
        uid, kind = _domain(claim)
        if not uid or at(claim.status, "allocation") is None or not listed.settled(metadata):
            continue
        users = _pods(claim)
        if users and users.isdisjoint(pods):
            delete = command("kubectl", "delete", "resourceclaim", metadata.name, "-n", metadata.namespace)
            why = "kube-controller-manager has not deleted it, and it holds the channel of a node"
            hint = f"check that kube-controller-manager runs; else {delete}"
            yield problem(_CLAIM, metadata, "it is allocated, and its pod does not exist", why, hint)
        elif uid not in listed.domain_names and (kind == CHANNEL_CONFIG or not listed.namespace):
            yield problem(
                _CLAIM,
                metadata,
                f"it is allocated for the uid {uid}, and no ComputeDomain has it",
                "the ComputeDomain was deleted while its pods ran: they have no NVLink to other nodes",
                "delete these pods; the new ones get a claim of the new ComputeDomain",
            )


@check("domains/pods", "no pod waits for the claim template of a domain", "pending_pods domains templates", PODS)
def waiting_pods(listed: Listed) -> Iterator[Finding]:
    """Yield the missing claim templates of ComputeDomains that Pending pods refer to."""
    existing = {key(template.metadata) for template in listed.templates}
    domains = {(domain.metadata.namespace, domain.template): domain.metadata for domain in listed.domains}
    waiting: dict[tuple[str, str], list[str]] = defaultdict(list)
    for pod in listed.pending_pods:
        metadata = pod.metadata
        if pod.status.phase != "Pending" or metadata.terminating or not listed.settled(metadata):
            continue
        made = {found.name for found in pod.status.resource_claim_statuses or () if found.resource_claim_name}
        for claim in pod.spec.resource_claims or ():
            wanted = (metadata.namespace, claim.resource_claim_template_name or "")
            is_of_domain = wanted in domains or claim.name == INJECTED_CLAIM or metadata.label(DOMAIN_LABEL)
            if wanted[1] and wanted not in existing and claim.name not in made and is_of_domain:
                waiting[wanted].append(metadata.name)
    for wanted, names in sorted(waiting.items()):
        domain = domains.get(wanted)
        hint = "see the other findings about this namespace; delete the pods once their ComputeDomain exists"
        if domain is None:
            why = "no ComputeDomain of the namespace has a template of this name"
        elif domain.terminating:
            why = f"the ComputeDomain {domain.name} is Terminating, and its template is gone"
        else:
            why = f"NVIDIA's compute-domain-controller has not made it for the ComputeDomain {domain.name}"
            hint = "check that it runs, and read its log"
        detail = f"it does not exist, and pods wait for it: {some(names)}"
        yield Finding(Severity.PROBLEM, named(_TEMPLATE, *wanted), detail, why, hint)


def _domain(claim: ListedClaim) -> tuple[str, str]:
    """Return the uid of its ComputeDomain and the kind of its configuration; "" and "" for any other claim."""
    for config in items_at(claim.spec, "devices", "config"):
        parameters = at(config, "opaque", "parameters")
        if at(config, "opaque", "driver") == DRIVER and isinstance(uid := at(parameters, "domainID"), str):
            return uid, str(at(parameters, "kind"))
    return "", ""


def _pods(claim: ListedClaim) -> frozenset[str]:
    """Return the uids of the pods that own the claim or reserve it."""
    owners = [owner.uid for owner in claim.metadata.owner_references or () if owner.kind == "Pod"]
    users = [at(user, "uid") for user in items_at(claim.status, "reservedFor") if at(user, "resource") == "pods"]
    return frozenset(uid for uid in (*owners, *users) if isinstance(uid, str))
