"""Versions of the programs that wrote a cache, from the user: `--dependency-version name=version`.

MCV's summary has the keys `cuda_version` (a text) and `ptx_version` (a number) for each target, so `cuda` and `ptx` go
into every target of backend cuda. Any other name (`triton`, `torch`, `vllm`, `rocm`, `driver`…) is not part of MCV's
format and becomes GKM's label `gkm.io/dependency-version.<name>`, which other readers ignore. All are claims of the
image's author; the node's preflight compares `cuda` and `ptx` with its driver (docs/reference/preflight.md).
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gkm.api.errors import GKMError, Reason

LABEL_PREFIX = "gkm.io/dependency-version."
MAX_VERSIONS = 32
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,39}", re.ASCII)
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+~:-]{0,63}", re.ASCII)
_PTX = re.compile(r"[1-9][0-9]{0,3}", re.ASCII)
_CUDA, _TRITON = "cuda", "triton"


@dataclass(frozen=True, slots=True)
class DependencyVersions:
    """Versions of programs that wrote a cache, as the user stated them, by the name of the program."""

    cuda: str = ""
    ptx: int = 0
    others: dict[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, pairs: Iterable[str]) -> "DependencyVersions":
        """Parse `name=version` pairs of the option --dependency-version.

        Raises:
            GKMError: METADATA_INVALID.
        """
        stated: dict[str, str] = {}
        for pair in pairs:
            name, separator, version = pair.partition("=")
            name = {"cuda_version": _CUDA, "ptx_version": "ptx"}.get(name, name)
            if not separator or not _NAME.fullmatch(name) or not _VERSION.fullmatch(version):
                raise _invalid(f"{pair[:80]!r} is not name=version", "write triton=3.5.1 or cuda=12.9")
            if name in stated:
                raise _invalid(f"the version of {name} is stated twice", "state it once")
            stated[name] = version
        if len(stated) > MAX_VERSIONS:
            raise _invalid(f"{len(stated)} versions are stated, at most {MAX_VERSIONS} are written", "state fewer")
        ptx = stated.pop("ptx", "")
        if ptx and not _PTX.fullmatch(ptx):
            raise _invalid(f"{ptx!r} is no version of PTX", "write it as MCV does, without a dot: ptx=84")
        return cls(stated.pop(_CUDA, ""), int(ptx or 0), stated)

    def target(self, backend: str, arch: str, warp_size: int, cuda: str = "") -> dict[str, Any]:
        """Return one GPU target for the summary label; the user's CUDA version overrides the cache's own in `cuda`."""
        stated: dict[str, Any] = {"backend": backend, "arch": arch, "warp_size": warp_size}
        if backend == _CUDA and self.ptx:
            stated["ptx_version"] = self.ptx
        if backend == _CUDA and (self.cuda or cuda):
            stated["cuda_version"] = self.cuda or cuda
        return stated

    def with_triton(self, version: str) -> "DependencyVersions":
        """Return the versions with Triton's version added, as the cache's kernels state it ("" if they do not).

        Raises:
            GKMError: METADATA_INVALID when the user states another one.
        """
        stated = self.others.get(_TRITON, version)
        if version and stated != version:
            hint = "state that version, or no version"
            raise _invalid(f"the kernels are of Triton {version}, but triton={stated} is stated", hint)
        return replace(self, others={**self.others, _TRITON: version}) if version else self

    @property
    def labels(self) -> dict[str, str]:
        """Return the labels of the image for these versions."""
        return {f"{LABEL_PREFIX}{name}": version for name, version in sorted(self.others.items())}


def stated_versions(labels: Mapping[str, str]) -> dict[str, str]:
    """Return {name: version} from the version labels of an image, which its author wrote."""
    pairs = {label.removeprefix(LABEL_PREFIX): text for label, text in labels.items() if label.startswith(LABEL_PREFIX)}
    return {name: text for name, text in sorted(pairs.items()) if _NAME.fullmatch(name) and _VERSION.fullmatch(text)}


def _invalid(what: str, hint: str) -> GKMError:
    return GKMError(Reason.METADATA_INVALID, what, hint)
