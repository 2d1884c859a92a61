"""Pods that name a cache by a label and that the webhook has not seen. Pure."""

from collections.abc import Iterator

from gkm.api.features import Feature, install
from gkm.api.pod_caches import CACHE, CLUSTER_CACHE, INJECTED, WEBHOOK

from gkm_cli.doctor.findings import Finding, some
from gkm_cli.doctor.installation.observed import InstallationFacts, problem

_ENDED = frozenset({"Succeeded", "Failed"})


def unseen(observed: InstallationFacts) -> Iterator[Finding]:
    """Yield the namespaces with pods that have a label of a cache, and neither its volume nor a report."""
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
