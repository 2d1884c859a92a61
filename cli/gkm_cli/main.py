"""The program `gkm`: its commands, and the one place where an error becomes a line and an exit code."""

import os
import sys
from io import TextIOWrapper
from typing import Annotated, NoReturn

import typer
from gkm.api.config import ConfigInvalid
from gkm.api.errors import GKMError, Reason, Remedy
from gkm.hoststate.command_line import installed_version
from gkm.hoststate.escaping import escape
from typer.exceptions import TyperException

from gkm_cli import disks, node
from gkm_cli.cache.commands import app as cache
from gkm_cli.doctor import command as doctor
from gkm_cli.option_groups import with_groups
from gkm_cli.output import EXIT_NEGATIVE, PROGRAM, CommandFailed, NegativeResult, UsageError, line
from gkm_cli.plan import command as plan
from gkm_cli.template.command import app as template
from gkm_cli.topology.commands import app as topology

app = typer.Typer(
    name="gkm",
    help="Build, sign, verify and inspect GPU kernel caches as images; show the GPUs of this machine; "
    "find the topology of a cluster; plan where runs of many GPUs go; render and import group templates; "
    "find faults in a cluster.",
    no_args_is_help=True,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
VersionOption = Annotated[bool, typer.Option("--version", help="Print the version and exit.")]


@app.callback()
def gkm(context: typer.Context, *, version: VersionOption = False) -> None:
    """Print the version, or run the command."""
    if version:
        line(f"{PROGRAM} {installed_version()}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        context.fail("Missing command.")


app.add_typer(cache, name="cache")
app.add_typer(node.app, name="node")
app.add_typer(topology, name="topology")
app.add_typer(template, name="template")
app.command(epilog=plan.EXAMPLE)(with_groups(plan.plan))
app.command(epilog=doctor.EXAMPLE)(with_groups(doctor.doctor))

FAILURE, USAGE_ERROR = 1, 2
INTERRUPTED = 130
HINTS = {
    Remedy.LOG_IN: "check that the repository exists, and log in: docker login {about}",
    Remedy.CHECK_LOGIN: "log in with an account that has access: docker login {about}",
    Remedy.TRUST_OR_PLAIN_HTTP: "trust its certificate authority with --ca-file FILE, or speak http with --plain-http",
    Remedy.ADD_AUTH_HOST: "if it is right, add it to registries.hosts.{about}.authHosts in a file for --config",
    Remedy.NAME_HOST: "if it is right, name it under registries.hosts in a file for --config",
    Remedy.ALLOW_REGISTRY: "add it to registries.allow in the file of --config, or leave --config out",
    Remedy.RAISE_MAX_IMAGE: "if it is meant, raise store.maxImageBytes in a file for --config",
    Remedy.FREE_SPACE: "free space, and run the command again",
}
"""Remedies for a user of the command line: flags and commands. Processes in a cluster name configuration keys."""


def main() -> None:
    """Run the program; print one line, never a traceback, for an expected error."""
    if isinstance(sys.stdout, TextIOWrapper):
        # As on standard error: a character that the encoding of a pipe lacks becomes an escape.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        try:
            # Not in typer's standalone mode, which draws boxes around errors.
            code = typer.main.get_command(app)(prog_name=PROGRAM, standalone_mode=False) or 0
        finally:
            _flush()
        sys.exit(code)
    except NegativeResult:
        sys.exit(EXIT_NEGATIVE)
    except UsageError as error:
        _exit(error, USAGE_ERROR)
    except TyperException as error:
        _exit_with_usage_error(error)
    except GKMError as error:
        _exit(_gkm_error(error), USAGE_ERROR if error.reason is Reason.INVALID_REFERENCE else FAILURE)
    except (ConfigInvalid, CommandFailed) as error:
        _exit(error, FAILURE)
    except BrokenPipeError:  # the reader has closed the pipe; typer exits in the same way
        _discard()
        sys.exit(FAILURE)
    except OSError as error:
        # Without the error number, and in the usual order: what, why, what next.
        _exit(_os_error(error), FAILURE)
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(INTERRUPTED)


def _flush() -> None:
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        _discard()
        _exit(f"standard output: {error.strerror}; free space there, or write elsewhere", FAILURE)


def _discard() -> None:
    """Redirect standard output, so that the interpreter does not write again at its exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _gkm_error(error: GKMError) -> str:
    """Return an error with its detail, which only the user of the command sees, and this program's hint."""
    message = f"{error.message}: {error.detail}" if error.detail else error.message
    hint = error.detail_hint if error.detail else error.hint
    if isinstance(hint, Remedy):
        hint = HINTS[hint].format(about=error.about)
    return f"{message}; {hint}" if hint else message


def _os_error(error: OSError) -> object:
    subject = f"{error.filename}: " if error.filename else ""
    if error.errno in disks.FULL:
        return f"{subject or 'standard output or a file cannot be written: '}{error.strerror}; free space there"
    if subject and error.strerror:
        return f"{subject}{error.strerror}; check its name and mode"
    return error.strerror or error


def _exit(error: object, code: int) -> NoReturn:
    sys.stderr.write(f"error: {escape(' '.join(str(error).split()))}\n")
    sys.exit(code)


def _exit_with_usage_error(error: TyperException) -> NoReturn:
    """Exit for wrong arguments; without arguments, print the help."""
    if len(sys.argv) == 1 or not (message := _message(error)):
        typer.main.get_command(app)(["--help"], prog_name=PROGRAM, standalone_mode=False)
        sys.exit(USAGE_ERROR)
    _exit(f"{message.rstrip('.')}; --help lists commands and options", USAGE_ERROR)


def _message(error: TyperException) -> str:
    message = getattr(error, "format_message", lambda: str(error))()
    return "" if "\n" in message else str(message)


if __name__ == "__main__":
    main()
