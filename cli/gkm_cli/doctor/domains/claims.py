"""Claims and claim templates of ComputeDomains, and the pods that wait for them. Pure."""

from collections import defaultdict
from collections.abc import Iterator

from gkm.api.computedomains import CHANNEL_CLASS
from gkm.api.imex import DRIVER
from gkm.api.mnnvl_metadata import DOMAIN_LABEL, NODE_LABEL

from gkm_cli.doctor.domains.listed import Listed, ListedClaim, key, problem
from gkm_cli.doctor.findings import Finding, Severity, command, named, some
from gkm_cli.doctor.json_values import at, items_at

CHANNEL_CONFIG = "ComputeDomainChannelConfig"
"""The configuration of a workload's claim. Daemons have another one, and run in the driver's namespace."""
INJECTED_CLAIM = "mnnvl-claim"
"""The name of the claim that Grove and GKM add to pods."""
_TEMPLATE, _CLAIM = "ResourceClaimTemplate", "ResourceClaim"


def templates(listed: Listed) -> Iterator[Finding]:
    """Yield the templates of NVIDIA's controller whose ComputeDomain does not exist."""
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


def template_names(listed: Listed) -> Iterator[Finding]:
    """Yield the templates that have the name of a ComputeDomain's template, and are a user's or another domain's.

    NVIDIA's controller tries for ever to create its own, and reports that only in its log.
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
        hint = "use another name in one of the two, or delete the template if nothing uses it"
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


def claims(listed: Listed) -> Iterator[Finding]:
    """Yield the allocated claims of ComputeDomains whose pods or domain do not exist."""
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


def waiting_pods(listed: Listed) -> Iterator[Finding]:
    """Yield the missing templates of ComputeDomains that Pending pods refer to."""
    existing = {key(template.metadata) for template in listed.templates}
    domains = {(domain.metadata.namespace, domain.template): domain.metadata for domain in listed.domains}
    waiting: dict[tuple[str, str], list[str]] = defaultdict(list)
    for pod in listed.pods:
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
