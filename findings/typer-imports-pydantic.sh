#!/usr/bin/env bash
# Typer 0.29.2 imports pydantic in each run of a command, also of one whose only option is a flag that stays off.
#
# Expected: a flag needs no library of validation, so a command imports what it did with Typer 0.28.0.
# Seen: 140 modules with 0.28.0 and 257 with 0.29.2, at the first option of each process. Where it was seen, a larger
# program took 0.28 s to refuse an unknown command instead of 0.13 s.
# Shells that call a command often, and tests that start one for each case, pay it each time.
#
# Needs python3 3.10 or later; it takes less than a minute and works in a temporary folder. It fails if 0.29.2 imports no
# pydantic, or if 0.28.0 does.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cat > "$work/app.py" <<'APP'
import sys

import typer


def command(quiet: bool = False) -> None: ...


app = typer.Typer(add_completion=False)
app.command()(command)
try:
    app()
finally:
    print(len(sys.modules), "pydantic" in sys.modules)
APP

python3 -m venv "$work/venv"
seen=""
for version in 0.28.0 0.29.2; do
    "$work/venv/bin/pip" install --quiet --disable-pip-version-check "typer==$version" pydantic==2.14.3
    read -r modules imported < <("$work/venv/bin/python" "$work/app.py")
    echo "typer $version: $modules modules, pydantic imported: $imported"
    seen="$seen $version $imported"
done
[ "$seen" = " 0.28.0 False 0.29.2 True" ]
