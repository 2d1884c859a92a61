"""Help texts do not wait for the imports of commands, and say what the commands say."""

import subprocess
import sys

import pytest
from gkm_cli.cache.commands import COMMANDS as CACHE
from gkm_cli.lazy_commands import LazyCommand
from gkm_cli.main import COMMANDS
from support.cli.command import gkm

LARGE = (
    "cel_expr_python",
    "cryptography",
    "highspy",
    "kubernetes",
    "msgspec",
    "numpy",
    "pydantic",
    "re2",
    "sigstore",
    "urllib3",
    "yaml",
)


@pytest.mark.parametrize("arguments", [["--help"], ["cache", "--help"], ["--version"]])
def test_help_imports_no_library_of_a_command(arguments: list[str]) -> None:
    code = (
        f"import sys; sys.argv = ['gkm', *{arguments!r}]\n"
        "from gkm_cli.main import main\n"
        "try: main()\n"
        f"finally: print(sorted(set(sys.modules) & set({LARGE!r})), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"


@pytest.mark.parametrize("arguments", [["cache", "list"], ["doctor"], ["why", "pod"], ["status"]])
def test_a_command_without_a_kubeconfig_imports_no_client(arguments: list[str]) -> None:
    code = (
        f"import sys; sys.argv = ['gkm', *{arguments!r}, '--kubeconfig', '/nowhere']\n"
        "from gkm_cli.main import main\n"
        "try: main()\n"
        "finally: print(sorted(set(sys.modules) & {'kubernetes', 'pydantic'}), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    error, imported = done.stderr.splitlines()
    assert (done.returncode, imported) == (1, "[]")
    assert error.startswith("error: the kubeconfig cannot be used: /nowhere: No such file or directory; ")


@pytest.mark.parametrize("table", [COMMANDS, CACHE], ids=["gkm", "gkm cache"])
def test_the_table_says_what_the_command_says(table: dict[str, LazyCommand]) -> None:
    loaded = {name: lazy.load(name) for name, lazy in table.items()}
    documented = {name: command.callback.__doc__ for name, command in loaded.items() if command.callback}
    groups = {name: command.help for name, command in loaded.items() if hasattr(command, "commands")}
    assert {name: lazy.help for name, lazy in table.items()} == {
        name: (groups.get(name) or documented[name] or "").partition("\n")[0] for name in table
    }


def test_every_command_has_an_example_of_its_own_name() -> None:
    for words, table in ((["gkm"], COMMANDS), (["gkm", "cache"], CACHE)):
        for name, lazy in table.items():
            command = lazy.load(name)
            if not hasattr(command, "commands"):
                assert " ".join([*words, name]) in command.epilog


def test_a_command_that_is_spelled_wrong_gets_a_suggestion() -> None:
    done = gkm("cache", "verfy")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "error: No such command 'verfy'. Did you mean 'verify'?; --help lists commands and options\n"
    )
