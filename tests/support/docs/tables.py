"""The tables of a page."""

from pathlib import Path


def rows(page: Path, section: str) -> list[list[str]]:
    """Return the cells of each row in the first table below a heading, without its head.

    Raises:
        ValueError: the page has no such heading, or the section no table.
    """
    lines = page.read_text(encoding="utf-8").splitlines()
    below = iter(lines[lines.index(section) + 1 :])
    table: list[str] = []
    for line in below:
        if line.startswith("|"):
            table.append(line)
        elif table or line.startswith("#"):
            break
    if len(table) <= 2:
        raise ValueError(f"{page}: no table with rows below {section}")
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table[2:]]
