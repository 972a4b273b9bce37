"""The home of an application: its folder, who owns it, and what it knows of processes on this and other machines."""
