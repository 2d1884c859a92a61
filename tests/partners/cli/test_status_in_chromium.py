"""The page of a status in the real Chromium, 1,280 pixels wide: each GPU of 10,000 is a square of its color."""

from pathlib import Path

from gkm.api.topology_settings import Topology
from gkm.topology.nodes import Node
from gkm.topology.survey import survey_nodes
from gkm.topology.usage import Usage
from gkm_cli.cells import BAR, BAR_WIDTH, SQUARE
from gkm_cli.status import drawings, page
from gkm_cli.status.parts import Caches, CacheState, Nodes, NotKnown, Problems, Status, WaitingPods
from msgspec import convert
from support.cli.plan_files import node
from support.docs.browser import shot

LEGEND = 100
"""Pixels of the square of a color in the legend, without its frame."""
GPUS = {style.meaning: style.color for style in drawings.GPUS}
CACHES = {style.meaning: style.color for style in drawings.CACHES}


def cache(name: str, state: str, nodes: tuple[int, int, int, int, int]) -> CacheState:
    return CacheState("GKMCache", "ml", name, "", 0, state, *nodes, "", "")


def status(caches: Caches | NotKnown) -> Status:
    nothing = Problems(0, 0, 0, 0, (), ())
    numbers = Nodes(1250, 1250, 1250, 1250, 1250, 1250, ())
    return Status("now", "", numbers, caches, WaitingPods(0, ()), None, (), (), nothing)


def test_each_of_10_000_gpus_is_a_square_of_its_color(tmp_path: Path) -> None:
    nodes = [
        convert(node(f"gpu-{number:04}", f"rack-{number // 8:03}", f"row-{number // 64:02}"), Node)
        for number in range(1250)
    ]
    held = {each.name: 8 for each in nodes[:50]}
    used = {each.name: 5 for each in nodes[50:150]}
    drawn = drawings.topology(survey_nodes(nodes, Topology()), Usage(used, {nodes[-1].name: "a pod"}), held)
    path = tmp_path / "status.html"
    path.write_text("\n".join(page.html(status(Caches((), ())), drawn)), encoding="utf-8")
    seen = shot(path, 1280, 6000, tmp_path)
    assert seen.console == []
    wanted = {"held by plans": 400, "used by pods": 500, "not known": 8, "free": 10_000 - 400 - 500 - 8}
    found = {meaning: seen.colors[GPUS[meaning]] for meaning in wanted}
    # The colors of plans and pods are those of ready caches and of those that do not fit, which have a legend too.
    also = {"held by plans": LEGEND, "used by pods": LEGEND, "not known": 0, "free": 0}
    # A frame may share a few pixels with a color, and a GPU has 25.
    squares = {meaning: (count - LEGEND - also[meaning]) // SQUARE**2 for meaning, count in found.items()}
    assert squares == wanted


def test_caches_are_bars_with_the_shares_of_their_nodes(tmp_path: Path) -> None:
    half = (2, 0, 0, 2, 0)
    caches = Caches((), (cache("a", "failed", half), cache("b", "pulling", (0, 4, 0, 0, 0))))
    path = tmp_path / "status.html"
    path.write_text("\n".join(page.html(status(caches), None)), encoding="utf-8")
    seen = shot(path, 1280, 1200, tmp_path)
    assert seen.console == []
    found = {meaning: seen.colors[CACHES[meaning]] - LEGEND for meaning in ("ready", "failed", "pulling")}
    bar = BAR_WIDTH * BAR
    assert found == {"ready": bar // 2, "failed": bar // 2, "pulling": bar}


def test_a_part_that_is_not_known_is_shown_without_a_complaint(tmp_path: Path) -> None:
    unknown = NotKnown("missing right: list pods", "ask an administrator")
    path = tmp_path / "status.html"
    path.write_text("\n".join(page.html(status(unknown), unknown)), encoding="utf-8")
    seen = shot(path, 1280, 1200, tmp_path)
    assert seen.console == []
    assert not {GPUS["free"], CACHES["ready"]} & set(seen.colors)
