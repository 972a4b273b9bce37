"""Loading: finds the application that a user's file declares, without running it."""

import runpy
import sys
from pathlib import Path

from falkirk.declare.application import Application
from falkirk.declare.clusters import with_clusters
from falkirk.errors.conditions.declare import APPLICATION_MISSING, APPLICATIONS_SEVERAL, BROKER_MISSING, FILE_MISSING
from falkirk.kafka_client.connection import Connection

#: The module name under which a user's file is loaded only for its declarations. `App.run` then does nothing.
LOADING = "__falkirk__"


def load_application(file: Path, *, leased: bool = False) -> Application:
    """Return the one application that a file declares at its top level.

    A former owner may be suspended on another machine when its lease is over, and only the broker refuses what it sends
    when it resumes. So with a lease, sinks are transactional unless the application decides otherwise.

    Raises: DefinitionError: `FILE_MISSING`, `APPLICATION_MISSING`, `APPLICATIONS_SEVERAL`; errors of the file itself.
    """
    if not file.is_file():
        raise FILE_MISSING.error(file=file)
    sys.path.insert(0, str(file.resolve().parent))
    found = [v for v in runpy.run_path(str(file), run_name=LOADING).values() if isinstance(v, Application)]
    apps = list({id(app): app for app in found}.values())
    if not apps:
        raise APPLICATION_MISSING.error(where=file.name)
    if len(apps) > 1:
        raise APPLICATIONS_SEVERAL.error(where=file.name, count=len(apps), apps=", ".join(app.name for app in apps))
    if leased and apps[0].transactional is None:
        apps[0].transactional = True
    return apps[0]


def broker_of(app: Application, kafka: Connection | str | None) -> Connection:
    """Return the connection to the broker from the command line, or else to the application's: see `with_clusters`.

    Raises: DefinitionError: `BROKER_MISSING`; as `with_clusters`.
    """
    own = app.kafka if kafka is None else Connection.of(kafka)
    if own is None:
        raise BROKER_MISSING.error(app=app.name)
    return with_clusters(app, own)
