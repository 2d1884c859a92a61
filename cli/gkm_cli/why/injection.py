"""The webhook's report about a pod, in an annotation that any author of a pod can write. Pure."""

import msgspec
from msgspec import Struct

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
