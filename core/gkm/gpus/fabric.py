"""Decode NVML's NVLink fabric information into words. Pure; the numbers come from nvml.h."""

import uuid
from collections.abc import Iterable, Sequence

from gkm.api.cliques import names_clique
from gkm.gpus.values import GpuFabricInfo

NOT_SUPPORTED, COMPLETED = 0, 3
UNICAST_POINTER = 0
"""NVML_GPU_FABRIC_CLIQUE_TYPE_*: the clique in which GPUs read each other's memory by pointers."""
_STATES = {1: "NotStarted", 2: "InProgress", COMPLETED: "Completed"}
_SUMMARIES = {1: "Healthy", 2: "Unhealthy", 3: "LimitedCapacity"}

_TRUE, _FALSE = 1, 2
_ROUTE_UNHEALTHY, _PARTITION_ASSIGNED = 4, 12
# NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_*: two bits each; 0 unknown, 1 true or connected, 2 false or disconnected. For each
# field, the value that is a problem, and its words.
_PROBLEMS = {
    0: (_TRUE, "degraded bandwidth"),
    2: (_TRUE, "route recovery"),
    _ROUTE_UNHEALTHY: (_TRUE, "route unhealthy"),
    6: (_TRUE, "access timeout recovery"),
    _PARTITION_ASSIGNED: (_FALSE, "partition not assigned"),
    14: (_FALSE, "fabric manager disconnected"),
}
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
    cluster_uuid: Sequence[int], clique_id: int | None, state: int, status: str, *, mask: int = 0, summary: int = 0
) -> GpuFabricInfo | None:
    """Return the NVLink fabric information of a GPU; None for a GPU without a fabric.

    `status` is the text of the registration's result and is used only once the registration is complete. An all-zero
    cluster UUID means that the GPU is not attached (meta-pytorch/torchcomms #1385), so two nodes cannot share it as a
    name. Without a clique the GPU shares its memory with no other, so its cluster UUID names no domain either.
    """
    if state == NOT_SUPPORTED:
        return None
    name = str(uuid.UUID(bytes=bytes(cluster_uuid)))
    return GpuFabricInfo(
        cluster_uuid=name if clique_id is not None and names_clique(name) else "",
        clique_id=clique_id or 0,
        state=_STATES.get(state, f"Unknown({state})"),
        status=status if state == COMPLETED else "",
        health=health(mask, summary),
        health_mask=mask,
        health_summary=_SUMMARIES.get(summary, ""),
    )


def clique_of(cliques: Iterable[tuple[int, int]]) -> int | None:
    """Return the clique id to report from (type, id) pairs: the first clique for unicast pointers.

    nvml.h says so of nvmlGpuFabricInfo_v4_t. Cliques of logical endpoints can be wider: programs reach a GPU there only
    with special calls.
    """
    return next((number for kind, number in cliques if kind == UNICAST_POINTER), None)


def health(mask: int, summary: int) -> str:
    """Return NVML's summary, followed by the problems in the mask; "" if NVML reports no health."""
    problems = problems_in_mask(mask)
    text = _SUMMARIES.get(summary, "")
    if not text and mask:
        text = "Unhealthy" if problems else "Healthy"
    return f"{text}: {', '.join(problems)}" if problems else text


def problems_in_mask(mask: int) -> list[str]:
    """Return the problems in NVML's health mask of the NVLink fabric as texts."""
    problems = [text for shift, (bad, text) in _PROBLEMS.items() if _field(mask, shift) == bad]
    configuration = _configuration(mask)
    if configuration > _CORRECT:
        problems.append(_CONFIGURATIONS.get(configuration, f"incorrect configuration {configuration}"))
    return problems


def impairs(mask: int) -> bool:
    """Return whether NVML's health mask means an unusable fabric: bad route, no partition, or wrong configuration.

    Jobs can still work with degraded bandwidth, during a route recovery, and while the fabric manager is away.
    """
    unusable = any(_field(mask, shift) == _PROBLEMS[shift][0] for shift in (_ROUTE_UNHEALTHY, _PARTITION_ASSIGNED))
    return unusable or _configuration(mask) > _CORRECT


def merged(masks: Sequence[int]) -> int:
    """Return an NVML health mask with the worst value of each field over all masks."""
    whole = 0
    for shift, (bad, _) in _PROBLEMS.items():
        good = _FALSE if bad == _TRUE else _TRUE
        whole |= _worst([_field(mask, shift) for mask in masks], (bad, good)) << shift
    configurations = [_configuration(mask) for mask in masks]
    wrong = [found for found in configurations if found > _CORRECT]
    return whole | (wrong[0] if wrong else max(configurations, default=0)) << _CONFIGURATION_SHIFT


def _field(mask: int, shift: int) -> int:
    return (mask >> shift) & 0x3


def _configuration(mask: int) -> int:
    return (mask >> _CONFIGURATION_SHIFT) & 0xF


def _worst(values: Sequence[int], order: tuple[int, ...]) -> int:
    return next((value for value in order if value in values), 0)
