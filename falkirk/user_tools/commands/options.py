"""Options that several commands have."""

from pathlib import Path

import click

from falkirk.declare.place import local_home

file_argument = click.argument("file", type=click.Path(path_type=Path))
broker_option = click.option("--kafka", "broker", metavar="HOST:PORT", help="The broker; overrides the broker in FILE.")
local_option = click.option("--local", is_flag=True, help="Start and use a broker on this machine, for trials.")
running_broker_option = click.option(
    "--local", is_flag=True, help="Use the broker that `falkirk run --local` starts on this machine."
)
home_option = click.option(
    "--home",
    type=click.Path(path_type=Path),
    callback=lambda context, option, home: home if home is None else local_home(home),
    help="The application's home, the folder of its checkpoints; overrides the one in FILE.",
)
master_option = click.option("--master", help="Spark master; by default local, with as many slots as the plan needs.")
json_option = click.option("--json", "as_json_", is_flag=True, help="Print as JSON.")
secure_option = click.option(
    "--secure", metavar="FILE|generated",
    help="Authenticate and encrypt the connections between driver and executors on a cluster. FILE has the secret that "
    "the machines of a standalone cluster know; write `generated` on YARN and Kubernetes.",
)  # fmt: skip
