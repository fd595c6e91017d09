// Package export writes the rows of an answer into a file that pandas, Polars and DuckDB open.
package export

import (
	"bufio"
	"crypto/rand"
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/ipc"
	"github.com/apache/arrow/go/v17/arrow/memory"

	"millrace/app/exit"
)

// The endings of the files that Write can write.
const (
	parquetEnding = ".parquet"
	arrowEnding   = ".arrow"
)

// Check returns an error of wrong usage unless Write can write a file of this name.
func Check(path string) error {
	switch filepath.Ext(path) {
	case parquetEnding, arrowEnding:
		return nil
	}
	return exit.Usagef("--to %s: the ending says the format: write FILE%s or FILE%s", path, parquetEnding, arrowEnding)
}

// batchRows is the number of rows of a row group of Parquet, or of a record batch of Arrow: readers and this writer
// hold one in memory.
const batchRows = 64 << 10

// Write writes a table to path: Parquet with Zstandard, or an Arrow file without compression, by the ending of path.
// fill adds its rows, in order. T is a struct; each exported field is a column under its JSON name (see columnsOf).
//
// The file appears under its name when it is complete, in place of an older one. After an error there is none, or the
// older one.
func Write[T any](path string, fill func(add func(T) error) error) error {
	if err := Check(path); err != nil {
		return err
	}
	temporary := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+"."+rand.Text()[:8])
	f, err := os.OpenFile(temporary, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666) // less the umask
	if err != nil {
		return exit.Failuref("write %s: %w", path, err)
	}
	var filled error
	err = writeTo(f, path, func(add func(T) error) error {
		filled = fill(add)
		return filled
	})
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(temporary, path)
	}
	if err == nil {
		return nil
	}
	err = errors.Join(err, os.Remove(temporary))
	if filled != nil { // its error has its own words and status
		return filled
	}
	return exit.Failuref("write %s: %w", path, err)
}

// writeTo writes a whole table to f. path is its name for the user.
func writeTo[T any](f *os.File, path string, fill func(add func(T) error) error) error {
	columns, err := columnsOf[T]()
	if err != nil {
		return err
	}
	schema := schemaOf(columns)
	out := bufio.NewWriterSize(f, 1<<20)
	w, err := newBatches(f, out, filepath.Ext(path), schema)
	if err != nil {
		return err
	}
	rows := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer rows.Release()
	n := 0
	flush := func() error {
		batch := rows.NewRecord()
		defer batch.Release()
		n = 0
		return w.Write(batch)
	}
	err = fill(func(row T) error {
		err := appendRow(rows, columns, &row)
		if n++; err == nil && n == batchRows {
			err = flush()
		}
		if err != nil {
			return exit.Failuref("write %s: %w", path, err)
		}
		return nil
	})
	if err == nil && n > 0 {
		err = flush()
	}
	if err = errors.Join(err, w.Close()); err != nil {
		return err
	}
	return out.Flush()
}

// batches is a file of record batches.
type batches interface {
	Write(arrow.Record) error
	Close() error
}

// newBatches begins a file. Parquet goes through out; Arrow's writer asks f for its position, so it writes to f itself.
func newBatches(f *os.File, out io.Writer, ending string, schema *arrow.Schema) (batches, error) {
	if ending == arrowEnding {
		return ipc.NewFileWriter(f, ipc.WithSchema(schema))
	}
	return newParquet(out, schema)
}
