"""Writes the figures of docs/runtime.md from benchmarks/gpu.json, cpu*.json and real_*.json, and their picture.

python -m benchmarks.runtime_report
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.pages import DOCS, filled, put, table

HERE, PAGE = Path(__file__).parent, DOCS / "runtime.md"
BATCHES = (1, 8, 32, 128, 512, 2048)
TEXTS = ("SST-2-like", "IMDb-like")
STAGES = [f"gte-small, SST-2-like, batch 64, {stage}" for stage in ("finetune", "self_distill", "joint")]
PLAIN, USUAL, COMPILED = "32 bits", "bf16, no waiting, graphs", "bf16, no waiting, graphs, compiled"
RUNTIMES = ("torch", "transformers", "onnxruntime", "openvino", "nncf", "ctranslate2")
WAYS = ("transformers", "full depth", "exits", "exits, pooled")


def gpu(found: dict[str, Any]) -> str:
    lines = []
    for texts in TEXTS:
        for batch in BATCHES:
            speeds = found[f"{texts}, batch {batch}"]
            gain = speeds["exits, pooled"] / speeds["transformers"]
            lines.append([f"{texts}, {batch}", *(f"{speeds[way]:,.0f}" for way in WAYS), f"{gain:.1f}"])
    offline = [
        f"{texts}: {facts['exits']:,.0f} texts/s with exits after {facts['mean layers']:.2f} of 12 layers, "
        f"{facts['full depth']:,.0f} at full depth ({facts['full depth TFLOP/s of linear maps']:.0f} TFLOP/s in linear "
        f"maps alone), {facts['efficiency']:.2f} of what the layers saved would give"
        for texts, facts in ((texts, found[f"{texts}, offline"]) for texts in TEXTS)
    ]
    dropped = found["IMDb-like at 512, tokens dropped"]
    sizes = {rows: found[f"SST-2-like, {rows} texts"] for rows in (8192, 32768, 131072, 524288)}
    grown = ", ".join(f"{speed:,.0f} with {rows:,}" for rows, speed in sizes.items())
    return "\n\n".join(
        [
            table(["texts, batch", *WAYS, "pooled / transformers"], lines),
            filled(f"Offline: {'; '.join(offline)}."),
            filled(
                f"Half of 512 tokens dropped before the second layer, half of the rest before the seventh: "
                f"{dropped['faster']:.2f} times faster for {dropped['fewer token-layers']:.2f} times less work."
            ),
            filled(f"Texts per second of a stream of SST-2-like texts by its length: {grown}."),
            filled(
                f"{found['device']}, bfloat16, torch {found['torch']}, {found['head']} heads: `{found['command']}`."
            ),
        ]
    )


def cpu(results: list[dict[str, Any]]) -> str:
    parts = []
    for found in results:
        cases = [name for name, value in found.items() if isinstance(value, dict)]
        ways = sorted({way for case in cases for way in found[case]} - {"transformers eager"})
        lines = [[way, *(f"{found[case][way]:.2f}" for case in cases)] for way in ways]
        about = f"{found['cpu']} ({', '.join(found['flags'])}), int8 by {found['int8 kernel']}, torch {found['torch']}"
        parts += [
            table(["times faster than transformers eager", *cases], lines),
            filled(f"{about}: `{found['command']}`."),
        ]
    return "\n\n".join(parts)


def predict(found: dict[str, Any]) -> str:
    cases = {name: facts for name, facts in found.items() if isinstance(facts, dict)}
    lines = [
        [
            name.removesuffix(" processes"),
            f"{facts['texts/s']:,.0f}",
            f"{facts['seconds with its start']:.0f}",
            f"{facts['share of time the GPU works']:.0%}",
        ]
        for name, facts in cases.items()
    ]
    mean = next(iter(cases.values()))["mean layers"]
    about = f"{found['gpu']} and {found['cores']} cores ({found['cpu']}), bfloat16, {mean:.1f} of 12 layers on average"
    head = ["encoder, rows, processes", "texts/s", "seconds with all starts", "time in which the GPU works"]
    made_by = filled(f"{about}: `{found['command']}`.")
    return f"{table(head, lines)}\n\n{made_by}"


def training(found: dict[str, Any]) -> str:
    """Milliseconds of a step: before, and with all that is on by itself."""
    before, now = found["before"], found["this tree"]
    lines = []
    for stage in STAGES:
        times = [now.get(f"{stage}: {way}", {}).get("seconds per step") for way in (PLAIN, "bf16", USUAL, COMPILED)]
        times.insert(0, before[f"{stage}: {PLAIN}"].get("seconds per step"))
        busy = now[f"{stage}: {USUAL}"]["share of time the GPU is busy"]
        lines.append([stage, *(f"{1000 * time:.1f}" if time else "" for time in times), f"{busy:.0%}"])
    head = ["milliseconds of a step", f"{PLAIN}, before", PLAIN, "bf16", "bf16 and graphs, as it is", "compiled too"]
    about = f"{found['device']}, random weights of that size, torch {found['torch']}: `{found['command']}`."
    return f"{table([*head, 'GPU busy'], lines)}\n\n{filled(about)}"


def real(results: dict[str, dict[str, Any]]) -> str:
    """Trained bundles, by their names."""
    parts = []
    for name, found in results.items():
        lines = [
            [
                way,
                f"{facts['texts_per_second']:,.1f}",
                f"{facts['times_transformers']:.2f}",
                f"{100 * facts['score']:.2f} %",
                f"{facts['points_lost']:.2f}" + ("" if facts["counts"] else " (too many)"),
                f"{facts['efficiency']:.2f} of {facts['fewer_flops']:.2f}" if "efficiency" in facts else "",
            ]
            for way, facts in found["ways"].items()
        ]
        head = [f"{name}, {found['rows']} rows", "texts/s", "x transformers", "accuracy", "points lost", "efficiency"]
        versions = ", ".join(f"{package} {found[package]}" for package in RUNTIMES if package in found)
        about = f"""{found["device"]} ({", ".join(found["flags"])}), batches of {found["batch_size"]}, {found["tokens"]}
            tokens on average, plan: {found["plan"]}, our int8 by {found["int8_kernel"]}, {versions}:
            `{found["command"]}`."""
        missing = [f"{way} was not measured: {reason}." for way, reason in found["not_measured"].items()]
        parts += [table(head, lines), filled(" ".join([about, *missing]))]
    return "\n\n".join(parts)


def picture(found: dict[str, Any], path: Path) -> None:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for axis, texts in zip(axes, TEXTS, strict=True):
        for way in WAYS:
            axis.plot(BATCHES, [found[f"{texts}, batch {batch}"][way] for batch in BATCHES], marker="o", label=way)
        axis.set(xscale="log", yscale="log", title=texts, xlabel="texts in a batch", ylabel="texts per second")
        axis.set_xticks(BATCHES, [str(batch) for batch in BATCHES])
        axis.grid(alpha=0.3)
    axes[0].legend()
    figure.savefig(path, dpi=110)


def main() -> None:
    found = json.loads((HERE / "gpu.json").read_text())
    results = [json.loads(path.read_text()) for path in sorted(HERE.glob("cpu*.json")) if path.stem != "cpu_kernels"]
    made = {"predict": predict, "training": training}
    others = {name: of(json.loads((HERE / f"{name}.json").read_text())) for name, of in made.items()}
    trained = {
        path.stem.removeprefix("real_"): json.loads(path.read_text()) for path in sorted(HERE.glob("real_*.json"))
    }
    slots = {"gpu": gpu(found), "cpu": cpu(results), "real": real(trained), **others}
    PAGE.write_text(put(PAGE.read_text(encoding="utf-8"), **slots), encoding="utf-8")
    picture(found, DOCS / "runtime.png")


if __name__ == "__main__":
    main()
