"""Monitor bench: it generates applications, measures all figures, and reads a user's topology."""

import random
from pathlib import Path

from benchmarks.monitor import Drawn, MonitorSettings, ReachingMonitor, drawn_edges, read_edges, run_monitor
from tests.theory.consistent import violations


def test_drawn_applications_mix_domains_and_move() -> None:
    pairs = list(drawn_edges(random.Random(1), 300, 1200))
    drawn = Drawn(random.Random(1), pairs)
    assert drawn.counting
    assert len(set(map(id, drawn.policies.values()))) == 4
    monitor = ReachingMonitor(drawn.graph, drawn.available())
    for name in drawn.durable:
        if name in drawn.saving:
            monitor.add_checkpoint(name, drawn.checkpoint(name, 0))
        else:
            monitor.extend_reach(name, drawn.checkpoint(name, 0).frontier)
    assert not any(monitor.low_watermark(n).is_empty for n in drawn.saving), "all have saved epoch 0"
    solution = monitor.solution
    notified = {n: solution.notified.get(n, p.domain) for n, p in drawn.graph.processors.items()}
    assert not list(violations(drawn.graph, solution.available, solution.chosen, notified))


def test_figures_have_stable_names_and_units(tmp_path: Path) -> None:
    said: list[str] = []
    report, sizes = run_monitor(MonitorSettings(processors=(100, 200), epochs=1), said.append)
    assert len(said) == len(sizes) == 2
    for name in (
        "solve_s",
        "arrival_p50_ms",
        "arrival_p99_ms",
        "memory_peak_mib",
        "processors",
        "edges",
        "at_100_solve_s",
    ):
        assert name in report.figures
    report.write(tmp_path / "monitor.json")
    assert '"bench": "monitor"' in (tmp_path / "monitor.json").read_text()


def test_a_topology_of_the_users(tmp_path: Path) -> None:
    file = tmp_path / "edges.txt"
    file.write_text("# friends\n0 1\n1,2\n\nalone\n2 0\n")
    assert read_edges(file) == [("0", "1"), ("1", "2"), ("2", "0")]
    report, _ = run_monitor(MonitorSettings(topology=file, epochs=2), lambda text: None)
    assert report.figures["processors"] == 3
    assert report.settings["topology"] == "edges.txt"
