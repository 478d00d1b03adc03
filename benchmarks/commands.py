"""What scripts that measure share: the command as a reader can repeat it, and many runs side by side."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path


def repeatable_command(script: str) -> str:
    """The command as a reader can repeat it: folders and absolute paths by their last part, phrases quoted."""

    def shown(word: str) -> str:
        word = Path(word).absolute().name if word.startswith("/") or Path(word).is_dir() else word
        return f'"{word}"' if " " in word else word

    return " ".join(["python", script, *map(shown, sys.argv[1:])])


def run_all(jobs: list[dict], command: list[str], at_once: int) -> Iterator[dict]:
    """Run the jobs, several at a time, each as `command` in its own process; their results as they come."""
    with tempfile.TemporaryDirectory() as folder:
        waiting, running = list(enumerate(jobs)), {}
        while waiting or running:
            while len(running) < at_once and waiting:
                number, job = waiting.pop(0)
                out = Path(folder) / f"{number}.json"
                words = [sys.executable, *command, "--out", str(out), "--job", json.dumps(job)]
                with open(out.with_suffix(".log"), "w") as log:
                    running[subprocess.Popen(words, stdout=log, stderr=subprocess.STDOUT)] = (job, out)
            time.sleep(0.5)
            for process in [process for process in running if process.poll() is not None]:
                job, out = running.pop(process)
                name = f"{job['task']} {job['label']} seed {job['seed']}"
                if process.returncode:
                    print(f"FAILED {name}\n" + out.with_suffix(".log").read_text()[-3000:], flush=True)
                    continue
                result = json.loads(out.read_text())
                scores = [round(100 * score, 1) for score in result["per_layer"].values()]
                print(f"{name}: {result['seconds']:.0f} s, {scores}", flush=True)
                yield result
