"""GPUs as the API lists them: equal GPUs share one group. Pure."""

import re
from collections.abc import Iterable

import msgspec

from gkm.api.nodes import GPUFabric, GPUGroup
from gkm.gpus.values import Gpu, GpuFabricInfo

_MAX_TYPE = 63  # it is also the value of a label


def gpu_type(model: str) -> str:
    """Return the model of a GPU in the spelling of labels: `nvidia-a100-sxm4-80gb`."""
    return re.sub(r"[^a-z0-9.]+", "-", model.lower())[:_MAX_TYPE].strip("-.")


def groups(gpus: Iterable[Gpu]) -> list[GPUGroup]:
    """Return the groups of equal GPUs in the order of their first GPU."""
    members_of: list[tuple[GPUGroup, list[int]]] = []
    for gpu in sorted(gpus, key=lambda gpu: gpu.index):
        description = _description(gpu)
        for group, members in members_of:
            if group == description:
                members.append(gpu.index)
                break
        else:
            members_of.append((description, [gpu.index]))
    return [msgspec.structs.replace(group, ids=members) for group, members in members_of]


def _description(gpu: Gpu) -> GPUGroup:
    return GPUGroup(
        ids=[],
        gpu_type=gpu_type(gpu.model),
        driver_version=gpu.driver_version[:64],
        backend=gpu.backend[:16],
        arch="" if gpu.fatal_fault else gpu.arch[:32],
        warp_size=gpu.warp_size,
        memory_mib=gpu.memory_mib,
        fabric=None if gpu.fabric is None else _fabric(gpu.fabric),
    )


def _fabric(fabric: GpuFabricInfo) -> GPUFabric:
    return GPUFabric(
        cluster_uuid=fabric.cluster_uuid[:64],
        clique_id=fabric.clique_id,
        state=fabric.state[:64],
        status=fabric.status[:64],
        health=fabric.health[:256],
    )
