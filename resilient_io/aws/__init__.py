"""S3 and its look-alikes: hooks at each attempt of botocore and aiobotocore, and the s3fs subclass."""
