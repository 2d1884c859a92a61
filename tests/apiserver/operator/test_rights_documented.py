"""docs/reference/rights.md lists the rights of the manifests, right by right."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from support.cluster.audit import Request
from support.operator.deployment import ROOT, component, manifests
from support.operator.rights import COMPONENTS, PREFIX, SHIPPED, Right

ALL = [*manifests(), *(document for name in COMPONENTS for document in component(name))]
PAGE = (ROOT / "docs" / "reference" / "rights.md").read_text(encoding="utf-8")


def rows(columns: int) -> Iterator[list[str]]:
    """Yield the cells of every row, without heads, of tables with that number of columns."""
    for line in PAGE.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| `") and len(cells) == columns:
            yield cells


def documented() -> Iterator[Right]:
    for account, verbs, what, only, why in rows(5):
        assert why
        names, _, namespace = only.rpartition("in ") if "in " in only else (only, "", "")
        for resource in what.split(", "):
            plural, _, group = resource.strip("`").partition(".")
            for verb in verbs.split(", "):
                for name in names.strip().split(", "):
                    yield Right(account.strip("`"), verb, group, plural, name, namespace)


def test_the_page_has_every_right_and_no_other() -> None:
    assert sorted(set(documented())) == SHIPPED


def test_the_page_has_every_policy() -> None:
    shipped = {found["metadata"]["name"] for found in ALL if found["kind"] == "ValidatingAdmissionPolicy"}
    assert shipped <= {name.strip("`") for cells in rows(2) for name in cells[0].split(", ")}
    assert shipped


def test_every_policy_is_bound_and_denies_but_those_that_only_warn() -> None:
    bound = [found["spec"] for found in ALL if found["kind"] == "ValidatingAdmissionPolicyBinding"]
    shipped = sorted(found["metadata"]["name"] for found in ALL if found["kind"] == "ValidatingAdmissionPolicy")
    assert sorted(spec["policyName"] for spec in bound) == shipped
    warning = {spec["policyName"] for spec in bound if spec["validationActions"] == ["Warn"]}
    inactive = {f"gkm-inactive-{feature}" for feature in ("domains", "pod-caches", "task-groups")}
    assert warning == {*inactive, "gkm-runs-requests", "gkm-user-namespaces"}
    assert all(spec["validationActions"] == ["Deny"] for spec in bound if spec["policyName"] not in warning)


@pytest.mark.parametrize(
    ("change", "covered"),
    [
        ({}, True),
        ({"user": f"{PREFIX}gkm-admission"}, False),
        ({"user": "gkm-agent"}, False),
        ({"verb": "watch"}, False),
        ({"group": "gkm.io"}, False),
        ({"resource": "secrets/status"}, False),
        ({"name": "another"}, False),
        ({"name": ""}, False),
        ({"namespace": "another"}, False),
        ({"code": 403}, True),
    ],
)
def test_a_right_covers_the_request_that_it_names_and_no_other(change: dict[str, Any], *, covered: bool) -> None:
    right = Right("gkm-agent", "get", "", "secrets", "registry", "ml-apps")
    asked = Request(f"{PREFIX}gkm-agent", "get", "secrets", namespace="ml-apps", name="registry", code=200)
    assert right.covers(replace(asked, **change)) is covered
