"""The picture and the page of a plan: every SQUARE once in its color, bounded, and safe with any text."""

import re
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from gkm.packing.inventory import Inventory
from gkm.packing.values import Group, Location, Node, Share
from gkm.topology.survey import LocatedNode, TopologySurvey
from gkm_cli.boxes import MAX_WIDTH
from gkm_cli.cells import BAR_WIDTH, SQUARE, picture
from gkm_cli.page import SIGN, Page
from gkm_cli.plan import pictures as drawings
from gkm_cli.plan.pictures import STYLES, Parts, drawing
from plan_picture import PICTURE, drawn
from support.cli.html_tags import Tags
from support.cli.plan_files import PlanWorkspace, listed, node, pod, racks, run
from support.operator.plans import gpu_node
from support.operator.plans_made import a_survey

SVG = "{http://www.w3.org/2000/svg}"
MOST_BYTES = 3_000_000
EVIL = "</title><script>alert(1)</script><img src=x onerror=alert(1)>\x1b[2J\u202e&quot;'"


@pytest.fixture
def workspace(tmp_path: Path) -> PlanWorkspace:
    made = PlanWorkspace(tmp_path)
    made.nodes = made.write(
        "nodes.json", listed(*racks(), node("cordoned", "rack0", "b0", unschedulable=True), node("bare", "x", gpus=0))
    )
    return made


def fromstring(text: str) -> ET.Element:
    return ET.fromstring(text)  # noqa: S314 -- our own output, without entities


def gpus(root: ET.Element) -> Counter[str]:
    """Return the GPUs of each class that are drawn: dashes of SQUARE pixels with one between them."""
    found: Counter[str] = Counter()
    for path in root.iter(f"{SVG}path"):
        widths = re.findall(r"M\d+ [\d.]+h(\d+)", path.attrib["d"])
        found[path.attrib["class"]] += sum((int(width) + 1) // (SQUARE + 1) for width in widths)
    return found


def test_every_gpu_is_drawn_once_in_the_color_of_its_use(workspace: PlanWorkspace) -> None:
    pods = workspace.write("pods.json", listed(pod("p", "gpu-3-0", 5)))
    run_file = workspace.write("r.json", run(gpus=16, spares=1))
    root = fromstring(workspace.run_plan("--pods", pods, "-o", "svg", run=run_file).stdout)
    # 16 racks' nodes of 8; a run of two nodes and a spare in one rack of 32; 5 in use; one node is cordoned.
    drawn_by_class = gpus(root)
    assert sum(drawn_by_class.values()) == 17 * 8
    assert {name: drawn_by_class[name] for name in "rsox"} == {"r": 16, "s": 8, "o": 5, "x": 8}
    # rack3 has 27 free, 24 in whole nodes: the tightest domain with three free nodes, so three GPUs are stranded.
    assert (drawn_by_class["t"], drawn_by_class["f"]) == (3, 96)
    legend = [element.text for element in root.iter(f"{SVG}text")]
    assert {"this plan 16", "its spares 8", "used by others 5", "stranded 3", "free 96", "not for this run 8"} <= {
        *legend
    }


def test_nodes_lie_in_boxes_of_their_domain_block_cluster_and_region(workspace: PlanWorkspace) -> None:
    root = fromstring(workspace.run_plan("-o", "svg").stdout)
    texts = [element.text or "" for element in root.iter(f"{SVG}text")]
    named = {"region default", "cluster default", "block b0", "block b1", "rack0", "rack1", "rack2", "rack3"}
    assert named <= {*texts}
    tooltips = [element.text or "" for element in root.iter(f"{SVG}title")]
    assert len([tip for tip in tooltips if tip.startswith("node gpu-")]) == 16


def test_the_picture_says_what_other_policies_give_or_what_would_help(workspace: PlanWorkspace) -> None:
    text = workspace.run_plan("-o", "svg").stdout
    assert "fewest-domains (this plan): 1 domain, 1 block" in text
    assert "least-waste: " in text
    refused = workspace.run_plan("-o", "svg", run=workspace.write("big.json", run(gpus=256)))
    assert refused.returncode == 3
    assert "1. ask for 128 GPUs instead of 256" in refused.stdout


def test_a_page_has_the_picture_and_all_that_the_table_has(workspace: PlanWorkspace) -> None:
    done = workspace.run_plan("-o", "html")
    assert (done.returncode, done.stderr) == (0, "")
    for words in ("<svg ", "Results of other policies", "<h2>Why</h2>", "hash ", "What stays", "Quarantined"):
        assert (words in done.stdout) == (words != "Quarantined")
    refused = workspace.run_plan("-o", "html", run=workspace.write("big.json", run(gpus=256)))
    assert "<li>ask for 128 GPUs instead of 256" in refused.stdout


def a_cluster(count: int, name: str, gpus_each: int = 8) -> tuple[TopologySurvey, Inventory]:
    """Return nodes that are a domain each, of names that end in `name`, eight in a block."""
    plain = a_survey(gpu_node("n", "d")).located[0].node
    place = [Location(f"r{name}", f"c{name}", f"b{number // 8}{name}", f"d{number}{name}") for number in range(count)]
    nodes = [Node(f"n{number:06}", place[number], gpus_each, gpus_each) for number in range(count)]
    metadata = type(plain.metadata)
    located = tuple(
        LocatedNode(type(plain)(metadata=metadata(name=each.name)), each.place, "h100", "healthy", gpus_each)
        for each in nodes
    )
    return TopologySurvey(located, (), ()), Inventory.from_nodes(nodes)


def test_a_page_has_bars_of_colors_and_none_of_signs(workspace: PlanWorkspace) -> None:
    """The run of 16 GPUs in rack3, whose other GPUs stay free: a bar of 32 signs on a terminal."""
    text = workspace.run_plan("-o", "html", run=workspace.write("r.json", run(gpus=16))).stdout
    assert not re.search(r"[#+=]{3}|\.{4}", text)
    (bar,) = re.findall(r'<td><span class="bar">(.*?)</span></td>', text)
    assert re.findall(r'class="(\w+)" style="width:(\d+)px"', bar) == [
        ("green", str(16 * SIGN)),
        ("yellow", str(16 * SIGN)),
    ]
    legend = re.findall(r'<span class="key"><span class="bar"><i class="(\w+)"[^>]*></i></span> ([^<]*)<', text)
    assert legend == [
        ("green", "this plan"),
        ("cyan", "its spares"),
        ("bright_black", "used by others"),
        ("yellow", "stranded"),
    ]


@pytest.mark.parametrize(("count", "cell"), [(1_000, "node"), (12_500, "domain"), (60_000, "block")])
def test_a_picture_is_bounded_and_its_cells_fit_the_size_of_the_cluster(count: int, cell: str) -> None:
    survey, inventory = a_cluster(count, "<&" * 30)
    groups = [Group(at, 8, inventory.nodes[at].place, "", (Share(inventory.nodes[at].name, 8),)) for at in range(64)]
    found = drawing("Plan of x", survey, inventory, groups)
    assert (found.cell, Parts(*found.total)) == (cell, Parts(run=512, free=8 * count - 512))
    assert not any("more places" in note for note in found.notes)
    text = "\n".join(picture(found, ["a sentence " * 1000] * 1000))
    assert len(text.encode()) < MOST_BYTES
    # A window of 1,280 pixels shows its texts in their size.
    assert found.box.width <= MAX_WIDTH
    assert fromstring(text).tag == f"{SVG}svg"


def test_what_is_not_drawn_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawings, "MAX_GPUS", 10)
    monkeypatch.setattr(drawings, "MAX_CELLS", 2)
    nodes = [Node(f"n{number}", Location(f"r{number}", "c", "b", "d"), 8, 8) for number in range(5)]
    survey, _ = a_cluster(5, "")
    located = tuple(each._replace(location=node.place) for each, node in zip(survey.located, nodes, strict=True))
    found = drawing("x", TopologySurvey(located, (), ()), Inventory.from_nodes(nodes), ())
    assert (found.cell, found.cells) == ("region", 2)
    assert "not drawn: 3 more places" in "\n".join(picture(found, ()))


def test_a_bar_is_full_and_shows_every_part_that_is_not_empty() -> None:
    place = Location("r", "c", "b", "d")
    nodes = [Node(f"n{number:06}", place, 1000, 1000) for number in range(30)]
    survey, _ = a_cluster(30, "", 1000)
    inventory = Inventory.from_nodes(nodes)
    found = drawing("x", survey, inventory, [Group(0, 1, place, "", (Share("n000000", 1),))])
    assert found.cell == "domain"
    root = fromstring("\n".join(picture(found, ())))
    widths = {
        path.attrib["class"]: int(re.findall(r"h(\d+)", path.attrib["d"])[0])
        for path in root.iter(f"{SVG}path")
        if path.attrib["class"] != "m"
    }
    assert widths == {"r": 1, "t": BAR_WIDTH - 1}


def test_no_text_becomes_an_element_or_a_request() -> None:
    survey, inventory = a_cluster(3, EVIL)
    page = Page(EVIL)
    page.line(EVIL, "bold")
    page.heading(EVIL)
    page.table((EVIL, "b"), [(EVIL, 1)], EVIL)
    page.numbered([EVIL])
    page.picture(picture(drawing(EVIL, survey, inventory, ()), [EVIL]))
    text = "\n".join(page.html())
    tags = Tags()
    tags.feed(text)
    assert not {"script", "img", "a", "link", "iframe", "image", "use", "foreignobject"} & tags.tags
    assert not [name for name in tags.attributes if name.startswith("on") or name in ("src", "href", "xlink:href")]
    assert not re.search(r"url\(|@import|\x1b|\u202e", text)
    assert "default-src 'none'" in text


def test_a_page_is_bounded_whatever_its_tables_have() -> None:
    page = Page("x")
    page.table(("a", "b"), [("<" * 100_000, "&" * 100_000)] * 100_000, "rows", None)
    page.numbered(["&" * 100_000] * 1_000)
    assert len("\n".join(page.html()).encode()) < MOST_BYTES // 2


def test_the_colors_of_the_parts_differ() -> None:
    assert len({style.color for style in STYLES}) == len({style.name for style in STYLES}) == len(Parts._fields)


def test_the_picture_in_the_documents_is_what_the_command_draws(tmp_path: Path) -> None:
    assert PICTURE.read_text(encoding="utf-8") == drawn(tmp_path)
    assert PICTURE.stat().st_size < 100_000
