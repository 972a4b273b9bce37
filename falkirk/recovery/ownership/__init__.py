"""The home of an application: its folder, its owner, and its record of processes on this and other machines."""
