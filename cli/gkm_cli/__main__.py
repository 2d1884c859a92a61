"""Start the program `gkm`: standard library only, until the check for its dependencies has passed."""

from gkm.hoststate.extras import needed


def main() -> None:
    """Run the program gkm."""
    with needed("gkm", "cli"):
        from gkm_cli.main import main as run  # noqa: PLC0415 -- its dependencies may be missing

        run()


if __name__ == "__main__":
    main()
