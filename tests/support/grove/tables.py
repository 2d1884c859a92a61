"""Tables of cases: one parametrized test a table, with the names of the cases as ids; and what their rows expect."""

from collections.abc import Iterable
from typing import Any

import pytest


def table(columns: str, rows: Iterable[tuple[Any, ...]]) -> pytest.MarkDecorator:
    """Parametrize a test by rows that begin with the name of the case.

    Raises:
        ValueError: two rows have one name, so that a report could not tell which failed.
    """
    found = list(rows)
    names = [row[0] for row in found]
    if len(set(names)) != len(names):
        raise ValueError(f"a name occurs twice: {names}")
    return pytest.mark.parametrize(columns, [row[1] if len(row) == 2 else row[1:] for row in found], ids=names)


def refused(problems: Iterable[str], reason: str) -> bool:
    """Return whether there are no problems for the reason "", and a first one with the reason otherwise."""
    found = list(problems)
    return reason in found[0] if reason and found else not reason and not found
