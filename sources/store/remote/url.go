package remote

import (
	"net/url"
	"strings"

	"millrace"
)

// The schemes of URLs.
const (
	schemeS3    = "s3"
	schemeGS    = "gs"
	schemeAZ    = "az"
	schemeHTTP  = "http"
	schemeHTTPS = "https"
	schemeHF    = "hf"
)

// Schemes returns the schemes that are read.
func Schemes() []string {
	return []string{schemeS3, schemeGS, schemeAZ, schemeHTTP, schemeHTTPS, schemeHF}
}

// location is a parsed URL: bucket + "/" + key is the URL again, without its scheme.
type location struct {
	scheme string
	bucket string // of http: the host; of hf: datasets/org/name@revision
	key    string
}

// url returns the URL of another key of the bucket.
func (l location) url(key string) string { return l.scheme + "://" + l.bucket + "/" + key }

// parse splits a URL, or a prefix of URLs. It refuses URLs that hold credentials, because errors, journals and sample
// ids repeat them.
func parse(text string) (location, error) {
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok {
		return location{}, millrace.Errorf(millrace.ErrInvalid, "read %s: it is no URL", text)
	}
	l := location{scheme: strings.ToLower(scheme)}
	switch l.scheme {
	case schemeS3, schemeGS, schemeAZ:
		l.bucket, l.key, _ = strings.Cut(rest, "/")
	case schemeHTTP, schemeHTTPS:
		l.bucket, l.key, _ = strings.Cut(rest, "/")
		if err := refuseSecrets(l); err != nil {
			return location{}, err
		}
	case schemeHF:
		var err error
		if l.bucket, l.key, err = splitHub(text, rest); err != nil {
			return location{}, err
		}
	default:
		return location{}, millrace.Errorf(millrace.ErrInvalid,
			"read %s: files are read from %s; download the files, or mount the store and write the local path", text,
			strings.Join(Schemes(), "://, ")+"://")
	}
	if l.bucket == "" {
		return location{}, millrace.Errorf(millrace.ErrInvalid, "read %s: it names no bucket; write %s://BUCKET/KEY",
			text, l.scheme)
	}
	return l, nil
}

// refuseSecrets refuses a web address with a password or a signature in it.
func refuseSecrets(l location) error {
	if _, _, found := strings.Cut(l.bucket, "@"); found {
		return millrace.Errorf(millrace.ErrInvalid,
			"read a file of %s: its URL holds a user or a password; take them out of the URL", l.bucket[strings.
				LastIndexByte(l.bucket, '@')+1:])
	}
	_, query, _ := strings.Cut(l.key, "?")
	values, _ := url.ParseQuery(query)
	for name := range values {
		switch strings.ToLower(name) {
		case "sig", "signature", "x-amz-signature", "x-goog-signature", "token", "access_token", "x-amz-security-token":
			return millrace.Errorf(millrace.ErrInvalid,
				"read a file of %s: its URL is signed, so it is a credential that expires; write the s3://, gs://, "+
					"az:// or hf:// URL, and set the credentials of the store", l.bucket)
		}
	}
	return nil
}

// splitHub splits the part of an hf URL behind the scheme: datasets/org/name[@revision]/path. The revisions refs/pr/N
// and refs/convert/NAME have slashes, as in the hub's own libraries.
func splitHub(text, rest string) (repo, path string, err error) {
	parts := strings.SplitN(rest, "/", 4)
	if len(parts) < 3 || parts[0] != "datasets" || parts[1] == "" || parts[2] == "" {
		return "", "", millrace.Errorf(millrace.ErrInvalid,
			"read %s: it names no dataset of the hub; write hf://datasets/ORG/NAME@REVISION/PATH", text)
	}
	repo = strings.Join(parts[:3], "/")
	if len(parts) == 4 {
		path = parts[3]
	}
	if strings.HasSuffix(parts[2], "@refs") {
		more := strings.SplitN(path, "/", 3)
		if len(more) < 2 {
			return "", "", millrace.Errorf(millrace.ErrInvalid,
				"read %s: its revision is not complete; write @refs/pr/NUMBER or @refs/convert/NAME", text)
		}
		repo, path = repo+"/"+more[0]+"/"+more[1], ""
		if len(more) == 3 {
			path = more[2]
		}
	}
	return repo, path, nil
}
