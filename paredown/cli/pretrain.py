"""`paredown pretrain`: text in, an encoder out whose every layer has learned to answer."""

from __future__ import annotations

import dataclasses
import json
import logging
import math
import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from rich.table import Table
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer

from paredown.cli import _options as options
from paredown.cli._app import app, people, print_json, results
from paredown.cli._loading import check_source, first_line, is_bundle, load_any
from paredown.encoders.pretrained import config_facts, folder_of
from paredown.errors import BadBundle, BadSetting
from paredown.evaluation.cost import Cost
from paredown.methods.elastic_pretrain import ElasticPretrain, exit_losses
from paredown.methods.elastic_pretrain.words import start_words
from paredown.model import AdaptiveModel
from paredown.published import load_elasticbert, save_elasticbert
from paredown.registry import answers, methods
from paredown.system.saving import staged, write_json
from paredown.tasks.corpus import LABELS, Corpus
from paredown.training import train as run
from paredown.training.batches import Batches
from paredown.training.guard import freeze, seed_everything
from paredown.training.processes import Processes

MOST_HELD = 2048  # rows to look at before and after; more would tell nothing new
Option = typer.Option
log = logging.getLogger(__name__)


@app.command()
def pretrain(
    encoder: Annotated[str, typer.Argument(help="A Hugging Face folder or hub id; also what this command made.")],
    text: Annotated[
        list[str], typer.Argument(help="Text files, .gz too: a paragraph a line, blank between documents.")
    ],
    output: options.RunFolder,
    from_scratch: Annotated[bool, Option("--from-scratch", help="Of the encoder only the shape: new weights.")] = False,
    method: Annotated[str, Option("--method", "-m", help="Other settings, as elastic_pretrain:groups=all,sop=0")] = (
        "elastic_pretrain"
    ),
    epochs: Annotated[float | None, Option(help="Times over the text; default: as the method says.")] = None,
    lr: options.LearningRate = None,
    batch_size: Annotated[int | None, Option(help="Rows per step, over all processes, likewise.")] = None,
    max_length: Annotated[int, Option(help="Tokens per row.")] = 128,
    whole_words: Annotated[bool, Option("--whole-words", help="Hide all tokens of a word or none.")] = False,
    dev: Annotated[str | None, Option(help="Held-out text, to compare the exits before and after.")] = None,
    dev_share: Annotated[float, Option(help="Without --dev: the share of the rows that is held out.")] = 0.01,
    cache: Annotated[Path | None, Option(help="Where the token ids are kept; default: OUTPUT/corpus.")] = None,
    precision: options.Precision = "auto",
    seed: int = 42,
    compile: options.CompileLayers = False,
    checkpoint_every: Annotated[int, Option(help="Steps between two checkpoints.")] = 1000,
    tracker: options.Trackers = None,
    dry_run: options.DryRun = False,
    as_json: options.AsJson = False,
    config: options.Config = None,
) -> None:
    """Pre-train an encoder on text with an exit after every layer. The same command goes on with a stopped run."""
    given = {"epochs": epochs, "lr": lr, "batch_size": batch_size, "whole_words": whole_words or None}
    chosen = _settled(method, given)
    model = _model(encoder, from_scratch, seed)
    chosen.check(model)
    processes = Processes(output)
    with (
        tempfile.TemporaryDirectory()
        if dry_run and cache is None
        else nullcontext(cache or output / "corpus") as corpus
    ):
        with processes.accelerator.local_main_process_first():  # the others find what the first has read
            learnt, held = _rows(model, text, dev, dev_share, max_length, Path(corpus), seed)
        _grow(model, chosen, None if from_scratch else encoder, seed)
        if dry_run:
            return _foresee(model, chosen, learnt, as_json)
        about = {"encoder": encoder, "from_scratch": from_scratch, "seed": seed, "dev": held.digest}
        model.to(processes.device)
        if processes.writes:
            before = _before(output / "pretraining.json", about, model, held, chosen)
        report = run(
            model,
            chosen,
            learnt,
            output=output,
            seed=seed,
            precision=precision,
            compile=compile,
            checkpoint_every=checkpoint_every,
            trackers=tracker or (),
            progress=not as_json,
        )
    if not processes.writes:
        return
    after = exit_losses(model, held, method=chosen)
    write_json(output / "pretraining.json", {**about, "rows": len(learnt), "before": before, "after": after})
    folder = _publish(model, output)
    if as_json:
        made = {"bundle": str(output / "model"), "encoder": str(folder), "before": before, "after": after}
        return print_json({**made, **report.to_json()})
    results.print(_table(before, after))
    results.print(f"The bundle is in {output / 'model'}. To fine-tune: {folder}", highlight=False, soft_wrap=True)


def _settled(text: str, given: dict[str, Any]) -> ElasticPretrain:
    chosen = methods.parse(text)
    if not isinstance(chosen, ElasticPretrain):
        raise BadSetting(f"{chosen.name} does not learn from text alone; elastic_pretrain does")
    return dataclasses.replace(chosen, **{name: value for name, value in given.items() if value is not None})


def _model(source: str, from_scratch: bool, seed: int) -> AdaptiveModel:
    check_source(source)
    if from_scratch:
        return _fresh(source, seed)
    if config_facts(source, {}).get("model_type") == "elasticbert":
        return load_elasticbert(folder_of(source, {}), pretraining=True)
    if not is_bundle(source):
        return load_any(source, labels=list(LABELS))
    model = load_any(source)
    if model.labels != list(LABELS):
        raise BadSetting(
            f"{source} answers {', '.join(model.labels)}; pre-training goes on from an encoder, or from its own"
        )
    return model


def _fresh(source: str, seed: int) -> AdaptiveModel:
    """New weights in the shape of a known encoder, with its tokenizer."""
    labels = {"id2label": dict(enumerate(LABELS)), "label2id": {name: index for index, name in enumerate(LABELS)}}
    kind = answers.make("single_label")
    try:
        shape = AutoConfig.from_pretrained(source, trust_remote_code=False, problem_type=kind.problem_type, **labels)
        tokenizer = AutoTokenizer.from_pretrained(source, trust_remote_code=False)
    except (OSError, ValueError) as error:
        raise BadBundle(f"{source}: {first_line(error)}") from None
    seed_everything(seed, "from scratch")
    return AdaptiveModel(AutoModelForSequenceClassification.from_config(shape, dtype=torch.float32), tokenizer, kind)


def _grow(model: AdaptiveModel, method: ElasticPretrain, source: str | None, seed: int) -> None:
    """Heads as training would grow them; where the checkpoint can guess words itself, they begin with that."""
    begun = model.head is not None
    seed_everything(seed, "grow", 0)
    method.grow(model)
    if not begun and source is not None and start_words(model, source):
        log.info("every exit begins with the checkpoint's own head for hidden words")


def _rows(
    model: AdaptiveModel, text: list[str], dev: str | None, share: float, max_length: int, cache: Path, seed: int
) -> tuple[Corpus, Corpus]:
    if max_length > model.tokenizer.model_max_length:
        raise BadSetting(f"the encoder takes {model.tokenizer.model_max_length} tokens; --max-length is {max_length}")
    learnt = Corpus.read(text, model.tokenizer, max_length, cache=cache, seed=seed)
    if dev is None:
        learnt, held = learnt.split(share)
    else:
        held = Corpus.read([dev], model.tokenizer, max_length, cache=cache, seed=seed)
    return learnt, held[:: math.ceil(len(held) / MOST_HELD)]


def _before(path: Path, about: dict[str, Any], model: AdaptiveModel, held: Corpus, method: ElasticPretrain) -> Any:
    """The losses of the model as it came; a run that goes on has them on file."""
    try:
        known = json.loads(path.read_text(encoding="utf-8"))
        if all(known[name] == value for name, value in about.items()):
            return {int(layers): found for layers, found in known["before"].items()}
    except (OSError, ValueError, KeyError):
        pass
    before = exit_losses(model, held, method=method)
    write_json(path, {**about, "before": before})
    return before


def _publish(model: AdaptiveModel, output: Path) -> Path:
    """A folder to fine-tune from: ElasticBERT's layout with a pooler per layer; other families' own, with one."""
    try:
        save_elasticbert(model, output / "elasticbert")
        return output / "elasticbert"
    except BadSetting as error:
        people.print(
            f"Written as a plain {model.walk.family}, without the poolers of the exits: {error}", highlight=False
        )
    head: Any = model.heads[str(model.depth[-1])]
    if model.walk.pooler is not None:
        model.walk.pooler.load_state_dict(head.dense.state_dict())
    with staged(output / "encoder") as fresh:
        model.stock.save_pretrained(fresh)
        model.tokenizer.save_pretrained(fresh)
    return output / "encoder"


def _table(before: dict[int, Any], after: dict[int, Any]) -> Table:
    columns = ("loss of hidden words, before", "after", "order right, before", "after")
    table = Table("layers run", *columns, title="what every layer knows of held-out text", title_justify="left")
    for layers, now in after.items():
        then = before[layers]
        words, orders = (
            (f"{found['mlm']:.3f}" for found in (then, now)),
            (f"{found['sop_accuracy']:.1%}" for found in (then, now)),
        )
        table.add_row(str(layers), *words, *orders)
    return table


def _foresee(model: AdaptiveModel, method: ElasticPretrain, rows: Corpus, as_json: bool) -> None:
    """What would run: steps, what they train, and the work in FLOPs."""
    (stage,) = method.stages(model)
    cost, lengths = Cost.of(model), torch.from_numpy(rows.lengths.astype(np.int64))
    vocabulary, size = model.stock.get_input_embeddings().weight.shape
    turns = method.turns(model)
    guessed = 2 * size * (model.walk.width + vocabulary) * sum(map(len, turns)) / len(turns)  # FLOPs per hidden word
    tokens = int(lengths.sum())
    heads = sum(int(work(lengths).sum()) for work in cost.heads.values())
    forward = int(cost.full(lengths).sum()) + heads + method.mask_share * tokens * guessed
    found = {
        "rows": len(rows),
        "tokens": tokens,
        "steps": Batches(rows.lengths, stage.batch_size, (0,)).steps(stage.epochs),
        "batch_size": stage.batch_size,
        "trained_parameters": sum(parameter.numel() for parameter in freeze(model, stage).values()),
        "flops": int(3 * forward * stage.epochs),  # a backward pass costs two forward passes
    }
    if as_json:
        return print_json(found)
    table = Table("rows", "tokens", "steps", "rows per step", "trained parameters", "TFLOPs")
    *numbers, flops = found.values()
    table.add_row(*[f"{number:,}" for number in numbers], f"{flops / 1e12:,.1f}")
    results.print(table, "Nothing was run.")
