"""Strays: folders of a batch that no epoch uses, left by an interrupted run or by void epochs.

They are noted while the batch stands still, because a running one has folders without a record. They are deleted later:
if the home is an older copy, a sink of any processor may show it, and the right copy has records of these folders.
"""

import logging

from falkirk.decision_store import Store
from falkirk.errors import StoreError
from falkirk.spark_runtime.epochs.log import EpochLog

log = logging.getLogger("falkirk")


class Strays:
    """The strays of one batch. Args: epochs: its log. store: with the log's records."""

    def __init__(self, epochs: EpochLog, store: Store) -> None:
        self._epochs, self._store = epochs, store
        self._noted = list[str]()

    def note(self) -> None:
        """Note the folders that are there. The batch must stand still.

        Raises: StoreError: `HOME_TAKEN_OVER`: another owner may be writing some of them.
        """
        there = [path.name for path in self._epochs.folder.children()]
        self._store.require_charge()  # when these were listed, no other owner had begun a folder
        self._noted = there

    def drop(self) -> None:
        """Delete the noted folders that no epoch uses by now. After an error, the next start deletes the others.

        Raises: StoreError: except `DATA_AWAY`.
        """
        noted, self._noted = self._noted, []
        try:
            if noted:
                self._epochs.drop_unused(noted)
        except StoreError as error:
            if error.condition != "DATA_AWAY":
                raise
            log.warning("%s: its old folders can't be deleted now: %s", self._epochs.region, error.message)
