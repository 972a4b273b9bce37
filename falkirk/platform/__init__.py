"""The operating system: files that outlive a power loss, locks, processes, signals and the terminal."""
