"""kill -9 at every step of a capture, on the disk and towards a real registry: one image, signed and announced once."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from gkm.images.captured.content import PREDICATE_TYPE
from gkm.images.signatures.signature_formats import SIGN_PREDICATE
from gkm_agent.capturing.progress import CaptureState
from support.agent.capturing import write_key
from support.host.waiting import scaled
from support.registry.server import Registry
from support.registry.store import Repository

TESTS = Path(__file__).parents[2]
STRIDE = int(os.environ.get("GKM_CAPTURE_STRIDE", "7"))
"""Every so many steps; 1 tries all, in some minutes."""


def predicates(repository: Repository) -> list[str]:
    """Return the predicate types of the referrers of a repository."""
    found = [stored.parsed() for stored in repository.manifests.values()]
    return sorted(each["annotations"]["dev.sigstore.bundle.predicateType"] for each in found if "subject" in each)


def signatures(repository: Repository) -> int:
    """Return the number of legacy signatures in a repository."""
    tagged = [repository.manifests[digest].parsed() for tag, digest in repository.tags.items() if tag.endswith(".sig")]
    return sum(len(manifest["layers"]) for manifest in tagged)


@pytest.mark.timeout(420)
@pytest.mark.parametrize("generations", [0, 1], ids=["alone", "on a generation"])
def test_killed_anywhere_it_ends_with_one_image_signed_and_announced_once(tmp_path: Path, generations: int) -> None:
    """`generations` are those that the family has before: the image of each is signed once, too."""
    write_key(tmp_path / "cosign.key")
    with Registry.start() as registry:
        done = subprocess.run(
            [
                sys.executable,
                "-P",
                str(TESTS / "support" / "agent" / "killed_capture.py"),
                str(tmp_path),
                registry.host,
                str(STRIDE),
                *["family"] * generations,
            ],
            env=os.environ | {"PYTHONPATH": str(TESTS)},
            capture_output=True,
            text=True,
            timeout=scaled(400),
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        outcome = json.loads(done.stdout)
        print(outcome)  # noqa: T201 -- pytest shows it when the test fails
        repositories = registry.store.repositories.values()
        for repository in repositories:
            assert len([tag for tag in repository.tags if not tag.startswith("sha256-")]) == 1 + generations
            assert signatures(repository) == 1 + generations
            assert predicates(repository) == sorted([PREDICATE_TYPE, SIGN_PREDICATE] * (1 + generations))
    assert outcome["kills"] > 60 // STRIDE
    assert outcome["announced"] == len(repositories)
    assert len(outcome["images"]) == 1
    # Otherwise nothing was tried.
    assert outcome["states"].keys() >= set(CaptureState) - {CaptureState.DUPLICATE, CaptureState.REFUSED}
