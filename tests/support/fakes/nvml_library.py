"""The NVML library for tests, demos and development: built by the C compiler, loaded as the real one is.

    directory = nvml_library.build()
    environment = nvml_library.environment(somewhere, library=directory, gpus=[nvml_library.H100])

A process that runs with `environment` sees these GPUs; `describe` changes what its next nvmlInit sees.
"""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from support.fakes import shared_library

Gpu = Mapping[str, Any]

H100: Gpu = {
    "name": "NVIDIA H100 80GB HBM3",
    "compute_capability": [9, 0],
    "memory_mib": 81559,
    "mig": 0,
}
A100: Gpu = {
    "name": "NVIDIA A100-SXM4-80GB",
    "compute_capability": [8, 0],
    "memory_mib": 81920,
    "mig": 0,
}
MIG_A100: Gpu = {**A100, "mig": 1}
GB200: Gpu = {
    "name": "NVIDIA GB200",
    "compute_capability": [10, 0],
    "memory_mib": 189471,
    "mig": 0,
    "fabric": {
        "cluster_uuid": "7b968a6d-c8aa-45e1-9e07-e1e51be99c31",
        "clique_id": 1,
        "state": 3,
        "status": 0,
        "health_mask": 0x11AA,
        "health_summary": 1,
    },
}
_SOURCES = Path(__file__).parent / "nvml"
_NAME = "libnvidia-ml.so.1"


def build() -> Path:
    """Build the library once, as `shared_library.build` does; return its directory."""
    return shared_library.build(_SOURCES, _NAME)


def environment(
    directory: Path,
    *,
    library: Path,
    gpus: Sequence[Gpu],
    driver_version: str = "570.86.15",
    cuda_driver_version: int = 12080,
    errors: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Describe a machine in `directory`/nvml.json; return the variables a process needs to see it."""
    description = directory / "nvml.json"
    describe(
        description, gpus=gpus, driver_version=driver_version, cuda_driver_version=cuda_driver_version, errors=errors
    )
    paths = [str(library), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    return {"LD_LIBRARY_PATH": ":".join(paths), "GKM_FAKE_NVML": str(description)}


def describe(
    description: Path,
    *,
    gpus: Sequence[Gpu],
    driver_version: str = "570.86.15",
    cuda_driver_version: int = 12080,
    errors: Mapping[str, str] | None = None,
) -> None:
    """Replace the description: what the next nvmlInit sees."""
    machine = described(
        gpus=gpus, driver_version=driver_version, cuda_driver_version=cuda_driver_version, errors=errors
    )
    unfinished = description.with_suffix(".tmp")
    unfinished.write_text(json.dumps(machine, indent=1))
    unfinished.rename(description)


def described(
    *,
    gpus: Sequence[Gpu],
    driver_version: str = "570.86.15",
    cuda_driver_version: int = 12080,
    errors: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return a machine as the library reads it. Keys that a GPU leaves out get values of its own."""
    return {
        "driver_version": driver_version,
        "cuda_driver_version": cuda_driver_version,
        "errors": dict(errors or {}),
        "gpus": [
            {
                "uuid": f"GPU-00000000-0000-4000-8000-{index:012x}",
                "pci": f"00000000:{index + 1:02X}:00.0",
                **gpu,
            }
            for index, gpu in enumerate(gpus)
        ],
    }
