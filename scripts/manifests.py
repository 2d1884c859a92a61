"""Write deploy/{base,components,overlays,remove-state} from the chart, by Helm. `--check` only compares.

Helm is a partner of the tests (tests/support/peers), built from a pinned Go module when it is first needed.
"""

import sys

from kustomizations.directories import COMPONENTS, OVERLAYS
from kustomizations.rendering import DEPLOY, generated

DIRECTORIES = ("base", "components", "overlays", "remove-state")


def main() -> int:
    """Write or check; return the exit code."""
    wanted = generated(COMPONENTS, OVERLAYS)
    there = {path for name in DIRECTORIES for path in (DEPLOY / name).rglob("*.yaml")}
    wrong = [path for path, text in wanted.items() if path not in there or path.read_text(encoding="utf-8") != text]
    stale = sorted(there - wanted.keys())
    if "--check" in sys.argv:
        for path in (*wrong, *stale):
            print(f"stale: {path.relative_to(DEPLOY.parent)}; run 'make generate'")  # noqa: T201 -- a command line
        return 1 if wrong or stale else 0
    for path in wrong:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(wanted[path], encoding="utf-8")
    for path in stale:
        path.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
