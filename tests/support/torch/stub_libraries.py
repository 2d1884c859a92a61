"""Stubs of NVIDIA's libraries, so that torch's wheel for CUDA can be imported on a machine without them.

The loader wants each library by its name, and each symbol with its version. One library defines all symbols that torch
lacks and is linked under every name. Each function returns 100: cudaErrorNoDevice, by which torch sees no GPU.
"""

import re
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from support.peers.missing import Missing

_SYMBOL = re.compile(r"_{0,2}(?:cu|nccl|nvrtc|nvshmem)\w+")
_LIBRARY = re.compile(r"lib(?:cu|nccl|nvrtc|nvshmem)\w*\.so\.\d+")
_DRIVER = "libcuda.so.1"
"""Opened later, when a GPU is used."""
_STUB = "libgkm_stub_of_nvidia.so"
_NO_DEVICE = 100


def write(directory: Path) -> None:
    """Write the stubs into torch's directory of libraries.

    Raises:
        Missing: gcc or binutils is not here.
        RuntimeError: they cannot be built.
    """
    for command, package in (("gcc", "gcc"), ("nm", "binutils"), ("readelf", "binutils")):
        if shutil.which(command) is None:
            raise Missing(f"needs {command} (Debian: {package})")
    libraries = [path for path in sorted(directory.glob("*.so*")) if path.is_file()]
    defined = {name for path in libraries for name, _ in _symbols(path, "--defined-only")}
    missing: dict[str, set[str]] = defaultdict(set)
    for path in libraries:
        for name, version in _symbols(path, "--undefined-only"):
            if _SYMBOL.fullmatch(name) and name not in defined:
                missing[version or "unversioned"].add(name)
    _build(directory, missing)
    needed = {name for path in libraries for name in _needed(path)} - {path.name for path in libraries}
    for name in needed:
        if _LIBRARY.fullmatch(name) and name != _DRIVER:
            (directory / name).symlink_to(_STUB)


def _build(directory: Path, missing: dict[str, set[str]]) -> None:
    source, script = directory / "stub.c", directory / "stub.map"
    names = sorted({name for names in missing.values() for name in names})
    source.write_text("".join(f"long {name}(void) {{ return {_NO_DEVICE}; }}\n" for name in names))
    script.write_text(
        "".join(
            f"{version} {{ global: {' '.join(f'{name};' for name in sorted(names))} }};\n"
            for version, names in sorted(missing.items())
        )
    )
    options = ["-shared", "-fPIC", "-fno-builtin", "-w", f"-Wl,--version-script={script}"]
    _output(["gcc", *options, "-o", str(directory / _STUB), str(source)])
    source.unlink()
    script.unlink()


def _symbols(path: Path, which: str) -> Iterator[tuple[str, str]]:
    """Yield (name, version) of the dynamic symbols of a library."""
    for line in _output(["nm", "--dynamic", which, str(path)]).splitlines():
        name, _, version = (line.split() or [""])[-1].partition("@")
        yield name, version.lstrip("@")


def _needed(path: Path) -> list[str]:
    return re.findall(r"\(NEEDED\).*\[(.+)\]", _output(["readelf", "--dynamic", "--wide", str(path)]))


def _output(command: list[str]) -> str:
    run = subprocess.run(command, check=False, capture_output=True, text=True)
    if run.returncode:
        raise RuntimeError(f"{command[0]} failed: {run.stderr[-500:]}")
    return run.stdout
