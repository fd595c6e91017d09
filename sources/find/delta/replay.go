package delta

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"millrace"
)

// key is a file of a log by its plain path: files with different vectors of deleted rows are different.
type key struct{ path, vector string }

func (k key) compare(other key) int {
	return cmp.Or(strings.Compare(k.path, other.path), strings.Compare(k.vector, other.vector))
}

// added is a file that was added.
type added struct {
	uri    string             // its path as the log has it
	values map[string]*string // of the partition columns
}

// replay is the state of a table between two commits.
type replay struct {
	dir      string
	live     map[key]added
	protocol *protocol
	schema   *schema
	settings map[string]string
}

// The actions of a log. Others, such as transactions, do not change the rows.
type (
	action struct {
		Protocol *protocol `json:"protocol"`
		MetaData *metaData `json:"metaData"`
		Add      *file     `json:"add"`
		Remove   *file     `json:"remove"`
	}
	protocol struct {
		MinReaderVersion int      `json:"minReaderVersion"`
		ReaderFeatures   []string `json:"readerFeatures"`
	}
	metaData struct {
		Format           struct{ Provider string } `json:"format"`
		SchemaString     string                    `json:"schemaString"`
		PartitionColumns []string                  `json:"partitionColumns"`
		Configuration    map[string]*string        `json:"configuration"`
	}
	file struct {
		Path            string             `json:"path"`
		PartitionValues map[string]*string `json:"partitionValues"`
		DeletionVector  *vector            `json:"deletionVector"`
	}
	vector struct {
		StorageType    string `json:"storageType"`
		PathOrInlineDv string `json:"pathOrInlineDv"`
		Offset         *int   `json:"offset"`
	}
)

// key returns the name of the file in the log.
func (f *file) key() key {
	k := key{path: f.Path}
	if plain, err := url.PathUnescape(f.Path); err == nil { // writers escape the same path in several ways
		k.path = plain
	}
	if v := f.DeletionVector; v != nil {
		k.vector = v.StorageType + v.PathOrInlineDv
		if v.Offset != nil {
			k.vector += "@" + strconv.Itoa(*v.Offset)
		}
	}
	return k
}

// commit applies the actions of one commit. Their order does not matter: it names each file at most once.
func (r *replay) commit(text []byte) error {
	d := json.NewDecoder(bytes.NewReader(text))
	for {
		var a action
		err := d.Decode(&a)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return millrace.Errorf(millrace.ErrDamaged, "its JSON is damaged at byte %d: %w: restore it",
				d.InputOffset(), err)
		}
		if err := r.apply(&a); err != nil {
			return err
		}
	}
}

// apply applies one action.
func (r *replay) apply(a *action) error {
	if a.Protocol != nil {
		r.protocol = a.Protocol
	}
	if m := a.MetaData; m != nil {
		if m.Format.Provider != "" && m.Format.Provider != "parquet" {
			return millrace.Errorf(millrace.ErrInvalid, "its files are of the format %s, want parquet: %s",
				m.Format.Provider, copyTable)
		}
		var err error
		if r.schema, err = schemaOf(m.SchemaString, m.PartitionColumns); err != nil {
			return err
		}
		r.settings = map[string]string{}
		for name, value := range m.Configuration {
			if value != nil {
				r.settings[name] = *value
			}
		}
	}
	if a.Remove != nil {
		delete(r.live, a.Remove.key())
	}
	if a.Add != nil {
		r.live[a.Add.key()] = added{a.Add.Path, a.Add.PartitionValues}
	}
	return nil
}

// understood are the features of a table that do not change how its files are read, or that are refused where a file
// or a setting uses them.
func understood() []string {
	return []string{"columnMapping", "deletionVectors", "timestampNtz", "vacuumProtocolCheck"}
}

// unread returns why the rows of the table are not read, "" if they are.
func (r *replay) unread() string {
	p := r.protocol
	if p.MinReaderVersion > 3 {
		return fmt.Sprintf("needs a reader of version %d, and this one is of version 3: %s", p.MinReaderVersion,
			copyTable)
	}
	if mode := r.settings["delta.columnMapping.mode"]; mode != "" && mode != "none" {
		return fmt.Sprintf("has columns with other names in its files (`delta.columnMapping.mode = %s`), which are "+
			"not read: %s", mode, copyTable)
	}
	for _, feature := range p.ReaderFeatures {
		if p.MinReaderVersion == 3 && !slices.Contains(understood(), feature) {
			return fmt.Sprintf("has the feature %s, which is not read: %s", feature, copyTable)
		}
	}
	return ""
}

// checkpointColumns are the columns of a checkpoint that are read.
func checkpointColumns() []string {
	return []string{"add.path", "add.partitionValues", "add.deletionVector", "protocol.minReaderVersion",
		"protocol.readerFeatures", "metaData.format", "metaData.schemaString", "metaData.partitionColumns",
		"metaData.configuration", "sidecar.path"}
}

// checkpoint applies the rows of a part of a checkpoint. It lists removed files too, which are not there any more.
func (r *replay) checkpoint(log Log, name string) error {
	return log.Rows(name, checkpointColumns(), func(row []any) error {
		var a action
		if path, ok := row[0].(string); ok {
			a.Add = &file{Path: path}
			if err := remarshal(row[1], &a.Add.PartitionValues); err != nil {
				return err
			}
			if err := remarshal(row[2], &a.Add.DeletionVector); err != nil {
				return err
			}
		}
		if n, ok := row[3].(int); ok {
			a.Protocol = &protocol{MinReaderVersion: n}
			if err := remarshal(row[4], &a.Protocol.ReaderFeatures); err != nil {
				return err
			}
		}
		if text, ok := row[6].(string); ok {
			a.MetaData = &metaData{SchemaString: text}
			for i, to := range map[int]any{5: &a.MetaData.Format, 7: &a.MetaData.PartitionColumns,
				8: &a.MetaData.Configuration} {
				if err := remarshal(row[i], to); err != nil {
					return err
				}
			}
		}
		if row[9] != nil {
			return millrace.Errorf(millrace.ErrInvalid, "its rows lie in sidecar files, which are not read: write a "+
				"classic checkpoint, as with `delta.checkpointPolicy = classic` and a commit")
		}
		return r.apply(&a)
	})
}

// remarshal sets a field of an action to a value of a checkpoint.
func remarshal(value, to any) error {
	b, err := json.Marshal(value)
	if err == nil {
		err = json.Unmarshal(b, to)
	}
	if err != nil {
		return millrace.Errorf(millrace.ErrDamaged, "a row is none of a checkpoint: %w", err)
	}
	return nil
}
