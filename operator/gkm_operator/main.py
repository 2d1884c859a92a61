"""`gkm-operator`: two commands, one process each; `gkm-operator --check-config --config FILE` needs neither."""

import argparse
import logging
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Event

from gkm.api import config as configuration
from gkm.api import msgspec_warmup as first_use
from gkm.api.config import Config, ConfigInvalid
from gkm.hoststate import logs
from gkm.hoststate.command_line import Parser, print_line
from gkm.probes import addresses

from gkm_operator.admission import options as admission_options

_LOG = logging.getLogger(__name__)

FAILED, MISUSED = 1, 2
"""Exit codes: something outside is wrong; the command line or the configuration is."""

Run = Callable[[argparse.Namespace, Config, Event], int]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = _parser()
    arguments = parser.parse_args(_with_command(sys.argv[1:] if argv is None else argv))
    if arguments.check_config:
        return _check(arguments.config)
    logs.configure(arguments.log_level)
    try:
        config = configuration.load(arguments.config)
    except ConfigInvalid as error:
        print_line(f"gkm-operator: {error}", error=True)
        return MISUSED
    if arguments.command == "admission" and (problem := admission_options.problem(arguments)):
        parser.error(problem)
    stop = Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        run = _command(arguments.command)
        first_use.warm_up()
        return run(arguments, config, stop)
    except ModuleNotFoundError:
        raise  # who started us says what to install
    except Exception as error:  # noqa: BLE001 -- whatever it was, the process ends with it
        # The last line of a process that ends: one that a person can act on; the traceback is for a bug report.
        _LOG.debug("ended", exc_info=True)
        _LOG.critical("ended", extra=logs.fields(command=arguments.command, error=type(error).__name__, why=str(error)))
        return FAILED


def _check(path: Path | None) -> int:
    """Print what is wrong with a configuration; return the exit code."""
    from gkm_operator import config_check  # noqa: PLC0415 -- no process that serves needs it

    try:
        checked = config_check.check(path)
    except ConfigInvalid as error:
        print_line(f"gkm-operator: {error}", error=True)
        return MISUSED
    for problem in checked.problems:
        print_line(f"gkm-operator: {problem}", error=True)
    if checked.problems:
        return MISUSED
    for absent in checked.absent:
        print_line(f"gkm-operator: not checked, because it is not on this machine: {absent}", error=True)
    print_line("gkm-operator: the configuration is good")
    return 0


def _command(name: str) -> Run:
    """Return what runs a command. Each loads its own half only: the two never share an interpreter."""
    if name == "admission":
        from gkm_operator.admission.command import run as admission  # noqa: PLC0415

        return admission
    from gkm_operator.controllers import run as controllers  # noqa: PLC0415

    return controllers


def _with_command(words: Sequence[str]) -> Sequence[str]:
    """Return a command line with its command: a file is checked for both at once, so it need not be named."""
    alone = "--check-config" in words and words[0].startswith("-")
    return ["controllers", *words] if alone else words


def _parser() -> Parser:
    parser = Parser(prog="gkm-operator", description=__doc__)
    parser.add_version()
    commands = parser.add_subparsers(dest="command", required=True)
    for name, text, add_flags in (
        ("admission", "serve the validating webhook", admission_options.add_flags),
        ("controllers", "reconcile caches and runs", _add_controllers_flags),
    ):
        command = commands.add_parser(name, help=text, description=text)
        command.add_flag(
            "--config", "the configuration; without it, nothing unsigned passes", metavar="FILE", type=Path
        )
        command.add_argument("--check-config", action="store_true", help="read the configuration, say so, and end")
        command.add_log_level()
        command.add_argument("--kubeconfig", help="default: $KUBECONFIG, the pod's service account, ~/.kube/config")
        command.add_argument("--context", help="the context in it")
        add_flags(command)
    return parser


def _add_controllers_flags(parser: Parser) -> None:
    parser.add_flag("--health", "host:port of /healthz and /readyz", default=":8081", type=addresses.parse)
    parser.add_flag("--lease", "Lease of the leader, in GKM's namespace", default="gkm-controllers")
    parser.add_flag(
        "--identity",
        "name of this replica; replicas that run at once need different ones, such as their pods' names",
        default=socket.gethostname(),
    )


if __name__ == "__main__":
    sys.exit(main())
