"""Starts the program `gkm`; standard library only until it is known that its dependencies are there."""

from gkm.hoststate.extras import needed


def main() -> None:
    """Run the program."""
    with needed("gkm", "cli"):
        from gkm_cli.main import main as run  # noqa: PLC0415 -- may be missing what it imports

        run()


if __name__ == "__main__":
    main()
