"""From the GPUs of a node to its one NVLink domain and health. Pure; the table is in docs/design/fabric.md.

A wrong domain is worse than none: jobs are placed by it, and they hang where it is a lie (meta-pytorch/torchcomms
#1385, NVIDIA/NVSentinel #883). So every GPU that has a fabric must be attached to the same one.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum

from gkm.api.fabrics import UUID_PATTERN, NVLink, NVLinkHealth
from gkm.api.grammar import agree
from gkm.gpus.fabric import problems_in_mask
from gkm.gpus.groups import gpu_type
from gkm.gpus.values import Gpu, GpuFabricInfo, Inventory, printable

from gkm_agent.fabric.masks import impairs, merged

_UUID = re.compile(UUID_PATTERN)
_FABRIC_CALL = "nvmlDeviceGetGpuFabricInfo"
_SHOWN = 8


class Health(StrEnum):
    """What gkm.io/fabric-health says."""

    HEALTHY = "healthy"
    DEGRADED = "degraded"
    UNHEALTHY = "unhealthy"
    NONE = "none"


class _Attachment(IntEnum):
    """How a GPU stands to the fabric; where GPUs differ, the lowest decides."""

    FAILED = 0
    REGISTERING = 1
    ATTACHED = 2
    UNKNOWN = 3
    ABSENT = 4


@dataclass(frozen=True, slots=True)
class FabricVerdict:
    """What the labels would say of one reading: `domain` and `flavour` are empty where there is none."""

    domain: str
    health: Health
    flavour: str = ""
    why: str = ""


def nvlink_of(inventory: Inventory) -> NVLink | None:
    """Return how the node is attached, None where no GPU has a fabric: of the GPU that decides, where they differ."""
    found = sorted((_attachment(gpu), gpu.index, gpu.fabric) for gpu in inventory.gpus if gpu.fabric is not None)
    if not found:
        return None
    masks = [fabric.health_mask for _, _, fabric in found]
    mask = merged(masks)
    attachment, _, first = found[0]
    attached = attachment is _Attachment.ATTACHED
    one = attached and len(_domains(inventory.gpus)) == 1
    return NVLink(
        cluster_uuid=first.cluster_uuid if one else "",
        clique_id=first.clique_id if one else 0,
        state=printable(first.state, 64),
        status="the GPUs name different domains" if attached and not one else printable(first.status, 255),
        health=NVLinkHealth(mask, [trouble[:64] for trouble in problems_in_mask(mask)]),
    )


def fabric_verdict(inventory: Inventory) -> FabricVerdict:
    """Return what is to be said of a reading that succeeded, or of one that did not (`unreadable`)."""
    if inventory.unreadable:
        return FabricVerdict(
            "", Health.UNHEALTHY, "", printable(f"the GPUs cannot be read: {inventory.errors[0]}", 500)
        )
    gpus = inventory.gpus
    flavour = _flavour(gpus)
    standing = {state: [gpu for gpu in gpus if _attachment(gpu) is state] for state in _Attachment}
    for state, health in ((_Attachment.FAILED, Health.UNHEALTHY), (_Attachment.REGISTERING, Health.DEGRADED)):
        if found := standing[state]:
            return FabricVerdict("", health, flavour, f"{_named(found)}: {_relevant_fabric(found[0])}")
    # A GPU that has fallen off the bus takes its fabric with it, and leaves that of the others whole.
    silent, attached = standing[_Attachment.UNKNOWN], standing[_Attachment.ATTACHED]
    if not attached:
        if silent and not standing[_Attachment.ABSENT]:
            return FabricVerdict("", Health.UNHEALTHY, flavour, f"{_named(silent)}: {_fault(silent[0])}")
        return FabricVerdict("", Health.NONE, flavour, "no GPU is attached to an NVLink fabric" if gpus else "no GPU")
    domains = _domains(gpus)
    if len(domains) > 1:
        shown = ", ".join(domains[:_SHOWN])
        return FabricVerdict("", Health.UNHEALTHY, flavour, printable(f"the GPUs name different domains: {shown}", 500))
    health, why = _health(attached)
    if silent and health is Health.HEALTHY:
        health, why = Health.DEGRADED, f"{_named(silent)}: {_fault(silent[0])}"
    return FabricVerdict(domains[0], health, flavour, why)


def domain_of(fabric: GpuFabricInfo) -> str:
    """Return `<clusterUUID>.<cliqueID>`: the clique alone is a number that racks share (torchcomms #3612)."""
    return f"{fabric.cluster_uuid}.{fabric.clique_id}"


def _attachment(gpu: Gpu) -> _Attachment:
    fabric = gpu.fabric
    if fabric is None:
        lost = gpu.fatal_fault is not None or any(fault.call == _FABRIC_CALL for fault in gpu.faults)
        return _Attachment.UNKNOWN if lost else _Attachment.ABSENT
    if fabric.state in {"NotStarted", "InProgress"}:
        return _Attachment.REGISTERING
    if fabric.state != "Completed" or fabric.status != "Success":
        return _Attachment.FAILED
    if not fabric.cluster_uuid.strip("0-"):
        return _Attachment.ABSENT
    if not _UUID.fullmatch(fabric.cluster_uuid):
        return _Attachment.FAILED
    return _Attachment.UNKNOWN if gpu.fatal_fault is not None else _Attachment.ATTACHED


def _domains(gpus: Sequence[Gpu]) -> list[str]:
    return sorted({domain_of(gpu.fabric) for gpu in gpus if gpu.fabric and _attachment(gpu) is _Attachment.ATTACHED})


def _health(attached: Sequence[Gpu]) -> tuple[Health, str]:
    """Return the worst health of GPUs: NVML's summary where the driver has one, and never better than its mask."""
    worst, why = Health.HEALTHY, ""
    for gpu in attached:
        assert gpu.fabric is not None  # noqa: S101 -- it is attached
        mask, summary = gpu.fabric.health_mask, gpu.fabric.health_summary
        if summary == "Unhealthy" or impairs(mask):
            return Health.UNHEALTHY, printable(f"GPU {gpu.index}: {gpu.fabric.health}", 500)
        if worst is Health.HEALTHY and (summary == "LimitedCapacity" or problems_in_mask(mask)):
            worst, why = Health.DEGRADED, printable(f"GPU {gpu.index}: {gpu.fabric.health}", 500)
    return worst, why


def _flavour(gpus: Sequence[Gpu]) -> str:
    """Return the one model of the node's GPUs as a label's value; of several none is the truth."""
    models = {gpu_type(gpu.model) for gpu in gpus if gpu.model}
    return models.pop() if len(models) == 1 else ""


def _relevant_fabric(gpu: Gpu) -> str:
    assert gpu.fabric is not None  # noqa: S101 -- only such GPUs fail or wait
    return printable(f"NVLink registration is {gpu.fabric.state} {gpu.fabric.status}".strip(), 300)


def _fault(gpu: Gpu) -> str:
    fault = gpu.fatal_fault or next((fault for fault in gpu.faults if fault.call == _FABRIC_CALL), None)
    return printable(f"{fault.call}: {fault.message}", 300) if fault else "no answer"


def _named(gpus: Sequence[Gpu]) -> str:
    shown = ", ".join(str(gpu.index) for gpu in gpus[:_SHOWN])
    more = f" and {len(gpus) - _SHOWN} more" if len(gpus) > _SHOWN else ""
    return f"{agree(len(gpus), 'GPU', 'GPUs')} {shown}{more}"
