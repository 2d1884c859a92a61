"""A pod without a volume of GKM: it names no cache by a label, or the webhook did not see or could not use it. Pure."""

from gkm.api.features import Feature, install
from gkm.api.installation import DRIVER
from gkm.api.pod_caches import CACHE, CLUSTER_CACHE, INJECTED, WEBHOOK

from gkm_cli.why.facts import PodFacts
from gkm_cli.why.injection import ReportUnreadable, read_report
from gkm_cli.why.links import LinkResult, State
from gkm_cli.why.outcomes import kubectl

_BY_LABEL = "docs/how-to/caches-by-label.md"


def no_volume(pod: PodFacts) -> LinkResult:
    """Return the result for a pod without a volume of GKM: why it has none."""
    labels = [key for key in (CACHE, CLUSTER_CACHE) if pod.metadata.labels.get(key)]
    report = pod.metadata.annotations.get(INJECTED)
    if report is not None:
        detail = f"the webhook gave the pod no volume: {left_out(report)}"
        return _broken(detail, f"correct that, and create the pod again ({_BY_LABEL})")
    if labels:
        detail = f"the pod has the label {labels[0]} and no annotation {INJECTED}: the webhook was not called"
        found = kubectl("get", "mutatingwebhookconfiguration", WEBHOOK)
        return _broken(
            detail,
            f"{found} shows whether it is installed (else {install(Feature.POD_CACHES)}); if it is, it was away when "
            "the pod was created, or the label came later: create the pod again",
        )
    described = kubectl("get", "pod", pod.metadata.name, "-n", pod.metadata.namespace, "-o", "yaml")
    return _broken(
        f"the pod has no volume of {DRIVER}",
        f"add a csi volume of {DRIVER}, as deploy/samples/pod.yaml has it; {described} shows the volumes",
    )


def left_out(report: str) -> str:
    """Return the reasons in the webhook's report about a pod; the caller must escape them: any author can write one."""
    try:
        found = read_report(report).skipped
    except ReportUnreadable as error:
        return f"its report {INJECTED} {error}"
    return "; ".join(f"{each.what}: {each.why}" for each in found[:4]) or "its report has no reason"


def _broken(detail: str, hint: str) -> LinkResult:
    return LinkResult("", "volume", State.BROKEN, detail, hint)
