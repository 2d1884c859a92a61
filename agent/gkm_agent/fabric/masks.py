"""The NVML fabric health masks of several GPUs: their union and its severity. Pure; the bits are those of nvml.h.

NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_*: a mask has fields of two bits (0 not supported, 1 true, 2 false), and a field of
four bits for an incorrect configuration (0 not supported, 1 correct, above 1 the error).
"""

from collections.abc import Sequence

_TRUE, _FALSE = 1, 2
_DEGRADED_BANDWIDTH, _ROUTE_RECOVERY, _ROUTE_UNHEALTHY, _ACCESS_TIMEOUT = 0, 2, 4, 6
_CONFIGURATION, _PARTITION_ASSIGNED = 8, 12
_CORRECT = 1


def merged(masks: Sequence[int]) -> int:
    """Return a mask with the worst value of each field over all masks."""
    whole = 0
    for shift in (_DEGRADED_BANDWIDTH, _ROUTE_RECOVERY, _ROUTE_UNHEALTHY, _ACCESS_TIMEOUT):
        whole |= _worst([_field(mask, shift) for mask in masks], (_TRUE, _FALSE)) << shift
    # In this field "false" is the bad value: no partition is assigned.
    whole |= _worst([_field(mask, _PARTITION_ASSIGNED) for mask in masks], (_FALSE, _TRUE)) << _PARTITION_ASSIGNED
    configurations = [_configuration(mask) for mask in masks]
    wrong = [found for found in configurations if found > _CORRECT]
    return whole | (wrong[0] if wrong else max(configurations, default=0)) << _CONFIGURATION


def impairs(mask: int) -> bool:
    """Return whether a mask makes the fabric unusable: a route is unhealthy, or the configuration is incorrect.

    Jobs can still work with degraded bandwidth and during a route recovery.
    """
    return _field(mask, _ROUTE_UNHEALTHY) == _TRUE or _configuration(mask) > _CORRECT


def _field(mask: int, shift: int) -> int:
    return (mask >> shift) & 0x3


def _configuration(mask: int) -> int:
    return (mask >> _CONFIGURATION) & 0xF


def _worst(values: Sequence[int], order: tuple[int, ...]) -> int:
    return next((value for value in order if value in values), 0)
