"""NVML's fabric health masks of several GPUs as one, and how bad what it says is. Pure; bits are those of nvml.h.

NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_*: fields of two bits (0 says nothing, 1 true, 2 false), and one of four bits for the
configuration (0 says nothing, 1 none, above that what is wrong).
"""

from collections.abc import Sequence

_TRUE, _FALSE = 1, 2
_DEGRADED_BANDWIDTH, _ROUTE_RECOVERY, _ROUTE_UNHEALTHY, _ACCESS_TIMEOUT = 0, 2, 4, 6
_CONFIGURATION, _PARTITION_ASSIGNED = 8, 12
_RIGHT = 1  # a configuration in which nothing is wrong


def merged(masks: Sequence[int]) -> int:
    """Return a mask that says of each field the worst that any of the masks says."""
    whole = 0
    for shift in (_DEGRADED_BANDWIDTH, _ROUTE_RECOVERY, _ROUTE_UNHEALTHY, _ACCESS_TIMEOUT):
        whole |= _worst([_field(mask, shift) for mask in masks], (_TRUE, _FALSE)) << shift
    # Here it is "false" that is bad: no partition was assigned.
    whole |= _worst([_field(mask, _PARTITION_ASSIGNED) for mask in masks], (_FALSE, _TRUE)) << _PARTITION_ASSIGNED
    configurations = [_configuration(mask) for mask in masks]
    wrong = [found for found in configurations if found > _RIGHT]
    return whole | (wrong[0] if wrong else max(configurations, default=0)) << _CONFIGURATION


def impairs(mask: int) -> bool:
    """Return whether a mask says that the fabric cannot be used: a route is broken, or it is set up wrongly.

    Less bandwidth, and recoveries under way, are trouble that one can work with.
    """
    return _field(mask, _ROUTE_UNHEALTHY) == _TRUE or _configuration(mask) > _RIGHT


def _field(mask: int, shift: int) -> int:
    return (mask >> shift) & 0x3


def _configuration(mask: int) -> int:
    return (mask >> _CONFIGURATION) & 0xF


def _worst(values: Sequence[int], order: tuple[int, ...]) -> int:
    return next((value for value in order if value in values), 0)
