"""The programs of a proof on four caches: empty, warm, and mounted by GKM at another path, writable and read-only."""

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from gpu_proof.machine import REHEARSED_TARGET, ProofMachine
from gpu_proof.outcome import MOUNTED, READ_ONLY, ProgramRun
from support.registry.server import Registry

PROGRAMS = Path(__file__).resolve().parent / "programs"
EMPTY, WARM = "empty", "warm, where it was built"


@dataclass(frozen=True)
class ProofWorkload:
    """A program, the variable that names its cache, and the Python that runs it."""

    name: str
    variable: str
    python: str
    program: Path
    argument: str
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def words(self) -> tuple[str, ...]:
        """Return the command line; without our packages and this directory on its path."""
        return ("env", "-u", "PYTHONPATH", self.python, "-P", str(self.program), self.argument)


def workloads(machine: ProofMachine) -> Iterator[ProofWorkload]:
    """Yield Triton's kernels and the models."""
    what = REHEARSED_TARGET if machine.is_rehearsal else "launch"
    kernels, model = PROGRAMS / "run_kernels.py", PROGRAMS / "train_model.py"
    settings = {"TRITON_DEFAULT_FP_FUSION": "1"}
    yield ProofWorkload("Triton, 7 kernels", "TRITON_CACHE_DIR", machine.triton_python, kernels, what, settings)
    # In this process, so that kernels are counted.
    settings = {"TORCHINDUCTOR_COMPILE_THREADS": "1"}
    for size in ("small", "large"):
        name = f"transformer, {size}, forward and backward"
        yield ProofWorkload(name, "TORCHINDUCTOR_CACHE_DIR", machine.torch_python, model, size, settings)


@dataclass(frozen=True)
class ProofSite:
    """A registry, keys, and the directory of the proof."""

    machine: ProofMachine
    registry: Registry
    work: Path

    def runs(self, workload: ProofWorkload, number: int) -> Iterator[ProgramRun]:
        """Run a workload in each way, in order; nothing more after a failure on the empty cache.

        An image that cannot be made is a failure of the mounted cache: the other workloads still count.
        """
        cache = self.work / f"built-{number}"
        cache.mkdir()
        for way in (EMPTY, WARM):
            done = self.machine.run(*workload.words, **workload.environment, **{workload.variable: str(cache)})
            run = _outcome(workload, way, done)
            if run is None:
                return
            yield run
            if run.failure:
                return
        try:
            image = self.image(workload.name, cache, number)
        except RuntimeError as error:
            yield ProgramRun(workload.name, MOUNTED, failure=str(error))
            return
        # Nothing may find the cache where it was built.
        cache.rename(self.work / f"away-{number}")
        for way, options in ((MOUNTED, ["--rw"]), (READ_ONLY, [])):
            done = self.execute(image, *options, "--", *workload.words, **workload.environment)
            if (run := _outcome(workload, way, done)) is not None:
                yield run

    def image(self, name: str, cache: Path, number: int) -> str:
        """Build, push and sign the image of a cache; return its reference by digest.

        Raises:
            RuntimeError: a command failed.
        """
        repository = f"{self.registry.host}/proof/cache-{number}"
        stated = ["--gpu", REHEARSED_TARGET] if self.machine.is_rehearsal and "transformer" in name else []
        words = ("cache", "build", cache, "--image", f"{repository}:1", "--push", "--plain-http", "-o", "json", *stated)
        reference = f"{repository}@{json.loads(_checked(self.machine.gkm(*words)))['digest']}"
        _checked(self.machine.gkm("cache", "sign", reference, "--key", self.work / "cosign.key", "--plain-http"))
        return reference

    def execute(self, image: str, *words: object, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a program with the verified cache."""
        key, store = self.work / "cosign.pub", self.work / "store"
        own = ("exec", "--cache", image, "--key", key, "--plain-http", "--store", store)
        return self.machine.gkm(*own, *words, **variables)


def _outcome(workload: ProofWorkload, way: str, done: subprocess.CompletedProcess[str]) -> ProgramRun | None:
    """Return what a program did; None if it refuses this machine."""
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip() and "TORCH" not in line]
        named = [line for line in lines if "Error" in line]
        failure = (named or lines or ["it printed nothing"])[-1].strip()[:300]
        return ProgramRun(workload.name, way, failure=f"exit code {done.returncode}: {failure}")
    printed = json.loads(done.stdout)
    return None if "skipped" in printed else ProgramRun.of(workload.name, way, printed)


def _checked(done: subprocess.CompletedProcess[str]) -> str:
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, done.args[2:6]))} failed: {done.stderr.strip()[-300:]}")
    return done.stdout
