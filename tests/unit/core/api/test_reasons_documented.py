"""docs/reference/reasons.md has every reason once, and for each row tests/data names a test that causes the reason."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path

import pytest
from gkm.api.domain_readiness import ReadyReason
from gkm.api.errors import Reason
from gkm.api.provider_trees import TreeReason
from gkm.api.task_group_reasons import GroupReason
from gkm.api.topology_status import TopologyReason
from gkm.gpus import fabric, preflight
from gkm.hoststate.pointers import CacheState
from gkm.runtimes.keys import MissReason
from gkm_agent.fabric.link_errors import LINK_ERRORS
from gkm_agent.fabric.nvlink import Health
from gkm_csi.status_errors import Code
from gkm_operator.captures.retention import RetentionReason
from gkm_operator.captures.trials import HeldBackReason
from gkm_operator.fabric.conditions import NODE_NOT_READY
from gkm_operator.plans.planning.drift import DriftReason
from gkm_operator.plans.planning.refusals import PlanReason as PlannedReason
from gkm_operator.plans.state.objects import FollowReason
from gkm_operator.plans.write.status import PODS_RAN

ROOT = Path(__file__).parents[4]
PAGE = ROOT / "docs" / "reference" / "reasons.md"
CONDITIONS = ROOT / "operator" / "gkm_operator" / "caches" / "status.py"
PLANS = ROOT / "operator" / "gkm_operator" / "plans"
AGENT = ROOT / "agent" / "gkm_agent"
DRIVER = ROOT / "csi" / "gkm_csi"
WORDS = "Words of the CSI answers"
COLUMNS = ("what to do", "meaning")
"""The second and the third column of each table of reasons; the last one is the place, or the code of an answer."""
REACHED = ROOT / "tests" / "data" / "reasons-reached.txt"
"""The name of each table, and indented below it `reason: path::test`."""

Definition = ast.FunctionDef | ast.Assign | ast.AnnAssign


@dataclass(frozen=True)
class Row:
    """One row of a table: `reason` is its first cell, `where` its last."""

    table: str
    reason: str
    where: str
    meaning: str
    action: str


def rows_of(text: str) -> Iterator[Row]:
    """Yield the rows of the tables of reasons; other tables have other columns."""
    table, wanted = "", False
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")] if line.startswith("| ") else []
        if line.startswith("## "):
            table = line.removeprefix("## ")
        if not cells:
            wanted = wanted and line.startswith("|--")
        elif not wanted:
            # The table of words follows the table of codes; its second column is the code.
            table = WORDS if cells[0] == "words" else table
            wanted = tuple(cells[1:3]) == COLUMNS
        else:
            assert len(cells) == 2 + len(COLUMNS), line
            yield Row(table, cells[0].removeprefix("`").removesuffix("`"), cells[3], cells[2], cells[1])


def reached_by(text: str) -> Iterator[tuple[tuple[str, str], str]]:
    """Yield ((table, reason), path::test) of each reason."""
    table = ""
    for line in filter(None, text.splitlines()):
        reason, _, test = line.strip().rpartition(": ")
        if line.startswith(" "):
            yield (table, reason), test
        else:
            table = line


ROWS = list(rows_of(PAGE.read_text(encoding="utf-8")))
TESTS = dict(reached_by(REACHED.read_text(encoding="utf-8")))


def reasons_of(*tables: str) -> list[str]:
    return sorted(row.reason for row in ROWS if row.table in tables)


def of_conditions(path: Path) -> set[str]:
    """Return the reasons of conditions in a file: the second of three values that a function returns."""
    returned = (node.value for node in ast.walk(parsed(path)) if isinstance(node, ast.Return))
    found = (value.elts[1] for value in returned if isinstance(value, ast.Tuple) and len(value.elts) == 3)
    return {value.value for value in found if isinstance(value, ast.Constant) and isinstance(value.value, str)}


def test_every_reason_has_one_row_and_no_row_names_another() -> None:
    assert reasons_of("Image and verification", "Node and disk", "Preflight of each GPU") == sorted(Reason)


def test_the_reasons_of_a_gpu_are_in_one_table() -> None:
    of_image = {Reason.METADATA_INVALID, Reason.METADATA_MISSING}
    assert reasons_of("Preflight of each GPU") == sorted({*preflight._REASON_PRIORITY, Reason.NO_GPU} - of_image)


@pytest.mark.parametrize(
    ("table", "reasons"),
    [
        ("Conditions Ready, Error and NoCacheForHardware of a cache", lambda: of_conditions(CONDITIONS)),
        ("Condition Retained of a captured cache", lambda: set(RetentionReason)),
        ("Condition HeldBack of a generation", lambda: set(HeldBackReason)),
        ("Condition Ready of a node", lambda: of_conditions(AGENT / "report" / "objects.py")),
        ("Condition Healthy of a NodeFabric", lambda: of_conditions(AGENT / "fabric" / "objects.py")),
        ("Condition NVLinkFabricHealthy of a Node", lambda: {NODE_NOT_READY}),
        ("States of a cache on a node", lambda: set(CacheState)),
        (
            "Fabric",
            lambda: {
                *Health,
                *(problem for _, problem in fabric._PROBLEMS.values()),
                *fabric._CONFIGURATIONS.values(),
                LINK_ERRORS,
            },
        ),
        ("Runs", lambda: set(PlannedReason)),
        ("Condition Drift of a run", lambda: set(DriftReason)),
        ("Condition Followed of a run", lambda: set(FollowReason)),
        ("Condition Started of a plan", lambda: {PODS_RAN}),
        ("Condition Live of a plan", lambda: of_conditions(PLANS / "write" / "status.py")),
        ("Condition MNNVLReady of a ComputeDomain", lambda: set(ReadyReason)),
        ("Topology", lambda: {*TopologyReason, *TreeReason}),
        ("Conditions of pools and task groups", lambda: set(GroupReason)),
        ("Compiled kernels", lambda: set(MissReason)),
        ("CSI answers", lambda: {code.value for code in Code}),
    ],
)
def test_every_table_has_all_of_its_reasons_once_and_no_other(table: str, reasons: object) -> None:
    assert callable(reasons)
    found = sorted(reasons())
    assert found
    assert reasons_of(table) == found


def test_every_table_of_reasons_is_compared_with_the_code() -> None:
    assert {row.table for row in ROWS} == {
        "Image and verification",
        "Node and disk",
        "Preflight of each GPU",
        "Conditions Ready, Error and NoCacheForHardware of a cache",
        "Compiled kernels",
        "Condition Retained of a captured cache",
        "Condition HeldBack of a generation",
        "Condition Ready of a node",
        "Condition Healthy of a NodeFabric",
        "Condition NVLinkFabricHealthy of a Node",
        "States of a cache on a node",
        "Fabric",
        "Runs",
        "Condition Drift of a run",
        "Condition Followed of a run",
        "Condition Started of a plan",
        "Condition Live of a plan",
        "Condition MNNVLReady of a ComputeDomain",
        "Topology",
        "Conditions of pools and task groups",
        "CSI answers",
        WORDS,
    }


def test_every_documented_phrase_of_an_answer_is_in_the_driver_and_documented_once() -> None:
    texts = [text for path in DRIVER.rglob("*.py") for text in texts_of(path)]
    words = reasons_of(WORDS)
    assert words
    assert len(words) == len(set(words))
    assert [one for one in words if not any(one in text for text in texts)] == []
    codes = {row.where.strip("`") for row in ROWS if row.table == WORDS}
    assert codes == {code.value for code in Code}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.reason.replace(" ", "-"))
def test_a_row_has_a_meaning_and_an_action_and_a_test_that_asserts_the_reason(row: Row) -> None:
    assert row.where
    assert row.meaning.endswith(".")
    assert row.action.endswith(".")
    path, _, test = TESTS[row.table, row.reason].partition("::")
    assert any(re.search(rf"(?<!\w){re.escape(name)}(?!\w)", asserted(path, test)) for name in names_of(row))


def test_no_test_is_named_for_a_reason_that_is_not_on_the_page() -> None:
    assert TESTS.keys() == {(row.table, row.reason) for row in ROWS}


def names_of(row: Row) -> set[str]:
    """Return the forms of a reason in a test: its value in objects, or its name in the code."""
    if row.table == WORDS:
        return {row.reason, row.where.strip("`")}
    all_members = chain(
        Reason, CacheState, Health, ReadyReason, TopologyReason, TreeReason, Code, MissReason, RetentionReason
    )
    members = {member.name for member in all_members if member.value == row.reason}
    return {row.reason, *members}


def asserted(path: str, test: str) -> str:
    """Return the source of a test's assertions and parameters, and of the tables and helpers that they use."""
    assert path.startswith("tests/"), path
    file = ROOT / path
    text = file.read_text(encoding="utf-8")
    known = definitions(file)
    function = known.get(test)
    assert isinstance(function, ast.FunctionDef), f"there is no {test} in {path}"
    claims: list[ast.AST] = [*function.decorator_list]
    claims += [node for node in ast.walk(function) if isinstance(node, ast.Assert | ast.withitem)]
    used = {node.id for claim in claims for node in ast.walk(claim) if isinstance(node, ast.Name)}
    claims += [known[name] for name in used - {test} if name in known]
    return "\n".join(source(text, claim) for claim in claims)


def source(text: str, node: ast.AST) -> str:
    inner = node.context_expr if isinstance(node, ast.withitem) else node
    return ast.get_source_segment(text, inner) or ""


def definitions(path: Path) -> dict[str, Definition]:
    """Return the functions and tables of a file by name."""
    found: dict[str, Definition] = {}
    for node in parsed(path).body:
        if isinstance(node, ast.FunctionDef):
            found[node.name] = node
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {target.id: node for target in targets if isinstance(target, ast.Name)}
    return found


def texts_of(path: Path) -> list[str]:
    """Return the texts that a file passes to a caller, each up to the next value in it, without docstrings."""
    calls = (node for node in ast.walk(parsed(path)) if isinstance(node, ast.Call | ast.Assign))
    constants = chain.from_iterable(ast.walk(call) for call in calls)
    return [node.value for node in constants if isinstance(node, ast.Constant) and isinstance(node.value, str)]


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))
