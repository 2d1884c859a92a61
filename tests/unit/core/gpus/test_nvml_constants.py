"""Every fabric constant and every error of the NVML binding: each has a row here that says how GKM reads it.

A new version of the binding with a constant that has no row fails here, so that a new fault never passes unread.
"""

import pynvml
import pytest
from gkm.gpus import fabric, nvidia
from gkm.gpus.values import FATAL_CODES

FABRIC, ERROR = "NVML_GPU_FABRIC_", "NVML_ERROR_"
MASK, SHIFT, WIDTH = "HEALTH_MASK_", "HEALTH_MASK_SHIFT_", "HEALTH_MASK_WIDTH_"
FINE = ""

FIELDS = (
    "DEGRADED_BW",
    "ROUTE_RECOVERY",
    "ROUTE_UNHEALTHY",
    "ACCESS_TIMEOUT_RECOVERY",
    "INCORRECT_CONFIGURATION",
    "PARTITION_ASSIGNED",
    "GFM_STATE",
)
MISSPELLED = {"INCORRECT_CONFIURATION_INVALID_LOCATION": "INCORRECT_CONFIGURATION"}
PROBLEMS = {
    "DEGRADED_BW_TRUE": "degraded bandwidth",
    "DEGRADED_BW_FALSE": FINE,
    "ROUTE_RECOVERY_TRUE": "route recovery",
    "ROUTE_RECOVERY_FALSE": FINE,
    "ROUTE_UNHEALTHY_TRUE": "route unhealthy",
    "ROUTE_UNHEALTHY_FALSE": FINE,
    "ACCESS_TIMEOUT_RECOVERY_TRUE": "access timeout recovery",
    "ACCESS_TIMEOUT_RECOVERY_FALSE": FINE,
    "INCORRECT_CONFIGURATION_NONE": FINE,
    "INCORRECT_CONFIGURATION_INCORRECT_SYSGUID": "incorrect system GUID",
    "INCORRECT_CONFIGURATION_INCORRECT_CHASSIS_SN": "incorrect chassis serial number",
    "INCORRECT_CONFIGURATION_NO_PARTITION": "no partition",
    "INCORRECT_CONFIGURATION_INSUFFICIENT_NVLINKS": "insufficient NVLinks",
    "INCORRECT_CONFIGURATION_INCOMPATIBLE_GPU_FW": "incompatible GPU firmware",
    "INCORRECT_CONFIGURATION_INVALID_LOCATION": "invalid location",
    "INCORRECT_CONFIURATION_INVALID_LOCATION": "invalid location",
    "INCORRECT_CONFIGURATION_GPU_STATE_INVALID": "invalid GPU state",
    "PARTITION_ASSIGNED_TRUE": FINE,
    "PARTITION_ASSIGNED_FALSE": "partition not assigned",
    "GFM_STATE_CONNECTED": FINE,
    "GFM_STATE_DISCONNECTED": "fabric manager disconnected",
    **{f"{name}_NOT_SUPPORTED": FINE for name in FIELDS},
}
STATES = {"NOT_SUPPORTED": None, "NOT_STARTED": "NotStarted", "IN_PROGRESS": "InProgress", "COMPLETED": "Completed"}
SUMMARIES = {
    "NOT_SUPPORTED": "",
    "HEALTHY": "Healthy",
    "UNHEALTHY": "Unhealthy",
    "LIMITED_CAPACITY": "LimitedCapacity",
}
# Whether GPUs whose cliques of this type agree share a domain: they do where programs read each other's memory by
# pointers, as multi-node NVLink has done since its first structure.
CLIQUES = {
    "UNICAST_POINTER": True,
    "MULTICAST_POINTER": False,
    "UNICAST_LOGICAL_ENDPOINT": False,
    "MULTICAST_LOGICAL_ENDPOINT": False,
}
SIZES = {"UUID_LEN", "CLIQUE_MAX"}
# Errors that cost one field of a GPU; FATAL_CODES and ABSENT are the others.
OF_ONE_CALL = {
    "ALREADY_INITIALIZED",
    "CORRUPTED_INFOROM",
    "DEPRECATED",
    "DRIVER_NOT_LOADED",
    "FREQ_NOT_SUPPORTED",
    "INSUFFICIENT_RESOURCES",
    "INSUFFICIENT_SIZE",
    "INVALID_STATE",
    "IN_USE",
    "IRQ_ISSUE",
    "LIBRARY_NOT_FOUND",
    "LIB_RM_VERSION_MISMATCH",
    "MEMORY",
    "NOT_FOUND",
    "NOT_READY",
    "NO_DATA",
    "NO_PERMISSION",
    "OPERATING_SYSTEM",
    "RESET_TYPE_NOT_SUPPORTED",
    "TIMEOUT",
    "UNINITIALIZED",
    "UNKNOWN",
    "VGPU_ECC_NOT_SUPPORTED",
}


def constants(prefix: str) -> dict[str, int]:
    return {name.removeprefix(prefix): value for name, value in vars(pynvml).items() if name.startswith(prefix)}


def test_every_constant_of_a_fabric_has_a_row() -> None:
    rows = {
        *(f"{MASK}{name}" for name in PROBLEMS),
        *(f"{kind}{name}" for kind in (SHIFT, WIDTH) for name in FIELDS),
        *(f"STATE_{name}" for name in STATES),
        *(f"HEALTH_SUMMARY_{name}" for name in SUMMARIES),
        *(f"CLIQUE_TYPE_{name}" for name in CLIQUES),
        *SIZES,
    }
    assert set(constants(FABRIC)) == rows


@pytest.mark.parametrize(("name", "problem"), PROBLEMS.items())
def test_each_value_of_a_health_mask_has_its_word(name: str, problem: str) -> None:
    known = constants(FABRIC)
    field = MISSPELLED.get(name) or next(field for field in FIELDS if name.startswith(field))
    mask = known[f"{MASK}{name}"] << known[f"{SHIFT}{field}"]
    assert fabric.problems_in_mask(mask) == ([problem] if problem else [])
    assert fabric.problems_in_mask(fabric.merged([0, mask])) == fabric.problems_in_mask(mask)


@pytest.mark.parametrize(("name", "word"), STATES.items())
def test_each_state_has_its_word(name: str, word: str | None) -> None:
    found = fabric.decode([1] * 16, 1, constants(FABRIC)[f"STATE_{name}"], "Success")
    assert (found.state if found else None) == word


@pytest.mark.parametrize(("name", "word"), SUMMARIES.items())
def test_each_summary_has_its_word(name: str, word: str) -> None:
    assert fabric.health(0, constants(FABRIC)[f"HEALTH_SUMMARY_{name}"]) == word


@pytest.mark.parametrize(("name", "names_domain"), CLIQUES.items())
def test_each_type_of_clique_is_read(name: str, *, names_domain: bool) -> None:
    found = fabric.clique_of([(constants(FABRIC)[f"CLIQUE_TYPE_{name}"], 3)])
    assert found == (3 if names_domain else None)


def test_the_newest_structure_of_the_binding_is_read() -> None:
    known = {name for name in vars(pynvml) if name.startswith("c_nvmlGpuFabricInfo_")}
    assert known == {structure.__name__ for structure, _ in nvidia.FABRIC_STRUCTURES}


def test_every_error_has_a_class() -> None:
    classes = (FATAL_CODES, nvidia.ABSENT, OF_ONE_CALL)
    assert set().union(*classes) == set(constants(ERROR))
    assert sum(map(len, classes)) == len(constants(ERROR))
