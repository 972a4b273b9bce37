"""How a plan is shown: a screen, the reasons for one output, a graph, and plain values."""
