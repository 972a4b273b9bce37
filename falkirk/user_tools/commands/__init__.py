"""The commands that look at an application from outside, ask things of it, or prepare this machine."""
