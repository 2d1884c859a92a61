"""Decode NVML's NVLink fabric information into words. Pure; the numbers are those of nvml.h."""

import uuid
from collections.abc import Sequence

from gkm.gpus.values import GpuFabricInfo

NOT_SUPPORTED, COMPLETED = 0, 3
_STATES = {1: "NotStarted", 2: "InProgress", COMPLETED: "Completed"}
_SUMMARIES = {1: "Healthy", 2: "Unhealthy", 3: "LimitedCapacity"}

# NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_*: two bits each; 0 unknown, 1 true, 2 false.
_PROBLEMS = {0: "degraded bandwidth", 2: "route recovery", 4: "route unhealthy", 6: "access timeout recovery"}
_ROUTE_UNHEALTHY, _PARTITION_ASSIGNED = 4, 12
_TRUE, _FALSE = 1, 2
# NVML_GPU_FABRIC_HEALTH_MASK_*_INCORRECT_CONFIGURATION: four bits at 8; 0 unknown, 1 "none".
_CONFIGURATION_SHIFT, _CORRECT = 8, 1
_CONFIGURATIONS = {
    2: "incorrect system GUID",
    3: "incorrect chassis serial number",
    4: "no partition",
    5: "insufficient NVLinks",
    6: "incompatible GPU firmware",
    7: "invalid location",
    8: "invalid GPU state",
}


def decode(
    cluster_uuid: Sequence[int], clique_id: int, state: int, status: str, *, mask: int = 0, summary: int = 0
) -> GpuFabricInfo | None:
    """Return the fabric of a GPU; None where it has none.

    `status` is the text of the registration's result and counts only once the registration is complete. An all-zero
    cluster UUID means that the GPU is not attached (meta-pytorch/torchcomms #1385), so two nodes cannot share it as a
    name.
    """
    if state == NOT_SUPPORTED:
        return None
    return GpuFabricInfo(
        cluster_uuid=str(uuid.UUID(bytes=bytes(cluster_uuid))) if any(cluster_uuid) else "",
        clique_id=clique_id,
        state=_STATES.get(state, f"Unknown({state})"),
        status=status if state == COMPLETED else "",
        health=health(mask, summary),
        health_mask=mask,
        health_summary=_SUMMARIES.get(summary, ""),
    )


def health(mask: int, summary: int) -> str:
    """Return NVML's summary, followed by the problems in the mask; "" where NVML reports neither."""
    problems = problems_in_mask(mask)
    text = _SUMMARIES.get(summary, "")
    if not text and mask:
        text = "Unhealthy" if problems else "Healthy"
    return f"{text}: {', '.join(problems)}" if problems else text


def problems_in_mask(mask: int) -> list[str]:
    """Return the problems in a health mask."""
    problems = [text for shift, text in _PROBLEMS.items() if _field(mask, shift) == _TRUE]
    configuration = _configuration(mask)
    if configuration > _CORRECT:
        problems.append(_CONFIGURATIONS.get(configuration, f"incorrect configuration {configuration}"))
    return problems


def impairs(mask: int) -> bool:
    """Return whether a mask makes the fabric unusable: a route is unhealthy, or the configuration is incorrect.

    Jobs can still work with degraded bandwidth and during a route recovery.
    """
    return _field(mask, _ROUTE_UNHEALTHY) == _TRUE or _configuration(mask) > _CORRECT


def merged(masks: Sequence[int]) -> int:
    """Return a mask with the worst value of each field over all masks."""
    whole = 0
    for shift in _PROBLEMS:
        whole |= _worst([_field(mask, shift) for mask in masks], (_TRUE, _FALSE)) << shift
    # In this field "false" is the bad value: no partition is assigned.
    whole |= _worst([_field(mask, _PARTITION_ASSIGNED) for mask in masks], (_FALSE, _TRUE)) << _PARTITION_ASSIGNED
    configurations = [_configuration(mask) for mask in masks]
    wrong = [found for found in configurations if found > _CORRECT]
    return whole | (wrong[0] if wrong else max(configurations, default=0)) << _CONFIGURATION_SHIFT


def _field(mask: int, shift: int) -> int:
    return (mask >> shift) & 0x3


def _configuration(mask: int) -> int:
    return (mask >> _CONFIGURATION_SHIFT) & 0xF


def _worst(values: Sequence[int], order: tuple[int, ...]) -> int:
    return next((value for value in order if value in values), 0)
