"""An application as its home and its broker show it, whether it runs or not: its checkpoints and rollbacks."""
