"""Why a GPU cannot use a cache, all the way: registry, labels, driver, node object, exit code."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from gkm.hoststate.pointers import CacheState
from support.agent.machine import REF, REPOSITORY, Machine
from support.fakes.nvml_library import H100, Gpu
from support.registry.push import Target
from support.sigstore.key_signatures import sign_bundle

FITS = {"backend": "cuda", "arch": "90", "warp_size": 32}
LOST: Gpu = {**H100, "errors": {"nvmlDeviceGetHandleByIndex": "NVML_ERROR_GPU_IS_LOST"}}
OLD_DRIVER = {"driver_version": "470.57.02", "cuda_driver_version": 11040}


def pushed(machine: Machine, *targets: Mapping[str, Any]) -> str:
    """Put a signed image that says it was built for these in the place of the machine's; its layers are never read."""
    place = Target(machine.registry.host, REPOSITORY)
    labels = {"cache.triton.image/summary": json.dumps({"targets": targets})}
    digest = place.image([], tag="1", config=json.dumps({"config": {"Labels": labels}}).encode())
    sign_bundle(place, digest, machine.key)
    return digest


@pytest.mark.parametrize(
    ("target", "gpu", "driver", "reason"),
    [
        ({"backend": "hip", "arch": "gfx942", "warp_size": 64}, H100, {}, "BackendMismatch"),
        (FITS | {"arch": "80"}, H100, {}, "ArchitectureMismatch"),
        (FITS | {"warp_size": 64}, H100, {}, "WarpSizeMismatch"),
        (FITS | {"cuda_version": "13.0"}, H100, OLD_DRIVER, "DriverTooOld"),
        (FITS | {"ptx_version": 90}, H100, OLD_DRIVER, "PTXTooNew"),
        (FITS, LOST, {}, "GPULost"),
        (FITS | {"arch": "sm_sm_"}, H100, {}, "MetadataInvalid"),
    ],
)
def test_what_an_image_says_and_a_driver_answers_becomes_a_reason_of_the_node_object(
    machine: Machine, target: Mapping[str, Any], gpu: Gpu, driver: Mapping[str, Any], reason: str
) -> None:
    digest = pushed(machine, target)
    machine.gpus(gpu, **driver)

    result = machine.once()

    assert result.returncode == 3, result.stderr
    status = machine.node_object()["status"]["caches"][REF.name]
    assert (status["state"], status["reason"], status["digest"]) == ("Incompatible", reason, digest)
    assert [(miss["ids"], miss["reason"]) for miss in status["incompatibleGPUs"]] == [([0], reason)]
    assert not list(machine.layout.store.iterdir())


@pytest.mark.parametrize(
    ("targets", "says"),
    [
        ([], "names 0 targets"),
        ([FITS | {"warp_size": 0}], "states an invalid GPU"),
        ([FITS | {"backend": ""}], "states an invalid GPU"),
    ],
)
def test_an_image_that_names_no_gpu_that_can_be_fails_before_any_gpu_is_asked(
    machine: Machine, targets: list[Mapping[str, Any]], says: str
) -> None:
    pushed(machine, *targets)

    assert machine.once().returncode == 3

    pointer = machine.pointer()
    assert pointer is not None
    assert (pointer.state, pointer.reason) == (CacheState.FAILED, "MetadataInvalid")
    assert says in pointer.message
    cache = machine.node_object()["status"]["caches"][REF.name]
    assert (cache["compatibleGPUs"], cache["incompatibleGPUs"]) == ([], [])


def test_an_image_that_is_no_cache_image_fails_before_any_gpu_is_asked(machine: Machine) -> None:
    place = Target(machine.registry.host, REPOSITORY)
    sign_bundle(place, place.image([], tag="1"), machine.key)

    assert machine.once().returncode == 3

    pointer = machine.pointer()
    assert pointer is not None
    assert (pointer.state, pointer.reason) == (CacheState.FAILED, "MetadataMissing")
    assert "it is no cache image" in pointer.message
