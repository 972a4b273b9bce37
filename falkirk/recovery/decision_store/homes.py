"""Homes: a table of a PostgreSQL database with the homes whose data are in object stores, and their identities.

An object store can't create a file only if there is none. The database can, so it decides which identity a home gets
when several processes start it at the same moment. It is a table beside the schemas of the applications.
"""

import sqlalchemy as sql

from falkirk.recovery.decision_store.postgres import PostgresDatabase

_metadata = sql.MetaData()
_homes = sql.Table(
    "homes",
    _metadata,
    sql.Column("place", sql.String, primary_key=True),
    sql.Column("application", sql.String, nullable=False),
    sql.Column("identity", sql.String, nullable=False),
)


def known_home(url: str, place: str, application: str, identity: str, timeout_s: float = 30.0) -> tuple[str, str]:
    """Return the application and the identity of the home at a place; those that are given, if it is new.

    Args: url: of the database. place: the address of the home's data.
    Raises: StoreError.
    """
    database = PostgresDatabase(sql.make_url(url), identity="homes", timeout_s=timeout_s)
    try:
        database.make(_metadata.create_all, must_exist=False)
        with database.transaction(writes=True) as db:
            query = sql.select(_homes.c.application, _homes.c.identity).where(_homes.c.place == place)
            found = db.execute(query).first()
            if found is not None:
                return str(found[0]), str(found[1])
            db.execute(_homes.insert().values(place=place, application=application, identity=identity))
            return application, identity
    finally:
        database.close()
