"""The program `gkm`: its commands, and the one place where an error becomes a line and an exit code."""

import errno
import os
import sys
from io import TextIOWrapper
from typing import Annotated, NoReturn

import typer
from gkm.api.errors import GKMError, Reason, Remedy
from gkm.hoststate import disk_space
from gkm.hoststate.command_line import installed_version
from gkm.hoststate.escaping import escape
from typer.exceptions import TyperException

from gkm_cli.calls import EXIT_TIMED_OUT, TimedOut
from gkm_cli.lazy_commands import LazyCommand, lazy_group
from gkm_cli.output import EXIT_NEGATIVE, PLUGIN, PROGRAM, CommandFailed, NegativeResult, Undecided, UsageError, line

COMMANDS = {
    "cache": LazyCommand(
        "gkm_cli.cache.commands",
        "app",
        "Cache images: build, push, sign, attest, verify, inspect, check, explain, extract, copy, diff, tags, delete; "
        "list a cluster's caches; "
        "pin, promote and drop generations.",
    ),
    "login": LazyCommand(
        "gkm_cli.login",
        "login",
        "Log in to a registry, and store the login where docker stores it.",
        "{program} login registry.example -u robot --password-stdin < token",
    ),
    "logout": LazyCommand(
        "gkm_cli.login",
        "logout",
        "Remove the login of a registry from where docker stores it.",
        "{program} logout registry.example",
    ),
    "keygen": LazyCommand(
        "gkm_cli.keygen",
        "keygen",
        "Make a key pair to sign caches with: cosign.key, encrypted, and cosign.pub for policies.",
        "{program} keygen --output-key-prefix team",
    ),
    "exec": LazyCommand(
        "gkm_cli.cache.execute",
        "execute",
        "Run a program with a verified cache on this machine, without a cluster, with the exit code of the program.",
        "{program} exec --cache registry.example/team/caches/llama:1 --key cosign.pub -- python serve.py",
        {"allow_interspersed_args": False},
    ),
    "node": LazyCommand("gkm_cli.node", "app", "Show this machine."),
    "topology": LazyCommand(
        "gkm_cli.topology.commands",
        "app",
        "Find the tree of domains in labels, cables and switches, check it, and print it for schedulers.",
    ),
    "template": LazyCommand(
        "gkm_cli.template.command", "app", "Group templates: render offline, import from OSMO, print rights."
    ),
    "plan": LazyCommand(
        "gkm_cli.plan.command", "app", "Plan where the groups of a run go, and explain it; exit 3 if it does not fit."
    ),
    "why": LazyCommand(
        "gkm_cli.why.command",
        "why",
        "Say why pods have no cache, or why their kernels miss: each broken link, and what to do; exit 3 if one is.",
        "{program} why deploy/server -n ml-apps",
    ),
    "status": LazyCommand(
        "gkm_cli.status.command",
        "status",
        "Show the state of a cluster: nodes, caches, pods, domains, runs and problems; exit 1 if a part is not known.",
        "{program} status --watch",
    ),
    "doctor": LazyCommand(
        "gkm_cli.doctor.command",
        "doctor",
        "Find faults in a cluster, their causes and the next steps; exit 3 if there is a problem.",
        "{program} doctor --context production",
    ),
    "crds": LazyCommand(
        "gkm_cli.crds.command",
        "crds",
        "Print the CustomResourceDefinitions of this version, or apply them: before an upgrade, which Helm does not.",
        "{program} crds --apply --context production",
    ),
    "uninstall": LazyCommand(
        "gkm_cli.uninstall",
        "uninstall",
        "Check whether GKM can be removed from a cluster; exit 3 while pods need it. It makes no changes.",
        "{program} uninstall --check --context production",
    ),
    "version": LazyCommand(
        "gkm_cli.version",
        "version",
        "Print the version of this program, of Python and of the system.",
        "{program} version",
    ),
}
"""All commands, in the order of the help."""
app = typer.Typer(
    rich_markup_mode=None,
    name="gkm",
    cls=lazy_group(COMMANDS),
    help="Build, sign, verify and inspect GPU kernel caches as images, and run programs with them; show the GPUs of "
    "this machine; find the topology of a cluster; plan where runs of many GPUs go; render and import group templates; "
    "find faults in a cluster, or on the way of a cache to a pod.",
    no_args_is_help=True,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    # kubectl completes its plugins by a separate program: gkm_cli.completion.
    add_completion=PLUGIN.replace("-", " ") != PROGRAM,
    context_settings={"help_option_names": ["-h", "--help"]},
)
VersionOption = Annotated[bool, typer.Option("--version", help="Print the version and exit.")]
FAILURE, USAGE_ERROR = 1, 2
INTERRUPTED = 130
HINTS = {
    Remedy.LOG_IN: "check that the repository exists, and log in: gkm login {about} -u USER",
    Remedy.CHECK_LOGIN: "log in with an account that has access: gkm login {about} -u USER",
    Remedy.TRUST_OR_PLAIN_HTTP: "trust its certificate authority with --ca-file FILE, or speak http with --plain-http",
    Remedy.ADD_AUTH_HOST: "if it is right, add it to registries.hosts.{about}.authHosts in a file for --config",
    Remedy.NAME_HOST: "if it is right, name it under registries.hosts in a file for --config",
    Remedy.ALLOW_REGISTRY: "add it to registries.allow in the file of --config, or leave --config out",
    Remedy.RAISE_MAX_IMAGE: "if it is meant, raise store.maxImageBytes in a file for --config",
    Remedy.FREE_SPACE: "free space, and run the command again",
}
"""Remedies for a user of the command line: flags and commands. Processes in a cluster name configuration keys."""


@app.callback()
def gkm(context: typer.Context, *, version: VersionOption = False) -> None:
    """Print the version, or run the command."""
    if version:
        line(f"{PROGRAM} {installed_version()}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        context.fail("Missing command.")


def main() -> None:
    """Run the program; print one line, never a traceback, for an expected error."""
    open_closed()
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
    except TyperException as error:
        _exit_with_usage_error(error)
    except BrokenPipeError:  # the reader has closed the pipe; typer exits in the same way
        _discard()
        sys.exit(FAILURE)
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(INTERRUPTED)
    except TimedOut as error:
        _exit(error, EXIT_TIMED_OUT)
    except Exception as error:
        cause = error.__cause__ if isinstance(error, Undecided) else error
        if (expected := _line_and_code(cause)) is None:
            raise
        _exit(expected[0], expected[1] if cause is error else USAGE_ERROR)


def complete() -> None:
    """Print completions, as the variables of typer's completion ask for them."""
    os.environ["COLUMNS"] = "1000"  # typer folds descriptions at the width of the terminal: each is one line
    typer.main.get_command(app)(prog_name="gkm", complete_var="_GKM_COMPLETE", standalone_mode=False)


def _line_and_code(error: BaseException | None) -> tuple[object, int] | None:
    """Return the line and the exit code for an expected error; None for a defect."""
    match error:
        case UsageError():
            return error, USAGE_ERROR
        case GKMError():
            return _gkm_error(error), USAGE_ERROR if error.reason is Reason.INVALID_REFERENCE else FAILURE
        case CommandFailed():
            return error, FAILURE
        case OSError():
            # Without the error number, and in the usual order: what, why, what next.
            return _os_error(error), FAILURE
        case ValueError():
            # Only a command that has read a configuration has imported this; the help must not wait for it.
            from gkm.api.config import ConfigInvalid  # noqa: PLC0415

            return (error, FAILURE) if isinstance(error, ConfigInvalid) else None
    return None


def _flush() -> None:
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        _discard()
        what_next = "write elsewhere" if error.errno == errno.EBADF else "free space there, or write elsewhere"
        _exit(f"standard output: {error.strerror}; {what_next}", FAILURE)


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
    if error.errno in disk_space.FULL:
        return f"{subject or 'standard output or a file cannot be written: '}{error.strerror}; free space there"
    if error.errno == errno.EBADF and not subject:
        return f"standard output: {error.strerror}; write elsewhere"
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
    """Return the message in one line; "Value error, " is the prefix of the library that reads the options."""
    message = str(getattr(error, "format_message", lambda: str(error))())
    return "" if "\n" in message else message.replace("Value error, ", "")


def open_closed() -> None:
    """Open closed standard streams: input is empty, a write to output fails with EBADF, errors are lost."""
    for descriptor, flags in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        if _is_closed(descriptor):
            # The lowest free descriptor is this one: the loop has filled those below.
            os.open(os.devnull, flags)
    if sys.stdin is None:
        sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)


def _is_closed(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError as error:
        return error.errno == errno.EBADF
    return False


if __name__ == "__main__":
    main()
