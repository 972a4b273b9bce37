"""The application of tests/integration/tentative.py as a user's file. The test's environment has the topics."""

import os
from pathlib import Path

from tests.integration.tentative import application

app = application(os.environ["EVENTS"], os.environ["COUNTS"], Path(os.environ["HOME_FOLDER"]))
