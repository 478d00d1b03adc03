"""The figures of docs/runtime.md and their picture, from the results of the scripts that measure time; also those of
docs/engine.md and docs/cluster.md."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.pages import DOCS, Document, committed, filled, put, table

PAGE = DOCS / "runtime.md"
CPUS, REAL, SIZES = ("cpu", "cpu_vnni", "cpu_amx"), ("sst2", "imdb"), ("size", "size_amd")
BATCHES = (1, 8, 32, 128, 512, 2048)
TEXTS = ("SST-2-like", "IMDb-like")
STAGES = [f"gte-small, SST-2-like, batch 64, {stage}" for stage in ("finetune", "self_distill", "joint")]
PLAIN, USUAL, COMPILED = "32 bits", "bf16, no waiting, graphs", "bf16, no waiting, graphs, compiled"
WITH_CUDNN, WITHOUT_CUDNN = "bf16", "bf16, no attention by cuDNN"
WIDTHS = (PLAIN, "bf16")
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
        f"{facts['full depth']:,.0f} at full depth ({facts['full depth TFLOP/s']:.0f} TFLOP/s), "
        f"{facts['efficiency']:.2f} of what the layers saved would give"
        for texts, facts in ((texts, found[f"{texts}, offline"]) for texts in TEXTS)
    ]
    dropped = found["IMDb-like at 512, tokens dropped"]
    sizes = {rows: found[f"SST-2-like, {rows} texts"] for rows in (8192, 32768, 131072, 524288)}
    grown = ", ".join(f"{speed:,.0f} with {rows:,}" for rows, speed in sizes.items())
    short = [found[f"{TEXTS[0]}, batch {batch}"] for batch in BATCHES if batch <= 128]
    longer = [100 * (speeds["full depth"] / speeds["exits"] - 1) for speeds in short]
    return "\n\n".join(
        [
            table(["texts, batch", *WAYS, "pooled / transformers"], lines),
            filled(
                f"A single batch of 1 to 128 short texts takes {min(longer):.0f} to {max(longer):.0f} % longer with "
                f"exits than at full depth, if it shares no pool."
            ),
            filled(f"Offline: {'; '.join(offline)}."),
            filled(
                f"Half of 512 tokens dropped before the second layer, half of the rest before the seventh: "
                f"{dropped['faster']:.2f} times faster for {dropped['fewer token-layers']:.2f} times less work."
            ),
            filled(f"Texts per second of a stream of SST-2-like texts by its length: {grown}. {_earlier(found)}"),
            filled(
                f"{found['device']}, bfloat16, torch {found['torch']}, {found['head']} heads: `{found['command']}`."
            ),
        ]
    )


def _earlier(found: dict[str, Any]) -> str:
    """Said of the figures that the last run did not make again."""
    commit = found.get("of an earlier run", {}).get("commit")
    return f"(Tokens dropped, and this stream: of an earlier run, at {commit}.)" if commit else ""


def cpu(results: list[dict[str, Any]]) -> str:
    parts = []
    for found in results:
        cases = [name for name, value in found.items() if isinstance(value, dict)]
        ways = sorted({way for case in cases for way in found[case]} - {"transformers eager"})
        ways.sort(key=lambda way: way.endswith("efficiency"))
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


def size(found: dict[str, Any]) -> str:
    """By the number of texts."""
    cases = {int(name.split()[0]): facts for name, facts in found.items() if isinstance(facts, dict)}
    lines = [
        [f"{number:,}", f"{facts['microseconds a text']:.0f}", f"{facts['MB']:,}"] for number, facts in cases.items()
    ]
    times = [facts["microseconds a text"] for facts in cases.values()]
    about = f"""A text costs {100 * (max(times) / min(times) - 1):.0f} % more where it costs the most.
        {found["device"]}, one thread, CPU time without the start, a tiny encoder, torch {found["torch"]}:
        `{found["command"]}`."""
    return f"{table(['texts', 'µs a text', 'MB at most'], lines)}\n\n{filled(about)}"


def training(found: dict[str, Any]) -> str:
    """Milliseconds of a step: before, and with all that is on by itself."""
    before, now = found["before"], found["this tree"]
    lines = []
    for stage in STAGES:
        ways = (PLAIN, WITH_CUDNN, WITHOUT_CUDNN, USUAL, COMPILED)
        times = [now.get(f"{stage}: {way}", {}).get("seconds per step") for way in ways]
        times.insert(0, before[f"{stage}: {PLAIN}"].get("seconds per step"))
        busy = now[f"{stage}: {USUAL}"]["share of time the GPU is busy"]
        lines.append([stage, *(f"{1000 * time:.1f}" if time else "" for time in times), f"{busy:.0%}"])
    head = ["milliseconds of a step", f"{PLAIN}, before", PLAIN, "bf16, attention by cuDNN too", "bf16 without"]
    head += ["bf16 and graphs, as it is", "compiled too"]
    about = f"{found['device']}, random weights of that size, torch {found['torch']}: `{found['command']}`."
    return f"{table([*head, 'GPU busy'], lines)}\n\n{filled(about)}"


def training_cpu(found: dict[str, Any]) -> str:
    """Milliseconds of a step on a CPU: before, and in both precisions."""
    before, now = found["before"], found["this tree"]
    lines = []
    for name in [name.removesuffix(f": {PLAIN}") for name in now if name.endswith(f": {PLAIN}")]:
        times = [
            its["seconds per step"] for its in (before[f"{name}: {PLAIN}"], *(now[f"{name}: {way}"] for way in WIDTHS))
        ]
        lines.append([name, *(f"{1000 * time:,.0f}" for time in times), f"{times[0] / times[-1]:.1f}"])
    head = ["milliseconds of a step", f"{PLAIN}, before", *WIDTHS, "times faster"]
    about = f"""{found["device"]} ({", ".join(found["flags"])}), one thread, process time, random weights of that size,
        torch {found["torch"]}: `{found["command"]}`."""
    return f"{table(head, lines)}\n\n{filled(about)}"


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
        if (same := found.get("int8_labels_as_in_32_bits")) is not None:
            about += f" At full depth {100 * same:.2f} % of our int8's labels are those of 32 bits."
        missing = [f"{way} was not measured: {reason}." for way, reason in found["not_measured"].items()]
        parts += [table(head, lines), filled(" ".join([about, *missing]))]
    return "\n\n".join(parts)


def overhead(found: dict[str, Any]) -> str:
    """Of an answer, beside the bare model."""
    trees = [name for name in ("before", "now") if name in found]
    lines = []
    for plan, text in (("exits", "two heads asked, nobody leaves"), ("full_depth", "no exit rule")):
        for what, unit in (("python_calls", "Python calls"), ("microseconds", "µs")):
            more = [found[tree][what][plan] - found[tree][what]["stock"] for tree in trees]
            lines.append([text, unit, *(f"{value:,.0f}" for value in more)])
    beside = ", ".join(f"{one['ratio']:.3f} at {one['tokens']} tokens" for one in found["full_depth"])
    text = f"""What an answer of one row through three layers costs beyond the bare model (CPU with
        {" ".join(found["flags"])}, one thread, process time; before: one loop for each use, patched modules):"""
    after = f"A 12x384 encoder at full depth takes this many times transformers' own forward, batch 1: {beside}."
    return f"{filled(text)}\n\n{table(['plan', 'beyond the model', *trees], lines)}\n\n{filled(after)}"


def cluster(result: dict[str, Any]) -> str:
    """Runs on Ray beside a local one."""
    runs, head = result["runs"], ["run", "seconds", "with its start", "rows", "lost", "twice", "the local file"]
    same = {name: run["sha256 of the output"] == runs["local"]["sha256 of the output"] for name, run in runs.items()}
    lines = [
        [name, f"{run['seconds']:.1f}", f"{run['seconds with its start']:.1f}", f"{run['rows']:,}"]
        + [str(run["rows lost"]), str(run["rows twice"]), "to the byte" if same[name] else "**differs**"]
        for name, run in runs.items()
    ]
    about = f"""{result["rows"]:,} rows in {result["shards"]} shards, {result["cpu"]}, {result["cores"]} cores that
        others used too, Ray {result["ray"]}, torch {result["torch"]}; seconds of a run on Ray include its start and
        that of its workers: `{result["command"]}`."""
    return f"{table(head, lines)}\n\n{filled(about)}"


def replayed(found: dict[str, Any]) -> str:
    """How long it takes to replay every threshold of every rule."""
    points = found["rules"] * found["thresholds_of_each"]
    return filled(
        f"""{points:,} points ({found["rules"]} rules × {found["thresholds_of_each"]:,} thresholds, {found["rows"]}
        rows, {found["heads"]} heads) take {found["seconds"]:.2f} s on one CPU core: `{found["command"]}`."""
    )


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


def documents() -> Iterator[Document]:
    slots = {"gpu": gpu(committed("gpu")), "cpu": cpu([committed(name) for name in CPUS])}
    slots |= {"predict": predict(committed("predict")), "training": training(committed("training"))}
    slots["training_cpu"] = training_cpu(committed("training_cpu"))
    slots["size"] = "\n\n".join(size(committed(name)) for name in SIZES)
    slots["real"] = real({name: committed(f"real_{name}") for name in REAL})
    yield PAGE, lambda text: put(text, **slots)
    yield DOCS / "engine.md", lambda text: put(text, figures=overhead(committed("overhead")))
    yield DOCS / "evaluation.md", lambda text: put(text, replay=replayed(committed("replay")))
    yield DOCS / "cluster.md", lambda text: put(text, figures=cluster(committed("cluster")))


def pictures() -> None:
    picture(committed("gpu"), DOCS / "runtime.png")
