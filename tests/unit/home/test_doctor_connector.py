"""The doctor says so when the Kafka connector is of another version than Spark."""

import pytest

from falkirk.spark_setup import doctor, jars


@pytest.mark.parametrize(("spark", "is_advice"), [("same", False), ("4.9.9", True)])
def test_a_connector_of_another_version_is_noted(
    monkeypatch: pytest.MonkeyPatch, spark: str, *, is_advice: bool
) -> None:
    found = jars.connector_version()
    assert f"spark/spark-sql-kafka-0-10_2.13-{found}.jar" in jars.manifest()
    monkeypatch.setattr(doctor, "version", lambda name: found if spark == "same" else spark)
    finding = doctor._connector()
    assert (finding.ok, finding.is_advice) == (True, is_advice)
    assert found in finding.detail
    assert (spark in finding.detail) == is_advice
    assert bool(finding.fix) == is_advice
