"""Which CUDA versions a driver can run. Pure. docs/design/preflight.md has the table.

A cache holds cubins. A cubin runs on every driver of its CUDA's major version and on every later one (CUDA
Compatibility, "Minor Version Compatibility"). Pods may bring a newer user-mode driver ("Forward Compatibility": the
nvidia/cuda images do), so even a driver of an older major version may run them. This module refuses only a driver that
no supported way covers: one older than the oldest branch that NVIDIA's image of the first release of that CUDA admits
(its NVIDIA_REQUIRE_CUDA: "cuda>=12.0 brand=tesla,driver>=450,driver<451 ...", "cuda>=13.0
brand=unknown,driver>=535,driver<536 ..."). A CUDA version without a line here is accepted.
"""

import re

from gkm.api.errors import Reason
from gkm.api.targets import CUDA
from gkm.gpus.targets import NormalizedTarget
from gkm.gpus.values import Gpu, printable

OLDEST_DRIVER = {12: 450, 13: 535}
"""{major version of CUDA: branch of the oldest driver that runs it}."""

CUDA_OF_PTX = {7: 11, 8: 12, 9: 13}
"""{major version of PTX: major version of the CUDA that introduced it}: PTX ISA, "Release Notes", table of releases."""

_MAX_PTX = 199
"""Larger numbers are no version of PTX: MCV writes the major version of the builder's driver into the same field (590),
which demands nothing, because drivers do not compile the files that Triton and vLLM store."""
_CUDA_VERSION = re.compile(r"([0-9]{1,3})(?:\.[0-9]{1,3}){0,2}", re.ASCII)
_DRIVER_VERSION = re.compile(r"([0-9]{3,4})\.[0-9.]+", re.ASCII)


def incompatibility(target: NormalizedTarget, gpu: Gpu) -> tuple[Reason, str] | None:
    """Return why a driver cannot run the binaries of a target; None where it can, or where that is unknown."""
    driver = _DRIVER_VERSION.fullmatch(gpu.driver_version)
    if gpu.backend != CUDA or driver is None:
        return None
    if stated := _CUDA_VERSION.fullmatch(target.cuda_version):
        cuda, reason, built = int(stated[1]), Reason.DRIVER_TOO_OLD, f"CUDA {target.cuda_version}"
    elif 0 < target.ptx_version <= _MAX_PTX:
        major, minor = divmod(target.ptx_version, 10)
        cuda = CUDA_OF_PTX.get(major, 0)
        reason, built = Reason.PTX_TOO_NEW, f"PTX {major}.{minor} of CUDA {cuda}"
    else:
        return None
    oldest = OLDEST_DRIVER.get(cuda, 0)
    if int(driver[1]) >= oldest:
        return None
    driver_text = printable(f"{gpu.driver_version} (CUDA {gpu.cuda_driver_version or 'unknown'})", 80)
    return reason, f"built with {built}, which runs on drivers from {oldest} on, this GPU has driver {driver_text}"
