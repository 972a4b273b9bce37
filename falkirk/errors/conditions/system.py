"""Conditions of `system`."""

from falkirk.errors import HomeError, MachineError
from falkirk.errors.condition import Condition

HOME_IN_USE = Condition(
    "HOME_IN_USE",
    HomeError,
    "another process runs this application{holder}.",
    hint="Stop it first, or give this application its own home.",
)
FOLDER_NOT_OURS = Condition(
    "FOLDER_NOT_OURS",
    MachineError,
    "{path} belongs to user {owner}, but this is user {user}: another user could change its content.",
    hint="Run as the owner, change the owner to this user (chown -R), or choose another path.",
)
