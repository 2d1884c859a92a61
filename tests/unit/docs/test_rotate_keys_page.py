"""The page about key rotation as a story: its commands and its policies, in their order, on images that exist."""

import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.cli.command import gkm
from support.docs.command_lines import in_blocks
from support.registry.push import OCI_LAYER_GZIP, Target
from support.registry.server import Registry

PAGE = (Path(__file__).parents[3] / "docs" / "how-to" / "rotate-keys.md").read_text(encoding="utf-8")
NAME = "team/caches/llama"
BOTH, NEW_ALONE = re.findall(r"```yaml\nverification:\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def registry() -> Iterator[Registry]:
    with Registry.start() as running:
        yield running


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COSIGN_PASSWORD", "of-a-test")
    return tmp_path


def run(line: str, registry: Registry, digest: str) -> None:
    """Run a command of the page against the registry of this test."""
    words = shlex.split(line.replace("registry.example", registry.host).replace("sha256:…", digest))[1:]
    done = gkm(*words, *(["--plain-http"] if words[0] == "cache" else []), env=dict(os.environ))
    assert done.returncode == 0, f"{line}\n{done.stderr}"


def accepts(policy: str, image: str, registry: Registry, machine: Path) -> bool:
    """Return whether a policy of the page accepts an image."""
    file = machine / "policy.yaml"
    text = policy.replace("registry.example", registry.host).replace("/etc/gkm", str(machine))
    file.write_text("\n".join(line.removeprefix("  ") for line in text.splitlines()))
    done = gkm("cache", "verify", image, "--policy", file, "--plain-http")
    assert done.returncode in (0, 3), done.stderr
    return done.returncode == 0


def test_no_step_of_a_rotation_refuses_an_image(registry: Registry, machine: Path) -> None:
    target = Target(registry.host, NAME)
    digest, _ = (target.image([(tag.encode(), OCI_LAYER_GZIP)], tag=tag) for tag in ("1", "2"))
    images = [f"{target}:1", f"{target}:2"]
    assert gkm("keygen", "--output-key-prefix", "old").returncode == 0
    assert gkm("cache", "sign", target, "--all-tags", "--key", "old.key", "--plain-http").returncode == 0

    keygen, *others = in_blocks(PAGE)
    assert len(others) == 3
    run(keygen, registry, digest)
    assert all(accepts(BOTH, image, registry, machine) for image in images)
    assert not any(accepts(NEW_ALONE, image, registry, machine) for image in images)
    run(others[0], registry, digest)
    assert all(accepts(BOTH, image, registry, machine) for image in images)
    assert all(accepts(NEW_ALONE, image, registry, machine) for image in images)
    for line in others[1:]:
        run(line, registry, digest)


def test_while_both_keys_are_trusted_either_is_enough(registry: Registry, machine: Path) -> None:
    target = Target(registry.host, NAME)
    for prefix in ("old", "new", "other"):
        target.image([(prefix.encode(), OCI_LAYER_GZIP)], tag=prefix)
        assert gkm("keygen", "--output-key-prefix", prefix).returncode == 0
        assert gkm("cache", "sign", f"{target}:{prefix}", "--key", f"{prefix}.key", "--plain-http").returncode == 0
    found = {prefix: accepts(BOTH, f"{target}:{prefix}", registry, machine) for prefix in ("old", "new", "other")}
    assert found == {"old": True, "new": True, "other": False}
