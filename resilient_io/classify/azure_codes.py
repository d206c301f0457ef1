"""Error codes of Azure Storage (blob and dfs).

Sources, unless a row says otherwise: "Common REST API error codes" and "Blob Storage error codes" in the Azure Storage
REST reference; StorageErrorCode in azure-storage-blob 12.31 (_shared/models.py).
"""

from __future__ import annotations

import re

from .meanings import CodeMeaning

# Codes and words that name the limit of the whole account. ServerBusy comes with and without such words ("Common REST
# API error codes": 503 "Ingress is over the account limit.", "Egress ...", "Operations per second ..."), and only as
# the first line: the SDK puts its own lines behind.
ACCOUNT_CODES = frozenset({"IngressLimitExceeded", "EgressLimitExceeded", "AccountLimitExceeded"})
ACCOUNT_WORDS = re.compile(r"(?:Ingress|Egress|Operations per second) is over the account limit\.?(?:\s*\n|\s*\Z)")

AZURE_CODES: dict[str, CodeMeaning] = {
    # --- the service refused for load: nothing was applied
    "ServerBusy": CodeMeaning.THROTTLED,  # 503, also for account egress, ingress and operations
    "TooManyRequests": CodeMeaning.THROTTLED,  # 429 on stage_block, Azure/azure-sdk-for-rust#2812
    "IngressLimitExceeded": CodeMeaning.THROTTLED,
    "EgressLimitExceeded": CodeMeaning.THROTTLED,
    "AccountLimitExceeded": CodeMeaning.THROTTLED,
    "SnapshotOperationRateExceeded": CodeMeaning.THROTTLED,  # 409, and still a rate limit
    # "Performance and scalability checklist for Blob Storage": 500 with this code is overload, as 503 is; unlike 503
    # the operation may have been done when the time was up.
    "OperationTimedOut": CodeMeaning.THROTTLED_MAYBE_APPLIED,
    # --- the service failed: a write may have been applied
    "InternalError": CodeMeaning.SERVER_ERROR,
    "RequestTimeout": CodeMeaning.TIMEOUT,  # 408
    # --- another request is in the way at this moment: nothing was applied
    "PendingCopyOperation": CodeMeaning.CONFLICT_NOW,
    "ContainerBeingDeleted": CodeMeaning.CONFLICT_NOW,  # the name is free again after 30 s or more
    "AccountBeingCreated": CodeMeaning.CONFLICT_NOW,
    # --- the bytes were damaged on their way up: nothing was applied
    "Md5Mismatch": CodeMeaning.DAMAGED_UPLOAD,
    "Crc64Mismatch": CodeMeaning.DAMAGED_UPLOAD,
    # --- the end of an upload: our own first try, or somebody else's commit, may be what is in the way
    "InvalidBlockList": CodeMeaning.COMMIT_UNSURE,
    # --- credentials: refresh them, do not spin
    "AuthenticationFailed": CodeMeaning.EXPIRED,  # a SAS that ran out, a date that is too old
    "InvalidAuthenticationInfo": CodeMeaning.EXPIRED,  # a bearer token that ran out
    "NoAuthenticationInformation": CodeMeaning.AUTH,
    # --- not allowed: asking again changes nothing
    "AuthorizationFailure": CodeMeaning.DENIED,  # also network rules and firewalls
    "AuthorizationPermissionMismatch": CodeMeaning.DENIED,
    "AuthorizationProtocolMismatch": CodeMeaning.DENIED,
    "AuthorizationResourceTypeMismatch": CodeMeaning.DENIED,
    "AuthorizationServiceMismatch": CodeMeaning.DENIED,
    "AuthorizationSourceIPMismatch": CodeMeaning.DENIED,
    "InsufficientAccountPermissions": CodeMeaning.DENIED,
    "AccountIsDisabled": CodeMeaning.DENIED,
    "PublicAccessNotPermitted": CodeMeaning.DENIED,
    "KeyBasedAuthenticationNotPermitted": CodeMeaning.DENIED,
    "BlobArchived": CodeMeaning.DENIED,  # rehydrate it first
    "BlobBeingRehydrated": CodeMeaning.DENIED,  # takes hours
    # --- absent
    "BlobNotFound": CodeMeaning.NOT_FOUND,
    "ContainerNotFound": CodeMeaning.NOT_FOUND,
    "ResourceNotFound": CodeMeaning.NOT_FOUND,
    "PathNotFound": CodeMeaning.NOT_FOUND,  # dfs
    "FilesystemNotFound": CodeMeaning.NOT_FOUND,  # dfs
    # --- a condition does not hold, or the state forbids it
    "BlobAlreadyExists": CodeMeaning.PRECONDITION,
    "ContainerAlreadyExists": CodeMeaning.PRECONDITION,
    "ResourceAlreadyExists": CodeMeaning.PRECONDITION,
    "PathAlreadyExists": CodeMeaning.PRECONDITION,  # dfs
    "ConditionNotMet": CodeMeaning.PRECONDITION,
    "TargetConditionNotMet": CodeMeaning.PRECONDITION,
    "SourceConditionNotMet": CodeMeaning.PRECONDITION,
    "AppendPositionConditionNotMet": CodeMeaning.PRECONDITION,
    "MaxBlobSizeConditionNotMet": CodeMeaning.PRECONDITION,
    "LeaseAlreadyPresent": CodeMeaning.PRECONDITION,
    "LeaseIdMissing": CodeMeaning.PRECONDITION,
    "LeaseIdMismatchWithBlobOperation": CodeMeaning.PRECONDITION,
    "LeaseIdMismatchWithContainerOperation": CodeMeaning.PRECONDITION,
    "LeaseIdMismatchWithLeaseOperation": CodeMeaning.PRECONDITION,
    "LeaseLost": CodeMeaning.PRECONDITION,
    "LeaseNotPresentWithBlobOperation": CodeMeaning.PRECONDITION,
    "LeaseNotPresentWithLeaseOperation": CodeMeaning.PRECONDITION,
    "SnapshotsPresent": CodeMeaning.PRECONDITION,
    "BlobImmutableDueToPolicy": CodeMeaning.PRECONDITION,
    # --- this program's own mistake
    "InvalidRange": CodeMeaning.CLIENT_BUG,
    "InvalidHeaderValue": CodeMeaning.CLIENT_BUG,
    "InvalidInput": CodeMeaning.CLIENT_BUG,
    "InvalidBlobType": CodeMeaning.CLIENT_BUG,
    "InvalidBlobOrBlock": CodeMeaning.CLIENT_BUG,
    "InvalidBlockId": CodeMeaning.CLIENT_BUG,
    "InvalidResourceName": CodeMeaning.CLIENT_BUG,
    "InvalidQueryParameterValue": CodeMeaning.CLIENT_BUG,
    "BlockCountExceedsLimit": CodeMeaning.CLIENT_BUG,
    "RequestBodyTooLarge": CodeMeaning.CLIENT_BUG,
    "MetadataTooLarge": CodeMeaning.CLIENT_BUG,
    # --- the store does not do this
    "UnsupportedHeader": CodeMeaning.UNSUPPORTED,
    "UnsupportedHttpVerb": CodeMeaning.UNSUPPORTED,
    "FeatureVersionMismatch": CodeMeaning.UNSUPPORTED,
    # --- found by us in an answer that says success: another status than the REST reference gives the operation
    "EmptyAnswer": CodeMeaning.EMPTY_ANSWER,
}
