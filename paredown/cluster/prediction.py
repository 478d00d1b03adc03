"""Predictions of a Ray dataset, from any source that Ray Data reads to any sink that it writes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paredown.answers._columns import Columns
from paredown.cluster.session import import_ray
from paredown.cluster.workers import PredictorSettings, Workers, nodes_of
from paredown.errors import BadInput
from paredown.model import AdaptiveModel
from paredown.plan import Plan
from paredown.runtime.predictor import Predictor
from paredown.tasks._incoming import columns_to_read, incoming_question, incoming_row

if TYPE_CHECKING:
    import pyarrow

ROWS = {"cpu": 1024, "cuda": 32_768}  # that a worker answers at once


def predict(
    dataset: Any,
    bundle: str | Path,
    *,
    plan: Plan | dict[str, Any] | str | None = None,
    speed: float | None = None,
    batch_size: int | None = None,
    max_length: int | None = None,
    text_column: str | None = None,
    pair_column: str | None = None,
    keep_columns: Sequence[str] = (),
    skip_bad_rows: bool = False,
    workers: int | None = None,
    device: str = "auto",
    dtype: str | None = None,
    runtime: str = "auto",
    **settings: Any,
) -> Any:
    """The rows of a `ray.data.Dataset` as `paredown predict` would write them to a parquet file: a dataset again.

    Columns are found, and plan, speed and the settings of the kind of answer mean, as in `AdaptiveModel.predict` and on
    the command line. A dataset has no order, so a row has a number only if a column `row` of the dataset says it;
    `keep_columns` come along. There is a worker on each GPU, or as many as asked on the CPUs; each loads the bundle
    once, from the same path on every machine.
    """
    ray = import_ray()
    model = AdaptiveModel.from_pretrained(bundle, dtype=dtype, runtime=runtime)
    (chosen,) = model.plans_of(plan, speed, 1)
    model.route(chosen)
    model.kind.but(**settings)  # raises where the kind has no such setting
    names = tuple(dataset.columns() or ())
    if unknown := [name for name in keep_columns if name not in names]:
        raise BadInput(f"the dataset has no column {unknown[0]!r}; it has {', '.join(names)}")
    columns = None
    if model.kind.records_of is None:
        text, pair = text_column or model.kind.columns[0], pair_column or model.kind.columns[1]
        columns = columns_to_read("the dataset", names, text, pair, model.reading, model.kind.per_word)
    max_length = max_length or model.reading.max_length
    predictor = Predictor(model, chosen, batch_size, max_length, settings, False, tuple(keep_columns))
    found = Workers.on(nodes_of(ray), workers, device)
    needed = (PredictorSettings.of(predictor, str(bundle), dtype, runtime), found, columns, skip_bad_rows)
    return found.mapped(dataset, TableWorker, needed, batch_size=ROWS[found.device], batch_format="pyarrow")


class TableWorker:
    """Called by Ray Data with tables of rows."""

    def __init__(self, settings: PredictorSettings, workers: Workers, columns: Columns | None, skip_bad_rows: bool):
        self.predictor = settings.load(workers)
        self.columns, self.skip_bad_rows = columns, skip_bad_rows

    def __call__(self, table: pyarrow.Table) -> pyarrow.Table:
        kind, shape = self.predictor.model.kind, self.predictor.shape
        chunk = []
        for line, record in enumerate(table.to_pylist()):
            if self.columns is None:
                one = incoming_question(line, record)
            else:
                one = incoming_row(line, record, self.columns, kind)
            if one.row is None and not self.skip_bad_rows:
                raise BadInput(f"{one.error}: {record!r:.200} (skip_bad_rows=True gives such rows an error)")
            chunk.append(one.keeping(record, shape.columns))
        records = self.predictor.records(chunk, self.predictor.prepare(chunk))
        types = {name: table.schema.field(column).type for name, column in zip(shape.kept, shape.columns, strict=True)}
        made = shape.table(records, shape.schema(types))
        index = made.schema.get_field_index("row")
        return made.set_column(index, "row", table["row"]) if "row" in table.column_names else made.remove_column(index)
