"""Runs inside an image (`python - PROCESS`): imports all that the process may import, also within its functions.

So a distribution or file that requirements/install leaves out, and that anything of ours needs, is found.
"""

import ast
import importlib
import importlib.util
import pkgutil
import sys
from pathlib import Path

ABSENT = frozenset({"compression"})
"""Modules of later Pythons: the code has another way without them."""


def own(package: str) -> list[str]:
    """Return the modules of a package."""
    found = importlib.import_module(package)
    return [package, *(each.name for each in pkgutil.walk_packages(found.__path__, f"{package}."))]


def named(module: str) -> set[str]:
    """Return the modules that the statements of a module import, at any depth, but for those of type checkers."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return set()
    found: set[str] = set()
    pending: list[ast.AST] = [ast.parse(Path(spec.origin).read_text(encoding="utf-8"))]
    while pending:
        node = pending.pop()
        match node:
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                pending += node.orelse
                continue
            case ast.Import():
                found |= {alias.name for alias in node.names}
            case ast.ImportFrom(module=str(source), level=0):
                found.add(source)
                # A name in a package of ours may be a module.
                ours = source.partition(".")[0].startswith("gkm")
                names = {f"{source}.{alias.name}" for alias in node.names} if ours else set()
                found |= {name for name in names if importlib.util.find_spec(source) and _is_module(name)}
            case _:
                pass
        pending += ast.iter_child_nodes(node)
    return {name for name in found if name.partition(".")[0] not in ABSENT}


def _is_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def main() -> int:
    """Import everything; print what failed; return the exit code."""
    package = f"gkm_{sys.argv[1]}"
    pending, seen, failed = own(package), set[str](), list[str]()
    while pending:
        name = pending.pop()
        if name in seen or name.endswith("__main__"):
            continue
        seen.add(name)
        try:
            importlib.import_module(name)
        except Exception as error:  # noqa: BLE001 -- whatever it is, the image lacks something
            failed.append(f"{name}: {type(error).__name__}: {error}")
            continue
        if name.partition(".")[0].startswith("gkm"):
            pending += named(name)
    sys.stdout.write("\n".join([f"{len(seen)} modules imported", *failed]) + "\n")
    return 1 if failed else 0


sys.exit(main())
