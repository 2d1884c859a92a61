"""The program: its commands, and the one place where an error becomes a line and an exit code."""

import sys

import typer
from gkm.api.config import ConfigInvalid
from gkm.api.errors import GKMError

from gkm_cli import node
from gkm_cli.answers import NO, No
from gkm_cli.cache.commands import app as cache

app = typer.Typer(
    name="gkm",
    help="GPU kernel caches as signed images: build, verify and inspect them; see the GPUs of this machine.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(cache, name="cache")
app.add_typer(node.app, name="node")

FAILED = 1
INTERRUPTED = 130


def main() -> None:
    """Run the program; no traceback reaches a person."""
    try:
        app()
    except No:
        sys.exit(NO)
    except (GKMError, ConfigInvalid, OSError) as error:
        _complain(error)
        sys.exit(FAILED)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def _complain(error: Exception) -> None:
    sys.stderr.write(f"error: {' '.join(str(error).split())}\n")


if __name__ == "__main__":
    main()
