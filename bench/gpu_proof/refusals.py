"""Images that no program may see: one for another GPU, and one whose layer was changed in the registry."""

import json
from collections.abc import Iterator
from dataclasses import dataclass

from gpu_proof.workloads import PROGRAMS, ProofSite
from support.registry.faults import tampered

STARTED = "the-program-ran"
NO, FAILED = 3, 1
OTHERS = {"cuda:80:32", "cuda:90:32"}


@dataclass(frozen=True)
class ImageRefusal:
    """What `gkm exec` did with such an image."""

    image: str
    exit_code: int
    expected: int
    because: str
    """Words of the message that name the reason."""
    message: str
    program_ran: bool

    @property
    def fault(self) -> str:
        """Return why the run refutes the proof, "" if it does not."""
        if self.program_ran:
            return f"{self.image}: the program ran"
        is_refused = self.exit_code == self.expected and self.because in self.message
        return "" if is_refused else f"{self.image}: exit code {self.exit_code}: {self.message}"


def refusals(site: ProofSite, arch: str) -> Iterator[ImageRefusal]:
    """Yield what happens to both images; `arch` is that of the first GPU here."""
    other = next(iter(sorted(OTHERS - {f"cuda:{arch}:32"})))
    yield _refusal(site, "for another architecture", _image(site, other, 90), NO, "this GPU is sm_")
    image = _image(site, f"cuda:{arch}:32", 91)
    repository, _, digest = image.partition("/")[2].partition("@")
    manifest = json.loads(site.registry.store.repositories[repository].manifests[digest].data)
    site.registry.misbehave(tampered(f"/blobs/{manifest['layers'][0]['digest']}"))
    yield _refusal(site, "with a damaged layer", image, FAILED, "it was changed or is damaged")
    site.registry.behave()


def _image(site: ProofSite, target: str, number: int) -> str:
    """Return the image of kernels that were compiled for a GPU, which need not be here."""
    cache = site.work / f"built-{number}"
    cache.mkdir()
    words = ("env", "-u", "PYTHONPATH", site.machine.triton_python, "-P", PROGRAMS / "run_kernels.py", target)
    done = site.machine.run(*words, TRITON_CACHE_DIR=str(cache), TRITON_DEFAULT_FP_FUSION="1")
    if done.returncode:
        raise RuntimeError(f"compiling for {target} failed: {done.stderr.strip()[-300:]}")
    return site.image("Triton", cache, number)


def _refusal(site: ProofSite, name: str, image: str, expected: int, because: str) -> ImageRefusal:
    done = site.execute(image, "--", "echo", STARTED)
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    return ImageRefusal(name, done.returncode, expected, because, (lines or [""])[-1][:300], STARTED in done.stdout)
