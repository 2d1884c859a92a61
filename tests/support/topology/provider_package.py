"""A package of topology providers as a mounted directory has it: modules, and a *.dist-info with entry points."""

from pathlib import Path

from gkm.topology.providers import ENTRY_POINTS


def install(directory: Path, source: str, *names: str, package: str = "misbehaving", attribute: str = "") -> Path:
    """Write a package whose module has one function for each provider; return the directory."""
    information = directory / f"{package}-1.0.dist-info"
    information.mkdir(parents=True)
    points = "".join(f"{name} = {package}:{attribute or name.replace('-', '_')}\n" for name in names)
    (information / "entry_points.txt").write_text(f"[{ENTRY_POINTS}]\n{points}")
    (directory / f"{package}.py").write_text(source)
    return directory
