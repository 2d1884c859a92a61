"""The program: its commands, and the one place where an error becomes a line and an exit code."""

import os
import sys
from io import TextIOWrapper
from typing import Annotated, NoReturn

import typer
from gkm.api.config import ConfigInvalid
from gkm.api.errors import GKMError, Reason
from gkm.api.remedies import Remedy
from gkm.hoststate.escaping import escape
from gkm.hoststate.version import version as installed_version
from typer.exceptions import TyperException

from gkm_cli import disks, node
from gkm_cli.cache.commands import app as cache
from gkm_cli.output import EXIT_NEGATIVE, PROGRAM, NegativeResult, PlanningFailed, UsageError, line
from gkm_cli.plan.command import EXAMPLE, plan

app = typer.Typer(
    name="gkm",
    help="GPU kernel caches as signed images: build, verify and inspect them; see the GPUs of this machine; "
    "plan where runs of many GPUs go.",
    no_args_is_help=True,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
VersionOption = Annotated[bool, typer.Option("--version", help="Print the version, and end.")]


@app.callback()
def gkm(context: typer.Context, *, version: VersionOption = False) -> None:
    """Say the version, where it is asked for; else the command runs."""
    if version:
        line(f"{PROGRAM} {installed_version()}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        context.fail("Missing command.")


app.add_typer(cache, name="cache")
app.add_typer(node.app, name="node")
app.command(epilog=EXAMPLE)(plan)

FAILURE, USAGE_ERROR = 1, 2
INTERRUPTED = 130
HINTS = {
    Remedy.LOG_IN: "check that the repository exists, and log in: docker login {about}",
    Remedy.CHECK_LOGIN: "log in as somebody who may: docker login {about}",
    Remedy.TRUST_OR_PLAIN_HTTP: "trust its certificate authority with --ca-file FILE, or speak http with --plain-http",
    Remedy.ADD_AUTH_HOST: "if it is right, add it to registries.hosts.{about}.authHosts in a file for --config",
    Remedy.NAME_HOST: "if it is right, name it under registries.hosts in a file for --config",
    Remedy.ALLOW_REGISTRY: "add it to registries.allow in the file of --config, or leave --config out",
    Remedy.RAISE_MAX_IMAGE: "if it is meant, raise store.maxImageBytes in a file for --config",
    Remedy.FREE_SPACE: "free space, and run the command again",
}
"""What a person at a terminal can do: flags and commands, where a process in the cluster names configuration keys."""


def main() -> None:
    """Run the program; no traceback reaches a person."""
    if isinstance(sys.stdout, TextIOWrapper):
        # As standard error does: what the encoding of a pipe lacks is shown as its escape.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        try:
            # Not in its own way of ending, which draws boxes around errors.
            code = typer.main.get_command(app)(prog_name=PROGRAM, standalone_mode=False) or 0
        finally:
            _flush()
        sys.exit(code)
    except NegativeResult:
        sys.exit(EXIT_NEGATIVE)
    except UsageError as error:
        _end(error, USAGE_ERROR)
    except TyperException as error:
        _end_as_typer(error)
    except GKMError as error:
        _end(_gkm_error(error), USAGE_ERROR if error.reason is Reason.INVALID_REFERENCE else FAILURE)
    except (ConfigInvalid, PlanningFailed) as error:
        _end(error, FAILURE)
    except BrokenPipeError:  # whoever read has read enough; typer ends so, too
        _discard()
        sys.exit(FAILURE)
    except OSError as error:
        # Without the number of the error, and in the order of all our sentences: what, why, what next.
        _end(_of_system(error), FAILURE)
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(INTERRUPTED)


def _flush() -> None:
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        _discard()
        _end(f"standard output: {error.strerror}; free space there, or write elsewhere", FAILURE)


def _discard() -> None:
    """Let the interpreter end without another try to write what nothing takes."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _gkm_error(error: GKMError) -> str:
    """Return an error with its detail, which only the person who runs the command sees, and this program's hint."""
    message = f"{error.message}: {error.detail}" if error.detail else error.message
    hint = error.detail_hint if error.detail else error.hint
    if isinstance(hint, Remedy):
        hint = HINTS[hint].format(about=error.about)
    return f"{message}; {hint}" if hint else message


def _of_system(error: OSError) -> object:
    what = f"{error.filename}: " if error.filename else ""
    if error.errno in disks.FULL:
        return f"{what or 'standard output or a file cannot be written: '}{error.strerror}; free space there"
    if what and error.strerror:
        return f"{what}{error.strerror}; check its name, and that you may use it"
    return error.strerror or error


def _end(error: object, code: int) -> NoReturn:
    sys.stderr.write(f"error: {escape(' '.join(str(error).split()))}\n")
    sys.exit(code)


def _end_as_typer(error: TyperException) -> NoReturn:
    """End for words that the command does not know; without any words it is the help that people want."""
    if len(sys.argv) == 1 or not (message := _message(error)):
        typer.main.get_command(app)(["--help"], prog_name=PROGRAM, standalone_mode=False)
        sys.exit(USAGE_ERROR)
    _end(f"{message.rstrip('.')}; --help says what there is", USAGE_ERROR)


def _message(error: TyperException) -> str:
    message = getattr(error, "format_message", lambda: str(error))()
    return "" if "\n" in message else str(message)


if __name__ == "__main__":
    main()
