"""The port of data in an object store works with the rights of docs/how-to/object-store.md, and with no fewer.

moto checks each request against the policy of its user. Spark's client is not part of the contract.
"""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import xmltodict
from moto import settings
from moto.core.authorization import ActionAuthenticatorMixin
from moto.iam.models import iam_backends
from moto.s3.exceptions import S3AccessDeniedError
from moto.s3.responses import S3Response
from pyarrow import parquet

from falkirk.errors import StoreError
from falkirk.platform import object_data
from falkirk.platform.object_data import ObjectData, data_at
from tests.contract.test_data_port import ROWS, job
from tests.objects import BUCKET, REGION, ObjectStore

HOW_TO = Path(__file__).parents[2] / "docs" / "how-to" / "object-store.md"
HOME, USER, ACCOUNT, PARTITION = "home", "application", "123456789012", "aws"
#: A right that only Spark's client uses: pyarrow aborts no upload.
OF_SPARK = "s3:AbortMultipartUpload"
#: Larger than what pyarrow sends in one request.
LARGE_BYTES = 12_000_000


def documented() -> dict[str, str]:
    """Return the rights in the table of the page, each with the resource that it is on."""
    found = dict[str, str]()
    for line in HOW_TO.read_text().splitlines():
        if line.startswith("| `s3:"):
            _, rights, on, *_ = line.split("|")
            place = (
                on.strip().strip("`").replace("company-data/shop", f"{BUCKET}/{HOME}").replace("company-data", BUCKET)
            )
            found |= dict.fromkeys(re.findall(r"s3:\w+", rights), f"arn:aws:s3:::{place}")
    return found


RIGHTS = documented()


def test_the_page_has_the_rights() -> None:
    assert RIGHTS.keys() == {"s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:ListBucket", OF_SPARK}
    assert set(RIGHTS.values()) == {f"arn:aws:s3:::{BUCKET}/{HOME}/*", f"arn:aws:s3:::{BUCKET}"}


@pytest.fixture(scope="module")
def objects() -> Iterator[ObjectStore]:
    store = ObjectStore()
    yield store
    store.close()


def deletes(
    response: Any, request: Any, bucket: str, other: Callable[..., Any] = S3Response._bucket_response_post
) -> Any:
    """Answer a request to delete several objects. S3 asks for the right on each; moto on the bucket."""
    response.path = response._get_path(request)
    if not response.is_delete_keys():
        return other(response, request, bucket)
    response.data["Action"] = "DeleteObject"
    listed = xmltodict.parse(response.body, force_list=("Object",))["Delete"]["Object"]
    try:
        for each in listed:
            response._authenticate_and_authorize_s3_action(bucket_name=bucket, key_name=each["Key"])
    except S3AccessDeniedError:
        return response._bucket_response_delete_keys(bucket, authenticated=False)
    return response._bucket_response_delete_keys(bucket)


@pytest.fixture
def granted(objects: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[dict[str, str]], ObjectData]]:
    """A function that returns the home as a user sees it who has these rights, and no others."""
    users = iam_backends[ACCOUNT][PARTITION]
    users.create_user(REGION, USER)
    key = users.create_access_key(USER)
    monkeypatch.setattr(object_data, "_PAUSES_S", (0.0, 0.0))
    monkeypatch.setattr(S3Response, "_bucket_response_post", deletes)
    chosen = {"AWS_ACCESS_KEY_ID": key.access_key_id, "AWS_SECRET_ACCESS_KEY": key.secret_access_key}
    for name, value in (objects.environment | chosen).items():
        monkeypatch.setenv(name, value)

    def grant(rights: dict[str, str]) -> ObjectData:
        statements = [{"Effect": "Allow", "Action": right, "Resource": on} for right, on in rights.items()]
        users.put_user_policy(USER, "rights", json.dumps({"Version": "2012-10-17", "Statement": statements}))
        monkeypatch.setattr(ActionAuthenticatorMixin, "request_count", 0)
        monkeypatch.setattr(settings, "INITIAL_NO_AUTH_ACTION_COUNT", 0)
        return data_at(f"s3a://{BUCKET}/{HOME}")

    yield grant
    users.delete_user_policy(USER, "rights")
    users.delete_access_key(key.access_key_id, USER)
    users.delete_user(USER)


def use(home: ObjectData, folder: Path) -> None:
    """Do with a home all that the port does: results of a job, notes, copies of large files, checks, and deletions."""
    epoch = home / "results" / "0-aa"
    assert not epoch.exists()
    (home / "note").write_text("{}")
    assert (home / "note").read_text() == "{}"
    job(epoch, "part-0.parquet")
    manifest = epoch.sync()
    whole = epoch.check(manifest)
    assert (epoch.exists(), whole.count_rows()) == (True, ROWS.num_rows)
    system, names = whole.arrow()
    assert parquet.read_table(names, filesystem=system) == ROWS
    (folder / "state").write_bytes(bytes(LARGE_BYTES))
    measured = (home / "states" / "1").copy_from(folder / "state")
    (home / "states" / "1").copy_to(folder / "copy", *measured)
    assert [child.name for child in home.children()] == ["note", "results", "states"]
    (home / "states" / "1").delete()
    (home / "note").delete()
    epoch.remove()
    assert not epoch.exists()
    assert home.listed() == []


def test_the_rights_of_the_page_suffice(granted: Callable[[dict[str, str]], ObjectData], tmp_path: Path) -> None:
    use(granted(RIGHTS), tmp_path)


@pytest.mark.parametrize("right", sorted(RIGHTS.keys() - {OF_SPARK}))
def test_no_right_can_be_left_out(
    granted: Callable[[dict[str, str]], ObjectData], objects: ObjectStore, tmp_path: Path, right: str
) -> None:
    try:
        with pytest.raises(StoreError) as refused:
            use(granted({name: on for name, on in RIGHTS.items() if name != right}), tmp_path)
        assert refused.value.condition == "DATA_UNUSABLE"
    finally:
        use_all = granted(RIGHTS)
        for name in use_all.listed():
            (use_all / name).delete()


def test_they_open_nothing_beside_the_home(granted: Callable[[dict[str, str]], ObjectData]) -> None:
    other = ObjectData(granted(RIGHTS)._system, "s3a", f"{BUCKET}/other")
    for request in (lambda: (other / "note").write_text("x"), (other / "note").read_text, (other / "note").delete):
        with pytest.raises(StoreError) as refused:
            request()
        assert refused.value.condition == "DATA_UNUSABLE"
