"""App: an application that can be declared and run. The public face of declarations and hosts."""

from typing import TYPE_CHECKING, Any

from falkirk.declare.application import Application

if TYPE_CHECKING:
    from pathlib import Path

    from falkirk.kafka_client.connection import Connection
    from falkirk.runtime.supervision.query import Query


class App(Application):
    """An application: declare sources, processors and sinks, then `run` it.

    Args:
        name: the application's name: letters, digits, ``-`` and ``_``. It is part of the names of its internal topics.
        kafka: the broker, ``"host:port"`` or a `Connection` with SASL and TLS options. If omitted, name a broker on the
            command line (``--kafka``, or ``--local`` for a trial).
        home: folder for checkpoints and decisions; ``./.falkirk/<name>`` by default. Also a place
            in an object store, ``"s3a://bucket/shop"``, or in an HDFS, ``"hdfs://namenode:8020/shop"``, with `store`
            in PostgreSQL.
        store: the URL of a PostgreSQL database for the decisions, ``"postgresql://user:password@host/database"``; by
            default they are in a file in the home. Several applications may share one database.
        buffer_timeout: how long a record may wait for others between two steps of a live region. Longer gives more
            throughput, shorter less latency.
        state_partitions: the number of state partitions of each keyed step, and of partitions of the hops before them.
        history: which checkpoints of each region to keep beyond those that a failure may need: for rollbacks on
            request, and in case newer ones are damaged. A number of checkpoints, at most 10,000, or a duration such as
            ``"2 days"``: then the older the checkpoints are, the fewer are kept. Checkpoints with no input and no
            result in between count as one. Falkirk also keeps the records of hops and sources that they need.
        spare_checkpoints: how many of the newest checkpoints of a non-deterministic live region may be damaged without
            a recovery losing published results. Results that wait for a checkpoint wait for this many more; 0 or 1
            is usual.
        transactional: live regions write their sinks in transactions of a few milliseconds, with which the broker
            refuses the records of former writers, even of executors that nobody can reach. Readers must then use
            ``isolation.level=read_committed``. The default is True on a cluster and with ``falkirk run --wait``, and
            False otherwise.
        http: the address, ``"host:port"``, at which the application accepts requests for `Http` sources. Port 0 means
            any free port, which later starts keep.
        http_tls: the certificate, as `Tls`, with which the application accepts requests over https.
        http_token: the token that clients must send. ``"env:NAME"`` reads an environment variable, by default
            FALKIRK_HTTP_TOKEN. If that is not set, a random token is generated and stored in the home.
    """

    def start(
        self,
        *,
        kafka: "str | Connection | None" = None,
        home: "str | Path | None" = None,
        create_topics: bool = False,
        force: bool = False,
        once: bool = False,
        secure: "str | Path | None" = None,
    ) -> "Query":
        """Start the application in this process, for example in a notebook, and return the running query.

        It uses the present Spark session, or makes a local one. No coordinator replaces a Spark application that died,
        serves metrics, or keeps a standby: `run` has one.

        Args: kafka: the broker, by default that of the application. home: the folder, by default that of the
            application. create_topics: create missing topics. force: start although published results depend on a
            damaged checkpoint. once: process the present input; then the query ends by itself. secure: protect the
            connections between driver and executors, as in ``falkirk run --secure``. A local session takes
            ``"generated"``. A file is for a session on a cluster: one of spark-submit, or one that
            ``fk.spark_session("shop", master=…, secure=FILE)`` has made.
        Raises: FalkirkError: before anything runs.
        """
        from falkirk.runtime.supervision.query import start_application

        return start_application(
            self, kafka=kafka, home=home, create_topics=create_topics, force=force, once=once, secure=secure
        )

    def run(self, **options: Any) -> None:
        """Run the application until it is stopped (Ctrl-C): the coordinator in this process, Spark in another process.

        Args: options: the options of ``falkirk run``: ``kafka``, ``home``, ``master``, ``create_topics``, ``force``,
            ``once``, ``metrics``, ``dashboard`` (``""``: at its usual port), ``standby``, ``wait``, ``lease`` (in
            seconds), ``secure``, and ``conf``, a mapping of Spark settings.
        Raises: DefinitionError: `LEASE_INVALID`; `WAIT_UNSUITABLE`: ``wait`` under spark-submit.
        """
        from falkirk.user_tools.commands.run import run_application

        run_application(self, **options)
