"""The policies on the page about images of captures match the repositories and tags that agents make."""

import json
import re
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
from gkm.images.captured.content import Hardware, image_tag, repository

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "remove-captured-images.md"
CONTENT = f"sha256:{'0123456789ab' * 5}0123"
PATH = repository("registry.example/captured", "ml-apps", "triton").removeprefix("registry.example/")
TAGS = [
    image_tag(Hardware("cuda", "sm_90", 32, "570.86.15", "triton", "3.4.0+cu128"), CONTENT),
    image_tag(Hardware("hip", "gfx942", 64, "6.12.12", "vllm", ""), CONTENT),
]
SIGNATURE = f"sha256-{'0' * 64}.sig"


def policies() -> list[Any]:
    return [
        json.loads(block) for block in re.findall(r"```json\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    ]


def test_the_tag_on_the_page_is_one_that_an_agent_makes() -> None:
    assert f"`{TAGS[0]}`" in PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("tag", [*TAGS, SIGNATURE])
def test_zot_applies_the_policy_of_captures_to_every_tag(tag: str) -> None:
    captures, others = policies()[0]["storage"]["retention"]["policies"]
    assert [fnmatchcase(PATH, pattern) for pattern in captures["repositories"]] == [True]
    assert not fnmatchcase("team/app", captures["repositories"][0])
    assert fnmatchcase("team/app", others["repositories"][0])
    (kept,) = [
        entry for entry in captures["keepTags"] if any(re.fullmatch(pattern, tag) for pattern in entry["patterns"])
    ]
    # Only an image ends by its age; a signature ends with its image, by deleteReferrers.
    assert ("pushedWithin" in kept) is (tag != SIGNATURE)
    assert captures["deleteReferrers"]


@pytest.mark.parametrize("tag", [*TAGS, SIGNATURE])
def test_one_rule_of_ecr_matches_every_tag(tag: str) -> None:
    rules = policies()[1]["rules"]
    found = [rule for rule in rules if all(fnmatchcase(tag, each) for each in rule["selection"]["tagPatternList"])]
    assert len(found) == 1
    assert len({rule["rulePriority"] for rule in rules}) == len(rules)


def test_artifact_registry_matches_the_packages_of_captures() -> None:
    ((policy,),) = policies()[2:]
    assert [PATH.startswith(prefix) for prefix in policy["condition"]["packageNamePrefixes"]] == [True]
