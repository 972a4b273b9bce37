"""Differential: collections that change and loops over them, kept up to date as their input changes."""

from falkirk.steps.differential.collection import Collection, Grouped, fixpoint
from falkirk.steps.differential.graphs import connected_components, pagerank, shortest_paths

__all__ = ["Collection", "Grouped", "connected_components", "fixpoint", "pagerank", "shortest_paths"]
