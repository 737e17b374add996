"""Tables as Parquet files, if pyarrow is installed (the extra ``parquet``)."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from reshape.errors import ConfigError
from simulator.experiment.columns import NAMES, trace_of
from simulator.traces.swf import Trace

ENDING = ".parquet"


def encode(columns: Mapping[str, NDArray[Any]]) -> bytes:
    """Contents of a file with these columns.

    Raises
    ------
    ConfigError : pyarrow is not installed.
    """
    arrow = _pyarrow("jobs" + ENDING)
    target = BytesIO()
    table = arrow.table({name: arrow.array(column.tolist()) for name, column in columns.items()})
    import_module("pyarrow.parquet").write_table(table, target)
    return target.getvalue()


def read(path: str | Path) -> Trace:
    """Jobs of a file: the columns that jobs have (`simulator.experiment.columns`), of any others.

    So the `jobs.parquet` of a simulation is read, whose jobs have further columns. Names of jobs
    and partitions that are no numbers are left out.

    Raises
    ------
    ConfigError : the file cannot be read, or lacks a column; a value is wrong; or pyarrow is not
        installed.
    """
    arrow = _pyarrow(str(path))
    try:
        file = import_module("pyarrow.parquet").ParquetFile(path)
        names = [name for name in file.schema_arrow.names if name in NAMES]
        table = file.read(columns=names)
    except (OSError, arrow.ArrowException) as error:
        raise ConfigError(f"cannot be read: {error}", file=str(path)) from None
    columns = {name: table[name].to_numpy() for name in names}
    for name in ("job", "partition"):
        if name in columns and columns[name].dtype.kind == "O":
            numbers = _numbers(columns.pop(name))
            columns |= {} if numbers is None else {name: numbers}
    try:
        made = trace_of(columns)
    except ConfigError as error:
        raise ConfigError(error.message, field=error.field, file=str(path)) from None
    return msgspec.structs.replace(made, path=str(path))


def _numbers(texts: NDArray[Any]) -> NDArray[Any] | None:
    """Texts as numbers; None if one of them is no number."""
    try:
        return texts.astype(np.int64)
    except ValueError:
        return None


def _pyarrow(path: str) -> Any:
    try:
        return import_module("pyarrow")
    except ModuleNotFoundError:
        raise ConfigError(
            "Parquet needs pyarrow, which is not installed: pip install 'reshape-mpi[parquet]'",
            file=path,
        ) from None
