"""A session of Falkirk on a real YARN: it runs with FALKIRK_YARN=1 alone."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.yarn_server import YarnServer, is_chosen, spark_settings

pytestmark = pytest.mark.skipif(not is_chosen(), reason="a real YARN: it runs with FALKIRK_YARN=1 alone")

PROGRAM = """
import falkirk as fk
session = fk.spark_session("squares", master="yarn")
print("sum", session.sparkContext.parallelize(range(100), 4).map(lambda n: n * n).sum())
session.stop()
"""
SIZES = {
    "spark.driver.memory": "900m", "spark.executor.memory": "700m", "spark.executor.instances": "1",
    "spark.executor.cores": "2",
}  # fmt: skip


@pytest.fixture
def yarn() -> Iterator[YarnServer]:
    server = YarnServer()
    try:
        yield server
    finally:
        server.close()


def test_python_tasks_run_in_the_containers_of_a_session(yarn: YarnServer, tmp_path: Path) -> None:
    """The path of a container's folder is too long for a Unix socket, so their workers are reached over TCP."""
    settings = {**spark_settings(), **SIZES}
    (tmp_path / "spark-defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
    environment = {
        **os.environ, **yarn.env, "SPARK_CONF_DIR": str(tmp_path), "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
    }  # fmt: skip
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert "sum 328350" in ended.stdout, f"{ended.stderr[-4000:]}\n{yarn.container_logs()[-4000:]}"
