"""What an operation does to the store: reads, writes, lists or deletes, and whether a repeat is safe.

A name is an SDK operation ("PutObject", "GetBlob"), an fsspec method ("pipe_file") or a boto3 method
("complete_multipart_upload"); case and underscores do not matter. A qualifier may follow a hyphen:
"PutObject-IfNoneMatch" and "pipe_file-create" are conditional writes, "-append" appends; any other
qualifier ("cat_file-range") changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import lru_cache


class OpClass(str, Enum):
    """The class of an operation: stores limit these apart, and so do we."""

    READ = "read"
    WRITE = "write"
    LIST = "list"
    DELETE = "delete"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class _Traits:
    op_class: OpClass
    idempotent: bool


# A repeat of these is refused, or does something twice that a reader can see.
_NOT_IDEMPOTENT_WRITES = (
    # S3: the second one answers NoSuchUpload, BucketAlreadyOwnedByYou, RestoreAlreadyInProgress.
    "CompleteMultipartUpload CreateBucket RestoreObject RenameObject "
    # Azure: appends twice, takes a second snapshot or lease, answers 409 or 412 (measured against Azurite).
    "AppendBlock AppendBlockFromURL CreateContainer RestoreContainer SnapshotBlob CreateSnapshot AcquireLease "
    "ChangeLease BreakLease RenameContainer RenamePath RenameFile RenameDirectory IncrementalCopyBlob "
    # fsspec: mkdir answers FileExistsError, mv has removed its own source.
    "mkdir mv move rename append"
)
_IDEMPOTENT_WRITES = (
    # S3: the same bytes under the same name. A second CreateMultipartUpload leaves an orphan that no reader sees.
    "PutObject UploadPart UploadPartCopy CopyObject CreateMultipartUpload PutObjectTagging PutObjectAcl "
    "PutObjectRetention PutObjectLegalHold PutBucketPolicy PutBucketTagging PutBucketAcl PutBucketVersioning "
    "PutBucketLifecycleConfiguration PutBucketCors "
    # Azure: an unconditional commit of the same block list converges (measured against Azurite).
    "PutBlob UploadBlob PutBlock StageBlock PutBlockFromURL PutBlockList CommitBlockList PutPage PutBlobFromURL "
    "CopyBlob CopyBlobFromURL StartCopyFromURL CreateAppendBlob CreatePageBlob SetBlobMetadata SetBlobProperties "
    "SetBlobTags SetBlobTier SetContainerMetadata RenewLease ReleaseLease CreatePath CreateFile CreateDirectory "
    "AppendData FlushData SetAccessControlRecursive "
    # Azure: its parts are deletes and changes of tier.
    "SubmitBatch "
    # fsspec, boto3 transfers, obstore.
    "pipe pipe_file put put_file upload upload_file upload_fileobj cp cp_file copy copy_basic touch write makedirs "
    "setxattrs chmod put_tags copy_object put_object"
)
_NOT_IDEMPOTENT_DELETES = "DeleteBucket DeleteContainer rmdir"
# A delete that is repeated finds nothing left to delete: the state is the same.
_IDEMPOTENT_DELETES = (
    "DeleteObject DeleteObjects AbortMultipartUpload DeleteObjectTagging DeleteBlob DeleteBlobs DeletePath DeleteFile "
    "DeleteDirectory rm rm_file delete bulk_delete"
)
_LISTS = (
    "ListObjects ListObjectsV2 ListObjectVersions ListBuckets ListMultipartUploads ListParts ListBlobs WalkBlobs "
    "ListContainers ListPaths GetPaths ls listdir find glob walk du lsdir list list_with_delimiter"
)
_READS = (
    "GetObject HeadObject HeadBucket GetBlob GetBlobProperties GetContainerProperties GetBlockList DownloadBlob "
    "SelectObjectContent get get_file cat cat_file cat_ranges open open_async read read_block read_bytes read_text "
    "head tail info exists exists_bucket isfile isdir size sizes checksum ukey download download_file download_fileobj "
    "url sign get_range get_ranges "
    # Credentials: nothing is stored by asking for one.
    "AssumeRole AssumeRoleWithWebIdentity AssumeRoleWithSAML CreateSession"
)
# A name that no table holds is a read when it starts like one, otherwise a write that is not safe to repeat.
_READ_VERBS = ("get", "head", "describe", "select", "read", "cat", "load", "fetch", "download", "info", "exists", "is")
_LIST_VERBS = ("list", "walk", "find", "glob")
_CONDITIONAL = frozenset(("ifnonematch", "ifmatch", "create", "append", "exclusive"))
# The store refuses the repeat of these with a code of its own, and so tells that the first try was applied.
_TOLD = frozenset(("ifnonematch", "ifmatch", "create", "exclusive", "append"))
_TOLD_NAMES = frozenset(
    ("completemultipartupload", "createcontainer", "createbucket", "deletecontainer", "deletebucket")
)


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


def _table() -> dict[str, _Traits]:
    rows = (
        (_NOT_IDEMPOTENT_WRITES, OpClass.WRITE, False),
        (_IDEMPOTENT_WRITES, OpClass.WRITE, True),
        (_NOT_IDEMPOTENT_DELETES, OpClass.DELETE, False),
        (_IDEMPOTENT_DELETES, OpClass.DELETE, True),
        (_LISTS, OpClass.LIST, True),
        (_READS, OpClass.READ, True),
    )
    return {
        _plain(name): _Traits(op_class=op_class, idempotent=idempotent)
        for names, op_class, idempotent in rows
        for name in names.split()
    }


_TRAITS = _table()
_UNNAMED = _Traits(op_class=OpClass.READ, idempotent=True)
_STRANGE_WRITE = _Traits(op_class=OpClass.WRITE, idempotent=False)


@lru_cache(maxsize=1024)
def _traits(operation: str | None) -> _Traits:
    if operation is None:
        return _UNNAMED
    name, _, qualifier = operation.partition("-")
    plain = _plain(name)
    known = _TRAITS.get(plain)
    if known is None:
        if plain.startswith(_LIST_VERBS):
            return _Traits(op_class=OpClass.LIST, idempotent=True)
        known = _UNNAMED if plain.startswith(_READ_VERBS) else _STRANGE_WRITE
    if known.op_class is OpClass.WRITE and _plain(qualifier) in _CONDITIONAL:
        return _Traits(op_class=OpClass.WRITE, idempotent=False)
    return known


# Each request asks for these two; the cache's own hit is the whole call.
@lru_cache(maxsize=1024)
def op_class(operation: str | None) -> OpClass:
    """Return the class of an operation; an unnamed one (None) counts as a read, an unknown name as a write."""
    return _traits(operation).op_class


@lru_cache(maxsize=1024)
def class_name(operation: str | None) -> str:
    """Return the name of an operation's class as a plain string, for keys."""
    return _traits(operation).op_class.value


def is_write(operation: str | None) -> bool:
    """Return whether an operation changes the store (writes and deletes do)."""
    return _traits(operation).op_class in (OpClass.WRITE, OpClass.DELETE)


def is_idempotent(operation: str | None) -> bool:
    """Return whether a repeat is harmless although the first try may have been applied.

    True for reads, lists and overwrites of the same bytes; False for conditional writes, appends,
    CompleteMultipartUpload, and for names that no table knows (look before you repeat those).
    """
    return _traits(operation).idempotent


@lru_cache(maxsize=1024)
def repeat_is_told(operation: str | None) -> bool:
    """Return whether a repeat does no harm because the store refuses it if the first try was applied.

    CompleteMultipartUpload (NoSuchUpload, or the same answer again), buckets and containers that are made (409) or
    deleted (404), appends at a position, and writes with If-None-Match or If-Match (412). Such a refusal after a lost
    answer may be the echo of our own success: see the `after_lost_answer` of `judge`.
    """
    if operation is None or not is_write(operation):
        return False
    name, _, qualifier = operation.partition("-")
    return _plain(name) in _TOLD_NAMES or _plain(qualifier) in _TOLD


@lru_cache(maxsize=1024)
def merge_names(*, own: str | None, asked: str | None) -> str | None:
    """Return the name that fits a fault best: the one the error itself gives, with the caller's qualifier.

    `pipe_file-create` whose request was a PutObject becomes `PutObject-create`: the request is the
    finer fact, but only the caller knows that the write was conditional.
    """
    if own is None or asked is None:
        return own or asked
    qualifier = asked.partition("-")[2]
    if not qualifier or "-" in own or _traits(own).op_class is not OpClass.WRITE:
        return own
    return f"{own}-{qualifier}"
