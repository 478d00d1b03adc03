"""The command line: `paredown`, or `python -m paredown`."""

import sys


def run() -> None:
    try:
        from paredown.cli import main

        code = main()
    except KeyboardInterrupt:  # while importing
        code = 130
    sys.exit(code)


if __name__ == "__main__":
    run()
