"""The children of a process, from /proc."""

from pathlib import Path


def children_of(process: int) -> set[int]:
    found = set()
    for directory in Path("/proc").iterdir():
        if directory.name.isdigit():
            try:
                fields = (directory / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if fields[0] != "Z" and int(fields[1]) == process:
                found.add(int(directory.name))
    return found


def is_gone(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True
