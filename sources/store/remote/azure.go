package remote

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
)

// azureStore reads a container of Azure Blob Storage.
type azureStore struct{ container *container.Client }

var _ store = (*azureStore)(nil)

// openAzure finds the account and its credentials in the environment, under the names that Azure's tools use.
func openAzure(bucket string, s Storage) (store, error) {
	options := &container.ClientOptions{ClientOptions: policy.ClientOptions{
		Transport: newClient(), Retry: policy.RetryOptions{MaxRetries: -1},
		Telemetry: policy.TelemetryOptions{Disabled: true}}}
	if text := os.Getenv("AZURE_STORAGE_CONNECTION_STRING"); text != "" && !s.Anonymous {
		c, err := container.NewClientFromConnectionString(text, bucket, options)
		if err != nil { // the error may repeat the key
			return nil, &failure{cause: denied, err: errors.New("AZURE_STORAGE_CONNECTION_STRING is not understood")}
		}
		return &azureStore{c}, nil
	}
	account := os.Getenv("AZURE_STORAGE_ACCOUNT")
	root := strings.TrimSuffix(s.Endpoint, "/")
	switch {
	case root == "" && account == "":
		return nil, &failure{cause: wrong, err: errors.New("the account is not known: set AZURE_STORAGE_ACCOUNT, or " +
			"`storage: {endpoint: https://ACCOUNT.blob.core.windows.net}`")}
	case root == "":
		root = "https://" + account + ".blob.core.windows.net"
	}
	c, err := azureClient(root+"/"+bucket, account, s, options)
	if err != nil {
		return nil, err
	}
	return &azureStore{c}, nil
}

func azureClient(url, account string, s Storage, options *container.ClientOptions) (*container.Client, error) {
	var c *container.Client
	var err error
	key, token := os.Getenv("AZURE_STORAGE_KEY"), os.Getenv("AZURE_STORAGE_SAS_TOKEN")
	switch {
	case s.Anonymous:
		c, err = container.NewClientWithNoCredential(url, options)
	case key != "":
		var shared *container.SharedKeyCredential
		if shared, err = container.NewSharedKeyCredential(account, key); err == nil {
			c, err = container.NewClientWithSharedKeyCredential(url, shared, options)
		}
	case token != "":
		c, err = container.NewClientWithNoCredential(url+"?"+strings.TrimPrefix(token, "?"), options)
	default:
		var chain *azidentity.DefaultAzureCredential
		if chain, err = azidentity.NewDefaultAzureCredential(nil); err == nil {
			c, err = container.NewClient(url, chain, options)
		}
	}
	if err != nil {
		return nil, &failure{cause: denied, err: errors.New("the credentials are not understood")}
	}
	return c, nil
}

// ofAzure returns the failure of a request.
func ofAzure(err error) error {
	var answer *azcore.ResponseError
	if errors.As(err, &answer) && answer.StatusCode != 0 {
		f := &failure{cause: causeOf(answer.StatusCode, answer.ErrorCode), status: answer.StatusCode,
			code: answer.ErrorCode}
		if answer.RawResponse != nil {
			f.after = waitOf(answer.RawResponse.Header.Get("Retry-After"))
		}
		return f
	}
	var chain *azidentity.AuthenticationFailedError
	if errors.As(err, &chain) || containsText(err, "DefaultAzureCredential") {
		return &failure{cause: denied, err: errors.New("no credentials were found")}
	}
	return ofTransport(err)
}

// list implements store.
func (a *azureStore) list(ctx context.Context, prefix string, fn func(object) error) error {
	pager := a.container.NewListBlobsFlatPager(&container.ListBlobsFlatOptions{Prefix: &prefix})
	for seen := (pages{}); pager.More(); {
		page, err := pager.NextPage(ctx)
		if err != nil {
			return ofAzure(err)
		}
		if token := valueOf(page.NextMarker); token != "" {
			if err := seen.turn(token); err != nil {
				return err
			}
		}
		if page.Segment == nil {
			return &failure{cause: wrong, err: errors.New("its list has no blobs; is the endpoint one of Azure?")}
		}
		for _, b := range page.Segment.BlobItems {
			o := object{key: valueOf(b.Name)}
			if p := b.Properties; p != nil {
				o.size, o.modified = valueOf(p.ContentLength), valueOf(p.LastModified)
				o.version = plainVersion(string(valueOf(p.ETag)))
			}
			if err := fn(o); err != nil {
				return err
			}
		}
	}
	return nil
}

func valueOf[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// stat implements store.
func (a *azureStore) stat(ctx context.Context, key string) (object, error) {
	p, err := a.container.NewBlobClient(key).GetProperties(ctx, nil)
	if err != nil {
		return object{}, ofAzure(err)
	}
	return object{key: key, size: valueOf(p.ContentLength), version: plainVersion(string(valueOf(p.ETag))),
		modified: valueOf(p.LastModified)}, nil
}

// read implements store.
func (a *azureStore) read(ctx context.Context, of object, off, n int64) (io.ReadCloser, error) {
	etag := azcore.ETag(`"` + of.version + `"`)
	got, err := a.container.NewBlobClient(of.key).DownloadStream(ctx, &blob.DownloadStreamOptions{
		Range: blob.HTTPRange{Offset: off, Count: n},
		AccessConditions: &blob.AccessConditions{
			ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfMatch: &etag}},
	})
	if err != nil {
		return nil, ofAzure(err)
	}
	now := of
	now.version = plainVersion(string(valueOf(got.ETag)))
	return checked(got.Body, of, now, valueOf(got.ContentRange), off, n)
}

// credentials implements store.
func (a *azureStore) credentials() string {
	return "AZURE_STORAGE_CONNECTION_STRING, AZURE_STORAGE_KEY, AZURE_STORAGE_SAS_TOKEN, `az login`, or the identity " +
		"of the machine"
}
