"""The command line: `paredown`, or `python -m paredown`."""

import sys


def run() -> None:
    from paredown.cli import main

    sys.exit(main())


if __name__ == "__main__":
    run()
