"""Templates that would use all time or memory are refused, and the children that render them stay within 128 MiB."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from gkm.templates.groups import SAMPLE_GROUP, variables
from gkm.templates.pools import merged
from gkm.templates.rendering import process
from gkm.templates.rendering.process import RenderingProcess
from gkm.templates.values import Json, RenderingFailed, RenderingUnavailable, TemplateInvalid
from support.templates.fixtures import renderer
from support.templates.hostile import BOMBS, ESCAPES
from support.templates.objects import config_map, named

__all__ = ["renderer"]

MEMORY_BYTES = 128 << 20
DEADLINE_SECONDS = "120"
"""Of requests in the measurement: only the kernel's limits end them, however busy the machine is."""
REFUSED = "need more than|the result has more than|did not end within|'ConfigMap my-cm': value: "
"""A limit ended the expressions, or the value of the bomb is refused."""
SAMPLE = variables(SAMPLE_GROUP)


def test_every_bomb_is_refused_within_the_memory_of_the_design() -> None:
    script = Path(__file__).resolve().parents[2] / "support" / "templates" / "hostile_process.py"
    done = subprocess.run(
        [sys.executable, str(script), DEADLINE_SECONDS], stdout=subprocess.PIPE, check=True, text=True
    )
    endings = list(map(json.loads, done.stdout.splitlines()))
    assert [ending["name"] for ending in endings] == list(BOMBS)
    assert [ending for ending in endings if not ending["outcome"].startswith("RenderingFailed: ")] == []
    assert [ending for ending in endings if ending["peak_bytes"] > MEMORY_BYTES] == []
    limits = ("1 s of CPU time", "MiB of memory", "bytes", "nested too deeply")
    assert all(any(limit in ending["outcome"] for ending in endings) for limit in limits)


@pytest.mark.parametrize("text", [*BOMBS.values(), *ESCAPES], ids=[*BOMBS, *ESCAPES])
def test_compiling_is_bounded_too(renderer: RenderingProcess, text: str) -> None:
    try:
        problems = renderer.compile({"value": text}, [text])
    except (RenderingFailed, RenderingUnavailable) as error:
        problems = [str(error)]
    assert problems
    assert all(problem.isprintable() and len(problem) < 600 for problem in problems)


@pytest.mark.parametrize("text", BOMBS.values(), ids=list(BOMBS))
def test_a_bomb_leaves_nothing_behind(renderer: RenderingProcess, text: str) -> None:
    with pytest.raises((RenderingFailed, RenderingUnavailable), match=REFUSED):
        renderer.render([config_map(value=text)], SAMPLE)
    assert renderer.render([config_map(value="{{ WF_ID }}")], SAMPLE).objects[0]["value"] == "sample-workflow"


def _nested(levels: int) -> Json:
    value: Json = {}
    for _ in range(levels):
        value = {"x": [value]}
    return config_map(value=value)


@pytest.mark.parametrize(
    ("levels", "why"),
    [
        (100, "it is nested more than 64 levels deep"),
        (1_000, "cannot be written as JSON: RecursionError"),
        (20_000, "cannot be written as JSON: RecursionError"),
    ],
)
def test_a_nested_template_is_refused_and_not_recursed_into(renderer: RenderingProcess, levels: int, why: str) -> None:
    with pytest.raises(TemplateInvalid, match="it is nested more than 64 levels deep"):
        merged(named(_nested(levels)))
    with pytest.raises(RenderingFailed, match=why):
        renderer.render([_nested(levels)], SAMPLE)


def test_many_values_are_refused(renderer: RenderingProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    # A busy machine must not end the requests before a limit does.
    monkeypatch.setattr(process, "REQUEST_SECONDS", float(DEADLINE_SECONDS))
    with pytest.raises(RenderingFailed, match=r"have [0-9]+ bytes as JSON; the limit is 4194304"):
        renderer.render([config_map(value=[[]] * 1_500_000)], SAMPLE)
    with pytest.raises(RenderingFailed, match="need more than 80 MiB of memory"):
        renderer.render([config_map(value=[[]] * 1_000_000)], SAMPLE)
    with pytest.raises(RenderingFailed, match="need more than 1 s of CPU time"):
        renderer.render([config_map(value=[f"{{{{ {number} }}}}" for number in range(40_000)])], SAMPLE)
    with pytest.raises(RenderingFailed, match="the result has more than 524288 bytes"):
        renderer.render([config_map(value=["{{ 'x' * 100 }}"] * 6_000)], SAMPLE)


def test_the_parts_of_a_group_add_up(renderer: RenderingProcess) -> None:
    with pytest.raises(RenderingFailed, match="the result has more than 524288 bytes"):
        renderer.render([config_map(value="{{ 'x' * 100000 }}")] * 64, SAMPLE)
