"""Builds the images of a release with buildah: one OCI layout for each process, with all platforms.

The Dockerfiles and their pinned base are used as they are. `BASE=local` takes the base image of the tests instead,
which is made of Debian packages: for machines that reach no image registry.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from support.arm64 import programs
from support.product_images import base_image, pip_outside
from support.product_images import build as product_images
from support.product_images.build_steps import Builder
from support.product_images.image_store import ImageStore

from releasing import layout

LOCAL = "local"
PROCESSES = product_images.PROCESSES


@dataclass(frozen=True)
class Options:
    """What the images are made of; `created` in seconds since 1970."""

    version: str
    revision: str
    source: str
    created: int
    created_text: str
    platforms: tuple[str, ...] = ()
    base: str = ""

    @property
    def base_name(self) -> str:
        """Return the base image, as provenance and SBOM name it."""
        if self.base:
            return base_image.name() if self.base == LOCAL else self.base
        return pinned_base()

    @property
    def arguments(self) -> list[str]:
        """Return the options of `buildah build` that depend on neither the process nor the platform."""
        values = {"VERSION": self.version, "REVISION": self.revision, "SOURCE": self.source}
        values["CREATED"] = self.created_text
        # The store is that of the tests, and buildah takes a label of an earlier build for that of this one.
        return [
            "--no-cache",
            f"--timestamp={self.created}",
            *(f"--build-arg={name}={value}" for name, value in values.items()),
        ]

    def arguments_of(self, platform: str) -> list[str]:
        """Return the options of `buildah build` for a platform; "" is this machine's."""
        chosen = [f"--platform={platform}"] if platform else []
        if self.base == LOCAL:
            return [*chosen, f"--build-arg=BASE={base_image.name(_architecture(platform))}"]
        return [*chosen, "--pull=missing", *([f"--build-arg=BASE={self.base}"] if self.base else [])]


def pinned_base() -> str:
    """Return the base image that all Dockerfiles pin."""
    lines = (product_images.ROOT / "Dockerfile.agent").read_text(encoding="utf-8").splitlines()
    return next(line.removeprefix("ARG BASE=") for line in lines if line.startswith("ARG BASE="))


def build(options: Options, target: Path) -> Mapping[str, Path]:
    """Build all images and return process name to the OCI layout below `target`, which must not exist.

    Raises:
        RuntimeError: a build failed; the message holds the end of its log.
    """
    target.mkdir(parents=True)
    made = {process: target / f"gkm-{process}" for process in PROCESSES}
    with _store(options) as (store, volumes):
        for process, directory in made.items():
            for platform in options.platforms or ("",):
                name = f"localhost/gkm-{process}:release"
                file = f"--file={product_images.ROOT / f'Dockerfile.{process}'}"
                chosen = options.arguments_of(platform)
                store.build(name, product_images.ROOT, *chosen, *options.arguments, *volumes, file)
                store.run(f"{directory.name} {platform}", "push", name, f"oci:{directory}:{platform or 'this'}")
            layout.join(directory, options.version)
    return made


@contextmanager
def _store(options: Options) -> Iterator[tuple[ImageStore, list[str]]]:
    cache = product_images.cache_directory()
    cache.mkdir(parents=True, exist_ok=True)
    with product_images.locked(cache), tempfile.TemporaryDirectory(prefix=".build-", dir=cache) as name:
        directory = Path(name)
        with ImageStore.open(cache / "store", Builder(directory / "log")) as store:
            volumes = [f"--volume={volume}" for volume in pip_outside.volumes(directory)]
            for architecture in sorted({_architecture(platform) for platform in options.platforms or ("",)}):
                if architecture == "arm64":
                    programs.enable()
                if options.base == LOCAL:
                    product_images.make_base(store, base_image.layer(cache, architecture), directory, architecture)
            yield store, volumes


def _architecture(platform: str) -> str:
    """Return arm64 of linux/arm64/v8, "" of ""."""
    return "".join(platform.split("/")[1:2])


def git(*words: str) -> str:
    """Return what git prints."""
    program = shutil.which("git") or "git"
    root = product_images.ROOT
    safe = ["-c", f"safe.directory={root}"]  # `make release` is root's, the files may be another user's
    return subprocess.run([program, *safe, *words], cwd=root, capture_output=True, text=True, check=True).stdout.strip()  # noqa: S603 -- our own words


def builder(environment: Mapping[str, str] = os.environ) -> tuple[str, str, str]:
    """Return source, builder and invocation, as GitHub Actions states them; empty outside of it."""
    server, repository = environment.get("GITHUB_SERVER_URL", ""), environment.get("GITHUB_REPOSITORY", "")
    if not (server and repository):
        return environment.get("SOURCE", ""), "", ""
    where = f"{server}/{repository}"
    run = f"{where}/actions/runs/{environment.get('GITHUB_RUN_ID', '')}"
    attempt = environment.get("GITHUB_RUN_ATTEMPT", "1")
    return where, f"{server}/{environment.get('GITHUB_WORKFLOW_REF', repository)}", f"{run}/attempts/{attempt}"
