"""Hadoop site: the addresses of the namenodes of an HDFS, from the files of Hadoop's settings.

An address such as ``hdfs://namenode:8020/shop`` names the port for Hadoop's own clients, as Spark's. Falkirk asks over
HTTP (web_hdfs.py), so it needs the other port. Like Spark, it reads core-site.xml and hdfs-site.xml in the folder that
HADOOP_CONF_DIR names.
"""

import os
from pathlib import Path
from xml.etree import ElementTree

_FILES = ("core-site.xml", "hdfs-site.xml")
#: Hadoop's default for the HTTP port of a namenode.
_PORT = "9870"


def site_settings() -> dict[str, str]:
    """Return Hadoop's settings of this machine. Raises: OSError: a file can't be read. ValueError: it is no XML."""
    folder, found = os.environ.get("HADOOP_CONF_DIR"), dict[str, str]()
    for path in () if not folder else (Path(folder) / name for name in _FILES):
        if path.exists():
            try:
                tree = ElementTree.parse(path)
            except ElementTree.ParseError as error:
                raise ValueError(f"{path} is no XML: {error}") from error
            for each in tree.iter("property"):
                found[each.findtext("name", "").strip()] = each.findtext("value", "").strip()
    return found


def web_addresses(authority: str) -> tuple[str, ...]:
    """Return the HTTP addresses of the namenodes of an HDFS, each as ``host:port``.

    Args: authority: as in an address: a host and perhaps its port, or the name of a nameservice with several namenodes.
    Raises: OSError, ValueError: as `site_settings`.
    """
    site = site_settings()
    setting = "dfs.namenode.http-address"
    if names := site.get(f"dfs.ha.namenodes.{authority}"):
        each = [f"{authority}.{name.strip()}" for name in names.split(",")]
        rpc = {name: site.get(f"dfs.namenode.rpc-address.{name}", "").partition(":")[0] for name in each}
        return tuple(site.get(f"{setting}.{name}") or f"{rpc[name]}:{_PORT}" for name in each)
    # The host of the address, not that of the settings: these may be of another HDFS, and often name no host.
    return (f"{authority.partition(':')[0]}:{site.get(setting, '').rpartition(':')[2] or _PORT}",)
