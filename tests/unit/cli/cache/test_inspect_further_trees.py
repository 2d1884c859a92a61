"""`gkm cache inspect` shows the further trees of MCV's label, and an image with a wrong label."""

import json

import pytest
from gkm.images.cache_mounts import LABEL
from support.cli.command import gkm
from support.operator.deployment import LABELS
from support.registry.push import Target
from support.registry.server import Registry

TREE = {"subPath": "flashinfer", "absPath": "/root/.cache/flashinfer", "env": "", "requiresWritable": True}


def pushed(registry: Registry, label: str) -> str:
    target = Target(registry.host, "team/trees")
    config = json.dumps({"config": {"Labels": LABELS | {LABEL: label}}}).encode()
    return f"{target}@{target.image([], config=config)}"


@pytest.mark.parametrize(("label", "trees"), [(json.dumps([TREE]), [TREE]), ("[1]", None), ("", [])])
def test_further_trees_are_shown(registry_server: Registry, label: str, trees: object) -> None:
    ref = pushed(registry_server, label)
    shown = gkm("cache", "inspect", ref, "--plain-http", "-o", "json")
    assert (shown.returncode, json.loads(shown.stdout)["furtherTrees"]) == (0, trees)
    printed = gkm("cache", "inspect", ref, "--plain-http").stdout
    assert ("/root/.cache/flashinfer" in printed) is bool(trees)
    assert ("cannot be read" in printed) is (trees is None)
