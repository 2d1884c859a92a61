"""`kubectl_complete-gkm`: what kubectl runs to complete `kubectl gkm …`.

kubectl passes the words behind `kubectl gkm`, the last of which is incomplete, and expects candidates as cobra's
`__complete` prints them: a line for each, with its description behind a tab, and at the end a directive (kubectl,
pkg/cmd/plugin/plugin_completion.go). typer's completion for fish prints the same lines without the directive.
"""

import io
import os
import shlex
import sys
from contextlib import redirect_stderr, redirect_stdout, suppress

NO_FILES, FILES = ":4", ":0"
"""cobra's ShellCompDirectiveNoFileComp and ShellCompDirectiveDefault."""
_VARIABLE = "_GKM_COMPLETE"


def main() -> None:
    """Print the candidates for the words on the command line; never an error, which would break the user's prompt."""
    words = sys.argv[1:] or [""]
    found = candidates(words)
    sys.stdout.write("".join(f"{candidate}\n" for candidate in found) + f"{NO_FILES if found else FILES}\n")


def candidates(words: list[str]) -> list[str]:
    """Return the candidates for the last word, each with its description behind a tab."""
    line = shlex.join(["gkm", *words[:-1]]) + " " + words[-1]
    os.environ.update(
        {_VARIABLE: "complete_fish", "_TYPER_COMPLETE_ARGS": line, "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    )
    sys.argv = ["gkm"]
    printed = io.StringIO()
    with suppress(Exception, SystemExit), redirect_stdout(printed), redirect_stderr(io.StringIO()):
        from gkm_cli.main import complete  # noqa: PLC0415 -- its dependencies may be missing

        complete()
    return [text for text in printed.getvalue().splitlines() if text]


if __name__ == "__main__":
    main()
