"""The command dashboard."""

import contextlib
import signal
import threading
from pathlib import Path

import click

from falkirk.declare.load import broker_of, load_application
from falkirk.platform.signals import stop_on_signals
from falkirk.platform.terminal import Terminal
from falkirk.user_tools.commands.dashboard.serve import serve_dashboard
from falkirk.user_tools.commands.running import local_broker, of_application


@click.command()
@of_application
@click.option(
    "--at", "address", metavar="[HOST:]PORT", default="", help="Where to serve the page; by default 127.0.0.1:8350."
)
def dashboard(file: Path, broker: str | None, local: bool, home: Path | None, address: str) -> None:
    """Serve a page that shows FILE's application, until Ctrl-C.

    The application may run in any terminal or service of this machine, or be stopped. The page shows how far each
    processor has computed, published and saved, the latency of each sink, what a failure would cost now, the states
    to which the application can roll back, dead letters and events. Open the printed link: it contains the token of
    this process.
    """
    app = load_application(file)
    connection = broker_of(app, local_broker() if local else broker)
    stopping = threading.Event()
    stop_on_signals(stopping.set, signal.SIGINT, signal.SIGTERM)
    console = Terminal(stderr=True)
    with contextlib.ExitStack() as stack:
        serve_dashboard(
            app, connection, home or app.home, address, stack, file=file,
            say=lambda text: console.print(text, soft_wrap=True),
        )  # fmt: skip
        stopping.wait()
