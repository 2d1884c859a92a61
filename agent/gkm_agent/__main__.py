"""The entry point of `gkm-agent`; standard library only, so that a missing dependency gives a readable message."""

from gkm.hoststate.extras import needed


def main() -> None:
    """Run the program."""
    with needed("gkm-agent", "agent"):
        from gkm_agent.main import main as run  # noqa: PLC0415 -- its dependencies may be missing

        run()


if __name__ == "__main__":
    main()
