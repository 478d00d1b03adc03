"""The command line: `paredown`, or `python -m paredown`."""

import os
import sys


def run() -> None:
    # Whoever asks whether there is a GPU must not begin to use it: processes that are forked then could not.
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    try:
        from paredown.cli import main

        code = main()
    except KeyboardInterrupt:  # while importing
        code = 130
    sys.exit(code)


if __name__ == "__main__":
    run()
