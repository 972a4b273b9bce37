"""Serve: starts the dashboard in this process, for `falkirk run --dashboard` and for `falkirk dashboard`."""

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path

from falkirk.declare.address import as_dashboard_address
from falkirk.declare.application import Application
from falkirk.errors.conditions.supervision import ADDRESS_TAKEN_DASHBOARD
from falkirk.kafka_client.connection import Connection
from falkirk.platform.terminal import stderr_is_terminal
from falkirk.recovery.ownership.credentials import new_token, write_dashboard_token
from falkirk.runtime.supervision.web import Site, WebServer, why_not
from falkirk.user_tools.commands.dashboard.board import Board
from falkirk.user_tools.commands.dashboard.site import DashboardSite
from falkirk.user_tools.commands.dashboard.visits import HomeVisits
from falkirk.user_tools.commands.dashboard.watch import DashboardWatch

#: The address if none is named. If another process uses its port, any free one.
_DEFAULT = "127.0.0.1:8350"


def serve_dashboard(
    app: Application,
    connection: Connection,
    home: Path,
    address: str,
    stack: contextlib.ExitStack,
    *,
    file: Path,
    say: Callable[[str], None],
    sites: Sequence[Site] = (),
) -> DashboardWatch:
    """Serve the dashboard of an application until the stack ends; return the watch of the application.

    Its token is new. So a page that is still open after this process ends gives a later owner of the port a token that
    opens nothing. Without a terminal the token is not printed, because others may read logs: a file in the home has it.

    Args: address: ``"[host:]port"``; empty: `DEFAULT`. file: the application's file, for the commands that the page
        names. sites: others that are served at the same address.
    Raises: DefinitionError: `ADDRESS_INVALID`. MachineError: `ADDRESS_TAKEN`, `FOLDER_NOT_OURS`. HomeError.
    """
    where = as_dashboard_address(address or _DEFAULT)
    board = Board()
    watch = DashboardWatch(HomeVisits(app, home, connection), home, board)
    site = DashboardSite(watch, board, "")
    server, taken = _bound([site, *sites], where, is_default=not address)
    site.open_with(new_token(), is_open=server.is_open)
    prints = stderr_is_terminal()
    kept = None if prints else write_dashboard_token(home, site.token)
    board.publish("app", {"application": app.name, "file": str(file), "home": str(home)})
    stack.enter_context(server)
    stack.enter_context(watch)
    if taken:
        say(f"port {where[1]} can't be used ({taken}), so the dashboard has another port")
    say(f"the dashboard is at {server.url}" + (f"/#token={site.token}" if prints else f"; its token is in {kept}"))
    if server.is_open:
        for each in sites:
            if each.public:
                say(f"everybody who can reach {server.url} can read {each.public}")
        say(
            f"everybody who has the token can read records of dead letters and roll {app.name} back. It crosses "
            "the network unencrypted: use it only in a network that you trust, or behind a proxy with TLS"
        )
    return watch


def _bound(sites: Sequence[Site], where: tuple[str, int], *, is_default: bool) -> tuple[WebServer, str]:
    """Return a server, and why it has another port; empty: it has this one. Raises: MachineError: `ADDRESS_TAKEN`."""
    try:
        return WebServer(sites, where), ""
    except OSError as error:
        if is_default:
            with contextlib.suppress(OSError):
                return WebServer(sites, (where[0], 0)), why_not(error)
        raise ADDRESS_TAKEN_DASHBOARD.error(host=where[0], port=where[1], reason=why_not(error)) from error
