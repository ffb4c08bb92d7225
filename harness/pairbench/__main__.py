"""The command `pairbench`, and `python -m pairbench`."""

import signal


def main() -> None:
    """Load the command line and run it; Ctrl-C before it is loaded ends the process without a traceback."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from pairbench.cli.app import main as run

    run()


if __name__ == "__main__":
    main()
