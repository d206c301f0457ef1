"""Tiny scripted raw-socket HTTP server + SDK probes (boto3, s3fs, azure-storage-blob, adlfs, obstore).

A raw_response is a dict:
  status_line : "HTTP/1.1 503 Slow Down"      (None when no bytes are sent)
  headers     : {name: value}                 (Content-Length is added unless "no_length" or already there)
  body        : str (utf-8)  or  body_hex
  action      : respond | close_before_response | reset_before_response | stall_before_response
                | truncate_body:N | reset_body:N | stall_body:N | refuse | dns | chunked_truncate:N
  only_methods: optional list; other methods get a healthy default answer
Everything binds to 127.0.0.1 on a free port.
"""

import asyncio
import contextlib
import os
import socket
import struct
import tempfile
import threading
import time

_real_sleep = time.sleep
OK_HEAD = {
    "Content-Length": "200000",
    "ETag": '"0123456789abcdef0123456789abcdef"',
    "Content-Type": "binary/octet-stream",
    "Last-Modified": "Mon, 01 Jan 2024 00:00:00 GMT",
    "Accept-Ranges": "bytes",
    "x-ms-blob-type": "BlockBlob",
    "x-ms-request-id": "00000000-0000-0000-0000-000000000001",
}


class WireServer:
    def __init__(self, script, stall=3.0):
        self.script = script if isinstance(script, list) else [script]
        self.stall = stall
        self.requests = []  # (method, path, headers, body_len)
        self.lock = threading.Lock()
        self.sock = socket.socket()
        self.sock.bind(("127.0.0.1", 0))
        self.port = self.sock.getsockname()[1]
        self.closed = threading.Event()

    def __enter__(self):
        if self.script[0].get("action") == "refuse":
            self.sock.close()
            return self
        self.sock.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *a):
        self.closed.set()
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(OSError):
            self.sock.close()

    def _accept(self):
        while not self.closed.is_set():
            try:
                c, _ = self.sock.accept()
            except OSError:
                return
            threading.Thread(target=self._conn, args=(c,), daemon=True).start()

    @staticmethod
    def _rst(c):
        with contextlib.suppress(OSError):
            c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        c.close()

    def _conn(self, c):
        c.settimeout(20)
        buf = b""
        try:
            while True:
                while b"\r\n\r\n" not in buf:
                    d = c.recv(65536)
                    if not d:
                        c.close()
                        return
                    buf += d
                    if buf[:1] == b"\x16":  # TLS ClientHello: EOF in handshake
                        with self.lock:
                            self.requests.append(("TLS", "", {}, 0))
                        c.close()
                        return
                head, buf = buf.split(b"\r\n\r\n", 1)
                lines = head.decode("latin1").split("\r\n")
                method, path, _ = lines[0].split(" ", 2)
                hdrs = {}
                for line in lines[1:]:
                    k, _, v = line.partition(":")
                    hdrs[k.strip().lower()] = v.strip()
                if hdrs.get("expect", "").lower() == "100-continue":
                    c.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
                blen = 0
                if "chunked" in hdrs.get("transfer-encoding", ""):
                    while not buf.endswith(b"0\r\n\r\n") and b"\r\n0\r\n" not in buf:
                        d = c.recv(65536)
                        if not d:
                            c.close()
                            return
                        buf += d
                    blen = len(buf)
                    buf = b""
                else:
                    need = int(hdrs.get("content-length", 0) or 0)
                    while len(buf) < need:
                        d = c.recv(65536)
                        if not d:
                            c.close()
                            return
                        buf += d
                    blen = need
                    buf = buf[need:]
                with self.lock:
                    r0 = self.script[0]
                    om = r0.get("only_methods")
                    if om and method not in om:
                        step = None
                    else:
                        n = sum(1 for x in self.requests if (not om or x[0] in om))
                        step = self.script[min(n, len(self.script) - 1)]
                    self.requests.append((method, path, hdrs, blen))
                if step is None:
                    h = dict(OK_HEAD)
                    if method != "HEAD":
                        h["Content-Length"] = "0"
                    self._send(c, "HTTP/1.1 200 OK", h, b"", method)
                    continue
                if not self._do(c, step, method, hdrs):
                    return
        except OSError:
            with contextlib.suppress(OSError):
                c.close()

    def _send(self, c, status, headers, body, method):
        out = status + "\r\n" + "".join(f"{k}: {v}\r\n" for k, v in headers.items()) + "\r\n"
        c.sendall(out.encode("latin1") + (b"" if method == "HEAD" else body))

    def _do(self, c, step, method, rh):
        action = step.get("action") or "respond"
        name, _, arg = action.partition(":")
        n = int(arg) if arg else 0
        if name == "close_before_response":
            c.close()
            return False
        if name == "reset_before_response":
            self._rst(c)
            return False
        if name == "stall_before_response":
            _real_sleep(self.stall)
            c.close()
            return False
        body = bytes.fromhex(step["body_hex"]) if step.get("body_hex") else (step.get("body") or "").encode("utf-8")
        h = dict(step.get("headers") or {})
        if name == "chunked_truncate":
            h["Transfer-Encoding"] = "chunked"
            out = step["status_line"] + "\r\n" + "".join(f"{k}: {v}\r\n" for k, v in h.items()) + "\r\n"
            c.sendall(out.encode("latin1") + b"%x\r\n" % len(body) + body[:n])
            c.close()
            return False
        if not step.get("no_length") and not any(k.lower() == "content-length" for k in h):
            h["Content-Length"] = str(len(body))
        if name == "respond":
            self._send(c, step["status_line"], h, body, method)
            if h.get("Connection", "").lower() == "close" or step.get("no_length"):
                c.close()
                return False
            return True
        self._send(c, step["status_line"], h, body[:n], method)
        if name == "truncate_body":
            c.close()
        elif name == "reset_body":
            _real_sleep(0.15)
            self._rst(c)
        elif name == "stall_body":
            _real_sleep(self.stall)
            c.close()
        return False


# ------------------------------------------------------------------ clients
BUCKET, KEY = "example-bucket", "train/shard-00000.tar"
CREDENTIALS = {
    "aws_access_key_id": "EXAMPLEKEYID",
    "aws_secret_access_key": "examplesecret",
    "region_name": "us-east-1",
}
AZ_KEY = "ZXhhbXBsZS1rZXktbm90LWEtcmVhbC1vbmU="
T = 0.8


def s3_client(endpoint, mode="standard", attempts=1):
    import boto3
    from botocore.config import Config

    return boto3.client(
        "s3",
        **CREDENTIALS,
        endpoint_url=endpoint,
        config=Config(
            retries={"mode": mode, "total_max_attempts": attempts},
            connect_timeout=T,
            read_timeout=T,
            s3={"addressing_style": "path"},
        ),
    )


def p_boto3(op, endpoint, **kw):
    c = s3_client(endpoint, **kw)
    B = {"Bucket": BUCKET}
    if op == "GetObject":
        return c.get_object(Key=KEY, **B)["Body"].read()
    if op == "HeadObject":
        return c.head_object(Key=KEY, **B)
    if op == "PutObject":
        return c.put_object(Key=KEY, Body=b"x" * 1000, **B)
    if op == "PutObject-IfNoneMatch":
        return c.put_object(Key=KEY, Body=b"x" * 1000, IfNoneMatch="*", **B)
    if op == "ListObjectsV2":
        return c.list_objects_v2(Prefix="train/", **B)
    if op == "CompleteMultipartUpload":
        return c.complete_multipart_upload(
            Key=KEY, UploadId="EXAMPLE-UPLOAD", MultipartUpload={"Parts": [{"ETag": '"a"', "PartNumber": 1}]}, **B
        )
    if op == "UploadPart":
        return c.upload_part(Key=KEY, UploadId="EXAMPLE-UPLOAD", PartNumber=1, Body=b"x" * 1000, **B)
    if op == "CopyObject":
        return c.copy_object(Key=KEY, CopySource={"Bucket": BUCKET, "Key": "a"}, **B)
    if op == "UploadPartCopy":
        return c.upload_part_copy(
            Key=KEY, UploadId="EXAMPLE-UPLOAD", PartNumber=1, CopySource={"Bucket": BUCKET, "Key": "a"}, **B
        )
    if op == "DeleteObjects":
        return c.delete_objects(Delete={"Objects": [{"Key": "a"}, {"Key": "b"}]}, **B)
    if op == "upload_file":
        with tempfile.NamedTemporaryFile() as f:
            f.write(b"x" * 1000)
            f.flush()
            return c.upload_file(f.name, BUCKET, KEY)
    if op == "download_file":
        return c.download_file(BUCKET, KEY, os.path.join(tempfile.gettempdir(), "corpus-download.bin"))
    raise KeyError(op)


def p_sts(op, endpoint, **kw):
    import boto3
    from botocore.config import Config

    c = boto3.client(
        "sts",
        **CREDENTIALS,
        endpoint_url=endpoint,
        config=Config(retries={"mode": "standard", "total_max_attempts": 1}, read_timeout=T, connect_timeout=T),
    )
    return c.assume_role(RoleArn="arn:aws:iam::000000000000:role/example", RoleSessionName="example")


def p_s3fs(op, endpoint, retries=1, attempts=1, mode="standard"):
    import s3fs

    fs = s3fs.S3FileSystem(
        key="EXAMPLEKEYID",
        secret="examplesecret",
        endpoint_url=endpoint,
        skip_instance_cache=True,
        use_listings_cache=False,
        config_kwargs={
            "retries": {"mode": mode, "total_max_attempts": attempts},
            "connect_timeout": T,
            "read_timeout": T,
            "s3": {"addressing_style": "path"},
        },
    )
    fs.retries = retries
    p = f"{BUCKET}/{KEY}"
    if op == "cat_file-range":
        return fs.cat_file(p, start=0, end=100000)
    if op == "cat_file":
        return fs.cat_file(p)
    if op == "cat_file-concurrent":
        return fs.cat_file(p, chunksize=50000)
    if op == "open-read":
        with fs.open(p, "rb", size=200000) as f:
            return f.read(1000)
    if op == "info":
        return fs.info(p)
    if op == "exists":
        return fs.exists(p)
    if op == "exists-bucket":
        return fs.exists(BUCKET)
    if op == "ls":
        return fs.ls(f"{BUCKET}/train")
    if op == "pipe_file":
        return fs.pipe_file(p, b"x" * 1000)
    if op == "pipe_file-create":
        return fs.pipe_file(p, b"x" * 1000, mode="create")
    if op == "complete_multipart_upload":
        from fsspec.asyn import sync

        return sync(
            fs.loop,
            fs._call_s3,
            "complete_multipart_upload",
            Bucket=BUCKET,
            Key=KEY,
            UploadId="EXAMPLE-UPLOAD",
            MultipartUpload={"Parts": [{"ETag": '"a"', "PartNumber": 1}]},
        )
    if op == "rm-bulk":
        return fs.rm([p, p + "2"])
    raise KeyError(op)


def az_client(endpoint, retry_total=0, **kw):
    from azure.storage.blob import BlobServiceClient

    return BlobServiceClient(
        account_url=endpoint + "/exampleacct",
        credential={"account_name": "exampleacct", "account_key": AZ_KEY},
        retry_total=retry_total,
        connection_timeout=T,
        read_timeout=T,
        **kw,
    )


def p_azure(op, endpoint, **kw):
    with az_client(endpoint, **kw) as s:
        cc = s.get_container_client(BUCKET)
        bc = cc.get_blob_client(KEY)
        if op == "GetBlob":
            return bc.download_blob(max_concurrency=1).readall()
        if op == "GetBlobProperties":
            return bc.get_blob_properties()
        if op == "exists":
            return bc.exists()
        if op == "PutBlob":
            return bc.upload_blob(b"x" * 1000, overwrite=True)
        if op == "PutBlob-IfNoneMatch":
            return bc.upload_blob(b"x" * 1000, overwrite=False)
        if op == "PutBlock":
            return bc.stage_block("YWFh", b"x" * 1000)
        if op == "PutBlockList":
            from azure.storage.blob import BlobBlock

            return bc.commit_block_list([BlobBlock("YWFh")])
        if op == "AppendBlock":
            return bc.append_block(b"x" * 1000, appendpos_condition=0)
        if op == "ListBlobs":
            return list(cc.list_blobs(name_starts_with="train/"))
        if op == "CreateContainer":
            return cc.create_container()
        if op == "CopyBlobFromURL":
            return bc.start_copy_from_url(endpoint + "/exampleacct/example-bucket/src", requires_sync=True)
        if op == "AcquireLease":
            return bc.acquire_lease(15)
        raise KeyError(op)


def p_azure_aio(op, endpoint, **kw):
    from azure.storage.blob.aio import BlobServiceClient

    async def go():
        async with BlobServiceClient(
            account_url=endpoint + "/exampleacct",
            credential={"account_name": "exampleacct", "account_key": AZ_KEY},
            retry_total=0,
            connection_timeout=T,
            read_timeout=T,
        ) as s:
            bc = s.get_container_client(BUCKET).get_blob_client(KEY)
            if op == "GetBlob":
                st = await bc.download_blob(max_concurrency=1)
                return await st.readall()
            if op == "PutBlob":
                return await bc.upload_blob(b"x" * 1000, overwrite=True)
            if op == "PutBlob-IfNoneMatch":
                return await bc.upload_blob(b"x" * 1000, overwrite=False)
            if op == "GetBlobProperties":
                return await bc.get_blob_properties()
            raise KeyError(op)

    return asyncio.run(go())


def p_adlfs(op, endpoint, **kw):
    import adlfs

    fs = adlfs.AzureBlobFileSystem(
        connection_string=f"DefaultEndpointsProtocol=http;AccountName=exampleacct;AccountKey={AZ_KEY};BlobEndpoint={endpoint}/exampleacct;",
        skip_instance_cache=True,
        connection_timeout=T,
        read_timeout=T,
    )
    p = f"{BUCKET}/{KEY}"
    if op == "cat_file":
        return fs.cat_file(p)
    if op == "info":
        return fs.info(p)
    if op == "exists":
        return fs.exists(p)
    if op == "isfile":
        return fs.isfile(p)
    if op == "isdir":
        return fs.isdir(p)
    if op == "ls":
        return fs.ls(f"{BUCKET}/train")
    if op == "write":
        with fs.open(p, "wb") as f:
            f.write(b"x" * 1000)
        return "written"
    if op == "pipe_file":
        return fs.pipe_file(p, b"x" * 1000)
    if op == "pipe_file-create":
        return fs.pipe_file(p, b"x" * 1000, mode="create")
    if op == "setxattrs":
        return fs.setxattrs(p, a="b")
    raise KeyError(op)


def p_obstore(op, endpoint, **kw):
    import obstore
    from obstore.store import S3Store

    st = S3Store(
        BUCKET,
        endpoint=endpoint,
        access_key_id="EXAMPLEKEYID",
        secret_access_key="examplesecret",
        region="us-east-1",
        virtual_hosted_style_request=False,
        client_options={"allow_http": True, "timeout": "1s"},
        retry_config={"max_retries": 0},
    )
    if op == "get":
        return bytes(obstore.get(st, KEY).bytes())
    if op == "put":
        return obstore.put(st, KEY, b"x" * 1000)
    if op == "head":
        return obstore.head(st, KEY)
    raise KeyError(op)


PROBES = {
    "boto3": p_boto3,
    "sts": p_sts,
    "s3fs": p_s3fs,
    "azure": p_azure,
    "azure-aio": p_azure_aio,
    "adlfs": p_adlfs,
    "obstore": p_obstore,
}


def run_probe(sdk, op, raw, scheme="http", **kw):
    """Returns (exception or None, result, number of requests)."""
    act = (raw[0] if isinstance(raw, list) else raw).get("action")
    with WireServer(raw, stall=2.5) as srv:
        ep = f"{scheme}://no-such-host.invalid" if act == "dns" else f"{scheme}://127.0.0.1:{srv.port}"
        try:
            return None, PROBES[sdk](op, ep, **kw), len(srv.requests)
        except Exception as e:
            return e, None, len(srv.requests)
