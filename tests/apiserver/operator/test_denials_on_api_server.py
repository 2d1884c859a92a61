"""docs/reference/denials.md is a transcript: kubectl prints its outputs under the configuration on that page."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from support.cluster.cluster import Cluster
from support.operator.deployment import ROOT, Shelf, cache
from support.operator.judged import NAMESPACE, Judged, judged
from support.registry import faults as registry_faults
from support.registry.push import Target
from support.sigstore.key_signatures import Flaw, push_bundle
from support.sigstore.keyless import Person, Service
from support.sigstore.services import Sigstore

PAGE = (ROOT / "docs" / "reference" / "denials.md").read_text(encoding="utf-8")
REGISTRY, AWAY, FILES = "registry.example", "away.example", "/etc/gkm/keys"
SHOWN: dict[str, str] = dict(
    re.findall(r"```console\n\$ kubectl apply -f kernels\.yaml  # image: (\S+)\n(.*?)```", PAGE, re.DOTALL)
)
"""What the page says that kubectl prints, by image."""

(CONFIGURATION,) = re.findall(r"```yaml\n(verification:.*?)```", PAGE, re.DOTALL)
SIGSTORE = Sigstore()


Prepare = Callable[[Shelf], None]


def _signed(flaw: Flaw | None, name: str) -> Prepare:
    """Return what pushes team/<name>:1, signed so, or (None) not."""

    def push(images: Shelf) -> None:
        images.push(name, flaw=flaw)

    return push


def _elsewhere(repository: str, signer: Person | None = None) -> Prepare:
    """Return a function that pushes <repository>:1, signed by a person without a key, or unsigned."""

    def push(images: Shelf) -> None:
        target = Target(images.registry.host, repository)
        digest = target.image([], tag="1")
        if signer:
            push_bundle(target, digest, Service(SIGSTORE).bundle(digest, signer))

    return push


def _silent(images: Shelf) -> None:
    images.registry.misbehave(registry_faults.stalled("team/silent/manifests/1"))


def _nothing(_: Shelf) -> None:
    """Leave the registry as it is."""


PREPARED: dict[str, Prepare] = {
    "registry.example/team/signed:1": _signed(Flaw.NONE, "signed"),
    "registry.example/team/unsigned:1": _signed(None, "unsigned"),
    "registry.example/team/other-key:1": _signed(Flaw.WRONG_KEY, "other-key"),
    "registry.example/team/tampered:1": _signed(Flaw.FLIPPED_PAYLOAD, "tampered"),
    "registry.example/team/copied:1": _signed(Flaw.OTHER_SUBJECT, "copied"),
    "registry.example/people/kernels:1": _elsewhere("people/kernels", Person("alice@example.test")),
    "registry.example/lab/kernels:1": _elsewhere("lab/kernels"),
    "elsewhere.example/team/kernels:1": _nothing,
    "registry.example/Team/Kernels:1": _nothing,
    "registry.example/team/none:1": _nothing,
    "away.example/team/kernels:1": _nothing,
    "registry.example/team/silent:1": _silent,
    "registry.example/team/on-trial:1": _signed(None, "on-trial"),
}
ON_TRIAL = "registry.example/team/on-trial:1"
"""The one that is judged where verification only warns."""


def test_every_transcript_is_executed_and_every_case_is_documented() -> None:
    assert sorted(SHOWN) == sorted(PREPARED)


def _config(images: Shelf, directory: Path, mode: str) -> str:
    """Return the page's configuration, for the registry and the files that are here."""
    value = yaml.load(_here(CONFIGURATION, images).replace(FILES, str(directory)), yaml.CSafeLoader)
    value["verification"]["mode"] = mode
    value["registries"]["hosts"] = {host: {"plainHTTP": True} for host in (images.registry.host, images.closed_port)}
    (directory / "team.pub").write_bytes(images.key.public_pem)
    SIGSTORE.write_trusted_root(directory).rename(directory / "trusted_root.json")
    return yaml.safe_dump(value)


def _here(text: str, images: Shelf) -> str:
    return text.replace(REGISTRY, images.registry.host).replace(AWAY, images.closed_port)


def _as_shown(printed: str, images: Shelf) -> str:
    """Return kubectl's output without the parts that differ from run to run."""
    shown = printed.replace(images.registry.host, REGISTRY).replace(images.closed_port, AWAY)
    shown = re.sub(r"sha256:[0-9a-f]{64}", "sha256:…", shown)
    return re.sub(r"\bkey \S{12}…", "key jRMcNQXEEkwP…", shown)


@pytest.fixture(scope="module")
def enforcing(gkm_cluster: Cluster, images: Shelf, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judged]:
    directory = tmp_path_factory.mktemp("denials")
    with judged(gkm_cluster, images, directory, "shown", _config(images, directory, "enforce")) as running:
        yield running


@pytest.fixture(scope="module")
def warning(gkm_cluster: Cluster, images: Shelf, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judged]:
    directory = tmp_path_factory.mktemp("warnings")
    with judged(gkm_cluster, images, directory, "trial", _config(images, directory, "warn")) as running:
        yield running


def _check(running: Judged, name: str, image: str) -> None:
    images = running.images
    PREPARED[image](images)
    try:
        _, printed = running.apply(cache(name, _here(image, images), NAMESPACE))
    finally:
        images.registry.behave()
        running.cluster.objects.delete_named("gkmcache", name, NAMESPACE)
    assert _as_shown(printed, images) == SHOWN[image]


@pytest.mark.parametrize("image", [image for image in PREPARED if image != ON_TRIAL])
def test_kubectl_prints_the_transcripts_of_the_page(enforcing: Judged, image: str) -> None:
    _check(enforcing, "shown-kernels", image)


def test_kubectl_prints_the_transcripts_of_the_page_in_mode_warn(warning: Judged) -> None:
    _check(warning, "trial-kernels", ON_TRIAL)


def test_no_warning_on_the_page_is_cut() -> None:
    warnings = [line for printed in SHOWN.values() for line in printed.splitlines() if line.startswith("Warning: ")]
    assert len(warnings) == 4
    assert not any(line.endswith("…") for line in warnings)
