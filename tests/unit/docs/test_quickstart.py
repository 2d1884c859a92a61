"""README and the quickstart have one block of commands, of at most twelve, from a clone to a ready cache.

tests/e2e/product_images/test_lifecycle.py runs them.
"""

import re
import subprocess
from pathlib import Path

import links
import pytest
from support.docs.shell_blocks import blocks, commands
from support.e2e import reader

MOST_COMMANDS = 12
MOST_WORDS = 1_200
OTHER_IMAGES = ("caches", "cache", "server")
"""The prefix of caches, the form of a reference in errors, and the program of a user."""
ROOT = Path(__file__).parents[3]


def quickstart() -> str:
    return blocks("docs/quickstart.md", "Quickstart")[0]


def test_readme_has_the_commands_of_the_quickstart() -> None:
    assert blocks("README.md", "Install") == [quickstart()]


def test_readme_is_read_in_five_minutes() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) <= MOST_WORDS


def test_a_clone_needs_few_commands_to_a_ready_cache() -> None:
    typed = commands(quickstart())
    assert len(typed) <= MOST_COMMANDS
    assert typed[0].startswith("export ")
    assert typed[-1].startswith("kubectl get gkmc")


def test_the_commands_are_those_of_a_shell() -> None:
    done = subprocess.run(["bash", "-n"], input=quickstart(), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_command_that_a_machine_of_tests_changes_is_one_of_the_page() -> None:
    assert set(reader.SUBSTITUTES) <= set(quickstart().split())


@pytest.mark.parametrize("architecture", ["amd64", "arm64"])
def test_the_images_are_built_for_the_architecture_of_the_node(architecture: str) -> None:
    script = """
kubectl() { test "$*" = 'get node gpu-node-1 -o jsonpath={.status.nodeInfo.architecture}' && echo ARCHITECTURE; }
docker() { echo "$@"; }
REGISTRY=r.example NODE=gpu-node-1 TAG=1
""".replace("ARCHITECTURE", architecture)
    (loop,) = (command for command in commands(quickstart()) if "docker" in command)
    done = subprocess.run(["bash", "-euc", script + loop], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == [
        f"buildx build --platform linux/{architecture} --file Dockerfile.{part} --tag r.example/gkm-{part}:1 --push ."
        for part in ("agent", "csi", "operator")
    ]


def test_the_policy_for_caches_does_not_cover_the_unsigned_images_of_gkm() -> None:
    words = quickstart().replace("{", " ").replace("}", " ").split()
    assert "$REGISTRY/caches/*" in words
    assert not {"*", "$REGISTRY/*"} & set(words)


def test_continued_lines_and_here_documents_belong_to_their_command() -> None:
    text = "first \\\n  second\nthird <<END\nfourth\nfifth \\\nEND\nsixth\n"
    assert commands(text) == ["first \\\n  second", "third <<END\nfourth\nfifth \\\nEND", "sixth"]


def test_the_pages_push_caches_where_the_policy_of_the_quickstart_covers_them() -> None:
    """A reader who goes on from the quickstart must not meet NotAllowed."""
    pages = [ROOT / "README.md", *links.pages(ROOT / "docs" / "how-to"), *links.pages(ROOT / "docs" / "reference")]
    found = {
        (page.name, name)
        for page in pages
        for name in re.findall(r"registry\.example/team/([a-z-]+)", page.read_text(encoding="utf-8"))
        if page.name != "denials.md"  # its policy is its own
    }
    assert {(page, name) for page, name in found if name not in OTHER_IMAGES and "gkm-" not in name} == set()
    assert any(name == "caches" for _, name in found)
