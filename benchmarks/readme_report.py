"""The figures of the README: the answers of the pages, and a short table of time."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any

from benchmarks import auto_report, elue_report, tokens_report
from benchmarks.pages import ROOT, Document, committed, put, table
from benchmarks.runtime_report import BATCHES, CPUS, TEXTS
from paredown.evaluation.elue import Standing

PAGE = ROOT / "README.md"
VECTORS = {"amx_int8": "AMX", "avx512_vnni": "AVX512-VNNI", "avx2": "AVX2"}  # the best that a CPU has
CPU_WAYS = ("packed int8, exits", "packed int8, full depth", "packed fp32, exits")
CPU_WAYS += ("ONNX Runtime int8, sorted", "OpenVINO int8, sorted")  # the others' whole models
CPU_CASES = {"8 x 128": "8 x 128 tokens", "SST-2 lengths, 32 rows": "SST-2 lengths, 32 rows in random order"}


def documents() -> Iterator[Document]:
    yield PAGE, lambda text: put(text, **slots())


def slots() -> dict[str, str]:
    elue = committed("elue")
    return {
        "time": f"{gpu(committed('gpu'))}\n\n{cpu([committed(name) for name in CPUS])}",
        "default": auto_report.answer(),
        "tokens": tokens_report.answer(),
        "benchmark": elue_report.answer(elue, Standing.from_json(elue)),
    }


def gpu(found: dict[str, Any]) -> str:
    layers = statistics.mean(found[f"{texts}, offline"]["mean layers"] for texts in TEXTS)
    lines = []
    for texts in TEXTS:
        offline = found[f"{texts}, offline"]
        stock = max(found[f"{texts}, batch {batch}"]["transformers"] for batch in BATCHES)
        speeds = [f"{offline['exits']:,.0f}", f"{offline['full depth']:,.0f}", f"{stock:,.0f} at its best batch"]
        lines.append([f"{_name(found)}, bfloat16, {texts} texts/s, offline", *speeds])
    alone = found[f"{TEXTS[0]}, batch 1"]
    ways = ("exits", "full depth", "transformers")
    lines.append([f"{_name(found)}, one text at a time, texts/s", *(f"{alone[way]:,.0f}" for way in ways)])
    return table(["", f"exits, mean {layers:.1f} of 12 layers", "full depth", "transformers, padded, sorted"], lines)


def _name(found: dict[str, Any]) -> str:
    return str(found["device"]).removeprefix("NVIDIA ")


def cpu(results: list[dict[str, Any]]) -> str:
    kinds = [next(name for flag, name in VECTORS.items() if flag in its["flags"]) for its in results]
    lines = [
        [
            f"{name}: {' / '.join(kinds)}",
            *(" / ".join(_times(its[case], way) for its in results) for way in CPU_WAYS),
        ]
        for case, name in CPU_CASES.items()
    ]
    ways = [way.removeprefix("packed ").removesuffix(", full depth").removesuffix(", sorted") for way in CPU_WAYS]
    return table(["one CPU thread, mean 4 of 12 layers, times faster than transformers eager", *ways], lines)


def _times(found: dict[str, float], way: str) -> str:
    """Of int8 with the scales that training fixes, where that was measured apart."""
    times = found.get(way.replace("int8", "int8 with fixed scales"), found.get(way))
    return "-" if times is None else f"{times:.1f}"
