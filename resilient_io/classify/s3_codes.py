"""Error codes of S3 and of the stores that speak its protocol.

Sources, unless a row says otherwise: "Error responses" in the Amazon S3 API reference; the lists in botocore 1.43
(retries/standard.py, data/_retry.json). Codes of this library's own answer checks end the table.
"""

from __future__ import annotations

from .meanings import CodeMeaning

S3_CODES: dict[str, CodeMeaning] = {
    # --- the service refused for load: nothing was applied
    "SlowDown": CodeMeaning.THROTTLED,
    "SlowDownRead": CodeMeaning.THROTTLED,  # MinIO cmd/api-errors.go: no read quorum, Retry-After 60
    "SlowDownWrite": CodeMeaning.THROTTLED,  # MinIO cmd/api-errors.go
    "ServiceUnavailable": CodeMeaning.THROTTLED,  # S3 documents the 503 as "reduce your request rate"
    "Busy": CodeMeaning.THROTTLED,  # S3 Select: "The service is unavailable. Please retry your request."
    "ServerBusy": CodeMeaning.THROTTLED,  # MinIO and Azure-backed gateways
    "TooManyRequests": CodeMeaning.THROTTLED,  # Ceph RGW, OCI; legacy botocore only knows the status 429
    "TooManyRequestsException": CodeMeaning.THROTTLED,  # botocore standard.py
    "Throttling": CodeMeaning.THROTTLED,  # botocore standard.py; STS
    "ThrottlingException": CodeMeaning.THROTTLED,  # botocore standard.py
    "ThrottledException": CodeMeaning.THROTTLED,  # botocore standard.py
    "RequestThrottled": CodeMeaning.THROTTLED,  # botocore standard.py
    "RequestThrottledException": CodeMeaning.THROTTLED,  # botocore standard.py
    "RequestLimitExceeded": CodeMeaning.THROTTLED,  # botocore standard.py
    "LimitExceededException": CodeMeaning.THROTTLED,  # botocore standard.py
    "BandwidthLimitExceeded": CodeMeaning.THROTTLED,  # botocore standard.py
    "ProvisionedThroughputExceededException": CodeMeaning.THROTTLED,  # botocore standard.py
    "EC2ThrottledException": CodeMeaning.THROTTLED,  # botocore standard.py
    "rateLimitExceeded": CodeMeaning.THROTTLED,  # GCS JSON API errors, also through the XML API
    "userRateLimitExceeded": CodeMeaning.THROTTLED,  # GCS JSON API errors
    "KMS.ThrottlingException": CodeMeaning.KMS_THROTTLED,  # status 400; the hot thing is the key, not the prefix
    # --- the service failed: a write may have been applied
    "InternalError": CodeMeaning.SERVER_ERROR,
    "InternalFailure": CodeMeaning.SERVER_ERROR,  # AWS common errors; pyarrow prints INTERNAL_FAILURE
    "InternalServerError": CodeMeaning.SERVER_ERROR,
    "backendError": CodeMeaning.SERVER_ERROR,  # GCS JSON API errors
    "RequestTimeout": CodeMeaning.TIMEOUT,  # status 400: the socket was idle too long
    "RequestTimeoutException": CodeMeaning.TIMEOUT,  # botocore standard.py
    "NetworkConnection": CodeMeaning.TIMEOUT,  # AWS SDK for C++ CoreErrors (pyarrow): the transport failed
    # --- another request is in the way at this moment: nothing was applied
    "OperationAborted": CodeMeaning.CONFLICT_NOW,
    "ConditionalRequestConflict": CodeMeaning.CONFLICT_NOW,  # 409 of a conditional write: upload again (unlike 412)
    "PriorRequestNotComplete": CodeMeaning.CONFLICT_NOW,  # botocore standard.py
    # --- the bytes were damaged on their way up: nothing was applied
    "BadDigest": CodeMeaning.DAMAGED_UPLOAD,
    "XAmzContentSHA256Mismatch": CodeMeaning.DAMAGED_UPLOAD,
    "XAmzContentChecksumMismatch": CodeMeaning.DAMAGED_UPLOAD,  # MinIO cmd/api-errors.go
    "IncompleteBody": CodeMeaning.DAMAGED_UPLOAD,
    # --- the end of an upload: our own first try may be what is in the way
    "InvalidPart": CodeMeaning.COMMIT_UNSURE,
    "InvalidPartOrder": CodeMeaning.CLIENT_BUG,
    # --- credentials: refresh them, do not spin
    "ExpiredToken": CodeMeaning.EXPIRED,
    "ExpiredTokenException": CodeMeaning.EXPIRED,  # STS
    "InvalidToken": CodeMeaning.AUTH,
    "InvalidIdentityToken": CodeMeaning.AUTH,  # STS
    "IDPCommunicationError": CodeMeaning.AUTH,  # STS: the identity provider could not be reached
    "InvalidAccessKeyId": CodeMeaning.AUTH,
    "InvalidClientTokenId": CodeMeaning.AUTH,  # AWS common errors
    "UnrecognizedClientException": CodeMeaning.AUTH,  # AWS common errors
    "SignatureDoesNotMatch": CodeMeaning.AUTH,
    "TokenRefreshRequired": CodeMeaning.EXPIRED,
    "RequestExpired": CodeMeaning.SKEWED,  # AWS common errors: it came more than 15 minutes after its date
    "RequestTimeTooSkewed": CodeMeaning.SKEWED,  # it was held up; or the clock is off, which no repeat cures
    "AuthorizationHeaderMalformed": CodeMeaning.AUTH,
    "MissingAuthenticationToken": CodeMeaning.AUTH,  # AWS common errors
    "MissingSecurityHeader": CodeMeaning.AUTH,
    # --- not allowed: asking again changes nothing
    "AccessDenied": CodeMeaning.DENIED,
    "AccessDeniedException": CodeMeaning.DENIED,  # AWS common errors
    "AllAccessDisabled": CodeMeaning.DENIED,
    "AccountProblem": CodeMeaning.DENIED,
    "NotSignedUp": CodeMeaning.DENIED,
    "OptInRequired": CodeMeaning.DENIED,  # AWS common errors
    "InvalidPayer": CodeMeaning.DENIED,
    "InvalidSecurity": CodeMeaning.DENIED,
    "InvalidObjectState": CodeMeaning.DENIED,  # archived: restore it first
    "KMS.DisabledException": CodeMeaning.DENIED,  # KMS API reference
    "KMS.KMSInvalidStateException": CodeMeaning.DENIED,  # KMS API reference
    "KMS.NotFoundException": CodeMeaning.DENIED,  # the key is gone, not the object
    "QuotaExceeded": CodeMeaning.DENIED,  # Ceph RGW, MinIO: the bucket is full
    "XMinioStorageFull": CodeMeaning.DENIED,  # MinIO cmd/api-errors.go
    # --- absent
    "NoSuchKey": CodeMeaning.NOT_FOUND,
    "NoSuchBucket": CodeMeaning.NOT_FOUND,
    "NoSuchUpload": CodeMeaning.NOT_FOUND,
    "NoSuchVersion": CodeMeaning.NOT_FOUND,
    "NoSuchLifecycleConfiguration": CodeMeaning.NOT_FOUND,
    "NoSuchBucketPolicy": CodeMeaning.NOT_FOUND,
    "NoSuchTagSet": CodeMeaning.NOT_FOUND,
    "ResourceNotFound": CodeMeaning.NOT_FOUND,  # AWS SDK for C++ CoreErrors (pyarrow)
    # --- a condition does not hold, or the state forbids it
    "PreconditionFailed": CodeMeaning.PRECONDITION,
    "NotModified": CodeMeaning.PRECONDITION,
    "BucketAlreadyExists": CodeMeaning.PRECONDITION,
    "BucketAlreadyOwnedByYou": CodeMeaning.PRECONDITION,
    "BucketNotEmpty": CodeMeaning.PRECONDITION,
    "RestoreAlreadyInProgress": CodeMeaning.PRECONDITION,
    "InvalidWriteOffset": CodeMeaning.PRECONDITION,  # PutObject API reference: an append elsewhere than at the end
    # --- this program's own mistake
    "InvalidRange": CodeMeaning.CLIENT_BUG,
    "EntityTooLarge": CodeMeaning.CLIENT_BUG,
    "EntityTooSmall": CodeMeaning.CLIENT_BUG,
    "InvalidArgument": CodeMeaning.CLIENT_BUG,
    "InvalidRequest": CodeMeaning.CLIENT_BUG,
    "InvalidBucketName": CodeMeaning.CLIENT_BUG,
    "InvalidDigest": CodeMeaning.CLIENT_BUG,
    "KeyTooLongError": CodeMeaning.CLIENT_BUG,
    "MalformedXML": CodeMeaning.CLIENT_BUG,
    "MetadataTooLarge": CodeMeaning.CLIENT_BUG,
    "MissingContentLength": CodeMeaning.CLIENT_BUG,
    "PermanentRedirect": CodeMeaning.CLIENT_BUG,  # the wrong region or endpoint
    "TemporaryRedirect": CodeMeaning.CLIENT_BUG,
    "Redirect": CodeMeaning.CLIENT_BUG,
    "IllegalLocationConstraintException": CodeMeaning.CLIENT_BUG,
    # --- the store does not do this
    "NotImplemented": CodeMeaning.UNSUPPORTED,
    "MethodNotAllowed": CodeMeaning.UNSUPPORTED,
    # --- found by answers.py in an answer that the SDK took for good
    "EmptyAnswer": CodeMeaning.EMPTY_ANSWER,
    "ShortBody": CodeMeaning.DAMAGED_ANSWER,
    "WrongRange": CodeMeaning.DAMAGED_ANSWER,
    "RangeIgnored": CodeMeaning.UNSUPPORTED,  # a proxy that drops Range drops it again
    # --- read from exact texts (texts.py) that say what this program, or what stands between, did
    "ContentRangeMissing": CodeMeaning.UNSUPPORTED,
    "NotForkSafe": CodeMeaning.CLIENT_BUG,
    "EventLoopClosed": CodeMeaning.CLIENT_BUG,
}
