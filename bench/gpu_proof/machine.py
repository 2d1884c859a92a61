"""The machine of a proof: its GPUs, or those of a fake NVML where there is none, and the Pythons for the programs."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from support.fakes import nvml_library

SECONDS = 1800.0
REHEARSED_TARGET = "cuda:90:32"


@dataclass(frozen=True)
class ProofMachine:
    """`is_rehearsal` where no GPU is: nothing is launched, and NVML is a fake."""

    environment: Mapping[str, str]
    triton_python: str
    torch_python: str
    is_rehearsal: bool

    def run(self, *words: object, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end, with both streams read."""
        environment = {**self.environment, **variables}
        command = list(map(str, words))
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False)

    def gkm(self, *words: object, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run the command line of GKM."""
        return self.run(sys.executable, "-m", "gkm_cli.main", *words, **variables)

    def version(self, python: str, module: str) -> str:
        """Return the version of a module that an interpreter imports; "" if it does not."""
        words = ("env", "-u", "PYTHONPATH", python, "-P", "-c", f"import {module}; print({module}.__version__)")
        return self.run(*words).stdout.strip()

    def nvidia_smi(self, *fields: str) -> str | None:
        """Return the fields of every GPU as CSV; None on a machine without nvidia-smi."""
        if self.is_rehearsal:
            return None
        done = self.run("nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits")
        if done.returncode:
            raise RuntimeError(f"nvidia-smi failed: {done.stdout[-300:]}{done.stderr[-300:]}")
        return done.stdout


def this_machine(python: str, work: Path) -> ProofMachine:
    """Return this machine; without nvidia-smi, a rehearsal with the fake NVML and the tests' own torch and Triton.

    Raises:
        RuntimeError: `python` lacks torch or Triton.
    """
    here = {**os.environ, "COSIGN_PASSWORD": "of-a-proof", "XDG_CACHE_HOME": str(work / "home")}
    if shutil.which("nvidia-smi"):
        found = subprocess.run(
            [python, "-P", "-c", "import torch, triton"], capture_output=True, text=True, check=False
        )
        if found.returncode:
            raise RuntimeError(f"{python} lacks torch or Triton: {found.stderr.strip().splitlines()[-1]}")
        return ProofMachine(here, python, python, is_rehearsal=False)
    from support.torch import installation as torch
    from support.triton import installation as triton

    library = nvml_library.build()
    fake = nvml_library.environment(work, library=library, gpus=(nvml_library.H100,))
    return ProofMachine({**here, **fake}, str(triton.python()), str(torch.python()), is_rehearsal=True)
