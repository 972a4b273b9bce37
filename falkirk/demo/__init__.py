"""The demo: an application at work on real text, killed with -9 and judged at the end."""
