"""The driver treats each combination of attributes as the tables of docs/features/volumes.md state."""

from dataclasses import replace
from itertools import product
from typing import NamedTuple

import pytest
from gkm.hoststate.records import VolumeOptions
from gkm_csi.status_errors import StatusError
from gkm_csi.volumes.request import AUTO, CAPTURE, CAPTURE_MODES, IF_UNAVAILABLE, OFF, READ_ONLY, volume_options
from support.docs.shell_blocks import ROOT

NAMES = (READ_ONLY, IF_UNAVAILABLE, CAPTURE)
VALUES = (("–", "true", "false"), ("–", "wait", "empty", "compile"), ("–", "true", "false"))
DEFAULTS = {READ_ONLY: "true", IF_UNAVAILABLE: "wait", CAPTURE: "false"}
COMBINATIONS = tuple(product(*VALUES))


class Row(NamedTuple):
    """A row: which combinations it covers, and what a volume of them is."""

    cells: tuple[frozenset[str], ...]
    layer: str
    without: str
    captured: str

    def covers(self, values: tuple[str, ...]) -> bool:
        return all(value in cell for value, cell in zip(values, self.cells, strict=True))


def rows() -> list[Row]:
    """Return the rows of the table of the mode `auto`."""
    text = (ROOT / "docs" / "features" / "volumes.md").read_text(encoding="utf-8")
    section = text.partition("### Just in time\n")[2].partition("\n### ")[0]
    table = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| ")][1:]
    return [
        Row(tuple(frozenset(cell.replace("`", "").split(", ")) for cell in cells), *results)
        for *cells, layer, without, captured in table
        for results in [(layer, without.strip("`"), captured)]
    ]


def outcome(values: tuple[str, ...], mode: str, *, read_only: bool = False) -> VolumeOptions | None:
    """Return the options of a combination without a size; None where it is refused."""
    attributes = {name: value for name, value in zip(NAMES, values, strict=True) if value != "–"}
    try:
        return replace(volume_options(attributes, mode, read_only=read_only), size_limit=0)
    except StatusError:
        return None


def stated(row: Row) -> VolumeOptions | None:
    if row.layer == "refused":
        return None
    return VolumeOptions(
        private=row.layer == "private",
        or_empty=row.without == "empty",
        or_compile=row.without == "compile",
        capture=row.captured in ("yes", "an empty one"),
    )


@pytest.mark.parametrize("values", COMBINATIONS, ids="/".join)
def test_a_volume_in_the_mode_auto_is_as_its_row_says(values: tuple[str, ...]) -> None:
    (row,) = [row for row in rows() if row.covers(values)]
    assert outcome(values, AUTO) == stated(row)


def test_the_table_has_no_value_that_does_not_exist() -> None:
    for row in rows():
        assert all(cell <= set(values) for cell, values in zip(row.cells, VALUES, strict=True))
        assert (row.layer, row.without, row.captured) == ("refused", "–", "–") or (
            row.layer in ("private", "read-only")
            and row.without in ("wait", "empty", "compile")
            and row.captured in ("yes", "no", "an empty one")
        )


@pytest.mark.parametrize("values", COMBINATIONS, ids="/".join)
def test_read_only_beside_the_attributes_is_the_attribute(values: tuple[str, ...]) -> None:
    if values[0] == "–":
        assert outcome(values, AUTO, read_only=True) == outcome(("true", *values[1:]), AUTO)


@pytest.mark.parametrize("mode", [mode for mode in CAPTURE_MODES if mode != AUTO])
@pytest.mark.parametrize("values", COMBINATIONS, ids="/".join)
def test_in_other_modes_each_attribute_has_its_own_default(values: tuple[str, ...], mode: str) -> None:
    given = tuple(DEFAULTS[name] if value == "–" else value for name, value in zip(NAMES, values, strict=True))
    found = outcome(values, mode)
    assert found == outcome(given, mode)
    explicit = outcome(given, AUTO)
    assert found == (replace(explicit, capture=False) if explicit and mode == OFF else explicit)
