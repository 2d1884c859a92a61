"""The webhook's report about a pod, and a pod without a volume of GKM. Pure.

Such a pod names no cache by a label, or the webhook did not see or could not use it. Any author of a pod can write the
annotation with the report.
"""

import msgspec
from gkm.api.features import Feature, install
from gkm.api.installation import DRIVER
from gkm.api.pod_caches import CACHE, CLUSTER_CACHE, INJECTED, WEBHOOK
from msgspec import Struct

from gkm_cli.why.facts import PodFacts
from gkm_cli.why.links import LinkResult, State
from gkm_cli.why.outcomes import kubectl

MAX_REPORT = 32 << 10
"""Characters. The reports of the webhook are shorter; the annotations of a pod may have 256 KiB."""


class ReportUnreadable(ValueError):
    """The annotation is no report of the webhook; the message completes a sentence that begins with the report."""


class SkippedPart(Struct, frozen=True):
    """A part of the pod's request that the webhook left out, and why."""

    what: str = ""
    why: str = ""


class InjectedVolume(Struct, frozen=True):
    """A volume that the webhook added, and the cache that it holds."""

    volume: str = ""
    delivery: str = ""
    member: str = ""


class InjectionReport(Struct, frozen=True):
    """The parts of the webhook's report that `gkm why` reads."""

    skipped: tuple[SkippedPart, ...] = ()
    caches: tuple[InjectedVolume, ...] = ()


def read_report(text: str) -> InjectionReport:
    """Return the webhook's report in the text of the annotation.

    Raises:
        ReportUnreadable: the text is too long, or no report.
    """
    if len(text) > MAX_REPORT:
        raise ReportUnreadable("is longer than any report that the webhook writes")
    try:
        return msgspec.json.decode(text, type=InjectionReport)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ReportUnreadable("cannot be read") from error


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
