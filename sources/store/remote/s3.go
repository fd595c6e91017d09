package remote

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/logging"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// s3Store reads a bucket of S3, or of a service that speaks its protocol.
type s3Store struct {
	client *s3.Client
	bucket string
}

var _ store = (*s3Store)(nil)

// openS3 makes the client of a bucket. Credentials come from the chain of the AWS libraries: environment, shared
// files, web identity, container and instance.
func openS3(ctx context.Context, bucket string, s Storage) (store, error) {
	options := []func(*config.LoadOptions) error{
		config.WithHTTPClient(awshttp.NewBuildableClient().WithTransportOptions(tune)),
		config.WithRetryer(func() aws.Retryer { return aws.NopRetryer{} }),
		config.WithLogger(logging.Nop{}),
	}
	if s.Region != "" {
		options = append(options, config.WithRegion(s.Region))
	}
	if s.Anonymous {
		options = append(options, config.WithCredentialsProvider(aws.AnonymousCredentials{}))
	}
	c, err := config.LoadDefaultConfig(ctx, options...)
	if err != nil {
		return nil, &failure{cause: wrong, err: err}
	}
	if c.Region == "" {
		c.Region = "us-east-1"
	}
	client := s3.NewFromConfig(c, func(o *s3.Options) {
		if s.Endpoint != "" {
			o.BaseEndpoint, o.UsePathStyle = aws.String(s.Endpoint), true
		} else if o.BaseEndpoint != nil { // AWS_ENDPOINT_URL
			o.UsePathStyle = true
		}
		// other services refuse or leave out the checksums of S3
		o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
		o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
	})
	return &s3Store{client: client, bucket: bucket}, nil
}

// tune sets the connections of a client. Proxies come from the environment.
func tune(t *http.Transport) {
	t.Proxy = http.ProxyFromEnvironment
	t.MaxIdleConns, t.MaxIdleConnsPerHost = 2*mostRequests, mostRequests
	t.IdleConnTimeout = 90 * time.Second
	t.ResponseHeaderTimeout = answerWait
	t.DisableCompression = true
	if t.TLSClientConfig == nil {
		t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
}

// ofS3 returns the failure of a request.
func ofS3(err error) error {
	f := &failure{}
	var answer *smithyhttp.ResponseError
	if errors.As(err, &answer) && answer.Response != nil {
		f.status = answer.HTTPStatusCode()
		f.after = waitOf(answer.Response.Header.Get("Retry-After"))
		if region := answer.Response.Header.Get("x-amz-bucket-region"); region != "" && f.status == 301 {
			f.err = errors.New("the bucket is in region " + region + ": set `storage: {region: " + region + "}`")
		}
	}
	var api smithy.APIError
	if errors.As(err, &api) {
		f.code = api.ErrorCode()
	}
	if f.status == 0 && f.code == "" {
		var missing *aws.MissingRegionError
		if errors.As(err, &missing) {
			return &failure{cause: wrong, err: missing}
		}
		var signing *smithyhttp.RequestSendError
		var deserialise *smithy.DeserializationError
		if !errors.As(err, &signing) && !errors.As(err, &deserialise) && isCredentials(err) {
			return &failure{cause: denied, err: errors.New("no credentials were found")}
		}
		if errors.As(err, &signing) {
			err = signing.Err
		}
		return ofTransport(err)
	}
	f.cause = causeOf(f.status, f.code)
	return f
}

// isCredentials reports whether a request was not sent for want of credentials.
func isCredentials(err error) bool {
	var op *smithy.OperationError
	if !errors.As(err, &op) {
		return false
	}
	var signing interface{ IsCredentialError() bool }
	return errors.As(err, &signing) ||
		containsText(err, "get credentials", "retrieve credentials", "refresh cached credentials",
			"static credentials are empty")
}

// list implements store.
func (s *s3Store) list(ctx context.Context, prefix string, fn func(object) error) error {
	pager := s3.NewListObjectsV2Paginator(s.client,
		&s3.ListObjectsV2Input{Bucket: &s.bucket, Prefix: aws.String(prefix)})
	for seen := (pages{}); pager.HasMorePages(); {
		page, err := pager.NextPage(ctx)
		if err != nil {
			return ofS3(err)
		}
		if token := aws.ToString(page.NextContinuationToken); token != "" {
			if err := seen.turn(token); err != nil {
				return err
			}
		}
		for i := range page.Contents {
			o := &page.Contents[i]
			err := fn(object{key: aws.ToString(o.Key), size: aws.ToInt64(o.Size),
				version: plainVersion(aws.ToString(o.ETag)), modified: aws.ToTime(o.LastModified)})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// stat implements store.
func (s *s3Store) stat(ctx context.Context, key string) (object, error) {
	head, err := s.client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &s.bucket, Key: &key})
	if err != nil {
		return object{}, ofS3(err)
	}
	return object{key: key, size: aws.ToInt64(head.ContentLength), version: plainVersion(aws.ToString(head.ETag)),
		modified: aws.ToTime(head.LastModified)}, nil
}

// read implements store.
func (s *s3Store) read(ctx context.Context, of object, off, n int64) (io.ReadCloser, error) {
	in := &s3.GetObjectInput{Bucket: &s.bucket, Key: &of.key, Range: aws.String(span(off, n))}
	if of.version != "" {
		in.IfMatch = aws.String(`"` + of.version + `"`)
	}
	got, err := s.client.GetObject(ctx, in)
	if err != nil {
		return nil, ofS3(err)
	}
	now := of
	if got.ETag != nil {
		now.version = plainVersion(*got.ETag)
	}
	return checked(got.Body, of, now, aws.ToString(got.ContentRange), off, n)
}

// credentials implements store.
func (s *s3Store) credentials() string {
	return "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE, or the role of the machine"
}
