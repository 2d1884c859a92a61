"""The NVML library for tests, demos and development: built by the C compiler, loaded as the real one is.

    directory = nvml_library.build(cache)
    environment = nvml_library.environment(somewhere, library=directory, gpus=[nvml_library.H100])

A process that runs with `environment` sees these GPUs; `describe` changes what its next nvmlInit sees.
"""

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

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
MIG_A100: Gpu = {
    **A100,
    "mig": 1,
    "mig_devices": [
        {
            "name": "NVIDIA A100-SXM4-80GB MIG 3g.40gb",
            "uuid": "MIG-0e2b5a0c-6a51-5f34-a2cf-3f3ff2b0d001",
            "memory_mib": 40192,
        },
        None,
        {
            "name": "NVIDIA A100-SXM4-80GB MIG 1g.10gb",
            "uuid": "MIG-0e2b5a0c-6a51-5f34-a2cf-3f3ff2b0d002",
            "memory_mib": 9728,
        },
    ],
}
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


def build(cache: Path) -> Path:
    """Build the library once into a directory of `cache` named after its source; return that directory.

    Several processes may build at once: each compiles beside and renames.

    Raises:
        RuntimeError: there is no C compiler, or it refused.
    """
    source = b"".join(path.read_bytes() for path in sorted(_SOURCES.iterdir()))
    directory = cache / f"nvml-{hashlib.sha256(source).hexdigest()[:16]}"
    library = directory / _NAME
    if library.exists():
        return directory
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise RuntimeError("no C compiler here: the NVML library for tests needs gcc")
    directory.mkdir(parents=True, exist_ok=True)
    unfinished = directory / f".{os.getpid()}.so"
    command = [compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-fvisibility=hidden"]
    result = subprocess.run(
        [*command, f"-Wl,-soname,{_NAME}", "-o", str(unfinished), str(_SOURCES / "nvml.c")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if result.returncode != 0:
        raise RuntimeError(f"the NVML library for tests was not built: {result.stderr.strip()}")
    unfinished.rename(library)
    return directory


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
