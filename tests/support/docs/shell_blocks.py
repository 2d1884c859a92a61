"""The blocks of shell commands below a heading of a page, and their commands as a reader counts them.

It never runs one: support.e2e.reader does.
"""

import re
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
_BLOCK = re.compile(r"^ *```bash\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
_HERE = re.compile(r"<<(\w+)$")


def blocks(page: str, heading: str = "") -> list[str]:
    """Return the blocks of a page of the repository, in order; with `heading`, those of that section."""
    text = (ROOT / page).read_text(encoding="utf-8")
    if heading:
        text = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return [textwrap.dedent(found) for found in _BLOCK.findall(text)]


def commands(script: str) -> list[str]:
    """Return the commands of a script: continued lines and here-documents belong to the line before."""
    found: list[str] = []
    end, continued = "", False
    for line in script.splitlines():
        if end or continued:
            found[-1] += f"\n{line}"
        else:
            found.append(line)
        if end:
            end = "" if line == end else end
            continue
        continued = line.endswith("\\")
        end = here[1] if (here := _HERE.search(line)) else ""
    return found
