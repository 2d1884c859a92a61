"""The picture of a plan in the real Chromium: each GPU is a square of its color, in small and in large clusters."""

from pathlib import Path

import pytest
from gkm.packing.inventory import Inventory
from gkm.packing.values import Group, Location, Node, Share
from gkm.topology.survey import LocatedNode, TopologySurvey
from gkm_cli.cells import BAR, BAR_WIDTH, SQUARE, picture
from gkm_cli.page import Page
from gkm_cli.plan.pictures import MAX_GPUS, STYLES, drawing
from plan_picture import COMMAND, drawn
from support.cli.plan_files import PlanWorkspace, run_plan
from support.docs.browser import shot
from support.operator.plans import gpu_node
from support.operator.plans_made import a_survey

COLORS = {style.meaning: style.color for style in STYLES}
LEGEND = 100
"""Pixels of the square of a color in the legend, without its frame."""


def test_each_gpu_is_a_square_of_its_color(tmp_path: Path) -> None:
    page = tmp_path / "plan.svg"
    page.write_text(drawn(tmp_path), encoding="utf-8")
    seen = shot(page, 1400, 1200, tmp_path)
    assert seen.console == []
    # 16 racks of 18 nodes of 4 GPUs, two nodes cordoned; 256 of the run, and 4 for each of its 16 groups.
    expected = {"this plan": 256, "its spares": 64, "not for this run": 8}
    found = {meaning: seen.colors[COLORS[meaning]] for meaning in expected}
    assert found == {meaning: count * SQUARE * SQUARE + LEGEND for meaning, count in expected.items()}
    drawn_gpus = sum(seen.colors[color] - LEGEND for color in COLORS.values()) // (SQUARE * SQUARE)
    assert drawn_gpus == 16 * 18 * 4


def test_the_page_is_shown_without_a_complaint_and_without_the_network(tmp_path: Path) -> None:
    workspace = PlanWorkspace(tmp_path)
    page = workspace.write("plan.html", workspace.run_plan("-o", "html").stdout)
    seen = shot(page, 1500, 1200, tmp_path)
    assert seen.console == []
    assert seen.colors[COLORS["this plan"]] > LEGEND
    refused = run_plan("--nodes", workspace.nodes, "--total-gpus", 256, *COMMAND[2:-2], "-o", "html")
    assert refused.returncode == 3
    seen = shot(workspace.write("refused.html", refused.stdout), 1500, 1200, tmp_path)
    assert (seen.console, seen.colors[COLORS["this plan"]] <= LEGEND) == ([], True)


@pytest.mark.parametrize("gpus", [10_000, 100_000])
def test_a_large_cluster_is_shown_whole_in_one_page(tmp_path: Path, gpus: int) -> None:
    plain = a_survey(gpu_node("n", "d")).located[0].node
    nodes = [
        Node(
            f"n{number:05}",
            Location(f"region-{number * 3 * 8 // gpus}", "c", f"b{number // 64:03}", f"d{number // 8:04}"),
            8,
            8,
        )
        for number in range(gpus // 8)
    ]
    metadata = type(plain.metadata)
    located = (
        LocatedNode(type(plain)(metadata=metadata(name=each.name)), each.place, "h100", "healthy", 8) for each in nodes
    )
    groups = [
        Group(at, 64, nodes[at * 8].place, "", tuple(Share(each.name, 8) for each in nodes[at * 8 : at * 8 + 8]))
        for at in range(16)
    ]
    found = drawing("Plan of x", TopologySurvey(tuple(located), (), ()), Inventory.from_nodes(nodes), groups)
    page = Page("Plan of x")
    page.line("x fits")
    page.picture(picture(found, ()))
    text = "\n".join(page.html())
    assert len(text) < 3_000_000
    path = tmp_path / "large.html"
    path.write_text(text, encoding="utf-8")
    seen = shot(path, 1280, 5000, tmp_path)
    assert seen.console == []
    # A window of 1,280 pixels shows the picture in its size: each GPU of 10,000 is a square, each domain of more a bar.
    if gpus <= MAX_GPUS:
        assert seen.colors[COLORS["this plan"]] == 16 * 64 * SQUARE * SQUARE + LEGEND
        assert seen.colors[COLORS["free"]] == (gpus - 16 * 64) * SQUARE * SQUARE + LEGEND
    else:
        assert seen.colors[COLORS["this plan"]] == 16 * BAR_WIDTH * BAR + LEGEND
        domains = len({each.place for each in nodes})
        assert seen.colors[COLORS["free"]] == (domains - 16) * BAR_WIDTH * BAR + LEGEND
