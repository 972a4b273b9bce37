"""Differential: collections that change and loops over them, kept up to date as their input changes."""

from falkirk.differential.collection import Collection, Grouped, fixpoint
from falkirk.differential.graphs import connected_components, pagerank, shortest_paths

__all__ = ["Collection", "Grouped", "connected_components", "fixpoint", "pagerank", "shortest_paths"]
