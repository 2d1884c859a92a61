"""What modules/*/go.mod say: partners, their commands, the flags they are built with and the key of their cache."""

import hashlib
import platform
import re
from dataclasses import dataclass
from pathlib import Path

PEERS = Path(__file__).resolve().parent / "modules"
SERVER_NAMES = {
    "sigs.k8s.io/kustomize/kustomize/v5": "kustomize",
    "go.etcd.io/etcd/server/v3": "etcd",
    "k8s.io/kube-state-metrics/v2": "kube-state-metrics",
    "github.com/sigstore/cosign/v2/cmd/cosign": "cosign2",
    "github.com/distribution/distribution/v3/cmd/registry": "distribution",
    "github.com/sigstore/policy-controller/cmd/tester": "policy-tester",
    "gkm.io/tests/peers/policycontroller": "tuf-initialize",
    "github.com/containerd/containerd/v2/cmd/containerd": "containerd2",
    "github.com/containerd/containerd/v2/cmd/ctr": "ctr2",
    "github.com/opencontainers/runc": "runc-mapping",
    "github.com/kyverno/kyverno/cmd/cli/kubectl-kyverno": "kyverno",
}
"""Commands whose package path does not end in the name people know, or in one that something else has."""
LATER_RELEASES = {"computedomain050": "-0.5.0"}
"""Partners that are a later release of another one: what follows the names of their commands."""
CGO = frozenset({"runc"})
"""Partners with code in C, which gcc of the machine compiles."""
STAMP = "k8s.io/component-base/version"


@dataclass(frozen=True)
class Command:
    """One command of a partner: the name it is called by and its Go package."""

    name: str
    package: str


@dataclass(frozen=True)
class Peer:
    """One pinned Go module of ours and what is built from it."""

    directory: Path
    commands: tuple[Command, ...]
    flags: tuple[str, ...]
    key: str

    @property
    def name(self) -> str:
        return self.directory.name

    @property
    def needs_cgo(self) -> bool:
        return self.name in CGO

    @classmethod
    def read(cls, directory: Path) -> "Peer":
        """Read go.mod without Go, so that partners which are built already need no Go."""
        text = (directory / "go.mod").read_text(encoding="utf-8")
        block = re.search(r"^tool \((.*?)^\)", text, re.MULTILINE | re.DOTALL)
        packages = (block.group(1).split() if block else []) + re.findall(r"^tool ([^\s(]+)$", text, re.MULTILINE)
        release = LATER_RELEASES.get(directory.name, "")
        names = (SERVER_NAMES.get(path, path.rsplit("/", 1)[-1]) + release for path in packages)
        commands = tuple(Command(name, path) for name, path in zip(names, packages, strict=True))
        flags = ("-mod=readonly", "-trimpath", "-buildvcs=false", "-ldflags", _linker_flags(text))
        digest = hashlib.sha256(platform.machine().encode())
        # A command of ours lies beside its go.mod; of all others nothing but the pin is here.
        sources = [path.read_bytes() for path in sorted(directory.glob("*.go"))]
        for part in (text.encode(), (directory / "go.sum").read_bytes(), "\0".join(flags).encode(), *sources):
            digest.update(b"%d:" % len(part) + part)
        return cls(directory, commands, flags, digest.hexdigest()[:16])

    def version(self, command: Command) -> str:
        """Return the pinned module of a command with its version, for people."""
        required = re.findall(r"^\s*(?:require )?(\S+) (v\S+)", (self.directory / "go.mod").read_text(), re.MULTILINE)
        owners = [(module, version) for module, version in required if command.package.startswith(module)]
        module, version = max(owners, default=(command.package, "?"), key=lambda owner: len(owner[0]))
        return f"{module} {version}"


def _linker_flags(text: str) -> str:
    """Strip symbols; without a stamp the kubelet and kubectl call themselves v0.0.0 and refuse to talk."""
    flags = "-s -w"
    if found := re.search(r"^\s*k8s\.io/kubernetes (v(\d+)\.(\d+)\.\S+)", text, re.MULTILINE):
        version, major, minor = found.groups()
        flags += f" -X {STAMP}.gitVersion={version} -X {STAMP}.gitMajor={major} -X {STAMP}.gitMinor={minor}"
    return flags
