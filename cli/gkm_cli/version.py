"""`gkm version`: the versions of this program, its interpreter and its system."""

import platform

from gkm.hoststate.command_line import installed_version

from gkm_cli.output import PROGRAM, Output, OutputOption, line, show


def version(output: OutputOption = Output.TABLE) -> None:
    """Print the version of this program, of Python and of the system."""
    result = {
        "version": installed_version(),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
    }
    show(result, output, lambda: line(f"{PROGRAM} {result['version']}, Python {result['python']}, {result['system']}"))
