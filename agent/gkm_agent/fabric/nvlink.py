"""The NVLink domain and health of a node, from its GPUs. Pure; docs/reference/fabric.md has the table of cases.

A wrong domain is worse than no domain: schedulers place jobs by it, and a job hangs where the domain is wrong
(meta-pytorch/torchcomms #1385, NVIDIA/NVSentinel #883). So the node has a domain only if every GPU that has a fabric is
attached to the same one.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum

from gkm.api.cliques import names_clique
from gkm.api.fabrics import REGISTERING, UUID_PATTERN, NVLink, NVLinkHealth
from gkm.api.grammar import agree, listed
from gkm.gpus.fabric import impairs, merged, problems_in_mask
from gkm.gpus.groups import gpu_type
from gkm.gpus.values import Gpu, GpuFabricInfo, Inventory, printable

_UUID = re.compile(UUID_PATTERN)
_FABRIC_CALL = "nvmlDeviceGetGpuFabricInfo"
_SHOWN = 8


class Health(StrEnum):
    """The values of the label gkm.io/fabric-health."""

    HEALTHY = "healthy"
    DEGRADED = "degraded"
    UNHEALTHY = "unhealthy"
    NONE = "none"


class _Attachment(IntEnum):
    """The attachment of a GPU to the fabric. Where GPUs differ, the lowest value decides for the node."""

    FAILED = 0
    REGISTERING = 1
    ATTACHED = 2
    UNKNOWN = 3
    ABSENT = 4


@dataclass(frozen=True, slots=True)
class FabricVerdict:
    """The fabric labels that follow from one reading of the GPUs, and the cause if the health is not good.

    `domain` is empty without a domain, `flavor` without one common GPU model.
    """

    domain: str
    health: Health
    flavor: str = ""
    cause: str = ""


def nvlink_of(inventory: Inventory) -> NVLink | None:
    """Return how the node's GPUs are attached to the NVLink fabric, None if no GPU has a fabric.

    The worst GPU decides.
    """
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
        health=NVLinkHealth(mask, [problem[:64] for problem in problems_in_mask(mask)]),
    )


def fabric_verdict(inventory: Inventory) -> FabricVerdict:
    """Return the fabric labels for one reading of the GPUs; a failed reading (`unreadable`) is unhealthy."""
    if inventory.unreadable:
        return FabricVerdict(
            "", Health.UNHEALTHY, "", printable(f"the GPUs cannot be read: {inventory.errors[0]}", 500)
        )
    gpus = inventory.gpus
    flavor = _flavor(gpus)
    by_attachment = {state: [gpu for gpu in gpus if _attachment(gpu) is state] for state in _Attachment}
    for state, health in ((_Attachment.FAILED, Health.UNHEALTHY), (_Attachment.REGISTERING, Health.DEGRADED)):
        if found := by_attachment[state]:
            return FabricVerdict("", health, flavor, f"{_gpu_list(found)}: {_registration(found[0])}")
    # A GPU that fell off the bus has no fabric any more; the fabric of the other GPUs is intact.
    silent, attached = by_attachment[_Attachment.UNKNOWN], by_attachment[_Attachment.ATTACHED]
    if not attached:
        if silent and not by_attachment[_Attachment.ABSENT]:
            return FabricVerdict("", Health.UNHEALTHY, flavor, f"{_gpu_list(silent)}: {_fault(silent[0])}")
        return FabricVerdict("", Health.NONE, flavor, "no GPU is attached to an NVLink fabric" if gpus else "no GPU")
    domains = _domains(gpus)
    if len(domains) > 1:
        shown = ", ".join(domains[:_SHOWN])
        return FabricVerdict("", Health.UNHEALTHY, flavor, printable(f"the GPUs name different domains: {shown}", 500))
    health, cause = _health(attached)
    if silent and health is Health.HEALTHY:
        health, cause = Health.DEGRADED, f"{_gpu_list(silent)}: {_fault(silent[0])}"
    return FabricVerdict(domains[0], health, flavor, cause)


def is_attached(gpu: Gpu) -> bool:
    """Return whether a GPU is attached to a fabric and can be used."""
    return _attachment(gpu) is _Attachment.ATTACHED


def domain_of(fabric: GpuFabricInfo) -> str:
    """Return the label value of the domain, `<clusterUUID>.<cliqueID>`.

    Racks share clique numbers (torchcomms #3612).
    """
    return f"{fabric.cluster_uuid}.{fabric.clique_id}"


def _attachment(gpu: Gpu) -> _Attachment:
    fabric = gpu.fabric
    if fabric is None:
        lost = gpu.fatal_fault is not None or any(fault.call == _FABRIC_CALL for fault in gpu.faults)
        return _Attachment.UNKNOWN if lost else _Attachment.ABSENT
    if fabric.state in REGISTERING:
        return _Attachment.REGISTERING
    if fabric.state != "Completed" or fabric.status != "Success":
        return _Attachment.FAILED
    if not names_clique(fabric.cluster_uuid):
        return _Attachment.ABSENT
    if not _UUID.fullmatch(fabric.cluster_uuid):
        return _Attachment.FAILED
    return _Attachment.UNKNOWN if gpu.fatal_fault is not None else _Attachment.ATTACHED


def _domains(gpus: Sequence[Gpu]) -> list[str]:
    return sorted({domain_of(gpu.fabric) for gpu in gpus if gpu.fabric and _attachment(gpu) is _Attachment.ATTACHED})


def _health(attached: Sequence[Gpu]) -> tuple[Health, str]:
    """Return the worst health of GPUs and its cause, from NVML's summary if the driver has one, and from its mask."""
    worst, cause = Health.HEALTHY, ""
    for gpu in attached:
        assert gpu.fabric is not None  # noqa: S101 -- it is attached
        mask, summary = gpu.fabric.health_mask, gpu.fabric.health_summary
        if summary == "Unhealthy" or impairs(mask):
            return Health.UNHEALTHY, printable(f"GPU {gpu.index}: {gpu.fabric.health}", 500)
        if worst is Health.HEALTHY and (summary == "LimitedCapacity" or problems_in_mask(mask)):
            worst, cause = Health.DEGRADED, printable(f"GPU {gpu.index}: {gpu.fabric.health}", 500)
    return worst, cause


def _flavor(gpus: Sequence[Gpu]) -> str:
    """Return the model of the node's GPUs as a label value, "" for a node with several models."""
    models = {gpu_type(gpu.model) for gpu in gpus if gpu.model}
    return models.pop() if len(models) == 1 else ""


def _registration(gpu: Gpu) -> str:
    assert gpu.fabric is not None  # noqa: S101 -- only a GPU with a fabric fails or registers
    return printable(f"NVLink registration is {gpu.fabric.state} {gpu.fabric.status}".strip(), 300)


def _fault(gpu: Gpu) -> str:
    fault = gpu.fatal_fault or next((fault for fault in gpu.faults if fault.call == _FABRIC_CALL), None)
    return printable(f"{fault.call}: {fault.message}", 300) if fault else "no answer"


def _gpu_list(gpus: Sequence[Gpu]) -> str:
    return f"{agree(len(gpus), 'GPU', 'GPUs')} {listed([str(gpu.index) for gpu in gpus], _SHOWN)}"
