"""The kit uses the active Spark session, or starts a small one. Here it is that of the other tests."""

import pytest
from pyspark.sql import SparkSession


@pytest.fixture(scope="session", autouse=True)
def session_of_the_tests(spark: SparkSession) -> None:
    """Make the session before the kit needs one."""
