"""The application of tests/integration/tentative.py, as a user's file. Topics come from the environment of the test."""

import os
from pathlib import Path

from tests.integration.tentative import application

app = application(os.environ["EVENTS"], os.environ["COUNTS"], Path(os.environ["HOME_FOLDER"]))
