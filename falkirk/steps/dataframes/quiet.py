"""Quiet: keeps PySpark from logging mistakes that Falkirk reports itself."""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.logger import PySparkLogger


@contextmanager
def quiet() -> Iterator[None]:
    """Keep PySpark from logging as JSON the mistakes of this thread that are about to be raised as a
    `DefinitionError`."""
    mine = threading.get_ident()

    def is_of_others(record: logging.LogRecord) -> bool:
        return record.thread != mine

    # Made by PySpark's own class, which it needs to find under these names ever after.
    loggers = [PySparkLogger.getLogger(name) for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger")]
    for logger in loggers:
        logger.addFilter(is_of_others)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(is_of_others)
